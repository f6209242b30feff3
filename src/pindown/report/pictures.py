"""What the page of an audit draws beside the numbers: codes and what may colour them, losses, matchings, a support."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.estimators import Classify, Contrast, Dictionary, Forget
from pindown.estimators.base import BaseEncoder
from pindown.report.agreement import matching, principal_angles
from pindown.report.refits import Data, Refits

Matrix = NDArray[np.float64]

DRAWN, MOST_COLUMNS = 2_000, 64
"""Points in a picture of the latents, and columns of a table that can colour them."""


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
    n_rows: int  # of which those drawn are a sample


def pictures_of(est: BaseEncoder, refits: Refits, codes: Matrix, other: Matrix, *, grouped: bool) -> Pictures:
    """Gather what is drawn of a fit, whose codes of the held-out rows are given beside those of a refit."""
    data = refits.held_out
    curves = {"this fit": _curve(est)}
    if refits.null is not None:
        curves["shuffled" if data.side is not None else "permuted X"] = _curve(refits.null)
    return Pictures(
        codes=codes[:DRAWN],
        colourings=_colourings(est, data, grouped=grouped),
        curves=curves,
        guessing=_guessing(est),
        matching=matching(codes, other),
        angles=principal_angles(codes, other),
        support=est.support_ if isinstance(est, Dictionary) else None,
        n_rows=len(data),
    )


def _colourings(est: BaseEncoder, data: Data, *, grouped: bool) -> dict[str, NDArray[Any]]:
    """Return the columns that points may be coloured by: side information, then the truth, then X."""
    partners = data.paired and data.side is not None and data.side.ndim > 1
    names = getattr(est, "feature_names_in_", None)
    tables = {
        "y": None if partners else data.side,
        "given": data.given,
        "group": data.units if grouped else None,
        "truth": data.truth,
        "X": data.X,
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


def _curve(fit: BaseEncoder) -> Matrix:
    """Return the loss of each step: of `Forget`, whose losses do not fall, its classifier's."""
    curve = fit.history_.classifier_loss if isinstance(fit, Forget) else fit.loss_curve_
    return np.asarray(curve, dtype=np.float64)


def _guessing(est: BaseEncoder) -> float | None:
    match est:
        case Contrast():
            return math.log(est.batch_size or est._default_batch_size) if est.alpha is None else None
        case Classify():
            prior = np.asarray(est.class_prior_)
            return float(-(prior * np.log(prior)).sum())
        case Forget():
            return est.history_.chance_loss
    return None
