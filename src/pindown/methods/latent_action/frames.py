r"""Features of frames: what moves between two frames, and a few slow features of one; in closed form.

The change of pixels does not grow with the length of a motion, so motion is measured by optical flow (Lucas and Kanade,
1981): if all pixels p of a window move by u, :math:`\nabla x(p) \cdot u = x(p) - x'(p)`. u is the least-squares
solution over the window's pixels and channels, shrunk to 0 where brightness has no slope. Where latents lead depends
on the posture of the body, which slow features measure (Wiskott and Sejnowski, 2002): directions of frames that change
least in a step, relative to their variance within episodes. What only differs between episodes is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.ndimage import gaussian_filter, gaussian_filter1d
from sklearn.preprocessing import PolynomialFeatures

from pindown.data import ArraySource
from pindown.methods.latent_action.transitions import Observations, Transitions
from pindown.metrics.arrays import Matrix
from pindown.networks.preprocessing import leading_directions

# All settings were chosen on a recording of which nothing is reported.
N_SLOW = 6  # slow features of a body
N_COMPONENTS = 12  # latents, unless `n_components` says how many
DIRECTIONS, SAMPLES_PER_DIRECTION = 64, 10  # leading directions of frames, and transitions for each of them
DEGREE, PENALTY = 3, 1e-3  # of the polynomial that predicts frames; relative to the mean square of its terms
N_WINDOWS = 8  # along the shorter edge of a frame
BLUR, WINDOW = 1.0, 0.375  # standard deviations: of the blur, in pixels, and of the windows, in their widths
MIN_SLOPE = 0.01  # squared slope that is added to that of each window, relative to the mean of whole frames
N_MOTIONS, SAMPLES_PER_MOTION = 16, 10  # leading directions of the flow, and transitions for each of them
AT_ONCE = 256  # frames whose slopes are in memory


@dataclass(frozen=True, eq=False)
class OpticalFlow:
    """Leading directions of the optical flow between frames."""

    least: float  # squared slope that is added to that of each window
    mean: Matrix  # flow of all windows; (d,)
    axes: Matrix  # leading directions; (d, m)

    @classmethod
    def fitted(cls, transitions: Transitions) -> OpticalFlow:
        """Find the leading directions of a body's flow."""
        some = gaussian_filter(transitions.before[: 4 * AT_ONCE : 4], (0, 0, BLUR, BLUR))
        least = MIN_SLOPE * float(sum((each**2).sum(1).mean() for each in np.gradient(some, axis=(2, 3))))
        flows = window_flow(transitions.before, transitions.after, least)
        mean = flows.mean(0)
        n_axes = min(flows.shape[1], max(1, min(N_MOTIONS, len(transitions) // SAMPLES_PER_MOTION)))
        found = leading_directions(ArraySource(torch.as_tensor(flows - mean)), n_axes)
        return cls(least, mean, found.directions.numpy())

    def __call__(self, before: Observations, after: Observations) -> Matrix:
        """Return what moved between frames; (n, c, h, w) twice → (n, m)."""
        return (window_flow(before, after, self.least) - self.mean) @ self.axes


def window_flow(before: Observations, after: Observations, least: float) -> Matrix:
    """Return how far each window moved, along rows and then along columns; (n, c, h, w) twice → (n, d).

    Examples
    --------
    A slope that moves by half a pixel to the right:

    >>> columns = np.broadcast_to(np.arange(16.0), (1, 1, 16, 16))
    >>> found = window_flow(columns, columns - 0.5, 1e-9).reshape(2, 8, 8)
    >>> float(found[1, 4, 4].round(3))
    0.5
    """
    if len(before) > AT_ONCE:
        parts = (slice(i, i + AT_ONCE) for i in range(0, len(before), AT_ONCE))
        return np.concatenate([window_flow(before[part], after[part], least) for part in parts])
    first, second = (gaussian_filter(frames, (0, 0, BLUR, BLUR)) for frames in (before, after))
    change = second - first
    slope_y, slope_x = np.gradient((first + second) / 2, axis=(2, 3))
    size = max(1, min(before.shape[2:]) // N_WINDOWS)
    weights_y, weights_x = (_window_weights(n, size).astype(change.dtype) for n in before.shape[2:])

    def mean(product: Observations) -> Matrix:
        return (weights_y @ product.sum(1) @ weights_x.T).astype(np.float64)

    xy, yy, xx = mean(slope_y * slope_x), mean(slope_y**2) + least, mean(slope_x**2) + least
    yt, xt = mean(slope_y * change), mean(slope_x * change)
    determinant = yy * xx - xy**2
    moved = (xy * xt - xx * yt) / determinant, (xy * yt - yy * xt) / determinant
    return np.concatenate([each.reshape(len(before), -1) for each in moved], 1)


@cache
def _window_weights(n_pixels: int, size: int) -> Matrix:
    """Return the Gaussian weights of pixels along an edge in each window; (windows, n_pixels)."""
    return gaussian_filter1d(np.eye(n_pixels), max(1.0, WINDOW * size), axis=0)[size // 2 :: size]


@dataclass(frozen=True, eq=False)
class SlowFeatures:
    """A few slow features of a body's frames, and how frames change with them."""

    shape: tuple[int, ...]  # of a frame
    mean: NDArray[np.floating]  # frame, as a vector; (d,)
    axes: NDArray[np.floating]  # leading directions of frames within episodes; (d, m)
    slow: Matrix  # slow directions along the axes; (m, k)
    unit: Matrix  # standard deviation of the features; (k,)
    range: Matrix  # least and largest value of each feature, since frames are not extrapolated; (2, k)
    decoder: Matrix  # of a polynomial that predicts frames, along the axes, from the features; (n_terms, m)
    flow: OpticalFlow

    @classmethod
    def fitted(cls, transitions: Transitions, n_slow: int = N_SLOW) -> SlowFeatures:
        """Find the slow features of a body's frames, how frames change with them, and what moves."""
        frames = transitions.before.reshape(len(transitions), -1)
        _, episode, lengths = np.unique(transitions.episode, return_inverse=True, return_counts=True)
        sums = np.zeros((len(lengths), frames.shape[1]), dtype=frames.dtype)
        np.add.at(sums, episode, frames)
        within = frames - (sums / lengths[:, None].astype(frames.dtype))[episode]
        n_axes = max(n_slow, min(DIRECTIONS, len(transitions) // SAMPLES_PER_DIRECTION))
        found = leading_directions(ArraySource(torch.as_tensor(within)), n_axes)
        axes, variance = found.directions.numpy(), found.variance.numpy()
        steps = (transitions.change.reshape(len(transitions), -1) @ axes).astype(np.float64)
        slow = eigh(steps.T @ steps / len(steps), np.diag(variance))[1][:, :n_slow]
        mean = frames.mean(0)
        along = (frames @ axes - mean @ axes).astype(np.float64)
        features = along @ slow
        unit, span = features.std(0), np.stack([features.min(0), features.max(0)])
        decoder = ridge(_terms(features / unit), along, PENALTY)
        return cls(transitions.before.shape[1:], mean, axes, slow, unit, span, decoder, OpticalFlow.fitted(transitions))

    def encode(self, frames: Observations) -> Matrix:
        """Return the features of frames; (n, …) → (n, k)."""
        flat = frames.reshape(len(frames), -1)
        return (flat @ self.axes - self.mean @ self.axes).astype(np.float64) @ self.slow

    def transitions(self, frames: Transitions) -> Transitions:
        """Return transitions of features, with what moved in frames."""
        before, after = frames.before, frames.after
        return Transitions(self.encode(before), self.encode(after), frames.episode, self.flow(before, after))

    def decode(self, frames: Observations, features: Matrix) -> Observations:
        """Return frames, changed until these are their features; (n, …) and (n, k) → (n, …)."""
        old, new = (_terms(np.clip(part, *self.range) / self.unit) for part in (self.encode(frames), features))
        change = ((new - old) @ self.decoder).astype(self.axes.dtype)
        return frames + (change @ self.axes.T).reshape(frames.shape)


def ridge(inputs: Matrix, targets: Matrix, penalty: float) -> Matrix:
    """Return the coefficients of a ridge regression whose penalty is relative to the mean square of the inputs."""
    squares = inputs.T @ inputs
    return np.linalg.solve(
        squares + penalty * np.trace(squares) / len(squares) * np.eye(len(squares)), inputs.T @ targets
    )


def _terms(x: Matrix) -> Matrix:
    return PolynomialFeatures(DEGREE).fit_transform(x)
