"""Rows that no step sees: the loss on them says when to stop, and which moment to keep.

While the rate is high a loss is noisy, and weights from the middle of a schedule are worse than they need be. So a
training that comes to know its own rows better than others is not merely stopped: it goes back to the moment that was
best on the others, and from there the rate comes down to zero in a few steps. What is kept is the best moment of all.
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
"""Steps, beside as many as led to the best moment, or half of them if the loss clearly rises, after which one that has
risen is past hope."""

RISEN = 0.02
"""Share of all that the loss has fallen by which it must rise again to count as risen."""

N_CONFIRMATIONS = 4
"""Looks in a row that find it risen where it is past hope: at a high rate one of them may, though all is well."""

CLEARLY = 6.0
"""Standard errors by which the line through all looks since the best must rise where half the steps are waited for."""

LEAST_SETTLING = 50
"""Steps, at least, in which the rate comes down from the best moment: half of those that led there."""


@dataclass(frozen=True)
class Validation:
    """Batches of rows that no step sees, as the objective takes them.

    Examples
    --------
    >>> Validation(((torch.ones(1, 2),), (torch.zeros(3, 2),))).loss(nn.Flatten(0))  # not a mean of the two
    Traceback (most recent call last):
    ValueError: validation: the objective must map a batch to one number, got shape (2,).
    """

    batches: tuple[tuple[Tensor, ...], ...]

    def loss(self, objective: nn.Module) -> float:
        """Return the mean loss over rows; waits for the device."""
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
    """A part of a training's way: the schedule of so many steps, of which some are taken.

    Or, if it comes ``down_from`` a step, as many steps in which the rates of that step fall to zero.
    """

    n_steps: int
    taken: int
    down_from: int | None = None


class StepPlan(NamedTuple):
    """The steps of a training, and the losses that they led from and to: on rows learned from, above guessing."""

    phases: tuple[Phase, ...]
    first: float
    last: float


class Rollback(NamedTuple):
    """At which step a training went back, and to which."""

    at: int
    best: int

    @property
    def n_annealing(self) -> int:
        """Steps in which the rate then comes down; none from the start, where nothing was learned."""
        return min(self.at - self.best, max(LEAST_SETTLING, self.best // 2)) if self.best else 0


def turn(evaluations: Sequence[tuple[int, float]], length: Length) -> Rollback | None:
    """Return where a training turns back, given its losses on rows held out, each with its step; None: nowhere yet.

    Examples
    --------
    >>> from pindown.training.convergence import Length
    >>> falls = [(25 * k, 1 / (1 + k)) for k in range(41)]
    >>> rises = [(25 * k, abs(k - 8) / 8) for k in range(41)]
    >>> turn(falls, Length(1_000)), turn(rises, Length(1_000)), turn(rises, Length(300))
    (None, Rollback(at=500, best=200), Rollback(at=300, best=200))
    """
    best, lowest, after = 0, math.inf, 0
    for number, (step, loss) in enumerate(evaluations):
        if loss < lowest:
            best, lowest, after = step, loss, number + 1
        risen_to = lowest + RISEN * max(evaluations[0][1] - lowest, 0.0)
        if loss <= risen_to:
            continue
        lately = [each for _, each in evaluations[max(0, number + 1 - N_CONFIRMATIONS) : number + 1]]
        waited = step - best - PATIENCE if min(lately) > risen_to else -math.inf
        past_hope = waited >= best or (waited >= best / 2 and _rises(evaluations[after : number + 1]))
        if past_hope or (length.may_end(step) and step == sum(length.rounds(by_step(evaluations[: number + 1])))):
            return Rollback(step, best)
    return None


def _rises(evaluations: Sequence[tuple[int, float]]) -> bool:
    """Say whether losses clearly lie on a line that rises, which those of a noisy plateau do not."""
    if len(evaluations) <= N_CONFIRMATIONS:
        return False
    steps, losses = np.array(evaluations).T
    steps -= steps.mean()
    slope = steps @ losses / (steps @ steps)
    rest = losses - losses.mean() - slope * steps
    return bool(slope > CLEARLY * math.sqrt(rest @ rest / (len(evaluations) - 2) / (steps @ steps)))


def by_step(evaluations: Sequence[tuple[int, float]]) -> list[float]:
    """Return a loss for every step up to the last one seen, each as it was when last looked at.

    Examples
    --------
    >>> by_step([(0, 3.0), (2, 2.0), (3, 1.0)])
    [3.0, 3.0, 2.0]
    """
    steps = [step for step, _ in evaluations]
    return np.repeat([loss for _, loss in evaluations[:-1]], np.diff(steps)).tolist() if len(evaluations) > 1 else []


def phases(evaluations: Sequence[tuple[int, float]], length: Length) -> list[Phase]:
    """Return the way of a training, as far as it follows from the losses on rows held out.

    Examples
    --------
    >>> from pindown.training.convergence import Length
    >>> rises = [(25 * k, abs(k - 8) / 8) for k in range(41)]
    >>> phases(rises[:9], Length(1_000)), phases(rises, Length(1_000))[1:]
    ([Phase(n_steps=1000, taken=1000, down_from=None)], [Phase(n_steps=100, taken=100, down_from=200)])
    """
    rollback = turn(evaluations, length)
    if rollback is None:
        return full_phases(length.rounds(by_step(evaluations)))
    down = Phase(rollback.n_annealing, rollback.n_annealing, rollback.best)
    return [*truncated(_rounds_before(evaluations, rollback, length), rollback.at), *([down] if down.n_steps else [])]


def _rounds_before(evaluations: Sequence[tuple[int, float]], rollback: Rollback, length: Length) -> list[int]:
    return length.rounds(by_step([(step, loss) for step, loss in evaluations if step <= rollback.at]))


def full_phases(rounds: Sequence[int]) -> list[Phase]:
    """Return rounds that are taken from their first to their last step."""
    return [Phase(n, n) for n in rounds]


def truncated(rounds: Sequence[int], at: int) -> list[Phase]:
    """Return rounds up to a step."""
    ends = np.cumsum(rounds)
    return [Phase(n, min(n, at - int(end) + n)) for n, end in zip(rounds, ends, strict=True) if end - n < at]


@dataclass
class EarlyStopping:
    """Looks at the loss on rows held out now and then, and keeps the state of the best moment.

    Parameters
    ----------
    rows
        The rows.
    length
        How many steps there are.
    """

    rows: Validation
    length: Length
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    rollback: Rollback | None = None  # where it turned back, if it did
    phases: list[Phase] = field(default_factory=list)  # the way of the training

    def __post_init__(self) -> None:
        """Begin with the first round."""
        self.phases = phases(self.evaluations, self.length)

    def update(self, step: int, loss: float, state: State) -> None:
        """Take note of the loss after so many steps; go back to the best moment if this is where to turn."""
        if not self.evaluations or loss < min(each for _, each in self.evaluations):
            self.best = {name: tensor.detach().clone() for name, tensor in state.live().items()}
        self.evaluations.append((step, loss))
        if self.rollback is not None:
            return
        self.rollback = turn(self.evaluations, self.length)
        if self.rollback is not None:
            state.put_back(self.best)
        if self.rollback is not None or self.length.may_end(step):
            self.phases = phases(self.evaluations, self.length)

    def restore_best(self, state: State) -> None:
        """Leave the state at the moment that is kept."""
        if self.rollback is not None:
            state.put_back(self.best)

    @property
    def step_plan(self) -> tuple[Phase, ...]:
        """The steps that led to what is kept; at least one."""
        rollback = self.rollback
        if rollback is None:
            return tuple(self.phases)
        kept, rounds = (
            min(self.evaluations, key=lambda each: each[1])[0],
            _rounds_before(self.evaluations, rollback, self.length),
        )
        if kept <= rollback.at:
            return tuple(truncated(rounds, max(1, kept)))
        return *truncated(rounds, rollback.best), Phase(rollback.n_annealing, kept - rollback.at, rollback.best)

    def path(self, curve: Sequence[float]) -> np.ndarray:
        """Return the losses of these steps."""
        rollback, n = self.rollback, sum(phase.taken for phase in self.step_plan)
        if rollback is None:
            return np.asarray(curve)
        if n <= max(1, rollback.best):
            return np.asarray(curve[:n])
        return np.asarray([*curve[: rollback.best], *curve[rollback.at : rollback.at + n - rollback.best]])

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold."""
        return {"seen": torch.tensor(self.evaluations, dtype=torch.float64)} | {
            f"best.{k}": v for k, v in self.best.items()
        }

    def load(self, named: dict[str, Tensor], device: torch.device) -> None:
        """Put back what :meth:`tensors` gave."""
        self.evaluations = [(int(step), loss) for step, loss in named["seen"].tolist()]
        self.best = {k.removeprefix("best."): v.to(device) for k, v in named.items() if k.startswith("best.")}
        self.rollback, self.phases = turn(self.evaluations, self.length), phases(self.evaluations, self.length)
