"""Refits: samples that an audit splits, and independent fits with other seeds, to halves and to shuffled data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from pindown.auditing.checks.noise import Encode, Noise, noise_left
from pindown.auditing.checks.samples import MIN_AUDITED_SAMPLES, N_PARTS, splittable_samples
from pindown.auditing.checks.verdict import Verdict
from pindown.data.data import NEXT, Data
from pindown.data.files import require_in_memory
from pindown.data.labels import IntArray, as_numbers
from pindown.data.splits import MIN_HELD_OUT, hold_out
from pindown.errors import IdentifiabilityWarning, InputError
from pindown.metrics.arrays import Matrix, row_keys
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL
from pindown.networks import built, default_network, linear
from pindown.networks.encoder import Encoder, Make
from pindown.theory import Theorem

if TYPE_CHECKING:
    from pindown.auditing.spec import MethodSpec

N_BLOCKS = 40  # blocks of a time series, so that held-out samples are no neighbours of those learned from
FEW = 10  # median number of positives of one group up to which they stay together
MAX_HELD_OUT = 4_000  # held-out samples that are used: with more, what is measured would change little
COPIES = 0.05  # fraction of samples that are equal to others from which on they stay together
STRETCH, SLOPE = 1.5, 0.3  # another initialisation's largest stretch, and its slope for negative values
WIDEST = 2_000  # features up to which a map of all of them is made


class Estimator(Protocol):
    """What plans and audits use of an estimator; every subclass of `BaseEncoder` has it."""

    spec: ClassVar[MethodSpec[Any]]
    n_components: int | None
    n_components_: int
    encoder_: Encoder
    loss_curve_: np.ndarray

    @property
    def guarantee(self) -> Theorem | None:
        """The theorem that applies if the data meet its assumptions."""

    def get_params(self, deep: bool = True) -> Mapping[str, object]:
        """Return the parameters."""

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return the latents of observations."""


E = TypeVar("E", bound=Estimator)


@dataclass(frozen=True, eq=False)
class Samples:
    """Data, and how they may be split."""

    data: Data
    role: str | None = None
    strata: IntArray = None  # type: ignore[assignment]  # one for all, unless there are others
    units: IntArray | None = None

    has_noise: ClassVar[bool] = True
    """Whether part of X may be noise of single features."""

    def __post_init__(self) -> None:
        if self.strata is None:
            object.__setattr__(self, "strata", np.zeros(len(self.data), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.data)

    @property
    def X(self) -> np.ndarray:  # noqa: N802 (the name of the mathematics)
        """The observations."""
        return self.data.X

    @property
    def side(self) -> np.ndarray | None:
        """The side variable that the estimator learns from, or removes."""
        return None if self.role is None else getattr(self.data, self.role)

    def take(self, rows: np.ndarray) -> Samples:
        """Return these samples."""
        units = None if self.units is None else self.units[rows]
        return replace(self, data=self.data.take(rows), strata=self.strata[rows], units=units)

    def shuffled(self, rng: np.random.Generator) -> Samples:
        """Return the samples with the side information of others; without any, with permuted features."""
        if self.role is None or self.side is None:
            return self.with_permuted_columns(rng)
        order = exchange(self.side, None if self.role == "pairs" else self.units, rng)  # pairs one by one
        other: dict[str, Any] = {self.role: self.side[order]}
        return replace(self, data=replace(self.data, **other))

    def drawn(self, fraction: float, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Choose a fraction of the samples of each stratum, or of the units; no stratum as a whole."""
        if self.units is not None:
            return hold_out(as_numbers(self.units), fraction, rng)
        return hold_out(np.arange(len(self)), fraction, rng, self.strata)

    def with_permuted_columns(self, rng: np.random.Generator) -> Samples:
        """Return samples with each feature permuted on its own: no latent reaches two of them."""
        return replace(self, data=replace(self.data, X=rng.permuted(self.X, axis=0)))


def exchange(side: np.ndarray, units: IntArray | None, rng: np.random.Generator) -> IntArray:
    """Return for each sample the one whose value it gets: units with one value each exchange them as wholes.

    Examples
    --------
    >>> values, subjects = np.array([5, 5, 6, 6, 6, 7]), np.array([0, 0, 1, 1, 1, 2])
    >>> values[exchange(values, subjects, np.random.default_rng(0))].tolist()
    [7, 7, 5, 5, 5, 6]
    """
    if units is None or side.ndim > 1:
        return rng.permutation(len(side))
    _, first, number = np.unique(units, return_index=True, return_inverse=True)
    if (side[first][number] != side).any():
        return rng.permutation(len(side))
    return first[rng.permutation(len(first))][number]


def with_pairs(samples: Samples) -> Samples:
    """Make positives explicit: the next sample is one if both are in one group, or one block of the series."""
    data, side = samples.data, samples.data.pairs
    if side is None or isinstance(side, str):
        units = np.arange(len(data)) * N_BLOCKS // len(data) if samples.units is None else samples.units
        paired = replace(data, pairs=NEXT, groups=units).paired()
        return Samples(replace(paired, groups=None), "pairs", units=paired.groups)
    if side.ndim > 1 and side.shape[1:] != (1,):
        return samples
    labels = as_numbers(side.reshape(-1))
    few = np.median(np.bincount(labels)) <= FEW
    together = labels if samples.units is None and few else samples.units
    one_column = replace(data, pairs=side.reshape(-1))
    return replace(samples, data=one_column, units=together, strata=samples.strata if few else labels)


def check_roles(owner: str, roles: Iterable[str], usable: Sequence[str]) -> None:
    """Raise if a side variable is given that a method cannot use; groups, truth and floor are for audits."""
    if unusable := [role for role in roles if role not in (*usable, "groups", "truth", "floor")]:
        named, takes = (" and ".join(f"`{role}`" for role in some) for some in (unusable, usable))
        raise InputError(
            unusable[0],
            f"{owner}: cannot use {named}; it takes {takes or 'no side variable'}. Leave it out, or use a method for "
            "it: Contrast for `pairs`, Classify for `signal`, Forget for `nuisance`, with or without `given`.",
        )


def read(est: Any, X: Any, y: Any, groups: ArrayLike | None) -> Samples:
    """Return the samples that an audit splits, or raise if an estimator cannot use them."""
    role, roles = est.spec.roles.y, est.spec.roles.used
    if isinstance(X, Data):
        data = X
    else:
        require_in_memory("audit", X)
        data = Data(X, groups=groups, **({} if role is None or y is None else {role: y}))
    check_roles(type(est).__name__, data.side_variables, roles)
    X = est._validated(data.X, reset=False)
    if role is not None and role not in data.side_variables and est.__sklearn_tags__().target_tags.required:
        raise InputError("y", f"audit: y is missing. Pass the {role} that the estimator was fitted to.")
    if data.floor is not None and role != "nuisance":
        raise InputError("floor", "audit: `floor` bounds the leakage of a nuisance, and there is none. Leave it out.")
    used = {name: side for name, side in data.side_variables.items() if name in (*roles, "floor")}
    truth = None if data.truth is None else data.truth.reshape(len(X), -1).astype(np.float64)
    units = copies(X) if data.groups is None else as_numbers(data.groups.reshape(-1))
    return est.spec.refitting.samples(est, Samples(Data(X, truth=truth, **used), role, units=units))


def copies(X: np.ndarray) -> IntArray | None:
    """Return equal numbers for equal samples, which must stay on one side of a split; None if hardly any are equal.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(80, 2))
    >>> copies(x) is None, len(np.unique(copies(np.repeat(x, 2, axis=0))))
    (True, 80)
    """
    different, number = np.unique(row_keys(X), return_inverse=True)
    return number if MIN_AUDITED_SAMPLES <= len(different) < (1 - COPIES) * len(X) else None


def divide(samples: Samples, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Split samples into those to learn from and those to hold out, about one in four, evenly within strata."""
    levels = samples.strata if samples.role == "nuisance" else None
    if (verdict := splittable_samples(len(samples), groups=samples.units, nuisance=levels)).outcome == "fails":
        raise InputError("X", f"audit: {verdict.why}")
    held = samples.drawn(1 / N_PARTS, rng)
    train, held_out = samples.take(np.flatnonzero(~held)), samples.take(np.flatnonzero(held))
    held_out = held_out.take(np.sort(rng.permutation(len(held_out))[:MAX_HELD_OUT]))
    if held_out.role == "nuisance" and np.bincount(held_out.strata).max() < MIN_SAMPLES_PER_LEVEL:
        raise InputError(
            "y",
            f"audit: no level of y (quantities in bins, columns combined) has {MIN_SAMPLES_PER_LEVEL} of the "
            f"{len(held_out)} held-out samples, so that fits cannot be compared within levels. Give more samples.",
        )
    if held_out.role == "signal":  # of classes that refits have seen
        held_out = held_out.take(np.flatnonzero(np.isin(held_out.strata, train.strata)))
    return train, held_out


def can_split(est: Estimator, data: Data) -> Verdict:
    """Return whether an audit of an estimator, fitted or not, can split the samples."""
    levels = None
    if est.spec.roles.y == "nuisance":
        levels = est.spec.refitting.samples(est, Samples(data, "nuisance")).strata
    return splittable_samples(len(data), groups=data.groups, nuisance=levels)


def encoder_of(est: Estimator, data: Data) -> Encode:
    """Return the function that maps observations to latents, with the side variables of ``data``."""
    return lambda X: latent_matrix(est, replace(data, X=X))


def latent_matrix(est: Estimator, data: Data) -> Matrix:
    """Return the latents of data as a dense matrix of double precision."""
    latents = est.spec.latents(est, data)
    return np.asarray(latents.toarray() if hasattr(latents, "toarray") else latents, dtype=np.float64)


# ---- independent fits -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Refits(Generic[E]):
    """Independent fits, and held-out samples that none of them has seen.

    The first of ``others`` differs from the audited fit in seed and samples. The rest also have another initialisation,
    where the method allows it.
    """

    fit: E  # which is audited
    others: tuple[E, ...]  # to the training samples
    halves: tuple[E, ...]  # each to one half of them
    null: Any  # to shuffled side information; None where that would say nothing
    held_out: Samples
    train: Samples
    warned: tuple[str, ...]
    noise: Noise | None  # of single features of X; None where it is not measured

    @property
    def noise_fraction(self) -> float:
        """Fraction of the variance of a feature that is its own noise."""
        return 0.0 if self.noise is None else self.noise.fraction


def refit(
    est: E, samples: Samples, *, n_fits: int, rng: np.random.Generator, begin: Callable[[str], None]
) -> Refits[E]:
    """Fit clones of an estimator with ``n_fits`` other seeds, two to halves, and a control (`Refitting.null`)."""
    refitting = est.spec.refitting
    train, held_out = divide(samples, rng)

    def fitted(est: E, samples: Samples, *, elsewhere: bool = False) -> E:
        return refitting.fit(est, samples.data, seed=int(rng.integers(2**31)), elsewhere=elsewhere)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IdentifiabilityWarning)
        others = []
        for k in range(n_fits):
            begin("fit with another seed")
            others.append(fitted(est, train, elsewhere=k > 0))
    half = train.drawn(0.5, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # samples are fewer, or shuffled
        warnings.simplefilter("ignore", ConvergenceWarning)  # the fit itself has warned
        halves, null = [], None
        for some in (half, ~half):
            begin("fit to half of the samples")
            halves.append(fitted(est, train.take(np.flatnonzero(some))))
        if (nothing := refitting.null(est, train, rng)) is not None:
            begin("fit to shuffled data, as a control")
            null = fitted(*nothing)
    warned = tuple(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, IdentifiabilityWarning)))
    noise = noise_left(encoder_of(others[0], held_out.data), held_out.X) if held_out.has_noise else None
    return Refits(est, tuple(others), tuple(halves), null, held_out, train, warned, noise)


def refitted(est: Any, data: Data, *, seed: int, elsewhere: bool = False) -> Any:
    """Return a clone of an estimator, fitted to data with another seed, and perhaps from another initialisation.

    What the fit has chosen from its data (a linear encoder, a schedule found by cross-validation) is taken from it.
    """
    parameters = est.get_params(deep=False)
    batch_size = parameters.get("batch_size")
    other: dict[str, Any] = {
        "random_state": seed,
        "verbose": False,
        "trainer": replace(est.trainer, checkpoint=None) if "trainer" in parameters else None,
        "batch_size": None if batch_size is None else min(batch_size, len(data)),
    }
    found = getattr(est, "held_out_", None)
    is_linear, step_plan = getattr(found, "linear", False), getattr(found, "step_plan", None)
    if step_plan is not None and est.trainer.validation_fraction * len(data) < MIN_HELD_OUT and len(est.shape_in_) == 1:
        other["trainer"] = replace(other["trainer"], step_plan=step_plan, validation_fraction=0.0)
    if is_linear:
        other["encoder"] = linear
    if elsewhere and varies_initialisation(est):
        # A linear encoder stays linear.
        other["encoder"] = (
            OtherInitialisation(linear, seed, slope=1.0)
            if is_linear
            else OtherInitialisation(est.encoder or default_network, seed)
        )
    fresh = clone(est).set_params(**{name: value for name, value in other.items() if name in parameters})
    if parameters.get("n_components", 0) is None and hasattr(est, "n_components_"):
        most = math.prod(fresh.fitted_preprocessing(data.X).shape_out) if est.needs_injective else est.n_components_
        fresh.set_params(n_components=min(est.n_components_, most))
    est.spec.refitting.copy_choices(est, fresh)
    return fresh.fit(data.only(*est.spec.roles.used, "groups"))


def varies_initialisation(est: Estimator) -> bool:
    """Return whether refits start behind a random map of the data; a method that reconstructs X has no need of it."""
    return not hasattr(est, "inverse_transform") and "encoder" in est.get_params(deep=False)


def can_vary_initialisation(n_in: int | tuple[int, ...]) -> bool:
    """Return whether an encoder of such inputs can start behind a random map: vectors that are not too wide."""
    shape = (n_in,) if isinstance(n_in, int) else n_in
    return len(shape) == 1 and shape[0] <= WIDEST


@dataclass(frozen=True)
class OtherInitialisation:
    """The same kind of encoder behind a fixed, invertible, random nonlinear map of the data.

    Encoders that start at orthonormal rows of whitened data start alike, and without any signal stay so. Behind
    different maps, what agrees in the end was learned. Images and very wide data only get other weights.
    """

    encoder: Make
    seed: int
    slope: float = SLOPE  # of negative values; 1 for a linear map

    def __call__(self, n_in: Any, n_out: int) -> nn.Module:
        """Return the module."""
        body = built("audit", "encoder", self.encoder, n_in, n_out)
        if not can_vary_initialisation(n_in):
            return body
        rng = np.random.default_rng(self.seed)
        first, second, third = (np.linalg.qr(rng.normal(size=(n_in, n_in)))[0] for _ in range(3))
        stretch = STRETCH ** rng.uniform(-1, 1, size=n_in)
        return nn.Sequential(_fixed(first * stretch @ second), nn.LeakyReLU(self.slope), _fixed(third), body)


def _fixed(matrix: NDArray[np.float64]) -> nn.Module:
    layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False).requires_grad_(False)
    layer.weight.copy_(torch.as_tensor(matrix, dtype=torch.float32))
    return layer
