"""Refits: samples that an audit splits, and independent fits with other seeds, to halves and to shuffled data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from pindown.auditing.checks.noise import Noise
from pindown.auditing.checks.samples import N_PARTS, splittable_samples
from pindown.auditing.checks.verdict import Verdict
from pindown.data.data import NEXT, Data, Sides, as_array
from pindown.data.files import require_in_memory
from pindown.data.labels import Codes, as_numbers
from pindown.data.splits import FEWEST, hold_out
from pindown.errors import IdentifiabilityWarning, InputError
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL
from pindown.networks import built, linear
from pindown.networks.encoder import Make

if TYPE_CHECKING:
    from pindown.auditing.spec import Estimator

Matrix = NDArray[np.float64]

N_BLOCKS = 40
"""Stretches into which a time series is cut, so that rows held out are no neighbours of rows learned from."""

FEW = 10
"""Typical number of rows that share a value, up to which they stay together when rows are divided."""

MIN_SAMPLES_OF_LEVEL = MIN_SAMPLES_PER_LEVEL
"""Held-out rows of a value of a nuisance within which fits can be compared."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Data, and how they may be divided.

    Parameters
    ----------
    data : Data
        With the side variables that an estimator uses, and no others.
    role : str or None
        The part of the one that it learns from, or forgets.
    strata : array (n,), optional
        Rows of one stratum are divided evenly.
    units : array (n,), optional
        Rows of one unit stay together.
    """

    data: Data
    role: str | None = None
    strata: Codes = None  # type: ignore[assignment]  # one for all, unless there are others
    units: Codes | None = None

    def __post_init__(self) -> None:
        if self.strata is None:
            object.__setattr__(self, "strata", np.zeros(len(self.data), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.data)

    @property
    def X(self) -> NDArray[Any]:  # noqa: N802 (the name of the mathematics)
        """The observations."""
        return self.data.X

    @property
    def side(self) -> NDArray[Any] | None:
        """What the estimator learns from, or forgets."""
        return None if self.role is None else getattr(self.data, self.role)

    def take(self, rows: NDArray[Any]) -> Samples:
        """Return these rows."""
        units = None if self.units is None else self.units[rows]
        return replace(self, data=self.data.take(rows), strata=self.strata[rows], units=units)

    def shuffled(self, rng: np.random.Generator) -> Samples:
        """Return the rows with side information that belongs to others; without any, with each column on its own.

        Where all rows of a unit have one value, units exchange theirs; not so where what counts is who shares a value.
        """
        if self.role is None or self.side is None:
            return self.with_permuted_columns(rng)
        order = exchange(self.side, None if self.role == "pairs" else self.units, rng)
        other: dict[str, Any] = {self.role: self.side[order]}
        return replace(self, data=replace(self.data, **other))

    def drawn(self, fraction: float, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Choose a fraction of the samples of each stratum, or of the units; no stratum as a whole."""
        if self.units is not None:
            return hold_out(as_numbers(self.units), fraction, rng)
        return hold_out(np.arange(len(self)), fraction, rng, self.strata)

    def with_permuted_columns(self, rng: np.random.Generator) -> Samples:
        """Return rows whose columns were permuted, each on its own: no latent reaches two of them."""
        return replace(self, data=replace(self.data, X=rng.permuted(self.X, axis=0)))


def exchange(side: NDArray[Any], units: Codes | None, rng: np.random.Generator) -> Codes:
    """Return for each row the row whose value it gets.

    Examples
    --------
    Three subjects have one value each, and exchange them as wholes:

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


def with_pairs(rows: Samples) -> Samples:
    """Make partners explicit: the next row is one as long as both lie in one group, or one stretch of the series."""
    data, side = rows.data, rows.data.pairs
    if side is None or isinstance(side, str):
        units = np.arange(len(data)) * N_BLOCKS // len(data) if rows.units is None else rows.units
        paired = replace(data, pairs=NEXT, groups=units).paired()
        return Samples(replace(paired, groups=None), "pairs", units=paired.groups)
    if side.ndim > 1 and side.shape[1:] != (1,):
        return rows
    labels = as_numbers(side.reshape(-1))
    few = np.median(np.bincount(labels)) <= FEW
    together = labels if rows.units is None and few else rows.units
    one_column = replace(data, pairs=side.reshape(-1))
    return replace(rows, data=one_column, units=together, strata=rows.strata if few else labels)


@dataclass(frozen=True, eq=False)
class Refits:
    """Independent fits, all encoded on the same held-out rows, which none of them has seen.

    The first of ``others`` differs from the fit that is audited in its seed and its rows alone. The rest also start at
    another map of the data, where the method can.
    """

    others: tuple[Any, ...]  # to the same rows
    halves: tuple[Any, ...]  # each from one half of these rows
    null: Any  # from side information that was shuffled; None where that would say nothing
    held_out: Samples
    train: Samples
    warned: tuple[str, ...]
    noise: Noise | None  # of single features of X; None where it is not measured

    @property
    def noise_fraction(self) -> float:
        """Fraction of the variance of a feature that is noise of its own."""
        return 0.0 if self.noise is None else self.noise.fraction


STRETCH, BEND = 1.5, 0.3
"""How much another start stretches some directions and shrinks others; and the slope of negative values there."""

WIDEST = 2_000
"""Columns up to which a map of all of them is made."""


def refitted(est: Any, data: Data, *, seed: int, elsewhere: bool = False) -> Any:
    """Return a clone of an estimator, fitted to data with another seed, and perhaps from another start.

    It has as many codes, where the estimator counted them and its rows support so many, and a linear encoder if that of
    the estimator was left straight. Of too few rows to keep some back it takes the steps of the estimator, whose length
    was found by rows held out: to find it again, in folds, takes five times as long. Nothing is shown, and no
    checkpoint is kept. Where there are fewer rows than in a batch, the batch is smaller.
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
    straight, step_plan = getattr(found, "straight", False), getattr(found, "step_plan", None)
    if step_plan is not None and est.trainer.validation_fraction * len(data) < FEWEST and len(est.shape_in_) == 1:
        other["trainer"] = replace(other["trainer"], step_plan=step_plan, validation_fraction=0.0)
    if straight:
        other["encoder"] = linear
    if elsewhere and varies_initialisation(est):
        # Behind a bend no linear map could be made again.
        other["encoder"] = (
            OtherInitialisation(linear, seed, bend=1.0) if straight else OtherInitialisation(est.encoder, seed)
        )
    fresh = clone(est).set_params(**{name: value for name, value in other.items() if name in parameters})
    if parameters.get("n_components", 0) is None and hasattr(est, "n_components_"):  # as many codes as the fit has
        most = math.prod(fresh.fitted_preprocessing(data.X).shape_out) if est.needs_injective else est.n_components_
        fresh.set_params(n_components=min(est.n_components_, most))
    est.spec.refitting.copy_choices(est, fresh)
    return fresh.fit(data.only(*est.spec.roles.used, "groups"))


def varies_initialisation(est: Any) -> bool:
    """Return whether refits start behind a random map of the data; a method that reconstructs X has no need of it."""
    return not hasattr(est, "inverse_transform") and "encoder" in est.get_params(deep=False)


def can_vary_initialisation(n_in: Any) -> bool:
    """Return whether an encoder of such inputs can start behind a random map: vectors that are not too wide.

    Examples
    --------
    >>> can_vary_initialisation(50), can_vary_initialisation((30_000,)), can_vary_initialisation((3, 16, 16))
    (True, False, False)
    """
    shape = (n_in,) if isinstance(n_in, int) else n_in
    return len(shape) == 1 and shape[0] <= WIDEST


@dataclass(frozen=True)
class OtherInitialisation:
    """The same kind of encoder, behind an invertible map of its own that stretches, turns and bends the data.

    Encoders that start at orthonormal rows of whitened data start alike, up to a rotation; where the side information
    says nothing they stay so, and would seem to agree. Behind different maps, what agrees in the end was learned.
    Networks of images and of very wide rows have no such map: they start at other weights alone.

    Examples
    --------
    >>> from pindown.networks import linear
    >>> body = OtherInitialisation(linear, seed=0)(3, 2)
    >>> body(torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """

    encoder: Make
    seed: int
    bend: float = BEND  # the slope of negative values; 1 for a map without bend

    def __call__(self, n_in: Any, n_out: int) -> nn.Module:
        """Return the module."""
        body = built("audit", "encoder", self.encoder, n_in, n_out)
        if not can_vary_initialisation(n_in):
            return body
        rng = np.random.default_rng(self.seed)
        first, second, third = (np.linalg.qr(rng.normal(size=(n_in, n_in)))[0] for _ in range(3))
        stretch = STRETCH ** rng.uniform(-1, 1, size=n_in)
        start = (_fixed(first * stretch @ second), nn.LeakyReLU(self.bend), _fixed(third))
        return nn.Sequential(*start, body)


def _fixed(matrix: NDArray[np.float64]) -> nn.Module:
    layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False).requires_grad_(False)
    layer.weight.copy_(torch.as_tensor(matrix, dtype=torch.float32))
    return layer


MAX_HELD_OUT = 4_000
"""Held-out rows that are used: with more, what is measured would change little."""


def gathered(est: Any, X: Any, y: Any, others: Sides) -> Data:
    """Return rows and what belongs to them as one value, ``y`` in the part that it plays for an estimator."""
    require_in_memory("audit", X)
    role, n = est.spec.roles.y, len(X)
    parts = {"y": None if role is None else y, **others}
    arrays = {name: as_array(part) for name, part in parts.items() if part is not None}
    for name, array in arrays.items():
        if len(array) != n:
            raise ValueError(
                f"audit: {name} has {len(array)} rows, but X has {n}. Row i of {name} must belong to row i of X."
            )
    sides: dict[str, Any] = {role if name == "y" and role is not None else name: part for name, part in arrays.items()}
    return Data(X, **sides)


def read(est: Any, data: Data) -> Samples:
    """Bring data into the form in which an estimator divides them, or say what is wrong with them."""
    role, roles = est.spec.roles.y, est.spec.roles.used
    check_roles(type(est).__name__, data.side_variables, roles)
    X = est._validated(data.X, reset=False)
    if role is not None and role not in data.side_variables and est.__sklearn_tags__().target_tags.required:
        raise ValueError(f"audit: y is missing. Give the {role} that the estimator was fitted to.")
    if data.floor is not None and role != "nuisance":
        raise ValueError("audit: floor is what a blind code tells of a nuisance, and there is none. Leave it out.")
    used = {name: side for name, side in data.side_variables.items() if name in (*roles, "floor")}
    truth = None if data.truth is None else data.truth.reshape(len(X), -1).astype(np.float64)
    units = None if data.groups is None else as_numbers(data.groups.reshape(-1))
    return est.spec.refitting.samples(est, Samples(Data(X, truth=truth, **used), role, units=units))


def divide(rows: Samples, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Return the rows to learn from and the rows to hold out, about one in four, evenly within strata.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 40)
    >>> rows = Samples(Data(np.zeros((80, 1)), signal=labels), "signal", labels)
    >>> learn, hold = divide(rows, np.random.default_rng(0))
    >>> np.bincount(labels[hold]).tolist(), len(set(learn) & set(hold))
    ([10, 10], 0)
    """
    levels = rows.strata if rows.role == "nuisance" else None
    if (verdict := splittable_samples(len(rows), groups=rows.units, nuisance=levels)).outcome == "fails":
        raise InputError("X", f"audit: {verdict.why}")
    held = rows.drawn(1 / N_PARTS, rng)
    return np.flatnonzero(~held), np.flatnonzero(held)


def refit(est: Any, rows: Samples, *, n_fits: int, rng: np.random.Generator, begin: Callable[[str], None]) -> Refits:
    """Fit clones of an estimator: ``n_fits`` with other seeds, two to halves, and one that can learn nothing.

    Not all methods have the last: see `Refitting.null`. ``begin`` is told what comes next.
    """
    learn, hold = divide(rows, rng)
    train, held_out = rows.take(learn), rows.take(hold)
    held_out = held_out.take(np.sort(rng.permutation(len(held_out))[:MAX_HELD_OUT]))
    held_out = _measurable(train, held_out)

    def fitted(est: Any, rows: Samples, *, elsewhere: bool = False) -> Any:
        return est.spec.refitting.fit(est, rows.data, seed=int(rng.integers(2**31)), elsewhere=elsewhere)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IdentifiabilityWarning)
        others = []
        for k in range(n_fits):
            begin("fit with another seed")
            others.append(fitted(est, train, elsewhere=k > 0))
    half = train.drawn(0.5, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # fewer rows, or none that say anything
        warnings.simplefilter("ignore", ConvergenceWarning)  # the fit itself said so
        halves, null = [], None
        for some in (half, ~half):
            begin("fit to half of the rows")
            halves.append(fitted(est, train.take(np.flatnonzero(some))))
        if (nothing := est.spec.refitting.null(est, train, rng)) is not None:
            begin("fit to shuffled data, as a control")
            null = fitted(*nothing)
    warned = (str(w.message) for w in caught if issubclass(w.category, IdentifiabilityWarning))
    noise: Noise | None = est.spec.refitting.noise(others[0], held_out)
    return Refits(tuple(others), tuple(halves), null, held_out, train, tuple(dict.fromkeys(warned)), noise)


def check_roles(owner: str, roles: Iterable[str], usable: Sequence[str]) -> None:
    """Raise if a side variable is given that a method cannot use; groups, truth and floor are for audits."""
    if unusable := [role for role in roles if role not in (*usable, "groups", "truth", "floor")]:
        named, takes = (" and ".join(f"`{role}`" for role in some) for some in (unusable, usable))
        raise InputError(
            unusable[0],
            f"{owner}: cannot use {named}; it takes {takes or 'no side variable'}. Leave it out, or use a method for "
            "it: Contrast for `pairs`, Classify for `signal`, Forget for `nuisance`, with or without `given`.",
        )


def encoder_of(est: Estimator, data: Data) -> Callable[[NDArray[Any]], Matrix]:
    """Return the function that maps observations to latents, with the side variables of ``data``."""
    return lambda X: latent_matrix(est, replace(data, X=X))


def latent_matrix(est: Estimator, data: Data) -> Matrix:
    """Return the latents of data as a dense matrix of double precision."""
    latents = est.spec.latents(est, data)
    return np.asarray(latents.toarray() if hasattr(latents, "toarray") else latents, dtype=np.float64)


def can_split(est: Any, data: Data) -> Verdict:
    """Return whether an audit of an estimator, fitted or not, can split the samples."""
    levels = (
        est.spec.refitting.samples(est, Samples(data, "nuisance")).strata if est.spec.roles.y == "nuisance" else None
    )
    return splittable_samples(len(data), groups=data.groups, nuisance=levels)


def _measurable(train: Samples, held_out: Samples) -> Samples:
    """Return held-out samples of classes that occur in training, or raise if no level has enough to compare fits in."""
    if held_out.role == "nuisance" and np.bincount(held_out.strata).max() < MIN_SAMPLES_OF_LEVEL:
        raise InputError(
            "y",
            f"audit: no level of y, with quantities cut into bins and columns combined, has {MIN_SAMPLES_OF_LEVEL} of "
            f"the {len(held_out)} held-out samples, so that fits cannot be compared within levels. Give more samples.",
        )
    if held_out.role != "signal":
        return held_out
    return held_out.take(np.flatnonzero(np.isin(held_out.strata, train.strata)))
