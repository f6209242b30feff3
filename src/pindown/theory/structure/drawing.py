"""A picture of a support: the bipartite graph, and its atomic regions as a Venn diagram or a table of dots."""

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from pindown.theory.structure.sets import Block, Support, as_support, identified_blocks

_COLOURS = ("#1f6fb2", "#c8553d", "#3a8a4f", "#7b5aa6", "#b58900", "#2a9d9d", "#b0478a", "#6b6b2f")
_STEP, _RADIUS, _TOP, _BOTTOM, _GAP = 32, 11, 84, 56, 70  # pixels
_GRAPH, _LETTER, _LONGEST = 190, 6.8, 18  # width between the columns of the graph; of a letter; letters in a name
_CIRCLE, _APART = 92, 56  # radius of a Venn circle, and its distance from the middle
MOST_OBSERVED, MOST_LATENTS = 60, 40


def draw(support: ArrayLike, *, latents: Sequence[str] | None = None, observed: Sequence[str] | None = None) -> str:
    """Return a self-contained SVG picture of a support.

    On the left the bipartite graph, latents of one atomic region in one colour. On the right the regions: circles
    where there are at most three observed variables, else a table with a column of dots for each. A dashed ring
    marks latents whose recovery rests on independence (`Block.needs_independence`).

    Parameters
    ----------
    support : array of zeros and ones of shape (m, d)
    latents, observed : sequence of str, optional
        Names; z₀, z₁, … and x₀, x₁, … if left out. Long ones are shortened in the picture.

    Examples
    --------
    >>> picture = draw([[1, 1, 0], [0, 1, 1], [0, 0, 1]], observed=["eye", "ear", "nose"])
    >>> picture.startswith("<svg"), picture.count("<line"), "nose" in picture
    (True, 5, True)
    """
    matrix = as_support(support)
    m, d = matrix.shape
    if m > MOST_OBSERVED or d > MOST_LATENTS:
        raise ValueError(
            f"draw: a support of shape ({m}, {d}) is too large for a picture, which holds {MOST_OBSERVED} observed "
            f"variables and {MOST_LATENTS} latents. Draw the rows and columns of interest."
        )
    z_names, x_names = _names("latents", latents, d, "z"), _names("observed", observed, m, "x")
    blocks = identified_blocks(matrix)
    in_circles = m <= 3 and max(len(block.latents) for block in blocks) <= 4
    graph, graph_width, graph_height = _graph(matrix, blocks, z_names, x_names)
    regions, regions_width, regions_height = (_venn if in_circles else _dots)(matrix, blocks, z_names, x_names)
    second = graph_width + _GAP  # where the second panel begins
    heading, remark = _summary(blocks, d)
    width = max(second + regions_width + 24, 48 + _LETTER * max(len(heading), len(remark)))
    inner = max(graph_height, regions_height)
    height = _TOP + inner + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" font-family="system-ui, sans-serif" font-size="13" fill="#222">'
        f'<title>{escape(heading)}</title><rect width="100%" height="100%" fill="#fff"/>'
        f"{_text(24, 28, heading, weight='bold')}{_text(24, 56, 'latents → observed', fill='#666')}"
        f"{_text(second, 56, 'atomic regions', fill='#666')}{_text(24, height - 20, remark, fill='#666')}"
        f'<g transform="translate(0, {_TOP + (inner - graph_height) / 2:.1f})">{graph}</g>'
        f'<g transform="translate({second:.1f}, {_TOP + (inner - regions_height) / 2:.1f})">{regions}</g></svg>\n'
    )


def _names(parameter: str, given: Sequence[str] | None, count: int, letter: str) -> list[str]:
    if given is None:
        return [letter + "".join(chr(ord("₀") + int(digit)) for digit in str(index)) for index in range(count)]
    if isinstance(given, str) or len(given) != count:
        raise ValueError(f"draw: {parameter} must be {count} names, one for each of them, got {given!r}.")
    return [str(name) for name in given]


def _summary(blocks: Sequence[Block], d: int) -> tuple[str, str]:
    single = sum(block.is_single for block in blocks)
    rest = len(blocks) - single
    heading = f"{single} of {d} latent{'s' * (d > 1)} alone in {'their' if single != 1 else 'its'} region"
    if rest:
        heading += f", the others in {rest} region{'s' * (rest > 1)}"
    leaning = any(block.needs_independence for block in blocks)
    return heading, "dashed ring: rests on independent latents, not on the structure alone" if leaning else ""


def _graph(
    matrix: Support, blocks: Sequence[Block], z_names: Sequence[str], x_names: Sequence[str]
) -> tuple[str, float, float]:
    """Return the bipartite graph, its width and its height."""
    m, d = matrix.shape
    height = _STEP * (max(m, d) - 1) + 2 * _RADIUS
    left = 24 + _width(z_names) + 10 + _RADIUS
    right = left + _GRAPH
    z_at = [_RADIUS + (height - 2 * _RADIUS) * (j + 0.5) / d for j in range(d)]
    x_at = [_RADIUS + (height - 2 * _RADIUS) * (k + 0.5) / m for k in range(m)]
    block_of = {j: number for number, block in enumerate(blocks) for j in block.latents}
    lines, marks = [], []
    for k, j in np.argwhere(matrix).tolist():
        lines.append(
            f'<line x1="{left:.1f}" y1="{z_at[j]:.1f}" x2="{right:.1f}" y2="{x_at[k]:.1f}" '
            f'stroke="{_colour(block_of[j])}" stroke-width="1.6" stroke-opacity=".65"/>'
        )
    for j, name in enumerate(z_names):
        marks.append(_latent(left, z_at[j], block_of[j], blocks[block_of[j]]))
        marks.append(_label(left - _RADIUS - 7, z_at[j] + 4, name, anchor="end"))
    for k, name in enumerate(x_names):
        marks.append(f'<rect x="{right - 7:.1f}" y="{x_at[k] - 7:.1f}" width="14" height="14" rx="3" fill="#444"/>')
        marks.append(_label(right + 14, x_at[k] + 4, name))
    return "".join(lines + marks), right + 14 + _width(x_names), height


def _venn(
    matrix: Support, blocks: Sequence[Block], z_names: Sequence[str], x_names: Sequence[str]
) -> tuple[str, float, float]:
    """Return one to three circles with the latents in their regions, the width and the height."""
    m = len(matrix)
    start = {1: 0.0, 2: math.pi, 3: -math.pi / 2}[m]
    towards = [(math.cos(start + 2 * math.pi * k / m), math.sin(start + 2 * math.pi * k / m)) for k in range(m)]
    apart = 0 if m == 1 else _APART
    margin = _width(x_names) + 16
    middle_x, middle_y = margin + apart + _CIRCLE, _CIRCLE + (apart if m == 3 else 0)
    shapes, words = [], []
    for (u, v), name in zip(towards, x_names, strict=True):
        x, y = middle_x + apart * u, middle_y + apart * v
        shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_CIRCLE}" fill="#888" fill-opacity=".10" stroke="#666"/>')
        # At the height of its centre a circle has nothing beside it; the topmost is named at its shoulder.
        slope = 0.6 if m == 3 and v < 0 else 0.0
        out = -1 if u < -1e-9 else 1
        at = x + out * (_CIRCLE * math.cos(slope) + 8), y - _CIRCLE * math.sin(slope) + 4
        words.append(_label(*at, name, anchor="end" if out < 0 else "start"))
    for number, block in enumerate(blocks):
        at_x, at_y = _region_centre(towards, block.reach)
        x, y = middle_x + at_x, middle_y + at_y
        members = sorted(block.latents)
        for row, j in enumerate(members):
            line = y + (row - (len(members) - 1) / 2) * 17
            words.append(_latent(x - 12, line, number, block, radius=5))
            words.append(_label(x, line + 4, z_names[j], most=7))
    height = (
        middle_y + _CIRCLE + (apart / 2 if m == 3 else 0)
    )  # two of three circles hang half as low as one stands high
    return "".join(shapes + words), 2 * middle_x, height


def _region_centre(towards: Sequence[tuple[float, float]], reach: frozenset[int]) -> tuple[float, float]:
    """Return a point inside the circles of ``reach`` and outside the others, seen from the middle of the diagram."""
    if len(reach) == len(towards):
        return 0.0, 0.0
    far = _APART + 0.5 * _CIRCLE if len(reach) == 1 else 1.3 * _APART
    u, v = (sum(towards[k][axis] for k in reach) for axis in (0, 1))
    length = math.hypot(u, v)
    return far * u / length, far * v / length


def _dots(
    matrix: Support, blocks: Sequence[Block], z_names: Sequence[str], x_names: Sequence[str]
) -> tuple[str, float, float]:
    """Return the table of regions, a column of dots for each with its latents above; the width and the height."""
    column = max(36.0, _width(z_names) + 32)
    head = 18 * max(len(block.latents) for block in blocks) + 10
    left = _width(x_names) + 26
    rows = [head + _STEP * 0.8 * (k + 0.5) for k in range(len(matrix))]
    parts = []
    for k, name in enumerate(x_names):
        end = left + column * (len(blocks) - 1) + 12
        parts.append(_label(left - 20, rows[k] + 4, name, anchor="end"))
        parts.append(f'<path d="M{left - 12:.1f} {rows[k]:.1f}H{end:.1f}" stroke="#e3e3e3"/>')
    for number, block in enumerate(blocks):
        x, colour = left + column * number, _colour(number)
        members = sorted(block.latents)
        for row, j in enumerate(members):
            line = head - 14 - 18 * (len(members) - 1 - row)
            parts.append(_latent(x, line, number, block, radius=5))
            parts.append(_label(x + 12, line + 4, z_names[j]))
        seen = sorted(block.reach)
        for a, b in pairwise(seen):
            parts.append(f'<path d="M{x:.1f} {rows[a]:.1f}V{rows[b]:.1f}" stroke="{colour}" stroke-opacity=".35"/>')
        for k, y in enumerate(rows):
            fill = colour if k in block.reach else "#dcdcdc"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if k in block.reach else 2.5}" fill="{fill}"/>')
    return "".join(parts), left + column * len(blocks), rows[-1] + _STEP * 0.4


def _latent(x: float, y: float, number: int, block: Block, *, radius: float = _RADIUS - 4) -> str:
    mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{_colour(number)}"/>'
    if block.needs_independence:
        mark += (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius + 3}" fill="none" stroke="{_colour(number)}" '
            'stroke-width="1.3" stroke-dasharray="2.5 2"/>'
        )
    return mark


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _short(name: str, most: int = _LONGEST) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _width(names: Sequence[str]) -> float:
    return _LETTER * max(len(_short(name)) for name in names)


def _label(x: float, y: float, name: str, *, anchor: str = "start", most: int = _LONGEST) -> str:
    """Return a name, shortened in the picture and whole when pointed at."""
    short = _short(name, most)
    if short == name:
        return _text(x, y, name, anchor=anchor)
    return f"<g><title>{escape(name)}</title>{_text(x, y, short, anchor=anchor)}</g>"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", fill: str = "#222") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
