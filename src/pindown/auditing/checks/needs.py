"""Which verdicts a claim rests on: those that its theorem assumes, and conditions of practice that all of them need."""

from collections.abc import Sequence

from pindown.auditing.checks import conditions
from pindown.auditing.checks.verdict import Verdict
from pindown.theory import DIFFEOMORPHIC_MIXING, INJECTIVE_MIXING, Assumption, Diversity, Theorem

OF_PRACTICE = (
    conditions.ENOUGH_ROWS,
    conditions.COMMON_VALUES,
    conditions.RELATED_PARTNERS,
    conditions.UNFOLDED_CODES,
    conditions.INVARIANT_CODES,
    conditions.SIGNAL_TOLD,
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
