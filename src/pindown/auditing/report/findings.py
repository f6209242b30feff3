"""What a method found of itself, as a result that prints and saves itself, and as a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pindown.auditing.evidence.findings import Findings, Section
from pindown.auditing.report.page import fill
from pindown.auditing.report.result import plain, save_as


@dataclass(frozen=True, repr=False)
class MethodAudit:
    """An audit of a method that divides, refits and measures itself. Prints as text; `save` writes a page, or JSON.

    Attributes
    ----------
    findings : Findings
        What was found: its sections, controls, claim and what stands against it.
    """

    findings: Findings

    @property
    def claims(self) -> bool:
        """Whether anything is claimed."""
        return self.findings.claims

    @property
    def claim(self) -> str:
        """The sentence that may be quoted, or that nothing is claimed, and why."""
        return self.findings.said

    def __str__(self) -> str:
        return str(self.findings)

    def __repr__(self) -> str:
        return f"<Audit of {self.findings.estimator}: {'a claim' if self.claims else 'nothing is claimed'}>"

    def _repr_html_(self) -> str:
        from pindown.auditing.report.summary import summary_of_findings

        return summary_of_findings(self.findings)  # in a notebook

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(str(self))  # its brackets are no markup

    def to_dict(self) -> dict[str, Any]:
        """Return all as dictionaries, lists, text and numbers; None for what is no number."""
        return {"claims": self.claims} | plain(self.findings)

    def save(self, path: str | Path) -> Path:
        """Write a page (``.html``) or the numbers (``.json``), whole or not at all; return the path."""
        return save_as(path, self.to_dict, self._page)

    def _page(self) -> str:
        from pindown.auditing.report._audit_page import AuditPage, Part, controls_part

        found = self.findings
        page = AuditPage(
            title="This may be claimed" if self.claims else "Nothing is claimed",
            kicker=f"pindown audit · {found.estimator} · {found.n_samples:,} rows",
            lead=found.promise,
            footer=f"{found.n_fits} fits beside the one that was audited; all was measured on {found.n_held_out:,} "
            "rows that none of them has seen. This page is one file and asks nothing of the network.",
            claims=self.claims,
            claim=found.claim,
            reasons=found.reasons,
            warned=(),
            parts=(
                *map(_part, found.sections),
                controls_part(found.controls),
                Part("What was not shown", "An audit cannot show these.", points=found.not_shown),
            ),
        )
        return fill("audit.html.j2", page=page)


def _part(section: Section) -> Any:
    from pindown.auditing.report._audit_page import Part, score_ruler
    from pindown.auditing.report.drawings import sheet

    return Part(
        section.title,
        section.text,
        rulers=tuple(map(score_ruler, section.scores)),
        drawings=tuple(sheet(strip.picture, strip.caption) for strip in section.strips),
        points=section.points,
    )
