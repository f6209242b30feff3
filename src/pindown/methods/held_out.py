"""The score of a fit on held-out samples, compared with training samples and with chance."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pindown._names import printed
from pindown.training.early_stopping import StepPlan

OVERFITS, ENOUGH_SAMPLES, ENOUGH = 0.25, 50, 0.05
"""A fit overfits if this fraction of its training score above chance is missing on held-out samples; minimum number of
held-out samples for that; and minimum training score above chance."""


@dataclass(frozen=True)
class HeldOut:
    """A score on held-out samples, the same on training samples, and its chance level.

    Examples
    --------
    >>> print(HeldOut("accuracy", 0.6, 1.0, 0.1, n_samples=180, n_folds=1, n_steps=125))
    accuracy: 0.600 on 180 held-out samples, 1.000 on training samples (chance 0.100)
    """

    name: str  # what is measured
    score: float  # on held-out samples: what to expect of new samples
    trained: float | None  # on as many training samples, if that was measured
    chance: float | None  # if nothing is learned; None if it is not known
    n_samples: int  # number of held-out samples
    n_folds: int  # 1, or with few samples the number of folds, each of which was held out once; the fit has used all
    n_steps: int  # number of steps that led to the weights that were kept
    linear: bool = False  # whether an encoder that can be nonlinear was left linear, because that validates better
    step_plan: StepPlan | None = None  # these steps, for refits with too few samples to find them again
    note: str = ""  # what else was measured on these samples

    @property
    def overfits(self) -> bool:
        """Whether much of the training score is missing on held-out samples."""
        if self.n_samples < ENOUGH_SAMPLES or self.chance is None or self.trained is None:
            return False
        learned = self.trained - self.chance
        by_chance = 2 / math.sqrt(self.n_samples)  # two standard errors of a score whose spread is its size
        return learned > ENOUGH and self.trained - self.score > (OVERFITS + by_chance) * learned

    @property
    def is_uninformative(self) -> bool:
        """Whether held-out samples show no more than chance, of a score in nats."""
        return self.n_samples >= ENOUGH_SAMPLES and self.chance is not None and self.score - self.chance < ENOUGH

    @property
    def rows(self) -> str:
        """The held-out samples, in words."""
        if self.n_folds == 1:
            return f"held out ({self.n_samples})"
        return f"held out in {self.n_folds} folds ({self.n_samples})"

    @property
    def warning(self) -> str:
        """A sentence if the fit overfits, else an empty one."""
        remedy = "Give more samples, try Trainer(weight_decay=…), and check that X depends on y."
        return f"the fit overfits: {self}. Expect the former of new samples. {remedy}" if self.overfits else ""

    def __str__(self) -> str:
        where = "held-out samples" if self.n_folds == 1 else f"samples held out in {self.n_folds} folds"
        chance = "" if self.chance is None else f" (chance {printed(self.chance)})"
        note = f"; {self.note}" if self.note else ""
        own = "" if self.trained is None else f", {printed(self.trained)} on training samples"
        return f"{self.name}: {printed(self.score)} on {self.n_samples} {where}{own}{chance}{note}"
