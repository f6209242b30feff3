"""Batch-specific maps: estimate the effect of a batch on each feature and on clusters of samples, and invert it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats
from sklearn.utils.extmath import randomized_svd

from pindown.methods.forget.mixture import (
    Mixture,
    fit_mixture,
    joined,
    mixture_from,
    number_of_components,
    refit_mixture,
    selected_start,
)
from pindown.metrics.arrays import Labels, Matrix, largest_positive, mean_by_label
from pindown.networks.preprocessing import spectrum

MIN_KURTOSIS, MAX_KURTOSIS = 1.5, 30.0
"""Range of the kurtosis, which determines the standard error of an estimated spread."""

MAX_SAMPLES = 20_000
"""Largest number of samples that a mixture is fitted to."""

ALL_COMPONENTS, MAX_DIMENSION = 30, 100
"""Number of features up to which all components are kept; and of components at most for uncorrelated features."""

UNCORRELATED, DECREASING = 0.1, 0.9
"""Root mean square of correlations up to which features count as uncorrelated; and rank correlation of their order with
falling spreads from which they count as principal components, whose scale is kept."""

N_REFINEMENTS = 2
"""Rounds of scaling features within clusters and of refitting the clusters."""

N_JOINING_STEPS, SCALE_PRIOR = 3, 20.0
"""Rounds of scaling and clustering a new batch; and prior samples of one scale for all its features."""

TESTED_SAMPLES, N_SHUFFLES = 2_500, 99
"""Largest number of samples of the test of whether batches differ; and number of permutations."""

N_INVERSION_STEPS = 60
"""Damped steps of the fixed-point iteration that inverts a map."""


class Effects(NamedTuple):
    """The effect of each level of the nuisance on each feature: x = shift + scale · (signal shared by all levels)."""

    shift: np.ndarray  # (levels, d)
    scale: np.ndarray  # (levels, d)


def level_effects(x: Matrix, level: Labels, n_levels: int, strata: Labels) -> Effects:
    r"""Estimate how each level shifts and scales every feature, adjusted for the effects of a given label.

    .. math:: x = s_e (a_c + b_e + \sigma_c \varepsilon)

    with c the given label, so that differences in the composition of levels are kept. First
    :math:`\log s_e + \log \sigma_c` is fitted by least squares to the log spreads within cells (c, e), then
    :math:`a_c + b_e` to their means. Both are shrunk according to their standard errors: shifts towards zero, scales
    towards the mean of the level over all features (as in Johnson, Li and Rabinovic, 2007). The result standardises the
    shared signal.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = np.arange(2000) % 2
    >>> x = rng.normal(size=(2000, 3)) * (1 + e[:, None]) + 5 * e[:, None]
    >>> shift, scale = level_effects(x, e, 2, 0 * e)
    >>> (shift[1] - shift[0]).round().tolist(), (scale[1] / scale[0]).round().tolist()
    ([5.0, 5.0, 5.0], [2.0, 2.0, 2.0])
    """
    kinds, cell = np.unique(np.stack([strata, level], 1), axis=0, return_inverse=True)
    cell, n_strata = cell.reshape(-1), int(strata.max()) + 1
    counts = np.bincount(cell).astype(np.float64)
    design = np.hstack([np.eye(n_strata)[kinds[:, 0]], np.eye(n_levels)[kinds[:, 1]]])  # (cells, labels + levels)
    means = _cell_means(x, cell, counts)
    around = x - means[cell]
    spread = np.sqrt(around.var(0))
    around = around / np.where(spread > 0, spread, 1.0)
    squares = _cell_means(around**2, cell, counts)
    half = np.maximum(counts - 1, 1) / 2  # of the degrees of freedom
    measured = counts > 1
    # Bias and variance of the logarithm of a variance that is estimated from few samples.
    biased, varies = special.digamma(half) - np.log(half), special.polygamma(1, half)
    kurtosis = np.clip((around**4).mean(0), MIN_KURTOSIS, MAX_KURTOSIS)
    squares = _with_prior_sample(squares * counts[:, None], 2 * half[:, None], (kurtosis - 1) / 2)
    logs = 0.5 * (np.log(squares) - biased[:, None])
    stretch, open_ = _least_squares(design[measured], logs[measured], 2 / varies[measured], n_strata)
    stretch = _shrunk(stretch, open_[:, None] * (kurtosis - 1) / 4, towards=stretch.mean(1, keepdims=True))
    stretch[~np.isin(np.arange(n_levels), kinds[measured, 1])] = 0.0
    even = x / np.exp(stretch)[level]
    shift, open_ = _least_squares(design, _cell_means(even, cell, counts), counts, n_strata)
    noise = (even - _cell_means(even, cell, counts)[cell]).var(0)
    unit = np.where(noise > 0, noise, 1.0) ** 0.5
    shift = unit * _shrunk(shift / unit, np.broadcast_to(open_[:, None], shift.shape), towards=0.0)
    even = even - shift[level]
    scale = even.std(0)
    scale = np.where(scale > 1e-12 * np.abs(even).max(0), scale, 1.0)
    return Effects((shift + even.mean(0)) * np.exp(stretch), scale * np.exp(stretch))


def _with_prior_sample(total: np.ndarray, freedom: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Return variances (cells, d) from sums of squares, plus a prior sample with the cell's mean variance.

    Otherwise a gene that no cell of a rare level expresses would have spread zero there, and an unbounded scale. With
    heavy tails it takes more samples, ``one`` (d,), to determine a spread as well as one Gaussian sample does.
    """
    level = np.maximum((total / freedom).mean(1, keepdims=True), 1e-6)
    return (total + one * level) / (freedom + one)


def _cell_means(x: np.ndarray, cell: np.ndarray, counts: np.ndarray) -> np.ndarray:
    order = np.argsort(cell, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts[:-1])]).astype(np.int64)
    return np.add.reduceat(x[order], starts, axis=0) / counts[:, None]


def _least_squares(
    design: np.ndarray, target: np.ndarray, weight: np.ndarray, n_strata: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the effect of each level, (levels, d), and its variance relative to that of one sample, (levels,).

    The weighted sum of the effects of levels is zero; the effects of labels include the mean.
    """
    root, frequency = np.sqrt(weight)[:, None], weight @ design[:, n_strata:] / weight.sum()
    inverse = np.linalg.pinv(design * root)[n_strata:]
    inverse = inverse - frequency @ inverse  # (levels, cells)
    return inverse @ (root * target), (inverse**2).sum(1)


def _shrunk(effect: np.ndarray, error: np.ndarray, *, towards: np.ndarray | float) -> np.ndarray:
    """Shrink effects (levels, d) with known error variance towards the mean of their level over features.

    No effect moves by more than its standard error (Efron and Morris, 1972). Otherwise a few large effects would be
    shrunk because most effects are small.
    """
    away = effect - towards
    true = np.maximum((away**2 - error).mean(1, keepdims=True), 0.0)
    moved = away * error / np.maximum(true + error, 1e-300)
    return effect - np.clip(moved, -np.sqrt(error), np.sqrt(error))


@dataclass(frozen=True, eq=False)
class BatchMaps:
    r"""Maps from samples of known batch to latents, and back.

    .. math:: p = V^\top\, \frac{x - b_e}{s_e}, \qquad z = p - \sum_c P(c \mid p, e)\, (b'_e + \delta_{ec})

    Attributes
    ----------
    shift, scale : array (batches, d)
        :math:`b_e` and :math:`s_e` of each feature; equal for all batches if these have no effect.
    basis : array (d, k)
        V, the leading principal components of the corrected features.
    mixture : Mixture or None
        Clusters of samples, and the effect of each batch on them; None if batches have no effect.
    """

    shift: Matrix
    scale: Matrix
    basis: Matrix
    mixture: Mixture | None = None

    @property
    def n_components(self) -> int:
        """Number of latents."""
        return self.basis.shape[1]

    @property
    def removes_nothing(self) -> bool:
        """Whether all batches have the same map."""
        return self.mixture is None and bool((self.shift == self.shift[:1]).all())

    def encode(self, x: Matrix, batch: Labels) -> Matrix:
        """Return the latents of samples, given the indices of their batches; (n, k)."""
        p = self.scaled(x, batch)
        return p if self.mixture is None else p - self.mixture.effects(p, batch)

    def decode(self, z: Matrix, batch: Labels) -> Matrix:
        """Return samples (n, d) from latents; components that were dropped are at their mean."""
        p = z
        if self.mixture is not None:
            for _ in range(N_INVERSION_STEPS):
                p = 0.5 * (p + z + self.mixture.effects(p, batch))
        return self.shift[batch] + self.scale[batch] * (p @ self.basis.T)

    def with_batch(self, x: Matrix) -> BatchMaps:
        """Return maps with one more batch, the last, estimated from its samples (n, d); the other maps stay the same.

        Its composition may differ: clusters are matched, not means.
        """
        number, level = np.full(len(x), len(self.shift)), len(self.shift)
        shift, scale = self.shift.mean(0), np.exp(np.log(self.scale).mean(0))
        maps = replace(self, shift=np.vstack([self.shift, shift]), scale=np.vstack([self.scale, scale]))
        if self.mixture is None:
            return maps
        for _ in range(N_JOINING_STEPS):
            own, offsets, weights = joined(self.mixture, maps.scaled(x, number))
            ratio = np.log((x / maps.scale[level]).std(0).clip(1e-6) / self._spread(weights))
            change = len(x) / (len(x) + SCALE_PRIOR) * (ratio - np.median(ratio)) + np.median(ratio)
            scales = maps.scale.copy()
            scales[level] *= np.exp(change.clip(-3, 3))
            maps = replace(maps, scale=scales)
        own, offsets, weights = joined(self.mixture, maps.scaled(x, number))
        mixture = replace(
            self.mixture,
            weights=np.vstack([self.mixture.weights, weights]),
            shifts=np.vstack([self.mixture.shifts, own]),
            offsets=np.concatenate([self.mixture.offsets, offsets[None]]),
        )
        return replace(maps, mixture=mixture)

    def clusters(self, x: Matrix, batch: Labels) -> Labels:
        """Return the most probable cluster of each sample; (n,)."""
        if self.mixture is None:
            return np.zeros(len(x), dtype=np.int64)
        number = self.mixture.responsibilities(self.scaled(x, batch), batch).argmax(1)
        return np.unique(number, return_inverse=True)[1].reshape(-1)

    def reordered(self, order: Labels) -> BatchMaps:
        """Return the maps with batches in another order."""
        maps = replace(self, shift=self.shift[order], scale=self.scale[order])
        if self.mixture is None:
            return maps
        found = self.mixture
        parts = {name: getattr(found, name)[order] for name in ("weights", "shifts", "offsets")}
        return replace(maps, mixture=replace(found, **parts))

    def __str__(self) -> str:
        if self.removes_nothing:
            return "batches do not differ by more than chance, so nothing is removed"
        if self.mixture is None or not self.mixture.offsets.any():
            return "features are shifted and scaled by batch"
        return f"features are shifted and scaled by batch, and so are {self.mixture.n_components} clusters of samples"

    def _spread(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard deviations of scaled features for a mixture with these weights."""
        if self.mixture is None or self.basis.shape[0] > self.basis.shape[1]:
            return np.ones(len(self.basis))
        away = self.mixture.means - weights @ self.mixture.means
        covariance = away.T @ (weights[:, None] * away) + np.diag(weights @ self.mixture.variances)
        spread: NDArray[np.float64] = np.sqrt(((self.basis @ covariance) * self.basis).sum(1).clip(1e-12))
        return spread

    def scaled(self, x: Matrix, batch: Labels) -> Matrix:
        """Return components of shifted and scaled features; (n, k)."""
        return ((np.asarray(x, dtype=np.float64) - self.shift[batch]) / self.scale[batch]) @ self.basis


def fit_batch_maps(
    x: Matrix,
    batch: Labels,
    n_batches: int,
    *,
    n_components: int | None = None,
    labels: Labels | None = None,
    random_state: int = 0,
) -> BatchMaps:
    """Estimate the effects of batches on samples; none, if the held-out likelihood does not show them.

    First each feature is shifted and scaled by batch, then a mixture shifts clusters of samples. Both steps are kept
    only if the held-out likelihood rises.

    Parameters
    ----------
    x : array (n, d)
        The samples.
    batch : array (n,)
        Index of each sample's batch.
    n_batches : int
        Number of batches.
    n_components : int or None
        Number of latents. None: all of up to 30 features, or of principal components; otherwise those above noise.
    labels : array (n,) or None
        Known classes, which replace clusters; −1 where a class is unknown.
    random_state : int
        Seed.

    Examples
    --------
    Two programmes in forty genes, which the second of two laboratories shifts and scales:

    >>> rng = np.random.default_rng(0)
    >>> lab = np.arange(1_000) % 2
    >>> z = rng.normal(size=(1_000, 2))
    >>> x = z @ rng.normal(size=(2, 40)) + rng.normal(size=(1_000, 40))
    >>> moved = np.where(lab[:, None], rng.normal(size=40) + x * np.exp(0.3 * rng.normal(size=40)), x)
    >>> maps = fit_batch_maps(moved, lab, 2)
    >>> maps.n_components, bool(np.corrcoef(maps.encode(moved, lab).T, z.T)[:2, 2:].round(1).any())
    (2, True)
    """
    weight = np.bincount(batch, minlength=n_batches).astype(np.float64)
    keeps_scale = are_components(x)
    strata = np.zeros_like(batch) if labels is None or (labels < 0).any() else labels
    found = level_effects(x, batch, n_batches, strata)
    units = np.exp(np.average(np.log(found.scale), axis=0, weights=weight))  # of the signal shared by batches
    scale = found.scale / units if keeps_scale else found.scale
    matters = batch_matters(x, batch, n_batches, np.random.default_rng(random_state))
    if labels is not None and not matters and (labels >= 0).any():  # opposite effects in two classes
        own = labels >= 0
        residual = x[own] - mean_by_label(x[own], labels[own])[labels[own]]
        matters = batch_matters(residual, batch[own], n_batches, np.random.default_rng(random_state))
    if not matters:
        spread = x.std(0)
        common = np.ones_like(spread) if keeps_scale else np.where(spread > 0, spread, 1.0)
        found = Effects(np.tile(x.mean(0), (n_batches, 1)), np.tile(common, (n_batches, 1)))
        scale = found.scale
    y = (x - found.shift[batch]) / scale[batch]
    maps = BatchMaps(found.shift, scale, components(y, n_components, keeps_scale=keeps_scale))
    p = y @ maps.basis
    apart = ((found.shift - weight @ found.shift / len(x)) / scale) @ maps.basis
    some = np.random.default_rng(random_state).permutation(len(x))[:MAX_SAMPLES]
    n, start, removes = number_of_components(len(x)), 0 * apart, True
    if labels is not None and not matters:
        return maps
    if labels is not None:
        n, labels = int(labels.max()) + 1, labels[some]
    else:
        selected = selected_start(p, batch, apart, matters=matters, random_state=random_state)
        if selected is None and not matters:
            return maps
        removes, start = selected is not None, start if selected is None else selected
    mixture = fit_mixture(p[some], batch[some], start, n, removes=removes, labels=labels, random_state=random_state)
    maps = replace(maps, mixture=mixture)
    for _ in range(N_REFINEMENTS if matters and n > 1 else 0):
        maps = _refined(maps, x[some], batch[some], labels, keeps_scale=keeps_scale, removes=removes)
    return maps


def _refined(
    maps: BatchMaps, x: Matrix, batch: Labels, labels: Labels | None, *, keeps_scale: bool, removes: bool
) -> BatchMaps:
    """Estimate shifts and scales of features again, within clusters: their proportions may differ between batches."""
    assert maps.mixture is not None
    cluster = maps.mixture.responsibilities(maps.scaled(x, batch), batch).argmax(1)
    if labels is not None:
        cluster = np.where(labels >= 0, labels, cluster)
    found = level_effects(x, batch, len(maps.shift), np.unique(cluster, return_inverse=True)[1])
    units = np.exp(
        np.average(
            np.log(found.scale) - np.log(maps.scale), axis=0, weights=np.bincount(batch, minlength=len(maps.shift))
        )
    )
    other = replace(maps, shift=found.shift, scale=found.scale / units)
    mixture = replace(maps.mixture, shifts=0 * maps.mixture.shifts, offsets=0 * maps.mixture.offsets)
    p = other.scaled(x, batch)
    known = np.eye(maps.mixture.n_components)[cluster]
    return replace(other, mixture=mixture_from(p, batch, known, mixture.shifts, removes=removes, labels=labels))


def refit_batch_maps(maps: BatchMaps, x: Matrix, batch: Labels, *, labels: Labels | None = None) -> BatchMaps:
    """Estimate the same maps from other samples, along the same components and from the same clusters."""
    if maps.removes_nothing:
        return maps
    strata = np.zeros_like(batch) if labels is None or (labels < 0).any() else labels
    found, seen = level_effects(x, batch, len(maps.shift), strata), np.bincount(batch, minlength=len(maps.shift)) > 0
    units = np.exp(np.log(maps.scale[seen]).mean(0) - np.log(found.scale[seen]).mean(0))
    other = BatchMaps(
        np.where(seen[:, None], found.shift, maps.shift),
        np.where(seen[:, None], found.scale * units, maps.scale),
        maps.basis,
    )
    if maps.mixture is None:
        return other
    return replace(other, mixture=refit_mixture(maps.mixture, other.scaled(x, batch), batch, labels=labels))


def batch_matters(x: Matrix, batch: Labels, n_batches: int, rng: np.random.Generator) -> bool:
    r"""Return whether means or spreads of features differ between batches by more than with any of 99 shuffled labels.

    The statistic is the variance between batches of the means of z and z², z the features in standard units, clipped
    at five, summed over features.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, batch = rng.normal(size=(300, 5)), np.arange(300) % 3
    >>> batch_matters(x, batch, 3, rng), batch_matters(x + 0.5 * (batch == 1)[:, None], batch, 3, rng)
    (False, True)
    """
    some = rng.permutation(len(x))[:TESTED_SAMPLES]
    spread = x[some].std(0)
    z = ((x[some] - x[some].mean(0)) / np.where(spread > 0, spread, 1.0)).clip(-5, 5)
    both = np.hstack([z, z**2 - (z**2).mean(0)])
    number = batch[some]
    count = np.maximum(np.bincount(number, minlength=n_batches), 1)[:, None]

    def between(order: Labels) -> float:
        sums = np.zeros((n_batches, both.shape[1]))
        for level in range(n_batches):
            sums[level] = both[order[number == level]].sum(0)
        return float((sums**2 / count).sum())

    found = between(np.arange(len(some)))
    return all(found > between(rng.permutation(len(some))) for _ in range(N_SHUFFLES))


def are_components(x: Matrix) -> bool:
    """Return whether features look like principal components: uncorrelated, with falling spreads.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(500, 6)) * [9, 7, 4, 2, 1, 0.5]
    >>> are_components(scores), are_components(scores / scores.std(0)), are_components(scores + scores[:, :1])
    (True, False, False)
    """
    d, spread = x.shape[1], x.std(0)
    if d < 3 or spread.min() <= 0:
        return False
    order = stats.spearmanr(np.arange(d), -spread).statistic
    return bool(order >= DECREASING and spread[0] > 2 * spread[-1] and _correlation(x) <= UNCORRELATED)


def components(y: Matrix, n_components: int | None, *, keeps_scale: bool) -> Matrix:
    """Return the leading principal components of samples without batch effects; (d, k)."""
    n, d = y.shape
    if n_components is None and d > ALL_COMPONENTS and not keeps_scale:
        seen = spectrum(y)
        n_components = min(seen.n_signal, seen.n_kept)
        if n_components > 1 or _correlation(y) > UNCORRELATED + 2 / np.sqrt(n):
            return seen.directions[:, : max(1, n_components)]
        n_components = MAX_DIMENSION  # features without correlations are data, not noise
    k = min(d, n - 1, MAX_DIMENSION) if n_components is None else min(n_components, d)
    centred = y - y.mean(0)
    if d <= max(2 * k, 500):
        basis = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :k]
    else:
        basis = randomized_svd(centred, k, random_state=0)[2].T
    basis = largest_positive(basis.T).T
    return np.pad(basis, ((0, 0), (0, (n_components or k) - k if n_components and n_components > k else 0)))


def _correlation(x: Matrix) -> float:
    """Return the root mean square of the correlations of features."""
    some = x[:: -(-len(x) // 2_000)]
    spread = some.std(0)
    z = (some - some.mean(0)) / np.where(spread > 0, spread, 1.0)
    matrix = z.T @ z / len(z)
    d = len(matrix)
    return float(np.sqrt(max(((matrix**2).sum() - (np.diag(matrix) ** 2).sum()) / max(d * (d - 1), 1), 0.0)))
