"""How many directions of a table are more than noise, whatever the units of its columns: from its own spectrum.

Columns are standardised, so that no unit matters. Noise of the columns then shows as a bulk of trailing directions that
no single one stands out of; a law of large matrices says how far such a bulk reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.utils.extmath import randomized_svd

from pindown._names import counted

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

EXACT = 4_096
"""Rows or columns, whichever are fewer, up to which all directions are found exactly; beyond, `MOST` leading ones."""

MOST = 1_000

NOTHING = 1e-10
"""Variance, relative to the largest, up to which a direction of standardised columns holds rounding alone."""

CONSTANT = 1e-12
"""Spread, relative to the mean, up to which numbers are one number and its rounding."""

SAMPLES_PER_DIRECTION = 5
"""Rows that a direction needs at least: with fewer, those that were not seen are blown up several times over."""

SAMPLES_PER_FEATURE = 100
"""Rows for each column from which all directions are kept: training tells noise from what is faint, and from latents
that are independent of each other and vary alike, which to a spectrum look the same."""

LEAST_BULK = 20
"""Directions that a bulk of noise has at least, and it has at least half of all: of fewer nobody can say."""

DECAY = 0.3
"""How far the mean logarithm of a bulk's variances may lie below that of noise: where it lies further they go on
falling, as those of data without noise do. With noise .01 to .2 was seen, .45 to 5 without."""

DEVIATIONS = 4.0
"""By how many standard deviations of its edge a direction must stand out of a bulk of noise."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Directions of standardised columns, the most variable first, and how many of them are more than noise.

    Attributes
    ----------
    mean, scale : array of shape (n_columns,)
        Of each column; the scale of one that never varies is infinite, so that nothing comes of it.
    directions : array of shape (n_columns, k)
        Orthonormal, one in each column, with the largest entry positive.
    variances : array of shape (k,)
        Of standardised columns along them.
    n_samples : int
        What they were found from.
    n_signal : int
        Directions that stand out of a bulk of noise; all, where there is no such bulk.
    n_kept : int
        Directions that a fit should be shown: more than `n_signal` where rows are plenty, never more than rows support.
    noise : array of shape (n_columns,)
        Estimated variance of the noise of each standardised column; zeros where no bulk was seen.
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

    def coordinates(self, X: Any, n_components: int | None = None) -> Matrix:
        """Return rows along the directions that are kept, or along so many leading ones, in standardised units."""
        kept = self.directions[:, : self.n_kept if n_components is None else n_components]
        return ((np.asarray(X, dtype=np.float64) - self.mean) / self.scale) @ kept


def spectrum(X: Any, *, random_state: int = 0) -> Spectrum:
    r"""Return the directions of standardised columns, and how many are more than noise.

    Directions are tested in turn, as in deterministic parallel analysis (Dobriban and Owen, 2019): if what k directions
    leave is noise of variance :math:`\psi_j` in column j, its largest variance is about the edge of the law of
    Marchenko and Pastur for these variances. The first k whose next direction does not reach beyond ends the signal, if
    at least twenty directions, and half of all, are left, and their variances do not go on falling: the logarithm of
    their determinant is that of noise. It is blind to noise that columns share, and takes for noise what columns do
    not: independent latents that vary alike, one per column.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
        Numbers, finite.
    random_state : int
        Where the search begins if there are more than 4,096 rows and columns.

    Examples
    --------
    Three latents behind sixty noisy columns, in any units:

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 60)) + rng.normal(size=(300, 60))
    >>> spectrum(x).n_kept, spectrum(x * np.logspace(-3, 3, 60)).n_kept
    (3, 3)
    >>> print(spectrum(x).account)
    3 of 60 directions of the standardised columns are kept: the other 57 vary no more than noise of columns would.

    Without noise none is removed:

    >>> spectrum(rng.normal(size=(300, 3)) @ rng.normal(size=(3, 60))).n_kept
    3
    """
    rows = np.asarray(X, dtype=np.float64)
    n, d = rows.shape
    mean = rows.mean(0)
    scale = usable_scale(rows.std(0), mean)
    rows = (rows - mean) / scale
    if d <= min(n, EXACT):
        return spectrum_of_correlation(mean, scale, rows.T @ rows / n, n)
    if n <= EXACT:
        variances, left = np.linalg.eigh(rows @ rows.T / n)
        variances, left = variances[::-1][: n - 1], left[:, ::-1][:, : n - 1]
        found = variances > NOTHING * max(variances[:1], default=0.0)
        directions = rows.T @ (left[:, found] / np.sqrt(n * variances[found]))
        return spectrum_of_directions(mean, scale, directions, variances[found], n)
    _, sizes, directions = randomized_svd(rows, n_components=MOST, random_state=random_state)
    return spectrum_of_directions(mean, scale, directions.T, sizes**2 / n, n)


def usable_scale(spread: Vector, mean: Vector) -> Vector:
    """Return what to divide columns by: infinity where a column never varies, so that nothing comes of it.

    Examples
    --------
    >>> usable_scale(np.array([2.0, 0.0]), np.array([1.0, 7.0])).tolist()
    [2.0, inf]
    """
    return np.where(spread > CONSTANT * np.abs(mean), spread, np.inf)


def spectrum_of_correlation(mean: Vector, scale: Vector, correlation: Matrix, n_samples: int) -> Spectrum:
    """Return the spectrum of rows of which the correlation of columns is known, such as those of a stream."""
    variances, directions = (part[..., ::-1] for part in np.linalg.eigh(correlation))
    found = variances > NOTHING * max(variances[:1], default=0.0)
    found[max(n_samples - 1, 1) :] = False
    return spectrum_of_directions(mean, scale, directions[:, found], variances[found], n_samples)


def spectrum_of_directions(
    mean: Vector, scale: Vector, directions: Matrix, variances: Vector, n_samples: int
) -> Spectrum:
    """Return the spectrum of rows of which the leading directions of standardised columns are known, or all."""
    directions = directions * np.sign(directions[np.abs(directions).argmax(0), np.arange(directions.shape[1])])
    n_columns = int(np.isfinite(scale).sum())
    n_beyond, noise = _beyond_noise(directions, variances, np.isfinite(scale), n_samples)
    n_all, supported = len(variances), max(1, n_samples // SAMPLES_PER_DIRECTION)
    bulk = min(n_samples - 1, n_columns) - n_beyond
    whole = n_all == min(n_samples - 1, n_columns)
    seen = n_beyond > 0 and bulk >= max(LEAST_BULK, n_beyond)
    seen = seen and not (whole and _falls(variances[n_beyond:], noise[np.isfinite(scale)], n_samples))
    n_signal = n_beyond if seen else n_all
    plenty = n_samples >= SAMPLES_PER_FEATURE * n_columns
    n_kept = min(n_all if plenty else n_signal, supported)
    account = _account(n_all, n_columns, n_samples, n_kept, n_beyond, seen, plenty)
    noise = noise if seen and n_beyond < n_all else np.zeros(len(scale))
    return Spectrum(mean, scale, directions, variances, n_samples, n_signal, n_kept, noise, account)


def _account(n_all: int, n_columns: int, n_samples: int, n_kept: int, n_beyond: int, seen: bool, plenty: bool) -> str:
    kept = (
        f"{n_kept} of {counted(n_all, 'direction')} of the standardised columns {'is' if n_kept == 1 else 'are'} kept"
    )
    if n_kept == n_all:
        if seen:
            return f"all {kept.partition(' of ')[2]}: there are {n_samples // n_columns} rows for each column."
        return f"all {kept.partition(' of ')[2]}."
    if seen and n_kept == n_beyond:
        return f"{kept}: the other {n_all - n_kept} vary no more than noise of columns would."
    doubt = ", and none stands out of what noise of single columns would be" if n_beyond == 0 else ""
    return f"{kept}: {n_samples} rows support no more{doubt}."


def _beyond_noise(directions: Matrix, variances: Vector, varies: NDArray[np.bool_], n: int) -> tuple[int, Vector]:
    """Return how many directions stand out of the noise of single columns, and the variance of that noise."""
    left = varies.astype(np.float64)  # variance of each column that the directions so far have not told
    free = np.ones(len(left))  # share of each column's axis that is not in their span
    n_columns = int(varies.sum())
    noise = left
    for k, variance in enumerate(variances):
        noise = np.where(varies, left.clip(0) / free.clip(1e-9) / (1 - k / n), 0.0)
        if variance <= edge(noise[varies], n_columns - k, n):
            return k, noise
        left = left - variance * directions[:, k] ** 2
        free = free - directions[:, k] ** 2
    return len(variances), noise


def _falls(bulk: Vector, noise: Vector, n: int) -> bool:
    r"""Say whether the variances of a bulk fall further than those of noise with such variances in its columns.

    With γ columns per row the mean logarithm of the variances of noise is :math:`\overline{\log \psi} - 1 - \tfrac{1 -
    \gamma}{\gamma} \log(1 - \gamma)` for γ < 1 (Bai and Silverstein, 2004); with more columns than rows the rows change
    places with them, and see all columns together.
    """
    n_columns, n_samples = len(noise), n - 1
    n_columns, n_samples = n_columns - (k := min(n_columns, n_samples) - len(bulk)), n_samples - k
    many = n_columns > n_samples
    ratio = min(n_columns, n_samples) / max(n_columns, n_samples)
    own = np.log(noise.mean() * n_columns / n_samples) if many else np.log(noise.clip(1e-300)).mean()
    expected = own - 1 - ((1 - ratio) / ratio * np.log1p(-ratio) if ratio < 1 else 0.0)
    return bool(np.log(bulk).mean() < expected - DECAY)


def edge(noise: Vector, n_columns: int, n_samples: int) -> float:
    r"""Return how far the largest variance of pure noise reaches, with variances ψ in its columns.

    With γ columns per row, :math:`\min_{0 < t < 1} \psi_{\max} / t + \gamma\,\overline{\psi / (1 - t \psi /
    \psi_{\max})}` (Silverstein and Choi, 1995), and some standard deviations of the law of Tracy and Widom beyond.

    Examples
    --------
    Of equal variances it is (1 + √γ)², here (1 + 1/2)² = 2.25, and a little more for rows that are finite:

    >>> round(edge(np.ones(250_000), 250_000, 1_000_000), 2)
    2.25
    """
    largest = float(noise.max(initial=0.0))
    if largest <= 0 or n_columns < 1:
        return 0.0
    share, ratio = noise / largest, n_columns / n_samples
    found = minimize_scalar(
        lambda t: 1 / t + ratio * np.mean(share / (1 - t * share)), bounds=(1e-6, 1 - 1e-6), method="bounded"
    )
    across = n_samples**-0.5 + n_columns**-0.5
    deviation = across ** (1 / 3) / (n_samples**0.5 + n_columns**0.5)
    return largest * float(found.fun) * (1 + DEVIATIONS * deviation)
