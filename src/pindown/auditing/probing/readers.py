"""Linear probes in closed form: ridge regression of many targets at once, each with the penalty that suits it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pindown.auditing.probing.splits import Split

Matrix = NDArray[np.float64]

PENALTIES = np.logspace(-4, 4, 13)
"""Penalties that are tried, relative to the mean square of a direction of the features."""


class Reader:
    r"""Linear maps from the features of some rows to targets, by ridge regression.

    .. math:: \min_w \; \lVert y - F w \rVert^2 + \alpha \lVert w \rVert^2

    Features are standardised on the rows to learn from, and α is the one with the least generalised cross-validation
    error there, for each target by itself. One decomposition serves all targets, permuted ones among them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 5))
    >>> reader = Reader(x, Split(np.arange(150), np.arange(150, 200)))
    >>> said = reader.read(x[:150, :1] - x[:150, 1:2])
    >>> round(float(np.corrcoef(said[:, 0], x[150:, 0] - x[150:, 1])[0, 1]), 3)
    1.0
    """

    def __init__(self, features: Matrix, split: Split) -> None:
        train = features[split.train]
        mean, spread = train.mean(0), train.std(0)
        scale = np.where(spread > 1e-12 * np.maximum(np.abs(mean), 1e-300), spread, np.inf)
        u, s, vt = np.linalg.svd((train - mean) / scale, full_matrices=False)
        self._u, self._s = u, s
        self._test = (features[split.test] - mean) / scale @ vt.T  # (n_test, r)

    def read(self, targets: Matrix) -> Matrix:
        """Return what is said of the rows to score on; (n_train, t) → (n_test, t)."""
        mean = targets.mean(0)
        centred = targets - mean
        along = self._u.T @ centred  # (r, t)
        power, n = (centred**2).sum(0), len(centred)
        typical = max(float((self._s**2).mean()), 1e-300)
        best, weights = np.full(targets.shape[1], np.inf), np.zeros((len(self._s), targets.shape[1]))
        for penalty in PENALTIES * typical:
            kept = self._s**2 / (self._s**2 + penalty)
            left = power - ((2 * kept - kept**2)[:, None] * along**2).sum(0)
            error = left / (1 - (kept.sum() + 1) / n) ** 2 if kept.sum() + 1 < 0.99 * n else np.full_like(left, np.inf)
            better = error < best
            best[better] = error[better]
            weights[:, better] = (self._s / (self._s**2 + penalty))[:, None] * along[:, better]
        return self._test @ weights + mean
