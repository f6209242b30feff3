"""What fits are compared in: all codes, a block of them, or less, where they agree in less alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from pindown.auditing.checks import conditions
from pindown.auditing.checks.needs import needed
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.evidence.agreement import Agreement, Compared, Measure, agreements, in_order_of, measure_for
from pindown.auditing.evidence.blocks import Features, SharedBlock, encoded_pairs
from pindown.auditing.evidence.rows import Refits, Rows
from pindown.auditing.evidence.scores import pairs_of
from pindown.auditing.report.claims import are_agreed
from pindown.auditing.spec import Estimator
from pindown.theory import Assumption

Matrix = NDArray[np.float64]

OF_ALL_CODES = (conditions.UNFOLDED_CODES, conditions.SIGNAL_TOLD)
"""What is asked of codes that tell everything, and not of those that tell a block."""


def spoken_of(
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
    untold = any(v.assumption == conditions.SIGNAL_TOLD and v.outcome == "fails" for v in verdicts)
    features = est.spec.features(fit, data, codes_of(fit, refits.held_out)) if block is None else None
    part = features if untold and block is None else block
    agreement = _agreement(est, refits, codes, part)
    theorem = est.guarantee if part is None else part.theorem
    if features is None or theorem is None or are_agreed(agreement):
        return part, agreement
    if any(verdict.outcome == "fails" for verdict in needed(theorem, *said_of(part, verdicts, waived))):
        return part, agreement
    return _less(est, refits, features) or (part, agreement)


def said_of(
    part: SharedBlock | Features | None, verdicts: Sequence[Verdict], waived: Sequence[Assumption]
) -> tuple[tuple[Verdict, ...], tuple[Assumption, ...]]:
    """Return verdicts on what is spoken of, and what is not asked of it."""
    return (*verdicts, *(() if part is None else part.verdicts)), (*waived, *(() if part is None else OF_ALL_CODES))


def _less(est: Estimator, refits: Refits, features: Features) -> tuple[Features, tuple[Agreement, ...]] | None:
    """Return the most in which fits agree: directions that are told most, or what they tell; None if in nothing."""
    spec, (train, data) = est.spec, (refits.learned_from.data, refits.held_out.data)
    with _known_columns():
        along = Compared.of(est, refits, lambda fit: spec.leading(fit, train, data))
    if along is not None:
        for k, warped in (*((k, False) for k in range(along.n_columns, 0, -1)), (1, True)):
            some = along.first(k)
            part = spec.features(refits.others[0], data, some.others[0])
            assert part is not None  # for there are features of all codes
            part = part.leading(k, est.n_components_, warped=warped)
            if are_agreed(found := agreements(measure_for(part.theorem.indeterminacy), some)):
                return part, found
    with _known_columns():
        predicted = Compared.of(est, refits, lambda fit: spec.predictions(fit, data))
    if predicted is not None:
        part = features.told_alone()
        if are_agreed(found := agreements(measure_for(part.theorem.indeterminacy), predicted)):
            return part, found
    return None


def _agreement(
    est: Estimator, refits: Refits, codes: Matrix, part: SharedBlock | Features | None
) -> tuple[Agreement, ...]:
    """Compare a fit with its refits, or the block of each that partners share."""
    held_out = refits.held_out
    if not isinstance(part, SharedBlock):
        measure = est.spec.measure(est, held_out) if part is None else measure_for(part.theorem.indeterminacy)

        def of(fit: Estimator) -> Matrix:
            compared = fit.spec.compared(fit, held_out)
            return codes_of(fit, held_out, measure, codes) if compared is None else compared

    else:
        measure, pairs = measure_for(part.theorem.indeterminacy), pairs_of(held_out)

        def of(fit: Estimator) -> Matrix:
            return part.part(codes_of(fit, held_out), *encoded_pairs(fit, *pairs))

    compared = Compared.of(est, refits, of)
    assert compared is not None
    return agreements(measure, compared)


def codes_of(fit: Estimator, rows: Rows, measure: Measure | None = None, like: Matrix | None = None) -> Matrix:
    """Encode rows; in the order of another's latents, where a measure compares them in their order."""
    with _known_columns():
        codes = np.asarray(fit.spec.latents(fit, rows.data), dtype=np.float64)
    return in_order_of(like, codes) if measure is not None and measure.in_order and like is not None else codes


@contextmanager
def _known_columns() -> Iterator[None]:
    """Encode rows without the names of their columns: they are those that the fit knows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield
