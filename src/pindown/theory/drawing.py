"""A picture of a support: the bipartite graph, and its atomic regions as a Venn diagram or a table of dots."""

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pindown._names import counted
from pindown.errors import InputError
from pindown.theory.structure import Block, Support, as_support, identified_blocks

MAX_OBSERVED, MAX_LATENTS = 60, 40
_COLOURS = ("#1f6fb2", "#c8553d", "#3a8a4f", "#7b5aa6", "#b58900", "#2a9d9d", "#b0478a", "#6b6b2f")
_STEP, _RADIUS, _TOP, _BOTTOM, _GAP = 32, 11, 84, 56, 70  # pixels
_GRAPH, _LETTER, _LONGEST = 190, 6.8, 18  # width between the columns of the graph; of a letter; letters in a name
_CIRCLE, _OFFSET = 92, 56  # radius of a Venn circle, and the distance of its centre from that of the diagram


def draw_support(
    support: ArrayLike, *, latents: Sequence[str] | None = None, observed: Sequence[str] | None = None
) -> str:
    """Return a self-contained SVG picture of a support.

    On the left the bipartite graph, latents of one atomic region in one colour. On the right the regions: circles
    where there are at most three observed variables, else a table with a column of dots for each. A dashed ring
    marks latents whose recovery rests on independence (`Block.needs_independence`).

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
        raise InputError(
            "support",
            f"a `support` of shape ({m}, {d}) is too large for a picture, which shows at most {MAX_OBSERVED} observed "
            f"variables and {MAX_LATENTS} latents. Draw only the rows and columns of interest.",
        )
    blocks = identified_blocks(matrix)
    named = _Named(matrix, blocks, _names("latents", latents, d, "z"), _names("observed", observed, m, "x"))
    in_circles = m <= 3 and max(len(block.latents) for block in blocks) <= 4
    graph, regions = _graph(named), (_venn if in_circles else _dots)(named)
    second = graph.width + _GAP  # where the second panel begins
    single = sum(block.is_single for block in blocks)
    heading = f"{single} of {counted(d, 'latent')} alone in a block"
    if others := len(blocks) - single:
        heading += f", the others in {counted(others, 'block')}"
    ringed = any(block.needs_independence for block in blocks)
    remark = "dashed ring: rests on independent latents, not on the structure alone" if ringed else ""
    width = max(second + regions.width + 24, 48 + _LETTER * max(len(heading), len(remark)))
    inner = max(graph.height, regions.height)
    height = _TOP + inner + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" font-family="system-ui, sans-serif" font-size="13" fill="#222">'
        f'<title>{escape(heading)}</title><rect width="100%" height="100%" fill="#fff"/>'
        f"{_text(24, 28, heading, weight='bold')}{_text(24, 56, 'latents → observed', fill='#666')}"
        f"{_text(second, 56, 'atomic regions', fill='#666')}{_text(24, height - 20, remark, fill='#666')}"
        f'<g transform="translate(0, {_TOP + (inner - graph.height) / 2:.1f})">{graph.svg}</g>'
        f'<g transform="translate({second:.1f}, {_TOP + (inner - regions.height) / 2:.1f})">{regions.svg}</g></svg>\n'
    )


class _Named(NamedTuple):
    matrix: Support
    blocks: Sequence[Block]
    z_names: list[str]
    x_names: list[str]


class _Panel(NamedTuple):
    svg: str
    width: float
    height: float


def _names(argument: str, given: Sequence[str] | None, count: int, letter: str) -> list[str]:
    if given is None:
        return [letter + str(index).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")) for index in range(count)]
    if isinstance(given, str) or len(given) != count:
        raise InputError(argument, f"`{argument}` must have {count} names, one for each of them, got {given!r}.")
    return [str(name) for name in given]


def _graph(named: _Named) -> _Panel:
    """Draw the bipartite graph."""
    m, d = named.matrix.shape
    height = _STEP * (max(m, d) - 1) + 2 * _RADIUS
    left = 24 + _width(named.z_names) + 10 + _RADIUS
    right = left + _GRAPH
    z_at, x_at = ([_RADIUS + (height - 2 * _RADIUS) * (k + 0.5) / n for k in range(n)] for n in (d, m))
    block_of = {j: number for number, block in enumerate(named.blocks) for j in block.latents}
    parts = [
        f'<line x1="{left:.1f}" y1="{z_at[j]:.1f}" x2="{right:.1f}" y2="{x_at[k]:.1f}" '
        f'stroke="{_colour(block_of[j])}" stroke-width="1.6" stroke-opacity=".65"/>'
        for k, j in np.argwhere(named.matrix).tolist()
    ]
    for y, j, name in zip(z_at, range(d), named.z_names, strict=True):
        parts.append(_latent(left, y, block_of[j], named.blocks[block_of[j]]))
        parts.append(_label(left - _RADIUS - 7, y + 4, name, anchor="end"))
    for y, name in zip(x_at, named.x_names, strict=True):
        parts.append(f'<rect x="{right - 7:.1f}" y="{y - 7:.1f}" width="14" height="14" rx="3" fill="#444"/>')
        parts.append(_label(right + 14, y + 4, name))
    return _Panel("".join(parts), right + 14 + _width(named.x_names), height)


def _venn(named: _Named) -> _Panel:
    """Draw one to three circles with the latents in their regions."""
    m = len(named.matrix)
    start = {1: 0.0, 2: math.pi, 3: -math.pi / 2}[m]
    towards = [(math.cos(start + 2 * math.pi * k / m), math.sin(start + 2 * math.pi * k / m)) for k in range(m)]
    offset = 0 if m == 1 else _OFFSET
    middle_x, middle_y = _width(named.x_names) + 16 + offset + _CIRCLE, _CIRCLE + (offset if m == 3 else 0)
    shapes, labels = [], []
    for (u, v), name in zip(towards, named.x_names, strict=True):
        x, y = middle_x + offset * u, middle_y + offset * v
        shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_CIRCLE}" fill="#888" fill-opacity=".10" stroke="#666"/>')
        # At the height of its centre nothing is next to a circle; the topmost has its name at its shoulder.
        slope = 0.6 if m == 3 and v < 0 else 0.0
        out = -1 if u < -1e-9 else 1
        at = x + out * (_CIRCLE * math.cos(slope) + 8), y - _CIRCLE * math.sin(slope) + 4
        labels.append(_label(*at, name, anchor="end" if out < 0 else "start"))
    for number, block in enumerate(named.blocks):
        at_x, at_y = _region_centre(towards, block.reach)
        members = sorted(block.latents)
        for row, j in enumerate(members):
            y = middle_y + at_y + (row - (len(members) - 1) / 2) * 17
            labels.append(_latent(middle_x + at_x - 12, y, number, block, radius=5))
            labels.append(_label(middle_x + at_x, y + 4, named.z_names[j], most=7))
    below = offset / 2 if m == 3 else 0  # two of three circles are half as far below the middle as one is above it
    return _Panel("".join(shapes + labels), 2 * middle_x, middle_y + _CIRCLE + below)


def _region_centre(towards: Sequence[tuple[float, float]], reach: frozenset[int]) -> tuple[float, float]:
    """Return a point inside the circles of ``reach`` and outside the others, from the middle of the diagram."""
    if len(reach) == len(towards):
        return 0.0, 0.0
    far = _OFFSET + 0.5 * _CIRCLE if len(reach) == 1 else 1.3 * _OFFSET
    u, v = (sum(towards[k][axis] for k in reach) for axis in (0, 1))
    length = math.hypot(u, v)
    return far * u / length, far * v / length


def _dots(named: _Named) -> _Panel:
    """Draw the table of regions: a column of dots for each, with its latents above."""
    column = max(36.0, _width(named.z_names) + 32)
    head = 18 * max(len(block.latents) for block in named.blocks) + 10
    left = _width(named.x_names) + 26
    rows = [head + _STEP * 0.8 * (k + 0.5) for k in range(len(named.matrix))]
    end = left + column * (len(named.blocks) - 1) + 12
    parts = []
    for y, name in zip(rows, named.x_names, strict=True):
        parts.append(_label(left - 20, y + 4, name, anchor="end"))
        parts.append(f'<path d="M{left - 12:.1f} {y:.1f}H{end:.1f}" stroke="#e3e3e3"/>')
    for number, block in enumerate(named.blocks):
        x, colour = left + column * number, _colour(number)
        for above, j in enumerate(sorted(block.latents, reverse=True)):
            parts.append(_latent(x, head - 14 - 18 * above, number, block, radius=5))
            parts.append(_label(x + 12, head - 10 - 18 * above, named.z_names[j]))
        for a, b in pairwise(sorted(block.reach)):
            parts.append(f'<path d="M{x:.1f} {rows[a]:.1f}V{rows[b]:.1f}" stroke="{colour}" stroke-opacity=".35"/>')
        for k, y in enumerate(rows):
            radius, fill = (5.0, colour) if k in block.reach else (2.5, "#dcdcdc")
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}"/>')
    return _Panel("".join(parts), left + column * len(named.blocks), rows[-1] + _STEP * 0.4)


def _latent(x: float, y: float, number: int, block: Block, *, radius: float = _RADIUS - 4) -> str:
    place, colour = f'cx="{x:.1f}" cy="{y:.1f}"', _colour(number)
    mark = f'<circle {place} r="{radius}" fill="{colour}"/>'
    if block.needs_independence:
        ring = 'fill="none" stroke-width="1.3" stroke-dasharray="2.5 2"'
        mark += f'<circle {place} r="{radius + 3}" {ring} stroke="{colour}"/>'
    return mark


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _width(names: Sequence[str]) -> float:
    return _LETTER * min(max(map(len, names)), _LONGEST)


def _label(x: float, y: float, name: str, *, anchor: str = "start", most: int = _LONGEST) -> str:
    """Return a name, shortened in the picture and in full when the mouse is over it."""
    if len(name) <= most:
        return _text(x, y, name, anchor=anchor)
    return f"<g><title>{escape(name)}</title>{_text(x, y, name[: most - 1] + '…', anchor=anchor)}</g>"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", fill: str = "#222") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
