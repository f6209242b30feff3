"""The commands `pindown demo`, `pindown list` and `pindown reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import pindown_papers
from pindown._names import nearest
from pindown.cli.messages import command_line, console, fail, grid, interruptible, user_errors
from pindown.cli.options import with_options

if TYPE_CHECKING:
    from rich.console import Console

    from pindown_papers import Experiment, Record, Table

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command("demo", epilog="Example: pindown demo --output demo.html")
def run_demo(
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("pindown-demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulations, the samples and the fits.")] = 0,
) -> None:
    """Recover the latents of eight simulations, and write a page that shows them; one to two minutes."""
    from pindown.auditing.page import check_writable, shown

    with user_errors(OSError), interruptible("no page was written."):
        check_writable(output)  # before the seconds of importing torch
        from pindown_papers import demo

        result = demo.run(output, random_state=seed)
    out = console()
    for row in result.table:
        scores = [f"{name} {shown(value, 3)}" for name, value in (("chance", row.chance), ("linear fit", row.linear))]
        out.print(f"{row.name:20} {row.metric} {shown(row.recovered, 3)} ({', '.join(scores)})", markup=False)
    for claim in result.claims:
        out.print(claim, markup=False)
    out.print(f"\nThe page: {output}", markup=False, soft_wrap=True)


@app.command("list", epilog="Example: pindown list")
def list_experiments() -> None:
    """List the experiments that `reproduce` can run."""
    console().print(grid([(experiment.name, experiment.title) for experiment in pindown_papers.EXPERIMENTS]))


@dataclass(frozen=True)
class RunOptions:
    """What is run."""

    full: Annotated[bool, typer.Option("--full", help="The paper's dimensions and batch size; needs a GPU.")] = False
    rows: Annotated[str | None, typer.Option(help="Rows to run, such as 1,3-5. All by default.")] = None
    seeds: Annotated[str | None, typer.Option(help="Seeds to run, such as 0,1 or 0-4.")] = None
    layers: Annotated[int | None, typer.Option(min=1, help="Layers of the mixing.")] = None


@app.command("reproduce", epilog="Example: pindown reproduce zimmermann2021/table1 --rows 1-3")
@with_options
def reproduce_experiment(
    name: Annotated[str, typer.Argument(help="An experiment, as `pindown list` names it.")],
    runs: RunOptions,
    output: Annotated[Path | None, typer.Option(help="File of JSON lines. Finished runs in it are kept.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda. By default a GPU if there is one.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the table to this Markdown file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw it to this SVG file.")] = None,
) -> None:
    """Run a paper's table again, and print its numbers next to ours."""
    from pindown.auditing.page import check_writable
    from pindown.training import best_device

    experiment = _experiment(name)
    profile = experiment.full if runs.full else experiment.quick
    profile = profile if runs.layers is None else replace(profile, n_layers=runs.layers)
    wanted_rows = _wanted_rows(experiment, runs.rows)
    wanted_seeds = list(profile.seeds) if runs.seeds is None else _numbers("--seeds", runs.seeds)
    default = Path("results") / f"{experiment.name.replace('/', '-')}-{profile.name}.jsonl"
    results = pindown_papers.Results(default if output is None else output)
    out = console()
    with user_errors(OSError, ValueError):  # before anything is trained
        if device is not None:
            best_device(device)
        if figure is not None and experiment.axes is None:
            drawn = [other.name for other in pindown_papers.EXPERIMENTS if other.axes is not None]
            raise ValueError(f"{name} is a table, not a figure. Leave --figure out, or take {' or '.join(drawn)}.")
        for page in (markdown, figure):
            if page is not None:
                check_writable(page)
        kept = results.open()
    to_do = pindown_papers.pending(experiment, profile, kept, rows=wanted_rows, seeds=wanted_seeds)
    n_wanted = len(wanted_rows) * len(wanted_seeds)
    out.print(f"{name}, {profile.name}: {len(to_do)} of {n_wanted} runs to do, kept in {results.path}", soft_wrap=True)
    how_to_resume = f"finished runs are kept in {results.path}; to resume: {command_line()}"
    with (
        interruptible(how_to_resume),
        user_errors(ImportError, FileNotFoundError),
    ):  # missing extras or files of a table
        for count, record in enumerate(pindown_papers.reproduce(experiment, profile, to_do, device=device), start=1):
            with user_errors(OSError):
                results.append(record)
            out.print(f"[{count}/{len(to_do)}] {_in_a_line(record)}", markup=False, soft_wrap=True)
    records = [record for record in results.read() if record.row in wanted_rows and record.seed in wanted_seeds]
    table = pindown_papers.compare(experiment, profile, records)
    if markdown is not None:
        with user_errors(OSError):
            markdown.write_text(f"# {name}, {profile.name}\n\n{table.markdown()}", encoding="utf-8")
    if figure is not None:
        with user_errors(OSError):
            figure.write_text(pindown_papers.draw(experiment, profile, records), encoding="utf-8")
    _print_comparison(out, table)


def _experiment(name: str) -> Experiment:
    by_name = {experiment.name: experiment for experiment in pindown_papers.EXPERIMENTS}
    if name not in by_name:
        fail(f"there is no experiment {name!r}: {nearest(name, list(by_name))}")
    return by_name[name]


def _wanted_rows(experiment: Experiment, text: str | None) -> list[int]:
    numbers = [row.number for row in experiment.rows]
    if text is None:
        return numbers
    wanted = _numbers("--rows", text)
    for number in wanted:
        if number not in numbers:
            nearest = min(numbers, key=lambda known: abs(known - number))
            fail(f"there is no row {number} in {experiment.name}: did you mean {nearest}?")
    return wanted


def _numbers(option: str, text: str) -> list[int]:
    """Parse 1,3-5 as 1, 3, 4, 5; each number once, in the order given."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 100_000):
            fail(f"{option} must be numbers and ranges below 100000, such as 1,3-5, got {text!r}.")
        found |= dict.fromkeys(range(int(first), int(last) + 1))
    return list(found)


def _in_a_line(record: Record) -> str:
    scores = ", ".join(f"{name} {100 * value:.2f}" for name, value in record.scores.items())
    return f"row {record.row}, seed {record.seed}: {scores} ({record.seconds:.0f} s)"


def _print_comparison(out: Console, table: Table) -> None:
    """Print each setting on a line, then the paper's numbers and ours below it."""
    from rich.text import Text

    names = (*table.scores, *table.further)
    unknown = ("–",) * len(table.scores)
    papers = [(*line.paper, *("" for _ in table.further)) for line in table.lines]
    ours = [(*line.ours, *line.further) for line in table.lines]
    widths = [max(map(len, column)) for column in zip(names, *papers, *ours, strict=True)]

    def aligned(label: str, cells: Sequence[str]) -> Text:
        return Text(f"   {label:5}  " + "  ".join(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)))

    out.print(Text(f"\n{table.title}", "bold"))
    out.print(aligned("", names), style="cyan", soft_wrap=True)
    for line, above, below in zip(table.lines, papers, ours, strict=True):
        *setting, hold = line.setting
        out.print(Text(f"{line.number:2} {' · '.join(setting)}{'  ✓' if hold == 'yes' else ''}"), soft_wrap=True)
        if line.paper != unknown:
            out.print(aligned("paper", above), soft_wrap=True)
        out.print(aligned("ours", below), style="bold", soft_wrap=True)
    out.print(Text("✓: a theorem's assumptions hold."))
    out.print(grid([("·", note) for note in table.notes]))
