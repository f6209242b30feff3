r"""Disentanglement: scores of an embedding ``z_hat`` (n, d_hat) against known factors (n, d), with their chance levels.

`mig` asks whether one latent has more information on a factor than the others, `dci` whether latents and factors belong
to each other one to one. `pindown_papers.scores` has eight more, among them those of BetaVAE and FactorVAE, SAP and
InfoMEC, and a table of all.

Each returns a `Score` (`DCI` has three): its value, what *noise* of as many dimensions scores on the same samples, and
what a *random rotation of the true factors* does. Factors are labels if they are whole numbers and quantities if they
have fractional parts, unless ``continuous`` says otherwise. Columns of ``z_hat`` that are constant are left out first.
The definitions are numbered (`DEFINITION`): the same arrays and ``random_state`` give the same number until it grows.
Samples are assumed to be independent.

>>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
>>> print(mig(factors, factors))
mig 0.9... (noise 0.0..., rotated factors 0.1...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from scipy.spatial import cKDTree
from scipy.special import digamma, softmax
from scipy.stats import entropy
from sklearn.metrics import r2_score

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

__all__ = ["DCI", "DEFINITION", "Information", "Nearest", "Score", "dci", "mig"]

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
DEPTH, STAGES, RATE, BINS = 3, 33, 0.3, 64
Bins = NDArray[np.uint8]


@dataclass(frozen=True)
class Score:
    """A score next to its chance levels.

    ``float(score)`` is its value. A score that noise or a rotation hardly lowers prints its caveat.

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


class ThreeScores:
    """Scores that come from one matrix of latents by factors: iterates over them, and prints a line for each."""

    def __iter__(self) -> Iterator[Score]:
        return (value for value in vars(self).values() if isinstance(value, Score))

    def __str__(self) -> str:
        return "\n".join(map(str, self))


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


# ---- information ----------------------------------------------------------------------------------------------------


class Information(Protocol):
    """How the information of latents about factors is estimated; (d_hat, d) for all pairs."""

    def nats(self, samples: FactorData, rng: np.random.Generator) -> Matrix:
        """Return I(latent; factor)."""

    def fractions(self, samples: FactorData, rng: np.random.Generator) -> Matrix:
        """Return it as a fraction of the information in each factor."""


@dataclass(frozen=True)
class Nearest:
    r"""Information by the k nearest neighbours, on ranks.

    For labels after Ross (2014), *Mutual information between discrete and continuous data sets*; for quantities after
    Kraskov et al. (2004), *Estimating mutual information*. The fraction of a label's information is I / H. A quantity
    has no finite H; its fraction is :math:`1 - e^{-2I}`, which is the R² of Gaussians with that information.
    """

    k: int = 10

    def nats(self, samples: FactorData, rng: np.random.Generator) -> Matrix:
        """Return I(latent; factor) of all pairs, at least 0; (d_hat, d)."""
        latents = [Ranked.of(latent, rng) for latent in samples.z_hat.T]
        found = np.zeros((len(latents), len(samples.factors)))
        for j, factor in enumerate(samples.factors):
            if factor.continuous:
                other = Ranked.of(factor.values, rng)
                found[:, j] = [self._of_quantity(latent, other) for latent in latents]
            else:
                found[:, j] = [self._of_labels(latent, factor.labels) for latent in latents]
        return np.maximum(found, 0)

    def fractions(self, samples: FactorData, rng: np.random.Generator) -> Matrix:
        """Return it as a fraction, from 0 to 1, of the information in each factor; (d_hat, d)."""
        nats = self.nats(samples, rng)
        columns = [
            -np.expm1(-2 * column) if factor.continuous else column / factor.entropy()
            for column, factor in zip(nats.T, samples.factors, strict=True)
        ]
        return np.minimum(np.stack(columns, axis=1), 1)

    def _of_labels(self, latent: Ranked, labels: Labels) -> float:
        # FactorData are in order of the latent: a stable sort by label leaves each label's in order, too.
        order = latent.order[np.argsort(labels[latent.order].astype(np.int32), kind="stable")]
        parts = np.split(latent.position[order], np.cumsum(np.bincount(labels))[:-1])
        parts = [part for part in parts if len(part) > 1]  # a label that occurs once has no neighbour
        if not parts:
            return 0.0
        counts = np.array([len(part) for part in parts])
        k = np.minimum(self.k, counts - 1)
        distance = [_neighbour_distance(*one) for one in zip(parts, k, strict=True)]
        near = latent.within(np.concatenate(parts), np.concatenate(distance))
        psi = _digamma(len(latent.position) + 1)
        return float(psi[len(near)] + np.sum(counts * (psi[k] - psi[counts])) / len(near) - np.mean(psi[near]))

    def _of_quantity(self, latent: Ranked, other: Ranked) -> float:
        n, k = len(latent.position), min(self.k, len(latent.position) - 1)
        both = np.stack([latent.position, other.position], axis=1)
        distance = cKDTree(both).query(both, k=[k + 1], p=np.inf)[0][:, 0] * (1 - 1e-9)  # closer than the k-th
        near = [one.within(one.position, distance) for one in (latent, other)]
        psi = _digamma(n + 1)
        return float(psi[k] + psi[n] - np.mean(psi[near[0] + 1] + psi[near[1] + 1]))


class Ranked(NamedTuple):
    """Numbers as ranks, ties at random, each moved up at random by less than 1, so that no distance occurs twice."""

    position: Matrix  # (n,), of each sample
    order: Labels  # (n,), the sample of each rank
    ascending: Matrix  # (n,), the position of each rank

    @classmethod
    def of(cls, values: Matrix, rng: np.random.Generator) -> Ranked:
        """Rank numbers; (n,)."""
        n = len(values)
        order, ascending = np.lexsort((rng.random(n), values)), np.arange(n) + rng.random(n)
        position = np.empty(n)
        position[order] = ascending
        return cls(position, order, ascending)

    def within(self, position: Matrix, distance: Matrix) -> Labels:
        """Count the others that are no further from these positions than a distance."""
        reach = distance * (1 + 1e-12)
        first = np.searchsorted(self.ascending, position - reach, "left")
        return np.searchsorted(self.ascending, position + reach, "right") - first - 1


def _neighbour_distance(position: Matrix, k: int) -> Matrix:
    """Return the distance of each of sorted positions to its k-th neighbour."""
    distance, n = np.full(len(position), np.inf), len(position) - k
    for left in range(k + 1):  # so many of the other members of a window of k + 1 are to the left
        middle = position[left : left + n]
        reach = np.maximum(middle - position[:n], position[k:] - middle)
        np.minimum(distance[left : left + n], reach, out=distance[left : left + n])
    return distance


@lru_cache(maxsize=8)
def _digamma(n: int) -> Matrix:
    """Return the digamma function of 0 (taken as that of 1), 1, …, n − 1, computed once."""
    return digamma(np.maximum(np.arange(n), 1))


def mig(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    information: Information = Nearest(),  # noqa: B008, a frozen value
    continuous: Continuous = None,
    random_state: RandomState = 0,
) -> Score:
    r"""Return the mutual information gap: how much more information on a factor the best latent has than the second.

    .. math:: \frac1d \sum_j S_{(1)j} - S_{(2)j}, \qquad S_{ij} = I(\hat z_i; f_j) / H(f_j)

    Blind to permutation and strictly monotone maps of latents and to dead ones; sees rotations, and duplicated latents,
    which score 0. Noise scores about 0. ``parts`` are the gaps of the factors. After Chen et al. (2018), *Isolating
    sources of disentanglement in VAEs*; ``information=EqualWidth(20)`` is its usual implementation.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(2_000, 3))
    >>> perfect = mig(np.exp(factors[:, ::-1]), factors)
    >>> perfect.value > 0.97, perfect.noise < 0.05, perfect.rotation < 0.5
    (True, True, True)
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> Measured:
        return mean_of(gap(information.fractions(samples, rng)))

    return score("mig", read(z_hat, factors, continuous).with_chance(measure, random_state))


def gap(of_pairs: Matrix) -> Matrix:
    """Return how far the largest number of each column is above the second largest; a single one is above 0."""
    best = -np.sort(-np.concatenate([of_pairs, np.zeros((1, of_pairs.shape[1]))]), axis=0)
    return best[0] - best[1]


# ---- boosted trees --------------------------------------------------------------------------------------------------
#
# Trees of depth 3 on latents cut into bins with equally many samples, Friedman's (2001) multinomial deviance for labels
# (a tree per level and stage) and squares for quantities; the importance of a latent is the decrease of the residuals'
# squares by its splits, as in scikit-learn's GradientBoostingClassifier. A learning rate of .3 over 33 stages goes as
# far as one of .1 over 100. All trees of a stage grow at once: the sums of residuals in all bins are one product with a
# sparse matrix that says which sample is in which bin.


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


def dci(z_hat: ArrayLike, factors: ArrayLike, *, continuous: Continuous = None, random_state: RandomState = 0) -> DCI:
    r"""Return disentanglement, completeness and informativeness, from the importances R of boosted trees.

    .. math:: D = \sum_i \rho_i \Bigl(1 - \frac{H(R_{i\cdot} / \textstyle\sum_j R_{ij})}{\log d}\Bigr), \qquad
              C = \frac1d \sum_j 1 - \frac{H(R_{\cdot j})}{\log \hat d}

    with ρ the fraction of all importance that a latent has; informativeness is the held-out accuracy, for quantities
    R². D asks whether a latent serves one factor, C whether a factor needs one latent. Blind to permutation and (up to
    the place of a threshold) strictly monotone maps of latents; sees rotations, C also duplicates. The booster decides
    the number, so it is part of the definition, and does not change with scikit-learn. Noise has D and C of about 0,
    and the informativeness of a guess. ``parts`` are those of latents (D) and factors. After Eastwood & Williams
    (2018), *A framework for the quantitative evaluation of disentangled representations*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
    >>> found = dci(factors, factors)
    >>> [round(part.value, 2) for part in found], found.disentanglement.rotation < 0.5
    ([1.0, 1.0, 1.0], True)
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> tuple[Three, Matrix]:
        boosted = boost(*samples.halves(rng))
        importance = np.stack([one.importance for one in boosted], axis=1)  # (d_hat, d)
        weight, of_latents = importance.sum(axis=1), _concentration(importance)
        value = float(np.sum(weight * np.nan_to_num(of_latents)) / weight.sum()) if weight.any() else 0.0
        complete = mean_of(np.nan_to_num(_concentration(importance.T)))
        return (Measured(value, of_latents), complete, mean_of([one.score for one in boosted])), importance

    found = read(z_hat, factors, continuous).with_chance(measure, random_state)
    names = ("dci disentanglement", "dci completeness", "dci informativeness")
    return DCI(*three_scores(names, [measured for measured, _ in found]), found[0][1])


def _concentration(importance: Matrix) -> Matrix:
    """Return 1 less the entropy of each row, in units of the largest possible; NaN where a row is 0."""
    n = importance.shape[1]
    with np.errstate(invalid="ignore"):
        spread = entropy(importance, axis=1)
    return np.maximum(1 - spread / np.log(n), 0) if n > 1 else 1 - spread  # rounding can carry an equal split below 0


class Boosted(NamedTuple):
    """What a booster learned of a factor from each latent, and how well it predicts it on other samples."""

    importance: Matrix  # (d_hat,), sums to 1 unless nothing was learned
    score: float  # accuracy, or R² at least 0


def boost(fit: FactorData, test: FactorData) -> list[Boosted]:
    """Learn each factor of ``fit``, and predict those of ``test``."""
    edges = [_edges(latent) for latent in fit.z_hat.T]
    grower = _Grower(*(_binned(part.z_hat, edges) for part in (fit, test)))
    return [_boosted(grower, *pair) for pair in zip(fit.factors, test.factors, strict=True)]


def _boosted(grower: _Grower, fit: TrueFactor, test: TrueFactor) -> Boosted:
    levels, labels = np.unique(fit.labels, return_inverse=True)
    if fit.continuous:
        target = fit.values[:, None]
        start = np.full(1, fit.values.mean())
    else:
        target = (labels[:, None] == np.arange(len(levels))).astype(np.float64)  # (n, K)
        start = np.log(target.mean(axis=0))
    fitted, predicted = np.tile(start, (len(target), 1)), np.tile(start, (len(test.values), 1))
    importance = np.zeros(grower.n_latents)
    newton = max((len(levels) - 1) / len(levels), 0.5)  # of the multinomial's step
    for _ in range(STAGES):
        if fit.continuous:
            importance += grower.grow(target - fitted, np.ones_like(target), fitted, predicted)
        else:
            p = softmax(fitted, axis=1)
            importance += grower.grow(target - p, p * (1 - p) / newton, fitted, predicted)
    if fit.continuous:
        found = max(0.0, float(r2_score(test.values, predicted[:, 0])))
    else:
        found = float(np.mean(levels[predicted.argmax(axis=1)] == test.labels))
    return Boosted(importance / (importance.sum() or 1.0), found)


class _Grower:
    """Grows trees, one per column of residuals, on samples that are in bins."""

    def __init__(self, bins: Bins, others: Bins) -> None:
        n, self.n_latents = bins.shape
        self.bins, self.others = np.ascontiguousarray(bins.T), np.ascontiguousarray(others.T)  # (d_hat, n)
        column = (self.bins + BINS * np.arange(self.n_latents)[:, None]).ravel()
        sample = np.tile(np.arange(n), self.n_latents)
        self.members = csr_matrix((np.ones(column.size), (column, sample)), (BINS * self.n_latents, n))
        self.counts = self.members @ np.ones((n, 1))

    def grow(self, residual: Matrix, curvature: Matrix, fitted: Matrix, predicted: Matrix) -> Matrix:
        """Grow a tree for each column, add its predictions in place, and return the contribution of each latent."""
        n, trees = residual.shape
        node, other = np.zeros((trees, n), np.uint8), np.zeros((trees, self.others.shape[1]), np.uint8)
        gains = np.zeros(self.n_latents)
        sums, counts = (self.members @ residual)[:, None], self.counts.repeat(trees, axis=1)[:, None]
        for depth in range(DEPTH):  # sums and counts are (bins, nodes, trees), bins of one latent after another's
            gain, cut, brought = _best(sums, counts, self.n_latents)  # (nodes, trees), the same, (d_hat,)
            gains += brought
            latent, last = np.divmod(cut, BINS)
            last = np.where(gain > 0, last, BINS)  # a node that no split improves sends all samples left
            node, other = _descend(node, self.bins, latent, last), _descend(other, self.others, latent, last)
            if depth < DEPTH - 1:
                left = [(node == 2 * parent).T.astype(np.float64) for parent in range(2**depth)]
                sums = _children(sums, [self.members @ (mask * residual) for mask in left])
                counts = _children(counts, [self.members @ mask for mask in left])
        leaf = node.T + 2**DEPTH * np.arange(trees)
        total, weight = (np.bincount(leaf.ravel(), a.ravel(), trees * 2**DEPTH) for a in (residual, curvature))
        value = RATE * np.divide(total, weight, out=np.zeros_like(total), where=weight > 1e-12)
        fitted += value[leaf]
        predicted += value[other.T + 2**DEPTH * np.arange(trees)]
        return gains / n


def _descend(node: Bins, bins: Bins, latent: Labels, last: Labels) -> Bins:
    """Return the child in which each sample of a node is; (trees, n)."""
    trees, n = node.shape
    at = node, np.arange(trees)[:, None]
    return 2 * node + (bins[latent[at], np.arange(n)] > last[at])


def _best(sums: Matrix, counts: Matrix, n_latents: int) -> tuple[Matrix, Labels, Matrix]:
    """Return the largest decrease of squares by one split of each node, which it is, and what it adds to each latent.

    A split is latent · BINS + last bin to the left. Latents that would do equally well share the gain, so that
    duplicates count the same, whichever comes first.
    """
    shape = (n_latents, BINS, *sums.shape[1:])
    gain, n_left = (np.cumsum(a.reshape(shape), axis=1) for a in (sums, counts))
    n = np.maximum(n_left[:1, -1:], 1)
    gain -= n_left * (gain[:1, -1:] / n)
    gain *= gain
    both = n_left * (n - n_left) / n
    gain /= np.where(both > 0.25, both, np.inf)
    of_latents = gain.max(axis=1)
    most = of_latents.max(axis=0)
    equal = of_latents >= most * (1 - 1e-9)
    brought = (equal * (most / equal.sum(axis=0))).sum(axis=(1, 2))
    return most, gain.reshape(n_latents * BINS, *most.shape).argmax(axis=0), brought


def _children(parents: Matrix, left: list[Matrix]) -> Matrix:
    """Return histograms of both children of each node: the right one is what the left one leaves."""
    both = [half for parent, one in enumerate(left) for half in (one, parents[:, parent] - one)]
    return np.stack(both, axis=1)


def _edges(latent: Matrix) -> Matrix:
    """Return where a latent is cut: in the widest gap of each of BINS parts with equally many distinct values."""
    values = np.unique(latent)
    gaps, middles = np.diff(values), (values[1:] + values[:-1]) / 2
    if len(gaps) < BINS:
        return middles
    starts = np.arange(1, BINS - 1) * len(gaps) // (BINS - 1)
    parts = zip(np.split(gaps, starts), np.split(middles, starts), strict=True)
    return np.array([middle[gap.argmax()] for gap, middle in parts])


def _binned(z_hat: Matrix, edges: list[Matrix]) -> Bins:
    columns = [np.searchsorted(edge, latent, side="right") for edge, latent in zip(edges, z_hat.T, strict=True)]
    return np.stack(columns, axis=1).astype(np.uint8)
