"""What is being done, while it is done: a bar for work in stages that each take a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stages(title: str, total: int, *, show: bool) -> Iterator[Callable[[str], None]]:
    """Yield ``begin(what)``: it says which stage comes now, if there is a terminal to say it on.

    Examples
    --------
    >>> with stages("Audit", 2, show=False) as begin:
    ...     begin("fit with another seed")
    ...     begin("what leaks")
    """
    if not (show and sys.stderr.isatty()):
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn(title),
        BarColumn(),
        TextColumn("{task.fields[number]}/{task.total}  {task.fields[what]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task, number = progress.add_task(title, total=total, number=0, what=""), 0

        def begin(what: str) -> None:
            nonlocal number
            number += 1
            progress.update(task, completed=number - 1, number=number, what=what)

        yield begin
