"""A step of training: draw, forward, backward, move. Nothing in it waits for the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pindown.data.batches import Batches, CapturableBatches
from pindown.training.checkpoints import State
from pindown.training.early_stopping import Phase
from pindown.training.optimizers import Schedule, falling

LARGEST_SCALE = 2.0**15
"""Initial loss scale in float16. It is halved, and the step skipped, when gradients overflow."""


class Descent:
    """An objective, its optimizer and the learning rates of all steps, in memory where a CUDA graph finds them."""

    def __init__(
        self,
        state: State,
        *,
        most: int,
        first: int,
        learning_rate: float,
        schedule: Schedule,
        precision: torch.dtype | None,
        compile: bool,
        accumulate: int,
    ) -> None:
        self.accelerator, self.device, self.scale = state.accelerator, state.generator.device, state.scale
        self.precision, self.accumulate, self.learning_rate = precision, accumulate, learning_rate
        self.wrapped, prepared = self.accelerator.prepare(state.objective, state.optimizer)
        # The wrapper of an optimizer for several processes looks for packages at each step, which is slow.
        self.optimizer = state.optimizer if self.accelerator.num_processes == 1 else prepared
        # Only the forward pass is compiled: the objective keeps its names, for checkpoints and for saving.
        self.forward = torch.compile(self.wrapped) if compile else self.wrapped
        self.groups = [
            (float(group.get("peak", learning_rate)), group.get("schedule", schedule))
            for group in self.optimizer.param_groups
        ]
        for group in self.optimizer.param_groups:
            if not isinstance(group["lr"], Tensor):
                raise TypeError(
                    "optimizer: the learning rate of a parameter group must be a tensor on the device of the weights, "
                    f"such as torch.tensor(1e-3, device=…), so that it can follow a schedule; got {group['lr']!r}."
                )
            group["lr"] = group["lr"].clone()  # groups that share one would all follow the last
        self.rates: list[tuple[float, ...]] = []  # the learning rate of each group, for each planned step
        self._planned: list[Phase] = []
        self._rates = torch.zeros(most, len(self.groups), device=self.device)
        self._losses = torch.zeros(most, dtype=torch.float64, device=self.device)
        self._now = torch.tensor([first], device=self.device)

    def plan(self, phases: Sequence[Phase]) -> int:
        """Set the learning rates of all phases, each of which starts the schedule again; return the number of steps."""
        if self._planned != phases:
            self._planned, self.rates = list(phases), []
            for phase in phases:
                self.rates += self._rates_of(phase)
            self._rates[: len(self.rates)] = torch.tensor(self.rates, device=self.device)
        return len(self.rates)

    def _rates_of(self, phase: Phase) -> list[tuple[float, ...]]:
        if phase.down_from is None:
            progress = (k / phase.n_steps for k in range(phase.taken))
            return [tuple(peak * schedule(t) for peak, schedule in self.groups) for t in progress]
        top = self.rates[phase.down_from - 1]
        return [tuple(rate * falling(k / phase.n_steps) for rate in top) for k in range(phase.taken)]

    def step(self, batches: Sequence[Callable[[], tuple[Tensor, ...]]]) -> None:
        """Take one step, by the mean gradient over these batches."""
        rates = self._rates[self._now][0]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"].copy_(rate)
        self.optimizer.zero_grad()
        loss = torch.stack([self._backward(batch(), last=batch is batches[-1]) for batch in batches]).mean()
        self._unscale()
        self.optimizer.step()
        self._losses[self._now] = loss
        self._now.add_(1)

    def read(self, first: int, last: int, more: Sequence[float]) -> list[float]:
        """Return the losses of steps, and more numbers, as means over processes; waits for the device."""
        numbers = torch.cat([self._losses[first:last], self._losses.new_tensor(more)])
        return self.accelerator.reduce(numbers, "mean").tolist()

    def _backward(self, batch: tuple[Tensor, ...], *, last: bool) -> Tensor:
        # Processes average their gradients once a step.
        alone: AbstractContextManager = nullcontext() if last else self.accelerator.no_sync(self.wrapped)
        with alone:
            with self._autocast():
                loss = self.forward(*batch)
            part = loss if self.accumulate == 1 else loss / self.accumulate
            self.accelerator.backward(part if self.scale is None else part.float() * self.scale)
        return loss.detach().double()

    def _autocast(self) -> AbstractContextManager:
        if self.precision is None or self.precision is torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)

    def _unscale(self) -> None:
        if self.scale is None:
            return
        gradients = [w.grad for group in self.optimizer.param_groups for w in group["params"] if w.grad is not None]
        finite = torch.stack([gradient.isfinite().all() for gradient in gradients]).all()
        for gradient in gradients:
            gradient.copy_(torch.where(finite, gradient / self.scale, 0.0))
        self.scale.mul_(torch.where(finite, 1.0, 0.5))


def step_taker(descent: Descent, draw: Batches, generator: torch.Generator) -> PlainStep | CapturedStep:
    """Return the function that takes a step, as a CUDA graph if possible."""
    # Several batches per step are prepared one after the other by the host, which a graph cannot do.
    can = descent.device.type == "cuda" and descent.accumulate == 1 and descent.accelerator.num_processes == 1
    if can and isinstance(draw, CapturableBatches):
        return CapturedStep(descent, draw, generator)
    return PlainStep(descent, draw, generator)


@dataclass
class PlainStep:
    """Draw, then descend."""

    descent: Descent
    draw: Batches
    generator: torch.Generator

    def __call__(self, step: int) -> None:
        """Take the step of this number."""
        n = self.descent.accumulate
        self.descent.step([partial(self.draw, k, self.generator) for k in range(n * step, n * (step + 1))])


@dataclass
class CapturedStep:
    """The same, recorded once as a CUDA graph and replayed: one launch instead of hundreds.

    A step in which the host waits for the device, such as for ``.item()``, cannot be recorded and is taken as it is.
    """

    descent: Descent
    draw: CapturableBatches
    generator: torch.Generator
    _graph: Any = None
    _warm: int = 0
    _waits: bool = False

    def __call__(self, step: int) -> None:
        """Take the step of this number."""
        self.draw.prepare(step, self.generator)
        if self._warm < 2 or self._waits:  # the first steps compile kernels, allocate buffers and copy constants
            self._warm += 1
            self._on_side_stream()
            return
        if self._warm == 2:
            self._warm += 1
            self._watched()
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            self._graph.register_generator_state(self.generator)
            with torch.cuda.graph(self._graph):
                self._descend()
        self._graph.replay()

    def _watched(self) -> None:
        """Take a step in which waiting is an error; if the error occurs, take the step again and stop checking."""
        drawn = self.generator.get_state()
        try:
            with _waiting_refused():
                self._on_side_stream()
        except RuntimeError as error:
            if "synchronizing" not in str(error):
                raise
            self._waits = True
        if self._waits:
            self.generator.set_state(drawn)
            self._on_side_stream()

    def _descend(self) -> None:
        self.descent.step([lambda: self.draw.batch(self.generator)])

    def _on_side_stream(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                self._descend()
        finally:  # the step must end before it is taken again
            torch.cuda.current_stream().wait_stream(side)


@contextmanager
def _waiting_refused() -> Iterator[None]:
    """Raise an error if the host waits for the device."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
