r"""Flow: how far what a camera sees moves from one frame to another, part by part; by closed forms.

A pixel says little of motion: it changes when an edge passes, by as much for a long way as for a short one. How far the
edge went is told by the change *over* the slope of brightness. In a window of pixels p all of which move by u,
:math:`\nabla x(p) \cdot u = x(p) - x'(p)`, so that u is a least-squares fit (Lucas and Kanade, 1981), of two unknowns
and as many equations as there are pixels and channels. It says nothing where brightness has no slope, and is shrunk to
0 there. As long as steps are small, how far parts of an arm move is linear in what its hand does; its pixels are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.ndimage import gaussian_filter, gaussian_filter1d

from pindown.data import ArraySource
from pindown.methods.latent_action.recordings import Recording
from pindown.networks.spectrum import leading_directions

N_CELLS = 8
"""Windows along the shorter edge of a frame."""

BLUR, WINDOW = 1.0, 0.375
"""Spreads of Gaussians: of that which smooths frames, in pixels, and of a window, in cells (one pixel at least)."""

LEAST_SLOPE = 0.01
"""Mean square slope below which a window tells little, as a share of that of whole frames. This, as those above, was
chosen on a recording of which nothing is reported; halves and doubles of them do as well."""

N_MOTIONS, ROWS_PER_MOTION = 16, 10
"""Leading directions of the flow that are kept, and transitions that each of them takes."""

AT_ONCE = 256
"""Frames whose slopes are held in memory."""


@dataclass(frozen=True, eq=False)
class Flow:
    """What moves in frames, as a few numbers.

    Attributes
    ----------
    least : float
        Square slope that windows are taken to have beside their own.
    mean : ndarray of shape (d,)
        Of flows of all windows.
    axes : ndarray of shape (d, m)
        Leading directions of flows.
    """

    least: float
    mean: np.ndarray
    axes: np.ndarray

    def moved(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return what moved between frames; (n, c, h, w) twice → (n, m)."""
        return (windows(before, after, self.least) - self.mean) @ self.axes


def find_flow(recording: Recording) -> Flow:
    """Find the leading directions of the flow in a body's frames.

    Examples
    --------
    A soft disc that wanders over a dark frame: its two ways are all that moves.

    >>> rng = np.random.default_rng(0)
    >>> place = 12 + np.cumsum(rng.normal(0, 0.3, size=(10, 21, 2)), axis=1)
    >>> rows, columns = np.mgrid[:24, :24]
    >>> far = (rows - place[..., :1, None]) ** 2 + (columns - place[..., 1:, None]) ** 2
    >>> film = np.exp(-far / 20)[:, :, None]
    >>> before, after = (film[:, part].reshape(-1, 1, 24, 24) for part in (slice(-1), slice(1, None)))
    >>> flow = find_flow(Recording(before, after, np.repeat(np.arange(10), 20)))
    >>> step = np.diff(place, axis=1).reshape(-1, 2)
    >>> told = flow.moved(before, after)[:, :2]
    >>> missed = step - told @ np.linalg.lstsq(told, step, rcond=None)[0]
    >>> bool((missed**2).sum() < 0.1 * (step**2).sum())
    True
    """
    some = gaussian_filter(recording.before[: 4 * AT_ONCE : 4], (0, 0, BLUR, BLUR))
    least = LEAST_SLOPE * float(sum((each**2).sum(1).mean() for each in np.gradient(some, axis=(2, 3))))
    flows = windows(recording.before, recording.after, least)
    mean = flows.mean(0)
    n_axes = min(flows.shape[1], max(1, min(N_MOTIONS, len(recording) // ROWS_PER_MOTION)))
    found = leading_directions(ArraySource(torch.as_tensor(flows - mean)), n_axes)
    return Flow(least, mean, found.directions.numpy())


def windows(before: np.ndarray, after: np.ndarray, least: float) -> np.ndarray:
    """Return how far each window of frames moved, along rows and then along columns; (n, c, h, w) twice → (n, d).

    Examples
    --------
    A slope that moves by half a pixel to the right:

    >>> columns = np.broadcast_to(np.arange(16.0), (1, 1, 16, 16))
    >>> found = windows(columns, columns - 0.5, 1e-9).reshape(2, 8, 8)
    >>> float(found[1, 4, 4].round(3))
    0.5
    """
    parts = range(0, len(before), AT_ONCE)
    return np.concatenate([_windows(before[i : i + AT_ONCE], after[i : i + AT_ONCE], least) for i in parts])


def _windows(before: np.ndarray, after: np.ndarray, least: float) -> np.ndarray:
    first, second = (gaussian_filter(frames, (0, 0, BLUR, BLUR)) for frames in (before, after))
    change = second - first
    down, right = np.gradient((first + second) / 2, axis=(2, 3))
    cell = max(1, min(before.shape[2:]) // N_CELLS)
    tall, wide = (_weights(n, cell).astype(change.dtype) for n in before.shape[2:])

    def mean(product: np.ndarray) -> np.ndarray:
        return (tall @ product.sum(1) @ wide.T).astype(np.float64)

    across, squares = mean(down * right), (mean(down**2) + least, mean(right**2) + least)
    slopes = mean(down * change), mean(right * change)
    size = squares[0] * squares[1] - across**2
    moved = [across * slopes[1 - i] - squares[1 - i] * slopes[i] for i in (0, 1)]
    return np.concatenate([(each / size).reshape(len(before), -1) for each in moved], 1)


@cache
def _weights(n_pixels: int, cell: int) -> np.ndarray:
    """Return what pixels along an edge count for in each window, a Gaussian about its middle; (windows, n_pixels)."""
    return gaussian_filter1d(np.eye(n_pixels), max(1.0, WINDOW * cell), axis=0)[cell // 2 :: cell]
