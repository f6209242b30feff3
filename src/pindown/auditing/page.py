"""Self-contained HTML pages: figures as data, which the script of a page draws by plotly, and the templates.

A page escapes all text, carries its own plotly.js, compressed, and forbids itself the network.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pindown._files import atomic_path, require_writable
from pindown._names import printed
from pindown.errors import InputError

Array = NDArray[np.floating[Any]]


def shown(value: float, digits: int = 2) -> str:
    """Return a score as a page has it: as `printed`, without a zero before the point, and with a true minus sign."""
    text = printed(value, digits)
    sign = "−" if text.startswith("-") else ""
    return sign + text.removeprefix("-").removeprefix("0")


# ---- figures --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure of a page, as data, which ``templates/page.js`` or ``templates/figures.html.j2`` draws by its kind."""

    kind: Literal["clouds", "scatters", "curves", "latents", "maps", "matrix", "probes", "picture", "sliders", "svg"]
    caption: str
    description: str  # for people who do not see it
    data: Mapping[str, Any]  # as JSON has it
    panels: tuple[tuple[str, str], ...] = (("", ""),)  # title and note of each plot
    wide: bool = False  # whether it takes the whole width of the page


def curves(caption: str, description: str, losses: Mapping[str, Array], guessing: float | None) -> Drawing:
    """Return loss curves by name, each the means of at most 120 blocks of steps, and the loss of a guess if known."""
    drawn = []
    for name, values in losses.items():
        blocks = np.array_split(np.asarray(values), min(len(values), 120))
        ends = np.cumsum([len(block) for block in blocks])
        middles = ends - np.array([len(block) for block in blocks]) / 2
        means = np.array([block.mean() for block in blocks])
        drawn.append({"name": name, "step": rounded(middles), "loss": rounded(means)})
    return Drawing("curves", caption, description, {"curves": drawn, "guessing": guessing})


def latent_cloud(
    caption: str, description: str, names: Sequence[str], points: Array, colourings: Sequence[Mapping[str, Any]]
) -> Drawing:
    """Return latents (n, d) from −1 to 1, with choices of the axes and of the colouring."""
    data = {"names": list(names), "points": rounded(points), "colourings": list(colourings)}
    return Drawing("latents", caption, description, data)


def matrix(values: Array, description: str, caption: str, *, rows: Sequence[str] = ()) -> Drawing:
    """Return a matrix of numbers from 0 to 1 as squares, with gaps where it is NaN, and names of its rows."""
    squares = [[None if math.isnan(value) else value for value in row] for row in rounded(values)]
    data = {"values": squares, "rows": list(rows)}
    return Drawing("matrix", caption, description, data, wide=values.shape[1] > 24)


def picture(image: NDArray[np.uint8], caption: str) -> Drawing:
    """Return an image, bytes (height, width, 3), enlarged up to three times."""
    height, width = image.shape[:2]
    wide = max(width, min(960, 3 * width))
    data = {"png": _png(image), "width": wide, "height": wide * height // width}
    return Drawing("picture", caption, caption, data, wide=True)


def sliders(images: NDArray[np.uint8], caption: str, title: str = "") -> Drawing:
    """Return a slider for each latent: images (d, steps, h, w, 3) from the low end, where it starts."""
    d, steps, height, width, _ = images.shape
    sheet = images.transpose(0, 2, 1, 3, 4).reshape(d * height, steps * width, 3)
    data = {"png": _png(sheet), "n_latents": d, "steps": steps, "height": height, "width": width}
    return Drawing("sliders", caption, caption, data, ((title, ""),), wide=True)


def _png(image: NDArray[np.uint8]) -> str:
    from pindown.simulate.images import png

    return base64.b64encode(png(image)).decode()


def rounded(values: Array) -> list[Any]:
    """Return nested lists; four digits are more than a screen can show."""
    return np.round(np.asarray(values, dtype=np.float64), 4).tolist()


# ---- images along latents -------------------------------------------------------------------------------------------

MOST_LATENTS, STEPS, FEWEST = 16, 15, 5
"""Latents that have a slider, the first; and images along each, at most and at least."""

MOST_BYTES = 3_000_000
"""Bytes of the images on a page, before they are compressed: of large images fewer steps are drawn."""


def along_each(
    z: NDArray[Any], x: NDArray[Any], decode: Callable[[NDArray[Any]], NDArray[Any]] | None = None
) -> NDArray[np.uint8]:
    """Return images (n, c, h, w) along each of at most 16 latents, others at their median; (d, steps, h, w, 3).

    They are decoded, or by default the nearest of the given images.
    """
    from pindown.simulate.images import along_latents, tiles

    which = np.arange(min(MOST_LATENTS, z.shape[1]))
    steps = max(FEWEST, min(STEPS, MOST_BYTES // (len(which) * 3 * math.prod(x.shape[2:]))))
    if decode is None:
        images = x[along_latents(z, which, steps)]
    else:
        points = np.median(z, axis=0) * np.ones((len(which), steps, 1))
        for j in which.tolist():
            points[j, :, j] = np.quantile(z[:, j], np.linspace(0.05, 0.95, steps))
        images = decode(points.reshape(len(which) * steps, -1))
    return tiles(images).reshape(len(which), steps, *x.shape[2:], 3)


# ---- colours --------------------------------------------------------------------------------------------------------

MOST_KINDS = 24  # distinct values up to which whole numbers are kinds, not amounts; and kinds that have a name


def colouring(name: str, values: NDArray[Any]) -> dict[str, Any]:
    """Return how a column colours points: text and few whole numbers as kinds, other numbers as amounts by their rank.

    ``which`` has the rank of each value among ``n``, ``key`` the first kinds, or least, middle and largest amount.
    """
    plain = values.astype(str) if values.dtype.kind == "O" else values
    found, which = np.unique(plain, return_inverse=True)
    n = len(found)
    amounts = found.dtype.kind in "fiu" and (n > MOST_KINDS or bool((found % 1).any()))
    key = [f"{found[k]:.3g}".replace("-", "−") for k in (0, n // 2, -1)] if amounts else found[:MOST_KINDS].tolist()
    return {"name": name, "amounts": amounts, "which": which.reshape(-1).tolist(), "key": [*map(str, key)], "n": n}


# ---- pages ----------------------------------------------------------------------------------------------------------


def fill(template: str, **content: Any) -> str:
    """Return a page from a template of this package: text is escaped, and style, script and plotly.js are inside."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("pindown.auditing", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    environment.globals["percent"] = lambda score: round(100 * min(1.0, max(0.0, score)), 2)
    style, script = (files("pindown.auditing").joinpath("templates", f"page.{kind}") for kind in ("css", "js"))
    return environment.get_template(template).render(
        **content,
        style=Markup(style.read_text(encoding="utf-8")),
        script=Markup(script.read_text(encoding="utf-8")),
        plotly=lambda: Markup(_plotly()),
    )


@cache
def _plotly() -> str:
    """Return plotly.js, compressed to a third of its size, in base64."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def save_result(path: str | Path, numbers: Callable[[], object], page: Callable[[], str]) -> Path:
    """Write a page (``.html``) or numbers (``.json``), whole or not at all; return the path."""
    path = Path(path)
    if (ending := path.suffix.lower()) not in (".html", ".json"):
        raise InputError("path", f"`path` must end in .html or .json, not in {ending or 'nothing'!r}.")
    check_writable(path)
    text = page() if ending == ".html" else json.dumps(numbers(), indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(text, path)
    return path


def write_whole(text: str, path: Path) -> None:
    """Write text to a file, completely or not at all."""
    check_writable(path)
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_writable(path: Path) -> None:
    """Make the folder of a file, and raise an OSError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(f"{path} cannot be written: {error.strerror or error}. Give the path of a file.") from error
    require_writable(path)
