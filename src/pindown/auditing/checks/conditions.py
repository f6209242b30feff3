"""Conditions of practice that no theorem states, and which verdicts a claim rests on."""

from collections.abc import Sequence

from pindown.auditing.checks.verdict import Verdict
from pindown.theory import DIFFEOMORPHIC_MIXING, INJECTIVE_MIXING, Assumption, Diversity, Theorem

ENOUGH_SAMPLES = Assumption(
    "enough samples", "model", "there are many more samples than latents, and several per level of a label"
)
SPLITTABLE_SAMPLES = Assumption("enough samples to audit", "model",
    "there are enough samples, and groups of samples, to hold some out and to halve the rest")  # fmt: skip
COMMON_LEVELS = Assumption("common levels", "labels", "every level of the nuisance has enough samples to be compared")
RELATED_PAIRS = Assumption("related pairs", "conditional", "positives depend on each other: κ > 0, or λ > 0")
OVERLAPPING_LEVELS = Assumption("overlapping levels", "conditional",
    "samples of different levels of the nuisance look alike now and then, as with vMF distributions; where they never"
    " do, nothing says which latent of one level is which of another")  # fmt: skip
INJECTIVE_ENCODER = Assumption("injective encoder", "model",
    "different samples have different latents, as they have at the optimum")  # fmt: skip
STRUCTURE_KEPT = Assumption("structure kept", "model",
    "latents explain the signal in X: h = f∘g is injective, and no latent was left out")  # fmt: skip
INVARIANT_LATENTS = Assumption("invariant latents", "model", "ẑ ⟂ e: no probe predicts the nuisance from the latents")
DISTINCT_ATOMS = Assumption("distinct atoms", "model", "no two atoms of a dictionary are nearly parallel")
CONDITIONED_ATOMS = Assumption("independent active atoms", "model", "atoms that are active together are independent")

OF_PRACTICE = (
    ENOUGH_SAMPLES,
    COMMON_LEVELS,
    RELATED_PAIRS,
    INJECTIVE_ENCODER,
    INVARIANT_LATENTS,
    STRUCTURE_KEPT,
)
"""Conditions that no theorem states and all need."""


def needed(theorem: Theorem, verdicts: Sequence[Verdict], without: Sequence[Assumption] = ()) -> tuple[Verdict, ...]:
    """Return the verdicts on what a theorem needs, in theory or in practice; the others are for information."""
    # A diffeomorphism is injective, so a theorem that assumes one needs an injective mixing, too.
    implied = (INJECTIVE_MIXING,) if DIFFEOMORPHIC_MIXING in theorem.assumes else ()
    conditions: set[Assumption | Diversity | None] = {*theorem.assumes, *implied, theorem.diversity, *OF_PRACTICE}
    return tuple(verdict for verdict in verdicts if verdict.assumption in conditions - {*without})
