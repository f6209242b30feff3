"""Noise of single features: how much of it X has, and how much of the latents it leaves recoverable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown import metrics
from pindown._numbers import printed
from pindown.auditing.checks.arrays import smooth_fits
from pindown.data.labels import Codes
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL
from pindown.networks.spectrum import Spectrum, edge, spectrum

Matrix = NDArray[np.float64]
Encode = Callable[[Matrix], Matrix]
"""Maps rows (n, columns) to codes (n, d)."""

NIL = 0.03
"""Share of the variance of a column below which noise is as good as none: what codes leave by being imperfect."""

SHARED = 0.25
"""Share of what codes leave of X that columns may have in common: more is a latent that codes do not tell."""

MAX_ROWS = 4_000
"""Rows that the spectrum is taken of: more would change little."""

MIN_ROWS, SAMPLES_PER_FEATURE = 200, 5
"""Rows, in all and for each column, from which what codes leave of X says something of noise."""

N_DRAWS = 4
"""Times that fresh noise is added to every row."""


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise that each column has for itself, and the directions of X that stand out of it.

    Parameters
    ----------
    share : float
        Mean share of the variance of a column; 0 where there is none, or where X has too few columns to tell it.
    spread : array (columns,)
        Its standard deviation, in the units of X.
    seen : Spectrum
        Of standardised columns.
    shape : tuple of int
        Of a row.
    decided : bool
        Whether noise would have shown; where it would not, it counts as signal.
    """

    share: float
    spread: Matrix
    seen: Spectrum
    shape: tuple[int, ...]
    decided: bool

    @property
    def is_nil(self) -> bool:
        """Whether there is as good as none."""
        return self.share < NIL

    def draws(self, n: int, rng: np.random.Generator, n_draws: int = N_DRAWS) -> Iterator[Matrix]:
        """Yield fresh noise for so many rows, in the units of X; (n, …) each."""
        for _ in range(n_draws):
            yield (rng.normal(size=(n, len(self.spread))) * self.spread).reshape(n, *self.shape)


def noise_of(X: Any) -> Noise:
    """Measure the noise of single columns by the trailing spectrum of X.

    Blind to noise that columns share, and to noise in fewer than some twenty columns more than there are directions of
    signal: there it cannot be told from latents, and none is seen.

    Examples
    --------
    Three latents behind forty columns, of whose variance a fifth is noise:

    >>> rng = np.random.default_rng(0)
    >>> signal = rng.normal(size=(2_000, 3)) @ rng.normal(size=(3, 40))
    >>> x = signal + 0.5 * signal.std(0) * rng.normal(size=signal.shape)
    >>> round(noise_of(x).share, 2), noise_of(signal).is_nil
    (0.2, True)
    """
    rows = np.asarray(X)
    seen = spectrum(_vectors(rows[:: max(1, len(rows) // MAX_ROWS)]))
    return _noise(seen, rows.shape[1:])


def noise_left(encode: Encode, X: Any, *, random_state: int = 0) -> Noise:
    r"""Measure the noise of single columns by the spectrum of X or, if that does not show it, by what codes leave.

    Where g is bent there is signal in all directions, and no bulk of noise to be seen. But if codes tell the signal,
    what a smooth regression on d codes leaves of p columns is noise, :math:`1 - d/p` of it, and no two columns share
    any. So it is taken for noise unless columns share more than :data:`SHARED` of it; and none is seen in so few
    columns that d latents of a linear mixing could not be told from noise, :math:`(p - d)^2 \le p + d` (Ledermann,
    1937).

    Examples
    --------
    One latent bends each of twelve columns in its own way; a fifth of their variance is noise:

    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2_000, 1))
    >>> signal = np.sin(z * np.linspace(0.5, 1, 12) + np.arange(12))
    >>> x = signal + 0.5 * signal.std(0) * rng.normal(size=signal.shape)
    >>> round(noise_left(lambda x: z, x).share, 1), noise_left(lambda x: 0 * z + rng.normal(size=z.shape), x).is_nil
    (0.2, True)
    """
    found, rows = noise_of(X), np.asarray(X)
    codes = np.asarray(encode(rows), dtype=np.float64)
    (n, d), p = codes.shape, int(np.isfinite(found.seen.scale).sum())
    few = n < max(MIN_ROWS, SAMPLES_PER_FEATURE * p)  # a regression on so few leaves signal, too
    if not found.is_nil or few or (p - d) ** 2 <= p + d or d >= p:
        return found
    scaled = (_vectors(rows) - found.seen.mean) / found.seen.scale
    left = np.empty_like(scaled)
    for fit, held_out, _ in smooth_fits(codes, scaled, np.random.default_rng(random_state)):
        left[held_out] = scaled[held_out] - fit.predict(codes[held_out]).reshape(len(held_out), -1)
    left = left[:, np.isfinite(found.seen.scale)]
    size = left.var(0)
    if size.mean() < NIL:
        return replace(found, decided=True)
    alone = p / (p - d)  # along each direction that is left, if columns share nothing: codes took the others
    variances = np.linalg.eigvalsh(np.corrcoef(left, rowvar=False))
    if (variances - alone)[variances > alone * edge(np.ones(p), p, n)].sum() > SHARED * p:
        return found
    noise = np.zeros(len(found.seen.scale))
    noise[np.isfinite(found.seen.scale)] = np.minimum(size * alone, 1)
    beyond = found.seen.variances > edge(noise, p, n)
    return _noise(replace(found.seen, noise=noise, n_signal=max(d, int(beyond.sum()))), found.shape)


def _noise(seen: Spectrum, shape: tuple[int, ...]) -> Noise:
    varies = np.isfinite(seen.scale)
    share = float(seen.noise[varies].mean()) if varies.any() else 0.0
    spread = np.sqrt(seen.noise) * np.where(varies, seen.scale, 0.0)
    return Noise(share, spread, seen, shape, decided=seen.n_signal < varies.sum())


def _vectors(rows: Any) -> Matrix:
    return rows.reshape(len(rows), -1).astype(np.float64)


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
