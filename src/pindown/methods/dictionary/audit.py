"""The specification of `Dictionary`: X is reconstructed from latents that each reach different features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pindown import theory
from pindown.auditing.checks import before
from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.encoders import distinct_latents, structure_kept
from pindown.auditing.checks.noise import noise_left
from pindown.auditing.checks.samples import enough_samples
from pindown.auditing.checks.supports import (
    diverse_support,
    independent_blocks,
    sufficient_nonlinearity,
    unshared_residuals,
)
from pindown.auditing.checks.verdict import with_better
from pindown.auditing.evidence import AuditScore, Evidence, reconstruction_evidence
from pindown.auditing.plans import Plan, Summary, missing_in_general
from pindown.auditing.refits import Refits, encoder_of
from pindown.auditing.spec import Figure, FitScore, MethodSpec, Roles, Verdicts
from pindown.data.data import Data
from pindown.methods.dictionary.dependence import common_rows
from pindown.methods.dictionary.rotation import TRAINED

if TYPE_CHECKING:
    from pindown.methods.dictionary.estimator import Dictionary

JACOBIAN_SAMPLES, IMAGE_SAMPLES = 1_000, 200  # samples whose derivatives are taken: of vectors, and of images
JACOBIAN_PIXELS = 60  # pixels of these images


class DictionarySpec(MethodSpec["Dictionary"]):
    """The specification of `Dictionary`."""

    roles = Roles(None)

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        permuted = refits.held_out.with_permuted_columns(rng)
        bound = min(fit.score(refits.held_out.X) for fit in refits.others)
        return reconstruction_evidence(
            refits,
            permuted,
            AuditScore("evidence lower bound", bound, refits.null.score(permuted.X), unit="nats per sample"),
        )

    def checks_before(self, est: Dictionary, data: Data, d: int, whole: Data) -> Verdicts:
        return with_better(before(data.X, d), enough_samples(len(whole), d))

    def checks_after(self, est: Dictionary, data: Data, known: Verdicts = ()) -> Verdicts:
        d, images = est.n_components_, len(est.shape_in_) == 3
        x = np.asarray(data.X) if images else read("X", data.X)
        dependence, support = est.dependence_.reshape(-1, d), est.support_.reshape(-1, d)
        which = np.arange(len(support))
        if images:  # some of the pixels that vary: neighbours are much alike
            rng = np.random.default_rng(0)
            which = np.sort(rng.permutation(np.flatnonzero(support.any(1)))[:JACOBIAN_PIXELS])
        jacobian = np.asarray(est.jacobian(x[: IMAGE_SAMPLES if images else JACOBIAN_SAMPLES]))
        encode = encoder_of(est, data)
        noise = noise_left(encode, x)
        # Pixels jump as edges move, so that no two images are near each other.
        more = () if images else (distinct_latents(encode, x, noise=noise), unshared_residuals(est.residuals(x), d))
        common = common_rows(support[which])
        return (
            diverse_support(dependence[which], est.threshold_),
            independent_blocks(est.oblique_gain_, TRAINED.margin, encode(x), common),
            sufficient_nonlinearity(jacobian.reshape(len(jacobian), -1, d)[:, which], support[which]),
            structure_kept(encode, x, noise=noise),
            *more,
        )

    def figure(self, est: Dictionary) -> Figure:
        return Figure(est.loss_curve_, support=est.support_ if est.support_.ndim == 2 else None)

    def score(self, est: Dictionary, data: Data) -> FitScore:
        # Chance: uninformative latents, so that each standardised feature is noise of variance one.
        return FitScore("evidence lower bound, in nats per sample", est.score(data.X), -est.n_features_in_ / 2)

    def plan(self, est: Dictionary, data: Data, summary: Summary) -> Plan:
        d, notes = summary.n_components, summary.notes
        notes += (
            "whether the support is diverse, and its features nonlinear enough, shows after training: see the audit.",
        )
        verdicts, call = before(data.X, d), f"Dictionary(n_components={d})"
        return Plan(call, theory.DICTIONARY_BLOCKS, d, verdicts, missing_in_general(verdicts), notes=notes)
