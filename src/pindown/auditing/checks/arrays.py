"""What checks share: reading arrays, positive pairs, and smooth predictors without tuning."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline

from pindown.auditing.checks.verdict import Estimate, bootstrap
from pindown.data.batches import pair_up
from pindown.data.data import as_array
from pindown.metrics.arrays import Labels, Matrix, read_matrix, whitening
from pindown.metrics.probes import smooth_features, smooth_regression
from pindown.networks.preprocessing import Spectrum, spectrum

GAMMA, N_LANDMARKS = 0.1, 200  # width of the radial features of a smooth predictor, and the most centres


def read(name: str, values: ArrayLike) -> Matrix:
    """Return samples as a matrix of finite numbers, images and sequences as vectors."""
    array = as_array(values, name)
    return read_matrix(name, array.reshape(len(array), -1) if array.ndim > 2 and array.size else array)


def signal_coordinates(X: ArrayLike) -> tuple[Matrix, Spectrum]:
    """Return samples along the directions of standardised features that are more than noise, and their spectrum."""
    rows = read("X", X)
    found = spectrum(rows)
    return found.coordinates(rows), found


def whitened(rows: Matrix) -> Matrix:
    """Return coordinates of unit variance along the directions in which samples vary; none if nothing does."""
    centred = rows - rows.mean(0)
    matrix = whitening(centred, smallest=1e-12 * np.abs(rows).max())
    return centred @ matrix[:, matrix.any(0)]


def cross_predicted(inputs: Matrix, targets: Matrix, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Predict each half of the samples from the other, by a smooth regression and by its mean; (n, k) each."""
    smooth, mean = np.empty_like(targets), np.empty_like(targets)
    for train, held_out in _two_folds(len(inputs), rng):
        fit = smooth_features(Ridge(1.0), GAMMA, n_landmarks(len(train))).fit(inputs[train], targets[train])
        smooth[held_out] = fit.predict(inputs[held_out]).reshape(len(held_out), -1)
        mean[held_out] = targets[train].mean(0)
    return smooth, mean


def smooth_fits(inputs: Matrix, targets: Matrix, rng: np.random.Generator) -> Iterator[tuple[Pipeline, Labels, Matrix]]:
    """Yield a smooth regression on each half of the samples, the indices of the other half, and the targets' mean."""
    for train, held_out in _two_folds(len(inputs), rng):
        fit = smooth_regression(inputs[train], targets[train], GAMMA, n_landmarks(len(train)))
        yield fit, held_out, targets[train].mean(0)


def _two_folds(n_samples: int, rng: np.random.Generator) -> tuple[tuple[Labels, Labels], tuple[Labels, Labels]]:
    order = rng.permutation(n_samples)
    first, second = order[: n_samples // 2], order[n_samples // 2 :]
    return (first, second), (second, first)


def held_out_r2(inputs: Matrix, targets: Matrix, rng: np.random.Generator) -> Estimate:
    """Return R² of a smooth regression on held-out samples, pooled over columns."""
    smooth, mean = cross_predicted(inputs, targets, rng)
    error, spread = (((targets - predicted) ** 2).sum(1) for predicted in (smooth, mean))
    return bootstrap(lambda some: 1 - error[some].sum() / max(spread[some].sum(), 1e-300), len(error), rng)


def n_landmarks(n_samples: int) -> int:
    """Return the number of points that radial features are centred at."""
    return min(N_LANDMARKS, n_samples // 4)


def paired_samples(rows: Matrix, pairs: ArrayLike | None) -> tuple[Matrix, Matrix]:
    """Return samples and a positive of each, from positives, groups, or None or "next" for the next sample.

    Examples
    --------
    >>> [part.ravel().tolist() for part in paired_samples(np.arange(3.0)[:, None], None)]
    [[0.0, 1.0], [1.0, 2.0]]
    """
    pairing = pair_up(rows, None if pairs is None or isinstance(pairs, str) else as_array(pairs))
    generator = torch.Generator().manual_seed(0)
    anchors, positives = pairing.take(torch.arange(len(pairing)), generator)
    return anchors.numpy(), positives.numpy()
