"""Pixels as numbers between 0 and 1, of whatever kind of number a file holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-3
"""How far pixels may lie outside of 0 and 1, and are brought there: floats of 16 bits are as coarse."""


def as_channels(pictures: NDArray[Any]) -> NDArray[np.float32]:
    """Return pictures (n, h, w) or (n, h, w, c) of 8 or 16 bits or of floats as (n, c, h, w) between 0 and 1.

    Examples
    --------
    >>> as_channels(np.full((2, 4, 4, 3), 255, dtype=np.uint8)).shape
    (2, 3, 4, 4)
    """
    check_kind(pictures.dtype)
    pictures = pictures[..., None] if pictures.ndim == 3 else pictures
    floats = np.ascontiguousarray(np.moveaxis(pictures, -1, 1), dtype=np.float32)
    white = np.iinfo(pictures.dtype).max if pictures.dtype.kind in "ui" else 1
    if pictures.dtype.kind != "u":
        return within(floats, white)
    floats /= np.float32(white)
    return floats


def check_kind(dtype: np.dtype[Any], owner: str = "it") -> None:
    """Raise unless numbers of this kind say what is white.

    Examples
    --------
    >>> check_kind(np.dtype(np.int64), "x.npy")
    Traceback (most recent call last):
    ValueError: x.npy holds int64, of which none is white by custom: save it as uint8 or uint16, which are ...
    """
    if not (dtype.kind in "bf" or (dtype.kind in "ui" and dtype.itemsize <= 2)):
        raise ValueError(
            f"{owner} holds {dtype.name}, of which none is white by custom: save it as uint8 or uint16, which are "
            "scaled, or as floats between 0 and 1"
        )


def within(pixels: NDArray[np.float32], white: float) -> NDArray[np.float32]:
    """Return pixels between 0 (black) and `white` as numbers between 0 and 1; NaN stays.

    Examples
    --------
    >>> within(np.array([0.0, 51.0], dtype=np.float32), 255).tolist()
    [0.0, 0.20000000298023224]
    >>> within(np.array([0.0, 51.0], dtype=np.float32), 1)
    Traceback (most recent call last):
    ValueError: its pixels go from 0 to 51, but must lie between 0 and 1: divide them by what is white, or save ...
    """
    if not pixels.size:
        return pixels
    low, high = float(pixels.min()), float(pixels.max())
    loose = ROUNDING if white == 1 else 0  # only floats are rounded
    if low < -loose or high > white + loose:
        raise ValueError(
            f"its pixels go from {low:g} to {high:g}, but must lie between 0 and {white:g}: divide them by what is "
            "white, or save them as uint8 or uint16"
        )
    return (pixels / np.float32(white)).clip(0, 1) if white != 1 or low < 0 or high > 1 else pixels
