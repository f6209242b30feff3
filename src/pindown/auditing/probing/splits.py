"""Rows to learn a probe from and rows to score it on: classes in equal numbers, groups never on both sides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pindown.data.labels import as_numbers
from pindown.data.splits import hold_out

Numbers = NDArray[np.int64]

TEST = 0.3
"""Share of the rows that a probe is scored on."""

LEAST, TRIES = 4, 20
"""Rows of each class that there must be on both sides; and divisions that are tried to have them."""


class Split(NamedTuple):
    """Numbers of rows to learn from, and of rows to score on."""

    train: Numbers
    test: Numbers


def splits(groups: Numbers, n_splits: int, rng: np.random.Generator, classes: Numbers | None = None) -> list[Split]:
    """Draw divisions of rows; with classes, of as many rows of each. None if there are too few of one.

    Examples
    --------
    >>> found = splits(np.arange(60) // 2, 2, np.random.default_rng(0), np.arange(60) % 3 // 2)
    >>> train, test = found[0]
    >>> np.bincount((np.arange(60) % 3 // 2)[np.concatenate(found[0])]).tolist(), set(train // 2) & set(test // 2)
    ([20, 20], set())
    """
    found = []
    for _ in range(n_splits):
        for _ in range(TRIES):
            split = _drawn(groups, classes, rng)
            if classes is None or all(_least(classes, side) >= LEAST for side in split):
                found.append(split)
                break
        else:
            return []
    return found


def _drawn(groups: Numbers, classes: Numbers | None, rng: np.random.Generator) -> Split:
    rows = np.arange(len(groups)) if classes is None else _balanced(classes, rng)
    is_test = hold_out(as_numbers(groups[rows]), TEST, rng)
    return Split(rows[~is_test], rows[is_test])


def _balanced(classes: Numbers, rng: np.random.Generator) -> Numbers:
    """Return as many rows of each class as the rarest has."""
    n = np.bincount(classes).min()
    parts = [rng.permutation(np.flatnonzero(classes == c))[:n] for c in range(int(classes.max()) + 1)]
    return np.sort(np.concatenate(parts))


def _least(classes: Numbers, rows: Numbers) -> int:
    return int(np.bincount(classes[rows], minlength=int(classes.max()) + 1).min())
