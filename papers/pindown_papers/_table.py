"""The paper's table next to ours, made from records: data for whoever prints it, and Markdown for the docs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from pindown_papers._experiment import Experiment, Profile, Published, Record


@dataclass(frozen=True)
class Line:
    """A row: its setting, and a pair of cells (paper, ours) per score; a score we add has no paper."""

    number: int
    setting: tuple[str, ...]
    paper: tuple[str, ...]
    ours: tuple[str, ...]
    further: tuple[str, ...]

    @property
    def paired(self) -> tuple[str, ...]:
        """The cells of the scores in one row, paper and ours in turn."""
        return tuple(cell for pair in zip(self.paper, self.ours, strict=True) for cell in pair)


@dataclass(frozen=True)
class Table:
    """A comparison, ready to be printed."""

    title: str
    headings: tuple[str, ...]
    scores: tuple[str, ...]
    further: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def markdown(self) -> str:
        """Return the table for a page: a column per cell, the notes below."""
        pairs = [f"{score}, {whose}" for score in self.scores for whose in ("paper", "ours")]
        header = ["row", *self.headings, *pairs, *self.further]
        body = [[str(line.number), *line.setting, *line.paired, *line.further] for line in self.lines]
        rows = [header, ["---"] * len(header), *body]
        escaped = ([cell.replace("|", "\\|") for cell in cells] for cells in rows)  # as |C| has them
        text = "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)
        return f"**{self.title}**\n\n{text}\n\n" + "\n".join(f"- {note}" for note in self.notes) + "\n"


def compare(experiment: Experiment, profile: Profile, records: Sequence[Record]) -> Table:
    """Put the mean over seeds, ± standard deviation, next to the paper's numbers.

    Parameters
    ----------
    experiment, profile
        What was run, and how large. Records of other experiments or settings are left out.
    records
        The runs; rows without one are left out, and a note names them.
    """
    ours = {(record.row, record.seed): record for record in records if record.answers(experiment, profile)}
    lines = []
    for row in experiment.rows:
        runs = [record for (number, _), record in ours.items() if number == row.number]
        if runs:
            lines.append(
                Line(
                    number=row.number,
                    setting=row.setting,
                    paper=tuple(str(published) for published in row.published),
                    ours=tuple(_summary(runs, score, experiment.every_seed) for score in experiment.scores),
                    further=tuple(_summary(runs, score, experiment.every_seed) for score in experiment.further),
                )
            )
    return Table(
        title=f"{experiment.source}: {experiment.title}",
        headings=experiment.headings,
        scores=experiment.scores,
        further=experiment.further,
        lines=tuple(lines),
        notes=(*_provenance(profile, list(ours.values())), *_left_out(experiment, lines), *experiment.notes),
    )


def _summary(runs: Sequence[Record], score: str, every_seed: bool = False) -> str:
    ordered = sorted(runs, key=lambda run: run.seed)
    percent = [100 * run.scores[score] for run in ordered if score in run.scores]
    if not percent:
        return "–"
    mean = str(Published(fmean(percent), stdev(percent) if len(percent) > 1 else None))
    apart = every_seed and max(percent) > min(percent)
    return f"{mean} ({', '.join(f'{each:.1f}' for each in percent)})" if apart else mean


def _provenance(profile: Profile, runs: Sequence[Record]) -> list[str]:
    """Say how the numbers came about."""
    if not runs:
        return ["No runs yet."]
    settings = ", ".join(f"{key} {_short(value)}" for key, value in profile.settings.items())
    seeds = sorted({run.seed for run in runs})
    places = sorted({run.device for run in runs})
    versions = sorted({", ".join(f"{name} {number}" for name, number in run.versions.items()) for run in runs})
    return [
        f"Ours: profile {profile.name}, {_numbered('seed', seeds)}; {settings}.",
        f"{len(runs)} runs, {sum(run.seconds for run in runs):.0f} s on {' and '.join(places)}; {'; '.join(versions)}.",
    ]


def _left_out(experiment: Experiment, lines: Sequence[Line]) -> list[str]:
    """Name the rows that were not run, so that a table which holds some of them does not pass for the whole."""
    missing = sorted({row.number for row in experiment.rows} - {line.number for line in lines})
    return [f"Not run: {_numbered('row', missing)}."] if lines and missing else []


def _numbered(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _short(value: object) -> str:
    if isinstance(value, list):
        return "×".join(map(str, value))
    return "learned" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
