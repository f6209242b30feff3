"""`pindown demo`: recover the latents of eight simulations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pindown.cli._answers import console, refusing, stopping

if TYPE_CHECKING:
    from rich.table import Table


def run_demo(
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("pindown-demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulations, the samples and the fits.")] = 0,
) -> None:
    """Recover the latents of eight simulations, and write a page that shows them; one to two minutes."""
    from pindown import demo
    from pindown.auditing.report.page import shown

    with refusing(OSError), stopping("no page was written."):
        result = demo.run(output, random_state=seed)
    out = console()
    table = _plain_table("simulation", "score", "linear fit", "recovered", "chance")
    for row in result.table:
        table.add_row(row.name, row.metric, *(shown(score, 3) for score in (row.linear, row.recovered, row.chance)))
    out.print(table)
    for claim in result.claims:
        out.print(claim, markup=False)
    out.print(f"\nThe page: {result.output}", markup=False, soft_wrap=True)


def _plain_table(*headings: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i > 1 else "left", no_wrap=i != 1)
    return table
