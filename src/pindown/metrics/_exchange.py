"""Who may be exchanged with whom: splits by group, permutations that leave the null hypothesis true, intervals.

Rows belong to groups (a subject, an episode; without groups each row is its own) and to strata (the label that is
conditioned on; one stratum without). Under the null hypothesis the nuisance is handed out within a stratum without
looking at the code. Two kinds of exchange then change nothing, and only these are used:

- a group with one value of the nuisance may swap it, as a whole, with another such group of the same strata;
- in a group with several values, rows of the same stratum may swap theirs.

The fit half and the split stay as they are, so that a test built on these exchanges is exact for any statistic of
the held-out half, the largest of many scores included: see Hemerik & Goeman (2018), *Exact testing with random
permutations*.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import t as student

from pindown.data.labels import combined

Matrix = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]

MIN_KEPT = 40  # groups of a kind that thinning never goes below
MAX_DRAWS = 200


def thin(groups: Codes, cells: Codes, max_samples: int, rng: np.random.Generator) -> Codes:
    """Choose about ``max_samples`` rows: fewer rows of each group first, and only then fewer groups.

    Evidence is counted in groups, so they go last; and rare kinds of them stay.
    """
    n = len(groups)
    if n <= max_samples:
        return np.arange(n)
    rank, size = _shuffled_ranks(combined(groups, cells), rng)
    kept = rank < np.maximum(1, np.rint(size * max_samples / n))
    if (left := int(kept.sum())) > max_samples:
        rank, size = _shuffled_ranks(_kinds(groups, cells), rng)
        kept &= (rank < np.maximum(MIN_KEPT, np.rint(size * max_samples / left)))[groups]
    return np.flatnonzero(kept)


def halve(groups: Codes, cells: Codes, rng: np.random.Generator) -> Mask | None:
    """Return which rows to fit on: half of the groups of every kind. None if a cell is always on one side only.

    Groups are of one kind if they hold the same cells. No exchange changes how often a kind is on a side, so the
    split could have been the same after it: that keeps the permutation test exact.
    """
    kinds = _kinds(groups, cells)
    n_cells = len(np.unique(cells))
    for _ in range(MAX_DRAWS):
        rank, size = _shuffled_ranks(kinds, rng)
        coin = rng.integers(2, size=kinds.max() + 1)[kinds]
        fit = (rank < (size + coin) // 2)[groups]
        if all(len(np.unique(cells[side])) == n_cells for side in (fit, ~fit)):
            return fit
    return None


@dataclass(frozen=True, eq=False)
class Exchange:
    """The permutations that are allowed: units of one key may be exchanged."""

    unit: Codes  # (n,) the unit of each row
    key: Codes  # (n_units,)
    first: Codes  # (n_units,) a row of each unit

    @classmethod
    def within(cls, groups: Codes, strata: Codes, nuisance: NDArray[Any]) -> "Exchange":
        """Find the units: whole groups where the nuisance is constant in them, else rows."""
        pure = _is_constant(groups, nuisance)[groups]
        unit = combined(np.where(pure, groups, -1), np.where(pure, -1, np.arange(len(groups))))
        first = np.unique(unit, return_index=True)[1]
        kind = _kinds(groups, strata)[groups]
        key = combined(pure, np.where(pure, kind, groups), np.where(pure, -1, strata))
        return cls(unit, key[first], first)

    def draw(self, rng: np.random.Generator) -> Codes:
        """Return, for each row, the row whose nuisance it gets."""
        target = np.argsort(self.key, kind="stable")
        source = np.argsort(self.key + rng.random(len(self.key)))  # by key, and in random order within it
        given = np.empty_like(source)
        given[target] = source
        return self.first[given][self.unit]

    def n_distinct(self, nuisance: NDArray[Any]) -> float:
        """Count the different assignments of the nuisance to units: one over it is the smallest p-value."""
        values = nuisance[self.first]
        per_key = np.bincount(self.key)
        per_value = np.bincount(combined(self.key, np.unique(values, return_inverse=True)[1]))
        return float(np.exp(min(gammaln(per_key + 1).sum() - gammaln(per_value + 1).sum(), 700.0)))


def largest_test(statistics: Matrix) -> tuple[float, int]:
    """Return the p-value of the largest of many statistics (1 + draws, q; the first row is observed), and which it is.

    Each is measured in its own standard deviations over all rows, so that none drowns the others; since the observed
    row is treated as any other, the rank of its maximum is uniform if the rows are exchangeable (Westfall & Young
    1993, *Resampling-Based Multiple Testing*).
    """
    spread = statistics.std(axis=0)
    standard = (statistics - statistics.mean(axis=0)) / np.where(spread > 1e-12, spread, np.inf)  # not rounding
    largest = standard.max(axis=1)
    return float(np.mean(largest >= largest[0] - 1e-9)), int(standard[0].argmax())  # as row 0 counts, p > 0


def margins(influence: Matrix, groups: Codes, rng: np.random.Generator, extra: float = 0.0) -> Matrix:
    """Half-widths of 95 % intervals that hold for all p scores at once, from each row's influence (n, p) on them.

    Influences are summed within groups, as rows of a group are not independent; the quantile is that of the largest
    of p Gaussians correlated as the sums are, widened to Student's where groups are few. ``extra`` is a variance that
    all scores share.
    """
    sums = np.zeros((groups.max() + 1, influence.shape[1]))
    np.add.at(sums, groups, influence)
    n_groups = len(np.unique(groups))
    covariance = sums.T @ sums * n_groups / max(n_groups - 1, 1) + extra
    error = np.sqrt(np.diag(covariance))
    scale = np.where(error > 0, error, 1)
    draws = rng.multivariate_normal(np.zeros(len(error)), covariance / np.outer(scale, scale), 4000, method="eigh")
    quantile = np.quantile(np.abs(draws).max(axis=1), 0.95)
    return error * quantile * student.isf(0.025, max(n_groups - 1, 1)) / student.isf(0.025, np.inf)


def _kinds(groups: Codes, cells: Codes) -> Codes:
    """Give groups a number each, the same if they hold the same cells."""
    if len(groups) == groups.max() + 1:  # every row its own group
        kinds = np.empty_like(cells)
        kinds[groups] = cells
        return combined(kinds)
    holds = np.zeros((groups.max() + 1, cells.max() + 1), dtype=bool)
    holds[groups, cells] = True
    return np.unique(holds, axis=0, return_inverse=True)[1].ravel()


def _shuffled_ranks(keys: Codes, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Give each item a random rank among the items of its key, and the number of these."""
    sizes = np.bincount(keys)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    order = np.lexsort((rng.random(len(keys)), keys))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - starts[keys[order]]
    return rank, sizes[keys]


def _is_constant(groups: Codes, values: NDArray[Any]) -> Mask:
    """Say for each group whether its rows share one value."""
    code = np.unique(values, return_inverse=True)[1]
    lowest = np.full(groups.max() + 1, len(code))
    highest = np.full(groups.max() + 1, -1)
    np.minimum.at(lowest, groups, code)
    np.maximum.at(highest, groups, code)
    return lowest >= highest
