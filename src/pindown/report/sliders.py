"""A slider for each latent, with its pictures in the page itself: what is drawn along codes, and how it is laid out."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pindown.disentangling.result import in_range
from pindown.mixing.sheets import along_codes, png, tiles
from pindown.report.drawings import Drawing

if TYPE_CHECKING:
    from pindown.disentangling.result import Disentangled

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
        shown = pictures[along_codes(z, which, steps)]
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


@dataclass(frozen=True, eq=False)
class TurnedPage:
    """All that the page of a turned decoder says."""

    title: str
    kicker: str
    lead: str
    footer: str
    claims: bool
    said: str
    drawings: tuple[Drawing, ...]

    @classmethod
    def of(cls, found: Disentangled, drawings: tuple[Drawing, ...]) -> TurnedPage:
        """Put what was found into words."""
        return cls(
            title="One rotation",
            kicker=f"pindown disentangle · {len(found.rotation)} latents",
            lead=f"{found.after:.2f} latents reach a pixel along the new axes, {found.before:.2f} along the old ones, "
            f"and {found.chance:.2f} by chance. Nothing was trained.",
            footer="This page is one file and asks nothing of the network.",
            claims=found.claim is not None,
            said=found.claim or "Nothing is claimed: " + "; ".join(found.against) + ".",
            drawings=drawings,
        )


def before_and_after(found: Disentangled, what: str = "The decoder") -> tuple[Drawing, Drawing]:
    """Return a slider for each latent of a decoder to pictures, before it was turned and after; ``what`` names it.

    Examples
    --------
    >>> import torch, pindown
    >>> from pindown.mixing import Sprites
    >>> from pindown.spaces import Reals
    >>> sprites = Sprites(8, factors=("x", "hue"), domain=Reals())
    >>> codes = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> [str(drawing.svg).count('type="range"') for drawing in before_and_after(pindown.disentangle(sprites, codes))]
    [2, 2]
    """
    found.require_pictures("save_turned")
    before, after = (tiles(in_range(found.traversed(steps=STEPS, rotated=turned).float())) for turned in (False, True))
    shape = (len(found.rotation), STEPS, *before.shape[1:])
    caption = "Each slider takes one latent through its range, while the others stay in the middle."
    return (
        sliders(before.reshape(shape), f"{what}, as it was given. {caption}", "Before"),
        sliders(after.reshape(shape), f"The same decoder, its codes turned. {caption}", "After one rotation"),
    )


def save_turned(found: Disentangled, path: str | Path) -> Path:
    """Write a page with a slider for each latent of a decoder, before it was turned and after, and what may be said.

    Parameters
    ----------
    found
        What `pindown.disentangle` returned, of a decoder to pictures.
    path
        Of the file, such as ``turned.html``. It needs nothing else, and no network.

    Raises
    ------
    ValueError
        If the decoder makes no pictures.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile, torch, pindown
    >>> from pindown.mixing import Sprites
    >>> from pindown.spaces import Reals
    >>> sprites = Sprites(8, factors=("x", "hue"), domain=Reals())
    >>> codes = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> found = pindown.disentangle(sprites, codes, n_codes=50)
    >>> with tempfile.TemporaryDirectory() as folder:  # two sliders before, two after
    ...     save_turned(found, f"{folder}/turned.html").read_text(encoding="utf-8").count('type="range"')
    4
    """
    from pindown.report.page import fill, write_whole

    drawings = before_and_after(found)
    path = Path(path)
    write_whole(fill("turned.html.j2", page=TurnedPage.of(found, drawings)), path)
    return path
