"""The result of an audit, as plain data that prints and saves itself."""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from pindown.auditing.page import check_writable, write_whole
from pindown.auditing.scores import Control, HeldOutScore, Score, Strip
from pindown.metrics import Leakage

if TYPE_CHECKING:
    from pindown.auditing.audit_page import Pictures


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What an audit found. Prints as text; `save` writes a page, or the numbers as JSON.

    Attributes
    ----------
    estimator : str
        What was audited.
    theorem : Theorem or None
        What would speak of it.
    verdicts : tuple of Verdict
        What data say of each assumption, before training and after.
    scores : tuple of Score
        On held-out rows, each with its level of chance.
    held_out : HeldOutScore or None
        What the fit itself scored on rows that it kept back, as `pindown fit` prints it; None if it kept none.
    agreement : tuple of Agreement
        Between independent fits, up to what the theorem leaves open.
    controls : tuple of Control
        Trials whose outcome is known beforehand.
    block : SharedBlock or None
        The part of the codes that is spoken of, where partners do not share all of it.
    leakage : Leakage or None
        What the codes still tell of a nuisance.
    noise : float
        The share of the variance of a column that is noise of its own; 0 where none was seen.
    band : Band or None
        Where the score of the true latents lies, for all that noise; None where there is none.
    recovery : tuple of Score
        Against the truth, if it was given.
    strips : tuple of Strip
        Rows of pictures, where a method has some to show.
    waived : tuple of Assumption
        Assumptions that this estimator meets by construction, or does without.
    reasons : tuple of str
        What stands against a claim; empty if nothing does.
    claim : str
        The sentence that may be quoted, or that nothing is claimed, and why.
    not_shown : tuple of str
        What was left open.
    warned : tuple of str
        What the estimator says against itself.
    n_samples, n_learned_from, n_held_out, n_fits : int
        Rows given, rows that refits learned from, rows that all is measured on, and fits made.
    """

    estimator: str
    theorem: theory.Theorem | None
    verdicts: tuple[Verdict, ...]
    scores: tuple[Score, ...]
    held_out: HeldOutScore | None
    agreement: tuple[Agreement, ...]
    controls: tuple[Control, ...]
    block: SharedBlock | None
    leakage: Leakage | None
    noise: float
    band: Band | None
    recovery: tuple[Score, ...]
    strips: tuple[Strip, ...]
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

    @property
    def claims(self) -> bool:
        """Whether anything is claimed."""
        return not self.reasons

    def score(self, name: str) -> Score:
        """Return the score of this name; a KeyError names those there are."""
        found = {score.name: score for score in (*self.scores, *self.recovery)}
        if name not in found:
            raise KeyError(f"There is no score {name!r}. There are {', '.join(map(repr, found))}.")
        return found[name]

    def __str__(self) -> str:
        parts: list[tuple[str, list[str]]] = [
            ("scores on held-out rows", [str(score) for score in self.scores]),
            ("the fit itself, on rows that it kept back", [str(self.held_out)] if self.held_out else []),
            ("agreement of independent fits", [str(found) for found in self.agreement]),
            ("controls", [str(control) for control in self.controls]),
            ("assumptions", [str(verdict) for verdict in self.verdicts]),
            ("what partners share", [f"{self.block}; {self.block.rest}."] if self.block else []),
            ("leakage", [leakage_sentence(self.leakage)] if self.leakage else []),
            ("noise", [f"{self.band}."] if self.band else []),
            ("against the truth", [str(score) for score in self.recovery]),
            ("the estimator warns", list(self.warned)),
            ("claim", [self.claim]),
            ("not shown", list(self.not_shown)),
        ]
        lines = [
            f"Audit of {self.estimator}, {self.n_samples:,} rows, {self.n_held_out:,} held out, {self.n_fits} fits"
        ]
        for title, entries in parts:
            lines += [title, *(f"  {entry}" for entry in entries)] if entries else []
        return "\n".join(lines)

    def __repr__(self) -> str:
        name = "no theorem" if self.theorem is None else self.theorem.name
        return f"<Audit of {self.estimator}: {name}, {'a claim' if self.claims else 'nothing is claimed'}>"

    def _repr_html_(self) -> str:
        from pindown.auditing.result import summary

        return summary(self)  # in a notebook

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(str(self))  # its brackets are intervals, not markup

    def to_dict(self) -> dict[str, Any]:
        """Return all but the pictures as dictionaries, lists, text and numbers; None for what is no number."""
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
        return save_as(path, self.to_dict, self._page)

    def _page(self) -> str:
        from pindown.auditing.audit_page import render

        return render(self)


def save_as(path: str | Path, numbers: Callable[[], dict[str, Any]], page: Callable[[], str]) -> Path:
    """Write a page, or numbers, as the ending of a path says, whole or not at all."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".json"):
        raise ValueError(
            f"save: {path.name!r} must end in .html, for a page, or in .json, for the numbers, not in "
            f"{path.suffix or 'nothing'!r}."
        )
    check_writable(path)
    if path.suffix.lower() == ".json":
        write_whole(json.dumps(numbers(), indent=1, ensure_ascii=False, allow_nan=False), path)
    else:
        write_whole(page(), path)
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


def summary(audit: Audit) -> str:
    """Return the claim, and tables of scores, agreement and verdicts, as one element."""
    theorem = "no theorem" if audit.theorem is None else audit.theorem.name
    scores = [_score(score) for score in (*audit.scores, *audit.recovery)]
    if (own := audit.held_out) is not None:
        chance = "" if own.chance is None else printed(own.chance)
        scores.append((f"the fit itself, rows {own.rows}: {own.name}", printed(own.score), chance, ""))
    scores += [(f"{a.between}: {a.metric}", printed(a.worst), printed(a.chance), "") for a in audit.agreement]
    verdicts: list[tuple[str, str, str]] = [(verdict.outcome, verdict.name, verdict.why) for verdict in audit.verdicts]
    verdicts += [("passed" if c.passed else "failed", f"control: {c.name}", c.found) for c in audit.controls]
    return (
        f"<div><p><b>Audit of {escape(audit.estimator)}</b>, {escape(theorem)}, {audit.n_samples:,} rows, "
        f"{audit.n_held_out:,} held out, {audit.n_fits} fits</p>"
        f"<blockquote>{escape(audit.claim)}</blockquote>"
        f"{_table(('on held-out rows', 'measured', 'chance', 'p'), scores)}"
        f"{_table(('outcome', 'assumption', 'why'), verdicts)}</div>"
    )


def _score(score: Score) -> tuple[str, str, str, str]:
    p = "" if score.p_value is None else f"{score.p_value:.2g}"
    return score.name, printed(score.value), printed(score.chance), p


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
