"""Callbacks, which follow a training by its reports. Optional packages are imported when they are used."""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Report:
    """The state of a training at a step at which losses are read back."""

    title: str  # name of the training
    step: int  # number of steps taken
    n_steps: int  # number of steps planned; with ``max_iter=None`` the plan may grow
    losses: tuple[float, ...]  # of the steps since the last report
    rates: tuple[float, ...]  # learning rate of each parameter group in the latest step
    held_out: float | None = None  # loss on the validation set, if it was evaluated
    objective: Any = None  # the module that is trained, with its present weights; do not change it

    @property
    def loss(self) -> float:
        """Loss of the latest step."""
        return self.losses[-1]


class Callback(ABC):
    """Follows a training, in the main process; a subclass defines `report`."""

    def begin(self, title: str, n_steps: int) -> None:  # noqa: B027 (most have nothing to do)
        """Prepare for a training; called before the first step."""

    @abstractmethod
    def report(self, report: Report) -> None:
        """Handle a report; called every few steps, and after the last."""

    def end(self) -> None:  # noqa: B027
        """Clean up; called after the last step, and after an error."""


@dataclass(frozen=True)
class Log(Callback):
    """Logs a line per report at level INFO, with the standard library's ``logging``.

    Examples
    --------
    >>> Log("my.study").report(Report("fit", 25, 100, (0.5, 0.25), (1e-3,)))
    """

    name: str = "pindown"

    def report(self, report: Report) -> None:
        """Write a line."""
        rates = ", ".join(f"{rate:.2e}" for rate in dict.fromkeys(report.rates))
        where = f"step {report.step} of {report.n_steps}"
        logging.getLogger(self.name).info("%s: %s, loss %.5g, rate %s", report.title, where, report.loss, rates)


@dataclass(eq=False)
class TensorBoard(Callback):
    """Writes losses and learning rates for TensorBoard; needs the package ``tensorboard``."""

    folder: str | Path
    _writer: Any = field(default=None, init=False, repr=False)

    def begin(self, title: str, n_steps: int) -> None:
        """Open a file in the run's own folder."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(Path(self.folder, title.replace(" ", "-"))))

    def report(self, report: Report) -> None:
        """Write the numbers."""
        for name, value in numbers(report).items():
            self._writer.add_scalar(name, value, report.step)

    def end(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


@dataclass(eq=False)
class WeightsAndBiases(Callback):
    """Sends losses and learning rates to Weights & Biases, a run per training; needs the package ``wandb``."""

    project: str
    _run: Any = field(default=None, init=False, repr=False)

    def begin(self, title: str, n_steps: int) -> None:
        """Open a run."""
        import wandb

        self._run = wandb.init(project=self.project, name=title, reinit=True)

    def report(self, report: Report) -> None:
        """Send the numbers."""
        self._run.log(numbers(report), step=report.step)

    def end(self) -> None:
        """Close the run."""
        if self._run is not None:
            self._run.finish()


@dataclass(eq=False)
class ProgressBar(Callback):
    """Shows a bar with the loss and the time left, if standard error is a terminal."""

    _progress: Any = field(default=None, init=False, repr=False)
    _task: Any = field(default=None, init=False, repr=False)

    def begin(self, title: str, n_steps: int) -> None:
        """Show an empty bar."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TimeRemainingColumn

        texts = "{task.completed}/{task.total}", "loss {task.fields[loss]:.4f}"
        columns = ("{task.description}", BarColumn(), *texts, TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(title, total=n_steps, loss=float("nan"))
        self._progress.start()

    def report(self, report: Report) -> None:
        """Update the bar."""
        if self._progress is not None:
            self._progress.update(self._task, completed=report.step, total=report.n_steps, loss=report.loss)

    def end(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def numbers(report: Report) -> dict[str, float]:
    """Return the numbers to plot: the losses, and the learning rate of each parameter group."""
    held_out = {} if report.held_out is None else {"loss held out": report.held_out}
    return {"loss": report.loss} | held_out | {f"rate/{k}": rate for k, rate in enumerate(report.rates)}


class CallbackError(RuntimeError):
    """A callback raised; its error is the cause of this one."""


@contextmanager
def following(callbacks: Sequence[Callback], title: str, n_steps: int) -> Iterator[Callable[[Report], None]]:
    """Begin all callbacks, yield a function that reports to all, and end them however the block is left."""

    def report_to_all(report: Report) -> None:
        for callback in callbacks:
            with _named_in_errors(title, callback, f"at step {report.step} of {report.n_steps}"):
                callback.report(report)

    with ExitStack() as stack:
        for callback in callbacks:
            stack.callback(_end, title, callback)
            with _named_in_errors(title, callback, "before the first step"):
                callback.begin(title, n_steps)
        yield report_to_all


def _end(title: str, callback: Callback) -> None:
    with _named_in_errors(title, callback, "after the last step"):
        callback.end()


@contextmanager
def _named_in_errors(title: str, callback: Callback, when: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise CallbackError(
            f"{title}: the callback {type(callback).__name__} raised {type(error).__name__} {when}: {error}. "
            "Fix it, or remove it from callbacks."
        ) from error
