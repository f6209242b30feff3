"""`Incremental`: an encoder that learns from rows as they come, a lot at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import torch
from torch import nn

from pindown import _random
from pindown.methods.base import BaseEncoder
from pindown.methods.inputs import DataSummary
from pindown.methods.parameters import default_weight_decay, rate
from pindown.networks.encoder import Encoder
from pindown.training import best_device, constant


class Incremental(BaseEncoder):
    """An estimator whose loss is minimised in one go, so that it can be minimised on; abstract.

    The first lot of rows settles what is fixed before training: the preprocessing, and what the method looks at.
    """

    _kept: tuple[nn.Module, torch.optim.Optimizer, DataSummary]  # of the lots before

    @_random.torch_defaults()
    def _partial_fit(self, X: Any, sides: dict[str, Any], **fixed: Any) -> Self:
        """Go once through these rows, at the full learning rate; ``fixed`` is handed to the first look.

        After `fit`, or in an estimator that was loaded, it begins anew: these keep no optimiser.

        Of a source that does not say how many rows it has, as many as it is looked at.
        """
        self._check_parameters()
        device = best_device(self.device)
        seed = _random.draw_seed(self.random_state)
        begun = hasattr(self, "_kept") and self._kept[0] is getattr(self, "objective_", None)  # no fit came in between
        if not begun:
            inputs, first, summary = self._read_and_summarize(X, sides, seed, device)
            summary = self._fixed(summary, **fixed)
            self.n_components_, self.n_iter_ = summary.n_components, 0
        else:
            inputs, summary = self._read(X, sides, _random.generator(seed, device), reset=False), self._kept[2]
        draw = self._draw(inputs, summary, device)
        if not begun:
            objective = self._new_objective(first, summary, draw, self._space(), device, seed).to(device)
            make = self.trainer.optimizer or self.training_defaults.optimizer
            weight_decay = self.trainer.weight_decay
            if weight_decay is None:
                weight_decay = default_weight_decay(self, inputs.n_samples)
            optimizer = make(objective, rate(self, inputs.n_samples), weight_decay)
            self._kept = objective, optimizer, summary
        objective, optimizer, _ = self._kept
        n_samples = inputs.n_samples if math.isfinite(inputs.n_samples) else len(inputs.data)
        log = replace(self.trainer, optimizer=lambda *_: optimizer).train(
            objective,
            draw,
            max_iter=max(1, int(n_samples) // (self.batch_size or self.training_defaults.batch_size)),
            learning_rate=rate(self, inputs.n_samples),
            schedule=constant,
            seed=seed + self.n_iter_,
            device=device,
            verbose=False,
            title=type(self).__name__,
        )
        assert isinstance(objective.encoder, Encoder)
        self.encoder_, self.objective_ = objective.encoder, objective
        self.loss_curve_, self.n_iter_ = log.loss_curve, self.n_iter_ + log.n_iter
        self._store(objective, summary)
        return self

    def _fixed(self, summary: Any) -> DataSummary:
        """Return a first look in which what only the caller knows is settled."""
        return summary
