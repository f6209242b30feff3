"""The demonstration: worlds whose truth is known are scrambled, recovered, and shown on one page.

Eight worlds, eight lessons. From pairs (`Contrast`): on the sphere latents come back up to a rotation; in a box with
Laplace partners even the axes come back; and when the partners are unrelated, nothing does. From labels (`Classify`):
clusters come back with their class vectors; and what the classes do not differ in is lost. From a nuisance (`Forget`):
it is gone from the codes, and the rest is kept. From nothing (`Dictionary`): a graph, and the latents it tells apart.
And from pictures: what a room looks like.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pindown.demo import classify, contrast, dictionary, forget, rooms
from pindown.demo.recovery import Budget, recovered
from pindown.report.page import Page, Row, Section, check_writable, save

__all__ = ["Budget", "Demo", "run"]


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demonstration found, and where the page is."""

    page: Page
    output: Path

    @property
    def table(self) -> tuple[Row, ...]:
        """One row per world: name, metric, linear, recovered, chance."""
        return tuple(section.score for section in self.page.sections)

    @property
    def claims(self) -> tuple[str, ...]:
        """One sentence per world: what may be claimed, under which theorem."""
        return tuple(section.claim for section in self.page.sections)


def run(output: Path, *, random_state: int = 0, verbose: bool = True, budget: Budget = Budget()) -> Demo:  # noqa: B008
    """Recover eight worlds whose truth is known, and write a page that shows it.

    Parameters
    ----------
    output : Path
        The HTML file to write; its folder is made if need be.
    random_state : int
        Seed of the worlds, the samples and the fits.
    verbose : bool
        Show the progress of the fits, if there is a terminal.
    budget : Budget
        Data and steps.

    Raises
    ------
    OSError
        If the file cannot be written; found out before any training.

    Examples
    --------
    >>> import tempfile
    >>> small = Budget(n_pairs=2_000, n_labelled=2_000, n_test=500, max_iter=25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     demo = run(Path(folder) / "demo.html", budget=small)
    ...     print(demo.output.name, [row.metric for row in demo.table])
    demo.html ['R²', 'MCC', 'R²', 'R²', 'R² across the plane', 'blindness', 'MCC', 'MCC']
    """
    output = Path(output)
    check_writable(output)
    start = time.monotonic()
    sections = tuple(
        section
        for part in (contrast, classify, forget, dictionary, rooms)
        for section in part.sections(random_state, budget, verbose)
    )
    seconds = time.monotonic() - start
    page = Page(
        title="Hidden variables, recovered"
        if all(map(_as_promised, sections))
        else "Not everything came out as the theorems promise",
        kicker=f"pindown demo · seed {random_state}",
        lead="Each world below hides a few variables behind a mixing. pindown sees only the mixed data, and at most "
        "which samples belong together: by pairs, by labels, or by a nuisance. The truth was kept aside to check the "
        "result: every score is from samples that were not used in the fit.",
        sections=sections,
        footer=f"{budget.n_pairs:,} pairs or {budget.n_labelled:,} labelled samples and {budget.max_iter:,} steps per "
        f"world, {budget.n_test:,} samples to score; {seconds:.0f} seconds for the eight worlds. This page is one file "
        "and asks nothing of the network.",
    )
    save(page, output)
    return Demo(page, output)


def _as_promised(section: Section) -> bool:
    """Whether a world was recovered if its assumptions hold, and not if one is broken."""
    broken = any(condition.status == "broken" for condition in section.conditions)
    return recovered(section.score) != broken
