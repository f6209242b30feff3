"""The page of probes: a dot for each model and factor with its error, a tick for chance, and the table below."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pindown.auditing.probing.result import Probing

COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#8d6a9f", "#edae49", "#5c5c5c")
LEFT, WIDE, STEP = 190, 460, 14

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
pre { font-size: 12.5px; overflow-x: auto } svg text { font: 13px system-ui, sans-serif; fill: #222 }
"""


def page(found: Probing) -> str:
    """Return a page that needs nothing from elsewhere."""
    table = str(found).removesuffix(found.sentence).rstrip()
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Probes</title>'
        f"<style>{STYLE}</style><h1>What a linear probe reads</h1><p>{escape(found.sentence)}</p>"
        f"{drawing(found)}<p>Dots are scores on groups that no probe has seen, with two standard errors; ticks are "
        "what permuted labels score. Labels: balanced accuracy; quantities: R².</p>"
        f"<pre>{escape(table)}</pre></html>\n"
    )


def drawing(found: Probing) -> str:
    """Return the picture as SVG."""
    models, factors = found.models, found.factors
    by = {(each.factor, each.model): each for each in found.probed}
    low = min(0.0, *(each.score - 2 * each.error for each in found.probed))
    block = STEP * len(models) + 12
    height = block * len(factors) + 40 + 20 * len(models)

    def across(value: float) -> float:
        return LEFT + WIDE * (min(value, 1.0) - low) / (1 - low)

    parts = [
        f'<svg viewBox="0 0 {LEFT + WIDE + 60} {height}" width="100%" role="img" '
        f'aria-label="Scores of {len(models)} models for {len(factors)} factors">'
    ]
    for k, factor in enumerate(factors):
        top = 12 + k * block
        parts.append(f'<text x="{LEFT - 12}" y="{top + block / 2}" text-anchor="end">{escape(factor)}</text>')
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDE}" y1="{top - 4}" y2="{top - 4}" stroke="#eee"/>')
        for j, model in enumerate(models):
            each, y, colour = by[factor, model], top + 8 + j * STEP, COLOURS[j % len(COLOURS)]
            ends = [across(max(low, each.score + side * 2 * each.error)) for side in (-1, 1)]
            chance = across(each.chance)
            parts.append(f'<line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y}" y2="{y}" stroke="{colour}"/>')
            parts.append(f'<circle cx="{across(each.score):.1f}" cy="{y}" r="4.5" fill="{colour}"/>')
            parts.append(f'<line x1="{chance:.1f}" x2="{chance:.1f}" y1="{y - 5}" y2="{y + 5}" stroke="#222"/>')
    foot = 12 + block * len(factors)
    for value in (low, 0.5, 1.0):
        parts.append(f'<text x="{across(value):.1f}" y="{foot + 12}" text-anchor="middle">{value:.2g}</text>')
    for j, model in enumerate(models):
        y = foot + 32 + 20 * j
        parts.append(f'<circle cx="{LEFT}" cy="{y - 4}" r="4.5" fill="{COLOURS[j % len(COLOURS)]}"/>')
        parts.append(f'<text x="{LEFT + 12}" y="{y}">{escape(model)}</text>')
    return "".join([*parts, "</svg>"])
