"""Self-contained HTML pages: what a page says as frozen data, and the figures and drawings on it.

The data hold no sizes or markup of their own: those belong to ``templates/``. All text is plain and escaped. A page
carries its own plotly.js, compressed, and forbids itself the network.
"""

from __future__ import annotations

import base64
import gzip
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pindown._files import atomic_path, require_writable
from pindown._names import printed

Array = NDArray[np.floating[Any]]


def shown(value: float, digits: int = 2) -> str:
    """Return a score as it is printed: no zero before the point, a true minus sign, and no −.00.

    What is below 1 is not rounded up to it: nothing here is perfect.

    Examples
    --------
    >>> shown(0.9981, 3), shown(0.9997, 3), shown(1.0), shown(-0.0004), shown(-0.12)
    ('.998', '.999', '1.00', '.00', '−.12')
    """
    text = printed(value, digits)
    sign = "−" if text.startswith("-") else ""
    return sign + text.removeprefix("-").removeprefix("0")


@dataclass(frozen=True)
class Row:
    """One score of one world, beside the score of a linear fit of the raw data and that of chance.

    Examples
    --------
    >>> Row("sphere", "R²", linear=0.8, recovered=0.99, chance=0.0).gap_closed
    0.95
    """

    name: str
    metric: str
    linear: float
    recovered: float
    chance: float

    @property
    def gap_closed(self) -> float:
        """How much of the way from the linear fit to perfection was gone; negative if it fell behind."""
        return round((self.recovered - self.linear) / (1 - self.linear), 6)


@dataclass(frozen=True)
class Fact:
    """A number worth a line of its own: what it is, its value, and how to read it."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Condition:
    """An assumption of a theorem, and how it stands here; what is of the fit is approached, never reached."""

    name: str
    statement: str
    status: Literal["holds", "broken", "not checked", "of the fit"]


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points in space, a surface under them (a net of meridians and parallels), and perhaps arrows among them."""

    title: str
    note: str
    points: Array  # (n, 3)
    surface: Array  # (n_parallels, n_meridians, 3)
    arrows: Array = field(default_factory=lambda: np.empty((0, 2, 3)))  # (n_arrows, tail and tip, 3)


@dataclass(frozen=True, eq=False)
class Clouds:
    """Clouds of the same points side by side, each point and each arrow in the same colour, turned together.

    ``hues`` are directions, unit vectors: what is near in direction is near in colour.
    """

    caption: str
    description: str
    clouds: tuple[Cloud, ...]
    hues: Array  # (n, 3)
    surface_hues: Array  # (n_parallels, n_meridians, 3)
    arrow_hues: Array = field(default_factory=lambda: np.empty((0, 3)))  # (n_arrows, 3)

    def data(self) -> dict[str, Any]:
        """Return what the page's script draws."""
        parts = ("points", "surface", "arrows")
        return {
            "clouds": [{part: _listed(getattr(cloud, part)) for part in parts} for cloud in self.clouds],
            "colours": colours(self.hues),
            "surfaceColours": colours(self.surface_hues),
            "arrowColours": colours(self.arrow_hues),
        }


@dataclass(frozen=True, eq=False)
class Panel:
    """True values, their recovery, and the best a linear fit of the raw data makes of them."""

    title: str
    note: str
    true: Array  # (n,)
    recovered: Array  # (n,)
    linear: Array  # (n,)


@dataclass(frozen=True, eq=False)
class Scatters:
    """Recovered against true, one panel per latent."""

    caption: str
    description: str
    panels: tuple[Panel, ...]

    def data(self) -> dict[str, Any]:
        """Return what the page's script draws."""
        names = ("true", "recovered", "linear")
        return {"panels": [{name: _listed(getattr(panel, name)) for name in names} for panel in self.panels]}


@dataclass(frozen=True, eq=False)
class Curve:
    """The loss of each step of a fit."""

    name: str
    values: Array  # (n_iter,)


@dataclass(frozen=True, eq=False)
class Curves:
    """Loss curves, and the loss of a model that only guesses, where there is such a thing."""

    caption: str
    description: str
    curves: tuple[Curve, ...]
    guessing: float | None

    def data(self) -> dict[str, Any]:
        """Return what the page's script draws."""
        curves = []
        for curve in self.curves:
            # Means over blocks of steps: a thousand jittering points hide the course of the curve.
            blocks = np.array_split(curve.values, min(len(curve.values), 120))
            ends = np.cumsum([len(block) for block in blocks])
            middles = ends - np.array([len(block) for block in blocks]) / 2
            means = np.array([block.mean() for block in blocks])
            curves.append({"name": curve.name, "step": _listed(middles), "loss": _listed(means)})
        return {"curves": curves, "guessing": None if self.guessing is None else round(self.guessing, 4)}


@dataclass(frozen=True, eq=False)
class Latents:
    """Codes of which the reader chooses three to see, or two, and the column to colour them by."""

    caption: str
    description: str
    names: tuple[str, ...]  # one per column
    points: Array  # (n, columns), each column from −1 to 1
    colourings: tuple[Colouring, ...]

    def data(self) -> dict[str, Any]:
        """Return what the page's script draws."""
        return {"points": _listed(self.points), "colourings": [each.data() for each in self.colourings]}


Figure = Clouds | Scatters | Curves | Latents


@dataclass(frozen=True, eq=False)
class Section:
    """One world: what was done, pictures, numbers, and the sentence that may be written down."""

    title: str
    text: str
    score: Row
    figures: tuple[Figure, ...]
    facts: tuple[Fact, ...]
    claim: str
    conditions: tuple[Condition, ...]
    not_promised: tuple[str, ...]
    warned: tuple[str, ...] = ()  # what the estimator says against itself
    drawings: tuple[Drawing, ...] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """All that the page says.

    Examples
    --------
    Text is text, whatever it looks like:

    >>> page = Page("<b>Mice & men</b>", kicker="", lead="", sections=(), footer="")
    >>> "<h1>&lt;b&gt;Mice &amp; men&lt;/b&gt;</h1>" in render(page)
    True
    """

    title: str
    kicker: str
    lead: str
    sections: tuple[Section, ...]
    footer: str


def render(page: Page) -> str:
    """Return the page as HTML that needs nothing else: no network, no files beside it."""
    return fill("page.html.j2", page=page)


def fill(template: str, **content: Any) -> str:
    """Return a template of this folder, filled: text is escaped, and style, script and plotly.js come with it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import, and only needed here
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("pindown.auditing", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    environment.globals["percent"] = lambda *scores: [round(100 * min(1.0, max(0.0, s)), 2) for s in scores]
    environment.filters["kind"] = lambda figure: type(figure).__name__.lower()
    return environment.get_template(template).render(
        **content,
        # These three are ours; all else is escaped. Plotly comes to pages that plot.
        style=Markup(_beside("page.css")),
        script=Markup(_beside("page.js")),
        plotly=lambda: Markup(_plotly()),
    )


def save(page: Page, path: Path) -> None:
    """Write the page to a file, whole or not at all.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    write_whole(render(page), path)


def write_whole(text: str, path: Path) -> None:
    """Write text to a file, whole or not at all.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    check_writable(path)
    with atomic_path(path) as beside:
        beside.write_text(text, encoding="utf-8")


def check_writable(path: Path) -> None:
    """Make the folder of a file if need be, and raise an OSError if the file could not be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(f"{path} cannot be written: {error.strerror or error}. Give the path of a file.") from error
    require_writable(path)


def _beside(name: str) -> str:
    return files("pindown.auditing").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Return plotly.js, compressed (a third of its size) and in base64."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _listed(values: Array) -> list[Any]:
    """Return nested lists; four digits are more than a screen can show."""
    return np.round(np.asarray(values, dtype=np.float64), 4).tolist()


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


MOST_KINDS = 24
"""Values of a column up to which they are kinds; more whole numbers are amounts."""

N_SHADES = 64
"""Shades by which amounts are told apart, by their ranks."""


@dataclass(frozen=True, eq=False)
class Colouring:
    """A column that points are coloured by: text and whole numbers of few values as kinds, other numbers as amounts."""

    name: str
    values: NDArray[Any]  # (n,)

    def data(self) -> dict[str, Any]:
        """Return the shades there are, the place of each value among them, and what the key says.

        The key names the first kinds and counts the others; of amounts it gives the least, the median and the most.

        Examples
        --------
        >>> kinds = Colouring("tissue", np.array(["skin", "bone", "skin"])).data()
        >>> kinds["which"], kinds["key"], kinds["others"]
        ([1, 0, 1], ['bone', 'skin'], 0)
        >>> Colouring("age", np.array([30.5, 2.0, 61.0])).data()["key"]
        ['2', '30.5', '61']
        """
        plain = self.values.astype(str) if self.values.dtype.kind == "O" else self.values
        found, number = np.unique(plain, return_inverse=True)
        number, amounts = number.reshape(-1), _are_amounts(found)
        if amounts:
            n_shades = min(N_SHADES, len(found))
            which = number * (n_shades - 1) // max(len(found) - 1, 1)
            key = [f"{value:.3g}".replace("-", "−") for value in (found[0], np.median(plain), found[-1])]
            return self._read_by(_spiral(n_shades), which, key, amounts=True)
        others = max(0, len(found) - MOST_KINDS)
        return self._read_by(_apart(len(found)), number, [str(value) for value in found[:MOST_KINDS]], others=others)

    def _read_by(
        self, shades: NDArray[Any], which: NDArray[Any], key: list[str], *, amounts: bool = False, others: int = 0
    ) -> dict[str, Any]:
        parts = {"shades": colours(shades), "which": which.tolist(), "key": key, "amounts": amounts, "others": others}
        return {"name": self.name} | parts


def _are_amounts(found: NDArray[Any]) -> bool:
    return found.dtype.kind in "fiu" and (
        len(found) > MOST_KINDS or (found.dtype.kind == "f" and bool((found % 1).any()))
    )


def _spiral(n: int) -> NDArray[np.float64]:
    """Return unit vectors along a spiral from dark to light; (n, 3)."""
    rank = np.linspace(0, 1, n)
    return _unit(2 * rank - 1, 1.5 * np.pi * rank)


def _apart(n: int) -> NDArray[np.float64]:
    """Return unit vectors far from each other; the golden angle keeps neighbours apart however many there are."""
    kind = np.arange(n, dtype=np.float64)
    return _unit(1 - (2 * kind + 1) / max(n, 2), math.pi * (3 - math.sqrt(5)) * kind)


def _unit(height: NDArray[np.float64], turn: NDArray[np.float64]) -> NDArray[np.float64]:
    across = np.sqrt(np.maximum(0, 1 - height**2))
    return np.stack([across * np.cos(turn), across * np.sin(turn), height], axis=-1)


def colours(directions: NDArray[np.floating[Any]]) -> list[Any]:
    """Return the colours of unit vectors as hexadecimal strings, nested as they are.

    The vector is placed into the Oklab colour space, where equal steps look equal: up is lightness, round about
    is hue. Its range keeps apart from a white and from a black background.

    Examples
    --------
    >>> colours(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]))
    ['#b4b4b4', '#666666']
    """
    x, y, z = np.moveaxis(np.asarray(directions, dtype=np.float64), -1, 0)
    lab = np.stack([0.64 + 0.13 * z, 0.15 * x, 0.15 * y], axis=-1)
    rgb = np.clip((lab @ _OKLAB_TO_LMS) ** 3 @ _LMS_TO_RGB, 0, 1)
    gamma = np.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * rgb ** (1 / 2.4) - 0.055)
    bytes_ = np.round(255 * gamma).astype(int)
    flat = [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in bytes_.reshape(-1, 3)]
    return np.array(flat, dtype=object).reshape(bytes_.shape[:-1]).tolist()


# Ottosson 2020, "A perceptual color space for image processing"; transposed, to be multiplied from the right.
_OKLAB_TO_LMS = np.array(
    [[1.0, 1.0, 1.0], [0.3963377774, -0.1055613458, -0.0894841775], [0.2158037573, -0.0638541728, -1.2914855480]]
)
_LMS_TO_RGB = np.array(
    [
        [4.0767416621, -1.2684380046, -0.0041960863],
        [-3.3077115913, 2.6097574011, -0.7034186147],
        [0.2309699292, -0.3413193965, 1.7076147010],
    ]
)


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
    from pindown.simulate.images import along_latents, tiles

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

    from pindown.simulate.images import png

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
