"""The result of an audit: answers in plain words, the reasons not to claim, and the sentence that may be quoted."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pindown import theory
from pindown._names import counted, listed, printed
from pindown.auditing.agreement import HALVES, Agreement, SharedBlock, bounded
from pindown.auditing.checks.conditions import INVARIANT_LATENTS, STRUCTURE_KEPT, needed
from pindown.auditing.checks.noise import Band, Noise
from pindown.auditing.checks.verdict import Outcome, Verdict, unchecked
from pindown.auditing.evidence import AuditScore, Control, Evidence, Objection
from pindown.auditing.page import save_result
from pindown.metrics import Leakage
from pindown.theory import EXACT_RECONSTRUCTION, NOISY
from pindown.theory.structure import Block

if TYPE_CHECKING:
    from rich.text import Text

    from pindown.auditing.audit_page import Pictures

MIN_RECOVERY = 0.1  # lower end of the band of recovery that noise must leave
LEAST_RATE, MOST_TIMES = 0.1, 100.0  # halvings of what is missing per doubling of the samples; most times as many
IN_A_WORD: Mapping[Outcome, str] = {"holds": "yes", "fails": "no", "undecided": "not sure"}


@dataclass(frozen=True)
class Names:
    """What a user calls the data: the file, and the columns of each role."""

    file: str = ""
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def heading(self, text: str) -> str:
        """Return a sentence about the file, or about nothing in particular."""
        return f"{self.file}: {text}" if self.file else text[0].upper() + text[1:]

    def role(self, role: str, otherwise: str) -> str:
        """Return the columns of a role, or what to call them otherwise."""
        return listed(self.roles[role], most=3) if self.roles.get(role) else otherwise

    def of(self, column: str) -> str:
        """Return the user's name of a column of the figures, such as ``"truth, column 1"``."""
        role, _, which = column.partition(", ")
        if role == "X" and self.roles:
            return which
        sides = ("signal", "nuisance", "pairs") if role == "y" else (role,)
        own = next((self.roles[side] for side in sides if self.roles.get(side)), ())
        number = int(which.removeprefix("column ")) if which.startswith("column ") else 0
        return own[number] if number < len(own) and not {*own[number]} & {*"*?["} else column


@dataclass(frozen=True)
class Answer:
    """What an audit says about one question: in a word or a number, and what that rests on."""

    question: str
    answer: str
    rests_on: str
    outcome: Outcome

    def __str__(self) -> str:
        return f"{self.question}: {self.answer}{self.rests_on and f' ({self.rests_on})'}"


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What an audit found. Prints as text; `save` writes a page, or the numbers as JSON.

    Examples
    --------
    >>> Audit("PCA(2)", None).reasons
    ('no theorem covers these parameters',)
    """

    estimator: str  # what was audited
    theorem: theory.Theorem | None  # the one that applies if its assumptions hold
    verdicts: tuple[Verdict, ...] = ()  # what data show about each assumption, before training and after
    agreement: tuple[Agreement, ...] = ()  # of independent fits, up to what the theorem leaves open
    evidence: Evidence = field(default_factory=lambda: Evidence((), ()))  # scores of refits, controls, leakage
    waived: tuple[theory.Assumption, ...] = ()  # met by construction, or done without
    blocks: Sequence[Block] = ()  # latents that may be mixed among themselves; empty if the method has no blocks
    rest: str = ""  # what the claim is not about
    within: str = ""  # the label within whose levels it holds
    n_latents: int = 0
    n_shared: int = 0  # if fits disagree: directions that all of them share
    feature_noise: Noise | None = None  # of single features of X; None where it was not measured
    band: Band | None = None  # the recovery that this noise allows
    held_out: object = None  # of your fit, on its own validation set, as `pindown fit` prints it
    recovery: tuple[AuditScore, ...] = ()  # compared with the ground truth, if it was given
    warned: tuple[str, ...] = ()  # by the refits
    n_samples: int = 0
    n_learned_from: int = 0  # by refits
    n_held_out: int = 0  # on which everything is measured
    n_fits: int = 0
    names: Names = Names()
    pictures: Pictures | None = None  # what the page draws

    # ---- what was measured ------------------------------------------------------------------------------------------

    @property
    def scores(self) -> tuple[AuditScore, ...]:
        """Scores of refits on held-out samples, each next to chance."""
        return self.evidence.scores

    @property
    def controls(self) -> tuple[Control, ...]:
        """Trials whose outcome is known."""
        return self.evidence.controls

    @property
    def leakage(self) -> Leakage | None:
        """How well probes predict a nuisance from the latents."""
        return self.evidence.leakage

    @property
    def block(self) -> SharedBlock | None:
        """The part of the latents that the claim is about, if positives do not share all of it."""
        return self.evidence.block

    @property
    def noise(self) -> float:
        """The fraction of the variance of a feature that is its own noise; 0 if none was seen."""
        return 0.0 if self.feature_noise is None else self.feature_noise.fraction

    def score(self, name: str) -> AuditScore:
        """Return the score of this name; a KeyError names those there are."""
        found = {score.name: score for score in (*self.scores, *self.recovery)}
        if name not in found:
            raise KeyError(f"There is no score {name!r}. There are {', '.join(map(repr, found))}.")
        return found[name]

    # ---- the claim --------------------------------------------------------------------------------------------------

    @property
    def needed(self) -> tuple[Verdict, ...]:
        """The verdicts that the claim rests on; the others are for information."""
        return () if self.theorem is None else needed(self.theorem, self.verdicts, self.waived)

    @property
    def on_trust(self) -> tuple[theory.Assumption, ...]:
        """The assumptions that no verdict is about."""
        assumed = () if self.theorem is None else unchecked(self.theorem, self.verdicts)
        noisy = (NOISY.assumes,) if self.feature_noise is not None and not self.feature_noise.is_nil else ()
        return (*(assumption for assumption in assumed if assumption not in self.waived), *noisy)

    @property
    def objections(self) -> tuple[Objection, ...]:
        """The reasons not to claim, each with what would change it; empty if there are none."""
        if self.theorem is None:
            return (Objection("no theorem covers these parameters", "Use the defaults of the estimator."),)
        found = list(self.evidence.learned_nothing)
        found += [
            Objection(f"a control failed: {control.name}", "Do not trust these numbers; with more samples it may pass.")
            for control in self.controls
            if not control.passed
        ]
        failed = [verdict for verdict in self.needed if verdict.outcome == "fails"]
        found += [Objection(f"{v.name} fails: {v.found}", v.advice or _needs(v.assumption)) for v in failed]
        fewer = all(verdict.assumption != STRUCTURE_KEPT for verdict in failed)  # else X holds more than the latents
        found += [
            Objection(
                f"{each.between} disagree: {each.metric} {bounded(each.worst)} (threshold {each.threshold})",
                self._for_agreement(each, fewer=fewer),
            )
            for each in self.agreement
            if not each.enough
        ]
        if self.band is not None and self.band.low <= MIN_RECOVERY:
            reason = f"noise may leave next to nothing of the latents: {self.band}"
            found.append(Objection(reason, "Give more features of the same latents, or average repeated samples."))
        if len(self.blocks) == 1 and not self.blocks[0].is_single:
            n = len(self.blocks[0].latents)
            reason = f"no latent is identified: one block holds all {n}, and may be mixed in any way"
            found.append(Objection(reason, "Add features that depend on few of the latents, or give a label or pairs."))
        return tuple(found)

    def _for_agreement(self, found: Agreement, *, fewer: bool) -> str:
        """Say what would let fits agree: directions that they share, or samples, by what halving these has cost."""
        if fewer and 0 < self.n_shared < self.n_latents:
            return f"Fits share {counted(self.n_shared, 'direction')}: try n_components={self.n_shared}."
        missing = {each.between == HALVES: 1 - each.worst for each in self.agreement}
        of_half, of_all = missing.get(True, math.nan), max(1e-6, missing.get(False, math.nan))
        rate = math.log2(of_half / of_all) if of_half > of_all else 0.0  # per doubling of the samples
        times = ((1 - found.worst) / (1 - found.threshold)) ** (1 / rate) if rate > LEAST_RATE else math.inf
        if times > MOST_TIMES:
            return "More samples hardly help: fits to half of them agree as well. Give other features or labels."
        return f"About {times:.1f} times as many samples would do, by what fits to half of them lose."

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons not to claim; empty if there are none."""
        return tuple(each.reason for each in self.objections)

    @property
    def claims(self) -> bool:
        """Whether anything is claimed."""
        return not self.objections

    @property
    def short_claim(self) -> str:
        """What is claimed, without its conditions and numbers; "none" if nothing is."""
        if self.theorem is None or not self.claims:
            return "none"
        subject = self.theorem.subject + (f", within each level of {self.within}," if self.within else "")
        subject += "" if self.band is None else ", as far as noise allows,"
        if len(self.blocks) > 1:
            members = ["{" + ", ".join(map(str, sorted(block.latents))) + "}" for block in self.blocks]
            subject += f" in the blocks {listed(members)},"
        return subject + (f" up to {self.theorem.indeterminacy.name}" if self.theorem.indeterminacy.allows else "")

    @property
    def claim(self) -> str:
        """The sentence that may be quoted, or the one that says why there is none."""
        if self.theorem is None or not self.claims:
            return f"Nothing is claimed: {'; '.join(self.reasons)}."
        conditions = [verdict.name for verdict in self.needed if verdict.outcome == "undecided"]
        conditions += [assumption.name for assumption in self.on_trust]
        start = f"If these hold: {', '.join(dict.fromkeys(conditions))}, then " if conditions else ""
        left = "".join(f"; {text}" for text in (self.band, self.rest) if text)
        worst = min((found for found in self.agreement if found.between != HALVES), key=lambda found: found.worst)
        text = (
            f"{start}{self.short_claim} ({self.theorem.source}){left}; measured on {self.n_held_out:,} held-out "
            f"samples: {self.scores[0]}; agreement of independent fits: {worst.metric} at least "
            f"{printed(worst.worst)} (chance {printed(worst.chance)})."
        )
        return text[0].upper() + text[1:]

    @property
    def not_shown(self) -> tuple[str, ...]:
        """What is left open: undecided, taken on trust, and what no theorem promises."""
        if self.theorem is None:
            return ("that the latents are the true ones, up to anything: no theorem covers these parameters",)
        undecided = [f"undecided: {v.name}: {v.why}" for v in self.needed if v.outcome == "undecided"]
        promised, noise = list(self.theorem.not_promised), self.feature_noise
        promised += NOISY.not_promised if noise is not None and not noise.is_nil else ()
        if noise is not None and noise.is_nil and not noise.decided:
            undecided.append(
                "undecided: noise: all directions of X may be signal, so noise cannot be distinguished from latents "
                "and counts as signal. More samples would show it, or twenty more features of the same latents."
            )
        return (
            *undecided,
            *(f"taken on trust: {assumption.name}: {assumption.statement}" for assumption in self.on_trust),
            *(f"not promised: {text}" for text in promised),
        )

    # ---- answers in plain words -------------------------------------------------------------------------------------

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The first screen of the page, and the first lines of the text: what was removed or learned, kept, stable."""
        return (*self._learned(), *self._kept(), *self._stable(), self._claimed())

    def _learned(self) -> Iterator[Answer]:
        if not self.scores:
            return
        score = self.scores[0]
        if not score.leak:
            learned: Outcome = "holds" if score.good and not self.evidence.learned_nothing else "fails"
            label = self.names.role("signal", "") or self.names.role("pairs", "")
            question = f"Something learned from {label}" if label else "Something learned"
            yield Answer(question, IN_A_WORD[learned], f"{score}", learned)
            return
        removed: Outcome = next((v.outcome for v in self.verdicts if v.assumption == INVARIANT_LATENTS), "undecided")
        parts = [f"{_percent(score.value)} of held-out samples recognised from the latents of {score.of}"]
        parts += [] if score.yours is None else [f"{_percent(score.yours)} from yours"]
        parts += [f"{_percent(self.scores[1].value)} from the data"] if len(self.scores) > 1 else []
        most = "" if self.leakage is None else f"; at most {_percent(self.leakage.interval[1])} with 95 % confidence"
        rests_on = f"{', '.join(parts)}; chance {_percent(score.chance)}{most}"
        question = f"{self.names.role('nuisance', 'nuisance')} removed"
        yield Answer(question[0].upper() + question[1:], IN_A_WORD[removed], rests_on, removed)

    def _kept(self) -> Iterator[Answer]:
        found = [v for v in self.verdicts if v.assumption in (STRUCTURE_KEPT, EXACT_RECONSTRUCTION)]
        for verdict in found:
            what = "by the latents" if verdict.assumption == STRUCTURE_KEPT else "by the latents and the nuisance"
            rests_on = f"of the variance of the data above noise, explained {what} of a refit"
            yield Answer("Structure kept", _percent(verdict.statistic), rests_on, verdict.outcome)
        for score in () if found else (score for score in self.scores if score.kept):
            rests_on = f"{score.name}: {bounded(score.value)} in {score.of}, {bounded(score.chance)} without latents"
            yield Answer("Structure kept", _percent(score.value), rests_on, "holds" if score.good else "fails")

    def _stable(self) -> Iterator[Answer]:
        if self.agreement:
            worst = min(self.agreement, key=lambda each: each.worst - each.threshold)
            outcome: Outcome = "holds" if worst.enough else "fails"
            found = f"{worst.metric} {bounded(worst.worst)} at the worst, between {worst.between}"
            yield Answer("Stable across refits", IN_A_WORD[outcome], f"{found}; {worst.threshold} is needed", outcome)

    def _claimed(self) -> Answer:
        if self.theorem is None or not self.claims:
            return Answer("Supported claim", "none", f"{counted(len(self.objections), 'reason')} below", "fails")
        claim = self.short_claim.replace("the nuisance", self.names.role("nuisance", "the nuisance"))
        trusted = sum(v.outcome == "undecided" for v in self.needed) + len(self.on_trust)
        conditions = f"if {counted(trusted, 'condition')} below hold{'s' if trusted == 1 else ''}" if trusted else ""
        return Answer("Supported claim", claim, conditions, "holds")

    # ---- text, notebooks and files ----------------------------------------------------------------------------------

    @property
    def headline(self) -> str:
        """Whether a claim is supported, and whether data left some of its conditions undecided."""
        undecided = any(verdict.outcome == "undecided" for verdict in self.needed)
        return ("a claim is supported" + ", with conditions" * undecided) if self.claims else "no claim is supported"

    @property
    def title(self) -> str:
        """What was audited, on how many samples, and by how many fits."""
        samples = f"{self.n_samples:,} samples, {self.n_held_out:,} held out, {self.n_fits} fits"
        return f"Audit of {self.estimator}, {samples}"

    def __str__(self) -> str:
        parts: dict[str, Sequence[object]] = {
            "in short": self.answers,
            "scores on held-out samples": self.scores,
            "your fit on its validation set": [self.held_out] if self.held_out else [],
            "agreement of independent fits": self.agreement,
            "controls": self.controls,
            "assumptions": self.verdicts,
            "what positives share": [f"{self.block}; {self.block.rest}."] if self.block else [],
            "leakage from the latents of a refit": [self.leakage.verdict] if self.leakage else [],
            "noise": [f"{self.band}."] if self.band else [],
            "compared with the ground truth": self.recovery,
            "warnings of the refits": self.warned,
            "claim": [self.claim],
            "what would change this": [*dict.fromkeys(each.change for each in self.objections if each.change)],
            "not shown": self.not_shown,
        }
        lines = [self.title]
        for title, entries in parts.items():
            lines += [title, *(f"  {entry}" for entry in entries)] if entries else []
        return "\n".join(lines)

    def __repr__(self) -> str:
        name = "no theorem" if self.theorem is None else self.theorem.name
        return f"<Audit of {self.estimator}: {name}, {'a claim' if self.claims else 'nothing is claimed'}>"

    def _repr_html_(self) -> str:
        """Return the answers and the claim, and the text of the audit folded below, for a notebook."""
        answers = "".join(f"<li>{escape(str(answer))}</li>" for answer in self.answers)
        text = f"<details><summary>{escape(self.title)}</summary><pre>{escape(str(self))}</pre></details>"
        return f"<div><ul>{answers}</ul><blockquote>{escape(self.claim)}</blockquote>{text}</div>"

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(str(self))  # its brackets are intervals, not markup

    def to_dict(self) -> dict[str, Any]:
        """Return all but the pictures as dictionaries, lists, text and numbers; None for NaN."""
        return {name: plain(getattr(self, name)) for name in SAVED}

    def save(self, path: str | Path) -> Path:
        """Write a page (``.html``) or the numbers (``.json``), whole or not at all; return the path.

        Raises
        ------
        ValueError
            If the name has another ending.
        OSError
            If the file cannot be written.
        """
        from pindown.auditing.audit_page import render

        return save_result(path, self.to_dict, lambda: render(self))


SAVED = (
    *("claims", "answers", "claim", "reasons", "objections", "not_shown", "estimator", "theorem", "verdicts", "waived"),
    *("scores", "held_out", "agreement", "controls", "block", "leakage", "noise", "band", "recovery", "warned"),
    *("n_samples", "n_learned_from", "n_held_out", "n_fits"),
)
"""What `Audit.to_dict` has."""


def _needs(condition: theory.Assumption | theory.Diversity) -> str:
    """Say what a condition asks of the data."""
    return f"The theorem needs this: {condition.statement}." if isinstance(condition, theory.Assumption) else ""


def _percent(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{100 * max(0.0, value):.0f} %"


def plain(value: Any) -> Any:
    """Return a value as JSON has it: assumptions and theorems by what they say, NaN as None."""
    match value:
        case theory.Assumption():
            return value.name
        case theory.Diversity():
            return f"at least {value.formula} {value.unit}"
        case theory.Theorem():
            return {"name": value.name, "source": value.source, "claim": value.claim()}
        case Mapping():
            return {str(name): plain(entry) for name, entry in value.items()}
        case list() | tuple() | np.ndarray():
            return [plain(entry) for entry in value]
        case bool() | np.bool_():
            return bool(value)
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            return float(value) if math.isfinite(value) else None
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value if value is None or isinstance(value, str) else str(value)
