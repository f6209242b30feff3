"""The training loop, and its options as a value: precision, callbacks, checkpoints, early stopping.

An *objective* is a module whose forward pass maps a batch to the loss. :meth:`Trainer.train` minimises it. Nothing in a
step waits for the device: losses are read back only once every :data:`REPORT_EVERY` steps.
"""

from __future__ import annotations

import math
import numbers
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import check_scalar
from torch import nn

from pindown import _random
from pindown._random import RandomState
from pindown.data.batches import Batches
from pindown.training.callbacks import Callback, Report, following
from pindown.training.checkpoints import Checkpoint, State, stable_repr
from pindown.training.devices import current, processes
from pindown.training.divergence import check_losses, check_weights
from pindown.training.early_stopping import (
    MIN_ANNEALING,
    EarlyStopping,
    Length,
    Phase,
    Rollback,
    StepPlan,
    Validation,
    by_step,
)
from pindown.training.optimizers import MakeOptimizer, Schedule, adam, cosine
from pindown.training.steps import LARGEST_SCALE, Descent, step_taker

REPORT_EVERY = 25  # steps between two times that losses are read

DETERMINE_THE_RESULT = "weight_decay", "optimizer", "validation_fraction", "precision", "accumulate", "patience", "tol"
"""Parameters of a trainer on which the result of a fit depends."""


@dataclass(frozen=True)
class TrainingLog:
    """The history of a training; loss curve and step plan are those of the steps that led to the weights kept.

    See `pindown.training.early_stopping` for rollbacks and step plans.
    """

    loss_curve: np.ndarray  # (n_iter,)
    seconds: float  # wall-clock time of this call
    stopped_on_plateau: bool  # whether the loss stopped improving: ``Trainer(patience=…)``
    shortfall: str = ""  # a sentence if more steps would clearly help
    held_out: tuple[tuple[int, float], ...] = ()  # losses on the validation set, after so many steps
    rollback: Rollback | None = None  # where training rolled back because they rose
    step_plan: tuple[Phase, ...] = ()  # the schedule that was followed

    @property
    def n_iter(self) -> int:
        """Number of steps that led to the weights kept, including those before a resumed checkpoint."""
        return len(self.loss_curve)

    @property
    def validation_loss(self) -> float:
        """The validation loss of the weights that were kept."""
        losses = [loss for _, loss in self.held_out]
        return losses[-1] if self.rollback is None else min(losses)


@dataclass(frozen=True)
class TrainingDefaults:
    """What a method trains with unless its user chooses otherwise.

    By default the learning rate is .01, and .003 for vectors with fewer than a hundred samples per feature. The weight
    decay is 10,000 / n_samples, at most 2, as with a prior on the weights whose influence falls with n.
    """

    batch_size: int = 512
    learning_rates: tuple[float, float] | None = None  # of vectors and of images
    weight_decay: float | None = None
    min_weight_decay: float = 0.0  # of vectors, if ``weight_decay`` is None
    optimizer: MakeOptimizer = adam
    schedule: Schedule = cosine
    adversarial: bool = False  # whether parts of the objective compete: no samples are held out for early stopping
    cross_validated: bool = True  # whether few samples are held out in folds


@dataclass(frozen=True)
class FitPart:
    """One of several trainings in a fit: its name, its settings, and its steps if they are known."""

    title: str = "fit"  # in messages and reports
    settings: Mapping[str, object] = field(default_factory=dict)  # that its checkpoint must agree with
    epoch: float = math.inf  # batches after which the same samples come again
    first_round: int = 0  # steps of the first round, if max_iter is None; 0 takes 2,000
    step_plan: Sequence[Phase] | None = None  # by default that of the trainer, if any


@dataclass(frozen=True)
class Trainer:
    """The options of training, as one value shared by all estimators.

    Parameters
    ----------
    weight_decay : float or None
        Fraction of the weight matrices subtracted per step, in units of the learning rate. None: the method's default,
        such as 10,000 / n_samples, at most 2, for `Classify`.
    optimizer : callable or None
        ``optimizers.adam``, or your own function: see `pindown.training.optimizers`. None: the method's default.
    validation_fraction : float
        Fraction of the samples to hold out, at most 2,000 of them: training stops early by their loss, and
        ``held_out_`` is measured on them. If that makes fewer than 100, each sample is held out once, in five folds. 0
        holds none out.
    precision : torch.dtype or None
        Precision of the products in the forward and backward pass: None or ``torch.float32``, ``torch.bfloat16`` or
        ``torch.float16``. Weights and the state of the optimizer stay in float32.
    compile : bool
        Compile the objective's forward pass by ``torch.compile``: the first step takes longer, the others less time.
    accumulate : int
        Batches per step, over which gradients are averaged: for batches that do not fit into memory at once.
    callbacks : tuple of Callback
        Are called as training goes on: see `pindown.training.callbacks`.
    checkpoint : path or None
        File to save the state to, and to resume from if it exists. Parts of a fit, such as folds, have files next to
        it. A resumed run gives the same result as an uninterrupted one.
    save_every : float
        Minimum number of seconds between two saves.
    patience : int or None
        Stop on a plateau: once the mean loss over this many steps is less than ``tol`` below that of as many before.
    tol : float
        See ``patience``.
    step_plan : StepPlan or None
        The steps to take, if a fit to similar samples has found them: its ``held_out_.step_plan``.

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
    >>> log = Trainer().train(objective, lambda step, generator: batch, max_iter=300, learning_rate=0.1, seed=0)
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
        defaults: TrainingDefaults = TrainingDefaults(weight_decay=0.0),  # noqa: B008 (a frozen value)
        validation: Validation | None = None,
        part: FitPart = FitPart(),  # noqa: B008
    ) -> TrainingLog:
        """Minimise an objective, in place and on its device; several processes average their gradients.

        Parameters
        ----------
        objective
            Module whose forward pass maps a batch to a scalar loss.
        draw
            Called as ``draw(step, generator)``, returns the batch.
        max_iter
            Number of steps. None takes 2,000, and then, with the schedule started again, as many again for as long as
            the loss clearly fell in the middle of the last round, up to 32,000 in all.
        learning_rate
            At the top of the schedule.
        seed
            Of the generator handed to ``draw``.
        defaults
            Schedule of the learning rate; optimizer and weight decay where the trainer's own are None.
        validation
            The validation set: see `pindown.training.early_stopping`.
        part
            What a fit of several trainings says about this one.

        Raises
        ------
        TrainingDivergedError, CallbackError, KeyboardInterrupt
            The last after Ctrl-C, once the running step is finished and the checkpoint is written.
        """
        self.check()
        step_plan = self.step_plan.phases if part.step_plan is None and self.step_plan is not None else part.step_plan
        epoch = math.inf if validation is not None else part.epoch / self.accumulate
        length = Length(max_iter, epoch, not defaults.adversarial, part.first_round)
        accelerator, device = processes(), next(objective.parameters()).device
        objective.train()
        # Each process needs other samples; the stride keeps process k of seed s apart from process 0 of seed s + k.
        generator = _random.generator((seed + 1_000_003 * accelerator.process_index) % 2**63, device)
        scale = torch.tensor(LARGEST_SCALE, device=device) if self.precision is torch.float16 else None
        stopping = None if validation is None else EarlyStopping(validation, length)
        weight_decay = defaults.weight_decay if self.weight_decay is None else self.weight_decay
        optimizer = (self.optimizer or defaults.optimizer)(objective, learning_rate, weight_decay or 0.0)
        state = State(objective, optimizer, generator, accelerator, scale, stopping)
        checkpoint = self._checkpoint(part.settings)
        curve: list[float] = checkpoint.restore(state) if checkpoint is not None else []
        planned = sum(phase.taken for phase in step_plan or ())
        may_anneal = stopping is not None or step_plan is not None
        descent = Descent(
            state,
            most=max(2 * length.most + MIN_ANNEALING, planned) if may_anneal else length.most,
            first=len(curve),
            learning_rate=learning_rate,
            schedule=defaults.schedule,
            precision=self.precision,
            compile=self.compile,
            accumulate=self.accumulate,
        )
        if stopping is not None and not stopping.evaluations:
            stopping.update(0, stopping.validation.loss(objective), state)
        loop = _Loop(part.title, state, descent, length, step_plan, checkpoint, curve, self._on_plateau)
        start, take_step = time.monotonic(), step_taker(descent, draw, generator)
        callbacks = self.callbacks if accelerator.is_main_process else ()
        with (
            _deferred_interrupt() as interrupted,
            current(device),
            following(callbacks, part.title, loop.plan()) as report_to_all,
        ):
            for report in loop.reports(take_step, interrupted):
                report_to_all(report)
        objective.eval()
        return loop.log(time.monotonic() - start)

    __call__ = train  # scikit-learn accepts callables as defaults of parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, so that scikit-learn reaches them: ``trainer__weight_decay``."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def check(self) -> None:
        """Raise if a parameter is invalid."""
        if self.weight_decay is not None:
            check_scalar(self.weight_decay, "weight_decay", numbers.Real, min_val=0)
        if self.optimizer is not None and not callable(self.optimizer):
            must = "a function (objective, learning_rate, weight_decay) -> torch.optim.Optimizer, or None"
            raise TypeError(f"Trainer: optimizer must be {must}, such as optimizers.adam, got {self.optimizer!r}.")
        check_scalar(self.validation_fraction, "validation_fraction", numbers.Real, min_val=0, max_val=0.5)
        if self.precision not in (None, torch.float32, torch.bfloat16, torch.float16):
            must = "torch.float32, torch.bfloat16, torch.float16 or None (float32)"
            raise ValueError(f"Trainer: precision must be {must}, got {self.precision!r}.")
        check_scalar(self.accumulate, "accumulate", numbers.Integral, min_val=1)
        if self.patience is not None:
            check_scalar(self.patience, "patience", numbers.Integral, min_val=1)
        check_scalar(self.tol, "tol", numbers.Real)
        check_scalar(self.save_every, "save_every", numbers.Real, min_val=0)
        if not isinstance(self.callbacks, tuple) or not all(isinstance(c, Callback) for c in self.callbacks):
            must = "a tuple of pindown.training.callbacks.Callback, such as (Log(),)"
            raise TypeError(f"Trainer: callbacks must be {must}, got {self.callbacks!r}.")
        if not isinstance(self.checkpoint, str | Path | None):
            raise TypeError(f"Trainer: checkpoint must be the path of a file, or None, got {self.checkpoint!r}.")

    def _checkpoint(self, settings: Mapping[str, object]) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        # A parameter at its default is not written, so that old checkpoints still match when parameters are added.
        changed = [name for name in DETERMINE_THE_RESULT if getattr(self, name) != getattr(Trainer, name)]
        ours = {name: stable_repr(getattr(self, name)) for name in changed}
        return Checkpoint(Path(self.checkpoint), {**settings, **ours}, self.save_every)

    def _on_plateau(self, curve: list[float]) -> bool:
        # At full reports only: a resumed run then asks at the same steps as an uninterrupted one.
        if self.patience is None or len(curve) % REPORT_EVERY or len(curve) < 2 * self.patience:
            return False
        before, lately = curve[-2 * self.patience : -self.patience], curve[-self.patience :]
        return float(np.mean(before) - np.mean(lately)) < self.tol


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingParameters:
    """The parameters of training that estimators share; ``set_params`` also reaches fields of those that are values.

    ``set_params(trainer__weight_decay=0.1)`` replaces the trainer by one with another weight decay.

    Parameters
    ----------
    batch_size : int or None
        Samples per step; None takes the method's default, or all if there are fewer.
    max_iter : int or None
        Number of steps. None takes 2,000, and continues in rounds twice as long while the loss still clearly falls, up
        to 32,000 in all. With a number, `fit` warns if more steps would clearly help.
    trainer : Trainer
        Weight decay, optimizer, fraction of the samples to hold out, precision, checkpoint, callbacks …: see `Trainer`.
    device : str or None
        None takes a GPU if there is one.
    verbose : bool
        Show progress, if there is a terminal.
    random_state : int, RandomState or None
        Seed.
    """

    batch_size: int | None = None
    max_iter: int | None = None
    trainer: Trainer = Trainer()
    device: str | None = None
    verbose: bool = True
    random_state: RandomState = None

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and fields of those that are frozen values as ``trainer__…``."""
        nested: dict[str, dict[str, Any]] = {}
        for name in [*params]:
            outer, _, inner = name.partition("__")
            if inner and is_dataclass(params.get(outer, getattr(self, outer, None))):
                nested.setdefault(outer, {})[inner] = params.pop(name)
        super().set_params(**params)  # type: ignore[misc]  # the estimator's
        for outer, changes in nested.items():
            value = getattr(self, outer)
            if unknown := changes.keys() - {each.name for each in fields(value)}:
                raise ValueError(f"Invalid parameter {min(unknown)!r} for estimator {value!r}.")
            setattr(self, outer, replace(value, **changes))
        return self


@dataclass
class _Loop:
    """The loop of a training: its state, the steps taken, and how many there will be."""

    title: str
    state: State
    descent: Descent
    length: Length
    step_plan: Sequence[Phase] | None  # the steps to take, if they are known beforehand
    checkpoint: Checkpoint | None
    curve: list[float]  # the loss of each step taken
    is_flat: Callable[[list[float]], bool]  # whether a loss curve has reached a plateau

    def plan(self) -> int:
        """Lay out the steps as far as they are known; return their number."""
        if self.step_plan is not None:
            return self.descent.plan(self.step_plan)
        if self.state.stopping is not None:
            return self.descent.plan(self.state.stopping.phases)
        return self.descent.plan([Phase(n, n) for n in self.length.rounds(self.curve)])

    def reports(self, take_step: Callable[[int], None], interrupted: threading.Event) -> Iterator[Report]:
        """Take all steps and yield reports; if interrupted, raise once the state is saved."""
        total, curve, stop = self.plan(), self.curve, 0.0
        while len(curve) < total and not self.is_flat(curve) and not stop:
            first = step = len(curve)
            for step in range(first, min((first // REPORT_EVERY + 1) * REPORT_EVERY, total)):
                take_step(step)
                if interrupted.is_set() and self.state.accelerator.num_processes == 1:
                    break
            stopping = self.state.stopping if (step + 1) % REPORT_EVERY == 0 or step + 1 == total else None
            held_out = None if stopping is None else stopping.validation.loss(self.state.objective)
            # Processes must save and stop at one step, but have their own clocks and signals: any one decides for all.
            mine = [interrupted.is_set(), self.checkpoint is not None and self.checkpoint.is_due(), held_out or 0.0]
            *new, stop, save, shared = self.descent.read(first, step + 1, mine)
            curve += new
            check_losses(curve, len(new), total, self.descent.learning_rate, self.title)
            if stopping is not None:
                held_out = shared
                stopping.update(len(curve), shared, self.state)
            if held_out is not None or self.length.may_end(len(curve)):
                total = self.plan()  # early stopping shortens the plan; a loss that still falls lengthens it
            if save or stop or self.is_flat(curve) or len(curve) == total:
                check_weights(self.state.objective, curve, total, self.descent.learning_rate, self.title)
                if self.checkpoint is not None:
                    self.checkpoint.write(self.state, curve)
            rates = self.descent.rates[step]
            yield Report(self.title, len(curve), total, tuple(new), rates, held_out, self.state.objective)
        if stop or interrupted.is_set():
            remedy = "give checkpoint=… to be able to resume"
            if self.checkpoint is not None:
                remedy = f"the same fit will resume from {self.checkpoint.path}"
            raise KeyboardInterrupt(f"{self.title}: stopped at step {len(curve)} of {total}; {remedy}.")

    def log(self, seconds: float) -> TrainingLog:
        """Return the history, and leave the weights of the step that is kept."""
        curve, plateau, stopping = self.curve, self.is_flat(self.curve), self.state.stopping
        if stopping is None:
            shortfall = "" if plateau or self.step_plan is not None else self.length.shortfall(curve)
            return TrainingLog(np.asarray(curve), seconds, plateau, shortfall)
        stopping.restore_best(self.state)
        rollback, held_out, steps = stopping.rollback, tuple(stopping.evaluations), stopping.step_plan
        shortfall = "" if plateau or rollback is not None else self.length.shortfall(by_step(held_out))
        return TrainingLog(stopping.kept(curve), seconds, plateau, shortfall, held_out, rollback, steps)


@contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
    """Turn Ctrl-C into an event, so that no step is cut in half; a second one stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield event
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
