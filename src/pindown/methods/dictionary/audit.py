"""The specification of `Dictionary`: X is reconstructed from latents that each reach different features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pindown import theory
from pindown.auditing.checks import (
    before,
    distinct_latents,
    diverse_support,
    enough_samples,
    independent_blocks,
    structure_kept,
    sufficient_nonlinearity,
)
from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.noise import noise_left
from pindown.auditing.checks.verdict import with_better
from pindown.auditing.plans import Plan, count_directions, missing_in_general
from pindown.auditing.refits import Refits, encoder_of
from pindown.auditing.scores import Evidence, Score
from pindown.auditing.spec import Figure, FitScore, MethodSpec, Roles, Verdicts, reconstruction_evidence
from pindown.data.data import Data
from pindown.methods.dictionary.decoder_supports import held_by

if TYPE_CHECKING:
    from pindown.methods.dictionary.estimator import Dictionary

JACOBIAN_ROWS, PICTURE_ROWS, JACOBIAN_PIXELS = 1_000, 200, 60
"""Rows whose derivatives are looked at, of pictures fewer; and pixels of these."""


class DictionarySpec(MethodSpec["Dictionary"]):
    """The specification of `Dictionary`."""

    roles = Roles(None)

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        permuted = refits.held_out.with_permuted_columns(rng)
        bound = min(fit.score(refits.held_out.X) for fit in refits.others)
        return reconstruction_evidence(
            refits, permuted, Score("evidence lower bound", bound, refits.null.score(permuted.X), unit="nats per row")
        )

    def checks_before(self, est: Dictionary, data: Data, d: int, whole: Data) -> Verdicts:
        return with_better(before(data.X, d), enough_samples(len(whole), d))

    def checks_after(self, est: Dictionary, data: Data, known: Verdicts = ()) -> Verdicts:
        d, pictures = est.n_components_, len(est.shape_in_) == 3
        rows = np.asarray(data.X) if pictures else read("X", data.X)
        dependence, support = est.dependence_.reshape(-1, d), est.support_.reshape(-1, d)
        which = np.arange(len(support))
        if pictures:  # some of the pixels that vary: they are alike by the thousand
            rng = np.random.default_rng(0)
            which = np.sort(rng.permutation(np.flatnonzero(support.any(1)))[:JACOBIAN_PIXELS])
        jacobian = np.asarray(est.jacobian(rows[: PICTURE_ROWS if pictures else JACOBIAN_ROWS]))
        encode = encoder_of(est, data)
        noise = noise_left(encode, rows)
        # Pixels jump as edges move, so that of pictures no two rows are near.
        apart = () if pictures else (distinct_latents(encode, rows, noise=noise),)
        patterns = held_by(support[which]) if pictures else support
        return (
            diverse_support(dependence[which], est.threshold_),
            independent_blocks(encode(rows), patterns),
            sufficient_nonlinearity(jacobian.reshape(len(jacobian), -1, d)[:, which], support[which]),
            structure_kept(encode, rows, noise=noise),
            *apart,
        )

    def figure(self, est: Dictionary) -> Figure:
        return Figure(est.loss_curve_, support=est.support_ if est.support_.ndim == 2 else None)

    def score(self, est: Dictionary, data: Data) -> FitScore:
        # Of latents that tell nothing: each standardised variable is noise of variance one.
        return FitScore("evidence lower bound, in nats per row", est.score(data.X), -est.n_features_in_ / 2)

    def plan(self, est: Dictionary, data: Data, n_components: int | None) -> Plan:
        d, notes = count_directions(est, data.X, n_components)
        notes += (
            "whether the support is diverse, and its variables bent enough, shows after training: see the audit.",
        )
        verdicts, call = before(data.X, d), f"Dictionary(n_components={d})"
        return Plan(call, theory.DICTIONARY_BLOCKS, d, verdicts, missing_in_general(verdicts), notes=notes)
