"""What all estimators share: reading, training, encoding. A final class adds parameters, batches and a loss."""

from __future__ import annotations

import copy
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import _random, theory
from pindown.auditing.spec import MethodSpec
from pindown.data import GeneratorSource, as_source
from pindown.data.batches import (
    Augment,
    Batches,
    BatchesWithinLevels,
    GeneratedBatches,
    IndexedSamples,
    Noise,
    SampleSet,
    ShuffledBatches,
    StreamBatches,
    augmented,
    on_device,
    to_device,
)
from pindown.data.data import Data
from pindown.data.splits import Split, divided
from pindown.errors import warn
from pindown.methods.afterwards import some_of, warn_of_collapse
from pindown.methods.held_out import HeldOut
from pindown.methods.inputs import DataSummary, TrainingInput, is_in_memory
from pindown.methods.learning import learn
from pindown.methods.observing import Observes
from pindown.methods.parameters import INJECTIVE, check_common, check_components
from pindown.networks import SkipMLP, built, default_network
from pindown.networks.encoder import ENCODED_AT_ONCE, Encoder, encode
from pindown.networks.images import encoder_for, first_round_for
from pindown.networks.preprocessing import Preprocess, Preprocessing
from pindown.networks.spaces import Reals, Space
from pindown.saving import Saves
from pindown.simulate import Process
from pindown.training import Trainer, TrainerMixin, TrainingDefaults, TrainingLog, best_device


class BaseEncoder(Saves, TrainerMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Observes, ABC):
    """An encoder trained against a side variable; abstract.

    A final class assigns the parameters named below in its ``__init__`` and says which part its side variable plays
    (`spec`), what its parameters may be (`_check_parameters`), what space its latents live in (`_space`), what it has
    to know of the data before training (`_summarize`), which fields of a batch follow from side variables (`_fields`),
    what is minimised (`_objective`), and what of it is kept (`_store`).
    """

    spec: ClassVar[MethodSpec[Any]] = MethodSpec()  # what the method says about itself: its roles, score, plan, audit
    training_defaults: ClassVar[TrainingDefaults] = TrainingDefaults()

    n_components: Any  # int, or None where `_look` counts them
    n_components_: int
    encoder_: Encoder
    encoder: Any
    preprocess: Preprocess
    batch_size: int | None
    max_iter: int | None
    learning_rate: float | None
    trainer: Trainer
    device: str | None
    verbose: bool
    random_state: Any
    augment: Augment | None = None
    held_out_: HeldOut | None

    _noise: Noise | None = None  # random numbers that the objective takes with every batch

    @property
    def guarantee(self) -> theory.Theorem | None:
        """The theorem that applies if the data meet its assumptions; None if none does."""
        return None

    @property
    def needs_injective(self) -> bool:
        """Whether its theorem needs a mixing under which there are at most as many latents as observed variables."""
        return self.guarantee is not None and bool(INJECTIVE & {*self.guarantee.assumes})

    def _space(self) -> Space:
        """Return the latent space, ℝ^d unless a final class says otherwise; it may depend on ``n_components_``."""
        return Reals()

    @abstractmethod
    def _objective(self, encoder: Encoder, summary: Any, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        """Return the module that maps a batch to the loss; the first batches may tell it where to start."""

    def _summarize(self, inputs: TrainingInput, first: Preprocessing, seed: int) -> DataSummary:
        """Return what is to be known of the data before training, or say what is wrong with them; nothing is stored."""
        return DataSummary(self._requested_components())

    def _check_inputs(self, inputs: TrainingInput) -> None:
        """Raise if side variables cannot be learned from: before anything is computed of X."""

    def _fields(self, summary: Any, sides: dict[str, Any]) -> tuple[Any, ...]:
        """Return what the objective takes beside observations, from the side variables of some rows or of all."""
        return ()

    def _store(self, objective: nn.Module, summary: Any) -> None:
        """Store the final class's own learned attributes."""

    def fit(self, X, y=None) -> Self:
        """Train the encoder.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, …), Data, or Source
            The observations: rows of numbers, images (n, c, h, w), sequences (n, t, c); or `pindown.Data`, which has
            them with their side variables; or what gives them in batches: see `pindown.data`.
        y : array, tensor or None
            The side variable: see the class.
        """
        return self._fit(X, {self.spec.roles.y: y} if self.spec.roles.y else {})

    @_random.torch_defaults()
    def _fit(self, X: Any, sides: dict[str, Any]) -> Self:
        """Train the encoder with side variables by the part they play, None for those that are not there."""
        self._check_parameters()
        device, seed = best_device(self.device), _random.draw_seed(self.random_state)
        if hasattr(self, "encoder_"):  # if this fit is broken off, the last one's must not meet what this one leaves
            del self.encoder_
        inputs, first, summary = self._read_and_summarize(X, sides, seed, device, share=self._validation_fraction)
        for message in summary.warnings:
            warn(f"{type(self).__name__}: {message}")
        self.n_components_ = summary.n_components
        return self._learn(inputs, first, summary, self._space(), device, seed)

    def summarize(self, data: Data) -> DataSummary:
        """Return what a fit to these data would see before its first step, or say what is wrong with them.

        Parameters
        ----------
        data : Data
            The observations and their side variables.
        """
        self._check_parameters()
        seed, share = _random.draw_seed(self.random_state), self._validation_fraction
        return self._read_and_summarize(data, {}, seed, torch.device("cpu"), share=share)[-1]

    def _read_and_summarize(
        self, X: Any, sides: dict[str, Any], seed: int, device: torch.device, *, share: float = 0.0
    ) -> tuple[TrainingInput, Preprocessing, DataSummary]:
        inputs = self._read(X, sides, _random.generator(seed, device))
        self._check_inputs(inputs)
        inputs = replace(inputs, splits=self._splits(inputs, share, seed))
        rows = inputs.splits[0].learned if len(inputs.splits) == 1 else None
        first = self._fit_preprocessing(inputs.data.X, rows)
        check_components(self, first)
        summary = self._summarize(inputs, first, seed)
        return inputs, first, summary if rows is None or summary.rows is not None else replace(summary, rows=rows)

    def _splits(self, inputs: TrainingInput, share: float, seed: int) -> tuple[Split, ...]:
        """Return which rows to keep back: none of a stream, or of a world, whose rows are always new."""
        side = self.spec.roles.y
        if inputs.source is not None or side not in (None, "pairs", *inputs.data.side_variables):
            return ()
        kinds = {"paired": side == "pairs", "labelled": self.spec.roles.categorical}
        # Fits in folds are minimised side by side, which takes a method that is minimised in one go.
        one_go = type(self)._optimise is BaseEncoder._optimise
        return divided(inputs.data, share=share, seed=seed, folds=one_go, **kinds)

    def fit_process(self, process: Process) -> Self:
        """Train the encoder on a world of `pindown.simulate`, with fresh samples at every step.

        Parameters
        ----------
        process : Process
            The world. Nothing but what can be observed is used.
        """
        if not isinstance(process, Process):
            raise TypeError(
                f"{type(self).__name__}: process must be a world of pindown.simulate, got {type(process).__name__}. "
                "For arrays use fit."
            )
        return self._fit(process, {})

    def transform(self, X):
        """Encode observations; numpy in, numpy out; torch in, torch out; of a source, an array.

        A bounded number of rows at a time, in float64 where the network is small, so that a row's code does not depend
        on the rows beside it.
        """
        check_is_fitted(self)
        X = X.X if isinstance(X, Data) else X
        if not is_in_memory(X):
            return np.concatenate([self._like(x, x, self._encode(torch.as_tensor(x))) for x in self._blocks(X)])
        array = self._validated(X, reset=False)
        return self._like(X, array, self._encode(torch.as_tensor(array)))

    def _blocks(self, X: Any) -> Iterator[np.ndarray]:
        """Go through the rows of a source, some at a time."""
        source, seen = as_source(X), 0
        if isinstance(source, GeneratorSource):
            raise ValueError("transform: a world's rows never end. Sample some of them, and encode these.")
        for block in source.blocks(ENCODED_AT_ONCE):
            yield self._validated(block["x"], reset=False, start=seen)
            seen += len(block["x"])

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether a fit went through: one that was broken off leaves attributes, but no encoder."""
        return hasattr(self, "encoder_")

    def __sklearn_tags__(self):
        """Say what scikit-learn may expect."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.three_d_array = self._accepts((2, 2))
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @staticmethod
    def _like(X: Any, array: np.ndarray, result: Tensor) -> Any:
        """Return the result as X came: a tensor on its device or an array, in the precision it was read in."""
        result = result.to(torch.as_tensor(array).dtype)
        return result.to(X.device) if isinstance(X, Tensor) else result.cpu().numpy()

    def _encode(self, x: Tensor) -> Tensor:
        """Encode (n, …); (n, n_components)."""
        return encode(self.encoder_, x)

    @property
    def _validation_fraction(self) -> float:
        """Fraction of the samples to hold out, from which early stopping is decided: none of an adversarial method."""
        return 0.0 if self.training_defaults.adversarial else self.trainer.validation_fraction

    # ---- components -------------------------------------------------------------------------------------------------

    def _requested_components(self) -> int:
        check_scalar(self.n_components, "n_components", numbers.Integral, min_val=1)
        return int(self.n_components)

    # ---- batches ----------------------------------------------------------------------------------------------------

    def _draw(self, inputs: TrainingInput, summary: DataSummary, device: torch.device) -> Batches:
        """Return what gives the batch of a step."""
        source, size = inputs.source, self.batch_size or self.training_defaults.batch_size
        if source is None:
            rows = self._samples(inputs.data, summary, device)
            size = self._samples_per_batch(len(rows), "rows", of=len(inputs.data))
            return self._shown(to_device(self._epochs(rows, size, inputs.data), device))
        read = partial(self._read_batch, summary)
        if isinstance(source, GeneratorSource):
            return self._shown(GeneratedBatches(source, size, read, self._noise))
        return self._shown(StreamBatches(source, size, read, device, self._noise))

    def _training_samples(self, inputs: TrainingInput, first: Preprocessing) -> TrainingInput:
        """Return the samples to train on: as they are; a method may preprocess them once, by `preprocessed`."""
        return inputs

    def _batches(self, inputs: TrainingInput, summary: DataSummary, device: torch.device) -> list[tuple[Tensor, ...]]:
        """Return all rows of a look, in about equal batches, as the objective takes them."""
        rows = self._samples(inputs.data, summary, device)
        n = -(-len(rows) // (self.batch_size or self.training_defaults.batch_size))
        epochs = self._epochs(rows, len(rows) // n, inputs.data)
        draw, generator = self._shown(to_device(epochs, device)), _random.generator(0, device)
        return [tuple(field.clone() for field in draw(k, generator)) for k in range(len(epochs))]

    def _shown(self, draw: Batches) -> Batches:
        return draw if self.augment is None else augmented(draw, self.augment)

    def _samples(self, data: Data, summary: DataSummary, device: torch.device) -> SampleSet:
        """Return the rows to learn from, with what belongs to them."""
        return IndexedSamples(
            on_device(data.X, device),
            *self._fields(summary, data.side_variables),
            chance=self._noise,
            among=summary.rows,
        )

    def _epochs(self, rows: Any, batch_size: int, data: Data) -> ShuffledBatches | BatchesWithinLevels:
        """Return batches of rows, each once an epoch."""
        return ShuffledBatches(rows, batch_size)

    def _read_batch(self, summary: DataSummary, batch: dict[str, Any]) -> tuple[Any, ...]:
        sides = dict(batch)
        x, y = sides.pop("x"), sides.pop("y", None)
        if y is not None and self.spec.roles.y is not None:
            sides[self.spec.roles.y] = y
        return x, *self._fields(summary, sides)

    @property
    def _n_steps(self) -> int:
        """Steps of a part of a fit whose length must be known beforehand."""
        if self.max_iter is not None:
            return self.max_iter
        return first_round_for(getattr(self, "shape_in_", ()), best_device(self.device))

    def _samples_per_batch(self, n_samples: int, noun: str, of: int) -> int:
        """Return the batch size for so many rows, which are called so, of those that there are."""
        if self.batch_size is not None and self.batch_size > of:
            raise ValueError(
                f"{type(self).__name__}: batch_size={self.batch_size} is larger than the {of} {noun} in the "
                "data. Leave it at None to take what fits, or give more data."
            )
        return min(self.batch_size or self.training_defaults.batch_size, n_samples)

    # ---- training ---------------------------------------------------------------------------------------------------

    def _learn(
        self,
        inputs: TrainingInput,
        first: Preprocessing,
        summary: DataSummary,
        space: Space,
        device: torch.device,
        seed: int,
    ) -> Self:
        learned, self.held_out_ = learn(self, inputs, first, summary, space, device, seed)
        (objective,) = learned.objectives
        self._keep(objective, learned.log, summary)
        self._diagnose(some_of(inputs.data.X))
        if learned.log.shortfall:
            warn(f"{type(self).__name__}: {learned.log.shortfall}", ConvergenceWarning)
        if self.held_out_ is not None and self.held_out_.overfits:
            warn(f"{type(self).__name__}: {self.held_out_.warning}")
        return self

    def _keep(self, objective: nn.Module, log: TrainingLog, summary: DataSummary) -> None:
        """Store what was learned."""
        assert isinstance(objective.encoder, Encoder)
        self.encoder_, self.objective_ = objective.encoder, objective
        self.loss_curve_, self.n_iter_ = log.loss_curve, log.n_iter
        self._store(objective, summary)

    def _diagnose(self, x: Tensor) -> None:
        """Warn of what is wrong with the latents of some samples that were learned from."""
        warn_of_collapse(self, x)

    def _with_more_latents(self, first: Preprocessing) -> Self | None:
        """Return the same estimator with more codes, by which folds are found; None: nobody looks for them so."""
        return None

    def _chance_loss(self, n_samples: float) -> float | None:
        """Return the loss of codes that tell nothing, learned from so many rows; None if nobody can say."""
        return None

    def _tries_linear(self, first: Preprocessing) -> bool:
        """Whether the encoder may be left linear, where that does better: nobody asked for another, of vectors."""
        return self.encoder is default_network and isinstance(shape_of(first), int)

    def _new_objective(
        self,
        first: Preprocessing,
        summary: DataSummary,
        draw: Batches,
        space: Space,
        device: torch.device,
        seed: int,
        *,
        straight: bool = False,
    ) -> nn.Module:
        """Return the objective with an encoder at its initialisation; if that is asked for, without its bend."""
        with _random.forked(seed):
            make = self._encoder_for(first, device)
            body = built(type(self).__name__, "encoder", make, shape_of(first), summary.n_components)
            body = body.linear if straight and isinstance(body, SkipMLP) else body
            # From a generator of their own, so that training draws as if nobody had looked.
            peek = _random.generator(seed, device)
            encoder = Encoder(copy.deepcopy(first), body, space)
            return self._objective(encoder, summary, (draw(step, peek) for step in count()))

    def _encoder_for(self, first: Preprocessing, device: torch.device) -> Any:
        """Return the function that makes the encoder behind a first layer: by default what was asked for."""
        return encoder_for(self.encoder, shape_of(first), device)

    def _optimise(
        self,
        make: Callable[[int], nn.Module],
        minimise: Callable[..., TrainingLog],
        draw: Batches,
        summary: Any,
        seed: int,
    ) -> tuple[nn.Module, TrainingLog]:
        """Return the trained objective, and how it went: here made once and minimised once.

        A final class may make several, and minimise each in several parts, which it gives names. ``draw`` gives batches
        of whole rows.
        """
        objective = make(seed)
        return objective, minimise(objective, seed)

    def _check_parameters(self) -> None:
        """Raise if a parameter is not what it must be; a final class adds its own."""
        check_common(self)


def shape_of(first: Preprocessing) -> int | tuple[int, ...]:
    """Return what a network sees of a row: the number of its columns, or its shape."""
    return first.shape_out[0] if len(first.shape_out) == 1 else first.shape_out
