"""A figure of a paper from records: one SVG file, the paper's points next to ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean, stdev

from pindown_papers._experiment import Axes, Experiment, Profile, Record, Row

_COLOURS = ("#1f6fb2", "#c8553d", "#3a8a4f", "#7b5aa6", "#b58900")
_PANEL_WIDTH, _HEIGHT, _LEGEND_WIDTH = 330, 340, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 14, 78, 46


@dataclass(frozen=True)
class Point:
    """A value along x, what we measured there (mean and standard deviation), and the paper's number or NaN."""

    x: str
    mean: float
    spread: float
    paper: float


def draw(experiment: Experiment, profile: Profile, records: Sequence[Record]) -> str:
    """Return the figure of an experiment as SVG; points without a run are left out.

    Parameters
    ----------
    experiment, profile
        What was run, and how large. Records of other experiments or settings are left out.
    records
        The runs.

    Raises
    ------
    ValueError
        If the experiment is no figure, or none of the records answers it.
    """
    axes = experiment.axes
    if axes is None:
        raise ValueError(f"{experiment.name} is a table, not a figure: it has no axes. Print it with compare.")
    runs = [record for record in records if record.answers(experiment, profile)]
    if not runs:
        raise ValueError(f"no record is a run of {experiment.name} with profile {profile.name}: run reproduce first.")
    panels = [_panel(experiment, axes, score, runs) for score in axes.scores]
    names = list(dict.fromkeys(name for lines in panels for name in lines))
    ticks = list(dict.fromkeys(_value(row, experiment, axes.x) for row in experiment.rows))
    width = len(panels) * _PANEL_WIDTH + _LEGEND_WIDTH
    body = [
        f'<g transform="translate({i * _PANEL_WIDTH}, 0)">{_drawn(lines, names, ticks, score, axes.x)}</g>'
        for i, (score, lines) in enumerate(zip(axes.scores, panels, strict=True))
    ]
    with_paper = any(not math.isnan(p.paper) for lines in panels for points in lines.values() for p in points)
    seeds = len({run.seed for run in runs})
    caption = f"{experiment.title}; profile {profile.name}, {seeds} seed{'s' * (seeds > 1)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" width="{width}" height="{_HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#222">'
        f'<rect width="100%" height="100%" fill="#fff"/>{_text(_LEFT, 20, experiment.source, weight="bold")}'
        f"{_text(_LEFT, 38, caption)}{''.join(body)}"
        f"{_legend(names, len(panels) * _PANEL_WIDTH, axes.line, with_paper)}</svg>\n"
    )


def _panel(experiment: Experiment, axes: Axes, score: str, runs: Sequence[Record]) -> dict[str, list[Point]]:
    """Return the points of every line, in the order of the rows."""
    lines: dict[str, list[Point]] = {}
    for row in experiment.rows:
        found = [100 * run.scores[score] for run in runs if run.row == row.number and score in run.scores]
        if found:
            paper = row.published[experiment.scores.index(score)].mean if score in experiment.scores else math.nan
            spread = stdev(found) if len(found) > 1 else 0.0
            point = Point(_value(row, experiment, axes.x), fmean(found), spread, paper)
            lines.setdefault(_cell(row, experiment, axes.line), []).append(point)
    return lines


def _cell(row: Row, experiment: Experiment, heading: str) -> str:
    return row.setting[experiment.headings.index(heading)]


def _value(row: Row, experiment: Experiment, heading: str) -> str:
    """Return a cell without its name: 5 for d = 5."""
    return _cell(row, experiment, heading).rpartition("= ")[2]


def _drawn(lines: dict[str, list[Point]], names: Sequence[str], ticks: Sequence[str], score: str, x_name: str) -> str:
    points = [point for line in lines.values() for point in line]
    heights = [p.mean for p in points] + [p.paper for p in points if not math.isnan(p.paper)]
    grid = nice_ticks(min(heights), max(heights))
    span = _PANEL_WIDTH - _LEFT - _RIGHT

    def x_of(tick: str) -> float:
        return _LEFT + span * (ticks.index(tick) + 0.5) / len(ticks)

    def y_of(value: float) -> float:
        inner = _HEIGHT - _TOP - _BOTTOM
        return _HEIGHT - _BOTTOM - inner * (value - grid[0]) / (grid[-1] - grid[0])

    parts = [_text(_LEFT, _TOP - 12, score, weight="bold")]
    for value in grid:
        y = y_of(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{span}" stroke="#e3e3e3"/>')
        parts.append(_text(_LEFT - 7, y + 4, f"{value:g}", anchor="end"))
    parts += [_text(x_of(tick), _HEIGHT - _BOTTOM + 18, tick, anchor="middle") for tick in ticks]
    parts.append(_text(_LEFT + span / 2, _HEIGHT - 10, x_name, anchor="middle"))
    for name, line in lines.items():
        colour = _COLOURS[names.index(name) % len(_COLOURS)]
        corners = " ".join(f"{x_of(p.x):.1f},{y_of(p.mean):.1f}" for p in line)
        parts.append(f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for p in line:
            x = x_of(p.x)
            if p.spread:
                low, high = (y_of(min(max(p.mean + s * p.spread, grid[0]), grid[-1])) for s in (-1, 1))
                parts.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{y_of(p.mean):.1f}" r="3.5" fill="{colour}"/>')
            if not math.isnan(p.paper):
                parts.append(_diamond(x, y_of(p.paper), colour))
    return "".join(parts)


def nice_ticks(low: float, high: float) -> list[float]:
    """Return round numbers from at or below `low` to at or above `high`, at least three.

    Examples
    --------
    >>> nice_ticks(43.0, 99.4)
    [40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0]
    >>> nice_ticks(98.2, 99.6)
    [98.0, 98.5, 99.0, 99.5, 100.0]
    """
    gap = max(high - low, 1e-3) / 4
    unit = 10.0 ** math.floor(math.log10(gap))
    step = min((unit * m for m in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / gap)))
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 2)
    return [round(k * step, 10) for k in range(first, last + 1)]


def _legend(names: Sequence[str], x: float, title: str, with_paper: bool) -> str:
    parts = [_text(x + 10, _TOP + 4, title, weight="bold")]
    y = _TOP + 24.0
    for i, name in enumerate(names):
        colour = _COLOURS[i % len(_COLOURS)]
        parts.append(f'<path d="M{x + 10} {y - 4}h22" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<circle cx="{x + 21}" cy="{y - 4}" r="3.5" fill="{colour}"/>')
        parts.append(_text(x + 40, y, name))
        y += 20
    if with_paper:
        parts += [_diamond(x + 21, y + 6, "#222"), _text(x + 40, y + 10, "the paper")]
    return "".join(parts)


def _diamond(x: float, y: float, colour: str) -> str:
    corners = f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"
    return f'<path d="{corners}" fill="#fff" fill-opacity=".6" stroke="{colour}" stroke-width="1.6"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
