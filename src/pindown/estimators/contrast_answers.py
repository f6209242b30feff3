"""What `Contrast` says of itself: partners are nearer than unrelated rows, and what its theorems assume of both."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pindown import theory
from pindown.checks import (
    before,
    common_values,
    conditions,
    even_conditional,
    lp_conditional,
    many_negatives,
    matching_model,
    uniform_on_body,
    uniform_on_sphere,
    vmf_conditional,
)
from pindown.checks.arrays import read
from pindown.checks.partners import partners_of
from pindown.data import Data
from pindown.estimators.answers import Answers, Drawn, FitScore, Verdicts, of_codes
from pindown.evidence.blocks import SharedBlock, encoded_pairs, shared_block
from pindown.evidence.plans import Plan, generally_missing, or_directions, outcome_of
from pindown.evidence.rows import Refits, Rows, with_partners
from pindown.evidence.scores import Evidence, Score, of_side_information, pairs_of, partner_test
from pindown.spaces import Reals, Sphere
from pindown.theory import UNIFORM_CONVEX_BODY, UNIFORM_SPHERE, UNIT_CODES, UNIT_NORM, Assumption

if TYPE_CHECKING:
    from pindown.estimators.contrast import Contrast


def _ready(est: Contrast, rows: Rows) -> Rows:
    return with_partners(replace(rows, role="pairs"))


def _evidence(refits: Refits, rng: np.random.Generator) -> Evidence:
    rows = refits.held_out
    told = min(fit.score(rows.X, rows.side) for fit in refits.others)
    return of_side_information(refits, partner_test, rng, Score("information between partners", told, 0.0, unit="nats"))


def _block(refits: Refits, rng: np.random.Generator) -> SharedBlock | None:
    pairs = pairs_of(refits.held_out)
    return shared_block([encoded_pairs(fit, *pairs) for fit in refits.others], rng)


def _before(est: Contrast, data: Data, d: int, whole: Data) -> Verdicts:
    verdicts = before(data.X, d, signal=data.signal, pairs=data.pairs)
    return verdicts if data.nuisance is None else (*verdicts, common_values(data.nuisance))


def _after(est: Contrast, data: Data) -> Verdicts:
    pairs = data.pairs.reshape(len(data), -1) if np.ndim(data.pairs) > 1 else data.pairs
    anchors, partners = partners_of(read("X", data.X), pairs)
    codes, others = (est.transform(part.reshape(-1, *np.shape(data.X)[1:])) for part in (anchors, partners))
    if est.space == Sphere():
        laws = [vmf_conditional(codes, others), uniform_on_sphere(codes)]
    else:
        laws = [matching_model(codes, others, est.p), even_conditional(codes, others), uniform_on_body(codes)]
        laws += [lp_conditional(codes, others)] if est.p != 2 else []
    n_negatives = est.batch_size or min(est._default_batch_size, len(anchors))
    pairs = None if isinstance(data.pairs, str) else data.pairs
    return (*laws, many_negatives(est.score(data.X, pairs), n_negatives), *of_codes(est, data))


def _waived(est: Contrast, data: Data) -> tuple[Assumption, ...]:
    """Return what is met by construction; a density that is learned makes up for one that is not uniform."""
    return (UNIT_NORM, UNIT_CODES, *((UNIFORM_SPHERE, UNIFORM_CONVEX_BODY) if est.any_marginal else ()))


def _drawn(est: Contrast) -> Drawn:
    guessing = math.log(est.batch_size or est._default_batch_size) if est.alpha is None else None
    return Drawn(est.loss_curve_, guessing)


def _score(est: Contrast, data: Data) -> FitScore:
    return FitScore("information between partners, in nats", est.score(data.X, data.paired().pairs), 0.0)


def _plan(est: Contrast, data: Data, n_components: int | None) -> Plan:
    d, notes = or_directions(est, data.X, n_components)
    verdicts = _before(est, replace(data, signal=None), d, data)
    unrelated = outcome_of(verdicts, conditions.RELATED_PARTNERS) == "fails"
    needs = ("partners that have to do with each other",) if unrelated else ()
    notes += (
        "with latents that fill a box or ℝ^d rather than a sphere take space=Reals(): theorem contrast-metric, and"
        " contrast-lp with p=1 if differences between partners are sparse.",
    )
    theorem, where = (theory.CONTRAST_METRIC, ", space=Reals()") if d == 1 else (theory.CONTRAST_SPHERE, "")
    estimator = f"Contrast(n_components={d}{where})"
    return Plan(estimator, theorem, d, verdicts, (*needs, *generally_missing(verdicts)), notes=notes)


ANSWERS = Answers(
    side="pairs",
    also=("nuisance",),
    on_a_line={"space": Reals()},
    ready=_ready,
    evidence=_evidence,
    block=_block,
    before=_before,
    after=_after,
    waived=_waived,
    drawn=_drawn,
    score=_score,
    plan=_plan,
)
