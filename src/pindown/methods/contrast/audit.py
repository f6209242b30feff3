"""The specification of `Contrast`: positives are nearer than other samples, and what its theorems assume."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from pindown import theory
from pindown.auditing.agreement import shared_block
from pindown.auditing.checks import before, conditions
from pindown.auditing.checks.arrays import paired_samples, read
from pindown.auditing.checks.distributions import (
    even_conditional,
    lp_conditional,
    matching_model,
    uniform_in_body,
    uniform_on_sphere,
    vmf_conditional,
)
from pindown.auditing.checks.encoders import many_negatives
from pindown.auditing.checks.samples import common_levels
from pindown.auditing.evidence import AuditScore, Evidence, encoded_pairs, pair_test, side_information_evidence
from pindown.auditing.plans import Plan, Summary, outcome_of
from pindown.auditing.refits import Refits, Samples, with_pairs
from pindown.auditing.spec import Figure, FitScore, MethodSpec, Refitting, Roles, Verdicts, encoder_checks
from pindown.data.data import Data
from pindown.networks.spaces import Sphere
from pindown.theory import UNIFORM_CONVEX_BODY, UNIFORM_SPHERE, UNIT_FEATURES, UNIT_NORM, Assumption

if TYPE_CHECKING:
    from pindown.methods.contrast.estimator import Contrast

SCORE_PAIRS = 4_096  # maximum number of pairs that a score compares with each other


class PairedSamples(Refitting["Contrast"]):
    """Refits of `Contrast` keep positives together."""

    def samples(self, est: Contrast, rows: Samples) -> Samples:
        return with_pairs(replace(rows, role="pairs"))


class ContrastSpec(MethodSpec["Contrast"]):
    """The specification of `Contrast`."""

    roles = Roles("pairs", also=("nuisance",))
    refitting = PairedSamples()

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        held_out = refits.held_out
        block = shared_block([encoded_pairs(fit, held_out) for fit in refits.others], rng)
        nats = min(fit.score(held_out.X, held_out.side) for fit in refits.others)
        score = AuditScore("information shared by positive pairs", nats, 0.0, unit="nats")
        return replace(side_information_evidence(refits, pair_test, rng, score), block=block)

    def checks_before(self, est: Contrast, data: Data, d: int, whole: Data) -> Verdicts:
        verdicts = before(data.X, d, signal=data.signal, pairs=data.pairs)
        return verdicts if data.nuisance is None else (*verdicts, common_levels(data.nuisance))

    def checks_after(self, est: Contrast, data: Data, known: Verdicts = ()) -> Verdicts:
        pairs = data.pairs.reshape(len(data), -1) if np.ndim(data.pairs) > 1 else data.pairs
        both = paired_samples(read("X", data.X), pairs)
        z, z_pos = (est.transform(part.reshape(-1, *np.shape(data.X)[1:])) for part in both)
        if est.encoder_.space == Sphere():
            checks = [vmf_conditional(z, z_pos), uniform_on_sphere(z)]
        else:
            checks = [matching_model(z, z_pos, est.p), even_conditional(z, z_pos), uniform_in_body(z)]
            checks += [lp_conditional(z, z_pos)] if est.p != 2 else []
        n_negatives = est.batch_size or min(est.training_defaults.batch_size, len(z))
        pairs = None if isinstance(data.pairs, str) else data.pairs
        return (*checks, many_negatives(est.score(data.X, pairs), n_negatives), *encoder_checks(est, data))

    def waived(self, est: Contrast, data: Data) -> tuple[Assumption, ...]:
        """Return what holds by construction; a learned density replaces a uniform one."""
        return (UNIT_NORM, UNIT_FEATURES, *((UNIFORM_SPHERE, UNIFORM_CONVEX_BODY) if est.loss.any_marginal else ()))

    def figure(self, est: Contrast) -> Figure:
        return Figure(est.loss_curve_, est._chance_loss(math.inf))

    def score(self, est: Contrast, data: Data) -> FitScore:
        value, pairs = est.score(data.X, data.paired().pairs), min(len(data.paired()), SCORE_PAIRS)
        return FitScore(f"information about positives among {pairs} pairs, in nats", value, 0.0)

    def plan(self, est: Contrast, data: Data, summary: Summary) -> Plan:
        est = clone(est).set_params(n_components=summary.n_components)
        found = super().plan(est, replace(data, signal=None), summary)
        unrelated = outcome_of(found.verdicts, conditions.RELATED_PAIRS) == "fails"
        needs = ("positives that are related to each other",) if unrelated else ()
        if est.guarantee == theory.CONTRAST_SPHERE:
            reals = (
                "if the latents fill a box or ℝ^d, take space=Reals(): theorem contrast-metric, and contrast-lp with"
                " p=1 if differences between positives are sparse."
            )
            found = replace(found, notes=(*found.notes, reals))
        return replace(found, needs=(*needs, *found.needs))
