"""Conditions of practice that no theorem states, and which verdicts a claim rests on."""

from collections.abc import Sequence

from pindown.auditing.checks import conditions
from pindown.auditing.checks.verdict import Verdict
from pindown.theory import DIFFEOMORPHIC_MIXING, INJECTIVE_MIXING, Assumption, Diversity, Theorem

ENOUGH_SAMPLES = Assumption(
    "enough samples", "model", "there are many more samples than latents, and several per value"
)
SPLITTABLE_SAMPLES = Assumption("enough samples to audit", "model",
    "there are rows enough, and groups of rows, to hold some out and to halve the rest")  # fmt: skip
COMMON_LEVELS = Assumption("common levels", "labels", "every value of the nuisance has rows enough to be compared")
RELATED_PAIRS = Assumption("related pairs", "conditional", "partners depend on each other: κ > 0, or λ > 0")
OVERLAPPING_LEVELS = Assumption("overlapping levels", "conditional",
    "samples of different values of the nuisance look alike now and then, as vMF laws do; where they never do, nothing"
    " says which latent of one value is which of another")  # fmt: skip
INJECTIVE_ENCODER = Assumption("injective encoder", "model",
    "different latents have different codes, as they have at the optimum")  # fmt: skip
STRUCTURE_KEPT = Assumption("structure kept", "model",
    "codes tell what is signal in X: h = f∘g is injective, and no latent was left out")  # fmt: skip
INVARIANT_LATENTS = Assumption("invariant latents", "model", "ẑ ⟂ e: no reader tells the nuisance from the codes")
DISTINCT_ATOMS = Assumption("distinct atoms", "model", "no atom of a dictionary lies beside another")
CONDITIONED_ATOMS = Assumption("independent active atoms", "model", "atoms that fire together are far from dependent")


OF_PRACTICE = (
    conditions.ENOUGH_SAMPLES,
    conditions.COMMON_LEVELS,
    conditions.RELATED_PAIRS,
    conditions.INJECTIVE_ENCODER,
    conditions.INVARIANT_LATENTS,
    conditions.STRUCTURE_KEPT,
)
"""Conditions that no theorem states and every one needs."""


def needed(theorem: Theorem, verdicts: Sequence[Verdict], without: Sequence[Assumption] = ()) -> tuple[Verdict, ...]:
    """Return the verdicts on what a theorem needs, in theory or in practice; the others are for information.

    Examples
    --------
    >>> from pindown.theory import CLASSIFY_FREE, UNIFORM_SPHERE, VMF_CLUSTERS
    >>> both = [Verdict(assumption, 1.0, 0.0, "fails", "") for assumption in (VMF_CLUSTERS, UNIFORM_SPHERE)]
    >>> [verdict.name for verdict in needed(CLASSIFY_FREE, both, without=())]
    ['vMF clusters']

    A diffeomorphism is injective, so a mixing that is not stands against both:

    >>> from pindown.theory import DICTIONARY_BLOCKS, INJECTIVE_MIXING
    >>> len(needed(DICTIONARY_BLOCKS, [Verdict(INJECTIVE_MIXING, 0.1, 0.9, "fails", "")], without=()))
    1
    """
    implied = (INJECTIVE_MIXING,) if DIFFEOMORPHIC_MIXING in theorem.assumes else ()
    asked: set[Assumption | Diversity | None] = {*theorem.assumes, *implied, theorem.diversity, *OF_PRACTICE}
    asked -= {*without}
    return tuple(verdict for verdict in verdicts if verdict.assumption in asked)
