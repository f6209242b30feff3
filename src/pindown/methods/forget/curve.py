"""The dial of removal: leakage against structure kept over strengths, next to the plainest tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pindown.methods.forget.approach import probe
from pindown.methods.forget.batch_maps import BatchMaps
from pindown.methods.transport import matrix_power
from pindown.metrics import StructureKept, structure_kept
from pindown.metrics.arrays import Labels, Matrix, mean_by_label

N_ROUNDS = 30  # alternations of shifts and scales of `combat`


class RemovalPoint(NamedTuple):
    """A point of the curve: what the best probe still predicts of the nuisance, and what is kept of the data."""

    name: str
    fraction: float | None  # of the effects of batches that is removed; None for other tools
    leakage: float  # balanced accuracy of the best probe, within classes or clusters
    chance: float
    structure: StructureKept


def removal_curve(
    maps: BatchMaps, x: Matrix, batch: Labels, within: Labels | None, fractions: Sequence[float], seed: int
) -> tuple[RemovalPoint, ...]:
    """Measure maps that remove these fractions, and z-score, ComBat and LEACE, on the same samples (n, d)."""
    within = maps.clusters(x, batch) if within is None else within
    tools: dict[str, Callable[[Matrix, Labels], Matrix]] = {"z-score": z_scored, "ComBat": combat, "LEACE": leace}
    embeddings: list[tuple[str, float | None, Matrix]] = [
        ("Forget", fraction, replace(maps, fraction=fraction).encode(x, batch)) for fraction in fractions
    ]
    embeddings += [(name, None, _leading(tool(x, batch), maps)) for name, tool in tools.items()]
    points = []
    for name, fraction, z in embeddings:
        leak = probe(z, batch, within=within, groups=None, seed=seed, names=("linear", "quadratic"))
        if leak is not None:
            kept = structure_kept(x, z, batch, random_state=seed)
            points.append(RemovalPoint(name, fraction, leak.worst, leak.chance, kept))
    return tuple(points)


def _leading(x: Matrix, maps: BatchMaps) -> Matrix:
    """Return as many principal components as there are latents, of features in their units; all features if all are."""
    if maps.rotated_back:
        return x
    scaled = (x - x.mean(0)) / maps.scale.mean(0)
    return np.asarray(scaled @ np.linalg.eigh(scaled.T @ scaled)[1][:, : -maps.n_components - 1 : -1])


def z_scored(x: Matrix, batch: Labels) -> Matrix:
    """Standardise features in each batch, in the units that they have in all."""
    centred = x - mean_by_label(x, batch)[batch]
    spread = np.sqrt(mean_by_label(centred**2, batch))
    return np.asarray(centred / np.where(spread > 0, spread, 1.0)[batch] * x.std(0))


def combat(x: Matrix, batch: Labels) -> Matrix:
    """Shift and scale features by batch, shrunk by the empirical Bayes of Johnson, Li and Rabinovic (2007)."""
    spread = (x - mean_by_label(x, batch)[batch]).std(0)
    unit = np.where(spread > 0, spread, 1.0)
    z = (x - x.mean(0)) / unit
    for e in np.unique(batch):
        own = z[batch == e]
        mean, variance, n = own.mean(0), own.var(0, ddof=min(1, len(own) - 1)), len(own)
        middle, between, level, apart = mean.mean(), mean.var(), variance.mean(), max(variance.var(), 1e-12)
        shape, rate = (2 * apart + level**2) / apart, (level * apart + level**3) / apart
        shift, scale = mean, variance
        for _ in range(N_ROUNDS):
            shift = (n * between * mean + scale * middle) / np.maximum(n * between + scale, 1e-300)
            scale = (rate + 0.5 * ((own - shift) ** 2).sum(0)) / (n / 2 + shape - 1)
        z[batch == e] = (own - shift) / np.sqrt(np.maximum(scale, 1e-300))
    return np.asarray(z * unit + x.mean(0))


def leace(x: Matrix, batch: Labels) -> Matrix:
    """Project off differences of means in whitened coordinates, which moves samples least (Belrose et al., 2023)."""
    centred = x - x.mean(0)
    covariance = centred.T @ centred / len(x)
    whiten, colour = matrix_power(covariance, -0.5), matrix_power(covariance, 0.5)
    means = mean_by_label(centred, batch) @ whiten
    u, size, _ = np.linalg.svd(means.T, full_matrices=False)
    basis = u[:, size > 1e-9 * max(size.max(), 1e-300)]
    return np.asarray(x - centred @ whiten @ basis @ basis.T @ colour)
