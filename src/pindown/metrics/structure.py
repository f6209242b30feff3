"""Structure kept: what an embedding still shows of the data within each level of a nuisance, without labels.

A constant is invariant to everything, so that leakage alone says nothing. Within one batch there is no batch effect:
what is close there should stay close.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.neighbors import NearestNeighbors

from pindown.data.labels import read_labels
from pindown.metrics.arrays import Matrix, RandomState, check_same_samples, mean_by_label, read_matrix

MIN_LEVEL = 8
"""Samples of a level below which it has no neighbourhoods worth comparing."""

EMPTY = 0.1
"""Fraction of the neighbours, and of the variance, below which next to nothing is kept."""

RIDGE = 1e-3


@dataclass(frozen=True)
class StructureKept:
    """How much of the data within levels an embedding shows: both numbers are 1 for the data themselves.

    Attributes
    ----------
    neighbours : float
        Fraction of the nearest neighbours within a level that stay so, beyond chance; 0 for unrelated numbers.
    variance : float
        Fraction of the variance within levels that is linear in the embedding, features in units of their spread in
        the level.
    n_samples : int
        Samples compared.
    """

    neighbours: float
    variance: float
    n_samples: int

    @property
    def is_empty(self) -> bool:
        """Whether next to nothing of the data is left."""
        return self.neighbours < EMPTY and self.variance < EMPTY

    def __str__(self) -> str:
        return (
            f"structure kept: {self.neighbours:.2f} of the neighbours and {self.variance:.2f} of the variance within "
            "levels"
        )


def structure_kept(
    X: ArrayLike,
    Z: ArrayLike,
    levels: ArrayLike,
    *,
    n_neighbours: int = 15,
    max_samples: int = 2_000,
    random_state: RandomState = None,
) -> StructureKept:
    r"""Return how much of the structure of X (n, d) within levels of a nuisance an embedding Z (n, k) keeps.

    .. math:: \frac{o - c}{1 - c}, \qquad o = \frac1n \sum_i \frac{|N_i(X) \cap N_i(Z)|}{k}, \qquad c = \frac{k}{m - 1}

    with :math:`N_i` the k nearest neighbours of sample i among the m samples of its level, by Euclidean distance, and k
    at most a quarter of m. The variance is the R² of a ridge regression of X on Z, both standardised in each level,
    trained on half of the samples and scored on the other. Blind to what an embedding does *between* levels; see
    `leakage` for that. Unrelated numbers score 0 in both, X itself 1.

    Parameters
    ----------
    X, Z : array (n, d), array (n, k)
        The data and the embedding; images are flattened.
    levels : array (n,)
        The nuisance, as labels. Levels with fewer than eight samples are left out.
    n_neighbours : int
        k, at most.
    max_samples : int
        Samples to compare at most, drawn at random.
    random_state : int, numpy.random.Generator or None
        Seed.

    Examples
    --------
    A shift and a scale per batch keep all, dropping two of three features does not, and a constant keeps nothing:

    >>> rng = np.random.default_rng(0)
    >>> batch, X = np.arange(2_000) % 2, rng.normal(size=(2_000, 3))
    >>> X[batch == 1] = 5 + 2 * X[batch == 1]
    >>> embeddings = (X - 5 * batch[:, None]) / (1 + batch[:, None]), X[:, :1], np.ones((2_000, 1))
    >>> [round(structure_kept(X, Z, batch, random_state=0).neighbours, 1) for Z in embeddings]
    [1.0, 0.1, 0.0]
    >>> [round(structure_kept(X, Z, batch, random_state=0).variance, 1) for Z in embeddings]
    [1.0, 0.3, 0.0]
    """
    rng = np.random.default_rng(random_state)
    x, z = (read_matrix(name, np.reshape(part, (len(part), -1))) for name, part in (("X", _array(X)), ("Z", _array(Z))))
    check_same_samples("X", x, "Z", z)
    level = read_labels("levels", levels, len(x))
    level = np.where((np.bincount(level) < MIN_LEVEL)[level], -1, level)
    rows = rng.permutation(np.flatnonzero(level >= 0))[:max_samples]
    x, z, level = x[rows], z[rows], level[rows]
    overlaps: list[NDArray[np.float64]] = []
    for each in np.unique(level):
        own = level == each
        if (m := int(own.sum())) >= MIN_LEVEL:
            k = max(1, min(n_neighbours, m // 4))
            both = np.concatenate([_neighbours(part[own], k) for part in (x, z)], axis=1)
            both.sort(axis=1)
            overlap = (both[:, 1:] == both[:, :-1]).sum(1) / k
            chance = k / (m - 1)
            overlaps.append((overlap - chance) / (1 - chance))
    if not overlaps:
        return StructureKept(0.0, 0.0, 0)
    return StructureKept(max(0.0, float(np.concatenate(overlaps).mean())), _explained(x, z, level), len(x))


def _array(values: Any) -> Any:
    return values if hasattr(values, "reshape") else np.asarray(values)


def _neighbours(x: Matrix, k: int) -> NDArray[np.int64]:
    # Of equal distances, as in a constant, chance decides: a tiny perturbation stands for it.
    jitter = np.random.default_rng(0).normal(size=x.shape) * (1e-9 * np.abs(x).max() + 1e-300)
    found: NDArray[np.int64] = NearestNeighbors(n_neighbors=k).fit(x + jitter).kneighbors(return_distance=False)
    return found


def _standardised(a: Matrix, level: NDArray[np.int64]) -> Matrix:
    a = a - mean_by_label(a, level)[level]
    spread = np.sqrt(mean_by_label(a**2, level))[level]
    return a / np.where(spread > 0, spread, 1.0)


def _explained(x: Matrix, z: Matrix, level: NDArray[np.int64]) -> float:
    """Return the R² of X on Z within levels, on the half of the samples that the regression has not seen."""
    number = np.unique(level, return_inverse=True)[1]
    x, z = (_standardised(part, number) for part in (x, z))
    fit = np.arange(len(x)) % 2 == 0
    gram = z[fit].T @ z[fit] + RIDGE * fit.sum() * np.eye(z.shape[1])
    missed = x[~fit] - z[~fit] @ np.linalg.solve(gram, z[fit].T @ x[fit])
    return float(max(0.0, 1 - (missed**2).sum() / max((x[~fit] ** 2).sum(), 1e-300)))
