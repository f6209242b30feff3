"""Tables that are made when the site is built, from the theorems and from the committed records."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pindown_papers
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pindown import theory
from pindown.theory import Theorem

ROOT = Path(__file__).resolve().parents[2]
DOCS, BENCHMARKS = ROOT / "docs", ROOT / "benchmarks"

ESTIMATORS = ("contrast", "classify", "forget", "dictionary", "sparse")
"""First parts of the names of theorems that an estimator carries."""


def plain(text: str) -> str:
    r"""Return text in which no character is Markdown.

    >>> print(plain("|I_k| ≤ 2*d"))
    \|I\_k\| ≤ 2\*d
    """
    return re.sub(r"([\\`*_{}\[\]<>|$#])", r"\\\1", text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a Markdown table; all but the first ``left`` columns are numbers, and stand to the right."""
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def theorems(family: str | None) -> list[Theorem]:
    """Return the theorems of an estimator, or with None those that none of ours carries."""
    of = {theorem.name: theorem.name.partition("-")[0] for theorem in theory.THEOREMS}
    return [t for t in theory.THEOREMS if of[t.name] == family or (family is None and of[t.name] not in ESTIMATORS)]


def statement(theorem: Theorem) -> str:
    """Return a theorem in full: the sentence one may write, and all that it rests on."""
    free = theorem.indeterminacy
    return "\n\n".join(
        [
            f"### {theorem.name}",
            f"> {plain(theorem.claim())}",
            f"Given: {plain(theorem.side_information)}.",
            f"Promised: {plain(theorem.promises)}",
            f"What stays free: {plain(free.name)}, that is {plain(free.statement)}.",
            f"**Not promised**: {plain('; '.join(theorem.not_promised))}.",
            table(
                ("assumption", "about", "says"),
                ((plain(a.name), a.about, plain(a.statement)) for a in theorem.assumes),
                left=3,
            ),
        ]
    )


def freedoms() -> str:
    """Return what may stay free, from nothing to nearly all, with the elementary moves each allows."""
    rows = (
        (
            plain(each.name),
            plain(each.statement),
            ", ".join(move.value for move in theory.Freedom if move in each.allows),
        )
        for each in theory.INDETERMINACIES
    )
    return table(("recovered up to", "that is", "nobody can tell"), rows, left=3)


def comparison(stem: str, score: str, chance: str | None = None, before: str | None = None) -> str:
    """Return a paper's table in short: for one score theirs, ours, and what knowing nothing would give.

    ``before`` is a score of the observations themselves; ``chance`` is a score of the table, or a number. Either
    may be left out.
    """
    experiment = next(each for each in pindown_papers.EXPERIMENTS if stem.startswith(each.name.replace("/", "-") + "-"))
    path = DOCS / "results" / f"{stem}.jsonl"
    if not path.exists():
        return f"*Not run yet: `pindown reproduce {experiment.name}`.*"
    records = pindown_papers.Results(path).read()
    profile = experiment.full if records[0].profile == "full" else experiment.quick
    if "n_layers" in records[0].settings:
        profile = replace(profile, n_layers=records[0].settings["n_layers"])
    made = pindown_papers.compare(experiment, profile, records)
    header = [*made.headings, "theirs", "ours", *(["before"] if before else []), *(["chance"] if chance else [])]
    rows = []
    for line in made.lines:
        ours = dict(zip((*made.scores, *made.further), (*line.ours, *line.further), strict=True))
        theirs = dict(zip(made.scores, line.paper, strict=True))
        beside = [*([ours[before]] if before else []), *([ours.get(chance, chance)] if chance else [])]
        rows.append([*map(plain, line.setting), theirs.get(score, "–"), ours[score], *beside])
    caption = f"*{plain(made.title)}: {plain(score)}. [All scores, settings and notes](/results/{stem}.md)*"
    return f"{table(header, rows, left=len(made.headings))}\n\n{caption}"


def measurements(stem: str, labels: dict[str, str]) -> str:
    """Return a benchmark's record as a table: the keys wanted, under the labels given."""
    record = json.loads((BENCHMARKS / "results" / f"{stem}.json").read_text("utf-8"))
    if unknown := [key for key in labels if not any(key in row for row in record["rows"])]:
        raise KeyError(f"{stem}.json has no {', '.join(unknown)}: there are {', '.join(record['rows'][0])}")
    rows = ([number(row.get(key)) for key in labels] for row in record["rows"])
    where = record["where"]
    script = re.sub(r"_[cg]pu$", ".py", stem)
    assert (BENCHMARKS / script).exists(), script
    place = f"*{where['device']}, torch {where['torch']}, Python {where['python']}; by `python benchmarks/{script}`.*"
    return f"{table(list(labels.values()), rows)}\n\n{place}"


def number(value: Any) -> str:
    """Return a number as a reader wants it: three digits that count, thousands apart.

    >>> number(3.14159), number(4096), number(1193.67), number(0.00123), number(None)
    ('3.14', '4,096', '1,194', '0.00123', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"`{value}`" if " --" in value else plain(value)  # an option, not a dash


class _Written(SphinxDirective, ABC):
    """A directive that stands for Markdown; a final class writes it."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        try:
            text = self._markdown()
        except (OSError, KeyError, StopIteration) as error:
            raise self.error(f"{self.name}: {type(error).__name__}: {error}") from error
        return self.parse_text_to_nodes(text, allow_section_headings=True)

    @abstractmethod
    def _markdown(self) -> str:
        """Return the Markdown."""


class Theorems(_Written):
    """The theorems whose names begin with the argument, or, without one, those of no estimator."""

    def _markdown(self) -> str:
        return "\n\n".join(map(statement, theorems(self.arguments[0] if self.arguments else None)))


class Freedoms(_Written):
    """What may stay free."""

    def _markdown(self) -> str:
        return freedoms()


class PaperTable(_Written):
    """The record named by the argument, in short."""

    option_spec: ClassVar = {name: directives.unchanged_required for name in ("score", "before", "chance")}

    def _markdown(self) -> str:
        self.env.note_dependency(str(DOCS / "results" / f"{self.arguments[0]}.jsonl"))
        return comparison(
            self.arguments[0], self.options["score"], self.options.get("chance"), self.options.get("before")
        )


class Benchmark(_Written):
    """The record named by the argument; each line of the body is a key and its label."""

    has_content = True

    def _markdown(self) -> str:
        labels = dict(re.split(r":\s*", line, maxsplit=1) for line in self.content if line.strip())
        return measurements(self.arguments[0], labels)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("theorems", Theorems)
    app.add_directive("freedoms", Freedoms)
    app.add_directive("paper-table", PaperTable)
    app.add_directive("benchmark", Benchmark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
