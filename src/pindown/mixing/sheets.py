"""Pictures of pictures: a contact sheet, traversals of latents, and a PNG file without another library."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown._files import whole
from pindown.mixing.renderer import Renderer

GAP = 2  # pixels between pictures
Bytes = NDArray[np.uint8]


def contact_sheet(pictures: Tensor, *, columns: int = 8) -> Bytes:
    """Lay pictures (n, 3, h, w) between 0 and 1 side by side, row by row; returns bytes (height, width, 3).

    Examples
    --------
    >>> contact_sheet(torch.rand(6, 3, 8, 8), columns=3).shape
    (18, 28, 3)
    """
    if pictures.ndim != 4 or pictures.shape[1] != 3:
        raise ValueError(f"contact_sheet: pictures must have shape (n, 3, h, w), got {tuple(pictures.shape)}.")
    n, _, h, w = pictures.shape
    columns = min(columns, n)
    rows = -(-n // columns)
    sheet = np.full((rows * (h + GAP) - GAP, columns * (w + GAP) - GAP, 3), 255, dtype=np.uint8)
    tiles = (pictures.detach().float().clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy(force=True)
    for number, tile in enumerate(tiles):
        top, left = number // columns * (h + GAP), number % columns * (w + GAP)
        sheet[top : top + h, left : left + w] = tile
    return sheet


def traversals(renderer: Renderer, z: Tensor | None = None, *, steps: int = 8) -> Bytes:
    """Draw one row for each latent, which goes through its range while the others stay; bytes (height, width, 3).

    Parameters
    ----------
    renderer : Renderer
        Who draws.
    z : Tensor of shape (d,), optional
        Where the others stay; by default each at another part of its range, so that no two hues are the same.
    steps : int
        Pictures of a row.

    Examples
    --------
    >>> from pindown.mixing import Sprites
    >>> traversals(Sprites(16), steps=4).shape  # five latents
    (88, 70, 3)
    """
    if steps < 2:
        raise ValueError(f"traversals: steps must be at least 2, got {steps}.")
    low, high = renderer.ends
    apart = low + (high - low) * ((0.1 + 0.618 * torch.arange(renderer.d)) % 1)
    start = apart if z is None else torch.as_tensor(z)
    if start.shape != (renderer.d,):
        raise ValueError(f"traversals: z must have shape ({renderer.d},), got {tuple(start.shape)}.")
    along = torch.linspace(low, high, steps, dtype=start.dtype)
    points = start.repeat(renderer.d, steps, 1)  # (d, steps, d)
    for j in range(renderer.d):
        points[j, :, j] = along
    return contact_sheet(renderer(points.flatten(0, 1)), columns=steps)


def save_png(path: str | Path, picture: Any) -> None:
    """Write bytes (height, width, 3) as a PNG file, whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_png(f"{folder}/a.png", np.zeros((4, 5, 3), dtype=np.uint8))
    ...     Path(f"{folder}/a.png").read_bytes()[1:4]
    b'PNG'
    """
    array = np.asarray(picture)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise ValueError(f"save_png: picture must be bytes (height, width, 3), got {array.dtype} {array.shape}.")
    height, width, _ = array.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), array.reshape(height, -1)], axis=1)  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    content = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    with whole(Path(path)) as beside:
        beside.write_bytes(content)
