"""What a disentanglement score is: a number next to what noise and a rotation of the factors score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import entropy

from pindown.data.labels import is_quantity, numbered
from pindown.errors import InputError
from pindown.metrics.arrays import (
    Labels,
    Matrix,
    RandomState,
    check_same_samples,
    matched_sum,
    read_matrix,
    standardise,
)

DEFINITION = 1
"""Number of these definitions: it grows when the same arrays would give another number."""

Continuous = Sequence[bool] | bool | None
"""Whether each factor, or all, are quantities; None decides by their values."""

T = TypeVar("T")
Measure: TypeAlias = "Callable[[FactorData, np.random.Generator], T]"

SALT = 0x5C0135
N_BINS = 20  # into which a quantity is cut where a metric needs samples that share a level
MIN_SAMPLES = 40
FIT_SAMPLES, TEST_SAMPLES = 10_000, 5_000  # of the reference: more would cost time, and change little


@dataclass(frozen=True)
class Score:
    """A score next to its chance levels.

    ``float(score)`` is its value. Printed alone, a score that noise or a rotation hardly lowers says so; in a
    `Scores` table, next to others, it does not.

    Attributes
    ----------
    name : str
        Of the metric.
    value : float
        The score.
    noise : float
        What Gaussian noise of as many dimensions scores on the same samples.
    rotation : float
        What the true factors score, standardised and rotated by a typical random rotation: only the axes are lost.
    parts : tuple of float
        What the value averages: one number per factor or per latent (the docstring of the metric says which).
    caveat : str
        Why the score must not be reported alone; empty if it may.
    definition : int
        `DEFINITION` when it was computed.

    Examples
    --------
    >>> print(Score("mig", 0.4, noise=0.003, rotation=0.08))
    mig 0.400 (noise 0.003, rotated factors 0.080)
    """

    name: str
    value: float
    noise: float
    rotation: float
    parts: tuple[float, ...] = ()
    caveat: str = ""
    definition: int = DEFINITION

    def __float__(self) -> float:
        return self.value

    def __iter__(self) -> Iterator[Score]:
        yield self

    def __str__(self) -> str:
        levels = f"{self.name} {self.value:.3f} (noise {self.noise:.3f}, rotated factors {self.rotation:.3f})"
        return f"{levels}: {self.caveat}" if self.caveat else levels


class Scores(tuple[Score, ...]):
    """Several scores that print as a table.

    Examples
    --------
    >>> a, b = Score("mig", 0.4, 0.003, 0.08), Score("modularity", 0.9, 0.66, 0.86, caveat="never alone.")
    >>> print(Scores((a, b)))
                          score   noise  rotated factors
    mig                   0.400   0.003            0.080
    modularity            0.900   0.660            0.860
    """

    def __str__(self) -> str:
        rows = [f"{s.name:<20} {s.value:6.3f}  {s.noise:6.3f}  {s.rotation:15.3f}" for s in self]
        return "\n".join([f"{'':<20} {'score':>6}  {'noise':>6}  {'rotated factors':>15}", *rows])


class ThreeScores:
    """Scores that come from one matrix of latents by factors: iterates over them, and prints a line for each."""

    def __iter__(self) -> Iterator[Score]:
        return (value for value in vars(self).values() if isinstance(value, Score))

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@dataclass(frozen=True, eq=False)
class DCI(ThreeScores):
    """Disentanglement of latents, completeness of factors, informativeness; and the importances they come from.

    ``importance`` is (latents that vary, factors): how much of what a booster learns of a factor it learns from a
    latent. The columns sum to 1.
    """

    disentanglement: Score
    completeness: Score
    informativeness: Score
    importance: Matrix


@dataclass(frozen=True, eq=False)
class InfoMEC(ThreeScores):
    """Modularity of latents, compactness of factors, explicitness; and the information they come from.

    ``information`` is (latents that vary, factors): the fraction of a factor's information that a latent has.
    """

    modularity: Score
    compactness: Score
    explicitness: Score
    information: Matrix


class Measured(NamedTuple):
    """A value, and what it is the mean of: one number per factor or per latent."""

    value: float
    parts: Matrix


Three = tuple[Measured, Measured, Measured]


def mean_of(parts: ArrayLike) -> Measured:
    """Average the parts that are defined; 0 if none is."""
    values = np.asarray(parts, dtype=np.float64)
    defined = values[np.isfinite(values)]
    return Measured(float(defined.mean()) if defined.size else 0.0, values)


def score(name: str, with_chance: Sequence[Measured], caveat: str = "") -> Score:
    """Make a score of what was measured on the embedding, on noise and on a rotation."""
    found, noise, rotation = with_chance
    return Score(name, found.value, noise.value, rotation.value, tuple(found.parts.tolist()), caveat)


def three_scores(names: tuple[str, str, str], with_chance: Sequence[Three]) -> tuple[Score, Score, Score]:
    """Make three scores of what was measured on the embedding, on noise and on a rotation."""
    one, two, three = (score(name, each) for name, each in zip(names, zip(*with_chance, strict=True), strict=True))
    return one, two, three


# ---- embeddings and factors -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrueFactor:
    """One true factor: numbers, and its levels 0, 1, …, which are bins with equally many samples if continuous."""

    values: Matrix  # (n,), standardised
    labels: Labels  # (n,)
    continuous: bool
    n_levels: int  # or bins

    def entropy(self) -> float:
        """Return the entropy of the labels, in nats."""
        return float(entropy(np.bincount(self.labels)))

    def of(self, some: Labels) -> TrueFactor:
        """Return the factor of some samples."""
        return replace(self, values=self.values[some], labels=self.labels[some])


@dataclass(frozen=True, eq=False)
class FactorData:
    """Standardised latents that vary, and the factors of the same samples."""

    z_hat: Matrix  # (n, d_hat)
    factors: tuple[TrueFactor, ...]

    def __len__(self) -> int:
        return len(self.z_hat)

    def of(self, some: Labels) -> FactorData:
        """Return some samples."""
        return FactorData(self.z_hat[some], tuple(factor.of(some) for factor in self.factors))

    def halves(self, rng: np.random.Generator) -> tuple[FactorData, FactorData]:
        """Return samples to fit and samples to test, at random."""
        order, n = rng.permutation(len(self)), len(self)
        m = min(n - n // 2, FIT_SAMPLES)
        return self.of(order[:m]), self.of(order[m : m + TEST_SAMPLES])

    def with_chance(self, measure: Measure[T], random_state: RandomState) -> tuple[T, T, T]:
        """Measure the embedding, noise of as many dimensions, and a rotation of the factors, on the same samples."""
        draws = own_generator(random_state)
        seed = int(draws.integers(2**63))
        noise = draws.normal(size=self.z_hat.shape)
        truth = np.stack([factor.values for factor in self.factors], axis=1)
        rotated = truth @ typical_rotation(truth.shape[1], draws)
        # The same generator for all three, so that they differ in nothing but the embedding.
        one, two, three = (
            measure(FactorData(z_hat, self.factors), np.random.default_rng(seed))
            for z_hat in (self.z_hat, standardise(noise), standardise(rotated))
        )
        return one, two, three


def read(z_hat: ArrayLike, factors: ArrayLike, continuous: Continuous) -> FactorData:
    """Return an embedding and factors in the form that the metrics use."""
    latents, truth = read_latents("z_hat", z_hat), read_matrix("factors", factors)
    check_same_samples("z_hat", latents, "factors", truth)
    if constant := np.flatnonzero(np.ptp(truth, axis=0) == 0).tolist():
        raise InputError("factors", f"column(s) {constant} of `factors` have one value. Leave them out.")
    d = truth.shape[1]
    kinds = [continuous] * d if continuous is None or isinstance(continuous, bool) else list(continuous)
    if len(kinds) != d:
        raise InputError("continuous", f"`continuous` must be a bool, or one per factor ({d}), got {len(kinds)}.")
    return FactorData(latents, tuple(_factor(column, kind) for column, kind in zip(truth.T, kinds, strict=True)))


def _factor(column: Matrix, continuous: bool | None) -> TrueFactor:
    values = standardise(column[:, None])[:, 0]
    cut = is_quantity(column) if continuous is None else continuous
    edges = np.unique(np.quantile(column, np.arange(1, N_BINS) / N_BINS)) if cut else ()
    found = numbered(np.searchsorted(edges, column, side="right") if cut else column)
    return TrueFactor(values, found.labels, cut, len(found.values))


def read_latents(name: str, values: ArrayLike) -> Matrix:
    """Return the columns that vary, standardised; dead ones are left out, as if they did not exist."""
    latents = read_matrix(name, values)
    if len(latents) < MIN_SAMPLES:
        raise InputError(name, f"{len(latents)} samples are too few, {MIN_SAMPLES} are needed. Give more samples.")
    if not (alive := np.ptp(latents, axis=0) > 0).any():
        raise InputError(name, f"all columns of `{name}` are constant: the encoder has probably collapsed.")
    return standardise(latents[:, alive])


def own_generator(random_state: RandomState) -> np.random.Generator:
    """Return a generator whose numbers differ from those of the data, which may have been drawn with the same seed."""
    return np.random.default_rng((SALT, random_state) if isinstance(random_state, int) else random_state)


def typical_rotation(d: int, rng: np.random.Generator) -> Matrix:
    """Return the median of 101 random rotations by how well their axes match the original ones."""
    rotations = np.linalg.qr(rng.normal(size=(101, d, d))).Q
    return rotations[np.argsort([matched_sum(np.abs(rotation)) for rotation in rotations])[50]]
