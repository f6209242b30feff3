"""The demonstration: recover the latents of simulations, and show the result on one page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pindown.auditing.page import Page, Row, Section, check_writable, save

__all__ = ["Budget", "Demo", "run"]

RECOVERED = 0.9
"""Latents count as recovered if the fit closes this fraction of the gap between a linear fit and a perfect score."""

BATCH_SIZE = 512


@dataclass(frozen=True)
class Budget:
    """Number of samples and steps per simulation; the defaults take about ten seconds each on two cores."""

    n_pairs: int = 20_000
    n_labelled: int = 40_000
    n_test: int = 4_000
    max_iter: int = 1_000


@dataclass(frozen=True, eq=False)
class Demo:
    """The results of the demonstration, and the path of the page."""

    page: Page
    output: Path

    @property
    def table(self) -> tuple[Row, ...]:
        """One row per simulation: name, metric, linear, recovered, chance."""
        return tuple(section.score for section in self.page.sections)

    @property
    def claims(self) -> tuple[str, ...]:
        """One sentence per simulation: the supported claim and its theorem."""
        return tuple(section.claim for section in self.page.sections)


MakeSections = Callable[[Budget, dict[str, Any]], tuple[Section, ...]]
"""Fits simulations and returns the sections of a page, given a budget and parameters of the estimators."""


def run(
    output: Path,
    *,
    random_state: int = 0,
    verbose: bool = True,
    budget: Budget = Budget(),  # noqa: B008 (a frozen value)
    make_sections: MakeSections | None = None,
) -> Demo:
    """Recover the latents of simulations, and write a page that shows them.

    Parameters
    ----------
    output : Path
        The HTML file to write; missing folders are created.
    random_state : int
        Seed of the simulations, the samples and the fits.
    verbose : bool
        Show the progress of the fits on a terminal.
    budget : Budget
        Number of samples and steps.
    make_sections : callable, optional
        Returns the sections: by default of a sphere and a nuisance; `pindown_papers.demo.all_sections` has eight.

    Raises
    ------
    OSError
        If the file cannot be written; checked before any training.

    Examples
    --------
    >>> import tempfile
    >>> small = Budget(n_pairs=2_000, n_labelled=2_000, n_test=500, max_iter=25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     demo = run(Path(folder) / "demo.html", budget=small)
    ...     print(demo.output.name, [row.metric for row in demo.table])
    demo.html ['R²', 'invariance']
    """
    output = Path(output)
    check_writable(output)
    start = time.monotonic()
    if make_sections is None:
        from pindown.demo.sections import main_sections  # loads torch

        make_sections = main_sections
    options = {"batch_size": BATCH_SIZE, "max_iter": budget.max_iter, "verbose": verbose, "random_state": random_state}
    sections = make_sections(budget, options)
    seconds = time.monotonic() - start
    # Latents are to be recovered exactly if all assumptions hold.
    success = all(recovered(each.score) != any(c.status == "broken" for c in each.conditions) for each in sections)
    page = Page(
        title="Hidden variables, recovered" if success else "Not everything came out as the theorems promise",
        kicker=f"pindown demo · seed {random_state}",
        lead="Each simulation below hides a few variables behind a mixing. pindown sees only the mixed data, and at "
        "most a hint: pairs of samples, labels, or a nuisance. The true latents only serve to score the result, on "
        "samples that were not used in the fit.",
        sections=sections,
        footer=f"{budget.n_pairs:,} pairs or {budget.n_labelled:,} labelled samples and {budget.max_iter:,} steps per "
        f"simulation, {budget.n_test:,} test samples; {seconds:.0f} seconds in total. This page is one file and needs "
        "no network.",
    )
    save(page, output)
    return Demo(page, output)


def recovered(row: Row) -> bool:
    """Return whether the fit closes most of the gap between a linear fit and a perfect score."""
    return row.gap_closed >= RECOVERED
