"""Gradient-boosted trees whose importances the DCI score is made of: a definition that no library's release changes.

Trees of depth 3 on latents cut into bins with equally many samples, Friedman's (2001) multinomial deviance for labels
(a tree per level and stage) and squares for quantities; the importance of a latent is the decrease of the residuals'
squares by its splits, as in scikit-learn's ``GradientBoostingClassifier``. A learning rate of .3 over 33 stages goes as
far as one of .1 over 100. All trees of a stage grow at once: the sums of residuals in all bins are one product with a
sparse matrix that says which sample is in which bin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import softmax
from sklearn.metrics import r2_score

from pindown.metrics.arrays import Labels, Matrix
from pindown.metrics.disentanglement.scoring import FactorData, TrueFactor

DEPTH, STAGES, RATE, BINS = 3, 33, 0.3, 64
Bins = NDArray[np.uint8]


class Boosted(NamedTuple):
    """What a booster learned of a factor from each latent, and how well it predicts it on other samples."""

    importance: Matrix  # (d_hat,), sums to 1 unless nothing was learned
    score: float  # accuracy, or R² at least 0


def boost(fit: FactorData, test: FactorData) -> list[Boosted]:
    """Learn each factor of ``fit``, and predict those of ``test``."""
    edges = [_edges(latent) for latent in fit.z_hat.T]
    grower = _Grower(*(_binned(part.z_hat, edges) for part in (fit, test)))
    return [_boosted(grower, *pair) for pair in zip(fit.factors, test.factors, strict=True)]


def _boosted(grower: _Grower, fit: TrueFactor, test: TrueFactor) -> Boosted:
    levels, labels = np.unique(fit.labels, return_inverse=True)
    if fit.continuous:
        target = fit.values[:, None]
        start = np.full(1, fit.values.mean())
    else:
        target = (labels[:, None] == np.arange(len(levels))).astype(np.float64)  # (n, K)
        start = np.log(target.mean(axis=0))
    fitted, predicted = np.tile(start, (len(target), 1)), np.tile(start, (len(test.values), 1))
    importance = np.zeros(grower.n_latents)
    newton = max((len(levels) - 1) / len(levels), 0.5)  # of the multinomial's step
    for _ in range(STAGES):
        if fit.continuous:
            importance += grower.grow(target - fitted, np.ones_like(target), fitted, predicted)
        else:
            p = softmax(fitted, axis=1)
            importance += grower.grow(target - p, p * (1 - p) / newton, fitted, predicted)
    if fit.continuous:
        found = max(0.0, float(r2_score(test.values, predicted[:, 0])))
    else:
        found = float(np.mean(levels[predicted.argmax(axis=1)] == test.labels))
    return Boosted(importance / (importance.sum() or 1.0), found)


class _Grower:
    """Grows trees, one per column of residuals, on samples that are in bins."""

    def __init__(self, bins: Bins, others: Bins) -> None:
        n, self.n_latents = bins.shape
        self.bins, self.others = np.ascontiguousarray(bins.T), np.ascontiguousarray(others.T)  # (d_hat, n)
        column = (self.bins + BINS * np.arange(self.n_latents)[:, None]).ravel()
        sample = np.tile(np.arange(n), self.n_latents)
        self.members = csr_matrix((np.ones(column.size), (column, sample)), (BINS * self.n_latents, n))
        self.counts = self.members @ np.ones((n, 1))

    def grow(self, residual: Matrix, curvature: Matrix, fitted: Matrix, predicted: Matrix) -> Matrix:
        """Grow a tree for each column, add its predictions in place, and return the contribution of each latent."""
        n, trees = residual.shape
        node, other = np.zeros((trees, n), np.uint8), np.zeros((trees, self.others.shape[1]), np.uint8)
        gains = np.zeros(self.n_latents)
        sums, counts = (self.members @ residual)[:, None], self.counts.repeat(trees, axis=1)[:, None]
        for depth in range(DEPTH):  # sums and counts are (bins, nodes, trees), bins of one latent after another's
            gain, cut, brought = _best(sums, counts, self.n_latents)  # (nodes, trees), the same, (d_hat,)
            gains += brought
            latent, last = np.divmod(cut, BINS)
            last = np.where(gain > 0, last, BINS)  # a node that no split improves sends all samples left
            node, other = _descend(node, self.bins, latent, last), _descend(other, self.others, latent, last)
            if depth < DEPTH - 1:
                left = [(node == 2 * parent).T.astype(np.float64) for parent in range(2**depth)]
                sums = _children(sums, [self.members @ (mask * residual) for mask in left])
                counts = _children(counts, [self.members @ mask for mask in left])
        leaf = node.T + 2**DEPTH * np.arange(trees)
        total, weight = (np.bincount(leaf.ravel(), a.ravel(), trees * 2**DEPTH) for a in (residual, curvature))
        value = RATE * np.divide(total, weight, out=np.zeros_like(total), where=weight > 1e-12)
        fitted += value[leaf]
        predicted += value[other.T + 2**DEPTH * np.arange(trees)]
        return gains / n


def _descend(node: Bins, bins: Bins, latent: Labels, last: Labels) -> Bins:
    """Return the child in which each sample of a node is; (trees, n)."""
    trees, n = node.shape
    at = node, np.arange(trees)[:, None]
    return 2 * node + (bins[latent[at], np.arange(n)] > last[at])


def _best(sums: Matrix, counts: Matrix, n_latents: int) -> tuple[Matrix, Labels, Matrix]:
    """Return the largest decrease of squares by one split of each node, which it is, and what it adds to each latent.

    A split is latent · BINS + last bin to the left. Latents that would do equally well share the gain, so that
    duplicates count the same, whichever comes first.
    """
    shape = (n_latents, BINS, *sums.shape[1:])
    gain, n_left = (np.cumsum(a.reshape(shape), axis=1) for a in (sums, counts))
    n = np.maximum(n_left[:1, -1:], 1)
    gain -= n_left * (gain[:1, -1:] / n)
    gain *= gain
    both = n_left * (n - n_left) / n
    gain /= np.where(both > 0.25, both, np.inf)
    of_latents = gain.max(axis=1)
    most = of_latents.max(axis=0)
    equal = of_latents >= most * (1 - 1e-9)
    brought = (equal * (most / equal.sum(axis=0))).sum(axis=(1, 2))
    return most, gain.reshape(n_latents * BINS, *most.shape).argmax(axis=0), brought


def _children(parents: Matrix, left: list[Matrix]) -> Matrix:
    """Return histograms of both children of each node: the right one is what the left one leaves."""
    both = [half for parent, one in enumerate(left) for half in (one, parents[:, parent] - one)]
    return np.stack(both, axis=1)


def _edges(latent: Matrix) -> Matrix:
    """Return where a latent is cut: in the widest gap of each of BINS parts with equally many distinct values."""
    values = np.unique(latent)
    gaps, middles = np.diff(values), (values[1:] + values[:-1]) / 2
    if len(gaps) < BINS:
        return middles
    starts = np.arange(1, BINS - 1) * len(gaps) // (BINS - 1)
    parts = zip(np.split(gaps, starts), np.split(middles, starts), strict=True)
    return np.array([middle[gap.argmax()] for gap, middle in parts])


def _binned(z_hat: Matrix, edges: list[Matrix]) -> Bins:
    columns = [np.searchsorted(edge, latent, side="right") for edge, latent in zip(edges, z_hat.T, strict=True)]
    return np.stack(columns, axis=1).astype(np.uint8)
