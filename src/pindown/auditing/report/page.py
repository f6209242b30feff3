"""One self-contained HTML page: what it says as frozen data, how it looks in the template beside this file.

The data hold no colours, sizes or markup: those belong to ``page.html.j2``, ``page.css`` and ``page.js``. All
text is plain and escaped. The page carries its own plotly.js, compressed, and forbids itself the network.
"""

from __future__ import annotations

import base64
import gzip
import tempfile
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pindown._files import atomic_path
from pindown._numbers import printed
from pindown.auditing.report.colouring import Colouring, colours
from pindown.auditing.report.drawings import Drawing

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
        loader=PackageLoader("pindown.auditing", "report"),
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


def _beside(name: str) -> str:
    return files("pindown.auditing.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Return plotly.js, compressed (a third of its size) and in base64."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _listed(values: Array) -> list[Any]:
    """Return nested lists; four digits are more than a screen can show."""
    return np.round(np.asarray(values, dtype=np.float64), 4).tolist()
