"""Reading arrays, splitting samples in halves, positives side by side, and smooth predictors without tuning."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline

from pindown.auditing.checks.verdict import Estimate, estimate
from pindown.data.data import as_array
from pindown.data.pairing import pair_up
from pindown.metrics.arrays import read_matrix
from pindown.metrics.permutation import shuffled_ranks
from pindown.metrics.probes import smooth_features, smooth_regression
from pindown.networks.spectrum import Spectrum, spectrum

Matrix = NDArray[np.float64]
Codes = NDArray[np.int64]

N_SPLITS = 40
"""Random halves by which the noise of an estimate is seen."""

N_RESAMPLES = 50
"""Draws with replacement for the same purpose, where nothing is fitted."""

GAMMA, N_LANDMARKS = 0.1, 200
"""How near the points are whose neighbourhoods a smooth predictor is made of, and how many there are at most."""


def read(name: str, values: Any) -> Matrix:
    """Return samples as a matrix of finite numbers, images and sequences as vectors."""
    array = as_array(values, name)
    return read_matrix(name, array.reshape(len(array), -1) if array.ndim > 2 and array.size else array)


def seen(X: Any) -> tuple[Matrix, Spectrum]:
    """Return rows along the directions of standardised columns that are more than noise, and the spectrum itself.

    It is what encoders are shown by default: units do not matter, and few rows with many columns are few numbers.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(500, 2)) @ [[1, 0, 1], [0, 1000, 1]]
    >>> seen(x)[0].shape
    (500, 2)
    """
    rows = read("X", X)
    found = spectrum(rows)
    return found.coordinates(rows), found


def halves(labels: Codes, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw half of the samples of every label; (n,).

    Examples
    --------
    >>> some = halves(np.array([0, 1, 0, 1, 1, 1]), np.random.default_rng(0))
    >>> np.bincount([0, 1, 0, 1, 1, 1], some).tolist()
    [1.0, 2.0]
    """
    return shuffled_ranks(labels, rng)[0] % 2 == 0


def without_rare(labels: Codes, least: int) -> NDArray[np.bool_]:
    """Say of each row whether its label has at least so many rows."""
    return (np.bincount(labels) >= least)[labels]


def on_sphere(rows: Matrix) -> Matrix:
    """Scale rows to unit length."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def whitened(rows: Matrix) -> Matrix:
    """Return coordinates of unit variance along the directions in which rows vary; none if nothing does.

    Examples
    --------
    >>> whitened(np.array([[0.0, 1.0], [4.0, 1.0]])).shape
    (2, 1)
    """
    u, s, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    varies = s > max(1e-6 * s[0], 1e-12 * np.abs(rows).max())
    return u[:, varies] * np.sqrt(len(rows))


def cross_predicted(inputs: Matrix, targets: Matrix, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Predict each half of the rows from the other, by a smooth regression and by its mean; (n, k) each."""
    smooth, flat = np.empty_like(targets), np.empty_like(targets)
    order = rng.permutation(len(inputs))
    halved = order[: len(order) // 2], order[len(order) // 2 :]
    for seen, held_out in (halved, halved[::-1]):
        fit = smooth_features(Ridge(1.0), GAMMA, _landmarks(len(seen))).fit(inputs[seen], targets[seen])
        smooth[held_out] = fit.predict(inputs[held_out]).reshape(len(held_out), -1)
        flat[held_out] = targets[seen].mean(0)
    return smooth, flat


def smooth_fits(
    inputs: Matrix, targets: Matrix, rng: np.random.Generator
) -> Iterator[tuple[Pipeline, NDArray[np.int64], Matrix]]:
    """Yield smooth regressions on each half of the rows, with the rows of the other, and the mean of the targets.

    How smooth, the rows themselves decide: what is left should be noise, and nothing that a better one would tell.
    """
    order = rng.permutation(len(inputs))
    halved = order[: len(order) // 2], order[len(order) // 2 :]
    for seen, held_out in (halved, halved[::-1]):
        fit = smooth_regression(inputs[seen], targets[seen], GAMMA, _landmarks(len(seen)))
        yield fit, held_out, targets[seen].mean(0)


def held_out_r2(inputs: Matrix, targets: Matrix, rng: np.random.Generator) -> Estimate:
    """Return R² of a smooth regression on rows it has not seen, pooled over columns."""
    smooth, flat = cross_predicted(inputs, targets, rng)
    miss, spread = (((targets - predicted) ** 2).sum(1) for predicted in (smooth, flat))
    resampled = (rng.integers(len(miss), size=len(miss)) for _ in range(N_RESAMPLES))
    return estimate([1 - miss[some].sum() / max(spread[some].sum(), 1e-300) for some in resampled])


def smooth_classifier(n_samples: int) -> Pipeline:
    """Return an unfitted logistic regression on radial features of standardised columns."""
    return smooth_features(LogisticRegression(C=10.0, max_iter=300), GAMMA, _landmarks(n_samples))


def _landmarks(n_samples: int) -> int:
    return min(N_LANDMARKS, n_samples // 4)


def paired_samples(rows: Matrix, pairs: Any) -> tuple[Matrix, Matrix]:
    """Return rows and a partner of each, from partners, groups, or None or "next" for the next row.

    Examples
    --------
    >>> import numpy as np
    >>> [part.ravel().tolist() for part in paired_samples(np.arange(3.0)[:, None], None)]
    [[0.0, 1.0], [1.0, 2.0]]
    """
    pairing = pair_up(rows, None if pairs is None or isinstance(pairs, str) else as_array(pairs))
    generator = torch.Generator().manual_seed(0)
    anchors, partners = pairing.take(torch.arange(len(pairing)), generator)
    return anchors.numpy(), partners.numpy()
