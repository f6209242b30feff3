"""Early stopping: how many steps a training takes, and which weights it keeps.

Without a validation set the training loss decides whether more steps would help. Every schedule ends with a lower loss,
because the learning rate and its noise fall. So the decrease is measured in the middle of a schedule, as a fraction of
the total decrease. After many passes over the same samples it proves nothing, since the model may memorise them.

With a validation set its loss decides. If it rises, training rolls back to the step with the lowest validation loss and
anneals the learning rate to zero from there: in the middle of a schedule losses are noisy, and weights worse than they
need be. The weights with the lowest validation loss of all are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pindown.networks.images import FIRST_ROUND

if TYPE_CHECKING:
    from pindown.training.checkpoints import State

MAX_STEPS = 32_000  # of ``max_iter=None``: four rounds after the first

EARLIER, LATER = (0.4, 0.55), (0.65, 0.8)  # parts of a schedule that are compared

MIN_DECREASE, MIN_GAIN = 0.03, 0.01
"""More steps help if the decrease from the earlier to the later part is more than this fraction of the total; from one
round to the next, where the learning rate is the same. In simulations the fraction minus three standard errors is at
least .045 where twice the steps raise the R² of the latents by .03, and at most .015 where they raise it by .005."""

CLEARLY, CLEARLY_RISES = 3.0, 6.0  # standard errors by which a decrease exceeds that, and the slope of a rise zero

MAX_PASSES = 16  # passes over the same samples up to which a falling training loss is evidence of learning

MIN_STEPS, BLOCKS, START = 200, 10, 10
"""Minimum number of steps; blocks per part, since neighbouring losses are correlated; losses that count as first."""

PATIENCE = 200
"""The patience is this many steps more than led to the best step, or than half of those if the loss clearly rises."""

RISEN, N_CONFIRMATIONS = 0.02, 4
"""A loss has risen if it is above its minimum by more than this fraction of its total decrease, and that in so many
consecutive evaluations: at a high learning rate a single one may be."""

MIN_ANNEALING = 50  # steps after a rollback; by default half of those that led to the best step


# ---- by a loss curve ------------------------------------------------------------------------------------------------


class Decrease(NamedTuple):
    """The decrease of a loss while the learning rate was high, as a fraction of the total; whether it is no noise."""

    fraction: float
    is_clear: bool


def decrease(curve: Sequence[float], last: int | None = None, first: int = 0) -> Decrease:
    """Return the decrease of the loss in the middle of the last round, of ``last`` steps; by default, of all steps.

    If rounds came before, of which the first had ``first`` steps, it is the decrease from the round before, at the same
    learning rate.
    """
    values = np.asarray(curve, dtype=float)
    n = len(values) if last is None else last
    before, recent = values[:-n], values[-n:]
    total = float(values[:START].mean() - recent[-max(START, n // 10) :].mean()) if n >= MIN_STEPS else 0.0
    if total <= 0:
        return Decrease(0.0, False)
    earlier, at_least = (recent, EARLIER), MIN_DECREASE
    if len(before):
        earlier, at_least = (before[-max(first or FIRST_ROUND, len(before) // 2) :], LATER), MIN_GAIN
    (a, var_a), (b, var_b) = (_mean(losses, part) for losses, part in (earlier, (recent, LATER)))
    fraction, error = (a - b) / total, math.sqrt(var_a + var_b) / total
    return Decrease(fraction, fraction - CLEARLY * error > at_least)


def _mean(losses: np.ndarray, part: tuple[float, float]) -> tuple[float, float]:
    """Return the mean of a part and its variance, from residuals of a line, since a slope is not noise."""
    some = losses[int(part[0] * len(losses)) : int(part[1] * len(losses))]
    blocks = np.array([block.mean() for block in np.array_split(some, BLOCKS)])
    at = np.arange(BLOCKS)
    rest = blocks - np.polyval(np.polyfit(at, blocks, 1), at)
    return float(some.mean()), float(rest @ rest / (BLOCKS - 2) / BLOCKS)


@dataclass(frozen=True)
class Length:
    """The number of steps of a training: fixed, or, in rounds, as many again for as long as the loss clearly falls."""

    max_iter: int | None
    epoch: float = math.inf  # steps after which the same samples come again
    falls: bool = True  # whether the loss falls as something is learned: that of adversarial training need not
    first: int = 0  # steps of the first round of ``max_iter=None``; 0 takes 2,000

    @property
    def most(self) -> int:
        """The maximum number of steps."""
        return MAX_STEPS if self.max_iter is None else self.max_iter

    def may_end(self, step: int) -> bool:
        """Return whether a round can end after so many steps, whatever the loss curve: 2,000, 4,000 …, by default."""
        if self.max_iter is not None:
            return step == self.max_iter
        rounds, rest = divmod(step, self.first or FIRST_ROUND)
        return rest == 0 and rounds > 0 and rounds & (rounds - 1) == 0

    def rounds(self, curve: Sequence[float]) -> list[int]:
        """Return the numbers of steps of the rounds that follow from the loss curve so far."""
        if self.max_iter is not None:
            return [self.max_iter]
        rounds = [self.first or FIRST_ROUND]
        while (total := sum(rounds)) <= len(curve) and total < self.most and self._helps(curve[:total], rounds[-1]):
            rounds.append(total)
        return rounds

    def shortfall(self, curve: Sequence[float]) -> str:
        """Return a sentence that says that more steps would help, else an empty one."""
        last = self.rounds(curve)[-1]
        if not self._helps(curve, last):
            return ""
        remedy = "a larger max_iter" + (", or None, which takes as many steps as help" if self.max_iter else "")
        where = (
            f"in the middle of {len(curve):,} steps the loss still fell, within a quarter of them,"
            if last == len(curve)
            else f"in the last {last:,} of {len(curve):,} steps the loss still fell, at the same learning rate,"
        )
        return f"{where} by {decrease(curve, last, self.first).fraction:.0%} of its total decrease. Take {remedy}."

    def _helps(self, curve: Sequence[float], last: int) -> bool:
        is_evidence = self.falls and len(curve) <= MAX_PASSES * self.epoch
        return is_evidence and decrease(curve, last, self.first).is_clear


# ---- by a validation set --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Validation:
    """Batches of held-out samples, as the objective takes them."""

    batches: tuple[tuple[Tensor, ...], ...]

    def loss(self, objective: nn.Module) -> float:
        """Return the mean loss over all samples; waits for the device."""
        training = objective.training
        objective.eval()
        with torch.no_grad():
            losses = [objective(*batch) for batch in self.batches]
        objective.train(training)
        if losses[0].ndim:
            raise ValueError(
                f"validation: the objective must map a batch to one number, got shape {tuple(losses[0].shape)}."
            )
        sizes = torch.tensor([float(len(batch[0])) for batch in self.batches], dtype=torch.float64)
        return float(torch.stack(losses).double().cpu() @ sizes / sizes.sum())


class Phase(NamedTuple):
    """Steps of a training: the first ``taken`` of a schedule of ``n_steps``; or annealing ``down_from`` a step."""

    n_steps: int
    taken: int
    down_from: int | None = None


class StepPlan(NamedTuple):
    """The steps of a training, with the training loss at their first and last step, relative to that at chance."""

    phases: tuple[Phase, ...]
    first: float
    last: float


class Rollback(NamedTuple):
    """The step at which training rolled back, and the best step that it rolled back to."""

    at: int
    best: int

    @property
    def n_annealing(self) -> int:
        """Number of steps of the annealing that follows; 0 if nothing was learned before the rollback."""
        return min(self.at - self.best, max(MIN_ANNEALING, self.best // 2)) if self.best else 0


Evaluations = Sequence[tuple[int, float]]
"""The validation loss after so many steps."""


def find_rollback(evaluations: Evaluations, length: Length) -> Rollback | None:
    """Return where training rolls back, given its evaluations; None if nowhere yet."""
    best, lowest, after = 0, math.inf, 0
    for number, (step, loss) in enumerate(evaluations):
        if loss < lowest:
            best, lowest, after = step, loss, number + 1
        risen_to = lowest + RISEN * max(evaluations[0][1] - lowest, 0.0)
        if loss <= risen_to:
            continue
        recent = [each for _, each in evaluations[max(0, number + 1 - N_CONFIRMATIONS) : number + 1]]
        waited = step - best - PATIENCE if min(recent) > risen_to else -math.inf
        exhausted = waited >= best or (waited >= best / 2 and _rises(evaluations[after : number + 1]))
        if exhausted or (length.may_end(step) and step == sum(length.rounds(by_step(evaluations[: number + 1])))):
            return Rollback(step, best)
    return None


def _rises(evaluations: Evaluations) -> bool:
    """Return whether a line through the losses clearly rises, which that of a noisy plateau does not."""
    if len(evaluations) <= N_CONFIRMATIONS:
        return False
    steps, losses = np.array(evaluations).T
    steps -= steps.mean()
    slope = steps @ losses / (steps @ steps)
    rest = losses - losses.mean() - slope * steps
    return bool(slope > CLEARLY_RISES * math.sqrt(rest @ rest / (len(evaluations) - 2) / (steps @ steps)))


def by_step(evaluations: Evaluations) -> list[float]:
    """Return a loss for every step up to the last evaluation: that of the latest evaluation before it."""
    steps, losses = [step for step, _ in evaluations], [loss for _, loss in evaluations]
    return np.repeat(losses[:-1], np.diff(steps).astype(int)).tolist()


def _until(evaluations: Evaluations, step: int, length: Length, at: int) -> list[Phase]:
    """Return the rounds that follow from the evaluations until a step, as far as step ``at``."""
    rounds = length.rounds(by_step([each for each in evaluations if each[0] <= step]))
    ends = np.cumsum(rounds)
    return [Phase(n, min(n, at - int(end) + n)) for n, end in zip(rounds, ends, strict=True) if end - n < at]


@dataclass
class EarlyStopping:
    """The evaluations on a validation set, the state at the best of them, and the phases that follow from them."""

    validation: Validation
    length: Length
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    rollback: Rollback | None = None
    phases: list[Phase] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with the first round."""
        self._plan()

    def _plan(self) -> None:
        """Lay out the phases, as far as they follow from the validation losses."""
        self.rollback = rollback = find_rollback(self.evaluations, self.length)
        if rollback is None:
            self.phases = [Phase(n, n) for n in self.length.rounds(by_step(self.evaluations))]
            return
        down = Phase(rollback.n_annealing, rollback.n_annealing, rollback.best)
        before = _until(self.evaluations, rollback.at, self.length, rollback.at)
        self.phases = [*before, *([down] if down.n_steps else [])]

    def update(self, step: int, loss: float, state: State) -> None:
        """Add an evaluation; restore the best state if training rolls back here."""
        if not self.evaluations or loss < min(each for _, each in self.evaluations):
            self.best = {name: tensor.detach().clone() for name, tensor in state.live().items()}
        self.evaluations.append((step, loss))
        if self.rollback is not None:
            return
        if find_rollback(self.evaluations, self.length) is not None:
            state.put_back(self.best)
            self._plan()
        elif self.length.may_end(step):
            self._plan()

    def restore_best(self, state: State) -> None:
        """Restore the best state if training has rolled back."""
        if self.rollback is not None:
            state.put_back(self.best)

    @property
    def step_plan(self) -> tuple[Phase, ...]:
        """The steps that led to the weights kept; at least one."""
        rollback = self.rollback
        if rollback is None:
            return tuple(self.phases)
        kept = min(self.evaluations, key=lambda each: each[1])[0]
        if kept <= rollback.at:
            return tuple(_until(self.evaluations, rollback.at, self.length, max(1, kept)))
        before = _until(self.evaluations, rollback.at, self.length, rollback.best)
        return *before, Phase(rollback.n_annealing, kept - rollback.at, rollback.best)

    def kept(self, curve: Sequence[float]) -> np.ndarray:
        """Return the training losses of these steps."""
        rollback, n = self.rollback, sum(phase.taken for phase in self.step_plan)
        if rollback is None:
            return np.asarray(curve)
        if n <= max(1, rollback.best):
            return np.asarray(curve[:n])
        return np.asarray([*curve[: rollback.best], *curve[rollback.at : rollback.at + n - rollback.best]])

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold."""
        best = {f"best.{name}": tensor for name, tensor in self.best.items()}
        return {"seen": torch.tensor(self.evaluations, dtype=torch.float64), **best}

    def load(self, named: dict[str, Tensor], device: torch.device) -> None:
        """Restore what :meth:`tensors` returned."""
        self.evaluations = [(int(step), loss) for step, loss in named["seen"].tolist()]
        self.best = {k.removeprefix("best."): v.to(device) for k, v in named.items() if k.startswith("best.")}
        self._plan()
