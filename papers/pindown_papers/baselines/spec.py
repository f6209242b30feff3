"""Specifications of baselines: X is reconstructed, and no theorem says from what."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from pindown.auditing.evidence import AuditScore, Evidence, reconstruction_evidence
from pindown.auditing.refits import Refits
from pindown.auditing.spec import FitScore, MethodSpec, Roles
from pindown.data.data import Data


def refuse_one_picture(owner: str, X: Any) -> None:
    """Raise if all images are the same, as those of one colour are."""
    if isinstance(X, np.ndarray) and X.ndim > 2 and (X[0] == X).all():
        raise ValueError(
            f"{owner}: X has {len(X)} pictures that are all the same, such as pictures of one colour, so that there is "
            "nothing to learn from: see whether they were read as they should be."
        )


class ReconstructionSpec(MethodSpec[Any]):
    """The specification of baselines that reconstruct X and learn from nothing else."""

    roles: ClassVar[Roles] = Roles(None)
    score_name = "evidence lower bound"

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        permuted = refits.held_out.with_permuted_columns(rng)
        value = min(fit.score(refits.held_out.X) for fit in refits.others)
        score = AuditScore(self.score_name, value, refits.null.score(permuted.X), unit="nats per row")
        return reconstruction_evidence(refits, permuted, score)

    def score(self, est: Any, data: Data) -> FitScore:
        # Uninformative latents: each standardised feature is noise of variance one.
        return FitScore(f"{self.score_name}, in nats per row", est.score(data.X), -est.n_features_in_ / 2)


class PairedReconstructionSpec(ReconstructionSpec):
    """The same for baselines that learn from pairs."""

    roles: ClassVar[Roles] = Roles("pairs")


class MeanImageSpec(ReconstructionSpec):
    """The same for baselines scored by the log likelihood around mean images."""

    score_name = "log likelihood around mean pictures"


class LikelihoodSpec(ReconstructionSpec):
    """The same for baselines scored by their log likelihood."""

    score_name = "log likelihood"

    def score(self, est: Any, data: Data) -> FitScore:
        # A normal distribution with the same covariance: n_components directions of variance one.
        normal = -est.n_components_ / 2 * (1 + math.log(2 * math.pi))
        return FitScore("log likelihood, in nats per row", est.score(data.X), normal)
