"""A mixture model of batches: components are shared, their weights differ between batches, batch effects are removed.

The weights explain differences in composition, which are kept. A batch's effect on all samples, or on those of one
component, is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import trim_mean
from sklearn.cluster import KMeans

from pindown.metrics.arrays import Labels, Matrix

Vector = NDArray[np.float64]
Array3 = NDArray[np.float64]

SAMPLES_PER_COMPONENT, MAX_COMPONENTS = 50, 20  # samples per component, and largest number of components
COMPOSITION = 0.3  # number of prior samples of the common composition in each batch, as a fraction of its samples
# Range of the number of prior samples (of no shift) of a component's own shift in a batch; estimated within it
MIN_PRIOR, MAX_PRIOR = 10.0, 1e4
SHIFT_PRIOR = 3.0  # number of prior samples (of no shift, with the total variance) of a batch's shift
VARIANCE_PRIOR = 20.0  # number of prior samples of the pooled variance in each component
N_ITER, TOLERANCE = 30, 1e-3  # largest number of EM steps, and the gain in mean log-likelihood below which they stop
ERRORS = 2.0  # standard errors by which a batch effect must raise the held-out log-likelihood to be removed
# Fraction of the held-out samples that is trimmed at each end, so that outliers do not decide the model selection
TRIMMED = 0.05
SELECTION_SAMPLES = 2_500  # largest number of samples for model selection


@dataclass(frozen=True, eq=False)
class Mixture:
    r"""Samples x of batch e and component c: :math:`x \sim N(\mu_c + b_e + \delta_{ec}, \mathrm{diag}\, S_c)`.

    Attributes
    ----------
    weights : array (batches, components)
        Composition of each batch.
    means, variances : array (components, d)
        :math:`\mu_c` and :math:`S_c`, shared by all batches.
    shifts : array (batches, d)
        :math:`b_e`, with mean zero over samples.
    offsets : array (batches, components, d)
        :math:`\delta_{ec}`, shrunk towards zero: zero for a component that occurs in one batch only.
    n_seen : int or None
        Number of leading axes that decide the component of a sample; None: all. The others are mostly noise.
    """

    weights: Matrix
    means: Matrix
    variances: Matrix
    shifts: Matrix
    offsets: Array3
    n_seen: int | None = None

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.means)

    def of_batches(self, order: Labels) -> Mixture:
        """Return the mixture with batches in another order."""
        weights, shifts, offsets = self.weights[order], self.shifts[order], self.offsets[order]
        return replace(self, weights=weights, shifts=shifts, offsets=offsets)

    def log_joint(self, x: Matrix, batch: Labels) -> Matrix:
        """Return the log-density of each sample together with each component; (n, components)."""
        x, variances = x[:, : self.n_seen], self.variances[:, : self.n_seen]
        precision, result = 1 / variances, np.empty((len(x), self.n_components))
        constant = -0.5 * np.log(2 * np.pi * variances).sum(1)
        for level in np.unique(batch):
            own = batch == level
            centres = (self.means + self.shifts[level] + self.offsets[level])[:, : self.n_seen]
            distance = x[own] ** 2 @ precision.T - 2 * x[own] @ (centres * precision).T
            distance += (centres**2 * precision).sum(1)
            result[own] = constant - 0.5 * distance + np.log(self.weights[level] + 1e-300)
        return result

    def log_likelihood(self, x: Matrix, batch: Labels) -> Vector:
        """Return the log-density of each sample, given its batch; (n,)."""
        density: Vector = logsumexp(self.log_joint(x, batch), axis=1)
        return density

    def responsibilities(self, x: Matrix, batch: Labels) -> Matrix:
        """Return the probability of each component; (n, components)."""
        joint = self.log_joint(x, batch)
        joint = np.exp(joint - joint.max(1, keepdims=True))
        return joint / joint.sum(1, keepdims=True)

    def effects(self, x: Matrix, batch: Labels) -> Matrix:
        r"""Return the batch effect of each sample, :math:`b_e + E[\delta_{ec} \mid x, e]`; (n, d)."""
        responsibility, result = self.responsibilities(x, batch), self.shifts[batch]
        for level in np.unique(batch):
            own = batch == level
            result[own] += responsibility[own] @ self.offsets[level]
        return result


def fit_mixture(
    x: Matrix,
    batch: Labels,
    start: Matrix,
    n_components: int,
    *,
    removes: bool = True,
    labels: Labels | None = None,
    n_seen: int | None = None,
    seeds: Sequence[int] = (0,),
) -> Mixture:
    """Fit a mixture by expectation-maximisation, initialised by k-means; of several seeds, keep the likeliest.

    Components should have about diagonal covariances. ``start`` (batches, d) are initial shifts of batches; without
    ``removes`` batches differ in composition only. ``labels`` (n,) are known components, −1 where one is unknown.

    Examples
    --------
    Two clusters, in proportions 4 : 1 and 1 : 4, and a second batch that is shifted. The mixture estimates the shift,
    although the composition moves the means of batches by 2.4 more:

    >>> rng = np.random.default_rng(0)
    >>> batch = np.arange(1_000) % 2
    >>> cluster = rng.random(1_000) < np.where(batch, 0.8, 0.2)
    >>> x = rng.normal(size=(1_000, 2)) + 4 * cluster[:, None] + np.outer(batch, [0.0, 3.0])
    >>> found = fit_mixture(x, batch, np.zeros((2, 2)), 2)
    >>> (found.shifts[1] - found.shifts[0]).round(0) + 0.0
    array([0., 3.])
    """
    even = (x - start[batch])[:, :n_seen]
    if labels is not None and (labels >= 0).any():
        number = _nearest_class(even, labels, n_components)
        known = np.eye(n_components)[number]
        return maximised(x, batch, known, start, removes=removes, labels=labels, n_seen=n_seen)
    starts = [KMeans(n_components, n_init=1, random_state=seed % 2**32).fit_predict(even) for seed in seeds]
    each = np.eye(n_components)
    found = [maximised(x, batch, each[number], start, removes=removes, n_seen=n_seen) for number in starts]
    return max(found, key=lambda each: each.log_likelihood(x, batch).mean())


def maximised(
    x: Matrix,
    batch: Labels,
    responsibility: Matrix,
    shift: Matrix,
    *,
    removes: bool = True,
    labels: Labels | None = None,
    n_seen: int | None = None,
) -> Mixture:
    """Alternate the M and E steps from responsibilities; samples with a label (not −1) keep it as their component."""
    known = np.zeros(len(x), dtype=bool) if labels is None else labels >= 0
    fixed = None if labels is None else np.eye(responsibility.shape[1])[labels[known]]
    size, total = np.bincount(batch, minlength=len(shift)).astype(np.float64), x.var(0).clip(1e-300)
    prior, found, last = np.full(x.shape[1], MAX_PRIOR), None, -np.inf
    for _ in range(N_ITER):
        if fixed is not None:
            responsibility[known] = fixed
        n, first, second = _moments(x, batch, responsibility, len(shift))
        mean = first / np.maximum(n, 1e-9)[:, :, None]
        within = second - n[:, :, None] * mean**2
        offsets, shift = np.zeros_like(mean), shift if removes else np.zeros_like(shift)
        if removes:
            pooled = np.broadcast_to(within.sum((0, 1)) / len(x), mean.shape[1:])
            variances = pooled if found is None else found.variances
            shift, offsets, prior = _shifted(n, mean, shift, np.maximum(variances, 1e-9 * total), prior, total)
        own = mean - shift[:, None] - offsets
        means = (n[:, :, None] * own).sum(0) / np.maximum(n.sum(0), 1e-9)[:, None]
        missed = (within + n[:, :, None] * (own - means) ** 2).clip(0).sum(0)
        pooled = np.maximum(missed.sum(0) / len(x), 1e-9 * total)
        variances = (missed + VARIANCE_PRIOR * pooled) / (n.sum(0) + VARIANCE_PRIOR)[:, None]
        common = (n.sum(0) + 1e-2) / (n.sum() + 1e-2 * n.shape[1])
        found = Mixture(_composition(n, size, common), means, variances, shift, offsets, n_seen)
        joint = found.log_joint(x, batch)
        density = logsumexp(joint, axis=1)
        responsibility = np.exp(joint - density[:, None])
        if density.mean() - last < TOLERANCE:
            break
        last = density.mean()
    assert found is not None
    middle = size @ found.shifts / len(x)
    return replace(found, shifts=found.shifts - middle, means=found.means + middle)


def _composition(n: Matrix, size: Vector, common: Vector) -> Matrix:
    """Return the weights of components in each batch, shrunk towards the common composition."""
    return np.asarray((n + (COMPOSITION * size[:, None] + 1e-9) * common) / ((1 + COMPOSITION) * size + 1e-9)[:, None])


def joined(found: Mixture, x: Matrix) -> Mixture:
    """Return the mixture with a new batch, the last: its shift, offsets and weights are estimated, nothing else."""
    common, batch, candidates = found.weights.mean(0), np.zeros(len(x), dtype=np.int64), []
    start, offsets = x.mean(0) - common @ found.means, np.zeros((1, *found.means.shape))
    for shift in (start, 0 * start):
        one = replace(found, weights=common[None], shifts=shift[None], offsets=offsets)
        for _ in range(N_ITER):
            r = one.responsibilities(x, batch)
            n = r.sum(0)
            away = r.T @ x / np.maximum(n, 1e-9)[:, None] - found.means
            weight = (MIN_PRIOR * n / (n + MIN_PRIOR))[:, None] / found.variances
            shift = (weight * away).sum(0) / np.maximum(weight.sum(0), 1e-12)
            offset = (n / (n + 3 * MIN_PRIOR))[:, None] * (away - shift)
            weights = _composition(n[None], np.array([float(len(x))]), common)
            one = replace(found, weights=weights, shifts=shift[None], offsets=offset[None])
        candidates.append((one.log_likelihood(x, batch).mean(), one))
    best = max(candidates, key=lambda each: each[0])[1]
    weights, shifts = np.vstack([found.weights, best.weights]), np.vstack([found.shifts, best.shifts])
    return replace(found, weights=weights, shifts=shifts, offsets=np.concatenate([found.offsets, best.offsets]))


def selected_start(
    x: Matrix, batch: Labels, apart: Matrix, *, matters: bool, random_state: int = 0
) -> tuple[Matrix, int] | None:
    """Return the initial shifts and the number of components; None if batches shift no clusters.

    The held-out likelihood of a fifth of the samples compares mixtures in which batches differ in composition only, and
    mixtures with shifts from two initialisations. ``apart`` are the shifts (batches, d) of the batches before they were
    centred. If features are known to differ between batches (``matters``), shifts of clusters are removed unless the
    likelihood falls by two standard errors; otherwise only if it rises by as much. There is one component if more
    do not raise the likelihood.
    """
    rng = np.random.default_rng(random_state)
    rows = rng.permutation(len(x))[:SELECTION_SAMPLES]
    held, used = rows[: len(rows) // 5], rows[len(rows) // 5 :]
    most = number_of_components(len(x))

    def score(start: Matrix, n: int, *, removes: bool = True) -> Vector:
        found = fit_mixture(x[used], batch[used], start, min(n, len(used)), removes=removes, seeds=(random_state,))
        return found.log_likelihood(x[held], batch[held])

    start, few = 0 * apart, -(-most // 4)  # with many components most shifts are equally likely
    if apart.any() and few > 1 and _clearly(score(-apart, few) - score(start, few), ERRORS):
        start = -apart
    many = score(start, most)
    if not _clearly(many - score(0 * apart, most, removes=False), -ERRORS if matters else ERRORS):
        return None
    return start, most if _clearly(many - score(start, 1), 0) else 1


def _clearly(difference: Vector, errors: float) -> bool:
    """Return whether the mean difference exceeds ``errors`` standard errors."""
    return bool(trim_mean(difference, TRIMMED) > errors * difference.std() / np.sqrt(len(difference)))


def number_of_components(n_samples: int) -> int:
    """Return the number of components for a number of samples.

    Examples
    --------
    >>> number_of_components(60), number_of_components(500), number_of_components(5_000)
    (1, 10, 20)
    """
    return min(max(n_samples // SAMPLES_PER_COMPONENT, 1), MAX_COMPONENTS)


def _nearest_class(x: Matrix, labels: Labels, n: int) -> Labels:
    """Return the class of each sample, or the one with the nearest mean."""
    known = labels >= 0
    centres = np.stack([x[labels == c].mean(0) if (labels == c).any() else x.mean(0) for c in range(n)])
    unit = np.sqrt((x[known] - centres[labels[known]]).var(0).clip(1e-12 * max(x.var(0).max(), 1e-300)))
    distance = -2 * (x / unit) @ (centres / unit).T + ((centres / unit) ** 2).sum(1)
    return np.where(known, labels, distance.argmin(1))


def _moments(x: Matrix, batch: Labels, responsibility: Matrix, n_batches: int) -> tuple[Matrix, Array3, Array3]:
    """Return the sums of 1, x and x² over the samples of each batch and component."""
    n = np.zeros((n_batches, responsibility.shape[1]))
    first = np.zeros((*n.shape, x.shape[1]))
    second = np.zeros_like(first)
    for level in np.unique(batch):
        own = batch == level
        r, rows = responsibility[own], x[own]
        n[level], first[level], second[level] = r.sum(0), r.T @ rows, r.T @ rows**2
    return n, first, second


def _shifted(
    n: Matrix, mean: Array3, shift: Matrix, variances: Matrix, prior: Vector, total: Vector
) -> tuple[Matrix, Array3, Vector]:
    """Return shifts of batches, offsets of components, of variance S (1/n + 1/prior), and this prior by moments."""
    count = n[:, :, None]
    for _ in range(5):
        weight = count * prior / (count + prior)  # (batches, components, d)
        centre = (weight * (mean - shift[:, None])).sum(0) / np.maximum(weight.sum(0), 1e-12)
        scaled = weight / variances
        shift = (scaled * (mean - centre)).sum(1) / (scaled.sum(1) + SHIFT_PRIOR / total)
        away = mean - centre - shift[:, None]
        shared = ((n > 1).sum(0) > 1)[None, :, None] & (n > 1)[:, :, None]
        excess = np.where(shared, weight * (away**2 / variances - 1 / np.maximum(count, 1)), 0.0).sum((0, 1))
        freedom = len(n) / max(len(n) - 1, 1)
        spread = freedom * excess / np.maximum(np.where(shared, weight, 0.0).sum((0, 1)), 1e-12)
        prior = np.clip(1 / np.maximum(spread, 1e-12), MIN_PRIOR, MAX_PRIOR)
    return shift, np.where(shared, count / (count + prior), 0.0) * away, prior
