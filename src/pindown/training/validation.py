"""Early stopping by the loss on a validation set, which also chooses the weights to keep.

While the learning rate is high, losses are noisy, and weights from the middle of a schedule are worse than they need
be. So a training that overfits is not merely stopped: it rolls back to the step with the lowest validation loss and
anneals the learning rate to zero from there. The weights with the lowest validation loss of all are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from pindown.training.checkpoints import State
    from pindown.training.convergence import Length

PATIENCE = 200
"""The patience is this many steps more than led to the best step, or than half of those if the loss clearly rises."""

RISEN = 0.02
"""A loss has risen if it is above its minimum by more than this fraction of its total decrease."""

N_CONFIRMATIONS = 4
"""Number of consecutive evaluations that must find it risen: at a high learning rate a single one may."""

CLEARLY = 6.0
"""Number of standard errors by which the slope since the best step must be positive to halve the patience."""

MIN_ANNEALING = 50
"""Minimum number of steps of the annealing after a rollback; by default half of those that led to the best step."""


@dataclass(frozen=True)
class Validation:
    """Batches of held-out samples, as the objective takes them.

    Examples
    --------
    >>> Validation(((torch.ones(1, 2),), (torch.zeros(3, 2),))).loss(nn.Flatten(0))  # not a mean of the two
    Traceback (most recent call last):
    ValueError: validation: the objective must map a batch to one number, got shape (2,).
    """

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


def find_rollback(evaluations: Sequence[tuple[int, float]], length: Length) -> Rollback | None:
    """Return where training rolls back, given the step and validation loss of each evaluation; None if nowhere yet.

    Examples
    --------
    >>> from pindown.training.convergence import Length
    >>> falls = [(25 * k, 1 / (1 + k)) for k in range(41)]
    >>> rises = [(25 * k, abs(k - 8) / 8) for k in range(41)]
    >>> [find_rollback(*args) for args in ((falls, Length(1_000)), (rises, Length(1_000)), (rises, Length(300)))]
    [None, Rollback(at=500, best=200), Rollback(at=300, best=200)]
    """
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


def _rises(evaluations: Sequence[tuple[int, float]]) -> bool:
    """Return whether a line through the losses clearly rises, which that of a noisy plateau does not."""
    if len(evaluations) <= N_CONFIRMATIONS:
        return False
    steps, losses = np.array(evaluations).T
    steps -= steps.mean()
    slope = steps @ losses / (steps @ steps)
    rest = losses - losses.mean() - slope * steps
    return bool(slope > CLEARLY * math.sqrt(rest @ rest / (len(evaluations) - 2) / (steps @ steps)))


def by_step(evaluations: Sequence[tuple[int, float]]) -> list[float]:
    """Return a loss for every step up to the last evaluation: that of the latest evaluation before it.

    Examples
    --------
    >>> by_step([(0, 3.0), (2, 2.0), (3, 1.0)])
    [3.0, 3.0, 2.0]
    """
    steps = [step for step, _ in evaluations]
    return np.repeat([loss for _, loss in evaluations[:-1]], np.diff(steps)).tolist() if len(evaluations) > 1 else []


def phases(evaluations: Sequence[tuple[int, float]], length: Length) -> list[Phase]:
    """Return the phases of a training, as far as they follow from the validation losses.

    Examples
    --------
    >>> from pindown.training.convergence import Length
    >>> rises = [(25 * k, abs(k - 8) / 8) for k in range(41)]
    >>> phases(rises[:9], Length(1_000)), phases(rises, Length(1_000))[1:]
    ([Phase(n_steps=1000, taken=1000, down_from=None)], [Phase(n_steps=100, taken=100, down_from=200)])
    """
    rollback = find_rollback(evaluations, length)
    if rollback is None:
        return full_phases(length.rounds(by_step(evaluations)))
    down = Phase(rollback.n_annealing, rollback.n_annealing, rollback.best)
    return [*truncated(_rounds_before(evaluations, rollback, length), rollback.at), *([down] if down.n_steps else [])]


def _rounds_before(evaluations: Sequence[tuple[int, float]], rollback: Rollback, length: Length) -> list[int]:
    return length.rounds(by_step([(step, loss) for step, loss in evaluations if step <= rollback.at]))


def full_phases(rounds: Sequence[int]) -> list[Phase]:
    """Return rounds of which all steps are taken."""
    return [Phase(n, n) for n in rounds]


def truncated(rounds: Sequence[int], at: int) -> list[Phase]:
    """Return rounds up to a step."""
    ends = np.cumsum(rounds)
    return [Phase(n, min(n, at - int(end) + n)) for n, end in zip(rounds, ends, strict=True) if end - n < at]


@dataclass
class EarlyStopping:
    """The evaluations on a validation set, and the state at the best of them.

    Parameters
    ----------
    validation
        The validation set.
    length
        How many steps there are.
    """

    validation: Validation
    length: Length
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    rollback: Rollback | None = None
    phases: list[Phase] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with the first round."""
        self.phases = phases(self.evaluations, self.length)

    def update(self, step: int, loss: float, state: State) -> None:
        """Add an evaluation; restore the best state if training rolls back here."""
        if not self.evaluations or loss < min(each for _, each in self.evaluations):
            self.best = {name: tensor.detach().clone() for name, tensor in state.live().items()}
        self.evaluations.append((step, loss))
        if self.rollback is not None:
            return
        self.rollback = find_rollback(self.evaluations, self.length)
        if self.rollback is not None:
            state.put_back(self.best)
        if self.rollback is not None or self.length.may_end(step):
            self.phases = phases(self.evaluations, self.length)

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
        rounds = _rounds_before(self.evaluations, rollback, self.length)
        if kept <= rollback.at:
            return tuple(truncated(rounds, max(1, kept)))
        return *truncated(rounds, rollback.best), Phase(rollback.n_annealing, kept - rollback.at, rollback.best)

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
        self.rollback = find_rollback(self.evaluations, self.length)
        self.phases = phases(self.evaluations, self.length)
