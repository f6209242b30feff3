"""The result of an audit: what was measured, the reasons not to claim, and the sentence that may be quoted."""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pindown import theory
from pindown._names import printed
from pindown.auditing.agreement import HALVES, Agreement, SharedBlock
from pindown.auditing.checks.conditions import needed
from pindown.auditing.checks.noise import Band, Noise
from pindown.auditing.checks.nuisances import leakage_sentence
from pindown.auditing.checks.verdict import Verdict, unchecked
from pindown.auditing.evidence import AuditScore, Control, Evidence, HeldOutScore
from pindown.auditing.page import check_writable, write_whole
from pindown.metrics import Leakage
from pindown.theory import NOISY
from pindown.theory.structure import Block

if TYPE_CHECKING:
    from rich.text import Text

    from pindown.auditing.audit_page import Pictures

MIN_RECOVERY = 0.1  # lower end of the band of recovery that noise must leave


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What an audit found. Prints as text; `save` writes a page, or the numbers as JSON.

    Attributes
    ----------
    estimator : str
        What was audited.
    theorem : Theorem or None
        The one that applies if its assumptions hold.
    verdicts : tuple of Verdict
        What data show about each assumption, before training and after.
    agreement : tuple of Agreement
        Between independent fits, up to what the theorem leaves open.
    evidence : Evidence
        Scores of refits, controls and leakage: see the properties of these names.
    waived : tuple of Assumption
        Assumptions that this estimator meets by construction, or does without.
    blocks : tuple of Block
        Latents that may be mixed among themselves; empty if the method has no blocks.
    rest, within : str
        What the claim is not about; and the label within whose levels it holds.
    feature_noise : Noise or None
        Of single features of X; None where it was not measured.
    band : Band or None
        The recovery that this noise allows; None if there is none.
    held_out : HeldOutScore or None
        The score of your fit on its own validation set, as `pindown fit` prints it; None if it has none.
    recovery : tuple of AuditScore
        Compared with the ground truth, if it was given.
    warned : tuple of str
        Warnings of the refits.
    n_samples, n_learned_from, n_held_out, n_fits : int
        Samples given, samples that refits learn from, samples that everything is measured on, and fits made.
    pictures : Pictures or None
        What the page draws.

    Examples
    --------
    >>> Audit("PCA(2)", None).reasons
    ('no theorem covers these parameters',)
    """

    estimator: str
    theorem: theory.Theorem | None
    verdicts: tuple[Verdict, ...] = ()
    agreement: tuple[Agreement, ...] = ()
    evidence: Evidence = field(default_factory=lambda: Evidence((), ()))
    waived: tuple[theory.Assumption, ...] = ()
    blocks: Sequence[Block] = ()
    rest: str = ""
    within: str = ""
    feature_noise: Noise | None = None
    band: Band | None = None
    held_out: HeldOutScore | None = None
    recovery: tuple[AuditScore, ...] = ()
    warned: tuple[str, ...] = ()
    n_samples: int = 0
    n_learned_from: int = 0
    n_held_out: int = 0
    n_fits: int = 0
    pictures: Pictures | None = None

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
        """The assumptions of the theorem that no verdict is about."""
        assumed = () if self.theorem is None else unchecked(self.theorem, self.verdicts)
        return tuple(assumption for assumption in assumed if assumption not in self.waived)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons not to claim; empty if there are none."""
        if self.theorem is None:
            return ("no theorem covers these parameters",)
        reasons = list(self.evidence.learned_nothing)
        reasons += [f"a control failed: {control.name}" for control in self.controls if not control.passed]
        failed = [verdict for verdict in self.needed if verdict.outcome == "fails"]
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
    def claims(self) -> bool:
        """Whether anything is claimed."""
        return not self.reasons

    @property
    def claim(self) -> str:
        """The sentence that may be quoted, or the one that says why there is none."""
        theorem = self.theorem
        if self.reasons or theorem is None:
            return f"Nothing is claimed: {'; '.join(self.reasons)}."
        conditions = [verdict.name for verdict in self.needed if verdict.outcome == "undecided"]
        conditions += [assumption.name for assumption in self.on_trust]
        conditions += [] if self.band is None else [NOISY.assumes.name]
        start = f"If these hold: {', '.join(dict.fromkeys(conditions))}, then " if conditions else ""
        subject = theorem.subject + (f", within each level of {self.within}," if self.within else "")
        subject += "" if self.band is None else ", as far as noise allows,"
        subject += f" up to {theorem.indeterminacy.name}" if theorem.indeterminacy.allows else ""
        left = "".join(f"; {text}" for text in (self.band, self.rest) if text)
        worst = min((found for found in self.agreement if found.between != HALVES), key=lambda found: found.worst)
        text = (
            f"{start}{subject} ({theorem.source}){left}; refits on {self.n_held_out:,} held-out samples: "
            f"{self.scores[0]}; agreement of independent fits: {worst.metric} at least {printed(worst.worst)} "
            f"(chance {printed(worst.chance)})."
        )
        return text[0].upper() + text[1:]

    @property
    def not_shown(self) -> tuple[str, ...]:
        """What is left open: undecided, taken on trust, and what no theorem promises."""
        if self.theorem is None:
            return ("that the latents are the true ones, up to anything: no theorem covers these parameters",)
        undecided = [f"undecided: {v.name}: {v.why}" for v in self.needed if v.outcome == "undecided"]
        trusted, promised, noise = list(self.on_trust), list(self.theorem.not_promised), self.feature_noise
        if noise is not None and not noise.is_nil:
            trusted, promised = [*trusted, NOISY.assumes], [*promised, *NOISY.not_promised]
        elif noise is not None and not noise.decided:
            undecided.append(
                "undecided: noise: all directions of X may be signal, so noise cannot be distinguished from latents "
                "and counts as signal. More samples would show it, or twenty more features of the same latents."
            )
        return (
            *undecided,
            *(f"taken on trust: {assumption.name}: {assumption.statement}" for assumption in trusted),
            *(f"not promised: {text}" for text in promised),
        )

    # ---- text, notebooks and files ----------------------------------------------------------------------------------

    def __str__(self) -> str:
        parts: dict[str, Sequence[object]] = {
            "scores of refits on held-out samples": self.scores,
            "your fit on its validation set": [self.held_out] if self.held_out else [],
            "agreement of independent fits": self.agreement,
            "controls": self.controls,
            "assumptions": self.verdicts,
            "what positives share": [f"{self.block}; {self.block.rest}."] if self.block else [],
            "leakage": [leakage_sentence(self.leakage)] if self.leakage else [],
            "noise": [f"{self.band}."] if self.band else [],
            "compared with the ground truth": self.recovery,
            "warnings of the refits": self.warned,
            "claim": [self.claim],
            "not shown": self.not_shown,
        }
        lines = [
            f"Audit of {self.estimator}, {self.n_samples:,} samples, {self.n_held_out:,} held out, {self.n_fits} fits"
        ]
        for title, entries in parts.items():
            lines += [title, *(f"  {entry}" for entry in entries)] if entries else []
        return "\n".join(lines)

    def __repr__(self) -> str:
        name = "no theorem" if self.theorem is None else self.theorem.name
        return f"<Audit of {self.estimator}: {name}, {'a claim' if self.claims else 'nothing is claimed'}>"

    def _repr_html_(self) -> str:
        """Return the claim, and tables of scores, agreement and verdicts, for a notebook."""
        import pandas as pd

        scores: list[tuple[object, ...]]
        scores = [(each.name, each.value, each.chance, each.p_value) for each in (*self.scores, *self.recovery)]
        if (own := self.held_out) is not None:
            scores.append((f"your fit: {own.name}", own.score, own.chance, None))
        scores += [(f"{each.between}: {each.metric}", each.worst, each.chance, None) for each in self.agreement]
        verdicts: list[tuple[str, str, str]]
        verdicts = [(each.outcome, each.name, each.why) for each in self.verdicts]
        verdicts += [("passed" if c.passed else "failed", f"control: {c.name}", c.found) for c in self.controls]
        tables = (
            pd.DataFrame(scores, columns=["on held-out samples", "measured", "chance", "p"]),
            pd.DataFrame(verdicts, columns=["outcome", "assumption", "why"]),
        )
        with pd.option_context("display.max_colwidth", None):
            first, second = (table.to_html(index=False, na_rep="", float_format="{:.3g}".format) for table in tables)
        title = (
            f"Audit of {self.estimator}, {self.n_samples:,} samples, {self.n_held_out:,} held out, {self.n_fits} fits"
        )
        return f"<div><p>{escape(title)}</p><blockquote>{escape(self.claim)}</blockquote>{first}{second}</div>"

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
        path = Path(path)
        if path.suffix.lower() not in (".html", ".json"):
            raise ValueError(f"save: {path.name!r} must end in .html, for a page, or in .json, for the numbers.")
        check_writable(path)
        if path.suffix.lower() == ".json":
            write_whole(json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False), path)
        else:
            from pindown.auditing.audit_page import render

            write_whole(render(self), path)
        return path


SAVED = (
    *("claims", "claim", "reasons", "not_shown", "estimator", "theorem", "verdicts", "waived", "scores", "held_out"),
    *("agreement", "controls", "block", "leakage", "noise", "band", "recovery", "warned"),
    *("n_samples", "n_learned_from", "n_held_out", "n_fits"),
)
"""What `Audit.to_dict` has."""


def plain(value: Any) -> Any:
    """Return a value as JSON has it: assumptions and theorems by what they say, NaN as None.

    Examples
    --------
    >>> plain({"p": np.float64(0.5), "r2": math.nan, "of": theory.UNIFORM_SPHERE})
    {'p': 0.5, 'r2': None, 'of': 'uniform marginal on the sphere'}
    """
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
