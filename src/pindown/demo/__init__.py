"""The demonstration: recover the latents of eight simulations, and show the result on one page."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pindown.auditing.report.page import Page, Row, Section, check_writable, save
from pindown.demo.recovery import Budget, recovered

__all__ = ["Budget", "Demo", "run"]


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


def run(output: Path, *, random_state: int = 0, verbose: bool = True, budget: Budget = Budget()) -> Demo:  # noqa: B008
    """Recover the latents of eight simulations, and write a page that shows them.

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
    demo.html ['R²', 'MCC', 'R²', 'R²', 'R² across the plane', 'invariance', 'MCC', 'MCC']
    """
    output = Path(output)
    check_writable(output)
    start = time.monotonic()
    from pindown.demo.sections import all_sections  # loads torch

    sections = all_sections(random_state, budget, verbose)
    seconds = time.monotonic() - start
    success = all(map(_as_promised, sections))
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


def _as_promised(section: Section) -> bool:
    """Return whether the latents were recovered exactly if all assumptions hold."""
    broken = any(condition.status == "broken" for condition in section.conditions)
    return recovered(section.score) != broken
