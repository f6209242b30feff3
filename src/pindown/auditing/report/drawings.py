"""Drawings for pages, each one as markup of our own making: matrices as squares, angles, sheets of pictures."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

CELL = 22
"""Pixels of a latent in the picture of a matrix."""

LETTER, GAP = 7.2, 8
"""Pixels of a letter, and between a name and what it names."""

WIDEST, ENLARGED = 960, 3
"""Pixels up to which a sheet of small pictures is enlarged, and how many times at most."""

HALF_A_PAGE = 480
"""Pixels up to which two drawings have room side by side."""


@dataclass(frozen=True, eq=False)
class Drawing:
    """A picture that is drawn already, as markup of our own making."""

    svg: Any
    caption: str
    wide: bool = False  # whether it wants the whole width of the page


def sheet(picture: NDArray[np.uint8], caption: str) -> Drawing:
    """Return a sheet of pictures, bytes (height, width, 3), in the page itself.

    Examples
    --------
    >>> str(sheet(np.zeros((4, 5, 3), dtype=np.uint8), "Black.").svg)[:37]
    '<img alt="Black." src="data:image/png'
    """
    from markupsafe import Markup

    from pindown.simulate.images import png

    height, width = picture.shape[:2]
    wide = max(width, min(WIDEST, ENLARGED * width))
    content = base64.b64encode(png(picture)).decode()
    return Drawing(
        Markup(
            f'<img alt="{escape(caption)}" src="data:image/png;base64,{content}" width="{wide}" '
            f'height="{wide * height // width}">'
        ),
        caption,
        wide=True,
    )


def squares(matrix: NDArray[np.float64], title: str, caption: str, names: Sequence[str] = ()) -> Drawing:
    """Return a matrix of numbers from 0 to 1 as squares, none where there is no number, with names beside its rows.

    Examples
    --------
    >>> str(squares(np.eye(2), "A title", "", names=("size", "hue")).svg).count("<rect")
    4
    """
    from markupsafe import Markup

    n, m = matrix.shape
    size = min(CELL * 2, max(CELL, 200 // max(n, 1)))
    left = round(LETTER * max(map(len, names))) + GAP if names else 0
    depth = 0.04 + 0.96 * np.clip(matrix, 0, 1) ** 2
    drawn = [
        f'<rect x="{left + j * size + 1}" y="{i * size + 1}" width="{size - 2}" height="{size - 2}" rx="2" '
        f'fill="currentColor" fill-opacity="{depth[i, j]:.2f}"><title>{matrix[i, j]:.3f}</title></rect>'
        for i, j in np.argwhere(~np.isnan(matrix)).tolist()
    ]
    drawn += [
        f'<text x="{left - GAP}" y="{(i + 0.5) * size:g}" text-anchor="end" dominant-baseline="central" '
        f'fill="currentColor" font-size="12">{escape(name)}</text>'
        for i, name in enumerate(names)
    ]
    wide, high = left + m * size, n * size
    return Drawing(
        Markup(
            f'<svg class="squares" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img">'
            f"<title>{escape(title)}</title>{''.join(drawn)}</svg>"
        ),
        caption,
        wide=wide > HALF_A_PAGE,
    )


def protractor(angles: NDArray[np.float64], caption: str) -> Drawing:
    """Return angles from 0 to 90 degrees as strokes from the corner of a quarter circle."""
    from markupsafe import Markup

    size, margin = 150, 20
    wide, high = size + 50, size + 2 * margin

    def at(angle: float, radius: float) -> str:
        turn = math.radians(angle)
        return f"{2 + radius * math.cos(turn):.1f} {margin + size - radius * math.sin(turn):.1f}"

    strokes = "".join(f'<path d="M{at(angle, 0)}L{at(angle, size)}"/>' for angle in angles.tolist())
    marks = "".join(
        f'<text x="{at(angle, size + 6).split()[0]}" y="{at(angle, size + 6).split()[1]}">{angle}°</text>'
        for angle in (0, 30, 60, 90)
    )
    return Drawing(
        Markup(
            f'<svg class="protractor" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
            f'role="img"><title>Angles between spans</title><path class="rim" d="M{at(0, size)}A{size} {size} 0 0 0 '
            f'{at(90, size)}"/>{strokes}{marks}</svg>'
        ),
        caption,
    )
