"""From `Prepared` to `Trained`: which samples are learned from, for how many steps, and what is kept.

With many samples a validation set is held out, and training stops early by its loss. With few samples this is
cross-validated: one objective per fold is trained, all in the same loop, and the mean of their validation losses says
how many steps to take. Then all samples are learned from, in as many steps.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from pindown import _random
from pindown.data import GeneratorSource
from pindown.data.batches import Batches, GeneratedBatches, StreamBatches, augmented, to_device, zip_batches
from pindown.data.sources import Batch
from pindown.data.splits import Split, taken
from pindown.methods.held_out import HeldOut
from pindown.methods.inputs import DataSummary, Prepared, TrainingInput
from pindown.methods.parameters import default_learning_rate, default_weight_decay, settings
from pindown.networks import SkipMLP, built
from pindown.networks.encoder import Encoder
from pindown.networks.images import first_round_for, precision_for
from pindown.networks.preprocessing import Preprocessing
from pindown.training import FitPart, Trainer, TrainingLog, Validation
from pindown.training.callbacks import ProgressBar
from pindown.training.early_stopping import Phase, StepPlan

if TYPE_CHECKING:
    from pindown.methods.base import BaseEncoder

MAX_LINEAR_SAMPLES, CLEARLY = 1_000, 0.01
"""A linear encoder is tried, too, with up to so many samples: with more, a useless nonlinearity is not learned. It is
kept if its validation loss is lower by this fraction of the total decrease: few samples hardly distinguish two
encoders, and then the one that can invert a nonlinear mixing is preferred."""

MAX_STARTS, STUCK, LAST, SEED_STRIDE = 4, 0.15, 10, 7_919
"""After cross-validation the fit to all samples is restarted, up to so many starts, if its loss ends above that of the
folds by more than this fraction of its decrease; the number of steps at the end whose mean loss counts; and the
difference between the seeds of two starts."""


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training learned. Losses are compared relative to chance, which depends on the number of samples."""

    objective: nn.Module
    log: TrainingLog
    summary: DataSummary
    linear: bool = False  # whether an encoder that can be nonlinear was trained as a linear one
    chance: float = 0.0  # loss at chance level, if it is known
    details: object = None  # what the method learned apart from the objective
    held_out: HeldOut | None = None

    @property
    def encoder(self) -> Encoder:
        """The trained encoder."""
        assert isinstance(self.objective.encoder, Encoder)
        return self.objective.encoder

    @property
    def final_loss(self) -> float:
        """The training loss at the end, relative to chance."""
        return float(np.mean(self.log.loss_curve[-LAST:])) - self.chance

    @property
    def step_plan(self) -> StepPlan:
        """The steps that led to the weights that were kept."""
        return StepPlan(self.log.step_plan, float(self.log.loss_curve[0]) - self.chance, self.final_loss)

    def is_stuck(self, step_plan: StepPlan) -> bool:
        """Return whether its final loss is far above that of the training that the plan is from."""
        decrease = step_plan.first - step_plan.last
        return decrease > 0 and self.final_loss > step_plan.last + STUCK * decrease

    def is_clearly_better_than(self, other: Trained) -> bool:
        """Return whether its validation loss is clearly lower."""
        loss = other.log.validation_loss
        return self.log.validation_loss < loss - CLEARLY * max(other.log.held_out[0][1] - loss, 0.0)


@dataclass(frozen=True, eq=False)
class Training:
    """One training of an estimator: its batches, and how objectives are made and minimised."""

    est: BaseEncoder  # of which only parameters are used
    prepared: Prepared
    batches: Batches
    validation: Validation | None = None
    name: str = ""  # among the trainings of a fit
    linear: bool = False  # whether a linear encoder is trained in place of one with a linear skip path
    step_plan: Sequence[Phase] | None = None  # the steps to take, if they are known

    @property
    def summary(self) -> DataSummary:
        """What the method read off the data."""
        return self.prepared.summary

    def new_objective(self, seed: int, n_components: int | None = None) -> nn.Module:
        """Return the objective with an encoder at its initialisation."""
        est, prepared, preprocessing = self.est, self.prepared, self.prepared.preprocessing
        summary = prepared.summary
        if n_components is not None:
            summary = replace(summary, n_components=n_components)
        with _random.forked(seed):
            make = est._encoder_for(preprocessing, prepared.device)
            body = built(type(est).__name__, "encoder", make, shape_of(preprocessing), summary.n_components)
            body = body.linear if self.linear and isinstance(body, SkipMLP) else body
            encoder = Encoder(copy.deepcopy(preprocessing), body, prepared.space)
            return est._objective(encoder, summary, self.first_batches(seed))

    def first_batches(self, seed: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield batches from a separate generator, so that they do not change the random numbers of the training."""
        generator = _random.generator(seed, self.prepared.device)
        return (self.batches(step, generator) for step in count())

    def minimise(self, objective: nn.Module, seed: int, part: str = "", max_iter: int | None = None) -> TrainingLog:
        """Minimise an objective in place: in a named part of the training, in as many steps as the fit by default."""
        est, defaults, n_samples = self.est, self.est.training_defaults, self.prepared.n_samples
        part, device = " ".join(filter(None, [self.name, part])), self.prepared.device
        trainer = self._trainer(objective, part)
        return trainer.train(
            objective.to(device),
            self.batches,
            max_iter=est.max_iter if max_iter is None else max_iter,
            learning_rate=default_learning_rate(est, n_samples),
            seed=seed,
            defaults=replace(defaults, weight_decay=default_weight_decay(est, n_samples)),
            validation=self.validation,
            part=FitPart(
                title=f"{type(est).__name__} {part}".strip(),
                settings={} if trainer.checkpoint is None else settings(est, self.prepared.inputs.digest),
                epoch=n_samples / (est.batch_size or defaults.batch_size),
                first_round=first_round_for(est.shape_in_, device),
                step_plan=self.step_plan,
            ),
        )

    def _trainer(self, objective: nn.Module, part: str) -> Trainer:
        """Return the estimator's trainer with the callbacks, the precision and the checkpoint of a part."""
        trainer, encoder = self.est.trainer, getattr(objective, "encoder", None)
        # Whitening of images takes differences of large numbers, which needs all digits.
        shape = encoder.preprocess.shape_out if isinstance(encoder, Encoder) else ()
        path = trainer.checkpoint
        if path is not None and part:
            path = Path(path).with_stem(f"{Path(path).stem}-{part.replace(' ', '-')}")
        callbacks = (*trainer.callbacks, *([ProgressBar()] if self.est.verbose else []))
        precision = precision_for(shape, self.prepared.device, trainer.precision)
        return replace(trainer, precision=precision, callbacks=callbacks, checkpoint=path)

    def trained(self, objective: nn.Module, log: TrainingLog, details: object = None) -> Trained:
        """Return what was learned, with what the training knows of it."""
        chance = self.est._chance_loss(self.prepared.n_samples) or 0.0
        return Trained(objective, log, self.prepared.summary, self.linear, chance, details)


class ParallelObjectives(nn.Module):
    """Objectives that are trained together, each on its own batches: the mean of their losses."""

    def __init__(self, objectives: Sequence[nn.Module]) -> None:
        super().__init__()
        self.objectives = nn.ModuleList(objectives)

    def forward(self, *fields: Tensor) -> Tensor:
        """Return the mean loss of as many batches as there are objectives."""
        n = len(fields) // len(self.objectives)
        batches = (fields[n * k : n * (k + 1)] for k in range(len(self.objectives)))
        return torch.stack([one(*batch) for one, batch in zip(self.objectives, batches, strict=True)]).mean()


def train(est: BaseEncoder, prepared: Prepared) -> Trained:
    """Train an estimator on prepared data, with the validation that suits the number of samples."""
    splits, step_plan = prepared.inputs.splits, est.trainer.step_plan
    if not splits and step_plan is not None:
        return train_by_plan(est, prepared, step_plan)
    if not splits:
        return est._optimise(Training(est, prepared, training_batches(est, prepared, prepared.samples)), prepared.seed)
    folds = [prepared] if len(splits) == 1 else [fold_of(est, prepared, split) for split in splits]
    train_once = train_with_validation if len(splits) == 1 else cross_validate
    best = train_once(est, folds, linear=False)
    if est._tries_linear(prepared.preprocessing) and len(prepared.inputs.data) <= MAX_LINEAR_SAMPLES:
        linear = train_once(est, folds, linear=True)
        best = linear if linear.is_clearly_better_than(best) else best
    held_out = held_out_score(est, prepared, best)
    if len(splits) == 1:
        return replace(best, held_out=held_out)
    final = train_by_plan(est, prepared, best.step_plan, linear=best.linear)
    return replace(final, held_out=replace(held_out, n_steps=final.log.n_iter))


def fold_of(est: BaseEncoder, prepared: Prepared, split: Split) -> Prepared:
    """Return data with the training samples of a split to learn from, which also decide the preprocessing."""
    preprocessing = est.fitted_preprocessing(prepared.inputs.data.X, split.learned)
    samples = est._training_samples(prepared.inputs, preprocessing)
    return replace(prepared, preprocessing=preprocessing, samples=samples).with_train_indices(split.learned)


def train_with_validation(est: BaseEncoder, folds: Sequence[Prepared], *, linear: bool) -> Trained:
    """Train on the training samples of a split, with early stopping on the others."""
    (prepared,) = folds
    batches = training_batches(est, prepared, prepared.samples)
    validation = Validation(validation_batches(est, prepared, *prepared.inputs.splits))
    training = Training(est, prepared, batches, validation, "linear" if linear else "", linear)
    return est._optimise(training, prepared.seed)


def cross_validate(est: BaseEncoder, folds: Sequence[Prepared], *, linear: bool) -> Trained:
    """Train one objective per fold, all in the same loop, with early stopping by the mean validation loss."""
    last, seed = folds[-1], folds[-1].seed
    trainings = [Training(est, fold, training_batches(est, fold, fold.samples), linear=linear) for fold in folds]
    objective = ParallelObjectives([training.new_objective(seed) for training in trainings])
    held_out = [validation_batches(est, *each) for each in zip(folds, last.inputs.splits, strict=True)]
    validation = Validation(tuple(tuple(chain(*each)) for each in zip(*held_out, strict=False)))
    batches = zip_batches([training.batches for training in trainings])
    name = f"{'linear ' if linear else ''}{len(folds)} folds"
    training = Training(est, last, batches, validation, name, linear)
    return training.trained(objective, training.minimise(objective, seed))


def train_by_plan(est: BaseEncoder, prepared: Prepared, step_plan: StepPlan, *, linear: bool = False) -> Trained:
    """Train on all samples by the step plan of a similar fit; restart while the final loss is far above its loss."""
    tried: list[Trained] = []
    batches = training_batches(est, prepared, prepared.samples)
    while len(tried) < MAX_STARTS and all(each.is_stuck(step_plan) for each in tried):
        start = len(tried)
        name = " ".join(filter(None, ["linear" if linear else "", f"start {start + 1}" if start else ""]))
        training = Training(est, prepared, batches, None, name, linear, step_plan.phases)
        tried.append(est._optimise(training, (prepared.seed + SEED_STRIDE * start) % 2**63))
    return min(tried, key=lambda each: each.final_loss)


def held_out_score(est: BaseEncoder, prepared: Prepared, trained: Trained) -> HeldOut:
    """Return the score of what was trained on held-out samples, and on as many training samples."""
    splits, paired, scores = prepared.inputs.splits, est.spec.roles.y == "pairs", []
    objective = trained.objective
    parts = objective.objectives if isinstance(objective, ParallelObjectives) else [objective]
    for part, split in zip(parts, splits, strict=True):
        fitted = copy.copy(est)
        with warnings.catch_warnings(action="ignore"):
            fitted._set_attributes(replace(trained, objective=part))
            samples = [taken(prepared.inputs.data, rows, paired=paired) for rows in (split.held_out, split.compared)]
            scores.append([fitted.spec.score(fitted, some) for some in samples])
    sizes = [len(split.held_out) for split in splits]
    values = np.array([[score.value for score in both] for both in scores], dtype=np.float64)
    value, training_score = np.average(values, axis=0, weights=sizes).tolist()
    name, chance, steps = scores[0][0].name, scores[0][0].chance, (trained.log.n_iter, trained.linear)
    return HeldOut(name, value, training_score, chance, sum(sizes), len(splits), *steps, trained.step_plan)


# ---- batches --------------------------------------------------------------------------------------------------------


def training_batches(est: BaseEncoder, prepared: Prepared, inputs: TrainingInput) -> Batches:
    """Return the batches of a training."""
    source, size = inputs.source, est.batch_size or est.training_defaults.batch_size
    read = partial(_fields_of_batch, est, prepared.summary)
    if source is None:
        samples = est._samples(inputs.data, prepared.summary, prepared.device)
        size = batch_size_of(est, len(samples), "rows", of=len(inputs.data))
        batches = to_device(est._batches(samples, size, inputs.data), prepared.device)
    elif isinstance(source, GeneratorSource):
        batches = GeneratedBatches(source, size, read, est._draw_noise(prepared.summary))
    else:
        batches = StreamBatches(source, size, read, prepared.device, est._draw_noise(prepared.summary))
    return batches if est.augment is None else augmented(batches, est.augment)


def validation_batches(est: BaseEncoder, prepared: Prepared, split: Split) -> tuple[tuple[Tensor, ...], ...]:
    """Return all held-out samples of a split, in batches of about equal size, as the objective takes them."""
    data, device = prepared.samples.data, prepared.device
    samples = est._samples(data, prepared.with_train_indices(split.held_out).summary, device)
    n = -(-len(samples) // (est.batch_size or est.training_defaults.batch_size))
    epochs = est._batches(samples, len(samples) // n, data)
    batches, generator = to_device(epochs, device), _random.generator(0, device)
    batches = batches if est.augment is None else augmented(batches, est.augment)
    return tuple(tuple(field.clone() for field in batches(k, generator)) for k in range(len(epochs)))


def batch_size_of(est: BaseEncoder, n_samples: int, noun: str, *, of: int) -> int:
    """Return the batch size for so many samples, or raise if the one requested is larger than the data."""
    if est.batch_size is not None and est.batch_size > of:
        larger = f"batch_size={est.batch_size} is larger than the {of} {noun} in the data"
        raise ValueError(f"{type(est).__name__}: {larger}. Leave it at None, or give more data.")
    return min(est.batch_size or est.training_defaults.batch_size, n_samples)


def _fields_of_batch(est: BaseEncoder, summary: DataSummary, batch: Batch) -> tuple[object, ...]:
    sides, role = dict(batch), est.spec.roles.y
    x, y = sides.pop("x"), sides.pop("y", None)
    if y is not None and role is not None:
        sides[role] = y
    return x, *est._targets(summary, sides)


def linear_path(encoder: Encoder) -> tuple[nn.Module, nn.Linear] | None:
    """Return what samples pass before the linear path of an encoder of vectors, and the path; None without one."""
    *before, last = encoder.body if isinstance(encoder.body, nn.Sequential) else (encoder.body,)
    last = last.linear if isinstance(last, SkipMLP) else last
    fixed = not any(weight.requires_grad for part in before for weight in part.parameters())
    if not isinstance(last, nn.Linear) or not fixed or len(encoder.preprocess.shape_out) > 1:
        return None
    return nn.Sequential(encoder.preprocess, *before), last


def shape_of(preprocessing: Preprocessing) -> int | tuple[int, ...]:
    """Return the shape of preprocessed samples, for vectors the number of features."""
    return preprocessing.shape_out[0] if len(preprocessing.shape_out) == 1 else preprocessing.shape_out
