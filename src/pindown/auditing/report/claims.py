"""What may be written down: one sentence with its conditions, or why there is none; and what was not shown."""

from __future__ import annotations

from collections.abc import Sequence

from pindown._numbers import printed
from pindown.auditing.checks.needs import needed
from pindown.auditing.checks.noise import Noise
from pindown.auditing.checks.verdict import Verdict, unchecked
from pindown.auditing.evidence.agreement import HALVES, Agreement
from pindown.auditing.evidence.noise import Band
from pindown.auditing.evidence.scores import Control, Score
from pindown.theory import NOISY, Assumption, Theorem

AGREED, AGREED_BY_HALVES = 0.9, 0.8
"""Least agreement of independent fits that is one: of fits to the same rows, and of fits to half as many."""


LEAST_TOLD = 0.1
"""Score of the latents that noise must leave for sure."""


def enough(found: Agreement) -> float:
    """Return the least agreement that is asked of these fits."""
    return AGREED_BY_HALVES if found.between == HALVES else AGREED


def are_agreed(agreement: Sequence[Agreement]) -> bool:
    """Say whether fits agree as well as is asked."""
    return all(found.worst >= enough(found) for found in agreement)


def refusals(
    theorem: Theorem | None,
    verdicts: Sequence[Verdict],
    agreement: Sequence[Agreement],
    controls: Sequence[Control],
    learned_nothing: Sequence[str],
    without: Sequence[Assumption] = (),
    band: Band | None = None,
) -> tuple[str, ...]:
    """Return what stands against any claim; empty if nothing does.

    Examples
    --------
    >>> refusals(None, (), (), (), ())
    ('no theorem covers these parameters',)
    """
    if theorem is None:
        return ("no theorem covers these parameters",)
    reasons = list(learned_nothing)
    reasons += [f"a control failed: {control.name}" for control in controls if not control.passed]
    failed = [verdict for verdict in needed(theorem, verdicts, without) if verdict.outcome == "fails"]
    reasons += [f"{verdict.name} fails: {verdict.why.rstrip('.')}" for verdict in failed]
    reasons += [
        f"{found.between} agree by {found.metric} {printed(found.worst)} only, and {enough(found)} is asked"
        for found in agreement
        if not found.worst >= enough(found)
    ]
    if band is not None and band.low <= LEAST_TOLD:
        reasons.append(f"noise may leave next to nothing of the latents: {band}")
    return tuple(reasons)


def sentence(
    theorem: Theorem | None,
    reasons: Sequence[str],
    verdicts: Sequence[Verdict],
    scores: Sequence[Score],
    agreement: Sequence[Agreement],
    n_held_out: int,
    *,
    without: Sequence[Assumption] = (),
    within: str = "",
    band: Band | None = None,
    rest: str = "",
) -> str:
    """Return the sentence that may be quoted, or the one that says why there is none."""
    if reasons or theorem is None:
        return f"Nothing is claimed: {'; '.join(reasons)}."
    open_ones = [v.name for v in needed(theorem, verdicts, without) if v.outcome == "undecided"]
    trusted = [a.name for a in unchecked(theorem, verdicts) if a not in without]
    noisy = [] if band is None else [NOISY.assumes.name]
    condition = ", ".join(dict.fromkeys(open_ones + trusted + noisy))
    worst = min((found for found in agreement if found.between != HALVES), key=lambda found: found.worst)
    shown = (
        f"on {n_held_out:,} held-out rows, {scores[0]}, and independent fits agree by {worst.metric} of at least "
        f"{printed(worst.worst)} (chance {printed(worst.chance)})"
    )
    start = f"If these hold: {condition}, then " if condition else ""
    subject = theorem.subject + (f", within each value of {within}," if within else "")
    subject += "" if band is None else ", as far as codes tell it through noise,"
    left = ("" if band is None else f"; {band}") + (rest and f"; {rest}")
    free = theorem.indeterminacy
    text = f"{start}{subject}{f' up to {free.name}' if free.allows else ''} ({theorem.source}){left}; {shown}."
    return text[0].upper() + text[1:]


def not_shown(
    theorem: Theorem | None,
    verdicts: Sequence[Verdict],
    without: Sequence[Assumption] = (),
    noise: Noise | None = None,
) -> tuple[str, ...]:
    """Return what the audit leaves open: undecided, taken on trust, and what no theorem promises.

    Examples
    --------
    >>> from pindown.theory import ROEDER
    >>> not_shown(ROEDER, ())[-1]
    'not promised: that the features are the true latents: fits are compared with fits, not with ground truth'
    """
    if theorem is None:
        return ("that the codes are the latents, up to anything: no theorem covers these parameters",)
    asked = needed(theorem, verdicts, without)
    undecided = [f"undecided: {v.name}: {v.why}" for v in asked if v.outcome == "undecided"]
    trusted = [f"taken on trust: {a.name}: {a.statement}" for a in unchecked(theorem, verdicts) if a not in without]
    promised = [f"not promised: {text}" for text in theorem.not_promised]
    return (*undecided, *trusted, *_of_noise(noise), *promised)


def _of_noise(noise: Noise | None) -> tuple[str, ...]:
    """Return what is not known of noise: that it has the form it was measured in, or whether there is any."""
    if noise is None or (noise.is_nil and noise.decided):
        return ()
    if noise.is_nil:
        return (
            "undecided: noise: all directions of X may be signal, so that noise cannot be told from latents, and what "
            "there is of it counts as one. More rows would show it, or twenty columns more that share the latents.",
        )
    trusted = f"taken on trust: {NOISY.assumes.name}: {NOISY.assumes.statement}"
    return (trusted, *(f"not promised: {text}" for text in NOISY.not_promised))
