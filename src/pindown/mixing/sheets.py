"""Pictures of pictures: a contact sheet, traversals of latents, and a PNG file without another library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from pindown._files import whole
from pindown._random import RandomState, draw_seed
from pindown.mixing.renderer import Renderer

GAP = 2  # pixels between pictures
Bytes = NDArray[np.uint8]


def contact_sheet(pictures: Any, *, columns: int = 8) -> Bytes:
    """Lay pictures (n, 3, h, w) between 0 and 1 side by side, row by row; returns bytes (height, width, 3).

    Examples
    --------
    >>> contact_sheet(torch.rand(6, 3, 8, 8), columns=3).shape
    (18, 28, 3)
    """
    pictures = _tensor(pictures)
    if pictures.ndim != 4 or pictures.shape[1] != 3 or not len(pictures):
        raise ValueError(
            f"contact_sheet: pictures must have shape (n, 3, h, w), n at least 1, got {tuple(pictures.shape)}."
        )
    if not pictures.is_floating_point():
        raise ValueError(
            f"contact_sheet: pictures must be floats between 0 and 1, got {pictures.dtype}. Divide them by what is "
            "white, such as 255."
        )
    if columns < 1:
        raise ValueError(f"contact_sheet: columns must be at least 1, got {columns}.")
    n, _, h, w = pictures.shape
    columns = min(columns, n)
    rows = -(-n // columns)
    sheet = np.full((rows * (h + GAP) - GAP, columns * (w + GAP) - GAP, 3), 255, dtype=np.uint8)
    for number, tile in enumerate(_bytes(pictures)):
        top, left = number // columns * (h + GAP), number % columns * (w + GAP)
        sheet[top : top + h, left : left + w] = tile
    return sheet


def tiles(pictures: Any) -> Bytes:
    """Return pictures (n, c, h, w) of any range as bytes (n, h, w, 3), as `thumbnails` shows them.

    Examples
    --------
    >>> tiles(torch.ones(2, 1, 4, 5)).shape
    (2, 4, 5, 3)
    """
    return _bytes(_shown(_tensor(pictures)))


def _tensor(values: Any) -> Tensor:
    return values.detach() if isinstance(values, Tensor) else torch.tensor(np.asarray(values))


def _bytes(pictures: Tensor) -> Bytes:
    return (pictures.float().clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy(force=True)


def thumbnails(pictures: Any, *, columns: int = 8) -> Bytes:
    """Lay pictures (n, c, h, w) of any range side by side, as they are or brought between 0 and 1.

    One channel is grey; of other than three the first is shown.

    Examples
    --------
    >>> thumbnails(-torch.rand(6, 1, 8, 8), columns=3).shape
    (18, 28, 3)
    """
    return contact_sheet(_shown(_tensor(pictures)), columns=columns)


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
    if not isinstance(renderer, Renderer):
        raise TypeError(
            f"traversals: renderer must be one, such as Room(), got {type(renderer).__name__}. Of a world, pass its "
            "mixing; of codes and pictures, call nearest_traversals."
        )
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


def nearest_traversals(codes: Any, pictures: Any, *, steps: int = 8, most: int = 16) -> Bytes:
    """Draw one row for each code, which goes from low to high while the others stay: the nearest of given pictures.

    A row in which one thing changes is a code that stands for it. Pictures are as near as they come, and none comes
    twice in a row: of few, others change a little, too. What lies outside of 0 and 1 is brought there; one channel is
    grey, of other than three the first is shown.

    Parameters
    ----------
    codes : array (n, d)
        Of the pictures.
    pictures : array (n, c, h, w)
        Those to choose from.
    steps : int
        Pictures of a row.
    most : int
        Codes that are drawn at most: those that vary most.

    Examples
    --------
    >>> codes = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    >>> nearest_traversals(codes, codes[:, :1, None, None].expand(-1, 3, 8, 8), steps=5).shape
    (18, 48, 3)
    """
    z, x = _coded("nearest_traversals", codes, pictures)
    if steps < 2:
        raise ValueError(f"nearest_traversals: steps must be at least 2, got {steps}.")
    loudest = np.sort(np.argsort(-z.std(0), kind="stable")[:most])
    return contact_sheet(_shown(x[along_codes(z, loudest, steps)]), columns=steps)


def along_codes(codes: Any, which: Any, steps: int) -> NDArray[np.int64]:
    """Return which rows are nearest to points along some codes, from low to high, with the others in the middle.

    Examples
    --------
    >>> along_codes(np.array([[0.0], [2.0], [1.0]]), [0], 3).tolist()
    [0, 2, 1]
    """
    standard = _standard(np.asarray(codes, dtype=np.float64))
    return np.concatenate([_along(standard, int(j), steps) for j in which])


def film_strip(frames: Mapping[int, Any], pictures: Any, code: int, *, steps: int = 8) -> Bytes:
    """Draw one row for each moment of a training: what one code stood for then, by the nearest of given pictures.

    Parameters
    ----------
    frames : mapping from int to array (n, d)
        Codes of the pictures by step: those of `training.callbacks.Film`.
    pictures : array (n, c, h, w)
        Those to choose from.
    code : int
        Which.
    steps : int
        Pictures of a row.

    Examples
    --------
    >>> frames = {step: np.random.default_rng(step).normal(size=(50, 2)) for step in (25, 100)}
    >>> film_strip(frames, torch.rand(50, 3, 8, 8), code=0, steps=5).shape
    (18, 48, 3)
    """
    read = [_coded("film_strip", frames[step], pictures) for step in sorted(frames)]
    if not read or not 0 <= code < read[0][0].shape[1]:
        raise ValueError(f"film_strip: code {code}, counted from 0, must be one of those in {len(read)} frames.")
    chosen = np.concatenate([_along(_standard(z), code, steps) for z, _ in read])
    return contact_sheet(_shown(read[0][1][chosen]), columns=steps)


def swaps(codes: Any, pictures: Any, *, n_pairs: int = 4, most: int = 8, random_state: RandomState = 0) -> Bytes:
    """Draw one row for each of some pairs: one, then one with each code in turn taken from the other, then the other.

    What is drawn is the nearest of the given pictures. Where a code stands for one thing, one thing is swapped.

    Parameters
    ----------
    codes : array (n, d)
        Of the pictures.
    pictures : array (n, c, h, w)
        Those to choose from.
    n_pairs : int
        Rows.
    most : int
        Codes that are swapped at most: those that vary most.
    random_state : int, RandomState or None
        Draws the pairs.

    Examples
    --------
    >>> codes = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    >>> swaps(codes, codes[:, :1, None, None].expand(-1, 3, 8, 8), n_pairs=3).shape  # two pictures, and two swaps
    (28, 38, 3)
    """
    z, x = _coded("swaps", codes, pictures)
    standard, loudest = _standard(z), np.sort(np.argsort(-z.std(0), kind="stable")[:most])
    rng = np.random.default_rng(draw_seed(random_state))
    chosen: list[int] = []
    for _ in range(n_pairs):
        one, other = rng.choice(len(z), 2, replace=len(z) < 2)
        mixed = np.repeat(standard[[one]], len(loudest), axis=0)
        mixed[np.arange(len(loudest)), loudest] = standard[other, loudest]
        chosen += [int(one), *_nearest(standard, mixed), int(other)]
    return contact_sheet(_shown(x[chosen]), columns=len(loudest) + 2)


def _coded(owner: str, codes: Any, pictures: Any) -> tuple[NDArray[np.float64], Tensor]:
    z, x = _tensor(codes).double().numpy(force=True), _tensor(pictures).float()
    if x.ndim != 4 or z.ndim != 2 or len(z) != len(x) or not len(z):
        got = f"{z.shape} and {tuple(x.shape)}"
        raise ValueError(f"{owner}: codes must be (n, d) and pictures (n, c, h, w), got {got}.")
    if len(rows := np.flatnonzero(~np.isfinite(z).all(1))):
        raise ValueError(f"{owner}: codes have NaN or infinity in {len(rows)} row(s), first row {rows[0]}.")
    return z, x


def _standard(z: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = z.std(0)
    return (z - np.median(z, axis=0)) / np.where(spread > 0, spread, 1.0)


def _along(standard: NDArray[np.float64], j: int, steps: int) -> NDArray[np.int64]:
    """Return which rows are nearest to points on a line: along one code, with the others in the middle.

    None comes twice, where there are enough: of few, one in the middle would be the nearest to many points.
    """
    targets = np.zeros((steps, standard.shape[1]))
    targets[:, j] = np.quantile(standard[:, j], np.linspace(0.1, 0.9, steps))
    if len(standard) < steps:
        return _nearest(standard, targets)
    return linear_sum_assignment(cdist(targets, standard, "sqeuclidean"))[1]


def _nearest(standard: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.array([((standard - target) ** 2).sum(1).argmin() for target in targets])


def _shown(x: Tensor) -> Tensor:
    """Return pictures with three channels, between 0 and 1."""
    if x.ndim != 4 or not x.numel():
        raise ValueError(f"pictures must have shape (n, c, h, w), n at least 1, got {tuple(x.shape)}.")
    x = x.float()
    x = x if x.shape[1] == 3 else x[:, :1].expand(-1, 3, -1, -1)
    low, high = min(0.0, float(x.min())), max(1.0, float(x.max()))
    return (x - low) / (high - low)


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
    content = png(picture)
    with whole(Path(path)) as beside:
        beside.write_bytes(content)


def save_animation(path: str | Path, pictures: Any, *, seconds: float = 0.2) -> None:
    """Write bytes (n, height, width, 3) as an animated PNG, which browsers play again and again; whole or not at all.

    Parameters
    ----------
    path : str or Path
        Of the file.
    pictures : array of bytes (n, height, width, 3)
        One after the other.
    seconds : float
        How long each is shown.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_animation(f"{folder}/a.png", np.zeros((3, 4, 5, 3), dtype=np.uint8))
    ...     Path(f"{folder}/a.png").read_bytes().count(b"fcTL")  # what comes before each picture
    3
    """
    films = np.asarray(pictures)
    if films.dtype != np.uint8 or films.ndim != 4 or films.shape[3] != 3 or not len(films):
        raise ValueError(
            f"save_animation: pictures must be bytes (n, height, width, 3), got {films.dtype} {films.shape}."
        )
    number, parts = 0, [_header(films[0]), (b"acTL", struct.pack(">II", len(films), 0))]
    for picture in films:
        height, width, _ = picture.shape
        shown = struct.pack(">IIIIIHHBB", number, width, height, 0, 0, round(1000 * seconds), 1000, 0, 0)
        parts.append((b"fcTL", shown))
        data = _lines(picture)
        # The first picture is one that readers of plain PNG show, too; others are numbered together with what comes
        # before them.
        parts.append((b"fdAT", struct.pack(">I", number + 1) + data) if number else (b"IDAT", data))
        number += 2 if number else 1
    with whole(Path(path)) as beside:
        beside.write_bytes(_chunks([*parts, (b"IEND", b"")]))


def png(picture: Any) -> bytes:
    """Return bytes (height, width, 3) as the content of a PNG file.

    Examples
    --------
    >>> png(np.zeros((4, 5, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    array = np.asarray(picture)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise ValueError(f"save_png: picture must be bytes (height, width, 3), got {array.dtype} {array.shape}.")
    return _chunks([_header(array), (b"IDAT", _lines(array)), (b"IEND", b"")])


def _header(picture: Bytes) -> tuple[bytes, bytes]:
    height, width, _ = picture.shape
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)


def _lines(picture: Bytes) -> bytes:
    height = len(picture)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, -1)], axis=1)  # 0: no filter
    return zlib.compress(lines.tobytes(), 9)


def _chunks(parts: list[tuple[bytes, bytes]]) -> bytes:
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
