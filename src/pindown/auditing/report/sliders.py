"""A slider for each latent, with its pictures in the page itself: what is drawn along codes, and how it is laid out."""

from __future__ import annotations

import base64
from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.auditing.report.drawings import Drawing
from pindown.simulate.images import along_latents, png, tiles

Tiles = NDArray[np.uint8]
"""Pictures along latents, (d, steps, height, width, 3)."""

MOST_LATENTS, STEPS, FEWEST = 16, 15, 5
"""Latents that have a slider, the first; and pictures along each, at most and at least."""

MOST_BYTES = 3_000_000
"""Numbers in the pictures of a page, before they are compressed: of large pictures fewer steps are drawn."""


def slid(codes: Any, x: Any, decode: Callable[[NDArray[Any]], NDArray[Any]] | None = None) -> Tiles:
    """Return pictures along each code, the first sixteen, from low to high, while the others stay in the middle.

    Parameters
    ----------
    codes
        Of pictures, (n, d).
    x
        These pictures, (n, c, h, w).
    decode
        Makes pictures of codes; None shows the nearest of those given.

    Examples
    --------
    >>> codes = np.random.default_rng(0).normal(size=(50, 2))
    >>> slid(codes, np.zeros((50, 3, 8, 8)), lambda z: np.zeros((len(z), 3, 8, 8))).shape
    (2, 15, 8, 8, 3)
    """
    z, pictures = np.asarray(codes, dtype=np.float64), np.asarray(x)
    which = np.arange(min(MOST_LATENTS, z.shape[1]))  # so that a slider's number is that of its latent
    room = MOST_BYTES // (len(which) * 3 * pictures.shape[2] * pictures.shape[3])
    steps = max(FEWEST, min(STEPS, room))
    if decode is None:
        shown = pictures[along_latents(z, which, steps)]
    else:
        points = np.median(z, axis=0) * np.ones((len(which), steps, 1))
        for row, j in zip(points, which.tolist(), strict=True):
            row[:, j] = np.quantile(z[:, j], np.linspace(0.05, 0.95, steps))
        shown = decode(points.reshape(len(which) * steps, -1))
    return tiles(shown).reshape(len(which), steps, *pictures.shape[2:], 3)


def sliders(pictures: Tiles, caption: str, title: str = "") -> Drawing:
    """Return a slider for each latent, under the picture that it changes.

    All pictures are one image, of which each slider shows a part. Each starts at its low end, so that what a latent
    does shows before it is moved.

    Examples
    --------
    >>> str(sliders(np.zeros((2, 5, 4, 4, 3), dtype=np.uint8), "Two.").svg).count('type="range"')
    2
    """
    from markupsafe import Markup

    d, steps, height, width, _ = pictures.shape
    sheet = pictures.transpose(0, 2, 1, 3, 4).reshape(d * height, steps * width, 3)
    content = base64.b64encode(png(sheet)).decode()
    each = "".join(
        f'<label class="slider"><span class="tile" role="img" aria-label="along latent {j}" style="--row: {j}"></span>'
        f'<input type="range" min="0" max="{steps - 1}" value="0" aria-label="latent {j}">'
        f"<span>latent {j}</span></label>"
        for j in range(d)
    )
    heading = f'<p class="title"><b>{escape(title)}</b></p>' if title else ""
    style = f"--steps: {steps}; --rows: {d}; --wide: {width}; --high: {height}; --column: 0"
    return Drawing(
        Markup(
            f'{heading}<div class="sliders" style="--sheet: url(data:image/png;base64,{content}); {style}">{each}</div>'
        ),
        caption,
        wide=True,
    )
