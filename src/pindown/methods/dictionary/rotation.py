r"""The linear map of the latents after which the fewest of them reach the fewest observed variables.

Let latents z be white, and :math:`M_i = E \nabla g_i \nabla g_i^\top`, one d×d matrix per observed variable. New
latents y = Aᵀz have unit variance if columns of A have unit length. With B = A⁻ᵀ the mean square of the derivative of
:math:`x_i` along :math:`y_j` is :math:`b_j^\top M_i b_j`. It vanishes exactly if :math:`x_i` does not depend on that
latent anywhere. So all maps can be searched without the data: rotations, which keep Gaussian latents independent, and
oblique maps, whose latents depend on each other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pindown.metrics.arrays import Matrix

STEPS, HALVINGS = 200, 12  # of the descent, and of a step that does not descend, at most
SAME_COUNT = 1e-6  # a step that gains less is the last
DEGENERATE = 0.02  # least eigenvalue of the correlations of latents; below it two of them are nearly the same
CORRELATED = 0.1  # correlation of latents of an oblique map that samples of independent latents do not have


class Resolution(NamedTuple):
    """What counts: derivatives well above ε, and oblique maps that save more latents per output than the margin.

    Both were chosen on simulations. Where latents are independent, an oblique map saves up to .03 by the derivatives of
    a known decoder, and up to .02 by those of a fit (.036 if that is short, or a latent reaches all that another does);
    where they correlate by .4 or more, mostly .06 and more.
    """

    epsilon: float
    margin: float


EXACT, TRAINED = Resolution(0.03, 0.04), Resolution(0.1, 0.025)  # derivatives of a fit have errors


class Optima(NamedTuple):
    """Where the starts of a search ended: maps A (starts, d, d), the best first, and their soft counts (starts,)."""

    maps: Matrix
    counts: Matrix


def rotation_optima(
    moments: Matrix, *, epsilon: float = EXACT.epsilon, n_starts: int = 64, random_state: int = 0
) -> Optima:
    r"""Return the orthogonal A that minimise a soft count of dependencies, from each start, the best first.

    .. math:: \sum_{ij} \log\bigl(b_j^\top M_i b_j + \epsilon^2\bigr), \qquad B = A^{-\top} = A

    The logarithm counts as the L0 norm of the theorem does; the L1 norm may prefer more but smaller dependencies.

    Examples
    --------
    Three observed variables depend on the first latent, the second, and both, behind a rotation:

    >>> rotation = np.array([[0.8, -0.6], [0.6, 0.8]])
    >>> moments = np.stack([rotation @ np.diag(s) @ rotation.T for s in ([1.0, 0.0], [0.0, 1.0], [1.0, 0.7])])
    >>> np.abs(rotation.T @ rotation_optima(moments).maps[0]).round(3) + 0.0
    array([[1., 0.],
           [0., 1.]])

    Where the decoder is the same for all rotations, all starts end equally well:

    >>> bool(np.ptp(rotation_optima(np.eye(2)[None], n_starts=4).counts) < 1e-9)
    True
    """
    return _optima(moments, epsilon, n_starts, random_state, oblique=False)


def oblique_optima(
    moments: Matrix, *, epsilon: float = EXACT.epsilon, n_starts: int = 64, random_state: int = 0
) -> Optima:
    r"""Return the invertible A with columns of unit length that minimise the count of `rotation_optima`.

    As factor analysts rotate obliquely where factors correlate. Maps whose latents are nearly the same are left out, so
    that there may be none; their derivatives are large, so the count does not favour them.
    """
    return _optima(moments, epsilon, n_starts, random_state, oblique=True)


class Sparsest(NamedTuple):
    """The best rotation, or the best oblique map where that is clearly sparser."""

    optima: Optima  # of the kind that was chosen
    rotation: float  # soft count of the best rotation
    gain: float  # by how much that of the best oblique map is lower; 0 if it is degenerate, or as good as a rotation
    is_oblique: bool


def sparsest(moments: Matrix, *, resolution: Resolution = EXACT, n_starts: int = 64, random_state: int = 0) -> Sparsest:
    """Return the best rotation, unless an oblique map saves more latents per observed variable than the margin.

    Correlations below `CORRELATED` may be those of a sample: then the rotation is kept, too.

    Examples
    --------
    >>> own = np.linalg.cholesky([[1.0, 0.6], [0.6, 1.0]])
    >>> for gradients in (np.eye(2), own):
    ...     print(sparsest(gradients[:, :, None] * gradients[:, None], n_starts=8).is_oblique)
    False
    True
    """
    epsilon, margin = resolution
    rotations = rotation_optima(moments, epsilon=epsilon, n_starts=n_starts, random_state=random_state)
    obliques = oblique_optima(moments, epsilon=epsilon, n_starts=n_starts, random_state=random_state)
    correlations = obliques.maps[:1].swapaxes(1, 2) @ obliques.maps[:1] - np.eye(moments.shape[1])
    is_clear = bool((np.abs(correlations) > CORRELATED).any())
    gain = float(rotations.counts[0] - obliques.counts[0]) if is_clear else 0.0
    is_oblique = gain > margin
    return Sparsest(obliques if is_oblique else rotations, float(rotations.counts[0]), gain, is_oblique)


def polished(moments: Matrix, linear: Matrix, *, epsilon: float, oblique: bool) -> Matrix:
    """Return the nearest optimum to a map A (d, d)."""
    return _descend(moments, linear[None], epsilon, oblique=oblique)[0]


def dependencies(moments: Matrix, maps: Matrix, epsilon: float = EXACT.epsilon) -> Matrix:
    """Return the soft number of latents that reach an observed variable, on average, after each of some maps."""
    counts, (m, d, _) = _count(_squares(moments, _inverse(maps)), epsilon), moments.shape
    return (counts / m - d * math.log(epsilon**2)) / math.log1p(1 / epsilon**2)


def _optima(moments: Matrix, epsilon: float, n_starts: int, random_state: int, *, oblique: bool) -> Optima:
    d = moments.shape[1]
    maps = np.linalg.qr(np.random.default_rng(random_state).normal(size=(n_starts, d, d)))[0]
    maps[0] = np.eye(d)
    for smooth in (3 * epsilon, epsilon):  # first smoothly, so that starts agree
        maps = _descend(moments, maps, smooth, oblique=oblique)
    maps = maps[np.linalg.eigvalsh(maps.swapaxes(1, 2) @ maps)[:, 0] > DEGENERATE]
    strength = _squares(moments, _inverse(maps)).sum(1)
    maps = np.take_along_axis(maps, (-strength).argsort(1, kind="stable")[:, None], axis=2)
    counts = dependencies(moments, maps, epsilon)
    order = counts.argsort(kind="stable")
    return Optima(maps[order], counts[order])


def _inverse(maps: Matrix) -> Matrix:
    """Return B = A⁻ᵀ of each map."""
    return np.asarray(np.linalg.inv(maps).swapaxes(1, 2), dtype=np.float64)


def _squares(moments: Matrix, inverse: Matrix) -> Matrix:
    """Return the mean squares b_jᵀ M_i b_j of derivatives along new latents; (starts, m, d)."""
    return np.asarray(np.einsum("saj,iab,sbj->sij", inverse, moments, inverse, optimize=True))


def _count(squares: Matrix, epsilon: float) -> Matrix:
    return np.asarray(np.log(np.maximum(squares, 0) + epsilon**2).sum((1, 2)))


def _descend(moments: Matrix, maps: Matrix, epsilon: float, *, oblique: bool) -> Matrix:
    r"""Return the maps after descents of the count from each, all at once.

    A step mixes latents, y_j ← y_j + Σ_k E_jk y_k, and scales them to unit variance. To first order the count changes
    by 2 Σ_jk E_jk (C_jk P_jj − P_jk), where P_jk = Σ_i w_ik b_jᵀ M_i b_k with w_ik = 1 / (b_kᵀ M_i b_k + ε²), and C are
    the correlations of the latents. Newton's step has the curvature Σ_i w_ik b_jᵀ M_i b_j + P_jj. E of a rotation is
    skew.
    """
    d, maps = maps.shape[1], maps.copy()
    counts = _count(_squares(moments, _inverse(maps)), epsilon)
    moving, rate = np.arange(len(maps)), np.ones(len(maps))
    for _ in range(STEPS):
        new, before = maps[moving], counts[moving]
        inverse = _inverse(new)
        products = inverse.swapaxes(1, 2)[:, None] @ (moments @ inverse[:, None])  # (starts, m, d, d)
        weights = 1 / (products.diagonal(axis1=2, axis2=3) + epsilon**2)  # (starts, m, d)
        p = np.einsum("sik,sijk->sjk", weights, products)
        own = p.diagonal(axis1=1, axis2=2)[:, :, None]
        gradient = new.swapaxes(1, 2) @ new * own - p
        curvature = np.einsum("sij,sik->sjk", products.diagonal(axis1=2, axis2=3), weights) + own
        if not oblique:
            gradient, curvature = gradient - gradient.swapaxes(1, 2), curvature + curvature.swapaxes(1, 2)
        step = -gradient / curvature * (1 - np.eye(d))
        slope = (gradient * step).sum((1, 2))
        left = np.arange(len(moving))  # those whose step does not descend yet
        for _ in range(HALVINGS):
            tried = new[left] @ (np.eye(d) + rate[moving[left], None, None] * step[left].swapaxes(1, 2))
            tried = tried / np.linalg.norm(tried, axis=1, keepdims=True) if oblique else np.linalg.qr(tried)[0]
            apart = np.linalg.eigvalsh(tried.swapaxes(1, 2) @ tried)[:, 0] > DEGENERATE / 2
            tried[~apart] = new[left][~apart]
            count = _count(_squares(moments, _inverse(tried)), epsilon)
            good = apart & (count <= before[left] + 1e-4 * rate[moving[left]] * slope[left])
            maps[moving[left[good]]], counts[moving[left[good]]] = tried[good], count[good]
            left = left[~good]
            rate[moving[left]] /= 3
            if not len(left):
                break
        rate[moving] = np.minimum(2 * rate[moving], 4)
        moving = moving[before - counts[moving] > SAME_COUNT]
        if not len(moving):
            break
    return maps
