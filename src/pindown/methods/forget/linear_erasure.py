"""Linear erasure: project off the directions of the data in which the means or covariances of levels differ.

Closed forms of the theorem: a linear embedding has one mean in all levels if and only if its rows are orthogonal to the
span V of the differences of their means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import optimize
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from pindown.data.data import from_torch
from pindown.methods.forget.nuisance import assemble, read_columns
from pindown.methods.inputs import ArrayOrTensor
from pindown.metrics.arrays import Labels, Matrix, largest_positive, mean_by_label
from pindown.metrics.dependence import Grouping, complement, mean_differences
from pindown.networks.preprocessing import Preprocessing
from pindown.saving import Saves

# Number of permutations; and standard deviations above their mean from which covariances differ in a direction
N_SHUFFLES, DEVIATIONS = 20, 6.0
# Weight of a difference of means relative to one of covariances, both of whitened latents. With a smaller weight,
# latents of clusters contain directions in which means differ. With a much larger one, the covariances of groups with
# similar means are ignored.
MEANS_WEIGHT = 30.0
# Largest number of samples for means and covariances; and, for wide data, of values (samples × features)
CLOSED_FORM_SAMPLES, CLOSED_FORM_VALUES = 50_000, 20_000_000
# Random initialisations of the moment-matched projection; and number of features beyond which it is too slow
N_STARTS, MAX_FEATURES = 20, 64


class LinearErasure(Saves, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Project off the differences of the means of all levels of a nuisance: the theorem's closed form.

    Under vMF clusters :math:`E[\tilde a \mid e] = A_d(\kappa)\, v_e`, so that the differences of means span V, and the
    latents are M (x − mean), with orthonormal rows M of the complement of V. Nothing is trained.
    Other differences between levels stay.

    Attributes
    ----------
    components_ : ndarray of shape (n_features − dim V, n_features)
        The rows of M; one at least.
    mean_ : ndarray of shape (n_features,)
        The mean.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=1000)
    >>> X = rng.normal(size=(1000, 3)) + e[:, None] * [5, 0, 0]
    >>> LinearErasure().fit(X, e).components_.shape
    (2, 3)
    """

    components_: Matrix
    mean_: Matrix

    def fit(self, X: ArrayOrTensor, y: ArrayOrTensor | None = None) -> Self:
        """Estimate V from X (n_samples, n_features) and the nuisance y, labels in one column or several."""
        X = self._validated(X, reset=True)
        columns, kinds = read_columns(from_torch(y), len(X), None)
        nuisance = assemble(columns, kinds, np.zeros(len(X), dtype=np.int64))
        self.mean_ = X.mean(0, dtype=np.float64)
        found = np.zeros((0, X.shape[1]))
        for grouping in nuisance.groupings():
            rest = complement(found)
            # Every difference is projected off, significant or not: a level of 1 rejects no direction.
            found = np.vstack([found, mean_differences((X - self.mean_) @ rest.T, grouping, level=1.0) @ rest])
        self.components_ = complement(found[: X.shape[1] - 1])
        return self

    def transform(self, X: ArrayOrTensor) -> np.ndarray:
        """Project observations."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        return ((X - self.mean_) @ self.components_.T).astype(X.dtype)

    def _validated(self, X: ArrayOrTensor, *, reset: bool) -> np.ndarray:
        return validate_data(
            self, from_torch(X), reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=2 if reset else 1
        )

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Tags:
        """Say what scikit-learn may expect."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


@dataclass(frozen=True)
class Directions:
    """An orthonormal basis (d, d) in rows: first those in which groups differ most; then the rest."""

    basis: Matrix
    n_means: int  # number of directions in which means differ
    n_spreads: int  # number of further directions in which covariances differ

    @property
    def n_blind(self) -> int:
        """Number of directions in which no group was found to differ from another."""
        return len(self.basis) - self.n_means - self.n_spreads

    def keep(self, n: int) -> Matrix:
        """Return the n rows to keep: blind ones, in the order of the basis, then those that differ least."""
        differing = len(self.basis) - self.n_blind
        least = self.basis[:differing][::-1][: max(n - self.n_blind, 0)]
        return np.vstack([self.basis[differing:][:n], least])


def some_rows(rows: Labels, first: Preprocessing, rng: np.random.Generator) -> Labels:
    """Draw as many samples as means and covariances are computed from."""
    most = min(CLOSED_FORM_SAMPLES, max(2_000, CLOSED_FORM_VALUES // math.prod(first.shape_in)))
    return rows[rng.permutation(len(rows))[:most]]


def directions(
    x: Matrix, groupings: Sequence[Grouping], *, spreads: bool, size: Matrix, rng: np.random.Generator
) -> Directions:
    r"""Order the directions of data by how much groups differ in them.

    A linear embedding M x has the same mean in all groups if and only if M is orthogonal to the span V of differences
    of group means; and then the same covariance if it also is orthogonal to the ranges of differences of covariances.
    Bartlett's test chooses the dimension of V; permutations choose the number of directions for covariances.

    Blind directions are ordered by their effect in X, the largest first: row j of ``size`` (d, m) is that of a unit of
    direction j of the whitened data x (n, d).
    """
    found = np.zeros((0, x.shape[1]))
    for grouping in groupings:
        rest = complement(found)
        found = np.vstack([found, mean_differences(x @ rest.T, grouping) @ rest])
    n_means = len(found)
    for grouping in groupings if spreads else ():
        rest = complement(found)
        found = np.vstack([found, covariance_differences(x @ rest.T, grouping, rng) @ rest])
    blind = complement(found)
    u, *_ = np.linalg.svd(blind @ size, full_matrices=False)
    return Directions(np.vstack([found, u.T @ blind]), n_means, len(found) - n_means)


def covariance_differences(x: Matrix, grouping: Grouping, rng: np.random.Generator) -> Matrix:
    r"""Return an orthonormal basis, in rows, of the significant differences of group covariances; (r, d).

    If x = A (z, w) where w depends on the group, and z neither on the group nor on w, then
    :math:`\Sigma_e - \bar\Sigma = A\,\mathrm{diag}(0, D_e) A^\top`: the ranges of these differences span the columns
    of A that carry w. The rank is found one direction at a time: the largest singular value in the complement
    of the directions found before is compared with those of shuffled labels.

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
    x = x[used] - mean_by_label(x[used], cell)[cell]
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
    return largest_positive(u[:, :rank].T)


def moment_matched_projection(
    x: Matrix, groupings: Sequence[Grouping], start: Matrix, rng: np.random.Generator
) -> Matrix:
    r"""Return rows M (k, d) for which latents M x have nearly one mean and one covariance in all groups.

    .. math:: \min_M\; E_e\Bigl[ c\,\lVert M(\mu_e - \bar\mu) \rVert^2
              + \lVert M(\Sigma_e - \bar\Sigma) M^\top \rVert^2 \Bigr]
              + \lVert M \bar\Sigma M^\top - I \rVert^2

    where a bar is the mean over the groups of a stratum. The last term prevents latents from collapsing within groups.
    L-BFGS minimises it from ``start`` (k, d) and from random initialisations. If groups have too few samples for their
    covariances, or the data too many features, ``start`` is returned.

    Examples
    --------
    Two groups in three dimensions: each has a small spread along one of the first two axes. In the plane of the third
    axis and the bisector of the first two, both groups have the same covariance:

    >>> rng = np.random.default_rng(0)
    >>> group = np.arange(2000) % 2
    >>> x = rng.normal(size=(2000, 3)) * np.where(group[:, None], [1, 0.1, 1], [0.1, 1, 1])
    >>> rows = moment_matched_projection(x, [Grouping(group, 0 * group)], np.eye(3)[:2], rng)
    >>> spreads = [(x[group == e] @ rows.T).std(0) for e in (0, 1)]
    >>> bool(np.abs(spreads[0] - spreads[1]).max() < 0.1)
    True
    """
    k, d = start.shape
    moments = [_moments(x, grouping) for grouping in groupings] if d <= MAX_FEATURES else []
    if not moments or not all(len(shift) for shift, *_ in moments):
        return start
    shift, change = (np.concatenate(parts) for parts in list(zip(*moments, strict=True))[:2])  # (cells, d), (…, d, d)
    within = np.mean([w for *_, w in moments], axis=0)

    def mismatch(flat: Matrix) -> tuple[float, Matrix]:
        rows = flat.reshape(k, d)
        moved, changed = rows @ shift.T, rows @ change  # (k, cells), (cells, k, d)
        spread, size = changed @ rows.T, rows @ within @ rows.T - np.eye(k)
        value = (MEANS_WEIGHT * np.sum(moved**2) + np.sum(spread**2)) / len(shift) + np.sum(size**2)
        slope = (2 * MEANS_WEIGHT * moved @ shift + 4 * np.sum(spread @ changed, 0)) / len(shift)
        return value, (slope + 4 * size @ rows @ within).ravel()

    starts = [start, *(np.linalg.qr(rng.normal(size=(d, k))).Q.T for _ in range(N_STARTS))]
    found = [optimize.minimize(mismatch, rows.ravel(), jac=True, method="L-BFGS-B") for rows in starts]
    return np.asarray(min(found, key=lambda result: result.fun).x.reshape(k, d))


def _moments(x: Matrix, grouping: Grouping) -> tuple[Matrix, Matrix, Matrix]:
    """Return each group's mean and covariance less those of its stratum, and the mean covariance of all groups."""
    used, cell, stratum = grouping.cells()
    x, d = x[used], x.shape[1]
    common = np.bincount(cell, minlength=len(stratum)) > 2 * d
    parts = [x[cell == c] for c in np.flatnonzero(common)]
    if not parts:
        return np.zeros((0, d)), np.zeros((0, d, d)), np.eye(d)
    means, spreads = np.stack([p.mean(0) for p in parts]), np.stack([np.cov(p.T).reshape(d, d) for p in parts])
    same = stratum[common][:, None] == stratum[common]  # (cells, cells)
    weights = same / same.sum(1, keepdims=True)
    return means - weights @ means, spreads - np.tensordot(weights, spreads, 1), spreads.mean(0)


def _differences(x: Matrix, cell: Labels, stratum: Labels) -> Matrix:
    """Return each group's covariance less that of its stratum, in units of its noise, side by side; (d, cells · d)."""
    counts = np.bincount(cell, minlength=len(stratum))
    order = np.argsort(cell, kind="stable")
    parts = np.split(x[order], np.cumsum(counts)[:-1])
    moments = np.stack([part.T @ part for part in parts])  # (cells, d, d)
    pooled = np.stack([moments[stratum == s].sum(0) / counts[stratum == s].sum() for s in range(stratum.max() + 1)])
    away = moments / counts[:, None, None] - pooled[stratum]
    return np.hstack(list(away * np.sqrt(counts)[:, None, None]))


def _shuffled(cell: Labels, stratum: Labels, rng: np.random.Generator) -> Labels:
    """Shuffle the cells of samples within their strata."""
    own = stratum[cell]
    order, other = np.argsort(own, kind="stable"), np.lexsort([rng.random(len(cell)), own])
    result = np.empty_like(cell)
    result[order] = cell[other]
    return result
