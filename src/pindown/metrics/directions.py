"""Closed forms: which directions of the data tell groups apart, by their means or by their spreads; which do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize, stats

LEVEL = 1e-3
"""Chance of taking noise for one more direction in which means differ."""

N_SHUFFLES, DEVIATIONS = 20, 6.0
"""Spreads differ in a direction if by more than with shuffled labels: their mean and so many standard deviations."""


MEANS_COUNT = 30.0
"""What a difference of means is worth against one of covariances, both of whitened codes.

With less, codes of clusters take in directions in which means differ; with much more, those of bodies, whose means
hardly differ, do not look at covariances."""

N_STARTS, MOST_COLUMNS = 20, 64
"""Random starts of the search for even rows; and how wide data may be for it to be worth its time."""


class Grouping(NamedTuple):
    """A label of each row, to be compared within strata; rows with a negative label belong to no group."""

    labels: np.ndarray  # (n,) int64
    strata: np.ndarray  # (n,) int64

    def cells(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which rows belong to a group, the cell (stratum and label) of each, and the stratum of each cell."""
        used = self.labels >= 0
        pairs = np.stack([self.strata[used], self.labels[used]], 1)
        kinds, cell = np.unique(pairs, axis=0, return_inverse=True)
        return used, cell.reshape(-1), np.unique(kinds[:, 0], return_inverse=True)[1]


@dataclass(frozen=True)
class Directions:
    """An orthonormal basis (d, d) in rows: first those that tell groups apart, most telling first, then the blind."""

    basis: np.ndarray
    n_means: int  # in so many of them means differ,
    n_spreads: int  # and in so many more spreads

    @property
    def n_blind(self) -> int:
        """Number of directions in which no group was found to differ from another."""
        return len(self.basis) - self.n_means - self.n_spreads

    def as_seen_after(self, change: np.ndarray) -> Directions:
        """Return the same directions where each row b has become ``change`` (d, d) times b, orthonormal again."""
        told = len(self.basis) - self.n_blind
        # The blind first, then the least telling: QR keeps the span of any first few.
        flag = np.vstack([self.basis[told:], self.basis[:told][::-1]])
        rows = np.linalg.qr(change @ flag.T).Q.T
        return Directions(np.vstack([rows[self.n_blind :][::-1], rows[: self.n_blind]]), self.n_means, self.n_spreads)

    def keep(self, n: int) -> np.ndarray:
        """Return the n rows to keep: blind ones, those that come first in the basis first, then the least telling."""
        told = len(self.basis) - self.n_blind
        return np.vstack([self.basis[told:][:n], self.basis[: max(told, 0)][::-1][: max(n - self.n_blind, 0)]])


def directions(
    x: np.ndarray, groupings: Sequence[Grouping], *, spreads: bool, size: np.ndarray, rng: np.random.Generator
) -> Directions:
    r"""Order the directions of data by what they tell of groups.

    A linear code M x has the same mean in all groups if and only if M is orthogonal to the span V of differences of
    group means; and then the same covariance if it also is orthogonal to the ranges of differences of covariances. How
    many directions that are is decided by Bartlett's test of the dimension of V, and for covariances by comparison with
    shuffled labels.

    Parameters
    ----------
    x : array (n, d)
        The data, whitened.
    groupings : sequence of Grouping
        Each is looked at in turn, in what the ones before have left.
    spreads : bool
        Whether to compare covariances, too.
    size : array (d, m)
        Row j has what a unit of direction j is worth: blind directions are ordered by it, the largest first.
    rng : Generator
        Shuffles labels.
    """
    d = x.shape[1]
    told = np.zeros((0, d))
    for grouping in groupings:
        rest = complement(told)
        told = np.vstack([told, mean_differences(x @ rest.T, grouping) @ rest])
    n_means = len(told)
    for grouping in groupings if spreads else ():
        rest = complement(told)
        told = np.vstack([told, covariance_differences(x @ rest.T, grouping, rng) @ rest])
    blind = complement(told)
    u, *_ = np.linalg.svd(blind @ size, full_matrices=False)
    return Directions(np.vstack([told, u.T @ blind]), n_means, len(told) - n_means)


def complement(rows: np.ndarray) -> np.ndarray:
    """Return orthonormal rows that complete orthonormal rows (k, d) to a basis; (d − k, d).

    Examples
    --------
    >>> complement(np.array([[0.0, 1.0]])).round().tolist() in ([[1.0, 0.0]], [[-1.0, 0.0]])
    True
    """
    k, d = rows.shape
    return np.linalg.qr(rows.T, mode="complete").Q[:, k:].T if k else np.eye(d)


def mean_differences(x: np.ndarray, grouping: Grouping, *, level: float = LEVEL) -> np.ndarray:
    r"""Return an orthonormal basis, in rows, of the differences of group means that are more than noise; (r, d).

    With B the scatter of group means (within strata) and W that within groups, r is the least rank that Bartlett's test
    does not reject,

    .. math:: \Bigl(\nu_W + \nu_B - \tfrac{d + \nu_B + 1}{2}\Bigr) \sum_{j > r} \log(1 + \lambda_j)
              \sim \chi^2_{(d - r)(\nu_B - r)}

    with λ the eigenvalues of W⁻¹B and ν degrees of freedom. Bartlett, Multivariate analysis, 1947.

    Examples
    --------
    Three groups, whose means differ along the first axis only:

    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(3, size=600)
    >>> x = rng.normal(size=(600, 3)) + group[:, None] * [9, 0, 0]
    >>> mean_differences(x, Grouping(group, 0 * group)).round(1) + 0.0
    array([[1., 0., 0.]])
    """
    used, cell, stratum = grouping.cells()
    x = x[used]
    d, n_cells = x.shape[1], len(stratum)
    among = n_cells - (stratum.max() + 1 if n_cells else 0)
    if d == 0 or among == 0:
        return np.zeros((0, d))
    counts = np.bincount(cell)
    means = _sums(x, cell) / counts[:, None]  # (cells, d)
    of_stratum = _sums(means * counts[:, None], stratum) / np.bincount(stratum, counts)[:, None]
    away = (means - of_stratum[stratum]) * np.sqrt(counts)[:, None]  # (cells, d)
    centred = x - means[cell]
    within = centred.T @ centred
    within += 1e-9 * (np.trace(within) / d + 1e-300) * np.eye(d)
    values, vectors = linalg.eigh(away.T @ away, within)
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    freedom = len(x) - n_cells
    if freedom <= d:  # no noise to compare with: all differences count
        rank = min(among, d)
    else:
        factor = freedom + among - (d + among + 1) / 2
        rank = next(
            r
            for r in range(min(d, among) + 1)
            if r == min(d, among) or stats.chi2.sf(factor * np.log1p(values[r:]).sum(), (d - r) * (among - r)) > level
        )
    # W u, not u: the directions in which means differ, not those that tell them apart best.
    return _signed(np.linalg.qr(within @ vectors[:, :rank]).Q.T)


def covariance_differences(x: np.ndarray, grouping: Grouping, rng: np.random.Generator) -> np.ndarray:
    r"""Return an orthonormal basis, in rows, of the differences of group covariances that are more than noise; (r, d).

    If x = A (z, w) where w depends on the group, and z neither on the group nor on w, then
    :math:`\Sigma_e - \bar\Sigma = A\,\mathrm{diag}(0, D_e) A^\top`: the ranges of these differences span the columns
    of A that carry w. The rank is found one direction at a time: the largest singular value in what the directions
    before have left is compared with those of shuffled labels.

    Examples
    --------
    Two groups, whose spreads differ along the second axis only:

    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=2000)
    >>> x = rng.normal(size=(2000, 3)) * (1 + group[:, None] * [0, 1, 0])
    >>> covariance_differences(x, Grouping(group, 0 * group), rng).round(1) + 0.0
    array([[0., 1., 0.]])
    """
    used, cell, stratum = grouping.cells()
    if not len(stratum) or not x.shape[1]:
        return np.zeros((0, x.shape[1]))
    means = _sums(x[used], cell) / np.bincount(cell)[:, None]
    x = x[used] - means[cell]
    shuffled = [_shuffled(cell, stratum, rng) for _ in range(N_SHUFFLES)]
    rest, rank = np.eye(x.shape[1]), 0
    while len(rest) > 1:
        y = x @ rest.T
        u, size, _ = np.linalg.svd(_differences(y, cell, stratum), full_matrices=False)
        noise = [np.linalg.norm(_differences(y, some, stratum), 2) for some in shuffled]
        if size[0] <= np.mean(noise) + DEVIATIONS * np.std(noise):
            break
        rest, rank = complement(u[:, :1].T) @ rest, rank + 1
    u, *_ = np.linalg.svd(_differences(x, cell, stratum), full_matrices=False)
    return _signed(u[:, :rank].T)


def moment_matched_projection(
    x: np.ndarray, groupings: Sequence[Grouping], start: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    r"""Return rows M (k, d) for which codes M x have nearly one mean and one covariance in all groups.

    .. math:: \min_M\; E_e\Bigl[ c\,\lVert M(\mu_e - \bar\mu) \rVert^2
              + \lVert M(\Sigma_e - \bar\Sigma) M^\top \rVert^2 \Bigr]
              + \lVert M \bar\Sigma M^\top - I \rVert^2

    where a bar is the mean over the groups of a stratum. The last part keeps every direction of the code alive within
    groups. By quasi-Newton steps from ``start`` (k, d) and from random rows. If groups have too few rows for their
    covariances, or data too many columns, it is the start.

    Examples
    --------
    Two groups in three dimensions, flat in one of two of them; the third is as wide, and alike in both. A plane that
    contains it and halves the right angle between the others shows both groups alike:

    >>> rng = np.random.default_rng(0)
    >>> group = np.arange(2000) % 2
    >>> x = rng.normal(size=(2000, 3)) * np.where(group[:, None], [1, 0.1, 1], [0.1, 1, 1])
    >>> rows = moment_matched_projection(x, [Grouping(group, 0 * group)], np.eye(3)[:2], rng)
    >>> spreads = [(x[group == e] @ rows.T).std(0) for e in (0, 1)]
    >>> bool(np.abs(spreads[0] - spreads[1]).max() < 0.1)
    True
    """
    k, d = start.shape
    moments = [_moments(x, grouping) for grouping in groupings] if d <= MOST_COLUMNS else []
    if not moments or not all(len(shift) for shift, *_ in moments):
        return start
    shift, change = (np.concatenate(parts) for parts in list(zip(*moments, strict=True))[:2])  # (cells, d), (…, d, d)
    within = np.mean([w for *_, w in moments], axis=0)

    def unevenness(flat: np.ndarray) -> tuple[float, np.ndarray]:
        rows = flat.reshape(k, d)
        moved, turned = rows @ shift.T, rows @ change  # (k, cells), (cells, k, d)
        spread, size = turned @ rows.T, rows @ within @ rows.T - np.eye(k)
        value = (MEANS_COUNT * np.sum(moved**2) + np.sum(spread**2)) / len(shift) + np.sum(size**2)
        slope = (2 * MEANS_COUNT * moved @ shift + 4 * np.sum(spread @ turned, 0)) / len(shift)
        return value, (slope + 4 * size @ rows @ within).ravel()

    starts = [start, *(np.linalg.qr(rng.normal(size=(d, k))).Q.T for _ in range(N_STARTS))]
    found = [optimize.minimize(unevenness, rows.ravel(), jac=True, method="L-BFGS-B") for rows in starts]
    return min(found, key=lambda result: result.fun).x.reshape(k, d)


def _moments(x: np.ndarray, grouping: Grouping) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each group's mean and covariance less those of its stratum, and the mean covariance of all groups."""
    used, cell, stratum = grouping.cells()
    x, d = x[used], x.shape[1]
    common = np.bincount(cell, minlength=len(stratum)) > 2 * d
    parts = [x[cell == c] for c in np.flatnonzero(common)]
    if not parts:
        return np.zeros((0, d)), np.zeros((0, d, d)), np.eye(d)
    means, spreads = np.stack([p.mean(0) for p in parts]), np.stack([np.cov(p.T).reshape(d, d) for p in parts])
    alike = stratum[common][:, None] == stratum[common]  # (cells, cells)
    shares = alike / alike.sum(1, keepdims=True)
    return means - shares @ means, spreads - np.tensordot(shares, spreads, 1), spreads.mean(0)


def _differences(x: np.ndarray, cell: np.ndarray, stratum: np.ndarray) -> np.ndarray:
    """Return each group's covariance less that of its stratum, in units of its noise, side by side; (d, cells · d)."""
    counts = np.bincount(cell, minlength=len(stratum))
    order = np.argsort(cell, kind="stable")
    parts = np.split(x[order], np.cumsum(counts)[:-1])
    moments = np.stack([part.T @ part for part in parts])  # (cells, d, d)
    pooled = np.stack([moments[stratum == s].sum(0) / counts[stratum == s].sum() for s in range(stratum.max() + 1)])
    away = moments / counts[:, None, None] - pooled[stratum]
    return np.hstack(list(away * np.sqrt(counts)[:, None, None]))


def _shuffled(cell: np.ndarray, stratum: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shuffle the cells of rows within their strata."""
    own = stratum[cell]
    order, other = np.argsort(own, kind="stable"), np.lexsort([rng.random(len(cell)), own])
    result = np.empty_like(cell)
    result[order] = cell[other]
    return result


def _signed(rows: np.ndarray) -> np.ndarray:
    """Make the largest entry of each row positive: decompositions leave the sign open."""
    return rows * np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(1)])[:, None]


def _sums(rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Sum the rows of each key; (n, d) → (keys, d)."""
    total = np.zeros((keys.max() + 1, rows.shape[1]))
    np.add.at(total, keys, rows)
    return total
