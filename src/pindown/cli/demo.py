"""`pindown demo`: recover the latents of simulations."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pindown.cli.messages import console, interruptible, user_errors

if TYPE_CHECKING:
    from pindown.demo import MakeSections


def run_demo(
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("pindown-demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulations, the samples and the fits.")] = 0,
) -> None:
    """Recover the latents of simulations, and write a page that shows them.

    Two simulations take half a minute. With the extra ``papers`` there are eight, in one to two minutes.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from pindown.auditing.page import check_writable, shown

    with user_errors(OSError), interruptible("no page was written."):
        check_writable(output)  # before the seconds of importing torch
        from pindown import demo

        result = demo.run(output, random_state=seed, make_sections=_all_sections())
    out = console()
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for i, heading in enumerate(("simulation", "score", "linear fit", "recovered", "chance")):
        table.add_column(heading, justify="right" if i > 1 else "left", no_wrap=i != 1)
    for row in result.table:
        table.add_row(row.name, row.metric, *(shown(score, 3) for score in (row.linear, row.recovered, row.chance)))
    out.print(table)
    for claim in result.claims:
        out.print(claim, markup=False)
    out.print(f"\nThe page: {result.output}", markup=False, soft_wrap=True)


def _all_sections() -> MakeSections | None:
    """Return what makes the eight sections, if the package of the papers' tables is installed."""
    try:
        return importlib.import_module("pindown_papers.demo").all_sections
    except ModuleNotFoundError as error:
        if error.name != "pindown_papers":
            raise
        return None
