"""The result of an audit: plain data that prints and saves itself."""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pindown import theory
from pindown._names import printed
from pindown.auditing.agreement import Agreement, SharedBlock
from pindown.auditing.checks.noise import Band
from pindown.auditing.checks.nuisances import leakage_sentence
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.evidence import AuditScore, Control, HeldOutScore, Strip
from pindown.auditing.page import check_writable, write_whole
from pindown.metrics import Leakage

if TYPE_CHECKING:
    from rich.text import Text

    from pindown.auditing.audit_page import Pictures


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
    scores : tuple of AuditScore
        Of refits on held-out samples, each next to chance.
    held_out : HeldOutScore or None
        The score of your fit on its own validation set, as `pindown fit` prints it; None if it has none.
    agreement : tuple of Agreement
        Between independent fits, up to what the theorem leaves open.
    controls : tuple of Control
        Trials whose outcome is known.
    block : SharedBlock or None
        The part of the latents that the claim is about, if positives do not share all of it.
    leakage : Leakage or None
        How well probes predict a nuisance from the latents.
    noise : float
        The fraction of the variance of a feature that is its own noise; 0 if none was seen.
    band : Band or None
        The recovery that this noise allows; None if there is none.
    recovery : tuple of AuditScore
        Compared with the ground truth, if it was given.
    strips : tuple of Strip
        Pictures side by side, if a method has some to show.
    waived : tuple of Assumption
        Assumptions that this estimator meets by construction, or does without.
    reasons : tuple of str
        Reasons not to claim; empty if there are none.
    claim : str
        The sentence that may be quoted, or that nothing is claimed, and why.
    not_shown : tuple of str
        What is left open.
    warned : tuple of str
        Warnings of the refits.
    n_samples, n_learned_from, n_held_out, n_fits : int
        Samples given, samples that refits learn from, samples that everything is measured on, and fits made.
    """

    estimator: str
    theorem: theory.Theorem | None
    verdicts: tuple[Verdict, ...]
    scores: tuple[AuditScore, ...]
    held_out: HeldOutScore | None
    agreement: tuple[Agreement, ...]
    controls: tuple[Control, ...]
    block: SharedBlock | None
    leakage: Leakage | None
    noise: float
    band: Band | None
    recovery: tuple[AuditScore, ...]
    waived: tuple[theory.Assumption, ...]
    reasons: tuple[str, ...]
    claim: str
    not_shown: tuple[str, ...]
    warned: tuple[str, ...]
    n_samples: int
    n_learned_from: int
    n_held_out: int
    n_fits: int
    pictures: Pictures
    strips: tuple[Strip, ...] = ()

    @property
    def claims(self) -> bool:
        """Whether anything is claimed."""
        return not self.reasons

    def score(self, name: str) -> AuditScore:
        """Return the score of this name; a KeyError names those there are."""
        found = {score.name: score for score in (*self.scores, *self.recovery)}
        if name not in found:
            raise KeyError(f"There is no score {name!r}. There are {', '.join(map(repr, found))}.")
        return found[name]

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
        found: list[tuple[str, float, float | None, str]]
        found = [(s.name, s.value, s.chance, "" if s.p_value is None else f"{s.p_value:.2g}") for s in self.scores]
        found += [(s.name, s.value, s.chance, "") for s in self.recovery]
        if (own := self.held_out) is not None:
            found.append((f"your fit, samples {own.rows}: {own.name}", own.score, own.chance, ""))
        found += [(f"{a.between}: {a.metric}", a.worst, a.chance, "") for a in self.agreement]
        scores = [(name, printed(value), "" if c is None else printed(c), p) for name, value, c, p in found]
        verdicts: list[tuple[str, str, str]] = [(each.outcome, each.name, each.why) for each in self.verdicts]
        verdicts += [("passed" if c.passed else "failed", f"control: {c.name}", c.found) for c in self.controls]
        theorem = "no theorem" if self.theorem is None else self.theorem.name
        return (
            f"<div><p><b>Audit of {escape(self.estimator)}</b>, {escape(theorem)}, {self.n_samples:,} samples, "
            f"{self.n_held_out:,} held out, {self.n_fits} fits</p><blockquote>{escape(self.claim)}</blockquote>"
            f"{_table(('on held-out samples', 'measured', 'chance', 'p'), scores)}"
            f"{_table(('outcome', 'assumption', 'why'), verdicts)}</div>"
        )

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(str(self))  # its brackets are intervals, not markup

    def to_dict(self) -> dict[str, Any]:
        """Return all but the pictures as dictionaries, lists, text and numbers; None for NaN."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "pictures"]
        return {"claims": self.claims} | {name: plain(getattr(self, name)) for name in names}

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


def plain(value: Any) -> Any:
    """Return a value as JSON has it: assumptions, theorems and pictures by what they say, NaN as None.

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
        case Strip():
            return value.caption
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


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
