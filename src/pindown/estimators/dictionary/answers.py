"""What `Dictionary` says of itself: observations are rebuilt, from latents that each reach other variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pindown import theory
from pindown.checks import before, diverse_support, enough_rows, signal_told, sufficient_nonlinearity
from pindown.checks.arrays import read
from pindown.checks.verdict import with_better
from pindown.data import Data
from pindown.estimators.answers import Answers, Drawn, FitScore, Verdicts, encoder_of, of_rebuilding
from pindown.evidence.plans import Plan, generally_missing, or_directions
from pindown.evidence.rows import Refits
from pindown.evidence.scores import Evidence, Score

if TYPE_CHECKING:
    from pindown.estimators.dictionary.estimator import Dictionary

JACOBIAN_ROWS = 1_000


def _evidence(refits: Refits, rng: np.random.Generator) -> Evidence:
    permuted = refits.held_out.with_permuted_columns(rng)
    bound = min(fit.score(refits.held_out.X) for fit in refits.others)
    return of_rebuilding(
        refits, permuted, Score("evidence lower bound", bound, refits.null.score(permuted.X), unit="nats per row")
    )


def _before(est: Dictionary, data: Data, d: int, whole: Data) -> Verdicts:
    return with_better(before(data.X, d), enough_rows(len(whole), d))


def _after(est: Dictionary, data: Data) -> Verdicts:
    rows = read("X", data.X)
    return (
        diverse_support(est.dependence_, est.threshold_),
        sufficient_nonlinearity(est.jacobian(rows[:JACOBIAN_ROWS]), est.support_),
        signal_told(encoder_of(est, data), rows),
    )


def _drawn(est: Dictionary) -> Drawn:
    return Drawn(est.loss_curve_, support=est.support_)


def _score(est: Dictionary, data: Data) -> FitScore:
    # Of latents that tell nothing: each standardised variable is noise of variance one.
    return FitScore("evidence lower bound, in nats per row", est.score(data.X), -est.n_features_in_ / 2)


def _plan(est: Dictionary, data: Data, n_components: int | None) -> Plan:
    d, notes = or_directions(est, data.X, n_components)
    notes += ("whether the support is diverse, and its variables bent enough, shows after training: see the audit.",)
    verdicts, call = before(data.X, d), f"Dictionary(n_components={d})"
    return Plan(call, theory.DICTIONARY_BLOCKS, d, verdicts, generally_missing(verdicts), notes=notes)


ANSWERS = Answers(
    side=None,
    starts_elsewhere=False,
    evidence=_evidence,
    before=_before,
    after=_after,
    drawn=_drawn,
    score=_score,
    plan=_plan,
)
