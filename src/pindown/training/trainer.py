"""The one training loop, and how it runs as a value: precision, callbacks, checkpoints, stopping.

An *objective* is a module whose forward pass maps a batch to the loss. :meth:`Trainer.train` minimises it. Nothing in a
step waits for the device: losses are read back only once every :data:`REPORT_EVERY` steps.
"""

from __future__ import annotations

import math
import numbers
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import check_scalar
from torch import nn

from pindown import _random
from pindown.data.batches import Batches
from pindown.training.callbacks import Callback, ProgressBar, Report, audience
from pindown.training.checkpoints import Checkpoint, State, stable_repr
from pindown.training.convergence import Length
from pindown.training.devices import best_device, current, processes
from pindown.training.divergence import check_losses, check_weights
from pindown.training.optimizers import MakeOptimizer, adam
from pindown.training.schedules import Schedule, cosine
from pindown.training.steps import LARGEST_SCALE, Descent, taker
from pindown.training.validation import (
    LEAST_SETTLING,
    EarlyStopping,
    Phase,
    Rollback,
    StepPlan,
    Validation,
    by_step,
    full_phases,
)

REPORT_EVERY = 25

DETERMINE_THE_RESULT = (
    *("weight_decay", "optimizer", "validation_fraction"),
    *("precision", "accumulate", "patience", "tol"),
)
"""Parameters of a trainer on which the result of a fit depends."""

PRECISIONS = (None, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class TrainingLog:
    """What happened: the loss of each step, the wall-clock seconds of this call, and why it ended.

    ``shortfall`` is a sentence if more steps would clearly help, and empty if not; see `pindown.training.convergence`.
    ``held_out`` are the losses on rows held out, each with the number of steps taken by then, and ``turned`` is where
    training went back to an earlier moment because they rose; see `pindown.training.validation`. The loss curve and the
    ``way`` are those of the steps that led to the weights that were kept.
    """

    loss_curve: np.ndarray  # (n_iter,)
    seconds: float
    stopped_on_plateau: bool
    shortfall: str = ""
    held_out: tuple[tuple[int, float], ...] = ()
    rollback: Rollback | None = None
    step_plan: tuple[Phase, ...] = ()

    @property
    def n_iter(self) -> int:
        """Number of steps to what was kept, those before a resumed checkpoint included."""
        return len(self.loss_curve)


@dataclass(frozen=True)
class TrainingDefaults:
    """What a method trains with where its user chooses nothing else; a class of estimators states it once.

    Parameters
    ----------
    batch_size : int
        Samples of a step.
    learning_rates : (float, float) or None
        For vectors and for images. None: .01, and .003 for vectors with fewer than a hundred samples per feature.
    weight_decay : float or None
        None: 10,000 / n_samples, at most 2, as with a prior on the weights whose influence falls with n.
    min_weight_decay : float
        The least for vectors, where ``weight_decay`` is None.
    optimizer, schedule : callable
        See `pindown.training.optimizers` and `pindown.training.schedules`.
    adversarial : bool
        Whether parts of the objective are trained against each other. Its loss then need not fall, so that no samples
        are held out to stop by.
    """

    batch_size: int = 512
    learning_rates: tuple[float, float] | None = None
    weight_decay: float | None = None
    min_weight_decay: float = 0.0
    optimizer: MakeOptimizer = adam
    schedule: Schedule = cosine
    adversarial: bool = False


@dataclass(frozen=True)
class Trainer:
    """How to train, whatever it is that is trained: one value, shared by all estimators.

    Parameters
    ----------
    weight_decay : float or None
        Share of the weight matrices taken off per step, in units of the learning rate. None: what the method takes,
        such as 10,000 / n_samples, at most 2, for `Classify`.
    optimizer : callable or None
        ``optimizers.adam``; or ``optimizers.muon``, whose steps are slower and fewer: for long fits on a GPU; or a
        function of your own, see `pindown.training.optimizers`. None: what the method takes.
    validation_fraction : float
        Fraction of the samples to hold out, at most 2,000 of them: training stops early by their loss, and
        ``held_out_`` is measured on them. If that makes fewer than 100, each sample is held out once, in five folds. 0
        holds none out.
    precision
        Of the products in the forward and backward pass: None or ``torch.float32``, ``torch.bfloat16`` or
        ``torch.float16``. Weights, and what the optimiser keeps, stay in float32.
    compile
        Compile the objective's forward pass by ``torch.compile``: the first step takes longer, the others less time.
    accumulate
        Batches per step, over which gradients are averaged: for batches that do not fit into memory at once.
    callbacks
        Follow the training: see `pindown.training.callbacks`.
    checkpoint
        File to save the state to now and then, and to go on from if it is there; parts of a fit, such as folds, have
        files beside it. A resumed run gives the same result as an unbroken one.
    save_every
        Least seconds between two saves.
    patience, tol
        Stop once the mean loss over this many steps is less than ``tol`` below that of as many steps before.
    step_plan
        The steps to take, where a fit to samples of the same kind has found them: its ``held_out_.step_plan``.

    Examples
    --------
    The mean of some numbers minimises their squared distance:

    >>> class Distance(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.centre = nn.Parameter(torch.zeros(()))
    ...     def forward(self, x):
    ...         return (x - self.centre).square().mean()
    >>> objective, batch = Distance(), (torch.tensor([1.0, 3.0]),)
    >>> options = {"max_iter": 300, "learning_rate": 0.1, "seed": 0, "device": "cpu"}  # the batch's device
    >>> log = Trainer().train(objective, lambda step, generator: batch, **options)
    >>> round(objective.centre.item(), 3), round(float(log.loss_curve[-1]), 3)
    (2.0, 1.0)
    """

    weight_decay: float | None = None
    optimizer: MakeOptimizer | None = None
    validation_fraction: float = 0.1
    precision: torch.dtype | None = None
    compile: bool = False
    accumulate: int = 1
    callbacks: tuple[Callback, ...] = ()
    checkpoint: str | Path | None = None
    save_every: float = 10.0
    patience: int | None = None
    tol: float = 1e-3
    step_plan: StepPlan | None = None

    def train(
        self,
        objective: nn.Module,
        draw: Batches,
        *,
        max_iter: int | None,
        learning_rate: float,
        seed: int,
        weight_decay: float = 0.0,
        optimizer: MakeOptimizer = adam,
        schedule: Schedule = cosine,
        device: str | torch.device | None = None,
        verbose: bool = True,
        title: str = "fit",
        settings: dict[str, Any] | None = None,
        part: str = "",
        epoch: float = math.inf,
        falls: bool = True,
        validation: Validation | None = None,
        step_plan: Sequence[Phase] | None = None,
        first_round: int = 0,
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
            Number of steps. None takes 2,000, and then, with the schedule anew, as many again for as long as the loss
            clearly fell in the middle of the last round, up to 32,000 in all.
        learning_rate
            At the top of the schedule.
        seed
            Of the generator handed to ``draw``.
        weight_decay, optimizer
            What to take where the trainer's own are None.
        schedule
            Factor of the learning rate as a function of progress in [0, 1].
        device
            Where to train; by default the first GPU if there is one.
        verbose
            Show a progress bar, if there is a terminal to show it on.
        title
            What the bar is called.
        settings
            What the run depends on. A checkpoint with other settings is refused, never overwritten.
        part
            Name of this part of a fit, which is added to the name of its checkpoint.
        epoch
            Batches after which the same rows come again. When they have come many times, a falling loss says nothing.
        falls
            Whether the loss falls as something is learned. In a game it does not, and its curve is not asked.
        validation
            Rows that no step sees. If the loss on them rises, training goes back to their best moment, from which the
            rate comes down; and they say, in place of the loss curve, whether more steps would help.
        way
            The steps to take, if they are known beforehand: ``TrainingLog.way`` of another training. By default those
            that the trainer has, if any.
        first_round
            Steps of the first round, if ``max_iter`` is None; 0 takes 2,000.

        Raises
        ------
        TrainingDivergedError
            If the loss is NaN or infinite, or has grown a thousandfold; if weights are, or are beyond float32's digits.
        CallbackError
            If a callback raised.
        KeyboardInterrupt
            After Ctrl-C, once the running step is finished and the checkpoint is written.
        """
        self.check()
        step_plan = self.step_plan.phases if step_plan is None and self.step_plan is not None else step_plan
        length = Length(max_iter, epoch / self.accumulate if validation is None else math.inf, falls, first_round)
        accelerator, device = processes(), best_device(device)
        objective.to(device).train()
        # Each process needs other samples; the stride keeps process k of seed s apart from process 0 of seed s + k.
        generator = _random.generator((seed + 1_000_003 * accelerator.process_index) % 2**63, device)
        scale = torch.tensor(LARGEST_SCALE, device=device) if self.precision is torch.float16 else None
        stopping = None if validation is None else EarlyStopping(validation, length)
        weight_decay = weight_decay if self.weight_decay is None else self.weight_decay
        steps = (self.optimizer or optimizer)(objective, learning_rate, weight_decay)
        state = State(objective, steps, generator, accelerator, scale, stopping)
        checkpoint = self._checkpoint(settings or {}, part)
        curve: list[float] = checkpoint.restore(state) if checkpoint is not None else []
        bends = stopping is not None or step_plan is not None  # where a schedule is left, to come down from there
        descent = Descent(
            state,
            most=max(2 * length.most + LEAST_SETTLING, sum(phase.taken for phase in step_plan or ()))
            if bends
            else length.most,
            first=len(curve),
            learning_rate=learning_rate,
            schedule=schedule,
            precision=self.precision,
            compile=self.compile,
            accumulate=self.accumulate,
        )
        if stopping is not None and not stopping.evaluations:
            stopping.update(0, stopping.rows.loss(objective), state)
        training = _Training(title, state, descent, length, step_plan, checkpoint, curve, self._on_plateau)
        start, take_step = time.monotonic(), taker(descent, draw, generator)
        bar = (ProgressBar(),) if verbose and sys.stderr.isatty() else ()
        told = (*self.callbacks, *bar) if accelerator.is_main_process else ()
        with _deferred_interrupt() as interrupted, current(device), audience(told, title, training.plan()) as tell:
            for report in training.reports(take_step, interrupted):
                tell(report)
        objective.eval()
        return training.log(time.monotonic() - start)

    __call__ = train  # scikit-learn accepts as a default of a parameter what can be called

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, so that scikit-learn reaches them: ``trainer__weight_decay``."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def check(self) -> None:
        """Raise if a parameter is not what it must be."""
        if self.weight_decay is not None:
            check_scalar(self.weight_decay, "weight_decay", numbers.Real, min_val=0)
        if self.optimizer is not None and not callable(self.optimizer):
            raise TypeError(
                "Trainer: optimizer must be a function (objective, learning_rate, weight_decay) -> "
                f"torch.optim.Optimizer, such as pindown.optimizers.muon, or None, got {self.optimizer!r}."
            )
        check_scalar(self.validation_fraction, "validation_fraction", numbers.Real, min_val=0, max_val=0.5)
        if self.precision not in PRECISIONS:
            raise ValueError(
                "Trainer: precision must be torch.float32, torch.bfloat16, torch.float16 or None (float32), "
                f"got {self.precision!r}."
            )
        check_scalar(self.accumulate, "accumulate", numbers.Integral, min_val=1)
        if self.patience is not None:
            check_scalar(self.patience, "patience", numbers.Integral, min_val=1)
        check_scalar(self.tol, "tol", numbers.Real)
        check_scalar(self.save_every, "save_every", numbers.Real, min_val=0)
        if not isinstance(self.callbacks, tuple) or not all(isinstance(c, Callback) for c in self.callbacks):
            raise TypeError(
                "Trainer: callbacks must be a tuple of pindown.training.callbacks.Callback, such as (Log(),), "
                f"got {self.callbacks!r}."
            )
        if not isinstance(self.checkpoint, str | Path | None):
            raise TypeError(f"Trainer: checkpoint must be the path of a file, or None, got {self.checkpoint!r}.")

    def _checkpoint(self, settings: dict[str, Any], part: str) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        path = Path(self.checkpoint)
        path = path.with_stem(f"{path.stem}-{part.replace(' ', '-')}") if part else path
        # A parameter at its default is not written, so that old checkpoints still match when parameters are added.
        chosen = {
            name: stable_repr(getattr(self, name))
            for name in DETERMINE_THE_RESULT
            if getattr(self, name) != getattr(Trainer, name)
        }
        return Checkpoint(path, settings | chosen, self.save_every)

    def _on_plateau(self, curve: list[float]) -> bool:
        # At full reports only: a resumed run then asks at the same steps as an unbroken one.
        if self.patience is None or len(curve) % REPORT_EVERY or len(curve) < 2 * self.patience:
            return False
        before, lately = curve[-2 * self.patience : -self.patience], curve[-self.patience :]
        return float(np.mean(before) - np.mean(lately)) < self.tol


class TrainerMixin:
    """An estimator with a parameter ``trainer``, whose fields ``set_params`` and `GridSearchCV` reach; abstract.

    A trainer is frozen, so that ``set_params(trainer__weight_decay=0.1)`` replaces it.
    """

    trainer: Trainer

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator, and those of its trainer as ``trainer__…``."""
        inner = {name.removeprefix("trainer__"): params.pop(name) for name in [*params] if name.startswith("trainer__")}
        super().set_params(**params)  # type: ignore[misc]  # the estimator's
        if unknown := inner.keys() - {each.name for each in fields(Trainer)}:
            raise ValueError(f"Invalid parameter {min(unknown)!r} for estimator {self.trainer!r}.")
        if inner:
            self.trainer = replace(self.trainer, **inner)
        return self


@dataclass
class _Training:
    """A training under way: its state, the steps taken, and how many there are to be."""

    title: str
    state: State
    descent: Descent
    length: Length
    step_plan: Sequence[Phase] | None  # the steps to take, if they are known beforehand
    checkpoint: Checkpoint | None
    curve: list[float]  # the loss of each step taken
    is_flat: Callable[[list[float]], bool]  # whether a curve has come to where it ends

    def plan(self) -> int:
        """Lay out the steps as far as they follow from what is known; return how many that makes."""
        if self.step_plan is not None:
            return self.descent.plan(self.step_plan)
        stopping = self.state.stopping
        return self.descent.plan(full_phases(self.length.rounds(self.curve)) if stopping is None else stopping.phases)

    def reports(self, take_step: Callable[[int], None], interrupted: threading.Event) -> Iterator[Report]:
        """Take all steps, and say now and then how it goes; if it is interrupted, raise once all is saved."""
        total, curve, stop = self.plan(), self.curve, 0.0
        while len(curve) < total and not self.is_flat(curve) and not stop:
            first = step = len(curve)
            for step in range(first, min((first // REPORT_EVERY + 1) * REPORT_EVERY, total)):
                take_step(step)
                if interrupted.is_set() and self.state.accelerator.num_processes == 1:
                    break
            new, held_out, stop, save = self._read(first, step, total, interrupted)
            if held_out is not None or self.length.may_end(len(curve)):
                total = self.plan()
            if save or stop or self.is_flat(curve) or len(curve) == total:
                check_weights(self.state.objective, curve, total, self.descent.learning_rate, self.title)
                if self.checkpoint is not None:
                    self.checkpoint.write(self.state, curve)
            rates = self.descent.course[step]
            yield Report(self.title, len(curve), total, tuple(new), rates, held_out, self.state.objective)
        if stop or interrupted.is_set():
            raise KeyboardInterrupt(_interrupted_message(self.title, len(curve), total, self.checkpoint))

    def _read(
        self, first: int, step: int, total: int, interrupted: threading.Event
    ) -> tuple[list[float], float | None, float, float]:
        """Return the losses of the last steps, that on rows held out, and whether to stop and to save."""
        stopping = self.state.stopping if (step + 1) % REPORT_EVERY == 0 or step + 1 == total else None
        evaluations = stopping.rows.loss(self.state.objective) if stopping is not None else 0.0
        # Processes must save and stop at one step, but have their own clocks and signals: any one asks for all.
        asked = [interrupted.is_set(), self.checkpoint is not None and self.checkpoint.is_due(), evaluations]
        *new, stop, save, evaluations = self.descent.read(first, step + 1, asked)
        self.curve += new
        check_losses(self.curve, len(new), total, self.descent.learning_rate, self.title)
        if stopping is not None:
            stopping.update(len(self.curve), evaluations, self.state)
        return new, None if stopping is None else evaluations, stop, save

    def log(self, seconds: float) -> TrainingLog:
        """Return what happened, and leave the weights at the moment that is kept."""
        plateau, stopping = self.is_flat(self.curve), self.state.stopping
        if stopping is None:
            shortfall = "" if plateau or self.step_plan is not None else self.length.shortfall(self.curve)
            return TrainingLog(np.asarray(self.curve), seconds, plateau, shortfall)
        stopping.restore_best(self.state)
        shortfall = (
            "" if plateau or stopping.rollback is not None else self.length.shortfall(by_step(stopping.evaluations))
        )
        held_out = tuple(stopping.evaluations)
        return TrainingLog(
            stopping.path(self.curve), seconds, plateau, shortfall, held_out, stopping.rollback, stopping.step_plan
        )


def _interrupted_message(title: str, step: int, total: int, checkpoint: Checkpoint | None) -> str:
    way_on = (
        f"the same fit will go on from {checkpoint.path}"
        if checkpoint is not None
        else "give checkpoint=… to be able to go on"
    )
    return f"{title}: stopped at step {step} of {total}; {way_on}."


@contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
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
