"""What noise leaves of a claim: a band for the score that the true latents would get, from data alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pindown import metrics
from pindown._numbers import printed
from pindown.auditing.checks.noise import Encode, Matrix, Noise
from pindown.data.labels import Codes
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL

BENT, MISFIT, SURE = 0.5, 0.8, 0.02
"""How far below its ceiling a score may lie: by this share of what noise takes, by this multiple of what independent
fits disagree in, and by this much whatever these are. Chosen on seeds from 1000 on: see benchmarks/noise_bands.py."""

ABOVE = 0.2
"""How far above its ceiling a score may lie, as a share of what noise takes, and by half as much as below whatever that
is: what codes leave of X may be a little more than noise."""


@dataclass(frozen=True)
class Ceiling:
    """The most that codes with so much noise in them can tell of the latents: the name of a score, and its value."""

    score: str
    value: float


@dataclass(frozen=True)
class Band:
    """Where the score of codes against the true latents lies, if the rest of the claim holds.

    Parameters
    ----------
    score : str
        Its name, that of `Audit.recovery`.
    low, high : float
        Its ends; in 95 of 100 worlds or more the score lies between them.
    ceiling : float
        The most that noise lets through.
    noise : float
        The share of the variance of a column that is noise of its own.
    """

    score: str
    low: float
    high: float
    ceiling: float
    noise: float

    def holds(self, value: float) -> bool:
        """Say whether a score lies in the band.

        Examples
        --------
        >>> Band("MCC", 0.8, 0.9, ceiling=0.9, noise=0.3).holds(0.85)
        True
        """
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return (
            f"noise of single columns is {self.noise:.0%} of their variance, so that the score of the true latents, "
            f"{self.score}, lies between {printed(self.low)} and {printed(self.high)}"
        )


def band(ceiling: Ceiling, agreement: float, noise: float) -> Band:
    """Return the band of a score whose ceiling is known, for fits that agree so well, and noise of this share.

    Examples
    --------
    >>> found = band(Ceiling("R²", 0.9), agreement=0.98, noise=0.3)
    >>> round(found.low, 3), round(found.high, 3)
    (0.814, 0.93)
    """
    taken, misfit = 1 - ceiling.value, max(0.0, 1 - agreement)
    low = ceiling.value - BENT * taken - MISFIT * misfit - SURE
    high = ceiling.value + ABOVE * taken + SURE / 2
    return Band(ceiling.score, max(0.0, low), min(1.0, high), ceiling.value, noise)


@dataclass(frozen=True, eq=False)
class Moved:
    """Codes (n, d) of rows, and of the same rows with fresh noise of the measured size, drawn several times."""

    codes: Matrix
    with_noise: tuple[Matrix, ...]

    @property
    def added(self) -> Matrix:
        """The covariance of what noise adds to codes; (d, d)."""
        by = np.concatenate([codes - self.codes for codes in self.with_noise])
        return by.T @ by / len(by)


def moved_by_noise(encode: Encode, X: Any, noise: Noise, rng: np.random.Generator) -> Moved:
    """Encode rows with and without fresh noise."""
    codes = encode(X)
    return Moved(codes, tuple(encode(X + extra) for extra in noise.draws(len(codes), rng)))


LINEAR, MATCHED, WITHIN = (
    "latents by a linear map of the codes (R²)",
    "latents matched one to one (MCC)",
    "latents within each value, the least (R²)",
)
"""Names of scores against the truth."""


def linear_ceiling(found: Moved) -> Ceiling:
    r"""Return :math:`1 - \mathrm{tr}(\Sigma_c^{-1} \Sigma_\epsilon) / d`: R² of what codes would be without noise.

    Examples
    --------
    Half of the variance of one code of two is noise:

    >>> codes = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> noise = np.array([[0.5, 0.0], [-0.5, 0.0], [-0.5, 0.0], [0.5, 0.0]]) * 2**0.5
    >>> round(linear_ceiling(Moved(codes, (codes + noise,))).value, 6)
    0.75
    """
    centred = found.codes - found.codes.mean(0)
    covariance = centred.T @ centred / len(centred)
    floor = 1e-9 * max(float(np.trace(covariance)), 1e-300)
    share = np.linalg.solve(covariance + floor * np.eye(len(covariance)), found.added)
    return Ceiling(LINEAR, float(np.clip(1 - np.trace(share) / len(covariance), 0, 1)))


def matched_ceiling(found: Moved) -> Ceiling:
    """Return the mean correlation of each code with what it would be without noise."""
    share = np.clip(np.diag(found.added) / np.maximum(found.codes.var(0), 1e-300), 0, 1)
    return Ceiling(MATCHED, float(np.sqrt(1 - share).mean()))


def ceiling_within(found: Moved, values: Codes) -> Ceiling:
    """Return what is left within values of a nuisance, by the score that latents get there: the least of all values.

    A linear map of codes tells what they would be without noise by 1 / (1 + r), r the noise relative to the signal, and
    from codes with fresh noise it tells codes by (1 + r) / (1 + 2r). A smooth regression on the few rows of a value
    tells less: by how much shows in the second, and is taken off the first.
    """
    centred = found.codes.copy()
    for value in np.unique(values):
        centred[values == value] -= found.codes[values == value].mean(0)
    left = linear_ceiling(Moved(centred, tuple(codes - found.codes + centred for codes in found.with_noise))).value
    again = 1 / (2 - left)
    common = (np.bincount(values) >= MIN_SAMPLES_PER_LEVEL)[values]
    told = min(metrics.recovery_by_level(found.with_noise[0][common], found.codes[common], values[common]).values())
    lost = max(0.0, again - told) / max(1 - again, 1e-9)
    return Ceiling(WITHIN, float(np.clip(left - lost * (1 - left), 0, 1)))
