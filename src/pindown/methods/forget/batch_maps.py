"""Batch-specific maps: estimate the effect of a batch on each feature and on clusters of samples, and invert it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special, stats
from sklearn.utils.extmath import randomized_svd

from pindown.methods.forget.mixture import (
    Mixture,
    fit_mixture,
    joined,
    maximised,
    number_of_components,
    selected_start,
)
from pindown.metrics.arrays import Labels, Matrix, contingency, largest_positive, mean_by_label, sum_by_label
from pindown.networks.preprocessing import spectrum

# Samples of a batch up to which its shifts and scales are shrunk, and from which they are not: what is removed of one
# feature, and not of another that is correlated with it, would show the batch
FEW, PLENTY = 50, 100
MAX_SAMPLES = 20_000  # largest number of samples that a mixture is fitted to
# Number of features up to which all are kept; and of components at most for uncorrelated features
ALL_FEATURES, MAX_DIMENSION = 30, 100
# Ratio of the largest spread to the median up to which many features count as measured in the same units
SAME_UNITS = 20.0
WEAKER = 1 / 3  # further components, as a fraction of those above noise: weak ones look like it
# Root mean square of correlations up to which features count as uncorrelated; and rank correlation of their order
# with falling spreads from which they count as principal components, whose scale is kept
UNCORRELATED, DECREASING = 0.1, 0.9
# Initialisations of a mixture; and rounds of scaling features within clusters and of refitting the clusters
N_STARTS, N_REFINEMENTS = 4, 2
# Rounds of scaling and clustering a new batch; and prior samples of one scale for all its features
N_JOINING_STEPS, SCALE_PRIOR = 3, 20.0
# Largest number of samples of the test of whether batches differ; and number of permutations
TESTED_SAMPLES, N_SHUFFLES = 2_500, 99
# Fraction of a cluster in other batches up to which it counts as one batch's own; and how many of its samples other
# batches would have if they had its share
LONE, ENOUGH = 0.02, 10
ROUNDING = 1e-10  # size of a latent, relative to all of its sample, below which it is 0
N_INVERSION_STEPS = 60  # damped steps of the fixed-point iteration that inverts a map


class Effects(NamedTuple):
    """The effect of each level of the nuisance on each feature: x = shift + scale · (signal shared by all levels)."""

    shift: Matrix  # (levels, d)
    scale: Matrix  # (levels, d)


def level_effects(x: Matrix, level: Labels, n_levels: int, strata: Labels) -> Effects:
    r"""Estimate how each level shifts and scales every feature, adjusted for the effects of a given label.

    .. math:: x = s_e (a_c + b_e + \sigma_c \varepsilon)

    with c the given label, so that differences in the composition of levels are kept. First
    :math:`\log s_e + \log \sigma_c` is fitted by least squares to the log spreads within cells (c, e), then
    :math:`a_c + b_e` to their means. The effects of small levels are shrunk according to their standard errors: shifts
    towards zero, scales towards the mean of the level over all features (Johnson, Li and Rabinovic, 2007). The result
    standardises the shared signal.

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
    cell, own = cell.reshape(-1), kinds[:, 1]
    counts, sizes = np.bincount(cell), np.bincount(level, minlength=n_levels)
    few = np.clip((PLENTY - sizes) / (PLENTY - FEW), 0, 1)[:, None]  # (levels, 1)
    design = np.hstack([np.eye(int(strata.max()) + 1)[kinds[:, 0]], np.eye(n_levels)[own]])
    squares = sum_by_label((x - mean_by_label(x, cell)[cell]) ** 2, cell)  # (cells, d)
    freedom = np.maximum(counts - 1, 0)[:, None]
    common = squares.sum(0) / max(freedom.sum(), 1)
    unit = np.where(common > 0, common, 1.0)
    ratio = squares / np.maximum(freedom, 1) / unit
    # One prior sample with the mean spread of the cell: a gene that no cell of a rare level expresses has spread zero.
    expected = np.where(freedom > 0, ratio.mean(1, keepdims=True), 1.0).clip(1e-6)
    prior = np.where(ratio < 1e-6 * expected, 1.0, few[own])
    logs = 0.5 * np.log((ratio * freedom + prior * expected) / (freedom + prior))
    half = np.maximum(freedom, 1) / 2
    logs -= 0.5 * (special.digamma(half) - np.log(half))  # the bias of the logarithm of a variance from few samples
    stretch, error = _of_levels(design, logs, np.maximum(freedom[:, 0], 0.1), n_levels)
    stretch = _shrunk(stretch, 0.5 * error[:, None], few, towards=stretch.mean(1, keepdims=True))
    even = x / np.exp(stretch)[level]
    means = mean_by_label(even, cell)
    noise = np.sqrt(sum_by_label((even - means[cell]) ** 2, cell).sum(0) / len(x))
    noise = np.where(noise > 0, noise, 1.0)
    shift, error = _of_levels(design, means / noise, counts.astype(np.float64), n_levels)
    shift = noise * _shrunk(shift, error[:, None], few, towards=0.0)
    even = even - shift[level]
    scale = even.std(0)
    scale = np.where(scale > 1e-12 * np.abs(even).max(0), scale, 1.0)
    return Effects((shift + even.mean(0)) * np.exp(stretch), scale * np.exp(stretch))


def _of_levels(design: Matrix, target: Matrix, weight: Matrix, n_levels: int) -> tuple[Matrix, Matrix]:
    """Return the effect of each level by weighted least squares, (levels, d), and its error variance for unit noise."""
    inverse = np.linalg.pinv(design * np.sqrt(weight)[:, None]) * np.sqrt(weight)  # (labels + levels, cells)
    inverse = inverse[-n_levels:]
    frequency = weight @ design[:, -n_levels:] / weight.sum()
    inverse = inverse - frequency @ inverse
    return inverse @ target, (inverse**2 / weight).sum(1)


def _shrunk(effect: Matrix, error: Matrix, few: Matrix, *, towards: Matrix | float) -> Matrix:
    """Shrink small effects (levels, d), each by at most its standard error (Efron and Morris, 1972)."""
    away = effect - towards
    true = np.maximum((away**2 - error).mean(1, keepdims=True), 0.0)
    moved = away * error / np.maximum(true + error, 1e-300)
    return effect - np.where(true < error, 1.0, few) * np.clip(moved, -np.sqrt(error), np.sqrt(error))


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
    rotated_back : bool
        Whether latents are corrected features, V z, rather than z.
    fraction : float
        Fraction of the effects to remove: 0 leaves latents of one map for all batches.
    typical : tuple of (float, float) or None
        Mean and standard deviation of the log-density of the samples that the maps were estimated from.
    """

    shift: Matrix
    scale: Matrix
    basis: Matrix
    mixture: Mixture | None = None
    rotated_back: bool = False
    fraction: float = 1.0
    typical: tuple[float, float] | None = None

    def density(self, x: Matrix, batch: Labels) -> Matrix:
        """Return the log-density of the components of samples, given their batch; (n,)."""
        p = self.scaled(x, batch)
        return -0.5 * np.square(p).sum(1) if self.mixture is None else self.mixture.log_likelihood(p, batch)

    @property
    def n_components(self) -> int:
        """Number of latents."""
        return self.basis.shape[0 if self.rotated_back else 1]

    @property
    def removes_nothing(self) -> bool:
        """Whether all batches have the same map."""
        return self.mixture is None and bool((self.shift == self.shift[:1]).all())

    def encode(self, x: Matrix, batch: Labels) -> Matrix:
        """Return the latents of samples, given the indices of their batches; (n, k)."""
        z = self._corrected(x, batch)
        if self.fraction < 1:
            z = self.fraction * z + (1 - self.fraction) * self._uncorrected(x)
        z = z @ self.basis.T if self.rotated_back else z
        rounding = np.abs(z) < ROUNDING * np.linalg.norm(z, axis=1, keepdims=True)
        return np.where(rounding, 0.0, z)  # of a constant feature, and another one in each batch

    def _corrected(self, x: Matrix, batch: Labels) -> Matrix:
        p = self.scaled(x, batch)
        return p if self.mixture is None else p - self.mixture.effects(p, batch)

    def _uncorrected(self, x: Matrix) -> Matrix:
        return np.asarray((x - self.shift.mean(0)) / np.exp(np.log(self.scale).mean(0)) @ self.basis)

    def decode(self, z: Matrix, batch: Labels) -> Matrix:
        """Return samples (n, d) from latents; components that were dropped are at their mean."""
        z = z @ self.basis if self.rotated_back else z
        full = z  # the latents if all effects were removed
        for _ in range(N_INVERSION_STEPS if self.fraction < 1 else 0):
            own = self.fraction * full + (1 - self.fraction) * self._uncorrected(self._decoded(full, batch))
            full = full + 0.5 * (z - own)
        return self._decoded(full, batch)

    def _decoded(self, z: Matrix, batch: Labels) -> Matrix:
        p = z
        if self.mixture is not None:
            for _ in range(N_INVERSION_STEPS):
                p = 0.5 * (p + z + self.mixture.effects(p, batch))
        return self.shift[batch] + self.scale[batch] * (p @ self.basis.T)

    def scaled(self, x: Matrix, batch: Labels) -> Matrix:
        """Return components of shifted and scaled features; (n, k)."""
        return ((np.asarray(x, dtype=np.float64) - self.shift[batch]) / self.scale[batch]) @ self.basis

    def without_clusters(self, x: Matrix, batch: Labels) -> BatchMaps:
        """Return maps that shift and scale features alone, estimated from these samples."""
        found = level_effects(x, batch, len(self.shift), np.zeros_like(batch))
        units = np.exp((np.log(found.scale) - np.log(self.scale))[batch].mean(0))
        return replace(self, shift=found.shift, scale=found.scale / units, mixture=None)

    def clusters(self, x: Matrix, batch: Labels) -> Labels:
        """Return the most probable cluster of each sample; (n,)."""
        if self.mixture is None:
            return np.zeros(len(x), dtype=np.int64)
        number = self.mixture.responsibilities(self.scaled(x, batch), batch).argmax(1)
        return np.unique(number, return_inverse=True)[1].reshape(-1)

    def with_batch(self, x: Matrix) -> BatchMaps:
        """Return maps with one more batch, the last, estimated from its samples (n, d); the other maps stay the same.

        Its composition may differ: clusters are matched, not means.
        """
        level = len(self.shift)
        number = np.full(len(x), level)
        scale = np.exp(np.log(self.scale).mean(0))
        maps = replace(self, shift=np.vstack([self.shift, self.shift.mean(0)]), scale=np.vstack([self.scale, scale]))
        if self.mixture is None:
            return maps
        for _ in range(N_JOINING_STEPS):
            weights = joined(self.mixture, maps.scaled(x, number)).weights[-1]
            ratio = np.log((x / maps.scale[level]).std(0).clip(1e-6) / self._spread(self.mixture, weights))
            change = len(x) / (len(x) + SCALE_PRIOR) * (ratio - np.median(ratio)) + np.median(ratio)
            scale = maps.scale[level] * np.exp(change.clip(-3, 3))
            maps = replace(maps, scale=np.vstack([self.scale, scale]))
        return replace(maps, mixture=joined(self.mixture, maps.scaled(x, number)))

    def _spread(self, mixture: Mixture, weights: Matrix) -> Matrix:
        """Return the standard deviations of scaled features for a mixture with these weights."""
        if self.basis.shape[0] > self.basis.shape[1]:
            return np.ones(len(self.basis))
        away = mixture.means - weights @ mixture.means
        covariance = away.T @ (weights[:, None] * away) + np.diag(weights @ mixture.variances)
        return np.asarray(np.sqrt(((self.basis @ covariance) * self.basis).sum(1).clip(1e-12)))

    def reordered(self, order: Labels) -> BatchMaps:
        """Return the maps with batches in another order."""
        mixture = None if self.mixture is None else self.mixture.of_batches(order)
        return replace(self, shift=self.shift[order], scale=self.scale[order], mixture=mixture)

    def __str__(self) -> str:
        if self.removes_nothing:
            return "batches do not differ by more than chance, so nothing is removed"
        if self.mixture is None or self.mixture.n_components == 1 or not self.mixture.offsets.any():
            return "features are shifted and scaled by batch"
        return f"features are shifted and scaled by batch, and so are {self.mixture.n_components} clusters of samples"


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
    x, batch, n_batches : array (n, d), array (n,), int
        Samples, the index of the batch of each, and the number of batches.
    n_components : int or None
        Number of latents. None: up to 30 features, or principal components, are all kept; of others, the components
        above noise.
    labels : array (n,) or None
        Known classes, which replace clusters; −1 where a class is unknown.

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
    n, d = x.shape
    components = are_components(x)
    keeps_scale = components or (d > MAX_DIMENSION and have_same_units(x))
    rotated_back = n_components is None and (d <= ALL_FEATURES or components)
    matters = batch_matters(x, batch, n_batches, np.random.default_rng(random_state))
    if labels is not None and not matters and (own := labels >= 0).any():  # opposite effects in two classes
        residual = x[own] - mean_by_label(x[own], labels[own])[labels[own]]
        matters = batch_matters(residual, batch[own], n_batches, np.random.default_rng(random_state))
    if matters:
        found = _in_units(level_effects(x, batch, n_batches, _strata(labels, batch)), batch, keeps_scale=keeps_scale)
    else:
        spread = np.where(x.std(0) > 0, x.std(0), 1.0)
        same = np.ones((n_batches, 1))
        found = Effects(same * x.mean(0), same * (np.ones_like(spread) if keeps_scale else spread))
    corrected = (x - found.shift[batch]) / found.scale[batch]
    basis = principal_axes(corrected, min(d, MAX_DIMENSION) if rotated_back else n_components, keeps_scale=keeps_scale)
    n_seen = round(basis.shape[1] / (1 + WEAKER)) if n_components is None and not rotated_back else None
    maps = BatchMaps(*found, basis, rotated_back=rotated_back)
    some = np.random.default_rng(random_state).permutation(n)[:MAX_SAMPLES]
    p, apart = maps.scaled(x, batch), ((found.shift - found.shift[batch].mean(0)) / found.scale) @ basis
    start, removes, n_clusters = 0 * apart, True, number_of_components(n)
    if labels is None:
        leading = slice(n_seen)
        selected = selected_start(p[:, leading], batch, apart[:, leading], matters=matters, random_state=random_state)
        removes = selected is not None
        if selected is not None:
            start, n_clusters = -apart if selected[0].any() else start, selected[1]
    if not matters and (labels is not None or not removes):
        return maps
    if labels is not None:
        n_clusters, labels = int(labels.max()) + 1, labels[some]
    x, batch, p = x[some], batch[some], p[some]
    mixture = fit_mixture(
        p,
        batch,
        start,
        n_clusters,
        removes=removes,
        labels=labels,
        n_seen=n_seen,
        seeds=range(random_state, random_state + N_STARTS),
    )
    maps = replace(maps, mixture=mixture)
    for _ in range(N_REFINEMENTS if matters and n_clusters > 1 else 0):
        maps = _refined(maps, x, batch, labels, removes=removes)
    return maps


def _strata(labels: Labels | None, batch: Labels) -> Labels:
    """Return the labels if all are known, else one stratum."""
    return np.zeros_like(batch) if labels is None or (labels < 0).any() else labels


def _in_units(found: Effects, batch: Labels, *, keeps_scale: bool) -> Effects:
    """Return effects relative to the mean scale of all samples, if features have a scale to keep."""
    units = np.exp(np.log(found.scale)[batch].mean(0)) if keeps_scale else 1.0
    return Effects(found.shift, found.scale / units)


def _refined(maps: BatchMaps, x: Matrix, batch: Labels, labels: Labels | None, *, removes: bool) -> BatchMaps:
    """Estimate shifts and scales of features again, within clusters: their proportions may differ between batches."""
    assert maps.mixture is not None
    cluster = maps.mixture.responsibilities(maps.scaled(x, batch), batch).argmax(1)
    cluster = cluster if labels is None else np.where(labels >= 0, labels, cluster)
    found = level_effects(x, batch, len(maps.shift), np.unique(cluster, return_inverse=True)[1])
    units = np.exp((np.log(found.scale) - np.log(maps.scale))[batch].mean(0))
    other = replace(maps, shift=found.shift, scale=found.scale / units)
    known = np.eye(maps.mixture.n_components)[cluster]
    p, shifts = other.scaled(x, batch), 0 * maps.mixture.shifts
    return replace(
        other, mixture=maximised(p, batch, known, shifts, removes=removes, labels=labels, n_seen=maps.mixture.n_seen)
    )


def refit_batch_maps(maps: BatchMaps, x: Matrix, batch: Labels, *, labels: Labels | None = None) -> BatchMaps:
    """Estimate the same maps from other samples, along the same components and from the same clusters."""
    if maps.removes_nothing:
        return maps
    found = level_effects(x, batch, len(maps.shift), _strata(labels, batch))
    seen = np.bincount(batch, minlength=len(maps.shift)) > 0
    units = np.exp(np.log(maps.scale[seen]).mean(0) - np.log(found.scale[seen]).mean(0))
    shift, scale = (np.where(seen[:, None], new, old) for new, old in zip(found, (maps.shift, maps.scale), strict=True))
    other = replace(maps, shift=shift, scale=np.where(seen[:, None], scale * units, scale), mixture=None)
    if maps.mixture is None:
        return other
    p = other.scaled(x, batch)
    responsibility = maps.mixture.responsibilities(p, batch)
    shifts, n_seen = maps.mixture.shifts, maps.mixture.n_seen
    return replace(other, mixture=maximised(p, batch, responsibility, shifts, labels=labels, n_seen=n_seen))


def lone_clusters(cluster: Labels, batch: Labels) -> dict[int, int]:
    """Return the batch of each cluster that occurs in one batch only, though others have samples enough to show it.

    Examples
    --------
    >>> lone_clusters(np.repeat([0, 1, 0, 2, 1], 50), np.repeat([0, 0, 1, 1, 1], 50))
    {2: 1}
    """
    table = contingency(cluster, batch)
    n, own = table.sum(1), table.argmax(1)
    expected = n * (1 - table.sum(0)[own] / len(batch))
    lone = (n - table.max(1) <= LONE * n) & (expected >= ENOUGH)
    return {int(c): int(own[c]) for c in np.flatnonzero(lone)}


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
    both, at = np.hstack([z, z**2 - (z**2).mean(0)]), np.eye(n_batches)[batch[some]]
    weights = at / np.sqrt(np.maximum(at.sum(0), 1))

    def between(order: Labels) -> float:
        return float(np.square(weights[order].T @ both).sum())

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


def have_same_units(x: Matrix) -> bool:
    """Return whether no feature dwarfs the others."""
    spread = x.std(0)
    return bool(spread.max() <= SAME_UNITS * np.median(spread[spread > 0])) if spread.any() else False


def principal_axes(y: Matrix, n_components: int | None, *, keeps_scale: bool) -> Matrix:
    """Return the leading principal components of corrected samples, (d, k); None counts those above noise."""
    n, d = y.shape
    if n_components is None:
        seen = spectrum(y)
        n_components = min(seen.n_signal, seen.n_kept)
        n_components += int(WEAKER * n_components)
        if n_components == 1 and _correlation(y) <= UNCORRELATED + 2 / np.sqrt(n):
            n_components = MAX_DIMENSION  # features without correlations are data, not noise
        elif not keeps_scale:
            return seen.directions[:, :n_components]
    k, centred = min(n_components, d), y - y.mean(0)
    if d <= max(2 * k, 500):
        basis = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :k]
    else:
        basis = randomized_svd(centred, min(k, n), random_state=0)[2].T
    return largest_positive(basis.T).T


def _correlation(x: Matrix) -> float:
    """Return the root mean square of the correlations of features."""
    some = x[:: -(-len(x) // 2_000)]
    spread = some.std(0)
    z = (some - some.mean(0)) / np.where(spread > 0, spread, 1.0)
    matrix, d = z.T @ z / len(z), z.shape[1]
    np.fill_diagonal(matrix, 0.0)
    return float(np.sqrt((matrix**2).sum() / max(d * (d - 1), 1)))
