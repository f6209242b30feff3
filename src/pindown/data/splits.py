"""Splits of samples into training and validation sets; related samples are never on both sides.

`assign_folds` and `hold_out` split any samples by their groups and strata. `divided` splits `Data` for a fit.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pindown.data.data import NEXT, Data
from pindown.data.labels import IntArray, as_numbers

MIN_HELD_OUT, MAX_HELD_OUT = 100, 2_000  # samples to hold out; with fewer, there are folds; a group may exceed the most
FOLDS = 5  # of few samples, each of which is held out once
MIN_SAMPLES = 20  # below which none are held out
LARGEST_GROUP = 1 / 3  # fraction of the samples that a group may have and still be held out
MANY_GROUPS = 10  # of positives from which whole ones are held out; fewer have samples on both sides
BLOCKS, LEAST_BLOCK = 50, 10  # into which a time series is cut, and samples in each at least
STRATIFIED_GROUPS = 500  # up to which strata are spread evenly, which takes time; more groups spread them by chance


def assign_folds(groups: IntArray, n_folds: int, rng: np.random.Generator, strata: IntArray | None = None) -> IntArray:
    """Return the fold of each sample: groups stay together, and folds have equal parts of each stratum; (n,).

    By scikit-learn's `StratifiedKFold`, `GroupKFold` or `StratifiedGroupKFold`. Groups and strata, such as classes, are
    numbered from 0; ``np.arange(n)`` are independent samples. With fewer groups than folds, some folds are empty.

    >>> fold = assign_folds(np.arange(6), 3, np.random.default_rng(0), np.array([0, 0, 0, 1, 1, 1]))
    >>> sorted(fold[:3].tolist()), sorted(fold[3:].tolist())
    ([0, 1, 2], [0, 1, 2])
    >>> assign_folds(np.array([0, 0, 0, 0, 1, 1, 2, 2]), 2, np.random.default_rng(0)).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, StratifiedKFold

    n_groups = int(groups.max()) + 1
    n_folds = min(n_folds, n_groups)
    if n_folds < 2:
        return np.zeros(len(groups), dtype=np.int64)
    groups = rng.permutation(n_groups)[groups]  # GroupKFold has no chance of its own
    kinds = np.zeros(len(groups), dtype=np.int64) if strata is None else strata
    kinds = np.where((np.bincount(kinds) < n_folds)[kinds], -1, kinds)  # what is rare cannot be in every fold
    shuffled = {"shuffle": True, "random_state": int(rng.integers(2**31))}
    if n_groups == len(groups):
        splitter = StratifiedKFold(n_folds, **shuffled)
    elif strata is None or n_groups > STRATIFIED_GROUPS:
        splitter = GroupKFold(n_folds)
    else:
        splitter = StratifiedGroupKFold(n_folds, **shuffled)
    fold = np.empty(len(groups), dtype=np.int64)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that some strata are rare
        for k, (_, held) in enumerate(splitter.split(fold, kinds, groups)):
            fold[held] = k
    return fold


def hold_out(
    groups: IntArray, fraction: float, rng: np.random.Generator, strata: IntArray | None = None
) -> NDArray[np.bool_]:
    """Choose about a fraction of the samples to hold out: whole groups, but no stratum as a whole; (n,).

    Nothing is held out of a single group, or where every stratum is in one group alone.
    """
    order, fold = _ordered_folds(groups, fraction, rng, strata)
    return np.isin(fold, order[0]) if len(order) > 1 else np.zeros(len(groups), dtype=bool)


def keep_strata(fold: IntArray, strata: IntArray, groups: IntArray | None = None) -> IntArray:
    """Return the folds, −1 for samples (with their groups) whose stratum would be in one fold as a whole."""
    first = np.full(int(strata.max()) + 1, -1)
    first[strata] = fold
    is_whole = np.ones(len(first), dtype=bool)
    is_whole[strata[fold != first[strata]]] = False
    alone = is_whole[strata] if groups is None else np.isin(groups, groups[is_whole[strata]])
    return np.where(alone, -1, fold)


def _ordered_folds(
    groups: IntArray, fraction: float, rng: np.random.Generator, strata: IntArray | None
) -> tuple[list[IntArray], IntArray]:
    """Return sets of folds that make up a fraction of the samples each, the nearest first; and the folds."""
    part = Fraction(fraction).limit_denominator(20) if fraction > 0.1 else Fraction(1, math.ceil(1 / fraction))
    at_once, n_folds = part.numerator, part.denominator
    fold = assign_folds(groups, n_folds, rng, strata)
    fold = fold if strata is None or not strata.any() else keep_strata(fold, strata, groups)
    sizes = np.bincount(fold[fold >= 0])
    if len(sizes) < n_folds:  # as many as there are groups
        at_once = max(1, round(len(sizes) * fraction))
    order = np.argsort(np.abs(sizes - fraction * len(fold) / at_once), kind="stable")
    return [order[k : k + at_once] for k in range(0, len(order), at_once)], fold


@dataclass(frozen=True, eq=False)
class Split:
    """Indices of training samples and of held-out samples; and as many training samples, to compare their scores."""

    learned: IntArray
    held_out: IntArray
    compared: IntArray


def divided(
    data: Data, *, fraction: float, seed: int, paired: bool = False, labelled: bool = False, folds: bool = True
) -> tuple[Split, ...]:
    """Split data once, or in ``folds`` if there are few samples; return nothing if none can be held out.

    Samples of one group, and positives if they are ``paired``, stay together. If the signal is a label, each class has
    samples to learn from. ``fraction`` is the fraction to hold out.

    >>> data = Data(np.arange(5_000.0)[:, None], groups=np.repeat(np.arange(50), 100))
    >>> (only,) = divided(data, fraction=0.1, seed=0)
    >>> len(only.learned), len(only.held_out), len(np.unique(only.held_out // 100))
    (4500, 500, 5)
    >>> [len(split.held_out) for split in divided(data.take(np.arange(500)), fraction=0.1, seed=0)]
    [100, 100, 100, 100, 100]
    """
    n = len(data)
    if not fraction or n < MIN_SAMPLES:
        return ()
    in_turn = folds and fraction * n < MIN_HELD_OUT
    fraction = 1 / FOLDS if in_turn else min(fraction, MAX_HELD_OUT / n)
    rng = np.random.default_rng(seed % 2**63)
    order, fold = _ordered_folds(_groups(data, paired), fraction, rng, _strata(data, paired, labelled))
    parts = [np.flatnonzero(np.isin(fold, some)) for some in order]
    if len(parts) < 2:
        return ()
    held = [*zip(parts, [*parts[1:], *parts[:1]], strict=True)] if in_turn else [(parts[0], parts[1])]
    found = [Split(np.setdiff1d(np.arange(n), part), part, other) for part, other in held]
    can = all(_can_be_learned(data, indices, paired) for each in found for indices in (each.learned, each.held_out))
    return tuple(found) if can else ()


def taken(data: Data, indices: IntArray, *, paired: bool) -> Data:
    """Return some samples with their side variables; next samples become pairs if they followed each other.

    >>> data = taken(Data(np.arange(9.0)[:, None]), np.array([0, 1, 5, 6, 7]), paired=True)
    >>> data.X.ravel().tolist(), data.pairs.ravel().tolist()
    ([0.0, 5.0, 6.0], [1.0, 6.0, 7.0])
    """
    some = data.take(indices)
    if not paired or not _is_next(data):
        return some
    return replace(some, pairs=NEXT, groups=runs(indices, data.groups)).paired()


def runs(indices: IntArray, groups: NDArray[np.generic] | None = None) -> IntArray:
    """Return the number of the run of consecutive samples, of one group, that each sample is in; (n,).

    >>> runs(np.array([0, 1, 5, 6, 7]), np.array([0, 0, 0, 0, 0, 0, 1, 1])).tolist()
    [0, 0, 1, 2, 2]
    """
    breaks = np.diff(indices) != 1
    if groups is not None:
        breaks = breaks | (groups[indices[1:]] != groups[indices[:-1]])
    return np.concatenate([[0], breaks.cumsum()])


def _can_be_learned(data: Data, indices: IntArray, paired: bool) -> bool:
    """Whether samples can be compared: there are two at least, or two pairs."""
    if not paired or len(indices) < 2:
        return len(indices) > 1
    if _is_next(data):
        return len(indices) - len(np.unique(runs(indices, data.groups))) > 1
    return not _in_groups(data) or int((np.bincount(as_numbers(data.pairs[indices].reshape(-1))) > 1).sum()) > 1


def _is_next(data: Data) -> bool:
    return data.pairs is None or isinstance(data.pairs, str)


def _in_groups(data: Data) -> bool:
    """Whether positives are given as groups of samples."""
    if _is_next(data):
        return False
    shape = data.X.shape if data.is_source else data.X.shape[1:]
    return bool(data.pairs.ndim == 1 or data.pairs.shape[1:] == (1,) != shape)


def _groups(data: Data, paired: bool) -> IntArray:
    """Return what each sample stays together with: its group, and its positives; of a time series, its block."""
    n, together = len(data), []
    if data.groups is not None:
        groups = as_numbers(data.groups)
        if np.bincount(groups).min() <= LARGEST_GROUP * n:  # otherwise there are too few groups to hold one out
            together.append(groups)
    if paired and _in_groups(data):
        positives = as_numbers(data.pairs.reshape(-1))
        if (np.bincount(positives) > 1).sum() >= MANY_GROUPS:
            together.append(positives)
    if len(together) == 2:
        first, second = together[0], together[1] + int(together[0].max()) + 1
        links = coo_array((np.ones(n), (first, second)), shape=(int(second.max()) + 1,) * 2)
        return as_numbers(connected_components(links)[1][first])
    if together:
        return together[0]
    if paired and (_is_next(data) or _follow_each_other(data)):
        return np.arange(n) // max(LEAST_BLOCK, -(-n // BLOCKS))
    return np.arange(n)


def _follow_each_other(data: Data) -> bool:
    """Whether positives that are given as an array are the next samples."""
    if _in_groups(data):
        return False
    indices = np.linspace(0, len(data) - 2, 50).astype(np.int64)
    after, pairs = data.X[indices + 1], data.pairs[indices]
    # Where shapes differ, the fit raises an error that says so.
    return after.shape == pairs.shape and bool((after == pairs).reshape(len(indices), -1).all(1).mean() > 0.5)


def _strata(data: Data, paired: bool, labelled: bool) -> IntArray | None:
    """Return what must have samples on both sides: the classes, or groups of positives if they are few."""
    if labelled and data.signal is not None:
        return as_numbers(np.reshape(data.signal, -1))
    if not paired or not _in_groups(data):
        return None
    positives = as_numbers(data.pairs.reshape(-1))
    return positives if (np.bincount(positives) > 1).sum() < MANY_GROUPS else None
