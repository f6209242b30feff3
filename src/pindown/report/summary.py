"""An audit in a few lines of HTML, for notebooks: the claim, scores beside chance, verdicts; no script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from pindown._numbers import printed

if TYPE_CHECKING:
    from pindown.report.result import Audit


def summary(audit: Audit) -> str:
    """Return the claim, and tables of scores, agreement and verdicts, as one element."""
    theorem = "no theorem" if audit.theorem is None else audit.theorem.name
    scores = [
        (s.name, printed(s.value), printed(s.chance), "" if s.p_value is None else f"{s.p_value:.2g}")
        for s in (*audit.scores, *audit.recovery)
    ]
    if (own := audit.held_out) is not None:
        chance = "" if own.chance is None else printed(own.chance)
        scores.append((f"the fit itself, rows {own.rows}: {own.name}", printed(own.score), chance, ""))
    scores += [(f"{a.between}: {a.metric}", printed(a.worst), printed(a.chance), "") for a in audit.agreement]
    verdicts: list[tuple[str, str, str]] = [(verdict.outcome, verdict.name, verdict.why) for verdict in audit.verdicts]
    verdicts += [("passed" if c.passed else "failed", f"control: {c.name}", c.found) for c in audit.controls]
    return (
        f"<div><p><b>Audit of {escape(audit.estimator)}</b>, {escape(theorem)}, {audit.n_rows:,} rows, "
        f"{audit.n_held_out:,} held out, {audit.n_fits} fits</p>"
        f"<blockquote>{escape(audit.claim)}</blockquote>"
        f"{_table(('on held-out rows', 'measured', 'chance', 'p'), scores)}"
        f"{_table(('outcome', 'assumption', 'why'), verdicts)}</div>"
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
