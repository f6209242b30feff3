"""What baselines say of themselves: observations are rebuilt, and no theorem says from what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pindown.data import Data
from pindown.estimators.answers import Answers, FitScore, of_rebuilding
from pindown.evidence.rows import Refits
from pindown.evidence.scores import Evidence, Score


def _evidence(refits: Refits, rng: np.random.Generator) -> Evidence:
    permuted = refits.held_out.with_permuted_columns(rng)
    bound = min(fit.score(refits.held_out.X) for fit in refits.others)
    return of_rebuilding(
        refits, permuted, Score("evidence lower bound", bound, refits.null.score(permuted.X), unit="nats per row")
    )


def _score(est: Any, data: Data) -> FitScore:
    # Of latents that tell nothing: each standardised variable is noise of variance one.
    return FitScore("evidence lower bound, in nats per row", est.score(data.X), -est.n_features_in_ / 2)


ALONE = Answers(side=None, starts_elsewhere=False, evidence=_evidence, score=_score)
IN_PAIRS = replace(ALONE, side="pairs")
