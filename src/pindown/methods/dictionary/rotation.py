"""The rotation of the latents in which the fewest of them reach the fewest observed variables.

A Gaussian prior does not see a rotation of z, so the likelihood leaves it open. What a rotation Q does to the decoder's
dependence on single latents is known from one d×d matrix per observed variable, its mean outer product of gradients
M_i = E ∇g_i ∇g_iᵀ: the mean square of the derivative along the new latent j is q_jᵀ M_i q_j. It vanishes exactly
if x_i does not depend on that latent anywhere, and M_i has rank |I_i| exactly if x_i is sufficiently nonlinear. So all
rotations can be searched without touching the data again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

COARSE, FINE = 0.1, 0.03
"""Derivatives well below this, in standardised units, count as none: first so that starts agree, then sharply."""

SWEEPS = 50
"""How often every pair of axes is turned, at most."""

ANGLES = np.linspace(-np.pi / 4, np.pi / 4, 33)[:-1]  # turning two axes further only swaps them


class Searched(NamedTuple):
    """Where the starts of a search ended: rotations (starts, d, d), the best first, and their soft counts (starts,)."""

    rotations: np.ndarray
    counts: np.ndarray


def sparsest_rotation(moments: np.ndarray, *, n_starts: int = 64, random_state: int = 0) -> np.ndarray:
    r"""Return the orthogonal Q that minimises a soft count of dependencies.

    .. math:: \sum_{ij} \log\bigl(q_j^\top M_i q_j + \epsilon^2\bigr)

    The logarithm counts as the L0 norm of the theorem does: the L1 norm would pay for the size of derivatives, and
    prefers now and then a basis with more but smaller ones. From each random start pairs of axes are turned to their
    best angle in all of a quarter circle, with a large ε first.

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
    Three observed variables that depend on the first latent, the second, and both, seen at an angle:

    >>> turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    >>> moments = np.stack([turn @ np.diag(s) @ turn.T for s in ([1.0, 0.0], [0.0, 1.0], [1.0, 0.7])])
    >>> np.abs(turn.T @ sparsest_rotation(moments)).round(3) + 0.0
    array([[1., 0.],
           [0., 1.]])
    """
    return searched(moments, n_starts=n_starts, random_state=random_state).rotations[0]


def searched(moments: np.ndarray, *, n_starts: int = 64, random_state: int = 0) -> Searched:
    """Return where each start of `sparsest_rotation` ended, so that the best can be compared with the next.

    Examples
    --------
    Where the decoder looks the same from all sides every start ends as well as any other:

    >>> bool(np.ptp(searched(np.eye(2)[None], n_starts=4).counts) < 1e-9)
    True
    """
    d = moments.shape[1]
    starts = np.random.default_rng(random_state).normal(size=(n_starts, d, d))
    q = np.linalg.qr(starts)[0]
    q[0] = np.eye(d)
    for epsilon in (COARSE, FINE):
        q, counts = _turn_pairs(moments, q, epsilon)
    strength = np.einsum("saj,iab,sbj->sj", q, moments, q, optimize=True)
    q = np.take_along_axis(q, (-strength).argsort(1, kind="stable")[:, None], axis=2)
    order = counts.argsort(kind="stable")
    return Searched(q[order], reaching(counts[order], len(moments), d))


def reaching(counts: np.ndarray, m: int, d: int) -> np.ndarray:
    """Return sums of logarithms as soft numbers of latents that reach an observed variable, on average."""
    return (counts / m - d * math.log(FINE**2)) / math.log1p(1 / FINE**2)


def reached_by(moments: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    """Return the soft number of latents that reach an observed variable, on average, for each of some rotations.

    Examples
    --------
    >>> reached_by(np.diag([1.0, 0.0])[None], np.eye(2)[None]).round(6).tolist()
    [1.0]
    """
    squares = np.einsum("saj,iab,sbj->sij", rotations, moments, rotations, optimize=True)
    return reaching(_count(squares, FINE), len(moments), moments.shape[1])


def _turn_pairs(moments: np.ndarray, q: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Turn pairs of axes of every start until no turn helps; return them, and their counts."""
    d, q = q.shape[1], q.copy()
    counts, moving = np.empty(len(q)), np.arange(len(q))
    turned, seen = q[moving], np.einsum("saj,iab,sbk->sijk", q, moments, q, optimize=True)  # (starts, m, d, d)
    for _ in range(SWEEPS):
        before = _count(seen.diagonal(axis1=2, axis2=3), epsilon)
        for j in range(d):
            for k in range(j + 1, d):
                angle = _best_angle(seen[:, :, j, j], seen[:, :, k, k], seen[:, :, j, k], epsilon)
                for axis, array in ((2, turned), (2, seen), (3, seen)):
                    _turn(array, axis, j, k, angle)
        after = _count(seen.diagonal(axis1=2, axis2=3), epsilon)
        q[moving], counts[moving] = turned, after
        on = before - after >= 1e-6
        moving, turned, seen = moving[on], turned[on], seen[on]
        if not len(moving):
            break
    return q, counts


def _count(squares: np.ndarray, epsilon: float) -> np.ndarray:
    return np.log(np.maximum(squares, 0) + epsilon**2).sum((1, 2))


def _best_angle(a: np.ndarray, b: np.ndarray, c: np.ndarray, epsilon: float) -> np.ndarray:
    """Return by how much to turn two axes whose squares are a and b and whose product is c, (starts, m) each."""
    middle, half, cross = (a + b)[..., None] / 2, (a - b)[..., None] / 2, c[..., None]

    def cost(angle: np.ndarray) -> np.ndarray:  # (starts or 1, angles) -> (starts, angles)
        swing = half * np.cos(2 * angle)[:, None] + cross * np.sin(2 * angle)[:, None]
        # log(e_j + ε²) + log(e_k + ε²), where the squares e_j, e_k of the turned axes are middle ± swing
        return np.log(np.maximum((middle + epsilon**2) ** 2 - swing**2, epsilon**4)).sum(1)

    angle, step = ANGLES[cost(ANGLES[None]).argmin(1)], ANGLES[1] - ANGLES[0]
    for _ in range(3):
        near = angle[:, None] + np.linspace(-step, step, 9)
        angle, step = near[np.arange(len(near)), cost(near).argmin(1)], step / 4
    stay = cost(np.zeros((1, 1)))[:, 0] - cost(angle[:, None])[:, 0] < 1e-10
    return np.where(stay, 0.0, angle)


def _turn(array: np.ndarray, axis: int, j: int, k: int, angle: np.ndarray) -> None:
    """Turn coordinates j and k along an axis of each start's array; in place."""
    coordinates = np.moveaxis(array, axis, 1)
    shape = (-1, *(1,) * (coordinates.ndim - 2))
    cosine, sine = np.cos(angle).reshape(shape), np.sin(angle).reshape(shape)
    first, second = coordinates[:, j].copy(), coordinates[:, k].copy()
    coordinates[:, j], coordinates[:, k] = cosine * first + sine * second, cosine * second - sine * first
