"""The rotation of the latents in which the fewest of them reach the fewest observed variables.

Under a Gaussian prior the likelihood is the same for all rotations Q of z. With M_i = E ∇g_i ∇g_iᵀ, one d×d matrix per
observed variable, the mean square of the derivative along the new latent j is q_jᵀ M_i q_j. It vanishes exactly if x_i
does not depend on that latent anywhere. So all rotations can be searched without the data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pindown.metrics.arrays import Matrix

COARSE, FINE = 0.1, 0.03  # derivatives well below this count as none: first smoothly, so that starts agree
SWEEPS = 50  # how often every pair of axes is rotated, at most
ANGLES = np.linspace(-np.pi / 4, np.pi / 4, 33)[:-1]  # larger angles only swap the two axes


class Optima(NamedTuple):
    """Where the starts of a search ended: rotations (starts, d, d), the best first, and their soft counts (starts,)."""

    rotations: Matrix
    counts: Matrix


def rotation_optima(moments: Matrix, *, n_starts: int = 64, random_state: int = 0) -> Optima:
    r"""Return the orthogonal Q that minimise a soft count of dependencies, from each start, the best first.

    .. math:: \sum_{ij} \log\bigl(q_j^\top M_i q_j + \epsilon^2\bigr)

    The logarithm counts as the L0 norm of the theorem does; the L1 norm may prefer more but smaller dependencies.
    From each random start pairs of axes are rotated to their best angle in a quarter circle, with a large ε first.

    Parameters
    ----------
    moments
        The matrices M_i, (m, d, d), of standardised derivatives.
    n_starts
        Random orthogonal matrices to start from.
    random_state
        Seed of the starts.

    Examples
    --------
    Three observed variables depend on the first latent, the second, and both, behind a rotation:

    >>> rotation = np.array([[0.8, -0.6], [0.6, 0.8]])
    >>> moments = np.stack([rotation @ np.diag(s) @ rotation.T for s in ([1.0, 0.0], [0.0, 1.0], [1.0, 0.7])])
    >>> np.abs(rotation.T @ rotation_optima(moments).rotations[0]).round(3) + 0.0
    array([[1., 0.],
           [0., 1.]])

    Where the decoder is the same for all rotations, all starts end equally well:

    >>> bool(np.ptp(rotation_optima(np.eye(2)[None], n_starts=4).counts) < 1e-9)
    True
    """
    d = moments.shape[1]
    starts = np.random.default_rng(random_state).normal(size=(n_starts, d, d))
    q = np.linalg.qr(starts)[0]
    q[0] = np.eye(d)
    for epsilon in (COARSE, FINE):
        q, counts = _rotate_pairs(moments, q, epsilon)
    strength = np.einsum("saj,iab,sbj->sj", q, moments, q, optimize=True)
    q = np.take_along_axis(q, (-strength).argsort(1, kind="stable")[:, None], axis=2)
    order = counts.argsort(kind="stable")
    return Optima(q[order], _per_output(counts[order], len(moments), d))


def dependencies(moments: Matrix, rotations: Matrix) -> Matrix:
    """Return the soft number of latents that reach an observed variable, on average, for each of some rotations.

    Examples
    --------
    >>> dependencies(np.diag([1.0, 0.0])[None], np.eye(2)[None]).round(6).tolist()
    [1.0]
    """
    squares = np.einsum("saj,iab,sbj->sij", rotations, moments, rotations, optimize=True)
    return _per_output(_count(squares, FINE), len(moments), moments.shape[1])


def _per_output(counts: Matrix, m: int, d: int) -> Matrix:
    """Return sums of logarithms as soft numbers of latents that reach an observed variable, on average."""
    return (counts / m - d * math.log(FINE**2)) / math.log1p(1 / FINE**2)


def _rotate_pairs(moments: Matrix, q: Matrix, epsilon: float) -> tuple[Matrix, Matrix]:
    """Rotate pairs of axes of every start until none improves; return them, and their counts."""
    d, q = q.shape[1], q.copy()
    counts, moving = np.empty(len(q)), np.arange(len(q))
    current, rotated = q[moving], np.einsum("saj,iab,sbk->sijk", q, moments, q, optimize=True)  # (starts, m, d, d)
    for _ in range(SWEEPS):
        before = _count(rotated.diagonal(axis1=2, axis2=3), epsilon)
        for j in range(d):
            for k in range(j + 1, d):
                angle = _best_angle(rotated[:, :, j, j], rotated[:, :, k, k], rotated[:, :, j, k], epsilon)
                for axis, array in ((2, current), (2, rotated), (3, rotated)):
                    _rotate(array, axis, j, k, angle)
        after = _count(rotated.diagonal(axis1=2, axis2=3), epsilon)
        q[moving], counts[moving] = current, after
        on = before - after >= 1e-6
        moving, current, rotated = moving[on], current[on], rotated[on]
        if not len(moving):
            break
    return q, counts


def _count(squares: Matrix, epsilon: float) -> Matrix:
    return np.asarray(np.log(np.maximum(squares, 0) + epsilon**2).sum((1, 2)))


def _best_angle(a: Matrix, b: Matrix, c: Matrix, epsilon: float) -> Matrix:
    """Return the best angle for two axes whose squares are a and b and whose product is c, (starts, m) each."""
    middle, half, cross = (a + b)[..., None] / 2, (a - b)[..., None] / 2, c[..., None]

    def cost(angle: Matrix) -> Matrix:  # (starts or 1, angles) -> (starts, angles)
        swing = half * np.cos(2 * angle)[:, None] + cross * np.sin(2 * angle)[:, None]
        # log(e_j + ε²) + log(e_k + ε²), where the squares e_j, e_k of the rotated axes are middle ± swing
        return np.asarray(np.log(np.maximum((middle + epsilon**2) ** 2 - swing**2, epsilon**4)).sum(1))

    angle, step = ANGLES[cost(ANGLES[None]).argmin(1)], ANGLES[1] - ANGLES[0]
    for _ in range(3):
        near = angle[:, None] + np.linspace(-step, step, 9)
        angle, step = near[np.arange(len(near)), cost(near).argmin(1)], step / 4
    stay = cost(np.zeros((1, 1)))[:, 0] - cost(angle[:, None])[:, 0] < 1e-10
    return np.where(stay, 0.0, angle)


def _rotate(array: Matrix, axis: int, j: int, k: int, angle: Matrix) -> None:
    """Rotate coordinates j and k along an axis of each start's array; in place."""
    coordinates = np.moveaxis(array, axis, 1)
    shape = (-1, *(1,) * (coordinates.ndim - 2))
    cosine, sine = np.cos(angle).reshape(shape), np.sin(angle).reshape(shape)
    first, second = coordinates[:, j].copy(), coordinates[:, k].copy()
    coordinates[:, j], coordinates[:, k] = cosine * first + sine * second, cosine * second - sine * first
