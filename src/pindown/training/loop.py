"""The one training loop: progress, schedule, devices and processes, checkpoints, stopping.

An *objective* is a module whose forward pass maps a batch to the loss. :func:`train` minimises it. Nothing in a
step waits for the device: losses are read back only once every :data:`REPORT_EVERY` steps.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from pindown import _random
from pindown.sources.batches import CapturableDraw, Draw
from pindown.training.checkpoints import Checkpoint, State
from pindown.training.divergence import check_losses, check_weights
from pindown.training.optimizers import MakeOptimizer, adam

if TYPE_CHECKING:
    from accelerate import Accelerator

REPORT_EVERY = 25


@dataclass(frozen=True)
class TrainingLog:
    """What happened: the loss of each step, the wall-clock seconds of this call, and why it ended."""

    loss_curve: np.ndarray  # (n_iter,)
    seconds: float
    stopped_on_plateau: bool

    @property
    def n_iter(self) -> int:
        """Number of steps taken, those before a resumed checkpoint included."""
        return len(self.loss_curve)


def processes() -> Accelerator:
    """Return what knows which process of a training this is, of how many, and how they talk."""
    from accelerate import Accelerator  # slow to import

    # Without the hint it takes no notice of other processes on a machine without a GPU.
    return Accelerator(device_placement=False, cpu=not torch.cuda.is_available())


def best_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device asked for, or this process's GPU if there is one, or the CPU.

    Raises
    ------
    ValueError
        If the device is not there.

    Examples
    --------
    >>> best_device("cpu")
    device(type='cpu')
    """
    if device is None:
        found = processes().device
        return found if found.type == "cuda" else torch.device("cpu")  # others lack float64
    try:
        return torch.zeros(1, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA raises the latter
        cause = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"device {str(device)!r} cannot be used here ({cause}). Leave it out, or take cpu.") from error


def cosine(progress: float) -> float:
    """Learning-rate factor: a short linear warm-up, then half a cosine down to zero.

    Examples
    --------
    >>> [round(cosine(t), 3) for t in (0.0, 0.025, 0.05, 0.525, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    warm_up = 0.05
    if progress < warm_up:
        return progress / warm_up
    return 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


def constant(progress: float) -> float:
    """Learning-rate factor 1 throughout."""
    return 1.0


def train(
    objective: nn.Module,
    draw: Draw,
    *,
    max_iter: int,
    learning_rate: float,
    seed: int,
    weight_decay: float = 0.0,
    optimizer: MakeOptimizer = adam,
    schedule: Callable[[float], float] = cosine,
    patience: int | None = None,
    tol: float = 1e-3,
    checkpoint: Checkpoint | None = None,
    device: str | torch.device | None = None,
    verbose: bool = True,
    title: str = "fit",
) -> TrainingLog:
    """Minimise an objective; in place.

    The same call runs on a CPU, on one GPU, and under ``torchrun`` or ``accelerate launch`` on several: there each
    process draws its own batches and gradients are averaged.

    Parameters
    ----------
    objective
        Module whose forward pass maps a batch to a scalar loss. It stays on the device it was trained on.
    draw
        Called as ``draw(step, generator)``, returns the batch.
    max_iter
        Number of steps.
    learning_rate
        At the top of the schedule.
    seed
        Of the generator handed to ``draw``.
    weight_decay
        Share of the weight matrices taken off per step, in units of the learning rate.
    optimizer
        `optimizers.adam` or `optimizers.muon`: called as ``optimizer(objective, learning_rate, weight_decay)``.
    schedule
        Factor of the learning rate as a function of progress in [0, 1].
    patience, tol
        Stop once the mean loss over this many steps is less than ``tol`` below that of as many steps before.
    checkpoint
        Where to save the state now and then, and to go on from if it is there. A resumed run gives the same
        result as an unbroken one.
    device
        Where to train; by default the first GPU if there is one.
    verbose
        Show a progress bar, if there is a terminal to show it on.
    title
        What the bar is called.

    Raises
    ------
    TrainingDivergedError
        If the loss is NaN or infinite, or has grown a thousandfold; if weights are, or are beyond float32's digits.
    KeyboardInterrupt
        After Ctrl-C, once the running step is finished and the checkpoint is written.

    Examples
    --------
    The mean of some numbers minimises their squared distance:

    >>> class Distance(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.centre = nn.Parameter(torch.zeros(()))
    ...     def forward(self, x):
    ...         return (x - self.centre).square().mean()
    >>> objective = Distance()
    >>> numbers = torch.tensor([1.0, 3.0])
    >>> log = train(objective, lambda step, generator: (numbers,), max_iter=300, learning_rate=0.1, seed=0)
    >>> round(objective.centre.item(), 3), round(float(log.loss_curve[-1]), 3)
    (2.0, 1.0)
    """
    accelerator = processes()
    device = best_device(device)
    objective.to(device).train()
    # Each process needs other samples; the stride keeps process k of seed s apart from process 0 of seed s + k.
    generator = _random.generator((seed + 1_000_003 * accelerator.process_index) % 2**63, device)
    descent = optimizer(objective, learning_rate, weight_decay)
    state = State(objective, descent, generator, accelerator)
    curve: list[float] = checkpoint.restore(state) if checkpoint is not None else []
    wrapped, descent = accelerator.prepare(objective, descent)

    # What changes from step to step lies on the device, so that a captured step finds it there.
    rates = torch.tensor([learning_rate * schedule(k / max_iter) for k in range(max_iter)], device=device)
    losses = torch.zeros(max_iter, dtype=torch.float64, device=device)
    now = torch.tensor([len(curve)], device=device)

    def descend(batch: tuple[Tensor, ...]) -> None:
        for group in descent.param_groups:
            group["lr"].copy_(rates[now][0])
        descent.zero_grad()
        with accelerator.autocast():
            loss = wrapped(*batch)
        accelerator.backward(loss)
        descent.step()
        losses[now] = loss.detach().double()
        now.add_(1)

    take_step: _PlainStep | _CapturedStep = _PlainStep(descend, draw, generator)
    if device.type == "cuda" and isinstance(draw, CapturableDraw) and accelerator.num_processes == 1:
        take_step = _CapturedStep(descend, draw, generator)

    def on_plateau() -> bool:
        # At full reports only: a resumed run then asks at the same steps as an unbroken one.
        return patience is not None and len(curve) % REPORT_EVERY == 0 and _on_plateau(curve, patience, tol)

    start, plateau, stop = time.monotonic(), on_plateau(), 0.0
    show = verbose and accelerator.is_main_process and sys.stderr.isatty()
    with (
        _deferred_interrupt() as interrupted,
        _progress_bar(title, max_iter, show) as report,
        _on(device),
    ):
        while len(curve) < max_iter and not plateau:
            first = step = len(curve)
            for step in range(first, min((first // REPORT_EVERY + 1) * REPORT_EVERY, max_iter)):
                take_step(step)
                if interrupted.is_set() and accelerator.num_processes == 1:
                    break
            # Processes must save and stop at one step, but have their own clocks and signals: any one asks for all.
            asked = losses.new_tensor([interrupted.is_set(), checkpoint is not None and checkpoint.is_due()])
            news = accelerator.reduce(torch.cat([losses[first : step + 1], asked]), "mean")
            *new, stop, save = news.tolist()  # the one wait for the device
            curve += new
            check_losses(curve, len(new), max_iter, learning_rate)
            report(len(curve), curve[-1])
            plateau = on_plateau()
            if save or stop or plateau or len(curve) == max_iter:
                check_weights(objective, curve, max_iter, learning_rate)
                if checkpoint is not None:
                    checkpoint.write(state, curve)
            if stop:
                break
        if stop or interrupted.is_set():
            raise KeyboardInterrupt(_interrupted_message(len(curve), max_iter, checkpoint))
    objective.eval()
    return TrainingLog(np.asarray(curve), time.monotonic() - start, plateau)


@dataclass
class _PlainStep:
    """Draw, then descend."""

    descend: Callable[[tuple[Tensor, ...]], None]
    draw: Draw
    generator: torch.Generator

    def __call__(self, step: int) -> None:
        self.descend(self.draw(step, self.generator))


@dataclass
class _CapturedStep:
    """The same, recorded once as a CUDA graph and replayed: one launch in place of hundreds."""

    descend: Callable[[tuple[Tensor, ...]], None]
    draw: CapturableDraw
    generator: torch.Generator
    _graph: Any = None
    _warm: int = 0

    def __call__(self, step: int) -> None:
        self.draw.prepare(step, self.generator)
        if self._warm < 3:  # steps in which kernels are compiled, buffers allocated and constants copied
            self._warm += 1
            self._on_side_stream()
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            self._graph.register_generator_state(self.generator)
            with torch.cuda.graph(self._graph):
                self.descend(self.draw.batch(self.generator))
        self._graph.replay()

    def _on_side_stream(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.descend(self.draw.batch(self.generator))
        torch.cuda.current_stream().wait_stream(side)


@contextmanager
def _on(device: torch.device):
    """Make a GPU the current one, as streams and graphs want it, and let the encoder's products run in TF32."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with torch.cuda.device(device):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _on_plateau(curve: list[float], patience: int, tol: float) -> bool:
    if len(curve) < 2 * patience:
        return False
    before, lately = curve[-2 * patience : -patience], curve[-patience:]
    return float(np.mean(before) - np.mean(lately)) < tol


def _interrupted_message(step: int, max_iter: int, checkpoint: Checkpoint | None) -> str:
    way_on = (
        f"the same fit will go on from {checkpoint.path}"
        if checkpoint is not None
        else "give checkpoint=… to be able to go on"
    )
    return f"training: stopped at step {step} of {max_iter}; {way_on}."


@contextmanager
def _deferred_interrupt():
    """Turn Ctrl-C into an event, so that no step is cut in half; a second one stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield event
        return

    def ask(signum, frame):
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _progress_bar(title: str, max_iter: int, show: bool):
    """Yield ``report(step, loss)``, which draws a bar with the loss and the time left, or nothing."""
    if not show:
        yield lambda step, loss: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=max_iter, loss=math.nan)
        yield lambda step, loss: progress.update(task, completed=step, loss=loss)
