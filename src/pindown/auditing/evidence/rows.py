"""Rows that an audit divides: which of them are divided evenly, which stay together, and rows that tell nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.auditing.checks.noise import Noise
from pindown.data.data import NEXT, Data
from pindown.data.labels import Codes, as_numbers
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL

N_BLOCKS = 40
"""Stretches into which a time series is cut, so that rows held out are no neighbours of rows learned from."""

FEW = 10
"""Typical number of rows that share a value, up to which they stay together when rows are divided."""

MIN_ROWS_OF_VALUE = MIN_SAMPLES_PER_LEVEL
"""Held-out rows of a value of a nuisance within which fits can be compared."""


@dataclass(frozen=True, eq=False)
class Rows:
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

    def take(self, rows: NDArray[Any]) -> Rows:
        """Return these rows."""
        units = None if self.units is None else self.units[rows]
        return replace(self, data=self.data.take(rows), strata=self.strata[rows], units=units)

    def shuffled(self, rng: np.random.Generator) -> Rows:
        """Return the rows with side information that belongs to others; without any, with each column on its own.

        Where all rows of a unit have one value, units exchange theirs; not so where what counts is who shares a value.
        """
        if self.role is None or self.side is None:
            return self.with_permuted_columns(rng)
        order = exchange(self.side, None if self.role == "pairs" else self.units, rng)
        other: dict[str, Any] = {self.role: self.side[order]}
        return replace(self, data=replace(self.data, **other))

    def with_permuted_columns(self, rng: np.random.Generator) -> Rows:
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


def with_partners(rows: Rows) -> Rows:
    """Make partners explicit: the next row is one as long as both lie in one group, or one stretch of the series."""
    data, side = rows.data, rows.data.pairs
    if side is None or isinstance(side, str):
        units = np.arange(len(data)) * N_BLOCKS // len(data) if rows.units is None else rows.units
        paired = replace(data, pairs=NEXT, groups=units).paired()
        return Rows(replace(paired, groups=None), "pairs", units=paired.groups)
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
    held_out: Rows
    learned_from: Rows
    warned: tuple[str, ...]
    noise: Noise  # of single columns of X
