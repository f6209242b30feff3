"""Grids of images: contact sheets, images along latents, and PNG files."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from pindown._files import atomic_path
from pindown._random import RandomState, draw_seed
from pindown.errors import InputError
from pindown.metrics.arrays import check_positive

GAP = 2
"""Pixels between images of a grid."""

Bytes = NDArray[np.uint8]


def contact_sheet(images: ArrayLike | Tensor, *, columns: int = 8) -> Bytes:
    """Lay out images (n, c, h, w) in a grid, line by line; returns bytes (height, width, 3).

    Bytes are divided by 255; other values outside of [0, 1] are rescaled. One channel is grey. With any number of
    channels other than three, the first is shown.

    Examples
    --------
    >>> contact_sheet(torch.rand(6, 3, 8, 8), columns=3).shape
    (18, 28, 3)
    """
    check_positive(columns=columns)
    shown = tiles(images)
    n, h, w, _ = shown.shape
    columns = min(columns, n)
    white = ((0, -n % columns), (0, GAP), (0, GAP), (0, 0))  # fills the last line, and frames each image
    grid = np.pad(shown, white, constant_values=255).reshape(-1, columns, h + GAP, w + GAP, 3)
    return grid.swapaxes(1, 2).reshape(-1, columns * (w + GAP), 3)[:-GAP, :-GAP]


def tiles(images: ArrayLike | Tensor) -> Bytes:
    """Return images (n, c, h, w) as bytes (n, h, w, 3), rescaled as `contact_sheet` does.

    Examples
    --------
    >>> tiles(torch.ones(2, 1, 4, 5)).shape
    (2, 4, 5, 3)
    """
    x = _tensor(images)
    if x.ndim != 4 or not x.numel():
        raise InputError("images", f"`images` must have shape (n, c, h, w), n at least 1, got {tuple(x.shape)}.")
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    x = x if x.shape[1] == 3 else x[:, :1].expand(-1, 3, -1, -1)
    low, high = min(0.0, float(x.min())), max(1.0, float(x.max()))
    return ((x - low) / (high - low) * 255).round().byte().permute(0, 2, 3, 1).numpy(force=True)


def nearest_traversals(latents: ArrayLike | Tensor, images: ArrayLike | Tensor, *, steps: int = 8) -> Bytes:
    """Draw one line per latent, from low to high with the others fixed, by the nearest of the given images.

    If only one thing changes along a line, the latent represents it. No image occurs twice in a line. With few images,
    other latents change a little, too. Of many latents, the 16 with the largest variance are drawn.

    Parameters
    ----------
    latents : array (n, d)
        Of the images.
    images : array (n, c, h, w)
        Images to choose from.
    steps : int
        Images per line.

    Examples
    --------
    >>> latents = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    >>> nearest_traversals(latents, latents[:, :1, None, None].expand(-1, 3, 8, 8), steps=5).shape
    (18, 48, 3)
    """
    z, x, drawn = _checked(latents, images, 16)
    if steps < 2:
        raise InputError("steps", f"`steps` must be at least 2, got {steps}.")
    return contact_sheet(x[along_latents(z, drawn, steps)], columns=steps)


def along_latents(latents: ArrayLike, which: ArrayLike, steps: int) -> NDArray[np.int64]:
    """Return the samples nearest to points along some latents, from low to high, with the others at their median.

    Examples
    --------
    >>> along_latents(np.array([[0.0], [2.0], [1.0]]), [0], 3).tolist()
    [0, 2, 1]
    """
    standard = _standardised(np.asarray(latents, dtype=np.float64))
    chosen = []
    for j in np.asarray(which):
        targets = np.zeros((steps, standard.shape[1]))
        targets[:, j] = np.quantile(standard[:, j], np.linspace(0.1, 0.9, steps))
        distance = cdist(targets, standard, "sqeuclidean")
        # Assign each point a sample of its own: of few samples, a central one would be the nearest to many points.
        chosen.append(distance.argmin(1) if len(standard) < steps else linear_sum_assignment(distance)[1])
    return np.concatenate(chosen)


def swaps(
    latents: ArrayLike | Tensor,
    images: ArrayLike | Tensor,
    *,
    n_pairs: int = 4,
    random_state: RandomState = 0,
) -> Bytes:
    """Draw one line per random pair: the first image, then it with each latent replaced by the second's, the second.

    Draws the nearest of the given images. If a latent represents one thing, one thing is swapped. Of many latents, the
    eight with the largest variance are swapped.

    Parameters
    ----------
    latents, images
        As in `nearest_traversals`.
    n_pairs : int
        Number of pairs.
    random_state : int, RandomState or None
        Seed of the pairs.

    Examples
    --------
    >>> latents = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    >>> swaps(latents, latents[:, :1, None, None].expand(-1, 3, 8, 8), n_pairs=3).shape  # two images, and two swaps
    (28, 38, 3)
    """
    z, x, swapped = _checked(latents, images, 8)
    standard, rng = _standardised(z), np.random.default_rng(draw_seed(random_state))
    chosen: list[int] = []
    for _ in range(n_pairs):
        one, other = rng.choice(len(z), 2, replace=len(z) < 2)
        mixed = np.repeat(standard[[one]], len(swapped), axis=0)
        mixed[np.arange(len(swapped)), swapped] = standard[other, swapped]
        chosen += [int(one), *cdist(mixed, standard, "sqeuclidean").argmin(1), int(other)]
    return contact_sheet(x[chosen], columns=len(swapped) + 2)


def save_png(path: str | Path, image: Bytes) -> None:
    """Write bytes (height, width, 3) as a PNG file, atomically."""
    content = png(image)
    with atomic_path(Path(path)) as temporary:
        temporary.write_bytes(content)


def png(image: Bytes) -> bytes:
    """Return bytes (height, width, 3) as the content of a PNG file. Pillow is no dependency of the core.

    Examples
    --------
    >>> png(np.zeros((4, 5, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise InputError("image", f"`image` must be bytes (height, width, 3), got {array.dtype} {array.shape}.")
    height, width, _ = array.shape
    lines = np.pad(array.reshape(height, -1), ((0, 0), (1, 0)))  # each line begins with 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _tensor(values: ArrayLike | Tensor) -> Tensor:
    return values.detach() if isinstance(values, Tensor) else torch.tensor(np.asarray(values))


def _checked(
    latents: ArrayLike | Tensor, images: ArrayLike | Tensor, max_latents: int
) -> tuple[NDArray[np.float64], Tensor, NDArray[np.int64]]:
    """Return latents, images, and the latents with the largest variance."""
    z, x = _tensor(latents).double().numpy(force=True), _tensor(images).float()
    if x.ndim != 4 or z.ndim != 2 or len(z) != len(x) or not len(z):
        got = f"{z.shape} and {tuple(x.shape)}"
        raise InputError("latents", f"`latents` must be (n, d) and `images` (n, c, h, w), got {got}.")
    if len(bad := np.flatnonzero(~np.isfinite(z).all(1))):
        raise InputError("latents", f"`latents` has NaN or infinity in {len(bad)} sample(s), the first is {bad[0]}.")
    return z, x, np.sort(np.argsort(-z.std(0), kind="stable")[:max_latents])


def _standardised(z: NDArray[np.float64]) -> NDArray[np.float64]:
    scale = z.std(0)
    return (z - np.median(z, axis=0)) / np.where(scale > 0, scale, 1.0)
