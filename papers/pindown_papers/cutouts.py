"""Cut-outs of a folder of images whose ground is transparent, as `pindown.simulate.Composed` pastes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import counted
from pindown.data.images import IMAGES, image_paths, import_pillow, is_transparent, unreadable

THIN = 0.05
"""Fraction of its square that a cut-out covers at least, and of its image that its ground does: less is a line, or a
photograph."""


def cutouts_in(folder: str | Path, n: int = 160, *, size: int = 64, random_state: int = 0) -> NDArray[np.float32]:
    """Read cut-outs, n of those there are, drawn at random; (n, 4, size, size): red, green, blue, opacity, in [0, 1].

    Each is put into the middle of a square that it fills, as far as its shape allows. Images without a transparent
    ground are passed over. Needs pillow: ``pip install 'pindown[images]'``.

    Parameters
    ----------
    folder : str or Path
        The folder; folders in it count.
    n : int
        How many.
    size : int
        Pixels of a side.
    random_state : int
        Seed of the drawing.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image, ImageDraw
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stamp = Image.new("RGBA", (40, 20))
    ...     ImageDraw.Draw(stamp).ellipse((10, 0, 29, 19), fill=(255, 0, 0, 255))
    ...     stamp.save(f"{folder}/ball.png")
    ...     ball = cutouts_in(folder, 1, size=16)[0]
    >>> ball[:, 8, 8].tolist(), ball[3, 0, 0].tolist()
    ([1.0, 0.0, 0.0, 1.0], 0.0)
    """
    if n < 1 or size < 8:
        raise ValueError(f"cutouts_in: n must be at least 1 and size at least 8, got {n} and {size}.")
    place = Path(folder)
    names = [name for name in image_paths(place) if name.lower().endswith(IMAGES)]
    found: list[NDArray[np.float32]] = []
    for k in np.random.default_rng(random_state).permutation(len(names)):
        cut = _cut(place, names[k], size)
        found += [] if cut is None else [cut]
        if len(found) == n:
            return np.stack(found)
    raise ValueError(
        f"cutouts_in: {place.name} has {counted(len(found), 'picture')} with a transparent ground, but n={n}. "
        "Ask for fewer, or give another folder."
    )


def _cut(folder: Path, name: str, size: int) -> NDArray[np.float32] | None:
    """Return a cut-out in the middle of its square, or None for what is none."""
    pillow = import_pillow(folder)
    try:
        with pillow.open(folder / name) as image:
            if not is_transparent(image):
                return None
            whole = image.convert("RGBA")
    except (OSError, SyntaxError, EOFError) as error:  # pillow has words of its own for a broken file
        raise unreadable(name, error) from error
    inner = whole.getbbox(alpha_only=True)
    if inner is None:
        return None
    square = _squared(pillow, whole.crop(inner), size)
    layers = np.moveaxis(np.asarray(square, dtype=np.float32) / np.float32(255), -1, 0)
    covered = np.asarray(whole.getchannel("A")).mean() / 255
    return layers if covered < 1 - THIN and layers[3].mean() > THIN else None


def _squared(pillow: Any, image: Any, size: int) -> Any:
    """Return an image, as large as a square allows, in the middle of it."""
    scale = size / max(image.size)
    width, height = (max(1, round(scale * side)) for side in image.size)
    square = pillow.new("RGBA", (size, size))
    square.paste(image.resize((width, height), pillow.Resampling.BILINEAR), ((size - width) // 2, (size - height) // 2))
    return square
