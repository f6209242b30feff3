"""Noise of single columns: how much of it there is, by the trailing spectrum of X, or by what codes leave of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.auditing.checks.arrays import smooth_fits
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
