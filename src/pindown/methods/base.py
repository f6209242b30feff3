"""`BaseEncoder`: what all estimators share; `Incremental`: one that learns from samples as they come.

`fit` is `prepare`, `train`, and setting the learned attributes.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import _random, theory
from pindown._names import counted
from pindown.auditing.plans import count_directions
from pindown.auditing.spec import MethodSpec, n_independent
from pindown.data import GeneratorSource, as_source
from pindown.data.batches import (
    Augment,
    BatchesWithinLevels,
    DrawNoise,
    IndexedSamples,
    SampleSet,
    ShuffledBatches,
    on_device,
)
from pindown.data.data import Data
from pindown.errors import warn
from pindown.methods.diagnosis import some_samples, warn_if_hardly_trained, warn_of_collapse
from pindown.methods.fitting import Trained, Training, shape_of, train, training_batches
from pindown.methods.held_out import HeldOut
from pindown.methods.inputs import (
    ArrayOrTensor,
    DataLike,
    DataSummary,
    Encoded,
    InputReader,
    Prepared,
    TrainingInput,
    is_in_memory,
    prepare,
)
from pindown.methods.parameters import INJECTIVE, check_common, default_learning_rate, default_weight_decay
from pindown.networks.encoder import ENCODED_AT_ONCE, Encoder, Make, encode
from pindown.networks.images import encoder_for, first_round_for
from pindown.networks.preprocessing import Preprocess, Preprocessing
from pindown.networks.spaces import Reals, Space
from pindown.saving import Saves
from pindown.simulate import Process
from pindown.training import TrainingDefaults, TrainingParameters, best_device, constant


class BaseEncoder(Saves, TrainingParameters, ClassNamePrefixFeaturesOutMixin, TransformerMixin, InputReader, ABC):
    """An encoder trained with a side variable; abstract.

    A method assigns its parameters in ``__init__`` and defines

    - `spec`, the role of its side variable, its score, plan and checks, and `guarantee`, its theorem;
    - `_summarize`, what it must know of the data before training, and `_targets`, what its objective takes in addition
      to samples;
    - `_objective`, the module that maps a batch to the loss, and `_store`, the attributes it sets after training.

    Other methods with a leading underscore have defaults that suit most.
    """

    spec: ClassVar[MethodSpec[Any]] = MethodSpec()
    training_defaults: ClassVar[TrainingDefaults] = TrainingDefaults()

    n_components: int | None  # None: `_summarize` counts latents
    encoder: Make | None
    preprocess: Preprocess
    learning_rate: float | None
    augment: Augment | None = None

    _noise: Callable[[Any, int, torch.Generator], tuple[Tensor, ...]] | None = None  # random numbers of a batch

    n_components_: int
    encoder_: Encoder
    objective_: nn.Module
    held_out_: HeldOut | None
    loss_curve_: np.ndarray
    n_iter_: int

    # ---- what a user calls ------------------------------------------------------------------------------------------

    @property
    def guarantee(self) -> theory.Theorem | None:
        """The theorem that applies if the data meet its assumptions; None if none does."""
        return None

    @property
    def needs_injective(self) -> bool:
        """Whether its theorem assumes a mixing under which there are at most as many latents as features."""
        return self.guarantee is not None and bool(INJECTIVE & {*self.guarantee.assumes})

    def fit(self, X: DataLike, y: ArrayOrTensor | None = None) -> Self:
        """Train the encoder.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, …), Data, or Source
            The observations: vectors, images (n, c, h, w) or sequences (n, t, c); or `pindown.Data`, which has them
            with their side variables; or a source of batches: see `pindown.data`; or what `prepare` has returned.
        y : array, tensor or None
            The side variable: see the class.
        """
        return self._fit(X, {self.spec.roles.y: y} if self.spec.roles.y else {})

    def _fit(self, X: DataLike | Process, sides: Mapping[str, object]) -> Self:
        """Train the encoder with side variables by role."""
        self._check_parameters()
        if hasattr(self, "encoder_"):  # if this fit fails, attributes of the last one must not meet those of this one
            del self.encoder_
        with _random.torch_defaults():
            prepared = self._adopted(X) if isinstance(X, Prepared) else prepare(self, X, sides)
            for message in prepared.summary.warnings:
                warn(f"{type(self).__name__}: {message}")
            trained = train(self, prepared)
            self._set_attributes(trained)
            self._diagnose(some_samples(prepared.inputs.data.X))
            self._compare(prepared)
        if trained.log.shortfall:
            warn(f"{type(self).__name__}: {trained.log.shortfall}", ConvergenceWarning)
        if trained.held_out is not None and trained.held_out.overfits:
            warn(f"{type(self).__name__}: {trained.held_out.warning}")
        if trained.log.held_out:  # a closed form has no steps
            warn_if_hardly_trained(self, self._n_steps)
        return self

    def fit_process(self, process: Process) -> Self:
        """Train the encoder on a simulation of `pindown.simulate`, with new samples at every step.

        Parameters
        ----------
        process : Process
            The simulation. Only what can be observed is used.
        """
        if not isinstance(process, Process):
            raise TypeError(
                f"{type(self).__name__}: process must be a simulation of pindown.simulate, got "
                f"{type(process).__name__}. For arrays use fit."
            )
        return self._fit(process, {})

    def prepare(self, data: Data) -> Prepared:
        """Return what `fit` decides before its first step: split, preprocessing, summary; or raise as `fit` would.

        ``fit(prepared)`` continues from there.

        Parameters
        ----------
        data : Data
            The observations and their side variables.
        """
        self._check_parameters()
        return prepare(self, data, {})

    def _adopted(self, prepared: Prepared) -> Prepared:
        """Return prepared data on this estimator's device, whose samples have the shape that it then requires."""
        self._remember_shape(prepared.preprocessing.shape_in)
        return replace(prepared, device=best_device(self.device))

    def transform(self, X: DataLike) -> Encoded:
        """Encode observations; numpy in, numpy out; torch in, torch out; an array for a source.

        Samples are encoded in blocks, in float64 where the network is small, so that the latents of a sample do not
        depend on the others.
        """
        check_is_fitted(self)
        X = X.X if isinstance(X, Data) else X
        if is_in_memory(X):
            array = self._validated(X, reset=False)
            return self._like(X, array, self._encode(torch.as_tensor(array)))
        return np.concatenate([self._like(x, x, self._encode(torch.as_tensor(x))) for x in self._blocks(X)])

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit was completed: one that failed leaves attributes, but no encoder."""
        return hasattr(self, "encoder_")

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.three_d_array = self._accepts((2, 2))
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _encode(self, x: Tensor) -> Tensor:
        """Encode (n, …); (n, n_components)."""
        return encode(self.encoder_, x)

    def _blocks(self, X: object) -> Iterator[np.ndarray]:
        """Yield the samples of a source in blocks."""
        source, seen = as_source(X), 0
        if isinstance(source, GeneratorSource):
            raise ValueError("transform: a simulation has no end. Give samples of it.")
        for block in source.blocks(ENCODED_AT_ONCE):
            yield self._validated(block["x"], reset=False, start=seen)
            seen += len(block["x"])

    @staticmethod
    def _like(X: object, array: np.ndarray, result: Tensor) -> Any:
        """Return the result as X came: a tensor on its device or an array, in the precision it was read in."""
        result = result.to(torch.as_tensor(array).dtype)
        return result.to(X.device) if isinstance(X, Tensor) else result.cpu().numpy()

    # ---- what a method defines --------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise if a parameter is invalid; a method adds checks of its own."""
        check_common(self)

    def _check_inputs(self, inputs: TrainingInput) -> None:
        """Raise if side variables cannot be learned from: before anything is computed of X."""

    def _summarize(self, inputs: TrainingInput, preprocessing: Preprocessing, seed: int) -> DataSummary:
        """Return what the method must know of the data before training, or raise; nothing is stored."""
        return self._counted_components(inputs, preprocessing)

    def _counted_components(self, inputs: TrainingInput, preprocessing: Preprocessing) -> DataSummary:
        """Return the number of latents as requested; None counts those that the data can identify."""
        if self.n_components is not None:
            return DataSummary(self._requested_components())
        widest, note = count_directions(inputs.some_samples, preprocessing)
        signal, diversity = inputs.data.signal, None if self.guarantee is None else self.guarantee.diversity
        if signal is None or diversity is None or diversity.k_means:
            return DataSummary(widest, notes=(note,))
        found = n_independent(signal)
        d = max((fewer for fewer in range(1, widest + 1) if diversity.needed(fewer) <= found), default=1)
        note = f"y has {found} {diversity.unit}, and the data vary in {counted(widest, 'direction')}."
        return DataSummary(d, notes=(note,))

    def _requested_components(self) -> int:
        return int(check_scalar(self.n_components, "n_components", numbers.Integral, min_val=1))

    def _space(self, n_components: int) -> Space:
        """Return the latent space, ℝ^d by default."""
        return Reals()

    def _encoder_for(self, preprocessing: Preprocessing, device: torch.device) -> Make:
        """Return the function that makes the encoder after the preprocessing: by default as requested."""
        return encoder_for(self.encoder, shape_of(preprocessing), device)

    def _tries_linear(self, preprocessing: Preprocessing) -> bool:
        """Return whether a linear encoder is tried, too: if vectors have the default encoder."""
        return self.encoder is None and len(preprocessing.shape_out) == 1

    @abstractmethod
    def _objective(self, encoder: Encoder, summary: Any, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        """Return the module that maps a batch to the loss; the first batches may determine its initialisation."""

    def _targets(self, summary: Any, sides: Mapping[str, Any]) -> tuple[object, ...]:
        """Return what the objective takes in addition to samples, from the side variables of some or all of them."""
        return ()

    def _training_samples(self, inputs: TrainingInput, preprocessing: Preprocessing) -> TrainingInput:
        """Return the samples to train on: as they are; a method may preprocess them once, by `preprocessed`."""
        return inputs

    def _samples(self, data: Data, summary: DataSummary, device: torch.device) -> SampleSet:
        """Return the samples to learn from, with their fields."""
        fields = self._targets(summary, data.side_variables)
        chance = self._draw_noise(summary)
        return IndexedSamples(on_device(data.X, device), *fields, chance=chance, among=summary.train_indices)

    def _draw_noise(self, summary: DataSummary) -> DrawNoise | None:
        """Return the function that draws the random numbers of a batch, if the objective takes any."""
        return None if self._noise is None else partial(self._noise, summary)

    def _batches(self, rows: Any, batch_size: int, data: Data) -> ShuffledBatches | BatchesWithinLevels:
        """Return batches of samples, each sample once per epoch."""
        return ShuffledBatches(rows, batch_size)

    def _chance_loss(self, n_samples: float) -> float | None:
        """Return the loss of latents without information, with so many samples; None if it is not known."""
        return None

    def _optimise(self, training: Training, seed: int) -> Trained:
        """Make an objective and minimise it; a method may make several, and minimise each in several named parts."""
        objective = training.new_objective(seed)
        return training.trained(objective, training.minimise(objective, seed))

    @property
    def _n_steps(self) -> int:
        """Number of steps of a part of a fit that must have a fixed number."""
        return self.max_iter or first_round_for(getattr(self, "shape_in_", ()), best_device(self.device))

    # ---- after training ---------------------------------------------------------------------------------------------

    def _set_attributes(self, trained: Trained) -> None:
        """Set all learned attributes."""
        self.encoder_, self.objective_ = trained.encoder, trained.objective
        self.n_components_, self.held_out_ = trained.summary.n_components, trained.held_out
        self.loss_curve_, self.n_iter_ = trained.log.loss_curve, trained.log.n_iter
        self._store(trained)

    def _store(self, trained: Trained) -> None:
        """Set the learned attributes that only this method has."""

    def _diagnose(self, x: Tensor) -> None:
        """Warn about the fit, by the latents of some samples that were learned from."""
        warn_of_collapse(self, x)

    def _compare(self, prepared: Prepared) -> None:
        """Warn if a plain method does better on held-out samples."""


# ---- samples as they come -------------------------------------------------------------------------------------------


class _Started(NamedTuple):
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
        trainer, defaults, started = self.trainer, self.training_defaults, getattr(self, "_started", None)
        if started is None or started.objective is not getattr(self, "objective_", None):  # none, or a fit in between
            prepared = prepare(self, X, sides, hold_out=False)
            prepared = replace(prepared, summary=adjusted(prepared.summary))
            inputs, seed, n_before, n = prepared.inputs, prepared.seed, 0, prepared.n_samples
            batches = training_batches(self, prepared, inputs)
            objective = Training(self, prepared, batches).new_objective(seed).to(prepared.device)
            weight_decay = default_weight_decay(self, n) if trainer.weight_decay is None else trainer.weight_decay
            make = trainer.optimizer or defaults.optimizer
            started = _Started(objective, make(objective, default_learning_rate(self, n), weight_decay), prepared)
        else:
            seed, n_before = _random.draw_seed(self.random_state), self.n_iter_
            inputs = self._read(X, sides, _random.generator(seed, started.prepared.device), reset=False)
            batches = training_batches(self, started.prepared, inputs)
        n_samples = inputs.n_samples if math.isfinite(inputs.n_samples) else len(inputs.data)
        log = replace(trainer, optimizer=lambda *_: started.optimizer).train(
            started.objective,
            batches,
            max_iter=max(1, int(n_samples) // (self.batch_size or defaults.batch_size)),
            learning_rate=default_learning_rate(self, inputs.n_samples),
            seed=seed + n_before,
            defaults=TrainingDefaults(schedule=constant),
        )
        self._set_attributes(Trained(started.objective, log, started.prepared.summary))
        self.n_iter_, self._started = n_before + log.n_iter, started
        return self
