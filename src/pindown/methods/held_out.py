"""What a fit scores on rows that it has not seen, beside those that it has."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pindown._names import printed
from pindown.training.validation import StepPlan

OVERFITS = 0.25
"""Share of what a fit shows on its own rows, beyond chance, that it may lack on others before it is said."""

ENOUGH_SAMPLES, ENOUGH = 50, 0.05
"""Rows held out from which a difference says something; and what must be shown of the fit's own rows, beyond chance."""


@dataclass(frozen=True)
class HeldOut:
    """A score on rows held out, the same on rows learned from, and what chance would score.

    Attributes
    ----------
    name : str
        What is measured.
    score : float
        On rows held out: what to expect of new ones.
    trained : float or None
        On as many rows that were learned from; None where that was not measured.
    chance : float or None
        What it would be if nothing was learned, if that is known.
    n_samples : int
        Rows held out.
    n_folds : int
        1 if these were kept out of the fit. Otherwise rows were few: each was held out in turn, by fits to the other
        folds that say how many steps to take, and the fit itself has seen all.
    n_steps : int
        Steps that led to the moment that was kept.
    straight : bool
        Whether an encoder that could bend was left linear, since that does better on rows held out.
    way : Way or None
        The steps themselves, by which refits go that have too few rows to find them again (``Trainer.way``).

    Examples
    --------
    >>> print(HeldOut("share of rows whose class is recognised", 0.6, 1.0, 0.1, n_samples=180, n_folds=1, n_steps=125))
    share of rows whose class is recognised: 0.600 on 180 rows held out, 1.000 on rows learned from (chance 0.100)
    """

    name: str
    score: float
    trained: float | None
    chance: float | None
    n_samples: int
    n_folds: int
    n_steps: int
    straight: bool = False
    step_plan: StepPlan | None = None

    @property
    def overfits(self) -> bool:
        """Whether much of what the fit shows on its own rows is not there on others."""
        if self.n_samples < ENOUGH_SAMPLES or self.chance is None or self.trained is None:
            return False
        shown = self.trained - self.chance
        by_chance = 2 / math.sqrt(self.n_samples)  # two errors of a score that spreads as far as it shows something
        return shown > ENOUGH and self.trained - self.score > (OVERFITS + by_chance) * shown

    @property
    def tells_nothing(self) -> bool:
        """Whether rows held out show no more than chance, of a score in nats."""
        return self.n_samples >= ENOUGH_SAMPLES and self.chance is not None and self.score - self.chance < ENOUGH

    @property
    def rows(self) -> str:
        """Which rows these are, in words."""
        if self.n_folds == 1:
            return f"held out ({self.n_samples})"
        return f"held out in {self.n_folds} folds ({self.n_samples})"

    @property
    def warning(self) -> str:
        """A sentence if the fit overfits, and nothing if not."""
        if not self.overfits:
            return ""
        return (
            f"the fit knows its own rows better than others: {self}. The former is what to expect of new rows. Give "
            "more rows, ask for fewer latents, or see whether what it learns from says anything about X."
        )

    def __str__(self) -> str:
        where = "rows held out" if self.n_folds == 1 else f"rows held out in {self.n_folds} folds"
        chance = "" if self.chance is None else f" (chance {printed(self.chance)})"
        own = "" if self.trained is None else f", {printed(self.trained)} on rows learned from"
        return f"{self.name}: {printed(self.score)} on {self.n_samples} {where}{own}{chance}"
