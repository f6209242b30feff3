r"""Sights: where a body is that a camera sees, as a few numbers that take the place of its joints; by closed forms.

What moves between two frames is told by their `flow`, which codes are read off. Where codes lead depends on where the
body is, and for that the numbers are the *slow* directions of frames (Wiskott and Sejnowski, 2002) within episodes:
those that change least in a step, of what they vary in an episode. What differs between episodes only, where a cube
lies, counts for nothing, for it is no action's work. They cannot collapse, since each has unit variance within
episodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh
from sklearn.preprocessing import PolynomialFeatures

from pindown.data import ArraySource
from pindown.methods.latent_action.flow import Flow, find_flow
from pindown.methods.latent_action.recordings import Recording
from pindown.networks.spectrum import leading_directions

N_SEEN, N_CODES = 6, 12
"""Slow directions that are seen of a body, and codes unless a number is asked for. An arm's posture is more than where
its hand is, and what goes towards the camera shows little; chosen on a recording of which nothing is reported."""

DIRECTIONS, SAMPLES_PER_DIRECTION = 64, 10
"""Leading directions of frames among which slow ones are looked for, and transitions that each of them takes."""

DEGREE, PENALTY = 3, 1e-3
"""Of the polynomial that draws frames, and its ridge penalty, as a share of the mean square of its terms."""


@dataclass(frozen=True, eq=False)
class Sight:
    r"""What is seen of frames, :math:`q = R^\top (x - m)`, and how frames change with it.

    Attributes
    ----------
    shape : tuple of int
        Of a frame.
    mean : ndarray of shape (d,)
        m, of frames laid out as vectors.
    axes : ndarray of shape (d, m)
        Leading directions of frames within episodes.
    slow : ndarray of shape (m, k)
        Slow directions along them: :math:`R` is ``axes @ slow``.
    slowness : ndarray of shape (k,)
        Mean square of a step along each, as a share of its variance within episodes; the slowest first.
    unit : ndarray of shape (k,)
        Spread of what is seen, by which the polynomial standardises it.
    range : ndarray of shape (2, k)
        The least and the most that was seen; beyond, a polynomial says nothing, and nothing is drawn.
    drawing : ndarray of shape (n_terms, m)
        Coefficients of a polynomial that tells frames, along the axes, from what is seen.
    flow : Flow
        What moves in frames, which codes are read off.
    """

    shape: tuple[int, ...]
    mean: np.ndarray
    axes: np.ndarray
    slow: np.ndarray
    slowness: np.ndarray
    unit: np.ndarray
    range: np.ndarray
    drawing: np.ndarray
    flow: Flow

    def see(self, frames: np.ndarray) -> np.ndarray:
        """Return what is seen of frames; (n, …) → (n, k)."""
        flat = frames.reshape(len(frames), -1)
        return (flat @ self.axes - self.mean @ self.axes).astype(np.float64) @ self.slow

    def seen(self, recording: Recording) -> Recording:
        """Return transitions as they are seen."""
        before, after = recording.before, recording.after
        return Recording(self.see(before), self.see(after), recording.episode, self.flow.moved(before, after))

    def draw(self, frames: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Change frames until that is what is seen of them, as far as it ever was; (n, …) and (n, k) → (n, …).

        What does not move with the body stays as it is.
        """
        change = (self._terms(seen) - self._terms(self.see(frames))) @ self.drawing
        return frames + (change.astype(self.axes.dtype) @ self.axes.T).reshape(frames.shape)

    def _terms(self, seen: np.ndarray) -> np.ndarray:
        return _terms(np.clip(seen, *self.range) / self.unit)


def find_sight(recording: Recording, n_seen: int = N_SEEN) -> Sight:
    """Find the slow directions of a body's frames, so many of them, how frames change along them, and what moves.

    Examples
    --------
    A bright bar that wanders over eight pixels, two of which flicker far more than it moves:

    >>> rng = np.random.default_rng(0)
    >>> place = 4 + 2 * np.sin(np.cumsum(rng.normal(0, 0.3, size=(20, 21)), axis=1))
    >>> film = np.exp(-((np.arange(8) - place[..., None]) ** 2) / 4)
    >>> film[..., [0, 7]] += rng.normal(size=(20, 21, 2))
    >>> film = np.repeat(film[..., None, None, :], 2, axis=-2)
    >>> before, after = (film[:, part].reshape(-1, 1, 2, 8) for part in (slice(-1), slice(1, None)))
    >>> sight = find_sight(Recording(before, after, np.repeat(np.arange(20), 20)), 1)
    >>> bool(abs(np.corrcoef(sight.see(before)[:, 0], place[:, :-1].ravel())[0, 1]) > 0.8)
    True
    """
    frames = recording.before.reshape(len(recording), -1)
    _, episode, lengths = np.unique(recording.episode, return_inverse=True, return_counts=True)
    sums = np.zeros((len(lengths), frames.shape[1]), dtype=frames.dtype)
    np.add.at(sums, episode, frames)
    n_axes = max(n_seen, min(DIRECTIONS, len(recording) // SAMPLES_PER_DIRECTION))
    within = frames - (sums / lengths[:, None].astype(frames.dtype))[episode]
    found = leading_directions(ArraySource(torch.as_tensor(within)), n_axes)
    axes, variance = found.directions.numpy(), found.variance.numpy()
    steps = (recording.change.reshape(len(recording), -1) @ axes).astype(np.float64)
    slowness, slow = (part[..., :n_seen] for part in eigh(steps.T @ steps / len(steps), np.diag(variance)))
    mean = frames.mean(0)
    along = (frames @ axes - mean @ axes).astype(np.float64)
    seen = along @ slow
    unit = seen.std(0)
    terms = _terms(seen / unit)
    size = terms.T @ terms
    penalty = PENALTY * np.trace(size) / len(size) * np.eye(len(size))
    drawing = np.linalg.solve(size + penalty, terms.T @ along)
    span = np.stack([seen.min(0), seen.max(0)])
    return Sight(recording.before.shape[1:], mean, axes, slow, slowness, unit, span, drawing, find_flow(recording))


def _terms(x: np.ndarray) -> np.ndarray:
    return PolynomialFeatures(DEGREE).fit_transform(x)
