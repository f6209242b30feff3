"""Which rows a fit learns from, and which it keeps back: at random, but nothing that is related on both sides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pindown.data import IndexedSource
from pindown.data.data import NEXT, Data
from pindown.data.labels import as_numbers

Rows = NDArray[np.int64]

FEWEST, MOST = 100, 2_000
"""Rows kept back: where a share would be fewer, all are in turn, in folds; and no more than these, unless one group
alone has more."""

FOLDS = 5
"""Parts of few rows, each of which is kept back once."""

LEAST_ROWS = 20
"""Rows of which none can be spared."""

LARGEST_GROUP = 1 / 3
"""Share of the rows that a group may have and still be kept back whole."""

MANY_GROUPS = 10
"""Groups of partners from which whole ones are kept back; fewer have rows on both sides, each with partners there."""

BLOCKS, LEAST_BLOCK = 50, 10
"""Stretches that rows in an order are cut into, and rows in each, at least."""


@dataclass(frozen=True, eq=False)
class Split:
    """Numbers of rows to learn from, and of rows kept back; and of some of the former, drawn in the same way."""

    learned: Rows
    held_out: Rows
    compared: Rows


def divided(
    data: Data, *, share: float, seed: int, paired: bool = False, labelled: bool = False, folds: bool = True
) -> tuple[Split, ...]:
    """Divide rows once, or, where they are few, into folds; not at all if nothing can be kept back.

    Parameters
    ----------
    data
        The rows. Those of one group, and partners, stay together; each class of a label has rows to learn from.
    share
        Share of the rows to keep back.
    seed
        Of the draw.
    paired
        Whether rows have partners: without any that are named, the next row.
    labelled
        Whether the signal is a label.
    folds
        Whether few rows are divided into folds.

    Examples
    --------
    >>> rows = Data(np.arange(5_000.0)[:, None], groups=np.repeat(np.arange(50), 100))
    >>> (only,) = divided(rows, share=0.1, seed=0)
    >>> len(only.learned), len(only.held_out), np.unique(only.held_out // 100).tolist()
    (4500, 500, [2, 4, 18, 23, 36])
    >>> [len(each.held_out) for each in divided(rows.take(np.arange(500)), share=0.1, seed=0)]
    [100, 100, 100, 100, 100]
    """
    n = len(data)
    if not share or n < LEAST_ROWS:
        return ()
    rng = np.random.default_rng(seed % 2**63)
    units, strata = _units(data, paired), _strata(data, paired, labelled)
    if folds and share * n < FEWEST:
        n_folds = min(FOLDS, int(units.max()) + 1)
        fold = spared(in_folds(units, n_folds, rng, strata=strata), strata)
        parts = [np.flatnonzero(fold == k) for k in range(n_folds)]
        others = [*parts[1:], *parts[:1]]
    else:
        parts = [_drawn(units, strata, min(share * n, MOST), rng)]
        rest = np.setdiff1d(np.arange(n), parts[0])
        others = [rest[_drawn(as_numbers(units[rest]), as_numbers(strata[rest]), len(parts[0]), rng)]]
    found = [Split(np.setdiff1d(np.arange(n), part), part, other) for part, other in zip(parts, others, strict=True)]
    can = all(_can_be_learned(data, rows, paired) for each in found for rows in (each.learned, each.held_out))
    return tuple(found) if can else ()


def in_folds(units: Rows, n_folds: int, rng: np.random.Generator, *, strata: Rows | None = None) -> Rows:
    """Return the number of each row's fold: units stay whole, and those of one stratum are dealt out evenly.

    Units come in a random order, the larger first, and each goes to the fold that has the fewest rows of its stratum,
    and of these to the smallest. With fewer units than folds some folds have none.

    Parameters
    ----------
    units
        The number of each row's unit: ``np.arange(n)`` if rows stand for themselves; (n,).
    n_folds
        Number of folds.
    rng
        Of the order.
    strata
        The number of what each row is of, if folds should have it in equal parts: a unit counts as its first row; (n,).

    Examples
    --------
    >>> in_folds(np.arange(6), 3, np.random.default_rng(0), strata=np.array([0, 0, 0, 1, 1, 1])).tolist()
    [2, 1, 0, 0, 1, 2]
    >>> in_folds(np.array([0, 0, 0, 0, 1, 1, 2, 2]), 2, np.random.default_rng(0)).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    sizes = np.bincount(units)
    first = np.zeros(len(sizes), dtype=np.int64)
    if strata is not None:
        first[units[::-1]] = strata[::-1]
    order = np.lexsort([rng.random(len(sizes)), -sizes, first])
    fold = np.empty(len(sizes), dtype=np.int64)
    if np.ptp(sizes):
        rows = np.zeros((int(first.max()) + 1, n_folds))  # of each stratum, that folds have by now
        for unit in order:
            fold[unit] = np.lexsort([rows.sum(0), rows[first[unit]]])[0]
            rows[first[unit], fold[unit]] += sizes[unit]
    else:
        fold[order] = np.arange(len(order)) % n_folds
    return fold[units]


def spared(fold: Rows, strata: Rows) -> Rows:
    """Return folds without rows whose stratum would be in one of them whole: these have none, −1.

    Examples
    --------
    >>> spared(np.array([0, 1, 0, 1, 1]), np.array([0, 0, 1, 2, 2])).tolist()
    [0, 1, -1, -1, -1]
    """
    first = np.full(int(strata.max()) + 1, -1)
    first[strata] = fold
    whole = np.ones(len(first), dtype=bool)
    whole[strata[fold != first[strata]]] = False
    return np.where(whole[strata], -1, fold)


def _can_be_learned(data: Data, rows: Rows, paired: bool) -> bool:
    """Say whether there is something to tell apart in some rows: two at least, or two pairs."""
    if not paired or len(rows) < 2:
        return len(rows) > 1
    if _is_next(data):
        return len(rows) - len(np.unique(runs(rows, data.groups))) > 1
    if not _in_groups(data):
        return True
    return int((np.bincount(as_numbers(data.pairs[rows].reshape(-1))) > 1).sum()) > 1


def taken(data: Data, rows: Rows, *, paired: bool) -> Data:
    """Return some rows with what belongs to them; next rows become partners, if they followed.

    Examples
    --------
    >>> data = taken(Data(np.arange(9.0)[:, None]), np.array([0, 1, 5, 6, 7]), paired=True)
    >>> data.X.ravel().tolist(), data.pairs.ravel().tolist()
    ([0.0, 5.0, 6.0], [1.0, 6.0, 7.0])
    """
    some = data.take(rows)
    if not paired or not _is_next(data):
        return some
    return replace(some, pairs=NEXT, groups=runs(rows, data.groups)).paired()


def runs(rows: Rows, groups: NDArray[Any] | None = None) -> Rows:
    """Give numbers to stretches of rows that follow each other, and are of one group if there are groups.

    Examples
    --------
    >>> runs(np.array([0, 1, 5, 6, 7]), np.array([0, 0, 0, 0, 0, 0, 1, 1])).tolist()
    [0, 0, 1, 2, 2]
    """
    breaks = np.diff(rows) != 1
    if groups is not None:
        breaks = breaks | (groups[rows[1:]] != groups[rows[:-1]])
    return np.concatenate([[0], breaks.cumsum()])


def _is_next(data: Data) -> bool:
    return data.pairs is None or isinstance(data.pairs, str)


def _in_groups(data: Data) -> bool:
    """Say whether partners came as groups of rows."""
    if _is_next(data):
        return False
    shape = data.X.shape if isinstance(data.X, IndexedSource) else data.X.shape[1:]
    return data.pairs.ndim == 1 or data.pairs.shape[1:] == (1,) != shape


def _units(data: Data, paired: bool) -> Rows:
    """Give numbers to what stays together: groups, and partners; of rows in an order, stretches."""
    n = len(data)
    groups = None if data.groups is None else as_numbers(data.groups)
    if groups is not None and np.bincount(groups).min() > LARGEST_GROUP * n:
        groups = None  # so few groups that none can be spared
    together = [] if groups is None else [groups]
    if paired and _in_groups(data):
        partners = as_numbers(data.pairs.reshape(-1))
        if (np.bincount(partners) > 1).sum() >= MANY_GROUPS:
            together.append(partners)
    if len(together) == 2:
        links = coo_array((np.ones(n), (together[0], together[1])))
        links.resize((links.shape[0] + links.shape[1],) * 2)
        links.col = links.col + int(together[0].max()) + 1
        return connected_components(links)[1][together[0]]
    if together:
        return together[0]
    if paired and (_is_next(data) or _follow_each_other(data)):
        length = max(LEAST_BLOCK, -(-n // BLOCKS))
        return np.arange(n) // length
    return np.arange(n)


def _follow_each_other(data: Data) -> bool:
    """Say whether partners that came as an array are the next rows."""
    if _in_groups(data):
        return False
    rows = np.linspace(0, len(data) - 2, 50).astype(np.int64)
    nexts = data.X[rows + 1]
    if nexts.shape != data.pairs[rows].shape:
        return False  # the fit says what is wrong
    return bool((nexts == data.pairs[rows]).reshape(len(rows), -1).all(1).mean() > 0.5)


def _strata(data: Data, paired: bool, labelled: bool) -> Rows:
    """Give numbers to what must have rows on both sides: classes, or groups of partners that are few."""
    none = np.zeros(len(data), dtype=np.int64)
    if labelled and data.signal is not None:
        return as_numbers(np.reshape(data.signal, -1))
    if not paired or not _in_groups(data):
        return none
    partners = as_numbers(data.pairs.reshape(-1))
    return partners if (np.bincount(partners) > 1).sum() < MANY_GROUPS else none


def _drawn(units: Rows, strata: Rows, n_samples: float, rng: np.random.Generator) -> Rows:
    """Return about so many rows: whole units, while each stratum has others left; at least one unit."""
    sizes, left = np.bincount(units), np.bincount(strata)
    if len(sizes) == len(units):  # rows, each a unit: their share of every stratum
        order = rng.permutation(len(units))
        order = order[np.argsort(strata[order], kind="stable")]
        within = np.arange(len(order)) - (np.cumsum(left) - left)[strata[order]]
        spared = np.minimum(np.floor(left * n_samples / len(units) + rng.random(len(left))), left - 1)
        return np.sort(order[within < spared[strata[order]]])
    held: list[int] = []
    total = 0
    members = np.split(np.argsort(units, kind="stable"), np.cumsum(sizes)[:-1])
    for unit in rng.permutation(len(sizes)):
        takes = np.bincount(strata[members[unit]], minlength=len(left))
        fits = total + sizes[unit] <= n_samples or (not held and sizes[unit] <= LARGEST_GROUP * len(units))
        if fits and (left[takes > 0] > takes[takes > 0]).all():
            held.append(unit)
            total, left = total + sizes[unit], left - takes
    return np.flatnonzero(np.isin(units, held))
