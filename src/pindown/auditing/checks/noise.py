"""Noise of single features: how much of it X has, and how much of the latents it leaves recoverable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown import metrics
from pindown._names import printed
from pindown.auditing.checks.arrays import smooth_fits
from pindown.metrics.arrays import Labels, Matrix
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL
from pindown.networks.preprocessing import Spectrum, edge, spectrum

Encode = Callable[[NDArray[np.float64]], Matrix]
"""Maps observations (n, …) to latents (n, d)."""

NIL = 0.03  # fraction of a feature's variance below which noise does not count: imperfect latents leave as much
SHARED = 0.25  # largest fraction of the residuals that features may share: more is a latent that was left out
MAX_SAMPLES = 4_000  # samples from which the spectrum is computed: more would change little
MIN_SAMPLES, SAMPLES_PER_FEATURE = 200, 5  # from which residuals say something about noise
N_DRAWS = 4  # draws of fresh noise for every sample


@dataclass(frozen=True, eq=False)
class Noise:
    """Independent noise of the features, and the directions of X above it."""

    fraction: float  # of the variance of a feature, on average; 0 where X has too few features to show it
    spread: Matrix  # (n_features,) standard deviation, in the units of X
    spectrum: Spectrum  # of standardised features
    shape: tuple[int, ...]  # of a sample
    decided: bool  # whether noise would have shown; where it would not, it counts as signal

    @classmethod
    def of(cls, found: Spectrum, shape: tuple[int, ...]) -> Noise:
        """Return the noise in a spectrum."""
        varies = np.isfinite(found.scale)
        fraction = float(found.noise[varies].mean()) if varies.any() else 0.0
        spread = np.sqrt(found.noise) * np.where(varies, found.scale, 0.0)
        return cls(fraction, spread, found, shape, found.n_signal < int(varies.sum()))

    @property
    def is_nil(self) -> bool:
        """Whether noise is negligible."""
        return self.fraction < NIL

    def draws(self, n: int, rng: np.random.Generator) -> Iterator[Matrix]:
        """Yield fresh noise for so many samples, in the units of X; (n, …) each."""
        for _ in range(N_DRAWS):
            yield (rng.normal(size=(n, len(self.spread))) * self.spread).reshape(n, *self.shape)


def noise_of(X: ArrayLike) -> Noise:
    """Measure the independent noise of features by the trailing spectrum of X.

    Blind to noise that features share. It needs about twenty features more than there are directions of signal: with
    fewer, noise counts as signal.
    """
    rows = np.asarray(X)
    return Noise.of(spectrum(_vectors(rows[:: max(1, len(rows) // MAX_SAMPLES)])), rows.shape[1:])


def noise_left(encode: Encode, X: ArrayLike, *, random_state: int = 0) -> Noise:
    r"""Measure the independent noise of features by the spectrum of X or, if that shows none, by residuals.

    With a nonlinear mixing there is signal in all directions, and no bulk of noise in the spectrum. But if the latents
    explain the signal, a smooth regression of p features on d latents leaves :math:`1 - d/p` of the noise, and no two
    residuals correlate. So residuals are noise unless features share more than ``SHARED`` of them. With too few
    features, :math:`(p - d)^2 \le p + d` (Ledermann, 1937), d latents of a linear mixing cannot be distinguished
    from noise, and noise counts as signal.

    Examples
    --------
    Each of twelve features depends nonlinearly on one latent; a fifth of their variance is noise:

    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2_000, 1))
    >>> signal = np.sin(z * np.linspace(0.5, 1, 12) + np.arange(12))
    >>> x = signal + 0.5 * signal.std(0) * rng.normal(size=signal.shape)
    >>> round(noise_left(lambda x: z, x).fraction, 1), noise_left(lambda x: 0 * z + rng.normal(size=z.shape), x).is_nil
    (0.2, True)
    """
    found, rows = noise_of(X), np.asarray(X)
    latents = np.asarray(encode(rows), dtype=np.float64)
    varies = np.isfinite(found.spectrum.scale)
    (n, d), p = latents.shape, int(varies.sum())
    few = n < max(MIN_SAMPLES, SAMPLES_PER_FEATURE * p)  # a regression on so few leaves signal, too
    if not found.is_nil or few or (p - d) ** 2 <= p + d or d >= p:
        return found
    scaled = (_vectors(rows) - found.spectrum.mean) / found.spectrum.scale
    residuals = np.empty_like(scaled)
    for fit, held_out, _ in smooth_fits(latents, scaled, np.random.default_rng(random_state)):
        residuals[held_out] = scaled[held_out] - fit.predict(latents[held_out]).reshape(len(held_out), -1)
    residuals = residuals[:, varies]
    if residuals.var(0).mean() < NIL:
        return replace(found, decided=True)
    restored = p / (p - d)  # the latents have taken d of p directions of noise
    variances = np.linalg.eigvalsh(np.corrcoef(residuals, rowvar=False))
    if (variances - restored)[variances > restored * edge(np.ones(p), p, n)].sum() > SHARED * p:
        return found
    noise = np.zeros(len(varies))
    noise[varies] = np.minimum(residuals.var(0) * restored, 1)
    n_signal = max(d, int((found.spectrum.variances > edge(noise, p, n)).sum()))
    return Noise.of(replace(found.spectrum, noise=noise, n_signal=n_signal), found.shape)


def _vectors(rows: NDArray[np.generic]) -> Matrix:
    return rows.reshape(len(rows), -1).astype(np.float64)


NONLINEAR, MISFIT, SURE = 0.5, 0.8, 0.02  # band below a ceiling: parts of the noise and of disagreement, and a constant
ABOVE = 0.2  # band above a ceiling, as a fraction of what noise takes: residuals may exceed the noise


@dataclass(frozen=True)
class Ceiling:
    """The most that noisy latents can score against the true ones: the name of the score, and its value."""

    score: str
    value: float


@dataclass(frozen=True)
class Band:
    """Where the score of latents lies in 95 of 100 simulations or more, if the rest of the claim holds."""

    score: str  # its name in `Audit.recovery`
    low: float
    high: float
    ceiling: float  # the most that noise lets through
    noise: float  # the fraction of the variance of a feature that is its own noise

    def holds(self, value: float) -> bool:
        """Return whether a score lies in the band."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return (
            f"{self.noise:.0%} of the variance is independent noise per feature, so that the score against the true "
            f"latents, {self.score}, is between {printed(self.low)} and {printed(self.high)}"
        )


def band(ceiling: Ceiling, agreement: float, noise: float) -> Band:
    """Return the band of a score from its ceiling, the agreement of independent fits, and the fraction of noise."""
    taken, misfit = 1 - ceiling.value, max(0.0, 1 - agreement)
    low = ceiling.value - NONLINEAR * taken - MISFIT * misfit - SURE
    high = ceiling.value + ABOVE * taken + SURE / 2
    return Band(ceiling.score, max(0.0, low), min(1.0, high), ceiling.value, noise)


@dataclass(frozen=True, eq=False)
class Moved:
    """Latents (n, d) of samples, and of the same samples with fresh noise of the measured size, drawn several times."""

    latents: Matrix
    with_noise: tuple[Matrix, ...]

    @property
    def added(self) -> Matrix:
        """The covariance of what noise adds to the latents; (d, d)."""
        change = np.concatenate([latents - self.latents for latents in self.with_noise])
        return change.T @ change / len(change)


def moved_by_noise(encode: Encode, X: NDArray[np.float64], noise: Noise, rng: np.random.Generator) -> Moved:
    """Encode samples with and without fresh noise."""
    latents = encode(X)
    return Moved(latents, tuple(encode(X + extra) for extra in noise.draws(len(latents), rng)))


LINEAR, MATCHED, WITHIN = (
    "true latents by a linear map (R²)",
    "true latents matched one to one (MCC)",
    "true latents within each level, the least (R²)",
)
"""Names of scores against the true latents."""


def linear_ceiling(found: Moved) -> Ceiling:
    r"""Return :math:`1 - \mathrm{tr}(\Sigma_c^{-1} \Sigma_\epsilon) / d`: the R² of latents without noise."""
    centred = found.latents - found.latents.mean(0)
    covariance = centred.T @ centred / len(centred)
    floor = 1e-9 * max(float(np.trace(covariance)), 1e-300)
    fraction = np.linalg.solve(covariance + floor * np.eye(len(covariance)), found.added)
    return Ceiling(LINEAR, float(np.clip(1 - np.trace(fraction) / len(covariance), 0, 1)))


def matched_ceiling(found: Moved) -> Ceiling:
    """Return the mean correlation of each latent with what it would be without noise."""
    fraction = np.clip(np.diag(found.added) / np.maximum(found.latents.var(0), 1e-300), 0, 1)
    return Ceiling(MATCHED, float(np.sqrt(1 - fraction).mean()))


def ceiling_within(found: Moved, levels: Labels) -> Ceiling:
    """Return the ceiling of the score within levels of a nuisance: the least of all levels.

    A linear map predicts latents without noise with R² = 1 / (1 + r), where r is noise relative to signal, and predicts
    latents from latents with fresh noise with (1 + r) / (1 + 2r). A smooth regression on the few samples of a level
    loses some: how much shows in the second, and is subtracted from the first.
    """
    centred = found.latents.copy()
    for level in np.unique(levels):
        centred[levels == level] -= found.latents[levels == level].mean(0)
    moved = tuple(latents - found.latents + centred for latents in found.with_noise)
    ceiling = linear_ceiling(Moved(centred, moved)).value
    expected = 1 / (2 - ceiling)
    common = (np.bincount(levels) >= MIN_SAMPLES_PER_LEVEL)[levels]
    by_level = metrics.recovery_by_level(found.with_noise[0][common], found.latents[common], levels[common])
    lost = max(0.0, expected - min(by_level.values())) / max(1 - expected, 1e-9)
    return Ceiling(WITHIN, float(np.clip(ceiling - lost * (1 - ceiling), 0, 1)))
