"""A picture of a support: the bipartite graph, coloured by atomic region."""

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from pindown._names import counted
from pindown.errors import InputError
from pindown.theory.structure import Block, Support, as_support, identified_blocks

MAX_OBSERVED, MAX_LATENTS = 60, 40
_COLOURS = ("#1f6fb2", "#c8553d", "#3a8a4f", "#7b5aa6", "#b58900", "#2a9d9d", "#b0478a", "#6b6b2f")
_STEP, _RADIUS, _TOP, _BOTTOM = 32, 11, 84, 56  # pixels
_GRAPH, _LETTER, _LONGEST = 190, 6.8, 18  # width between the columns of the graph; of a letter; letters in a name


def draw_support(
    support: ArrayLike, *, latents: Sequence[str] | None = None, observed: Sequence[str] | None = None
) -> str:
    """Return a self-contained SVG picture of a support.

    Latents are on the left, and those of one atomic region, which are recovered together, have one colour. A dashed
    ring marks latents whose recovery rests on independence (`Block.needs_independence`).

    Parameters
    ----------
    support : array of zeros and ones of shape (m, d)
    latents, observed : sequence of str, optional
        Names; by default z₀, z₁, … and x₀, x₁, …. Long ones are shortened in the picture.

    Examples
    --------
    >>> picture = draw_support([[1, 1, 0], [0, 1, 1], [0, 0, 1]], observed=["eye", "ear", "nose"])
    >>> picture.startswith("<svg"), picture.count("<line"), "nose" in picture
    (True, 5, True)
    """
    matrix = as_support(support)
    m, d = matrix.shape
    if m > MAX_OBSERVED or d > MAX_LATENTS:
        most = f"at most {MAX_OBSERVED} observed variables and {MAX_LATENTS} latents"
        raise InputError("support", f"a picture shows {most}, got {m} and {d}. Draw the rows and columns of interest.")
    z_names, x_names = _names("latents", latents, d, "z"), _names("observed", observed, m, "x")
    blocks = identified_blocks(matrix)
    graph, graph_width, graph_height = _graph(matrix, blocks, z_names, x_names)
    single = sum(block.is_single for block in blocks)
    heading = f"{single} of {counted(d, 'latent')} alone in a block"
    if others := len(blocks) - single:
        heading += f", the others in {counted(others, 'block')}"
    ringed = any(block.needs_independence for block in blocks)
    remark = "dashed ring: rests on independent latents, not on the structure alone" if ringed else ""
    width = max(graph_width + 24, 48 + _LETTER * max(len(heading), len(remark)))
    height = _TOP + graph_height + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" font-family="system-ui, sans-serif" font-size="13" fill="#222">'
        f'<title>{escape(heading)}</title><rect width="100%" height="100%" fill="#fff"/>'
        f"{_text(24, 28, heading, weight='bold')}{_text(24, 56, 'latents → observed', fill='#666')}"
        f"{_text(24, height - 20, remark, fill='#666')}"
        f'<g transform="translate(0, {_TOP})">{graph}</g></svg>\n'
    )


def _names(argument: str, given: Sequence[str] | None, count: int, letter: str) -> list[str]:
    if given is None:
        return [letter + str(index).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")) for index in range(count)]
    if isinstance(given, str) or len(given) != count:
        raise InputError(argument, f"`{argument}` must have {count} names, one for each of them, got {given!r}.")
    return [str(name) for name in given]


def _graph(
    matrix: Support, blocks: Sequence[Block], z_names: list[str], x_names: list[str]
) -> tuple[str, float, float]:
    """Return the bipartite graph, its width and its height."""
    height = _STEP * (max(matrix.shape) - 1) + 2 * _RADIUS
    left = 24 + _width(z_names) + 10 + _RADIUS
    right = left + _GRAPH
    x_at, z_at = ([_RADIUS + (height - 2 * _RADIUS) * (k + 0.5) / n for k in range(n)] for n in matrix.shape)
    block_of = {j: number for number, block in enumerate(blocks) for j in block.latents}
    parts = [
        f'<line x1="{left:.1f}" y1="{z_at[j]:.1f}" x2="{right:.1f}" y2="{x_at[k]:.1f}" '
        f'stroke="{_colour(block_of[j])}" stroke-width="1.6" stroke-opacity=".65"/>'
        for k, j in np.argwhere(matrix).tolist()
    ]
    for j, (y, name) in enumerate(zip(z_at, z_names, strict=True)):
        parts.append(_latent(left, y, block_of[j], blocks[block_of[j]]))
        parts.append(_label(left - _RADIUS - 7, y + 4, name, anchor="end"))
    for y, name in zip(x_at, x_names, strict=True):
        parts.append(f'<rect x="{right - 7:.1f}" y="{y - 7:.1f}" width="14" height="14" rx="3" fill="#444"/>')
        parts.append(_label(right + 14, y + 4, name))
    return "".join(parts), right + 14 + _width(x_names), height


def _latent(x: float, y: float, number: int, block: Block) -> str:
    radius, place, colour = _RADIUS - 4, f'cx="{x:.1f}" cy="{y:.1f}"', _colour(number)
    mark = f'<circle {place} r="{radius}" fill="{colour}"/>'
    if block.needs_independence:
        ring = 'fill="none" stroke-width="1.3" stroke-dasharray="2.5 2"'
        mark += f'<circle {place} r="{radius + 3}" {ring} stroke="{colour}"/>'
    return mark


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _width(names: Sequence[str]) -> float:
    return _LETTER * min(max(map(len, names)), _LONGEST)


def _label(x: float, y: float, name: str, *, anchor: str = "start") -> str:
    """Return a name, shortened in the picture and in full when the mouse is over it."""
    if len(name) <= _LONGEST:
        return _text(x, y, name, anchor=anchor)
    return f"<g><title>{escape(name)}</title>{_text(x, y, name[: _LONGEST - 1] + '…', anchor=anchor)}</g>"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", fill: str = "#222") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
