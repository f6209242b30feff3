"""Claims: what a claim is about, the reasons not to make it, and the sentence that may be quoted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import printed
from pindown.auditing.agreement import (
    HALVES,
    Agreement,
    Compared,
    Features,
    Measure,
    SharedBlock,
    agreements,
    encoded_pairs,
    matched_order,
    measure_for,
)
from pindown.auditing.checks import conditions
from pindown.auditing.checks.conditions import needed
from pindown.auditing.checks.noise import Band, Noise
from pindown.auditing.checks.verdict import Verdict, unchecked
from pindown.auditing.refits import Refits, Samples, latent_matrix
from pindown.auditing.scores import Control, Score, held_out_pairs
from pindown.auditing.spec import Estimator, WeakerClaims
from pindown.theory import NOISY, Assumption, Theorem

AGREED, AGREED_BY_HALVES = 0.9, 0.8
"""Least agreement of independent fits that is one: of fits to the same rows, and of fits to half as many."""


LEAST_TOLD = 0.1
"""Score of the latents that noise must leave for sure."""


def enough(found: Agreement) -> float:
    """Return the least agreement that is asked of these fits."""
    return AGREED_BY_HALVES if found.between == HALVES else AGREED


def all_agree(agreement: Sequence[Agreement]) -> bool:
    """Say whether fits agree as well as is asked."""
    return all(found.worst >= enough(found) for found in agreement)


def reasons_not_to_claim(
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
    >>> reasons_not_to_claim(None, (), (), (), ())
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


Matrix = NDArray[np.float64]

OF_ALL_CODES = (conditions.INJECTIVE_ENCODER, conditions.STRUCTURE_KEPT)
"""What is asked of codes that tell everything, and not of those that tell a block."""


def compared_part(
    est: Estimator,
    refits: Refits,
    codes: Matrix,
    block: SharedBlock | None,
    verdicts: Sequence[Verdict],
    waived: Sequence[Assumption],
) -> tuple[SharedBlock | Features | None, tuple[Agreement, ...]]:
    """Return what is spoken of, if not all codes, and how fits agree in it.

    Features, where codes leave some of X untold; and less than all of their directions, where fits agree in less alone
    and nothing else stands against a claim.

    Parameters
    ----------
    est : estimator
        That is audited.
    refits : Refits
        Of it.
    codes : array (n, d)
        Of rows held out, by it.
    block : SharedBlock or None
        What partners share of them, where that is not all.
    verdicts : sequence of Verdict
        On what data and codes show.
    waived : sequence of Assumption
        What the method does without.
    """
    fit, data = refits.others[0], refits.held_out.data
    untold = any(v.assumption == conditions.STRUCTURE_KEPT and v.outcome == "fails" for v in verdicts)
    weaker = est.spec.weaker if block is None else None
    features = None if weaker is None else weaker.features(fit, data, latents_of(fit, refits.held_out))
    part = features if untold and block is None else block
    agreement = _agreement(est, refits, codes, part)
    theorem = est.guarantee if part is None else part.theorem
    if weaker is None or features is None or theorem is None or all_agree(agreement):
        return part, agreement
    if any(verdict.outcome == "fails" for verdict in needed(theorem, *conditions_on(part, verdicts, waived))):
        return part, agreement
    return _less(est, refits, weaker, features) or (part, agreement)


def conditions_on(
    part: SharedBlock | Features | None, verdicts: Sequence[Verdict], waived: Sequence[Assumption]
) -> tuple[tuple[Verdict, ...], tuple[Assumption, ...]]:
    """Return verdicts on what is spoken of, and what is not asked of it."""
    return (*verdicts, *(() if part is None else part.verdicts)), (*waived, *(() if part is None else OF_ALL_CODES))


def _less(
    est: Estimator, refits: Refits, weaker: WeakerClaims[Any], features: Features
) -> tuple[Features, tuple[Agreement, ...]] | None:
    """Return the most in which fits agree: directions that are told most, or what they tell; None if in nothing."""
    train, data = refits.train.data, refits.held_out.data
    with _known_columns():
        along = Compared.of(est, refits, lambda fit: weaker.leading(fit, train, data))
    if along is not None:
        for k, warped in (*((k, False) for k in range(along.n_columns, 0, -1)), (1, True)):
            some = along.first(k)
            part = weaker.features(refits.others[0], data, some.others[0])
            assert part is not None  # for there are features of all codes
            part = part.leading(k, est.n_components_, warped=warped)
            if all_agree(found := agreements(measure_for(part.theorem.indeterminacy), some)):
                return part, found
    with _known_columns():
        predicted = Compared.of(est, refits, lambda fit: weaker.predictions(fit, data))
    if predicted is not None:
        part = features.predictions_alone()
        if all_agree(found := agreements(measure_for(part.theorem.indeterminacy), predicted)):
            return part, found
    return None


def _agreement(
    est: Estimator, refits: Refits, codes: Matrix, part: SharedBlock | Features | None
) -> tuple[Agreement, ...]:
    """Compare a fit with its refits, or the block of each that partners share."""
    held_out = refits.held_out
    if not isinstance(part, SharedBlock):
        measure = (
            est.spec.comparison.measure(est, held_out) if part is None else measure_for(part.theorem.indeterminacy)
        )

        def of(fit: Estimator) -> Matrix:
            compared = fit.spec.comparison.matrix(fit, held_out)
            return latents_of(fit, held_out, measure, codes) if compared is None else compared

    else:
        measure, pairs = measure_for(part.theorem.indeterminacy), held_out_pairs(held_out)

        def of(fit: Estimator) -> Matrix:
            return part.part(latents_of(fit, held_out), *encoded_pairs(fit, *pairs))

    compared = Compared.of(est, refits, of)
    assert compared is not None
    return agreements(measure, compared)


def latents_of(fit: Estimator, rows: Samples, measure: Measure | None = None, like: Matrix | None = None) -> Matrix:
    """Encode rows; in the order of another's latents, where a measure compares them in their order."""
    with _known_columns():
        codes = latent_matrix(fit, rows.data)
    return matched_order(like, codes) if measure is not None and measure.in_order and like is not None else codes


@contextmanager
def _known_columns() -> Iterator[None]:
    """Encode rows without the names of their columns: they are those that the fit knows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield
