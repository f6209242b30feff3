"""The strongest claim that fits may support: about all latents, a part of them, features, or predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pindown import theory
from pindown._names import counted
from pindown.auditing.agreement import (
    Agreement,
    LatentSets,
    SharedBlock,
    agreements,
    matched_order,
    measure_for,
    n_shared_directions,
)
from pindown.auditing.checks.conditions import INJECTIVE_ENCODER, STRUCTURE_KEPT
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.evidence import encoded_pairs
from pindown.auditing.refits import Estimator, Refits, latent_matrix
from pindown.auditing.result import Audit
from pindown.auditing.spec import Part
from pindown.metrics.arrays import Matrix

WARPED = replace(theory.ELEMENTWISE, name="an increasing or decreasing function", statement="ẑ = φ(z), φ invertible")
"""What is left open where fits put samples in the same order, and differ in how far apart."""


def strongest_claim(found: Audit, est: Estimator, refits: Refits, latents: Matrix) -> Audit:
    """Return an audit with the agreement of fits, and the theorem, of the strongest claim that they may support.

    It is about the block that positives share, if that is not all; about features, if the latents leave out some of X;
    and about some of their directions, if fits agree in these only and there is no other reason not to claim.
    """
    block, features = found.block, None
    kept = not any(v.assumption == STRUCTURE_KEPT and v.outcome == "fails" for v in found.verdicts)
    if block is None:
        first, data = refits.others[0], refits.held_out.data
        features = est.spec.comparison.features(first, data, latent_matrix(first, data))
    part = block_part(block) if block is not None else None if kept else features
    agreement = _agreement(est, refits, latents, part, block)
    if not all(each.enough for each in agreement):
        others = [latent_matrix(fit, refits.held_out.data) for fit in refits.others]
        found = replace(found, n_shared=min(n_shared_directions(latents, other) for other in others))
    whole = replace(found, agreement=agreement) if part is None else about(part, found, agreement)
    agree = whole.theorem is None or all(each.enough for each in agreement)
    if features is None or agree or any(verdict.outcome == "fails" for verdict in whole.needed):
        return whole
    fewer = (some for some in _weaker(est, refits, features) if all(each.enough for each in some[1]))
    strongest = next(fewer, None)
    return whole if strongest is None else about(strongest[0], found, strongest[1])


def about(part: Part, found: Audit, agreement: tuple[Agreement, ...]) -> Audit:
    """Return an audit whose claim is about a part of what was learned, which does without the other latents."""
    return replace(
        found,
        theorem=part.theorem,
        agreement=agreement,
        verdicts=(*found.verdicts, *part.verdicts),
        waived=(*found.waived, INJECTIVE_ENCODER, STRUCTURE_KEPT),
        blocks=(),
        rest=part.rest,
    )


def block_part(block: SharedBlock) -> Part:
    """Return the claim about the block of the latents that positives share."""
    subject = f"the block of {counted(block.n_shared, 'direction')} of the latents that positives share is recovered"
    verdict = Verdict(theory.SHARED_CONTENT, block.least, block.negatives, "holds", f"{block}.")
    return Part(replace(theory.CONTRAST_CONTENT, subject=subject), (verdict,), block.rest)


def leading_part(features: Part, n_kept: int, n_latents: int, *, warped: bool) -> Part:
    """Return the claim about the directions in which classes differ most: up to a linear map, or one, warped."""
    first = "the first is" if n_kept == 1 else f"the first {n_kept} are"
    subject = f"of the directions in which features distinguish classes {first} recovered"
    free = WARPED if warped else features.theorem.indeterminacy
    left = n_latents - n_kept
    rest = f"fits differ in the other {counted(left, 'direction')}; " if left else ""
    theorem = replace(features.theorem, subject=subject, indeterminacy=free)
    return Part(theorem, features.verdicts, f"{rest}no latents behind X are claimed")


def predictions_part(features: Part) -> Part:
    """Return the claim about predictions of the label alone, and not about the latents."""
    subject = "the prediction of the label from X, p(label | X), is recovered"
    assumes = tuple(each for each in features.theorem.assumes if each != theory.INDEPENDENT_DIFFERENCES)
    theorem = replace(features.theorem, subject=subject, indeterminacy=theory.IDENTITY, assumes=assumes, diversity=None)
    return Part(theorem, (), "the latents are not: beyond their prediction of the label, fits differ in them")


def _weaker(est: Estimator, refits: Refits, features: Part) -> Iterator[tuple[Part, tuple[Agreement, ...]]]:
    """Yield claims about fewer directions, then about predictions, with the agreement of fits in each."""
    comparison, train, data = est.spec.comparison, refits.train.data, refits.held_out.data
    along = LatentSets.of(est, refits, lambda fit: comparison.leading(fit, train, data))
    for k, warped in (*((k, False) for k in range(along.n_columns, 0, -1)), (1, True)):
        some = along.first(k)
        part = comparison.features(refits.others[0], data, some.others[0])
        assert part is not None  # since there are features of all latents
        part = leading_part(part, k, est.n_components_, warped=warped)
        yield part, agreements(measure_for(part.theorem.indeterminacy), some)
    predicted = LatentSets.of(est, refits, lambda fit: comparison.predictions(fit, data))
    part = predictions_part(features)
    yield part, agreements(measure_for(part.theorem.indeterminacy), predicted)


def _agreement(
    est: Estimator, refits: Refits, latents: Matrix, part: Part | None, block: SharedBlock | None
) -> tuple[Agreement, ...]:
    """Compare a fit with its refits: all latents, or the block of each that positives share."""
    held_out, comparison = refits.held_out, est.spec.comparison
    measure = comparison.measure(est, held_out) if part is None else measure_for(part.theorem.indeterminacy)

    def what(fit: Estimator) -> Matrix:
        if block is not None:
            return block.part(latent_matrix(fit, held_out.data), *encoded_pairs(fit, held_out))
        if (found := comparison.matrix(fit, held_out)) is not None:
            return found
        found = latent_matrix(fit, held_out.data)
        return matched_order(latents, found) if measure.in_order else found

    return agreements(measure, LatentSets.of(est, refits, what))
