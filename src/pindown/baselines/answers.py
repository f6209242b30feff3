"""What baselines say of themselves: observations are rebuilt, and no theorem says from what."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pindown.data import Data
from pindown.estimators.answers import Answers, FitScore, of_rebuilding
from pindown.evidence.rows import Refits
from pindown.evidence.scores import Evidence, Score


def refuse_one_picture(owner: str, X: Any) -> None:
    """Raise if all pictures are the same, as those of one colour are."""
    if isinstance(X, np.ndarray) and X.ndim > 2 and (X[0] == X).all():
        raise ValueError(
            f"{owner}: X has {len(X)} pictures that are all the same, such as pictures of one colour, so that there is "
            "nothing to learn from: see whether they were read as they should be."
        )


def _evidence(score: str) -> Callable[[Refits, np.random.Generator], Evidence]:
    def evidence(refits: Refits, rng: np.random.Generator) -> Evidence:
        permuted = refits.held_out.with_permuted_columns(rng)
        value = min(fit.score(refits.held_out.X) for fit in refits.others)
        return of_rebuilding(refits, permuted, Score(score, value, refits.null.score(permuted.X), unit="nats per row"))

    return evidence


def _bound(est: Any, data: Data) -> FitScore:
    # Of latents that tell nothing: each standardised variable is noise of variance one.
    return FitScore("evidence lower bound, in nats per row", est.score(data.X), -est.n_features_in_ / 2)


def _around_means(est: Any, data: Data) -> FitScore:
    return _bound(est, data)._replace(name="log likelihood around mean pictures, in nats per row")


def _likelihood(est: Any, data: Data) -> FitScore:
    # Of a normal law with the same covariance, which is that of directions of variance one.
    normal = -est.n_components_ / 2 * (1 + math.log(2 * math.pi))
    return FitScore("log likelihood, in nats per row", est.score(data.X), normal)


ALONE = Answers(side=None, starts_elsewhere=False, evidence=_evidence("evidence lower bound"), score=_bound)
IN_PAIRS = replace(ALONE, side="pairs")
BY_REBUILDING = replace(ALONE, evidence=_evidence("log likelihood around mean pictures"), score=_around_means)
BY_LIKELIHOOD = replace(ALONE, evidence=_evidence("log likelihood"), score=_likelihood)
