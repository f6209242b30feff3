"""Claims: what a claim is about, the reasons not to make it, and the sentence that may be quoted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pindown import theory
from pindown._names import counted, printed
from pindown.auditing.agreement import (
    HALVES,
    Agreement,
    LatentSets,
    SharedBlock,
    agreements,
    matched_order,
    measure_for,
)
from pindown.auditing.checks.conditions import INJECTIVE_ENCODER, STRUCTURE_KEPT, needed
from pindown.auditing.checks.noise import Band, Noise
from pindown.auditing.checks.verdict import Verdict, unchecked
from pindown.auditing.evidence import Evidence, encoded_pairs
from pindown.auditing.refits import Estimator, Refits, latent_matrix
from pindown.auditing.spec import Part
from pindown.metrics.arrays import Matrix
from pindown.theory import NOISY, Assumption, Theorem
from pindown.theory.structure import Block

MIN_RECOVERY = 0.1  # lower end of the band of recovery that noise must leave
OF_ALL_LATENTS = (INJECTIVE_ENCODER, STRUCTURE_KEPT)  # conditions that a claim about a part does not need

WARPED = replace(theory.ELEMENTWISE, name="an increasing or decreasing function", statement="ẑ = φ(z), φ invertible")
"""What is left open where fits put samples in the same order, and differ in how far apart."""


@dataclass(frozen=True)
class Claim:
    """A claim and what it rests on: the reasons not to make it, its sentence, and what it leaves open.

    Parameters
    ----------
    theorem : Theorem or None
        The one that applies if its assumptions hold.
    verdicts : sequence of Verdict
        On assumptions.
    agreement : sequence of Agreement
        Of independent fits.
    evidence : Evidence
        Scores and controls.
    waived : sequence of Assumption
        Assumptions that are met by construction, or that the method does without.
    noise, band
        Noise of single features of X, and the recovery that it allows.
    rest : str
        What is not claimed.
    n_held_out : int
        Samples that everything is measured on.
    blocks : sequence of Block
        Latents that may be mixed among themselves; empty if the method has no blocks.

    Examples
    --------
    >>> Claim(None).reasons
    ('no theorem covers these parameters',)
    """

    theorem: Theorem | None
    verdicts: Sequence[Verdict] = ()
    agreement: Sequence[Agreement] = ()
    evidence: Evidence = field(default_factory=lambda: Evidence((), ()))
    waived: Sequence[Assumption] = ()
    noise: Noise | None = None
    band: Band | None = None
    rest: str = ""
    within: str = ""
    n_held_out: int = 0
    blocks: Sequence[Block] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons not to make the claim; empty if there are none."""
        if self.theorem is None:
            return ("no theorem covers these parameters",)
        reasons = list(self.evidence.learned_nothing)
        reasons += [f"a control failed: {control.name}" for control in self.evidence.controls if not control.passed]
        failed = [verdict for verdict in self._needed() if verdict.outcome == "fails"]
        reasons += [f"{verdict.name} fails: {verdict.why.rstrip('.')}" for verdict in failed]
        reasons += [
            f"{found.between} disagree: {found.metric} {printed(found.worst)} (threshold {found.threshold})"
            for found in self.agreement
            if not found.enough
        ]
        if self.band is not None and self.band.low <= MIN_RECOVERY:
            reasons.append(f"noise may leave next to nothing of the latents: {self.band}")
        if len(self.blocks) == 1 and not self.blocks[0].is_single:
            n = len(self.blocks[0].latents)
            reasons.append(f"no latent is identified: one block holds all {n}, and may be mixed in any way")
        return tuple(reasons)

    @property
    def sentence(self) -> str:
        """The sentence that may be quoted, or the one that says why there is none."""
        theorem = self.theorem
        if self.reasons or theorem is None:
            return f"Nothing is claimed: {'; '.join(self.reasons)}."
        conditions = [verdict.name for verdict in self._needed() if verdict.outcome == "undecided"]
        conditions += [assumption.name for assumption in self._on_trust()]
        conditions += [] if self.band is None else [NOISY.assumes.name]
        start = f"If these hold: {', '.join(dict.fromkeys(conditions))}, then " if conditions else ""
        subject = theorem.subject + (f", within each level of {self.within}," if self.within else "")
        subject += "" if self.band is None else ", as far as noise allows,"
        subject += f" up to {theorem.indeterminacy.name}" if theorem.indeterminacy.allows else ""
        left = "".join(f"; {text}" for text in (self.band, self.rest) if text)
        worst = min((found for found in self.agreement if found.between != HALVES), key=lambda found: found.worst)
        text = (
            f"{start}{subject} ({theorem.source}){left}; refits on {self.n_held_out:,} held-out samples: "
            f"{self.evidence.scores[0]}; agreement of independent fits: {worst.metric} at least {printed(worst.worst)} "
            f"(chance {printed(worst.chance)})."
        )
        return text[0].upper() + text[1:]

    @property
    def not_shown(self) -> tuple[str, ...]:
        """What is left open: undecided, taken on trust, and what no theorem promises."""
        if self.theorem is None:
            return ("that the latents are the true ones, up to anything: no theorem covers these parameters",)
        undecided = [f"undecided: {v.name}: {v.why}" for v in self._needed() if v.outcome == "undecided"]
        trusted = list(self._on_trust())
        promised = list(self.theorem.not_promised)
        if self.noise is not None and not self.noise.is_nil:
            trusted, promised = [*trusted, NOISY.assumes], [*promised, *NOISY.not_promised]
        elif self.noise is not None and not self.noise.decided:
            undecided.append(
                "undecided: noise: all directions of X may be signal, so noise cannot be distinguished from latents "
                "and counts as signal. More samples would show it, or twenty more features of the same latents."
            )
        return (
            *undecided,
            *(f"taken on trust: {assumption.name}: {assumption.statement}" for assumption in trusted),
            *(f"not promised: {text}" for text in promised),
        )

    def _needed(self) -> tuple[Verdict, ...]:
        return () if self.theorem is None else needed(self.theorem, self.verdicts, self.waived)

    def _on_trust(self) -> tuple[Assumption, ...]:
        assumed = () if self.theorem is None else unchecked(self.theorem, self.verdicts)
        return tuple(assumption for assumption in assumed if assumption not in self.waived)


# ---- what a claim is about ------------------------------------------------------------------------------------------


def claim_about(
    est: Estimator, refits: Refits, latents: Matrix, evidence: Evidence, verdicts: Sequence[Verdict]
) -> tuple[Claim, bool]:
    """Return the strongest claim that fits may support, and whether it is about all latents.

    It is about the block that positives share, if that is not all; about features, if the latents leave out some of X;
    and about some of their directions, if fits agree in these only and there is no other reason not to claim.
    """
    spec, held_out, block = est.spec, refits.held_out, evidence.block
    kept = not any(v.assumption == STRUCTURE_KEPT and v.outcome == "fails" for v in verdicts)
    features = None
    if spec.weaker is not None and block is None:
        first, data = refits.others[0], held_out.data
        features = spec.weaker.features(first, data, latent_matrix(first, data))
    part = block_part(block) if block is not None else None if kept else features
    waived = spec.waived(est, held_out.data)

    def claim(part: Part | None, agreement: Sequence[Agreement]) -> Claim:
        blocks = getattr(est, "blocks_", ()) if part is None else ()
        within = "" if held_out.data.given is None else "the given label"
        found = Claim(
            est.guarantee, verdicts, agreement, evidence, waived, within=within, n_held_out=len(held_out), blocks=blocks
        )
        if part is None:
            return found
        seen, without = (*verdicts, *part.verdicts), (*waived, *OF_ALL_LATENTS)
        return replace(found, theorem=part.theorem, verdicts=seen, waived=without, rest=part.rest)

    whole = claim(part, _agreement(est, refits, latents, part, block))
    agree = whole.theorem is None or all(found.enough for found in whole.agreement)
    if features is None or agree or any(verdict.outcome == "fails" for verdict in whole._needed()):
        return whole, part is None
    weaker = (found for found in _weaker(est, refits, features) if all(each.enough for each in found[1]))
    strongest = next(weaker, None)
    return (whole, part is None) if strongest is None else (claim(*strongest), False)


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
    weaker, train, data = est.spec.weaker, refits.train.data, refits.held_out.data
    assert weaker is not None
    along = LatentSets.of(est, refits, lambda fit: weaker.leading(fit, train, data))
    for k, warped in (*((k, False) for k in range(along.n_columns, 0, -1)), (1, True)):
        some = along.first(k)
        part = weaker.features(refits.others[0], data, some.others[0])
        assert part is not None  # since there are features of all latents
        part = leading_part(part, k, est.n_components_, warped=warped)
        yield part, agreements(measure_for(part.theorem.indeterminacy), some)
    predicted = LatentSets.of(est, refits, lambda fit: weaker.predictions(fit, data))
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
