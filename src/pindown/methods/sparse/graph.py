"""Which code before a map drives which after it: a sparse matrix, its strongest arrows, and a picture of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from pindown._files import atomic_path

if TYPE_CHECKING:
    from pindown.methods.sparse.pair import Pair

ROWS = 256
"""Rows whose Jacobians are formed at once."""

LARGE = 0.01
"""An entry of J above this is counted, as those who published such graphs count them."""

WIDE, STEP, TOP = 420, 22, 40


class Arrow(NamedTuple):
    """A code before the map, one after it, how strongly it drives that, and at which share of rows both fire."""

    source: int
    target: int
    strength: float
    together: float


@dataclass(frozen=True, eq=False)
class CodeGraph:
    """Which code drives which, in some rows.

    Attributes
    ----------
    strength : csr array of shape (n_codes, n_codes)
        Mean over rows of the absolute Jacobian, from a code before the map (row) to one after it (column); 0 where one
        is silent. In units of the spread of rows on either side.
    signed : csr array of shape (n_codes, n_codes)
        The same with its sign.
    together : csr array of shape (n_codes, n_codes)
        Share of rows at which both fire.
    large : float
        Entries of J above .01 of a row, on average.
    n_samples : int
        Rows that were looked at.
    """

    strength: csr_array
    signed: csr_array
    together: csr_array
    large: float
    n_samples: int

    @property
    def total(self) -> float:
        """Σ|J| of a row, on average."""
        return float(self.strength.sum())

    def strongest(self, n_arrows: int = 30) -> list[Arrow]:
        """Return so many arrows, the strongest first."""
        found = coo_array(self.strength)
        rows, columns = found.row, found.col
        order = np.lexsort((columns, rows, -found.data))[:n_arrows]
        return [
            Arrow(int(rows[k]), int(columns[k]), float(found.data[k]), float(self.together[rows[k], columns[k]]))
            for k in order
        ]

    def save(self, path: str | Path, n_arrows: int = 30) -> Path:
        """Write a page with a picture of the strongest arrows, which needs nothing from elsewhere; return its path.

        Parameters
        ----------
        path : str or Path
            The file.
        n_arrows : int
            Arrows to draw.
        """
        with atomic_path(Path(path)) as beside:
            beside.write_text(_page(self, n_arrows), "utf-8")
        return Path(path)

    def __str__(self) -> str:
        n = self.strength.nnz
        return (
            f"Σ|J| of a row is {self.total:.3g}, {self.large:.1f} entries exceed {LARGE}; "
            f"{n:,} pairs of codes fire together in {self.n_samples:,} rows"
        )


@torch.no_grad()
def drives(pair: Pair, x: Tensor) -> CodeGraph:
    """Return the graph of a pair in rows (n, m), some at a time."""
    pair.eval()
    before, after = pair.both
    shape = (before.n_codes, after.n_codes)
    sums = [csr_array(shape, dtype=np.float64) for _ in range(3)]
    large = 0
    for found, at, at_after in _jacobians(pair, x):
        flat = found.mT.reshape(-1).double().cpu().numpy()  # (n, k, k_out)
        rows = at[:, :, None].expand(-1, -1, at_after.shape[1]).reshape(-1).cpu().numpy()
        columns = at_after[:, None].expand(-1, at.shape[1], -1).reshape(-1).cpu().numpy()
        fires = flat != 0
        flat, where = flat[fires], (rows[fires], columns[fires])
        large += int((np.abs(flat) > LARGE).sum())
        for k, values in enumerate((np.abs(flat), flat, np.ones_like(flat))):
            sums[k] = sums[k] + csr_array(coo_array((values, where), shape=shape))
    strength, signed, together = (csr_array(each / len(x)) for each in sums)
    return CodeGraph(strength, signed, together, large / len(x), len(x))


def _jacobians(pair: Pair, x: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    before, after = pair.both
    for part in x.split(ROWS):
        rows = part.to(pair.encoder.device)
        codes = before.codes(pair.encoder.preprocess(rows))
        yield pair.jacobian(rows, codes, after.codes(pair.after.preprocess(pair.between(rows))))


# ---- picture --------------------------------------------------------------------------------------------------------


def _page(graph: CodeGraph, n_arrows: int) -> str:
    style = (
        "body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 50rem; margin: 2rem auto } "
        "svg text { font: 13px system-ui, sans-serif; fill: #222 }"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Codes that drive codes</title>'
        f"<style>{style}</style><h1>Codes that drive codes</h1><p>{escape(str(graph))}.</p>{drawing(graph, n_arrows)}"
        "<p>Left: codes before the map. Right: codes after it. The wider an arrow, the more the code on the right "
        "moves with that on the left, on average over rows; red where it falls.</p></html>\n"
    )


def drawing(graph: CodeGraph, n_arrows: int) -> str:
    """Return the strongest arrows as SVG: codes before the map on the left, codes after it on the right."""
    arrows = graph.strongest(n_arrows)
    sides = [list(dict.fromkeys(arrow[k] for arrow in arrows)) for k in (0, 1)]
    height = TOP + STEP * max(1, *map(len, sides))
    most = max((arrow.strength for arrow in arrows), default=1.0)
    parts = [
        f'<svg viewBox="0 0 {WIDE + 200} {height}" width="100%" role="img" '
        f'aria-label="{len(arrows)} arrows from {len(sides[0])} codes to {len(sides[1])}">'
    ]
    for arrow in arrows:
        ends = [TOP + STEP * side.index(code) - 4 for side, code in zip(sides, arrow[:2], strict=True)]
        colour = "#1b6ca8" if graph.signed[arrow.source, arrow.target] >= 0 else "#d1495b"
        parts.append(
            f'<line x1="100" x2="{WIDE + 100}" y1="{ends[0]}" y2="{ends[1]}" stroke="{colour}" '
            f'stroke-width="{0.5 + 5 * arrow.strength / most:.2f}" stroke-opacity=".7"/>'
        )
    for side, x, anchor in ((sides[0], 92, "end"), (sides[1], WIDE + 108, "start")):
        for k, code in enumerate(side):
            parts.append(f'<text x="{x}" y="{TOP + STEP * k}" text-anchor="{anchor}">{code}</text>')
    return "".join([*parts, "</svg>"])
