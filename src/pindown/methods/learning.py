"""How a fit learns: which rows it keeps back, whether its encoder bends, and how long it trains.

With rows enough some are kept back, and training goes by them (`pindown.training.validation`). Of few rows none can be
spared: they are divided into folds, and as many fits, each without one of them, are trained side by side. The mean of
their losses on the rows each has not seen says how long to train; then all rows are learned from.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pindown.data.batches import Batches, zip_batches
from pindown.data.splits import Rows, taken
from pindown.errors import warn
from pindown.methods.held_out import HeldOut
from pindown.methods.inputs import DataSummary, TrainingInput
from pindown.methods.parameters import default_weight_decay, rate, settings
from pindown.methods.unfolding import Unfolding, Watch
from pindown.networks.encoder import Encoder
from pindown.networks.images import first_round_for, is_image, precision_for
from pindown.networks.preprocessing import Preprocessing
from pindown.networks.spaces import Space
from pindown.training import Trainer, TrainingLog, Validation
from pindown.training.validation import Phase, StepPlan

if TYPE_CHECKING:
    from pindown.methods.base import BaseEncoder

STRAIGHT_ROWS = 1_000
"""Rows up to which an encoder that may bend is also tried without: of more, a bend that says nothing is not learned."""

CLEARLY = 0.01
"""Share of all that the loss has fallen by which a straight encoder must be better on rows held out to be kept: few
rows hardly tell two encoders apart, and where they cannot, a theorem speaks of the one that can undo a mixing."""


STARTS, STUCK, LAST = 4, 0.15, 10
"""Starts of the fit to all rows after fits in folds, while it ends further above these than a share of all that they
have fallen; and steps whose loss is that of the end. Class vectors on a circle may get past each other, or not."""

STRIDE = 7_919
"""From the seed of one start to that of the next."""


class Trained(NamedTuple):
    """What was learned from each division of the rows, how training went, and whether encoders were held straight.

    Partners are told among more rows where there are more, so that losses are compared by what guessing would cost.
    """

    objectives: tuple[nn.Module, ...]
    log: TrainingLog
    straight: bool = False
    guessing: float = 0.0

    @property
    def loss(self) -> float:
        """On rows held out, at the moment that was kept."""
        losses = [loss for _, loss in self.log.held_out]
        return losses[-1] if self.log.rollback is None else min(losses)

    @property
    def end(self) -> float:
        """The loss of the last steps that led to what was kept, on the rows learned from, above that of guessing."""
        return float(np.mean(self.log.loss_curve[-LAST:])) - self.guessing

    @property
    def step_plan(self) -> StepPlan:
        """The steps to what was kept, and where they led."""
        return StepPlan(self.log.step_plan, float(self.log.loss_curve[0]) - self.guessing, self.end)

    def is_stuck_beside(self, step_plan: StepPlan) -> bool:
        """Say whether it ends far above another that went the same way, and down, on rows of the same kind."""
        fallen = step_plan.first - step_plan.last
        return fallen > 0 and self.end > step_plan.last + STUCK * fallen

    def is_clearly_better_than(self, other: Trained) -> bool:
        """Say whether it is better on rows held out by more than these can hardly tell."""
        fallen = max(other.log.held_out[0][1] - other.loss, 0.0)
        return self.loss < other.loss - CLEARLY * fallen


class Together(nn.Module):
    """Objectives trained side by side, each on batches of its own: the mean of their losses.

    Examples
    --------
    >>> both = Together([nn.L1Loss(), nn.MSELoss()])
    >>> both(torch.ones(2), torch.zeros(2), 3 * torch.ones(2), torch.zeros(2)).item()
    5.0
    """

    def __init__(self, objectives: Sequence[nn.Module]) -> None:
        super().__init__()
        self.objectives = nn.ModuleList(objectives)

    def forward(self, *fields: Tensor) -> Tensor:
        """Return the mean loss of as many batches as there are objectives."""
        n = len(fields) // len(self.objectives)
        batches = (fields[n * k : n * (k + 1)] for k in range(len(self.objectives)))
        return torch.stack([one(*batch) for one, batch in zip(self.objectives, batches, strict=True)]).mean()


@dataclass(frozen=True)
class FitRun:
    """All that the trainings of one fit have in common."""

    est: BaseEncoder
    inputs: TrainingInput
    space: Space
    device: torch.device
    seed: int
    told: list[str] = field(default_factory=list)  # while it went on: once, whatever the number of trainings

    def once(
        self,
        first: Preprocessing,
        summary: DataSummary,
        held_out: Rows | None = None,
        *,
        straight: bool = False,
        step_plan: Sequence[Phase] | None = None,
        start: int = 0,
    ) -> Trained:
        """Learn from the rows of a look: as long as rows held out say, or on a way that is known; from some start."""
        inputs = self.est._training_samples(self.inputs, first)
        draw = self.est._draw(inputs, summary, self.device)
        validation = None if held_out is None else Validation(self._batches(inputs, summary, held_out))
        name = " ".join(filter(None, ["straight" if straight else "", f"start {start + 1}" if start else ""]))

        @cache
        def whole() -> Batches:
            return draw if inputs is self.inputs else self.est._draw(self.inputs, summary, self.device)

        def minimise(objective: nn.Module, *how: Any) -> TrainingLog:
            rows = whole() if getattr(objective, "takes_columns", False) else draw
            return self._minimise(rows, summary, validation, name, step_plan, objective, *how)

        def make(seed: int) -> nn.Module:
            return self.est._new_objective(first, summary, draw, self.space, self.device, seed, straight=straight)

        if step_plan is None and (wide := self.est._with_more_latents(first)) is not None:
            objective, log = self._unfolded(wide, first, summary, draw, minimise)
        else:
            seed = (self.seed + STRIDE * start) % 2**63
            objective, log = self.est._optimise(make, minimise, lambda *when: whole()(*when), summary, seed)
        return Trained((objective,), log, straight, self._guessing(summary))

    def _unfolded(
        self,
        wide: BaseEncoder,
        first: Preprocessing,
        summary: DataSummary,
        draw: Batches,
        minimise: Callable[..., TrainingLog],
    ) -> tuple[nn.Module, TrainingLog]:
        """Learn, with a look at what the same estimator with more codes would tell."""

        def make(est: BaseEncoder, seed: int) -> nn.Module:
            codes = summary if est is self.est else replace(summary, n_components=int(wide.n_components))
            return est._new_objective(first, codes, draw, self.space, self.device, seed).to(self.device)

        return Unfolding(self.est, wide, make, minimise).fitted(self.seed)

    def in_folds(self, summary: DataSummary, *, straight: bool = False) -> Trained:
        """Learn from all divisions of the rows, side by side."""
        est, made = self.est, (self.space, self.device, self.seed)
        parts, draws, folds = [], [], []
        for division in self.inputs.splits:
            first, some = (
                est._fit_preprocessing(self.inputs.data.X, division.learned),
                replace(summary, rows=division.learned),
            )
            inputs = est._training_samples(self.inputs, first)
            draws.append(est._draw(inputs, some, self.device))
            parts.append(est._new_objective(first, some, draws[-1], *made, straight=straight))
            folds.append(self._batches(inputs, some, division.held_out))
        validation = Validation(tuple(tuple(chain(*each)) for each in zip(*folds, strict=False)))
        name = " ".join(filter(None, ["straight" if straight else "", f"{len(parts)} folds"]))
        log = self._minimise(zip_batches(draws), some, validation, name, None, Together(parts), self.seed)
        return Trained(tuple(parts), log, straight, self._guessing(some))

    def whole(
        self, first: Preprocessing, summary: DataSummary, step_plan: StepPlan, *, straight: bool = False
    ) -> Trained:
        """Learn from all rows as others did from some; from another start if it gets stuck where these did not."""
        tried: list[Trained] = []
        while len(tried) < STARTS and all(each.is_stuck_beside(step_plan) for each in tried):
            tried.append(self.once(first, summary, straight=straight, step_plan=step_plan.phases, start=len(tried)))
        return min(tried, key=lambda each: each.end)

    def _batches(self, inputs: TrainingInput, summary: DataSummary, rows: Rows) -> tuple[tuple[Tensor, ...], ...]:
        return tuple(self.est._batches(inputs, replace(summary, rows=rows), self.device))

    def _n_rows(self, summary: DataSummary) -> float:
        return self.inputs.n_samples if summary.rows is None else len(summary.rows)

    def _guessing(self, summary: DataSummary) -> float:
        return self.est._chance_loss(self._n_rows(summary)) or 0.0

    def _minimise(
        self,
        draw: Batches,
        summary: DataSummary,
        validation: Validation | None,
        name: str,
        step_plan: Sequence[Phase] | None,
        objective: nn.Module,
        seed: int,
        part: str = "",
        *max_iter: int | None,
    ) -> TrainingLog:
        """Minimise an objective in parts of the fit that have names, in so many steps if they are not the fit's."""
        est, n_samples, defaults = self.est, self._n_rows(summary), self.est.training_defaults
        part = " ".join(filter(None, [name, part]))
        return self._trainer(objective, n_samples, validation).train(
            objective,
            draw,
            max_iter=max_iter[0] if max_iter else est.max_iter,
            learning_rate=rate(est, n_samples),
            optimizer=defaults.optimizer,
            schedule=defaults.schedule,
            weight_decay=default_weight_decay(est, n_samples),
            seed=seed,
            device=self.device,
            verbose=est.verbose,
            title=f"{type(est).__name__} {part}".strip(),
            settings=settings(est, self.inputs.digest) if est.trainer.checkpoint is not None else {},
            part=part,
            epoch=n_samples / (est.batch_size or defaults.batch_size),
            falls=not defaults.adversarial,
            validation=validation,
            step_plan=step_plan,
            first_round=first_round_for(est.shape_in_, self.device),
        )

    def _trainer(self, objective: nn.Module, n_samples: float, validation: Validation | None) -> Trainer:
        """Return how to train: as was asked for, in what suits pictures, and with someone who watches them."""
        encoder = getattr(objective, "encoder", None)
        # A first layer that whitens pictures takes differences of large numbers, which half the digits would not show.
        trainer, shape = self.est.trainer, encoder.preprocess.shape_out if isinstance(encoder, Encoder) else ()
        precision = precision_for(shape, self.device, trainer.precision)
        watch = self._watch(n_samples, validation) if is_image(self.est.shape_in_) else ()
        return replace(trainer, precision=precision, callbacks=(*trainer.callbacks, *watch))

    def _watch(self, n_samples: float, validation: Validation | None) -> tuple[Watch, ...]:
        """Return who says that nothing is learned, where the loss shows it."""
        guessing = self.est._chance_loss(n_samples)
        if guessing is None:
            return ()
        sizes = [len(batch[0]) for batch in validation.batches] if validation is not None else [1]
        of_held_out = np.average([self.est._chance_loss(size) or 0.0 for size in sizes], weights=sizes)
        return (Watch(guessing, float(of_held_out), self._tell_once),)

    def _tell_once(self, sentence: str) -> None:
        if not self.told:
            self.told.append(sentence)
            warn(sentence)

    def scored(self, learned: Trained, summary: DataSummary) -> HeldOut:
        """Return the score of what was learned, on rows held out and on as many that were learned from."""
        divided, paired, scores = self.inputs.splits, self.est.spec.roles.y == "pairs", []
        for objective, division in zip(learned.objectives, divided, strict=True):
            fit = copy.copy(self.est)
            with warnings.catch_warnings(action="ignore"):
                fit._keep(objective, learned.log, summary)
                both = (division.held_out, division.compared)
                data = [taken(self.inputs.data, rows, paired=paired) for rows in both]
                scores.append([fit.spec.score(fit, some) for some in data])
        sizes = [len(division.held_out) for division in divided]
        values = np.array([[score.value for score in both] for both in scores], dtype=np.float64)
        value, trained = np.average(values, axis=0, weights=sizes).tolist()
        return HeldOut(
            scores[0][0].name,
            value,
            trained,
            scores[0][0].chance,
            n_samples=sum(sizes),
            n_folds=len(divided),
            n_steps=learned.log.n_iter,
            straight=learned.straight,
            step_plan=learned.step_plan,
        )


def learn(
    est: BaseEncoder,
    inputs: TrainingInput,
    first: Preprocessing,
    summary: DataSummary,
    space: Space,
    device: torch.device,
    seed: int,
) -> tuple[Trained, HeldOut | None]:
    """Return what was learned, and how it does on rows that it has not seen, if there are any."""
    learning, divided = FitRun(est, inputs, space, device, seed), inputs.splits
    if not divided:
        step_plan = est.trainer.step_plan
        return learning.once(first, summary) if step_plan is None else learning.whole(first, summary, step_plan), None
    kinds = (True, False) if est._tries_linear(first) and len(inputs.data) <= STRAIGHT_ROWS else (False,)
    if len(divided) == 1:
        tried = [learning.once(first, summary, divided[0].held_out, straight=straight) for straight in kinds]
    else:
        tried = [learning.in_folds(summary, straight=straight) for straight in kinds]
    best = tried[0] if tried[0].is_clearly_better_than(tried[-1]) else tried[-1]
    score = learning.scored(best, summary)
    if len(divided) == 1:
        return best, score
    whole = learning.whole(first, summary, best.step_plan, straight=best.straight)
    return whole, replace(score, n_steps=whole.log.n_iter)
