r"""Recovery: how much of the true latents ``z`` (n, d) is in the embedding ``z_hat`` (n, d_hat), up to which map.

======================= ========================================== ===================================================
metric                  blind to                                   chance is the score of
======================= ========================================== ===================================================
`linear_r2`             invertible affine maps of ``z_hat``        an embedding independent of ``z``
`procrustes`            rotation, reflection, one scale, shift     an embedding independent of ``z``
`mcc`                   permutation, sign, scale, shift of columns an embedding equal to ``z`` except for a rotation
`recovery_by_level`     smooth invertible maps, one per level      an embedding independent of ``z``: just below 0
======================= ========================================== ===================================================

A companion ``chance_<metric>`` takes only what its level depends on: shapes, and how the metric was called.

What is fitted (a map, a matching) is fitted on one random half of the samples and scored on the other, unless
``held_out=False``. The halves depend on ``random_state`` alone (an int, a generator, or None for fresh
entropy), never on global state. Samples are assumed to be independent: thin a time series first.
"""

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import orthogonal_procrustes
from sklearn.linear_model import LinearRegression

from pindown.data.labels import numbered
from pindown.errors import InputError
from pindown.metrics.arrays import (
    Labels,
    Matrix,
    Method,
    RandomState,
    best_matching,
    check_positive,
    check_same_samples,
    check_varies,
    correlations,
    in_halves,
    matched_sum,
    part_sizes,
    pooled_r2,
    read_pair,
)
from pindown.metrics.probes import smooth_regression

LANDMARKS = 300
MIN_SAMPLES_PER_LEVEL = 20


def linear_r2(z_hat: ArrayLike, z: ArrayLike, *, held_out: bool = True, random_state: RandomState = 0) -> float:
    r"""Return the R² of the best affine map from the embedding to the latents, averaged over the latents.

    .. math:: \frac1d \sum_j 1 -
              \frac{\min_{w, b} \sum_i (z_{ij} - w^\top \hat z_i - b)^2}{\sum_i (z_{ij} - \bar z_j)^2}

    All latents have the same weight, whatever their variance. Blind to invertible affine maps of ``z_hat`` and to
    constant columns of it; sees what is lost or transformed nonlinearly. Chance is just below 0 held-out, but
    ``d_hat / (n - 1)`` in-sample: see `chance_linear_r2`. The "unsupervised score" of Zimmermann et al. (2021),
    *Contrastive Learning Inverts the Data Generating Process*.

    Examples
    --------
    An affine map loses nothing:

    >>> z = np.random.default_rng(0).normal(size=(100, 2))
    >>> round(linear_r2(z @ [[1, 2], [3, 4]] + 5, z), 6)
    1.0
    """
    a_hat, a = read_pair(z_hat, z)
    needed = a_hat.shape[1] + 3  # the fewest at which the chance level is finite
    (fit_hat, fit), (score_hat, score) = in_halves(a_hat, a, needed, held_out, random_state)
    return float(LinearRegression().fit(fit_hat, fit).score(score_hat, score))


def chance_linear_r2(n: int, d_hat: int, *, held_out: bool = True) -> float:
    r"""Return the expected `linear_r2` of a Gaussian embedding that is independent of Gaussian latents; exact.

    .. math:: -\frac{(1 + k/m) + b\,(k + k/m)}{k - 3} \text{ held-out}, \quad
              \frac{\hat d}{n - 1} \text{ in-sample}

    with m samples to fit, k to score, and :math:`b = \hat d / (m - \hat d - 2)` the expected squared length of
    the slopes that least squares finds in noise. The number of latents does not matter.

    Examples
    --------
    Seven samples a half and one column give b = 1/4, so −(2 + 8/4) / 4; in-sample, 10 columns on 101 samples:

    >>> chance_linear_r2(14, 1), chance_linear_r2(101, 10, held_out=False)
    (-1.0, 0.1)
    """
    check_positive(n=n, d_hat=d_hat)
    m, k = part_sizes(n, d_hat + 3, held_out)
    return _noise_r2(m, k, 1, d_hat / (m - d_hat - 2)) if held_out else d_hat / (n - 1)


def mcc(
    z_hat: ArrayLike,
    z: ArrayLike,
    *,
    method: Method = "pearson",
    held_out: bool = True,
    random_state: RandomState = 0,
) -> float:
    r"""Return the mean correlation coefficient: the mean absolute correlation of columns matched one to one.

    .. math:: \frac1d \sum_j \bigl|\operatorname{corr}(\hat z_{\pi(j)}, z_j)\bigr|, \qquad
              \pi \text{ the matching with the largest sum}

    Blind to permutation, sign, shift and scale of each coordinate (``"spearman"``: to any monotone map of
    each); not to rotations. Surplus columns of ``z_hat`` are ignored; where it has too few, each
    latent left unmatched counts as 0. Chance is high, .826 at d = 3, .594 at d = 10: see `chance_mcc`. As in
    Khemakhem et al. (2020), *Variational Autoencoders and Nonlinear ICA: A Unifying Framework*.

    Examples
    --------
    Swapped, flipped, scaled and shifted columns are still the same columns:

    >>> z = np.random.default_rng(0).normal(size=(100, 2))
    >>> round(mcc(z[:, ::-1] * [-3, 0.1] + 5, z), 6)
    1.0
    """
    if method not in get_args(Method):
        raise InputError("method", f"`method` must be 'pearson' or 'spearman', got {method!r}.")
    a_hat, a = read_pair(z_hat, z)
    parts = in_halves(a_hat, a, 3, held_out, random_state)  # any two points correlate perfectly
    for part_hat, _ in parts:
        check_varies("z_hat", part_hat, a_hat, "their correlation is undefined")
    fit, score = (np.abs(correlations(*part, method)) for part in parts)  # (d_hat, d) each
    return matched_sum(score, fit) / a.shape[1]


def chance_mcc(
    d: int,
    d_hat: int | None = None,
    *,
    method: Method = "pearson",
    n_draws: int = 2000,
    random_state: RandomState = 0,
) -> float:
    r"""Return the mean `mcc` of a random rotation of white latents: everything is right except the axes.

    A column of the embedding is then a random direction of latent space, its entries the correlations with the
    latents; so the matching is done on Q itself, uniform on the orthogonal group, without data. With
    ``d_hat != d``, Q has orthonormal columns (fewer) or is a frame of unit vectors (more). Spearman's is that
    of Gaussian latents, :math:`\frac6\pi \arcsin\frac q2`; Pearson's holds for all white ones.

    Examples
    --------
    One latent has only one axis. Two have an angle: the larger of its cosine and sine averages √8/π = .9:

    >>> chance_mcc(1), round(chance_mcc(2), 1)
    (1.0, 0.9)
    """
    if method not in get_args(Method):
        raise InputError("method", f"`method` must be 'pearson' or 'spearman', got {method!r}.")
    d_hat = d if d_hat is None else d_hat
    check_positive(d=d, d_hat=d_hat, n_draws=n_draws)
    gaussian = np.random.default_rng(random_state).normal(size=(n_draws, max(d, d_hat), min(d, d_hat)))
    # QR leaves the signs of the columns to LAPACK, so Q is not quite uniform; |Q| is (Mezzadri 2007).
    frame = np.abs(np.linalg.qr(gaussian).Q)
    directions = frame if d_hat <= d else np.swapaxes(frame, 1, 2)  # (n_draws, d, d_hat)
    found = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    if method == "spearman":
        found = 6 / np.pi * np.arcsin(found / 2)
    return float(np.mean([matched_sum(one) / d for one in found]))


def match_latents(z_hat: ArrayLike, z: ArrayLike, *, method: Method = "pearson") -> Labels:
    """Return for each latent the column of the embedding that is matched to it: largest sum of absolute correlations.

    The matching of `mcc`, on all samples given; −1 for a latent that is left over where there are too few columns.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(100, 3))
    >>> match_latents(-z[:, [2, 0, 1]], z)
    array([1, 2, 0])
    """
    a_hat, a = read_pair(z_hat, z)
    for name, values in (("z_hat", a_hat), ("z", a)):
        check_varies(name, values, values, "their correlation is undefined")
    return best_matching(np.abs(correlations(a_hat, a, method)))


@dataclass(frozen=True, eq=False)
class ProcrustesFit:
    """A similarity map from embedding to latents, ``scale * z_hat @ rotation + shift``, and its error.

    ``relative_error`` is ‖z − map(ẑ)‖ / ‖z − mean z‖, in Frobenius norms over the scored samples.
    """

    rotation: Matrix
    scale: float
    shift: Matrix
    relative_error: float

    @property
    def r2(self) -> float:
        """R² pooled over the columns: unlike an average over them, it does not change when ``z`` is rotated."""
        return 1 - self.relative_error**2


def procrustes(
    z_hat: ArrayLike, z: ArrayLike, *, held_out: bool = True, random_state: RandomState = 0
) -> ProcrustesFit:
    r"""Return the best orthogonal map, scale and shift from the embedding to the latents, and their error.

    .. math:: \min_{Q^\top Q = I,\; s,\; b} \sum_i \lVert z_i - (s\, Q^\top \hat z_i + b) \rVert^2

    Blind to rotations, reflections, shifts, and one scale for all columns; sees columns stretched unequally.
    The ``r2`` of chance is just below 0 held-out: see `chance_procrustes`. After Schönemann (1966), *A
    generalized solution of the orthogonal Procrustes problem*.

    Examples
    --------
    A rotation by 90° at twice the scale is undone by half the scale:

    >>> z = np.random.default_rng(0).normal(size=(100, 2))
    >>> fit = procrustes(2 * z @ [[0, 1], [-1, 0]], z)
    >>> round(fit.scale, 6), round(fit.r2, 6)
    (0.5, 1.0)
    """
    a_hat, a = read_pair(z_hat, z, square=True)
    needed = a.shape[1] + 3
    (fit_hat, fit), (score_hat, score) = in_halves(a_hat, a, needed, held_out, random_state)
    check_varies("z_hat", fit_hat, a_hat, "no rotation turns them into latents")
    mean_hat, mean = fit_hat.mean(axis=0), fit.mean(axis=0)
    rotation, trace = orthogonal_procrustes(fit_hat - mean_hat, fit - mean)
    scale = float(trace / np.sum((fit_hat - mean_hat) ** 2))
    shift = mean - scale * mean_hat @ rotation
    miss = np.linalg.norm(score - (scale * score_hat @ rotation + shift))
    return ProcrustesFit(rotation, scale, shift, float(miss / np.linalg.norm(score - score.mean(axis=0))))


def chance_procrustes(
    n: int, d: int, *, held_out: bool = True, n_draws: int = 500, random_state: RandomState = 0
) -> float:
    r"""Return the mean ``r2`` of `procrustes` for a white Gaussian embedding that is independent of white latents.

    As `chance_linear_r2`, with the squared scale found in noise for b. That depends on the samples only through
    d × d matrices, :math:`\hat Z^\top \hat Z = L L^\top` and :math:`\hat Z^\top Z = L G` (L by Bartlett's
    decomposition, G Gaussian): these are what is drawn, so a million samples cost no more than ten.

    Examples
    --------
    With one column there is nothing to rotate, and the map is the affine one:

    >>> round(chance_procrustes(200, 1), 2), round(chance_linear_r2(200, 1), 2)
    (-0.03, -0.03)
    """
    check_positive(n=n, d=d, n_draws=n_draws)
    m, k = part_sizes(n, d + 3, held_out)
    rng = np.random.default_rng(random_state)
    bartlett = np.tril(rng.normal(size=(n_draws, d, d)), -1)
    bartlett[:, range(d), range(d)] = np.sqrt(rng.chisquare(m - 1 - np.arange(d), size=(n_draws, d)))
    gaussian = rng.normal(size=(n_draws, d, d))
    trace = np.linalg.svd(bartlett @ gaussian, compute_uv=False).sum(axis=1)
    size_hat = np.sum(bartlett**2, axis=(1, 2))
    if held_out:
        return _noise_r2(m, k, d, float(np.mean((trace / size_hat) ** 2)))
    # G is the part of z that the d columns of the embedding span; the other n − 1 − d directions add the rest.
    size = np.sum(gaussian**2, axis=(1, 2)) + rng.chisquare(d * (n - 1 - d), size=n_draws)
    return float(np.mean(trace**2 / (size_hat * size)))


def _noise_r2(m: int, k: int, d: int, slope: float) -> float:
    # Expected R², pooled over d columns, on k new rows of a map fitted to m rows of noise. It misses by its
    # own variance (slope per column) and by the means of both halves; and E[1 / χ²_ν] = 1 / (ν − 2).
    return -d * ((1 + k / m) + slope * (k + k / m)) / (d * (k - 1) - 2)


# ---- within the levels of a nuisance --------------------------------------------------------------------------------

Part = tuple[Matrix, Matrix]
"""Embedding and latents of some samples."""


def recovery_by_level(
    z_hat: ArrayLike, z: ArrayLike, e: ArrayLike, *, max_samples: int = 10_000, random_state: RandomState = 0
) -> dict[str | int | float, float]:
    r"""Return the R² of a smooth nonlinear regression from embedding to latents, within each level of a nuisance.

    .. math:: R^2_e = 1 - \frac{\sum_i \lVert z_i - \hat\Phi_e(\hat z_i) \rVert^2}{\sum_i \lVert z_i - \bar z \rVert^2},
              \qquad i \text{ held out, } e_i = e

    with :math:`\hat\Phi_e` a kernel ridge regression (Gaussian kernel, 300 landmarks), or a linear one if that predicts
    left-out samples better, learned on half of the samples of level e and scored on the other half, all latents pooled.
    An invariant embedding is identified only up to a bijection for each level, :math:`\hat z = \Phi_e(z)`. So the score
    is blind to any smooth invertible map of the embedding, *another one for each level*: a high score does not say that
    a point of the embedding means the same in two levels. Chance is just below 0. With few samples, or many features, a
    perfect but nonlinear embedding scores below 1, since the map has to be learned: compare with the score of the
    observations themselves.

    Examples
    --------
    Each level has its own nonlinear map; a single linear one explains little:

    >>> rng = np.random.default_rng(0)
    >>> z, e = rng.normal(size=(2000, 1)), rng.integers(2, size=2000)
    >>> z_hat = np.where(e == 0, 1, -1)[:, None] * np.sinh(z)
    >>> {level: round(score, 1) for level, score in recovery_by_level(z_hat, z, e).items()}
    {0: 1.0, 1: 1.0}
    >>> round(recovery_by_level(z_hat, z, np.zeros(2000, dtype=int))[0], 1)
    -0.0
    """
    halves = halves_by_level(z_hat, z, e, max_samples, random_state)
    return {level: smooth_r2(fit, score) for level, (fit, score) in halves.items()}


def halves_by_level(
    z_hat: ArrayLike, z: ArrayLike, e: ArrayLike, max_samples: int, random_state: RandomState
) -> dict[str | int | float, tuple[Part, Part]]:
    """Return, for each level, the samples to fit a regression on, and those to score it on."""
    a_hat, a = read_pair(z_hat, z)
    levels, number, counts = numbered(e, "e", "level")
    check_same_samples("e", number, "z", a)
    if counts.min() < MIN_SAMPLES_PER_LEVEL:
        rare = f"level {levels[counts.argmin()]} of `e` has {counts.min()} samples"
        raise InputError("e", f"{rare}, and {MIN_SAMPLES_PER_LEVEL} are needed. Give more of it, or leave it out.")
    halves = {}
    for k, level in enumerate(levels.tolist()):
        some = np.flatnonzero(number == k)[:max_samples]
        halves[level] = in_halves(a_hat[some], a[some], MIN_SAMPLES_PER_LEVEL // 2, True, random_state)
    return halves


def smooth_r2(fit: Part, score: Part) -> float:
    """Fit a smooth regression and return its R², pooled over the latents."""
    model = smooth_regression(*fit, gamma=0.3 / fit[0].shape[1], n_landmarks=min(LANDMARKS, len(fit[0])))
    return pooled_r2(score[1], model.predict(score[0]))
