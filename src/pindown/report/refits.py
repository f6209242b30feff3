"""Independent fits of one estimator: with other seeds, to halves of the rows, and to shuffled side information.

An estimator may have seen all the rows it is audited on. So the rows are divided: every fit made here learns from three
quarters of them, or from half of these, and all that is measured is measured on the last quarter.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn

from pindown.checks.values import MIN_AUDITED_GROUPS, MIN_AUDITED_ROWS, N_PARTS
from pindown.estimators import Classify, Contrast, Dictionary, Forget, IdentifiabilityWarning
from pindown.estimators.base import BaseEncoder, as_array
from pindown.estimators.forget.nuisance import as_table, read_columns
from pindown.labels import as_numbers
from pindown.metrics import by_value
from pindown.sources.drawing import Augment

Rows = NDArray[np.int64]

MIN_ROWS_OF_VALUE = by_value.MIN_ROWS
"""Held-out rows of a value of a nuisance within which fits can be compared."""

MAX_HELD_OUT = 4_000
"""Held-out rows that are used: with more, what is measured would change little."""

N_BLOCKS = 40
"""Stretches into which a time series is cut, so that rows held out are no neighbours of rows learned from."""

FEW = 10
"""Typical number of rows that share a value, up to which they stay together when rows are divided."""

STRETCH, BEND = 1.5, 0.3
"""How much the start of a fit stretches some directions and shrinks others; and the slope of negative values there."""


@dataclass(frozen=True, eq=False)
class Data:
    """Rows with all that belongs to them; ``side`` is what the estimator learns from, or forgets."""

    X: NDArray[Any]
    side: NDArray[Any] | None
    given: NDArray[Any] | None
    truth: NDArray[Any] | None
    strata: Rows  # rows of one stratum are divided evenly
    units: Rows | None  # rows of one unit stay together
    paired: bool = False  # whether side information says who is whose partner

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: Rows) -> Data:
        """Return these rows."""
        names = ("X", "side", "given", "truth", "strata", "units")
        parts = {name: getattr(self, name) for name in names}
        return replace(self, **{name: part[rows] for name, part in parts.items() if part is not None})

    def shuffled(self, rng: np.random.Generator) -> Data:
        """Return the rows with side information that belongs to others; without any, with each column on its own.

        Where all rows of a unit have one value, units exchange theirs; not so where what counts is who shares a value.
        """
        if self.side is None:
            return self.torn(rng)
        return replace(self, side=self.side[exchange(self.side, None if self.paired else self.units, rng)])

    def torn(self, rng: np.random.Generator) -> Data:
        """Return rows whose columns were permuted, each on its own: no latent reaches two of them."""
        return replace(self, X=rng.permuted(self.X, axis=0))


def exchange(side: NDArray[Any], units: Rows | None, rng: np.random.Generator) -> Rows:
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


@dataclass(frozen=True, eq=False)
class Refits:
    """The fits, all encoded on the same held-out rows, which none of them has seen.

    The first of ``others`` differs from the fit that is audited in its seed and its rows alone. The rest also start at
    another map of the data (`AnotherStart`), but for `Forget`, whose start is a closed form, and `Dictionary`.
    """

    others: tuple[BaseEncoder, ...]  # to the same rows
    halves: tuple[BaseEncoder, ...]  # each from one half of these rows
    null: BaseEncoder | None  # from side information that was shuffled
    held_out: Data
    n_learned_from: int
    warned: tuple[str, ...]


def read(est: BaseEncoder, X: Any, y: Any, given: Any, groups: Any, truth: Any) -> Data:
    """Bring rows and what belongs to them into one form, or say what is wrong with them."""
    rows = est._validated(X, reset=False)
    parts = {"given": given, "groups": groups, "truth": truth}
    arrays = {name: None if part is None else np.asarray(as_array(part)) for name, part in parts.items()}
    for name, array in arrays.items():
        if array is not None and len(array) != len(rows):
            raise ValueError(f"audit: {name} has {len(array)} rows, but X has {len(rows)}. Row i must belong to row i.")
    if arrays["given"] is not None and not isinstance(est, Forget):
        raise ValueError(f"audit: given is a label within which Forget forgets; {type(est).__name__} has none.")
    side = None if y is None or isinstance(est, Dictionary) else np.asarray(as_array(y))
    if side is not None and len(side) != len(rows):
        raise ValueError(f"audit: y has {len(side)} rows, but X has {len(rows)}. Row i of y must belong to row i of X.")
    truth = arrays["truth"]
    truth = None if truth is None else truth.reshape(len(rows), -1).astype(np.float64)
    units = None if arrays["groups"] is None else as_numbers(arrays["groups"].reshape(-1))
    data = Data(rows, side, arrays["given"], truth, np.zeros(len(rows), dtype=np.int64), units)
    match est:
        case Contrast():
            return _with_partners(replace(data, paired=True))
        case Classify():
            if side is not None:
                return replace(data, side=side.reshape(-1), strata=as_numbers(side.reshape(-1)))
            if est.augment is None:
                raise ValueError("audit: y is missing. Give the classes that the estimator was fitted to.")
            return replace(data, side=_views(est.augment, rows), paired=True)  # a row and a view of it are partners
        case Forget():
            return replace(data, strata=joint_label(est, side, len(rows)))
        case Dictionary():
            return data
    raise TypeError(f"audit: est must be a Contrast, Classify, Forget or Dictionary, got {type(est).__name__}.")


def _views(augment: Augment, rows: NDArray[Any]) -> NDArray[Any]:
    with torch.no_grad():
        return augment(torch.as_tensor(rows), torch.Generator().manual_seed(0)).numpy(force=True)


def joint_label(est: Forget, y: Any, n_rows: int) -> Rows:
    """Return one number for each combination of values of a nuisance, quantities cut into bins."""
    columns, kinds = read_columns(as_table(y, n_rows), n_rows, est.n_bins)
    numbers = np.stack([kind.numbers(column) for kind, column in zip(kinds, columns, strict=True)], 1)
    return np.unique(numbers, axis=0, return_inverse=True)[1].reshape(-1)


def _with_partners(data: Data) -> Data:
    """Make partners explicit: the next row is one as long as both lie in one group, or one stretch of the series."""
    side = data.side
    if side is None:
        units = np.arange(len(data)) * N_BLOCKS // len(data) if data.units is None else data.units
        alike = np.flatnonzero(units[:-1] == units[1:])
        return replace(replace(data, side=data.X, units=units).take(alike), side=data.X[alike + 1])
    if side.ndim > 1 and side.shape[1:] != (1,):
        return data
    labels = as_numbers(side.reshape(-1))
    few = np.median(np.bincount(labels)) <= FEW
    together = labels if data.units is None and few else data.units
    return replace(data, side=side.reshape(-1), units=together, strata=data.strata if few else labels)


def divide(data: Data, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return the rows to learn from and the rows to hold out, about one in four, evenly within strata.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 40)
    >>> data = Data(np.zeros((80, 1)), labels, None, None, labels, None)
    >>> learn, hold = divide(data, np.random.default_rng(0))
    >>> np.bincount(labels[hold]).tolist(), len(set(learn) & set(hold))
    ([10, 10], 0)
    """
    if len(data) < MIN_AUDITED_ROWS:
        few = f"audit: {len(data)} rows are too few to hold some out and halve the rest"
        raise ValueError(f"{few}: give {MIN_AUDITED_ROWS}.")
    held = _every(N_PARTS, data, rng)
    return np.flatnonzero(~held), np.flatnonzero(held)


def _every(n_parts: int, data: Data, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw one part in so many, of the rows of each stratum, or of the units."""
    if data.units is None:
        return _places(data.strata, rng) % n_parts == n_parts - 1
    units = as_numbers(data.units)
    if units.max() + 1 < MIN_AUDITED_GROUPS:
        raise ValueError(
            f"audit: rows come in {units.max() + 1} groups, too few to hold some out and to halve the rest: at least "
            f"{MIN_AUDITED_GROUPS} are needed. Without groups rows are taken to be independent."
        )
    order = _places(np.zeros(units.max() + 1, dtype=np.int64), rng)
    return (order % n_parts == n_parts - 1)[units]


def _places(strata: Rows, rng: np.random.Generator) -> Rows:
    """Return the place of each row in a random order of its stratum."""
    order = np.lexsort([rng.random(len(strata)), strata])
    counts = np.bincount(strata)
    places = np.empty(len(strata), dtype=np.int64)
    places[order] = np.arange(len(strata)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def refit(
    est: BaseEncoder, data: Data, *, n_fits: int, rng: np.random.Generator, begin: Callable[[str], None]
) -> Refits:
    """Fit clones of an estimator: ``n_fits`` with other seeds, two to halves, and one to shuffled side information.

    A nuisance that was shuffled is nothing to forget, so that `Forget` has no such fit: see `evidence.controls`.
    ``begin`` is told what comes next.
    """
    learn, hold = divide(data, rng)
    train, held_out = data.take(learn), data.take(hold)
    if isinstance(est, Classify):  # a class that lies in held-out groups alone cannot be recognised
        held_out = held_out.take(np.flatnonzero(np.isin(held_out.strata, train.strata)))
    held_out = held_out.take(np.sort(rng.permutation(len(held_out))[:MAX_HELD_OUT]))
    if isinstance(est, Forget) and np.bincount(held_out.strata).max() < MIN_ROWS_OF_VALUE:
        raise ValueError(
            f"audit: no value of y, with quantities cut into bins and columns combined, has {MIN_ROWS_OF_VALUE} rows "
            f"among the {len(held_out)} held out, so that fits cannot be compared within values. Give more rows."
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IdentifiabilityWarning)
        others = []
        for k in range(n_fits):
            begin("fit with another seed")
            others.append(_fitted(est, train, rng, elsewhere=k > 0))
    half = _every(2, train, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # fewer rows, or none that say anything
        halves, null = [], None
        for some in (half, ~half):
            begin("fit to half of the rows")
            halves.append(_fitted(est, train.take(np.flatnonzero(some)), rng))
        if not isinstance(est, Forget):
            begin("fit to shuffled data, as a control")
            null = _fitted(_among_strangers(est), train.shuffled(rng), rng)
    warned = (str(w.message) for w in caught if issubclass(w.category, IdentifiabilityWarning))
    return Refits(tuple(others), tuple(halves), null, held_out, len(train), tuple(dict.fromkeys(warned)))


def _fitted(est: BaseEncoder, data: Data, rng: np.random.Generator, *, elsewhere: bool = False) -> BaseEncoder:
    seed = int(rng.integers(2**31))
    batch_size = None if est.batch_size is None else min(est.batch_size, len(data))  # halves have fewer rows
    fresh = clone(est).set_params(random_state=seed, verbose=False, checkpoint=None, batch_size=batch_size)
    if elsewhere and isinstance(est, Contrast | Classify):
        fresh.set_params(encoder=AnotherStart(est.encoder, seed))
    if isinstance(est, Forget):
        return fresh.fit(data.X, data.side, data.given)
    makes_views = isinstance(est, Classify) and data.paired
    return fresh.fit(data.X, None if makes_views else data.side)


def _among_strangers(est: BaseEncoder) -> BaseEncoder:
    """Return the estimator as it learns from shuffled side information; one that makes its views takes others' rows."""
    if isinstance(est, Classify) and est.augment is not None:
        return clone(est).set_params(augment=OfStrangers(est.augment))
    return est


@dataclass(frozen=True)
class OfStrangers:
    """Views of other rows of a batch than those they are asked of: they tell nothing of who is who.

    Examples
    --------
    >>> x = torch.arange(8.0)[:, None]
    >>> views = OfStrangers(lambda x, generator: x)(x, torch.Generator().manual_seed(0))
    >>> torch.equal(views, x), torch.equal(views.sort(0).values, x)
    (False, True)
    """

    augment: Augment

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return a view of another row for each."""
        return self.augment(x[torch.randperm(len(x), generator=generator, device=generator.device)], generator)


@dataclass(frozen=True)
class AnotherStart:
    """The same kind of encoder, behind an invertible map of its own that stretches, turns and bends the data.

    Encoders that start at orthonormal rows of whitened data start alike, up to a rotation; where the side information
    says nothing they stay so, and would seem to agree. Behind different maps, what agrees in the end was learned.

    Examples
    --------
    >>> from pindown.networks import linear
    >>> body = AnotherStart(linear, seed=0)(3, 2)
    >>> body(torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """

    encoder: Callable[[int, int], nn.Module]
    seed: int

    def __call__(self, n_in: int, n_out: int) -> nn.Module:
        """Return the module."""
        rng = np.random.default_rng(self.seed)
        first, second, third = (np.linalg.qr(rng.normal(size=(n_in, n_in)))[0] for _ in range(3))
        stretch = STRETCH ** rng.uniform(-1, 1, size=n_in)
        start = (_fixed(first * stretch @ second), nn.LeakyReLU(BEND), _fixed(third))
        return nn.Sequential(*start, self.encoder(n_in, n_out))


def _fixed(matrix: NDArray[np.float64]) -> nn.Module:
    layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False).requires_grad_(False)
    layer.weight.copy_(torch.as_tensor(matrix, dtype=torch.float32))
    return layer
