"""An audit in a few lines of HTML, for notebooks: the claim, scores beside chance, verdicts; no script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from pindown._numbers import printed

if TYPE_CHECKING:
    from pindown.auditing.evidence.findings import Findings
    from pindown.auditing.evidence.scores import Score
    from pindown.auditing.report.result import Audit


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


def summary_of_findings(found: Findings) -> str:
    """Return the same of what a method found of itself."""
    parts = [
        _table((section.title, "measured", "chance", "p"), map(_score, section.scores)) for section in found.sections
    ]
    controls = [("passed" if c.passed else "failed", c.name, c.found) for c in found.controls]
    return (
        f"<div><p><b>Audit of {escape(found.estimator)}</b>, {found.n_samples:,} rows, {found.n_held_out:,} held out, "
        f"{found.n_fits} fits</p><blockquote>{escape(found.said)}</blockquote>{''.join(parts)}"
        f"{_table(('outcome', 'control', 'found'), controls)}</div>"
    )


def _score(score: Score) -> tuple[str, str, str, str]:
    p = "" if score.p_value is None else f"{score.p_value:.2g}"
    return score.name, printed(score.value), printed(score.chance), p


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
