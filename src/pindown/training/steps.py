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
from pindown.training.schedules import Schedule, falling
from pindown.training.validation import Phase

LARGEST_SCALE = 2.0**15
"""Factor of the loss in float16, taken off the gradients again, or small ones would fall below its least number.

It is halved, and the step left out, when gradients are beyond its largest."""


class Descent:
    """An objective, its optimiser, and what changes from step to step: on the device, where a captured step finds it.

    A parameter group may have a ``schedule`` and a ``peak`` of its own, the learning rate at the schedule's top. The
    others follow the one that they are given here.
    """

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
        # What wraps an optimiser for several processes looks for packages at each step, which takes as long as one.
        self.optimizer = state.optimizer if self.accelerator.num_processes == 1 else prepared
        # Only the forward pass is compiled: the objective itself keeps its names, for checkpoints and for saving.
        self.forward = torch.compile(self.wrapped) if compile else self.wrapped
        self.groups = [
            (float(group.get("peak", learning_rate)), group.get("schedule", schedule))
            for group in self.optimizer.param_groups
        ]
        for group in self.optimizer.param_groups:
            if not isinstance(group["lr"], Tensor):
                raise TypeError(
                    "optimizer: the learning rate of a parameter group must be a tensor beside the weights, such as "
                    f"torch.tensor(1e-3, device=…), so that a schedule can be written to it; got {group['lr']!r}."
                )
            group["lr"] = group["lr"].clone()  # groups that share one would all follow the last
        self.course: list[tuple[float, ...]] = []  # of each step laid out, the rate of each group
        self._planned: list[Phase] = []
        self._rates = torch.zeros(most, len(self.groups), device=self.device)
        self._losses = torch.zeros(most, dtype=torch.float64, device=self.device)
        self._now = torch.tensor([first], device=self.device)

    def plan(self, phases: Sequence[Phase]) -> int:
        """Lay out the rates of all legs, the schedule anew in each; return how many steps that makes."""
        if self._planned != phases:
            self._planned, self.course = list(phases), []
            for phase in phases:
                self.course += self._rates_of(phase)
            self._rates[: len(self.course)] = torch.tensor(self.course, device=self.device)
        return len(self.course)

    def _rates_of(self, phase: Phase) -> list[tuple[float, ...]]:
        if phase.down_from is None:
            progress = (k / phase.n_steps for k in range(phase.taken))
            return [tuple(peak * schedule(t) for peak, schedule in self.groups) for t in progress]
        top = self.course[phase.down_from - 1]
        return [tuple(rate * falling(k / phase.n_steps) for rate in top) for k in range(phase.taken)]

    def step(self, batches: Sequence[Callable[[], tuple[Tensor, ...]]]) -> None:
        """Move once, by the gradients' mean over these batches."""
        rates = self._rates[self._now][0]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"].copy_(rate)
        self.optimizer.zero_grad()
        loss = torch.stack([self._backward(batch(), last=batch is batches[-1]) for batch in batches]).mean()
        self._unscale()
        self.optimizer.step()
        self._losses[self._now] = loss
        self._now.add_(1)

    def read(self, first: int, last: int, asked: Sequence[float]) -> list[float]:
        """Return the losses of steps, and the mean over processes of what each has to say: waits for the device."""
        news = torch.cat([self._losses[first:last], self._losses.new_tensor(asked)])
        return self.accelerator.reduce(news, "mean").tolist()

    def _backward(self, batch: tuple[Tensor, ...], *, last: bool) -> Tensor:
        # Processes average their gradients once a step.
        alone: AbstractContextManager = nullcontext() if last else self.accelerator.no_sync(self.wrapped)
        with alone:
            with self._autocast():
                loss = self.forward(*batch)
            share = loss if self.accumulate == 1 else loss / self.accumulate
            self.accelerator.backward(share if self.scale is None else share.float() * self.scale)
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


def taker(descent: Descent, draw: Batches, generator: torch.Generator) -> PlainStep | CapturedStep:
    """Return what takes the step of a number: captured where that can be."""
    # Several draws a step are made ready one after the other, by the host: not within one graph.
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
    """The same, recorded once as a CUDA graph and replayed: one launch in place of hundreds.

    A step in which the host waits for the device, as in ``.item()`` or ``nonzero()`` of somebody's network, cannot be
    recorded; it is taken as it is, every time.
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
        if self._warm < 2 or self._waits:  # steps in which kernels are compiled, buffers allocated, constants copied
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
        """Take a step in which to wait is an error; if it is one, begin that step again, and watch no more."""
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
        finally:  # what was begun ends before weights are moved by a step that is taken again
            torch.cuda.current_stream().wait_stream(side)


@contextmanager
def _waiting_refused() -> Iterator[None]:
    """Make it an error that the host waits for the device."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
