"""What the page of an audit draws beside the numbers: codes and what may colour them, losses, matchings, a support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from pindown.auditing.evidence.agreement import matching, principal_angles
from pindown.auditing.evidence.rows import Refits, Rows
from pindown.auditing.refitting import has_another_start
from pindown.auditing.report.sliders import slid
from pindown.simulate.images import contact_sheet, nearest_traversals, swaps

Matrix = NDArray[np.float64]

DRAWN, MOST_COLUMNS = 2_000, 64
"""Points in a picture of the latents, and columns of a table that can colour them."""

THUMBNAILS = 24
"""Pictures that are shown as they are."""

MOST_CODES = 256
"""Codes of which there are pictures, those that vary most: all, but of a wide dictionary."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """What the page draws beside the numbers."""

    codes: Matrix  # (rows, d) of held-out rows
    colourings: Mapping[str, NDArray[Any]]  # name → (rows,)
    curves: Mapping[str, Matrix]  # name → loss of each step
    guessing: float | None  # the loss of a guess
    matching: Matrix  # |correlation| of latents with those of a refit
    angles: Matrix  # degrees between the spans of both
    support: NDArray[np.int64] | None
    n_samples: int  # of which those drawn are a sample
    starts_elsewhere: bool = False  # whether refits start at another map of the data
    sheets: tuple[NDArray[np.uint8], ...] | None = None  # of rows that are pictures: some, along codes, and swapped
    sliders: NDArray[np.uint8] | None = None  # of rows that are pictures: along codes, (d, steps, height, width, 3)
    by_truth: Matrix | None = None  # |rank correlation| of the truth, if it was supplied, with the codes


def pictures_of(est: Any, refits: Refits, codes: Matrix, other: Matrix, *, grouped: bool) -> Pictures:
    """Gather what is drawn of a fit, whose codes of the held-out rows are given beside those of a refit."""
    rows, drawn = refits.held_out, est.spec.figure(est)
    codes, other = _loudest(codes), _loudest(other)
    curves = {"this fit": np.asarray(drawn.curve, dtype=np.float64)}
    if refits.null is not None:
        null = est.spec.figure(refits.null)
        curves["shuffled" if rows.side is not None else "permuted X"] = np.asarray(null.curve, dtype=np.float64)
    return Pictures(
        codes=codes[:DRAWN],
        colourings=_colourings(est, rows, grouped=grouped),
        curves=curves,
        guessing=drawn.chance,
        matching=matching(codes, other),
        angles=principal_angles(codes, other),
        support=drawn.support,
        n_samples=len(rows),
        sheets=_sheets(codes, rows.X) if rows.X.ndim == 4 else None,
        sliders=_slid(est, codes, rows.X) if rows.X.ndim == 4 else None,
        by_truth=None if rows.data.truth is None else _by_truth(rows.data.truth, codes),
        starts_elsewhere=est.spec.varies_initialisation and has_another_start(est.encoder_.preprocess.shape_out),
    )


def _sheets(codes: Matrix, x: NDArray[Any]) -> tuple[NDArray[np.uint8], ...]:
    return contact_sheet(x[:THUMBNAILS]), nearest_traversals(codes, x), swaps(codes, x)


def _slid(est: Any, codes: Matrix, x: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pictures along codes: decoded where codes alone can be, else the nearest of those held out."""
    alone = hasattr(est, "inverse_transform") and est.spec.side != "nuisance"  # which the decoder would be told
    decodes = alone and codes.shape[1] == est.n_components_
    return slid(codes, x, est.inverse_transform if decodes else None)


def _by_truth(truth: NDArray[Any], codes: Matrix) -> Matrix | None:
    """Return how codes go with columns of the truth; None if these are no numbers."""
    columns = truth.reshape(len(truth), -1)
    return matching(rankdata(columns, axis=0), rankdata(codes, axis=0)) if columns.dtype.kind in "buif" else None


def _loudest(codes: Matrix) -> Matrix:
    return codes if codes.shape[1] <= MOST_CODES else codes[:, np.sort(np.argsort(-codes.std(0))[:MOST_CODES])]


def _colourings(est: Any, rows: Rows, *, grouped: bool) -> dict[str, NDArray[Any]]:
    """Return the columns that points may be coloured by: side information, then the truth, then X."""
    partners = rows.role == "pairs" and rows.side is not None and rows.side.ndim > 1
    names = getattr(est, "feature_names_in_", None)
    tables = {
        "y": None if partners else rows.side,
        "given": rows.data.given,
        "group": rows.units if grouped else None,
        "truth": rows.data.truth,
        "X": rows.X.reshape(len(rows), -1),
    }
    found: dict[str, NDArray[Any]] = {}
    for name, table in tables.items():
        if table is not None and table.ndim == 1:
            found[name] = table[:DRAWN]
        elif table is not None:
            for j in range(min(MOST_COLUMNS, table.shape[1])):
                called = names[j] if name == "X" and names is not None else f"column {j}"
                found[f"{name}, {called}"] = table[:DRAWN, j]
    return found
