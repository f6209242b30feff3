"""How a fit went, in a few numbers; what may be claimed is for an audit to say."""

from __future__ import annotations

from typing import Any

import numpy as np

from pindown.auditing.report.result import plain
from pindown.auditing.spec import FitScore
from pindown.data.data import Data
from pindown.methods.base import BaseEncoder
from pindown.runs.recipe import looked_at

LAST = 25
"""Steps at the end over which the loss is averaged."""


def scores(estimator: BaseEncoder, data: Data) -> dict[str, Any]:
    """Return what was fitted to how many rows, and how well, as JSON has it; a score comes with its chance level."""
    return plain(
        {
            "estimator": type(estimator).__name__,
            "n_components": estimator.n_components_,
            "n_samples": len(data),
            "n_features": data.n_features,
            "n_steps": estimator.n_iter_,
            "loss": float(np.mean(estimator.loss_curve_[-LAST:])),
            "score": _score(estimator, data)._asdict(),
        }
    )


def _score(estimator: BaseEncoder, data: Data) -> FitScore:
    """Return the score on rows held out, if there were any."""
    held_out = getattr(estimator, "held_out_", None)
    if held_out is None:
        return estimator.spec.score(estimator, data.sample(looked_at(data)))
    return FitScore(held_out.name, held_out.score, held_out.chance, held_out.rows)
