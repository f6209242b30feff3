r"""Recovery: how much of the true latents ``z`` (n, d) is in the code ``z_hat`` (n, d_hat), up to which map.

===================== ========================================== ========================================
metric                blind to                                   chance is the score of
===================== ========================================== ========================================
`linear_r2`           invertible affine maps of ``z_hat``        a code independent of ``z``
`procrustes`          rotation, reflection, one scale, shift     a code independent of ``z``
`orthogonality_error` rotation, reflection, shift                a code linear in ``z``, and no more
`mcc`                 permutation, sign, scale, shift of columns a code equal to ``z`` but for a rotation
===================== ========================================== ========================================

A companion ``chance_<metric>`` takes only what its level depends on: shapes, and how the metric was called.

What is fitted (a map, a matching) is fitted on one random half of the rows and scored on the other, unless
``held_out=False``. The halves depend on ``random_state`` alone (an int, a generator, or None for fresh
entropy), never on global state. Rows are taken to be independent: a time series should be thinned first.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata
from sklearn.linear_model import LinearRegression

from pindown.metrics.reading import (
    Matrix,
    RandomState,
    in_halves,
    part_sizes,
    read_pair,
    refuse_constant,
    require_positive,
)

Method = Literal["pearson", "spearman"]


def linear_r2(z_hat: ArrayLike, z: ArrayLike, *, held_out: bool = True, random_state: RandomState = 0) -> float:
    r"""R² of the best affine map from the code to the latents, averaged uniformly over the latents.

    .. math:: \frac1d \sum_j 1 -
              \frac{\min_{w, b} \sum_i (z_{ij} - w^\top \hat z_i - b)^2}{\sum_i (z_{ij} - \bar z_j)^2}

    All latents weigh the same, whatever their variance. Blind to invertible affine maps of ``z_hat`` and to
    dead columns of it; sees what is lost or bent. Chance is just below 0 held-out, but ``d_hat / (n - 1)``
    in-sample: see `chance_linear_r2`. The "unsupervised score" of Zimmermann et al. (2021), *Contrastive
    Learning Inverts the Data Generating Process*.

    Examples
    --------
    An affine code loses nothing:

    >>> z = np.random.default_rng(0).normal(size=(100, 2))
    >>> round(linear_r2(z @ [[1, 2], [3, 4]] + 5, z), 6)
    1.0
    """
    a_hat, a = read_pair("linear_r2", z_hat, z)
    needed = a_hat.shape[1] + 3  # the fewest at which the chance level is finite
    (fit_hat, fit), (score_hat, score) = in_halves("linear_r2", a_hat, a, needed, held_out, random_state)
    return float(LinearRegression().fit(fit_hat, fit).score(score_hat, score))


def chance_linear_r2(n: int, d_hat: int, *, held_out: bool = True) -> float:
    r"""Return the expected `linear_r2` of a Gaussian code that knows nothing of Gaussian latents; exact.

    .. math:: -\frac{(1 + k/m) + b\,(k + k/m)}{k - 3} \text{ held-out}, \quad
              \frac{\hat d}{n - 1} \text{ in-sample}

    with m rows to fit, k to score, and :math:`b = \hat d / (m - \hat d - 2)` the expected squared length of
    the slopes that least squares finds in noise. The number of latents does not matter.

    Examples
    --------
    Seven rows a half and one column give b = 1/4, so −(2 + 8/4) / 4; in-sample, 10 columns on 101 rows:

    >>> chance_linear_r2(14, 1), chance_linear_r2(101, 10, held_out=False)
    (-1.0, 0.1)
    """
    require_positive("chance_linear_r2", n=n, d_hat=d_hat)
    m, k = part_sizes("chance_linear_r2", n, d_hat + 3, held_out)
    return _noise_r2(m, k, 1, d_hat / (m - d_hat - 2)) if held_out else d_hat / (n - 1)


def mcc(
    z_hat: ArrayLike,
    z: ArrayLike,
    *,
    method: Method = "pearson",
    held_out: bool = True,
    random_state: RandomState = 0,
) -> float:
    r"""Mean correlation coefficient: mean absolute correlation under the best one-to-one matching of columns.

    .. math:: \frac1d \sum_j \bigl|\operatorname{corr}(\hat z_{\pi(j)}, z_j)\bigr|, \qquad
              \pi \text{ the matching with the largest sum}

    Blind to permutation, sign, shift and scale of each coordinate (``"spearman"``: to any monotone map of
    each); not to rotations. A code with more columns than ``z`` has the surplus left out; with fewer, each
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
        raise ValueError(f"mcc: method must be 'pearson' or 'spearman', got {method!r}.")
    a_hat, a = read_pair("mcc", z_hat, z)
    parts = in_halves("mcc", a_hat, a, 3, held_out, random_state)  # any two points correlate perfectly
    for part_hat, _ in parts:
        refuse_constant("mcc", "z_hat", part_hat, a_hat, "their correlation is undefined")
    fit, score = (absolute_correlation(*part, method) for part in parts)  # (d_hat, d) each
    return float(score[linear_sum_assignment(fit, maximize=True)].sum() / a.shape[1])


def chance_mcc(
    d: int,
    d_hat: int | None = None,
    *,
    method: Method = "pearson",
    n_draws: int = 2000,
    random_state: RandomState = 0,
) -> float:
    r"""Return the mean `mcc` of a random rotation of white latents: right in all but the axes.

    A column of the code is then a random direction of latent space, its entries the correlations with the
    latents; so the matching is done on Q itself, uniform on the orthogonal group, without a sample. With
    ``d_hat != d``, Q has orthonormal columns (fewer) or is a frame of unit vectors (more). Spearman's is that
    of Gaussian latents, :math:`\frac6\pi \arcsin\frac q2`; Pearson's holds for all white ones.

    Examples
    --------
    One latent has no axes to miss. Two have an angle: the larger of its cosine and sine averages √8/π = .9:

    >>> chance_mcc(1), round(chance_mcc(2), 1)
    (1.0, 0.9)
    """
    if method not in get_args(Method):
        raise ValueError(f"chance_mcc: method must be 'pearson' or 'spearman', got {method!r}.")
    d_hat = d if d_hat is None else d_hat
    require_positive("chance_mcc", d=d, d_hat=d_hat, n_draws=n_draws)
    gaussian = np.random.default_rng(random_state).normal(size=(n_draws, max(d, d_hat), min(d, d_hat)))
    # QR leaves the signs of the columns to LAPACK, so Q is not quite uniform; |Q| is (Mezzadri 2007).
    frame = np.abs(np.linalg.qr(gaussian).Q)
    directions = frame if d_hat <= d else np.swapaxes(frame, 1, 2)  # (n_draws, d, d_hat)
    correlations = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    if method == "spearman":
        correlations = 6 / np.pi * np.arcsin(correlations / 2)
    return float(np.mean([c[linear_sum_assignment(c, maximize=True)].sum() / d for c in correlations]))


@dataclass(frozen=True, eq=False)
class ProcrustesFit:
    """A similarity map from code to latents, ``scale * z_hat @ rotation + shift``, and how far it misses.

    ``relative_error`` is ‖z − map(ẑ)‖ / ‖z − mean z‖, in Frobenius norms over the scored rows.
    """

    rotation: Matrix
    scale: float
    shift: Matrix
    relative_error: float

    @property
    def r2(self) -> float:
        """R² pooled over the columns, which, unlike an average over them, no rotation of ``z`` changes."""
        return 1 - self.relative_error**2


def procrustes(
    z_hat: ArrayLike, z: ArrayLike, *, held_out: bool = True, random_state: RandomState = 0
) -> ProcrustesFit:
    r"""Best orthogonal map, scale and shift from the code to the latents, and its error.

    .. math:: \min_{Q^\top Q = I,\; s,\; b} \sum_i \lVert z_i - (s\, Q^\top \hat z_i + b) \rVert^2

    Blind to rotations, reflections, shifts, and one scale for all columns; sees columns stretched unequally.
    The ``r2`` of chance is just below 0 held-out: see `chance_procrustes`. After Schönemann (1966), *A
    generalized solution of the orthogonal Procrustes problem*.

    Examples
    --------
    A quarter turn at twice the size is undone by half the size:

    >>> z = np.random.default_rng(0).normal(size=(100, 2))
    >>> fit = procrustes(2 * z @ [[0, 1], [-1, 0]], z)
    >>> round(fit.scale, 6), round(fit.r2, 6)
    (0.5, 1.0)
    """
    a_hat, a = read_pair("procrustes", z_hat, z, square=True)
    needed = a.shape[1] + 3
    (fit_hat, fit), (score_hat, score) = in_halves("procrustes", a_hat, a, needed, held_out, random_state)
    refuse_constant("procrustes", "z_hat", fit_hat, a_hat, "no rotation can make latents of them")
    mean_hat, mean = fit_hat.mean(axis=0), fit.mean(axis=0)
    rotation, trace = orthogonal_procrustes(fit_hat - mean_hat, fit - mean)
    scale = float(trace / np.sum((fit_hat - mean_hat) ** 2))
    shift = mean - scale * mean_hat @ rotation
    miss = np.linalg.norm(score - (scale * score_hat @ rotation + shift))
    return ProcrustesFit(rotation, scale, shift, float(miss / np.linalg.norm(score - score.mean(axis=0))))


def chance_procrustes(
    n: int, d: int, *, held_out: bool = True, n_draws: int = 500, random_state: RandomState = 0
) -> float:
    r"""Return the mean ``r2`` of `procrustes` for a white Gaussian code that knows nothing of white latents.

    As `chance_linear_r2`, with the squared scale found in noise for b. That depends on the rows only through
    d × d matrices, :math:`\hat Z^\top \hat Z = L L^\top` and :math:`\hat Z^\top Z = L G` (L by Bartlett's
    decomposition, G Gaussian): these are what is drawn, so a million rows cost no more than ten.

    Examples
    --------
    With one column there is nothing to rotate, and the map is the affine one:

    >>> round(chance_procrustes(200, 1), 2), round(chance_linear_r2(200, 1), 2)
    (-0.03, -0.03)
    """
    require_positive("chance_procrustes", n=n, d=d, n_draws=n_draws)
    m, k = part_sizes("chance_procrustes", n, d + 3, held_out)
    rng = np.random.default_rng(random_state)
    bartlett = np.tril(rng.normal(size=(n_draws, d, d)), -1)
    bartlett[:, range(d), range(d)] = np.sqrt(rng.chisquare(m - 1 - np.arange(d), size=(n_draws, d)))
    gaussian = rng.normal(size=(n_draws, d, d))
    trace = np.linalg.svd(bartlett @ gaussian, compute_uv=False).sum(axis=1)
    size_hat = np.sum(bartlett**2, axis=(1, 2))
    if held_out:
        return _noise_r2(m, k, d, float(np.mean((trace / size_hat) ** 2)))
    # G is the part of z that the d columns of the code span; the other n − 1 − d directions add the rest.
    size = np.sum(gaussian**2, axis=(1, 2)) + rng.chisquare(d * (n - 1 - d), size=n_draws)
    return float(np.mean(trace**2 / (size_hat * size)))


@dataclass(frozen=True, eq=False)
class Orthogonality:
    """Singular values of a linear map, and their mean distance from a target: absolute and in its units."""

    absolute: float
    relative: float
    singular_values: Matrix
    target: float


def orthogonality_error(z_hat: ArrayLike, z: ArrayLike, *, target: float | None = 1.0) -> Orthogonality:
    r"""How far the best affine map from code to latents is from orthogonal × ``target``.

    .. math:: \frac1d \sum_j |\sigma_j(W) - t|, \qquad
              W, b = \arg\min \sum_i \lVert z_i - W^\top \hat z_i - b \rVert^2

    The target t is the scale the theory predicts, 1 where code and latents are both unit vectors; None takes
    the mean singular value, so that scale is free. Blind to rotations, reflections, shifts, and with None to
    how well the map predicts: read it with `linear_r2`. All rows are used, for the map itself is the result:
    noise spreads its singular values. Chance is about .5: see `chance_orthogonality_error`. After Reizinger
    et al. (2024), *Cross-Entropy Is All You Need To Invert the Data Generating Process*.

    Examples
    --------
    A code of twice the size is mapped back by singular values of 1/2:

    >>> z = np.random.default_rng(0).normal(size=(100, 2))
    >>> fixed, free = (orthogonality_error(2 * z, z, target=target) for target in (1, None))
    >>> round(fixed.absolute, 6), round(free.absolute, 6)
    (0.5, 0.0)
    """
    if target is not None and not 0 < target < np.inf:
        raise ValueError(f"orthogonality_error: target must be positive, got {target}; None frees the scale.")
    a_hat, a = read_pair("orthogonality_error", z_hat, z, square=True)
    (a_hat64, a64), _ = in_halves("orthogonality_error", a_hat, a, a.shape[1] + 3, held_out=False)
    refuse_constant("orthogonality_error", "z_hat", a_hat, a_hat, "no rotation can make latents of them")
    fit = LinearRegression().fit(a_hat64, a64)
    if target is None and fit.score(a_hat64, a64) < 1e-12:  # the singular values are rounding errors
        raise ValueError("orthogonality_error: z_hat predicts nothing of z, so there is no scale. Pass a target.")
    values = np.linalg.svd(fit.coef_, compute_uv=False)
    goal = float(values.mean()) if target is None else float(target)
    absolute = float(np.abs(values - goal).mean())
    return Orthogonality(absolute, absolute / goal, values, goal)


def chance_orthogonality_error(
    d: int, *, target: float | None = 1.0, n_draws: int = 500, random_state: RandomState = 0
) -> float:
    r"""Return the mean *relative* `orthogonality_error` of a random linear map.

    Its entries are independent Gaussians, its root mean square singular value the target: what a theorem that
    grants linear recovery, and no more, would leave. Being relative, it is the same for every number as
    ``target``; it differs for None, where the mean singular value takes that place.

    Examples
    --------
    The singular values of a large map follow the quarter-circle law on [0, 2], at mean distance .472 from 1:

    >>> round(chance_orthogonality_error(40), 1)
    0.5
    """
    require_positive("chance_orthogonality_error", d=d, n_draws=n_draws)
    maps = np.random.default_rng(random_state).normal(scale=d**-0.5, size=(n_draws, d, d))
    values = np.linalg.svd(maps, compute_uv=False)  # (n_draws, d)
    goal = values.mean(axis=1, keepdims=True) if target is None else 1.0
    return float(np.mean(np.abs(values - goal) / goal))


def _noise_r2(m: int, k: int, d: int, slope: float) -> float:
    # Expected R², pooled over d columns, on k new rows of a map fitted to m rows of noise. It misses by its
    # own variance (slope per column) and by the means of both halves; and E[1 / χ²_ν] = 1 / (ν − 2).
    return -d * ((1 + k / m) + slope * (k + k / m)) / (d * (k - 1) - 2)


def absolute_correlation(a: Matrix, b: Matrix, method: Method) -> Matrix:
    """Return the absolute correlation of each column of one matrix with each of another."""
    if method == "spearman":
        a, b = rankdata(a, axis=0), rankdata(b, axis=0)
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    product = (a / np.linalg.norm(a, axis=0)).T @ (b / np.linalg.norm(b, axis=0))
    return np.minimum(np.abs(product), 1)  # rounding can carry a perfect match past 1
