"""The command line: parse, call, print. The science is elsewhere, and imported when a command needs it."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import pindown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from pindown.papers import Experiment, Record, Table
    from pindown.theory import Diversity, Theorem

app = typer.Typer(
    name="pindown",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pindown {pindown.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Pin down the hidden variables behind data, and say what may be claimed about them."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no κ gets a question mark, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


@app.command("theory")
def show_theory(
    name: Annotated[str | None, typer.Argument(help="A theorem, to see it in full.", show_default=False)] = None,
    d: Annotated[
        int | None, typer.Option("--dimensions", "-d", min=1, help="Count the diversity needed at d dimensions.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Second dimension of some counts: the theorem says which.")
    ] = None,
) -> None:
    """List the theorems: what each is given, what it promises, what stays free."""
    from rich.padding import Padding
    from rich.text import Text

    from pindown.theory import THEOREMS

    if k is not None and d is None:
        _refuse("-k counts nothing without -d: give both.")
    names = [theorem.name for theorem in THEOREMS]
    if name is not None and name not in names:
        _refuse(f"there is no theorem {name!r}: {_nearest(name, names)}")
    console = _console()
    for theorem in THEOREMS:
        if name in (None, theorem.name):
            console.print(Text.assemble((theorem.name, "bold"), "  ", (theorem.source, "dim")))
            facts = _facts(theorem, d, k) + (_fine_print(theorem) if name else [])
            console.print(Padding(_grid(facts), (0, 0, 1, 2), expand=False))
    console.print(
        Text(next(theorem.claim() for theorem in THEOREMS if theorem.name == name))
        if name
        else Text("pindown theory NAME shows one with its assumptions; -d 5 counts what it needs.", "dim")
    )


@app.command("list")
def list_experiments() -> None:
    """List the experiments that `reproduce` can run."""
    from pindown.papers import EXPERIMENTS

    console = _console()
    console.print(_grid([(experiment.name, experiment.title) for experiment in EXPERIMENTS]))


@app.command("reproduce")
def reproduce_experiment(
    name: Annotated[str, typer.Argument(help="An experiment, as `pindown list` names it.")],
    full: Annotated[bool, typer.Option("--full", help="The paper's dimensions and batch; wants a GPU.")] = False,
    rows: Annotated[str | None, typer.Option(help="Rows to run, such as 1,3-5. All by default.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds to run, such as 0,1 or 0-4.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Layers of the mixing.")] = None,
    output: Annotated[Path | None, typer.Option(help="File of JSON lines. Finished runs in it are kept.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda. A GPU is taken if there is one.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this page, too.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw it to this SVG file, too.")] = None,
) -> None:
    """Run a paper's table again, and print its numbers beside ours."""
    from pindown import papers
    from pindown.report.page import check_writable

    experiment = _experiment(name)
    profile = experiment.full if full else experiment.quick
    profile = profile if layers is None else replace(profile, n_layers=layers)
    wanted_rows = _wanted_rows(experiment, rows)
    wanted_seeds = list(profile.seeds) if seeds is None else _numbers("--seeds", seeds)
    default = Path("results") / f"{experiment.name.replace('/', '-')}-{profile.name}.jsonl"
    results = papers.Results(default if output is None else output)
    console = _console()
    with _refusing(OSError, ValueError):  # before anything is trained
        if device is not None:
            _check_device(device)
        if figure is not None and experiment.axes is None:
            drawn = [other.name for other in papers.EXPERIMENTS if other.axes is not None]
            raise ValueError(f"{name} is a table, not a figure. Leave --figure out, or take {' or '.join(drawn)}.")
        for page in (markdown, figure):
            if page is not None:
                check_writable(page)
        kept = results.open()
    runs = papers.pending(experiment, profile, kept, rows=wanted_rows, seeds=wanted_seeds)
    n_wanted = len(wanted_rows) * len(wanted_seeds)
    console.print(
        f"{name}, {profile.name}: {len(runs)} of {n_wanted} runs to do, kept in {results.path}", soft_wrap=True
    )
    with _stopping(f"finished runs are kept in {results.path}; to go on: {shlex.join(['pindown', *sys.argv[1:]])}"):
        for count, record in enumerate(papers.reproduce(experiment, profile, runs, device=device), start=1):
            with _refusing(OSError):
                results.append(record)
            console.print(f"[{count}/{len(runs)}] {_in_a_line(record)}", markup=False, soft_wrap=True)
    records = [record for record in results.read() if record.row in wanted_rows and record.seed in wanted_seeds]
    table = papers.compare(experiment, profile, records)
    if markdown is not None:
        with _refusing(OSError):
            markdown.write_text(f"# {name}, {profile.name}\n\n{table.markdown()}", encoding="utf-8")
    if figure is not None:
        with _refusing(OSError):
            figure.write_text(papers.draw(experiment, profile, records), encoding="utf-8")
    _print_comparison(console, table)


@app.command("demo")
def run_demo(
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("pindown-demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Of the worlds, the samples and the fits.")] = 0,
) -> None:
    """Recover seven worlds whose truth is known, and write a page that shows it; one to two minutes."""
    from pindown import demo
    from pindown.report.page import shown

    with _refusing(OSError), _stopping("no page was written."):
        result = demo.run(output, random_state=seed)
    console = _console()
    table = _plain_table("world", "score", "linear fit", "recovered", "chance")
    for row in result.table:
        table.add_row(row.name, row.metric, *(shown(score, 3) for score in (row.linear, row.recovered, row.chance)))
    console.print(table)
    for claim in result.claims:
        console.print(claim, markup=False)
    console.print(f"\nThe page: {result.output}", markup=False, soft_wrap=True)


def _experiment(name: str) -> Experiment:
    from pindown import papers

    by_name = {experiment.name: experiment for experiment in papers.EXPERIMENTS}
    if name not in by_name:
        _refuse(f"there is no experiment {name!r}: {_nearest(name, list(by_name))}")
    return by_name[name]


def _wanted_rows(experiment: Experiment, text: str | None) -> list[int]:
    numbers = [row.number for row in experiment.rows]
    if text is None:
        return numbers
    wanted = _numbers("--rows", text)
    for number in wanted:
        if number not in numbers:
            nearest = min(numbers, key=lambda known: abs(known - number))
            _refuse(f"there is no row {number} in {experiment.name}: did you mean {nearest}?")
    return wanted


def _numbers(option: str, text: str) -> list[int]:
    """Read 1,3-5 as 1, 3, 4, 5; each number once, in the order given."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 100_000):
            _refuse(f"{option} must be numbers and ranges below 100000, such as 1,3-5, got {text!r}.")
        found |= dict.fromkeys(range(int(first), int(last) + 1))
    return list(found)


def _nearest(name: str, names: Sequence[str]) -> str:
    """Return a hint: the name that was probably meant, or all there are."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}."


def _check_device(device: str) -> None:
    from pindown.training import best_device

    best_device(device)


def _facts(theorem: Theorem, d: int | None, k: int | None) -> list[tuple[str, str]]:
    facts = [
        ("given", theorem.side_information),
        ("promise", theorem.promises),
        ("up to", theorem.indeterminacy.name),
    ]
    return facts if theorem.diversity is None else [*facts, ("needs", _needs(theorem.diversity, d, k))]


def _needs(diversity: Diversity, d: int | None, k: int | None) -> str:
    formula = f"{diversity.formula} {diversity.unit}"
    if diversity.k_means:
        formula += f"; k is {diversity.k_means}" if "k" in diversity.formula else f"; -k is {diversity.k_means}"
    if d is None:
        return formula
    if not diversity.k_means:
        return f"{formula}: {diversity.needed(d)} at d = {d}"
    # Without a k, the first few show how the count grows.
    counts = []
    for value in (1, 2, 3) if k is None else (k,):
        try:
            counts.append(f"{diversity.needed(d, value)} at k = {value}")
        except ValueError:
            counts.append(f"none at k = {value}, which is more than d")
    return f"{formula}: with d = {d}, {', '.join(counts)}"


def _fine_print(theorem: Theorem) -> list[tuple[str, str]]:
    assumed = [("assumes", f"{a.name} ({a.about}): {a.statement}") for a in theorem.assumes]
    return [
        ("that is", theorem.indeterminacy.statement),
        *((label if i == 0 else "", text) for i, (label, text) in enumerate(assumed)),
        *(("not promised" if i == 0 else "", text) for i, text in enumerate(theorem.not_promised)),
    ]


def _in_a_line(record: Record) -> str:
    scores = ", ".join(f"{name} {100 * value:.2f}" for name, value in record.scores.items())
    return f"row {record.row}, seed {record.seed}: {scores} ({record.seconds:.0f} s)"


def _print_comparison(console: Console, table: Table) -> None:
    """Print each world in a line of its own, and below it the paper's numbers above ours."""
    from rich.text import Text

    names = (*table.scores, *table.beside)
    unknown = ("–",) * len(table.scores)
    papers = [(*line.paper, *("" for _ in table.beside)) for line in table.lines]
    ours = [(*line.ours, *line.beside) for line in table.lines]
    widths = [max(map(len, column)) for column in zip(names, *papers, *ours, strict=True)]

    def aligned(label: str, cells: Sequence[str]) -> Text:
        return Text(f"   {label:5}  " + "  ".join(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)))

    console.print(Text(f"\n{table.title}", "bold"))
    console.print(aligned("", names), style="cyan", soft_wrap=True)
    for line, above, below in zip(table.lines, papers, ours, strict=True):
        *world, hold = line.setting
        console.print(Text(f"{line.number:2} {' · '.join(world)}{'  ✓' if hold == 'yes' else ''}"), soft_wrap=True)
        if line.paper != unknown:
            console.print(aligned("paper", above), soft_wrap=True)
        console.print(aligned("ours", below), style="bold", soft_wrap=True)
    console.print(Text("✓: a theorem's assumptions hold."))
    console.print(_grid([("·", note) for note in table.notes]))


def _plain_table(*headings: str) -> RichTable:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i > 1 else "left", no_wrap=i != 1)
    return table


def _grid(pairs: Sequence[tuple[str, str]]) -> RichTable:
    """Return labels and texts in two columns, the texts wrapped in theirs."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column()
    for label, text in pairs:
        grid.add_row(label, Text(text))  # Text, because brackets in a formula are no markup
    return grid


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


@contextmanager
def _refusing(*errors: type[Exception]) -> Iterator[None]:
    """Turn what the user can mend into a sentence; anything else is ours, and keeps its traceback."""
    try:
        yield
    except errors as error:
        _refuse(str(error))


@contextmanager
def _stopping(state: str) -> Iterator[None]:
    """Say how things stand when a run ends before its end: by Ctrl-C, or by itself."""
    try:
        yield
    except KeyboardInterrupt:
        _complain(f"stopped; {state}")
        raise typer.Exit(130) from None
    except RuntimeError as error:
        from pindown.training import TrainingDivergedError

        if not isinstance(error, TrainingDivergedError):
            raise
        _complain(f"{error} Meanwhile, {state}")
        raise typer.Exit(1) from None


def _complain(message: str) -> None:
    typer.echo(f"pindown: {message}", err=True)


def _refuse(message: str) -> NoReturn:
    _complain(message)
    raise typer.Exit(2)
