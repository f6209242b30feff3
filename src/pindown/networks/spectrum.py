"""How many directions of a table are more than noise, whatever the units of its features: from its own spectrum.

Features are standardised, so that no unit matters. Independent noise of the features then shows as a bulk of trailing
directions, none of which stands out; random matrix theory says how far such a bulk reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from sklearn.utils.extmath import randomized_svd

from pindown._names import counted
from pindown.metrics.arrays import Mask, Matrix, largest_positive

Vector = NDArray[np.float64]

EXACT, MOST = 4_096, 1_000
"""Samples or features, whichever are fewer, up to which all directions are computed; and leading ones beyond that."""

NOTHING = 1e-10
"""Variance, relative to the largest, up to which a direction of standardised features is only rounding."""

CONSTANT = 1e-12
"""Spread, relative to the mean, up to which numbers are one number and its rounding."""

SAMPLES_PER_DIRECTION = 5
"""Samples that a direction needs at least: with fewer, whitening multiplies new samples several times over."""

SAMPLES_PER_FEATURE = 100
"""Samples per feature from which all directions are kept: training separates noise from what is faint, and from latents
that are independent of each other and vary alike, which to a spectrum look the same."""

LEAST_BULK = 20
"""Directions that a bulk of noise has at least, and it has at least half of all: fewer show no bulk."""

DECAY = 0.3
"""How far the mean logarithm of a bulk's variances may be below that of noise: beyond this they keep falling, as those
of data without noise do. With noise it was .01 to .2, without .45 to 5."""

DEVIATIONS = 4.0
"""By how many standard deviations of its edge a direction must stand out of a bulk of noise."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Directions of standardised features, the most variable first, and how many of them are more than noise.

    Attributes
    ----------
    mean, scale : array of shape (n_features,)
        Of each feature; the scale of one that never varies is infinite, so that it contributes nothing.
    directions : array of shape (n_features, k)
        Orthonormal, one in each column, with the largest entry positive.
    variances : array of shape (k,)
        Of standardised features along them.
    n_samples : int
        What they were computed from.
    n_signal : int
        Directions that stand out of a bulk of noise; all, where there is no such bulk.
    n_kept : int
        Directions that a fit should use: more than `n_signal` where samples are plenty, never more than they support.
    noise : array of shape (n_features,)
        Estimated variance of the noise of each standardised feature; zeros where no bulk was seen.
    account : str
        One sentence: what is kept, and why.
    """

    mean: Vector
    scale: Vector
    directions: Matrix
    variances: Vector
    n_samples: int
    n_signal: int
    n_kept: int
    noise: Vector
    account: str

    def coordinates(self, X: ArrayLike, n_components: int | None = None) -> Matrix:
        """Return samples along the directions that are kept, or along so many leading ones, in standardised units."""
        kept = self.directions[:, : self.n_kept if n_components is None else n_components]
        return ((np.asarray(X, dtype=np.float64) - self.mean) / self.scale) @ kept


def spectrum(X: ArrayLike, *, random_state: int = 0) -> Spectrum:
    r"""Return the directions of standardised features, and how many are more than noise.

    Directions are tested in turn, as in deterministic parallel analysis (Dobriban and Owen, 2019): if what k directions
    leave is noise of variance :math:`\psi_j` in feature j, its largest variance is about the edge of the
    Marchenko–Pastur law for these variances. The signal ends at the first k whose next direction does not reach beyond
    it, if at least twenty directions, and half of all, are left, and their variances do not keep falling: the logarithm
    of their determinant is that of noise. It is blind to noise that features share, and takes for noise what features
    do not share: independent latents that vary alike, one per feature.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Numbers, finite.
    random_state : int
        Where the search begins if there are more than 4,096 samples and features.

    Examples
    --------
    Three latents behind sixty noisy features, in any units:

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 60)) + rng.normal(size=(300, 60))
    >>> spectrum(x).n_kept, spectrum(x * np.logspace(-3, 3, 60)).n_kept
    (3, 3)
    >>> print(spectrum(x).account)
    3 of 60 directions of the standardised features are kept: the other 57 vary no more than independent noise would.

    Without noise none is removed:

    >>> spectrum(rng.normal(size=(300, 3)) @ rng.normal(size=(3, 60))).n_kept
    3
    """
    x = np.asarray(X, dtype=np.float64)
    n, d = x.shape
    mean = x.mean(0)
    scale = usable_scale(x.std(0), mean)
    x = (x - mean) / scale
    if d <= min(n, EXACT):
        return spectrum_of_correlation(mean, scale, x.T @ x / n, n)
    if n <= EXACT:
        variances, left = np.linalg.eigh(x @ x.T / n)
        variances, left = variances[::-1][: n - 1], left[:, ::-1][:, : n - 1]
        found = variances > NOTHING * max(variances[:1], default=0.0)
        directions = x.T @ (left[:, found] / np.sqrt(n * variances[found]))
        return spectrum_of_directions(mean, scale, directions, variances[found], n)
    _, sizes, directions = randomized_svd(x, n_components=MOST, random_state=random_state)
    return spectrum_of_directions(mean, scale, directions.T, sizes**2 / n, n)


def usable_scale(spread: Vector, mean: Vector) -> Vector:
    """Return what to divide features by: infinity where one never varies, so that it contributes nothing.

    Examples
    --------
    >>> usable_scale(np.array([2.0, 0.0]), np.array([1.0, 7.0])).tolist()
    [2.0, inf]
    """
    return np.where(spread > CONSTANT * np.abs(mean), spread, np.inf)


def spectrum_of_correlation(mean: Vector, scale: Vector, correlation: Matrix, n_samples: int) -> Spectrum:
    """Return the spectrum of samples whose correlations of features are known, such as those of a stream."""
    variances, directions = (part[..., ::-1] for part in np.linalg.eigh(correlation))
    found = variances > NOTHING * max(variances[:1], default=0.0)
    found[max(n_samples - 1, 1) :] = False
    return spectrum_of_directions(mean, scale, directions[:, found], variances[found], n_samples)


def spectrum_of_directions(
    mean: Vector, scale: Vector, directions: Matrix, variances: Vector, n_samples: int
) -> Spectrum:
    """Return the spectrum of samples whose leading directions of standardised features are known, or all."""
    directions = largest_positive(directions.T).T
    varies = np.isfinite(scale)
    n_features = int(varies.sum())
    n_beyond, noise = _beyond_noise(directions, variances, varies, n_samples)
    n_all, most = len(variances), min(n_samples - 1, n_features)
    seen = n_beyond > 0 and most - n_beyond >= max(LEAST_BULK, n_beyond)
    seen = seen and not (n_all == most and _falls(variances[n_beyond:], noise[varies], n_samples))
    n_signal = n_beyond if seen else n_all
    plenty = n_samples >= SAMPLES_PER_FEATURE * n_features
    n_kept = min(n_all if plenty else n_signal, max(1, n_samples // SAMPLES_PER_DIRECTION))
    of = f"of {counted(n_all, 'direction')} of the standardised features {'is' if n_kept == 1 else 'are'} kept"
    if n_kept == n_all:
        why = f": there are {n_samples // n_features} samples per feature" if seen else ""
        account = f"all {of.removeprefix('of ')}{why}."
    elif seen and n_kept == n_beyond:
        account = f"{n_kept} {of}: the other {n_all - n_kept} vary no more than independent noise would."
    else:
        doubt = "" if n_beyond else ", and none stands out of what independent noise would be"
        account = f"{n_kept} {of}: {n_samples} samples support no more{doubt}."
    noise = noise if seen and n_beyond < n_all else np.zeros(len(scale))
    return Spectrum(mean, scale, directions, variances, n_samples, n_signal, n_kept, noise, account)


def _beyond_noise(directions: Matrix, variances: Vector, varies: Mask, n: int) -> tuple[int, Vector]:
    """Return how many directions stand out of the independent noise of features, and the variance of that noise."""
    left = varies.astype(np.float64)  # variance of each feature that the directions so far do not explain
    free = np.ones(len(left))  # fraction of each feature's axis that is not in their span
    n_features = int(varies.sum())
    noise = left
    for k, variance in enumerate(variances):
        noise = np.where(varies, left.clip(0) / free.clip(1e-9) / (1 - k / n), 0.0)
        if variance <= edge(noise[varies], n_features - k, n):
            return k, noise
        left = left - variance * directions[:, k] ** 2
        free = free - directions[:, k] ** 2
    return len(variances), noise


def _falls(bulk: Vector, noise: Vector, n: int) -> bool:
    r"""Return whether the variances of a bulk fall further than those of noise with such variances in its features.

    With γ features per sample the mean logarithm of the variances of noise is :math:`\overline{\log \psi} - 1 -
    \tfrac{1 - \gamma}{\gamma} \log(1 - \gamma)` for γ < 1 (Bai and Silverstein, 2004); with more features than samples
    the two change places, and each sample sees the mean of all features.
    """
    n_features, n_samples = len(noise), n - 1
    n_features, n_samples = n_features - (k := min(n_features, n_samples) - len(bulk)), n_samples - k
    many = n_features > n_samples
    ratio = min(n_features, n_samples) / max(n_features, n_samples)
    own = np.log(noise.mean() * n_features / n_samples) if many else np.log(noise.clip(1e-300)).mean()
    expected = own - 1 - ((1 - ratio) / ratio * np.log1p(-ratio) if ratio < 1 else 0.0)
    return bool(np.log(bulk).mean() < expected - DECAY)


def edge(noise: Vector, n_features: int, n_samples: int) -> float:
    r"""Return how far the largest variance of pure noise reaches, with variances ψ in its features.

    With γ features per sample, :math:`\min_{0 < t < 1} \psi_{\max} / t + \gamma\,\overline{\psi / (1 - t \psi /
    \psi_{\max})}` (Silverstein and Choi, 1995), and some standard deviations of the Tracy–Widom law beyond.

    Examples
    --------
    For equal variances it is (1 + √γ)², here (1 + 1/2)² = 2.25, and a little more for finite samples:

    >>> round(edge(np.ones(250_000), 250_000, 1_000_000), 2)
    2.25
    """
    largest = float(noise.max(initial=0.0))
    if largest <= 0 or n_features < 1:
        return 0.0
    relative, ratio = noise / largest, n_features / n_samples
    found = minimize_scalar(
        lambda t: 1 / t + ratio * np.mean(relative / (1 - t * relative)), bounds=(1e-6, 1 - 1e-6), method="bounded"
    )
    across = n_samples**-0.5 + n_features**-0.5
    deviation = across ** (1 / 3) / (n_samples**0.5 + n_features**0.5)
    return float(largest * found.fun * (1 + DEVIATIONS * deviation))
