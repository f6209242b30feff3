"""Structure kept: what an embedding still shows of the data within each level of a nuisance, without labels."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

from pindown.data.labels import IntArray, read_labels
from pindown.metrics.arrays import Matrix, RandomState, check_same_samples, mean_by_label, read_matrix

MIN_LEVEL = 8  # samples of a level below which it has no neighbourhoods worth comparing
EMPTY = 0.1  # fraction of the neighbours, and of the variance, below which next to nothing is kept
# Number of features beyond which data are compared by so many principal components: distances in more are noise
MAX_FEATURES, N_DIRECTIONS = 50, 30
N_CLUSTERS = 8  # number of clusters in each level, at most: one for 25 samples
RIDGE, LARGEST = 1e-3, 5.0  # of the regression; and largest standardised value


@dataclass(frozen=True)
class StructureKept:
    """How much of the data within levels an embedding shows: all numbers are 1 for the data themselves.

    Attributes
    ----------
    neighbours : float
        Fraction of the nearest neighbours within a level that stay so, beyond chance; 0 for unrelated numbers.
    variance : float
        Fraction of the variance within levels that is linear in the embedding.
    n_samples : int
        Samples compared.
    clusters : float
        Agreement of clusters within a level before and after (normalised mutual information), relative to that of two
        clusterings of the data themselves; NaN if levels are too small for clusters.
    """

    neighbours: float
    variance: float
    n_samples: int
    clusters: float = math.nan

    @property
    def is_empty(self) -> bool:
        """Whether next to nothing of the data is left."""
        return self.neighbours < EMPTY and self.variance < EMPTY

    def __str__(self) -> str:
        clusters = "" if math.isnan(self.clusters) else f", {self.clusters:.2f} of the clusters"
        parts = f"{self.neighbours:.2f} of the neighbours{clusters} and {self.variance:.2f} of the variance"
        return f"structure kept: {parts} within levels"


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
    at most a quarter of m. The variance is the R² of a ridge regression of X on Z, trained on half of the samples and
    scored on the other; features of X are in units of their spread in the level. X with more than fifty features is
    represented by its thirty leading principal components within levels, in their own scale. Blind to what an embedding
    does *between* levels; see `leakage` for that. Unrelated numbers score 0 in all, X itself 1,
    or with many features a little less.

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
    rows = rows[(np.bincount(level[rows], minlength=1) >= MIN_LEVEL)[level[rows]]]
    if not len(rows):
        return StructureKept(0.0, 0.0, 0)
    x, z, level = x[rows], z[rows], np.unique(level[rows], return_inverse=True)[1]
    wide = x.shape[1] > MAX_FEATURES
    if wide:
        within = x - mean_by_label(x, level)[level]
        u, size, _ = randomized_svd(within, min(N_DIRECTIONS, *x.shape), random_state=0)
        x = u * size
    overlaps, agreements = [], []
    for each in range(level.max() + 1):
        parts = x[level == each], z[level == each]
        k = max(1, min(n_neighbours, len(parts[0]) // 4))
        both = np.concatenate([_neighbours(part, k) for part in parts], axis=1)
        both.sort(axis=1)
        chance = k / (len(both) - 1)
        overlaps.append(((both[:, 1:] == both[:, :-1]).sum(1) / k - chance) / (1 - chance))
        agreements.append(_agreement(*parts))
    clusters = np.nanmean(agreements) if np.isfinite(agreements).any() else math.nan
    neighbours = max(0.0, float(np.concatenate(overlaps).mean()))
    return StructureKept(neighbours, _explained(x, z, level, in_units=not wide), len(x), float(clusters))


def _array(values: ArrayLike) -> NDArray[np.generic]:
    return values if hasattr(values, "reshape") else np.asarray(values)  # type: ignore[return-value]


def _neighbours(x: Matrix, k: int) -> IntArray:
    # Of equal distances, as in a constant, chance decides: a tiny perturbation stands for it.
    jitter = np.random.default_rng(0).normal(size=x.shape) * (1e-9 * np.abs(x).max() + 1e-300)
    found: IntArray = NearestNeighbors(n_neighbors=k).fit(x + jitter).kneighbors(return_distance=False)
    return found


def _agreement(x: Matrix, z: Matrix) -> float:
    """Return how far clusters of x and z agree, relative to two clusterings of x; NaN for few samples."""
    n = min(N_CLUSTERS, len(x) // 25)
    if n < 2 or not np.ptp(z, axis=0).any():
        return math.nan if n < 2 else 0.0
    first, again, other = (
        KMeans(n, n_init=2, random_state=seed).fit_predict(part) for seed, part in ((0, x), (1, x), (2, z))
    )
    most = normalized_mutual_info_score(first, again)
    return min(1.0, normalized_mutual_info_score(first, other) / max(most, 1e-9))


def _centred(a: Matrix, level: IntArray, *, in_units: bool) -> Matrix:
    a = a - mean_by_label(a, level)[level]
    spread = np.sqrt(mean_by_label(a**2, level))[level] if in_units else a.std()
    # Of a feature that hardly ever varies, one sample would count more than all others.
    a = a / np.where(spread > 0, spread, 1.0)
    return np.asarray(a.clip(-LARGEST, LARGEST) if in_units else a)


def _explained(x: Matrix, z: Matrix, level: IntArray, *, in_units: bool) -> float:
    """Return the R² of X on Z within levels, on the half of the samples that the regression has not seen."""
    x, z = _centred(x, level, in_units=in_units), _centred(z, level, in_units=True)
    fit = np.arange(len(x)) % 2 == 0
    gram = z[fit].T @ z[fit] + RIDGE * fit.sum() * np.eye(z.shape[1])
    missed = x[~fit] - z[~fit] @ np.linalg.solve(gram, z[fit].T @ x[fit])
    return float(max(0.0, 1 - (missed**2).sum() / max((x[~fit] ** 2).sum(), 1e-300)))
