"""Splits by group, permutations that keep the null hypothesis true, and confidence intervals.

Samples belong to groups (a subject, an episode; without groups each sample is its own) and to strata (the label that is
conditioned on; one stratum without). Under the null hypothesis the nuisance is assigned within a stratum independently
of the embedding. Two kinds of exchange then change nothing, and only these are used:

- a group with one level of the nuisance may swap it, as a whole, with another such group of the same strata;
- in a group with several levels, samples of the same stratum may swap theirs.

The fitted half and the split stay as they are, so that a test built on these exchanges is exact for any statistic of
the held-out half, the largest of many scores included: see Hemerik & Goeman (2018), *Exact testing with random
permutations*.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln
from scipy.stats import t as student

from pindown.data.labels import combined
from pindown.metrics.arrays import Labels, Mask, Matrix, contingency, sum_by_label

MIN_KEPT = 40  # groups of a kind that thinning never goes below
MAX_DRAWS = 200


def thin(groups: Labels, cells: Labels, max_samples: int, rng: np.random.Generator) -> Labels:
    """Choose about ``max_samples`` samples: fewer of each group first, and only then fewer groups."""
    n = len(groups)
    if n <= max_samples:
        return np.arange(n)
    rank, size = shuffled_ranks(combined(groups, cells), rng)
    kept = rank < np.maximum(1, np.rint(size * max_samples / n))
    if (left := int(kept.sum())) > max_samples:
        rank, size = shuffled_ranks(_kinds(groups, cells), rng)
        kept &= (rank < np.maximum(MIN_KEPT, np.rint(size * max_samples / left)))[groups]
    return np.flatnonzero(kept)


def halve(groups: Labels, cells: Labels, rng: np.random.Generator) -> Mask | None:
    """Return which samples to fit on: half of the groups of every kind. None if a cell is always on one side only.

    Groups are of one kind if they have the same cells. No exchange changes how often a kind is on a side, so the
    split could have been the same after it: that keeps the permutation test exact.
    """
    kinds = _kinds(groups, cells)
    n_cells = len(np.unique(cells))
    for _ in range(MAX_DRAWS):
        rank, size = shuffled_ranks(kinds, rng)
        coin = rng.integers(2, size=kinds.max() + 1)[kinds]
        fit = (rank < (size + coin) // 2)[groups]
        if all(len(np.unique(cells[side])) == n_cells for side in (fit, ~fit)):
            return fit
    return None


@dataclass(frozen=True, eq=False)
class Exchange:
    """The permutations that are allowed: units of one key may be exchanged."""

    unit: Labels  # (n,) the unit of each sample
    key: Labels  # (n_units,)
    first: Labels  # (n_units,) a sample of each unit

    @classmethod
    def within(cls, groups: Labels, strata: Labels, nuisance: Labels | Matrix) -> "Exchange":
        """Find the units: whole groups where the nuisance is constant in them, else samples."""
        pure = (n_distinct(groups, nuisance, groups.max() + 1) == 1)[groups]
        unit = combined(np.where(pure, groups, -1), np.where(pure, -1, np.arange(len(groups))))
        first = np.unique(unit, return_index=True)[1]
        kind = _kinds(groups, strata)[groups]
        key = combined(pure, np.where(pure, kind, groups), np.where(pure, -1, strata))
        return cls(unit, key[first], first)

    def draw(self, rng: np.random.Generator) -> Labels:
        """Return, for each sample, the sample whose nuisance it gets."""
        target = np.argsort(self.key, kind="stable")
        source = np.argsort(self.key + rng.random(len(self.key)))  # by key, and in random order within it
        given = np.empty_like(source)
        given[target] = source
        return self.first[given][self.unit]

    def n_assignments(self, nuisance: Labels | Matrix) -> float:
        """Count the different assignments of the nuisance to units: one over it is the smallest p-value."""
        per_key = np.bincount(self.key)
        per_level = np.bincount(combined(self.key, nuisance[self.first]))
        return float(np.exp(min(gammaln(per_key + 1).sum() - gammaln(per_level + 1).sum(), 700.0)))


def largest_test(statistics: Matrix) -> tuple[float, int]:
    """Return the p-value of the largest of many statistics (1 + draws, q; the first row is observed), and which it is.

    Each is measured in its own standard deviations over all rows, so that none dominates; since the observed
    row is treated as any other, the rank of its maximum is uniform if the rows are exchangeable (Westfall & Young
    1993, *Resampling-Based Multiple Testing*).
    """
    spread = statistics.std(axis=0)
    standard = (statistics - statistics.mean(axis=0)) / np.where(spread > 1e-12, spread, np.inf)  # not rounding
    largest = standard.max(axis=1)
    return float(np.mean(largest >= largest[0] - 1e-9)), int(standard[0].argmax())  # as row 0 counts, p > 0


def margins(influence: Matrix, groups: Labels, rng: np.random.Generator, extra: float = 0.0) -> Matrix:
    """Return half-widths of 95 % intervals that hold for all p scores at once, from each sample's influence (n, p).

    Influences are summed within groups, as samples of a group are not independent; the quantile is that of the largest
    of p Gaussians correlated as the sums are, widened to Student's where groups are few. ``extra`` is a variance that
    all scores share.
    """
    sums = sum_by_label(influence, groups)
    n_groups = len(sums)
    covariance = sums.T @ sums * n_groups / max(n_groups - 1, 1) + extra
    error = np.sqrt(np.diag(covariance))
    scale = np.where(error > 0, error, 1)
    draws = rng.multivariate_normal(np.zeros(len(error)), covariance / np.outer(scale, scale), 4000, method="eigh")
    quantile = np.quantile(np.abs(draws).max(axis=1), 0.95)
    return error * quantile * student.isf(0.025, max(n_groups - 1, 1)) / student.isf(0.025, np.inf)


def n_distinct(keys: Labels, values: Labels | Matrix, n_keys: int) -> Labels:
    """Count the distinct values of each key."""
    return np.bincount(keys[np.unique(combined(keys, values), return_index=True)[1]], minlength=n_keys)


def _kinds(groups: Labels, cells: Labels) -> Labels:
    """Give groups a number each, the same if they have the same cells."""
    if len(groups) == groups.max() + 1:  # every sample its own group
        kinds = np.empty_like(cells)
        kinds[groups] = cells
        return combined(kinds)
    return np.unique(contingency(groups, cells) > 0, axis=0, return_inverse=True)[1].ravel()


def shuffled_ranks(keys: Labels, rng: np.random.Generator) -> tuple[Labels, Labels]:
    """Give each item a random rank among the items of its key, and the number of these."""
    sizes = np.bincount(keys)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    order = np.lexsort((rng.random(len(keys)), keys))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - starts[keys[order]]
    return rank, sizes[keys]
