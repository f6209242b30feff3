r"""Charts of bodies, by closed forms: what the action changes in a body, read off a transition by a matrix of its own.

An arm that is told to move its hand moves otherwise, too: it swings on, it sags, its wrist turns. In joints this is as
large as what was told, so that the leading directions of displacements are not those of the action. But it follows
from what went before, and the action does not. So the *innovations* of displacements are looked at, what their past
does not tell; their leading directions are those that an action takes. With pairs there is a second way: what the
motions of several bodies share is the action, and all else is each body's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import eigh
from sklearn.linear_model import RidgeCV

from pindown.methods.latent_action.recordings import Recording, Ties

N_PAST = 2
"""Displacements before a transition that are looked at for what they tell of it."""

ROWS_PER_REGRESSOR = 5
"""Transitions with a past that it takes, for each number of it, to say what the past tells."""

LEAST_SIZE = 0.01
"""Variance of innovations, as a share of the largest, that is none."""

ROUNDS = 8
"""Times that bodies agree on codes of what they do in pairs; chosen on recordings of which nothing is reported."""

PENALTIES = np.logspace(-4, 4, 17)
"""Of ridge regressions, from which leave-one-out chooses, in units of the inputs' variance."""


@dataclass(frozen=True, eq=False)
class BodyChart:
    r"""A body's codes, :math:`z = R^\top (c - m)` of changes c, and where codes lead from each observation.

    Attributes
    ----------
    centre : ndarray of shape (c,)
        m, the mean change: of displacements, or of what moved in frames.
    reading : ndarray of shape (c, k)
        R.
    by : str
        What R was found by: "innovations", "displacements" if no transition has a past, "pairs", or "codes" of others.
    place, unit : ndarray of shape (d,)
        Mean and spread of observations, by which the forward model standardises them.
    forward : ndarray of shape ((1 + k)(1 + d), d)
        Its coefficients: the displacement is linear in the codes, and by how much is linear in the observation.
    """

    centre: np.ndarray
    inputs: np.ndarray
    by: str
    place: np.ndarray
    unit: np.ndarray
    forward: np.ndarray

    def encode(self, recording: Recording) -> np.ndarray:
        """Return codes of transitions; (n, k)."""
        return (recording.change - self.centre) @ self.inputs

    def lead(self, before: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return where codes lead; (n, d) and (n, k) → (n, d)."""
        return before + _bilinear((before - self.place) / self.unit, codes) @ self.forward


def _bilinear(x: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return 1, codes, observations, and all products of the last two; (n, (1 + k)(1 + d))."""
    one = np.ones((len(x), 1))
    left, right = np.hstack([one, codes]), np.hstack([one, x])
    return (left[:, :, None] * right[:, None, :]).reshape(len(x), -1)


def innovations(recording: Recording) -> np.ndarray | None:
    """Return what their past does not tell of displacements, (m, d), or None where too few have one.

    Examples
    --------
    A hand that is pushed at random along one axis, and swings on along the other, moves farther along the other:

    >>> push = np.random.default_rng(0).normal(size=500)
    >>> swing = np.convolve(push, [0, 2.0, 2.0])[:500]
    >>> path = np.cumsum(np.stack([push, swing], 1), 0)
    >>> moved = Recording(path[:-1], path[1:], np.zeros(499))
    >>> moved.change.var(0).round(), innovations(moved).var(0).round()
    (array([1., 8.]), array([1., 0.]))
    """
    change, follows = recording.change, recording.follows()
    known = follows.copy()
    for step in range(1, N_PAST):
        known &= np.roll(follows, step)
    rows = np.flatnonzero(known)
    rows = rows[rows >= N_PAST]
    if len(rows) < ROWS_PER_REGRESSOR * (N_PAST * change.shape[1] + 1):
        return None
    past = np.hstack([np.ones((len(rows), 1)), *(change[rows - step] for step in range(1, N_PAST + 1))])
    return change[rows] - past @ np.linalg.lstsq(past, change[rows], rcond=None)[0]


def sizes(recording: Recording) -> np.ndarray:
    """Return the variances of innovations (or else of displacements) along their principal axes, the largest first."""
    new = innovations(recording)
    return np.linalg.eigvalsh(_moments(recording.change if new is None else new))[::-1]


def counted(spectra: list[np.ndarray]) -> int:
    """Return how many directions actions take: where variances fall most, in the mean over bodies of their logarithms.

    A single body's fall may be an accident of its joints; that of all is where the action ends. Joints that turn far
    for a short way make the first variance large, whatever the action: so a fall behind k variances counts √k times.
    What is below a hundredth of the largest variance is none.

    Examples
    --------
    >>> counted([np.array([9, 5, 4, 0.3, 0.1]), np.array([7, 6, 2, 0.1, 0.05, 0.02])])
    3
    >>> counted([np.array([9, 5, 4]), np.array([7, 6, 2, 0.1])])
    3
    >>> counted([np.array([9, 1.6, 1.2, 0.2, 0.1]), np.array([9, 1.4, 1, 0.25, 0.1])])
    3
    """
    logs = [np.log(np.maximum(np.append(each, 0.0) / each[0], LEAST_SIZE)) for each in spectra]
    falls = [k**0.5 * np.mean([each[k - 1] - each[k] for each in logs]) for k in range(1, min(map(len, logs)))]
    return 1 + int(np.argmax(falls))


def by_innovations(recording: Recording, n_codes: int) -> BodyChart:
    """Read displacements along the leading directions of innovations, in the units of the columns."""
    change, new = recording.change, innovations(recording)
    centre = change.mean(0)
    axes = np.linalg.eigh(_moments(change - centre if new is None else new))[1][:, ::-1][:, :n_codes]
    return _unled(recording, centre, axes, "displacements" if new is None else "innovations")


def by_pairs(
    recordings: Mapping[Any, Recording], paired: Mapping[Any, Recording], ties: Ties, n_codes: int
) -> dict[Any, BodyChart]:
    r"""Read off each body what it shares with others: codes of motions on which all agree.

    First codes Z of the motions, (motions, k), maximise :math:`\sum_e \mathrm{tr}\, Z_e^\top H_e Z_e`, with :math:`Z_e`
    those that body e makes and :math:`H_e` the regression from its codes by innovations, among codes with
    :math:`\sum_e Z_e^\top Z_e = I` (Kettenring, 1971: canonical correlations of several sets). Then, a few times, each
    body reads Z off all that it shows, by `joined`, and Z becomes the mean of what bodies read: what is wrong in one
    body is not what is wrong in another. It ends soon, for what bodies share beyond the action, a wrist that swings
    along in all of them, would be found in the end.
    """
    told, count = np.zeros((ties.n_motions, ties.n_motions)), np.zeros(ties.n_motions)
    for body, motions in ties.motions.items():
        own = by_innovations(recordings[body], n_codes).encode(paired[body])
        np.add.at(told, (motions[:, None], motions[None, :]), own @ np.linalg.pinv(own))
        np.add.at(count, motions, 1.0)
    shared = eigh(told, np.diag(count))[1][:, ::-1][:, :n_codes]
    for _ in range(ROUNDS):
        shared = shared @ power(_moments(shared), -0.5)
        charts = {body: joined(recordings[body], paired[body], shared[ties.motions[body]]) for body in recordings}
        shared = np.zeros_like(shared)
        for body, motions in ties.motions.items():
            np.add.at(shared, motions, charts[body].encode(paired[body]))
        shared /= count[:, None]
    return charts


def joined(recording: Recording, paired: Recording, codes: np.ndarray) -> BodyChart:
    """Read codes that are known of some transitions off a body's displacements, by a ridge regression.

    All of the body's transitions say what its displacements are like; the regression chooses its penalty itself.
    """
    centre, unit = recording.change.mean(0), recording.change.std(0)
    if recording.moved is not None:  # all in pixels, so that what moves little is mostly noise, and stays little
        unit = np.full_like(unit, np.sqrt((unit**2).mean()))
    unit = np.where(unit > 0, unit, 1.0)
    ridge = RidgeCV(PENALTIES, fit_intercept=False).fit((paired.change - centre) / unit, codes)
    inputs = np.reshape(ridge.coef_, (codes.shape[1], -1)).T / unit[:, None]
    return _unled(recording, centre, inputs, "pairs")


def evened(charts: Mapping[Any, BodyChart], recordings: Mapping[Any, Recording]) -> dict[Any, BodyChart]:
    """Give codes of all bodies one covariance, I, by the smallest moves that do: first the mean one, then I."""
    own = {body: _moments(charts[body].encode(each)) for body, each in recordings.items()}
    common = np.mean(list(own.values()), axis=0)
    white = power(common, -0.5)
    turns = {body: carried(each, common) @ white for body, each in own.items()}
    return {body: replace(charts[body], inputs=charts[body].inputs @ turn) for body, turn in turns.items()}


def adopted(recording: Recording, paired: Recording, codes: np.ndarray) -> BodyChart:
    """Let a body join others whose codes, of covariance I, are known of some of its transitions."""
    chart = joined(recording, paired, codes)
    own = _moments(chart.encode(recording))
    chart = replace(chart, inputs=chart.inputs @ carried(own, np.eye(len(own))), by="codes")
    return led(chart, recording, chart.encode(recording))


def carried(own: np.ndarray, common: np.ndarray) -> np.ndarray:
    """Return the symmetric map that turns one covariance into another and moves rows least."""
    root, back = power(own, 0.5), power(own, -0.5)
    return back @ power(root @ common @ root, 0.5) @ back


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    """Return a power of a covariance."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 1e-12 * values.max()) ** exponent) @ vectors.T


def led(chart: BodyChart, recording: Recording, codes: np.ndarray) -> BodyChart:
    """Fit the forward model to codes, which may have been changed since they were read."""
    place, unit = recording.before.mean(0), recording.before.std(0)
    unit = np.where(unit > 0, unit, 1.0)
    inputs = _bilinear((recording.before - place) / unit, codes)
    size = inputs.T @ inputs
    penalty = 1e-4 * np.trace(size) / len(size) * np.eye(len(size))
    step = recording.after - recording.before
    return replace(chart, place=place, unit=unit, forward=np.linalg.solve(size + penalty, inputs.T @ step))


def _unled(recording: Recording, centre: np.ndarray, inputs: np.ndarray, by: str) -> BodyChart:
    d, k = recording.before.shape[1], inputs.shape[1]
    return BodyChart(centre, inputs, by, np.zeros(d), np.ones(d), np.zeros(((1 + k) * (1 + d), d)))


def _moments(x: np.ndarray) -> np.ndarray:
    return x.T @ x / len(x)
