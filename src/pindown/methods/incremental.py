"""`Incremental`: an encoder that learns from samples as they come."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import nn

from pindown import _random
from pindown.methods.base import BaseEncoder
from pindown.methods.fitting import Trained, Training, training_batches
from pindown.methods.inputs import DataLike, DataSummary, Prepared, prepare
from pindown.methods.parameters import default_learning_rate, default_weight_decay
from pindown.training import TrainingDefaults, constant


@dataclass(frozen=True, eq=False)
class _Started:
    """What a first call leaves to the next."""

    objective: nn.Module
    optimizer: torch.optim.Optimizer
    prepared: Prepared


class Incremental(BaseEncoder):
    """An estimator with ``partial_fit``; abstract. The first call decides the preprocessing and the data summary."""

    _started: _Started

    @_random.torch_defaults()
    def _partial_fit(
        self, X: DataLike, sides: Mapping[str, object], adjusted: Callable[[Any], DataSummary] = lambda summary: summary
    ) -> Self:
        """Train one epoch at the full learning rate; the first call uses the data summary as ``adjusted``.

        After `fit`, or on an estimator that was loaded, training starts again: these keep no optimizer. Of a source of
        unknown length, as many samples are used as were read to summarise it.
        """
        self._check_parameters()
        started = getattr(self, "_started", None)
        if started is None or started.objective is not getattr(self, "objective_", None):  # none, or a fit in between
            prepared = prepare(self, X, sides, hold_out=False)
            started = self._start(replace(prepared, summary=adjusted(prepared.summary)))
            inputs, seed, n_before = prepared.inputs, prepared.seed, 0
        else:
            seed, n_before = _random.draw_seed(self.random_state), self.n_iter_
            inputs = self._read(X, sides, _random.generator(seed, started.prepared.device), reset=False)
        n_samples = inputs.n_samples if math.isfinite(inputs.n_samples) else len(inputs.data)
        log = replace(self.trainer, optimizer=lambda *_: started.optimizer).train(
            started.objective,
            training_batches(self, started.prepared, inputs),
            max_iter=max(1, int(n_samples) // (self.batch_size or self.training_defaults.batch_size)),
            learning_rate=default_learning_rate(self, inputs.n_samples),
            seed=seed + n_before,
            defaults=TrainingDefaults(schedule=constant),
        )
        self._set_attributes(Trained(started.objective, log, started.prepared.summary))
        self.n_iter_, self._started = n_before + log.n_iter, started
        return self

    def _start(self, prepared: Prepared) -> _Started:
        n_samples, trainer = prepared.n_samples, self.trainer
        training = Training(self, prepared, training_batches(self, prepared, prepared.inputs))
        objective = training.new_objective(prepared.seed).to(prepared.device)
        make = trainer.optimizer or self.training_defaults.optimizer
        weight_decay = trainer.weight_decay
        if weight_decay is None:
            weight_decay = default_weight_decay(self, n_samples)
        return _Started(objective, make(objective, default_learning_rate(self, n_samples), weight_decay), prepared)
