"""How a fit went, in a few numbers; what may be claimed is for an audit to say."""

from __future__ import annotations

from typing import Any

import numpy as np

from pindown.data import Data
from pindown.estimators import Classify, Contrast, Dictionary, Forget
from pindown.estimators.base import BaseEncoder
from pindown.report.audit import plain
from pindown.runs.recipe import LOOKED_AT

LAST = 25
"""Steps at the end over which the loss is averaged."""


def scores(estimator: BaseEncoder, study: Data) -> dict[str, Any]:
    """Return what was fitted to how many rows, and how well, as JSON has it; a score comes with its chance level."""
    return plain(
        {
            "estimator": type(estimator).__name__,
            "n_components": estimator.n_components_,
            "n_rows": len(study),
            "n_features": study.X.shape[1],
            "n_steps": estimator.n_iter_,
            "loss": float(np.mean(estimator.loss_curve_[-LAST:])),
            "score": _score(estimator, study.sample(LOOKED_AT)),
        }
    )


def _score(estimator: BaseEncoder, some: Data) -> dict[str, Any]:
    """Return one number that says whether anything was learned, or forgotten."""
    name, value, chance, rows = "", None, None, "learned from"
    match estimator:
        case Contrast():
            name, value, chance = "information between partners, in nats", estimator.score(some.X, some.pairs), 0.0
        case Classify():
            name, value = "share of rows whose class is recognised", estimator.score(some.X, some.signal)
            chance = float(estimator.class_prior_.max())
        case Dictionary():
            name, value = "evidence lower bound, in nats per row", estimator.score(some.X)
        case Forget():
            name, rows = "best reader of the nuisance", "held out"
            probe = estimator.history_.probe
            if probe is not None:
                name, value, chance = f"{probe.measure} of the best reader of the nuisance", probe.worst, probe.chance
    return {"name": name, "value": value, "chance": chance, "rows": rows}
