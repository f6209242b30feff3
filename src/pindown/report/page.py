"""One self-contained HTML page: what it says as frozen data, how it looks in the template beside this file.

The data hold no colours, sizes or markup: those belong to ``page.html.j2``, ``page.css`` and ``page.js``. All
text is plain and escaped. The page carries its own plotly.js, compressed, and forbids itself the network.
"""

from __future__ import annotations

import base64
import gzip
import math
import os
import tempfile
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


def shown(value: float, digits: int = 2) -> str:
    """Return a score as it is printed: no zero before the point, a true minus sign, and no −.00.

    What is below 1 is not rounded up to it: nothing here is perfect.

    Examples
    --------
    >>> shown(0.9981, 3), shown(0.9997, 3), shown(1.0), shown(-0.0004), shown(-0.12)
    ('.998', '.999', '1.00', '.00', '−.12')
    """
    size = abs(value) if abs(value) >= 1 else min(abs(value), 1 - 10**-digits)
    text = f"{size:.{digits}f}"
    sign = "−" if value < 0 and float(text) else ""
    return sign + text.removeprefix("0")


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
class Colouring:
    """A column that points are coloured by: text and whole numbers of few values as kinds, other numbers by size."""

    name: str
    values: NDArray[Any]  # (n,)


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
        by = [{"name": each.name, "colours": colours(_directions(each.values))} for each in self.colourings]
        return {"points": _listed(self.points), "colourings": by}


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
        loader=PackageLoader("pindown", "report"),
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
        # These three are ours; all else is escaped.
        style=Markup(_beside("page.css")),
        script=Markup(_beside("page.js")),
        plotly=Markup(_plotly()),
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
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o666 & ~_umask())  # mkstemp gives a file that only its owner may read
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def check_writable(path: Path) -> None:
    """Make the folder of a file if need be, and find out now whether the file could be written.

    Raises
    ------
    OSError
        With path, cause and remedy.
    """
    remedy = "Give the path of a file in a folder you may write to, such as demo.html."
    if path.is_dir():
        raise IsADirectoryError(f"{path} cannot be written: it is a folder. {remedy}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):  # permissions alone would not tell of a read-only disk
            pass
    except OSError as error:
        raise type(error)(f"{path} cannot be written: {error.strerror or error}. {remedy}") from error


def _umask() -> int:
    mask = os.umask(0)  # there is no way to read it without setting it
    os.umask(mask)
    return mask


def _beside(name: str) -> str:
    return files("pindown.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Return plotly.js, compressed (a third of its size) and in base64."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _listed(values: Array) -> list[Any]:
    """Return nested lists; four digits are more than a screen can show."""
    return np.round(np.asarray(values, dtype=np.float64), 4).tolist()


MOST_KINDS = 24
"""Values of a column up to which they are kinds; more whole numbers are amounts."""


def _directions(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return unit vectors, one per value: kinds far from each other, amounts along a spiral from dark to light."""
    found, number = np.unique(values.astype(str) if values.dtype.kind == "O" else values, return_inverse=True)
    if found.dtype.kind in "fiu" and (len(found) > MOST_KINDS or (found.dtype.kind == "f" and (found % 1).any())):
        rank = np.linspace(0, 1, len(found))
        height, turn = 2 * rank - 1, 1.5 * np.pi * rank
    else:  # the golden angle keeps neighbours apart however many there are
        kind = np.arange(len(found), dtype=np.float64)
        height, turn = 1 - (2 * kind + 1) / max(len(found), 2), math.pi * (3 - math.sqrt(5)) * kind
    across = np.sqrt(np.maximum(0, 1 - height**2))
    return np.stack([across * np.cos(turn), across * np.sin(turn), height], axis=-1)[number.reshape(-1)]


def colours(directions: Array) -> list[Any]:
    """Return the colours of unit vectors as hexadecimal strings, nested as they are.

    The vector is placed into the Oklab colour space, where equal steps look equal: up is lightness, round about
    is hue. Its range keeps apart from a white and from a black background.
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
