"""What all estimators share: validation, training, encoding. A final class adds parameters, pairs and a loss."""

from __future__ import annotations

import copy
import hashlib
import math
import numbers
import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from pindown import _random
from pindown.estimators.answers import Answers
from pindown.folding import look_for_folds
from pindown.networks import FirstLayer, Whiten, built
from pindown.processes import Process
from pindown.saving import Saves
from pindown.sources.batches import Draw
from pindown.spaces import Space
from pindown.theory import Theorem
from pindown.training import Trainer, TrainingLog, best_device, cosine
from pindown.training.optimizers import MakeOptimizer

ENCODE_ROWS = 65_536
"""Rows encoded at once: bounds the memory of `transform` whatever the size of X."""

WHITEN_ROWS = 20_000
"""Fresh samples from which `fit_process` takes mean and covariance."""

COLLAPSED, COLLAPSE_ROWS = 1e-3, 2_000
"""Spread of codes, relative to their size, up to which they are one code for all rows; and rows to see it on."""

DECAY_ROWS, DECAY_MOST = 10_000, 2.0
"""A weight decay of None is DECAY_ROWS / n_rows, as with a prior on the weights whose share falls as data come in."""


class IdentifiabilityWarning(UserWarning):
    """The fit goes through, but no theorem says that its codes are the latents: the message says why."""


def warn(message: str) -> None:
    """Give an `IdentifiabilityWarning` for the line outside this package that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pindown."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, IdentifiabilityWarning, stacklevel=level)


class Encoder(nn.Module):
    """Whitening, a network, and the projection onto the space of the codes."""

    def __init__(self, whiten: FirstLayer, body: nn.Module, space: Space) -> None:
        super().__init__()
        self.whiten, self.body, self.space = whiten, body, space

    @property
    def n_features(self) -> int:
        """Number of observed variables."""
        return len(self.whiten.mean)

    def forward(self, x: Tensor) -> Tensor:
        """Encode (n, n_features) to (n, n_components)."""
        return self.space(self.body(self.whiten(x)))


class BaseEncoder(Saves, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """An encoder trained against a side variable; abstract.

    A final class assigns the parameters named below in its ``__init__`` and says what space its codes live in
    (`_space`), how batches are drawn (`_draw`, `_draw_fresh`), what is minimised (`_objective`) and what of it is kept
    (`_learned`).
    """

    n_components: Any  # int, or None where `_chooses_components`
    n_components_: int
    encoder: Callable[[int, int], nn.Module]
    batch_size: int | None
    max_iter: int
    learning_rate: float
    weight_decay: float | None
    optimizer: MakeOptimizer
    patience: int | None
    checkpoint: str | Path | None
    device: str | None
    verbose: bool
    random_state: Any

    answers = Answers()  # what a final class says of itself to those who audit, plan and run it
    _default_batch_size = 512
    _schedule = staticmethod(cosine)  # of the learning rate
    _chooses_components = False  # whether None leaves n_components to `_draw`, which sets n_components_
    _must_not_fold = False  # whether different latents must have different codes, so that a fold is a failure

    @property
    def guarantee(self) -> Theorem | None:
        """The theorem that applies if the data meet its assumptions; None if none does."""
        return None

    @abstractmethod
    def _space(self) -> Space:
        """Return the space of the codes, after checking the final class's own parameters."""

    @abstractmethod
    def _objective(self, encoder: Encoder, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        """Return the module that maps a batch to the loss; the first batches may tell it where to start."""

    @abstractmethod
    def _draw(self, X: np.ndarray, y: Any, device: torch.device) -> Draw:
        """Return the drawer of batches from arrays; it knows its ``batch_size``."""

    @abstractmethod
    def _draw_fresh(self, process: Process, batch_size: int) -> Draw:
        """Return the drawer of fresh batches from a world."""

    @abstractmethod
    def _learned(self, objective: nn.Module) -> None:
        """Store the final class's own learned attributes."""

    def fit(self, X, y=None) -> Self:
        """Train the encoder.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            The observations.
        y : array, tensor or None
            The side variable: see the class.
        """
        return self._fit(X, y)

    def _fit(self, X, y, *more) -> Self:
        """Train the encoder with one side variable, or with several, which `_draw` is then handed as a tuple."""
        space, device = self._checked_space(), best_device(self.device)
        X = self._validated(X, reset=True)
        self._check_components(X.shape[1])
        draw = self._draw(X, (y, *more) if more else y, device)
        settings = {"data": _digest(X, *map(as_array, (y, *more)))} if self.checkpoint is not None else {}
        seed = _random.draw_seed(self.random_state)
        return self._learn(torch.as_tensor(X), len(X), draw, space, device, seed, settings)

    def fit_process(self, process: Process) -> Self:
        """Train the encoder on a world of `pindown.processes`, with fresh samples at every step.

        Parameters
        ----------
        process : Process
            The world. Nothing but what can be observed is used.
        """
        if not isinstance(process, Process):
            raise TypeError(
                f"{type(self).__name__}: process must be a world of pindown.processes, got {type(process).__name__}. "
                "For arrays use fit."
            )
        space, device = self._checked_space(), best_device(self.device)
        seed = _random.draw_seed(self.random_state)
        rng = _random.generator(seed, device)
        x = process.sample(WHITEN_ROWS, random_state=rng, device=device).x
        self.n_features_in_ = x.shape[1]
        self._check_components(x.shape[1])
        draw = self._draw_fresh(process, self.batch_size or self._default_batch_size)
        # The repr names the laws; what it leaves out, such as the weights of a mixing, shows in the samples.
        settings = {"data": f"{process!r} {_digest(as_array(x))}"} if self.checkpoint is not None else {}
        return self._learn(x, math.inf, draw, space, device, seed, settings)

    def transform(self, X):
        """Encode observations; numpy in, numpy out; torch in, torch out.

        Computed in float64 a bounded number of rows at a time, so that a row's code does not depend on the rows
        beside it.
        """
        check_is_fitted(self)
        array = self._validated(X, reset=False)
        return self._like(X, array, self._encode(torch.as_tensor(array)))

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether a fit went through: one that was broken off leaves attributes, but no encoder."""
        return hasattr(self, "encoder_")

    def __sklearn_tags__(self):
        """Say what scikit-learn may expect."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
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
        """Encode (n, n_features) in float64; (n, n_components)."""
        return encode(self.encoder_, x)

    def _learn(
        self,
        x: Tensor,
        n_rows: float,
        draw: Draw,
        space: Space,
        device: torch.device,
        seed: int,
        settings: dict[str, Any],
    ) -> Self:
        def make(seed: int) -> nn.Module:
            with _random.forked(seed):
                body = built(type(self).__name__, "encoder", self.encoder, x.shape[1], self.n_components_)
                encoder = Encoder(Whiten.of(x.cpu()), body, space)
                # From a generator of their own, so that training draws as if nobody had looked.
                peek = _random.generator(seed, device)
                return self._objective(encoder, (draw(step, peek) for step in count()))

        trainer = Trainer(checkpoint=self.checkpoint, patience=self.patience)

        def minimise(objective: nn.Module, seed: int, part: str = "", max_iter: int = self.max_iter) -> TrainingLog:
            return trainer.train(
                objective,
                draw,
                max_iter=max_iter,
                learning_rate=self.learning_rate,
                optimizer=self.optimizer,
                schedule=self._schedule,
                weight_decay=min(DECAY_MOST, DECAY_ROWS / n_rows) if self.weight_decay is None else self.weight_decay,
                seed=seed,
                device=device,
                verbose=self.verbose,
                title=f"{type(self).__name__} {part}".strip(),
                settings=self._settings(settings),
                part=part,
            )

        objective, log = self._search(make, minimise, draw, seed)
        encoder = objective.encoder
        assert isinstance(encoder, Encoder)
        self.encoder_, self.objective_ = encoder, objective
        self.loss_curve_, self.n_iter_ = log.loss_curve, log.n_iter
        self._learned(objective)
        self._look_for_collapse(x)
        if self._must_not_fold:
            self._look_for_folds(x.cpu())
        return self

    def _search(
        self,
        make: Callable[[int], nn.Module],
        minimise: Callable[..., TrainingLog],
        draw: Draw,
        seed: int,
    ) -> tuple[nn.Module, TrainingLog]:
        """Return the trained objective, and how it went: here made once and minimised once.

        A final class may make several, and minimise each in several parts, which it gives names.
        """
        objective = make(seed)
        return objective, minimise(objective, seed)

    def _look_for_collapse(self, x: Tensor) -> None:
        some, curve = x[:: -(-len(x) // COLLAPSE_ROWS)], self.loss_curve_
        codes = self._encode(some)
        alive = codes.std(0, correction=0).max() > COLLAPSED * codes.square().mean().sqrt()
        if alive or (some == some[0]).all():
            return
        warn(
            f"{type(self).__name__}: the codes have collapsed, one for all rows. The loss began at {curve[0]:.3g}, was "
            f"{curve.max():.3g} at most, and ended at {curve[-1]:.3g}. Try a smaller learning_rate (now "
            f"{self.learning_rate:g}), and see whether X varies with what it is trained against."
        )

    def _look_for_folds(self, x: Tensor) -> None:
        encoder = copy.deepcopy(self.encoder_).double()
        device = encoder.whiten.mean.device
        self.folding_ = look_for_folds(lambda rows: encoder(rows.to(device)), x, encoder.space)
        if self.folding_.verdict not in ("folded", "flat"):
            return
        warn(
            f"{type(self).__name__}: the encoder is {self.folding_}. So different latents share a code, and no theorem "
            "holds. If it started as a random perceptron, take encoder=networks.unfolded. If not, try more steps "
            "(max_iter) or another random_state, and see whether y says anything about X"
            + (", and whether there are fewer latents than components." if self.folding_.flat else ".")
        )

    def _validated(self, X, *, reset: bool) -> np.ndarray:
        """Return X as a finite float array with the right number of features, or say what is wrong with it."""
        # In C order and writeable: torch reads no array with negative strides, and warns of read-only ones.
        return validate_data(
            self,
            as_array(X),
            reset=reset,
            dtype=[np.float64, np.float32],
            order="C",
            force_writeable=True,
            ensure_min_samples=2 if reset else 1,
        )

    def _checked_space(self) -> Space:
        check_scalar(self.max_iter, "max_iter", numbers.Integral, min_val=1)
        check_positive(self.learning_rate, "learning_rate")
        if self.weight_decay is not None:
            check_scalar(self.weight_decay, "weight_decay", numbers.Real, min_val=0)
        if not callable(self.optimizer):
            raise TypeError(
                f"{type(self).__name__}: optimizer must be a function (objective, learning_rate, weight_decay) -> "
                f"torch.optim.Optimizer, such as pindown.training.optimizers.muon, got {self.optimizer!r}."
            )
        if self.batch_size is not None:
            check_scalar(self.batch_size, "batch_size", numbers.Integral, min_val=2)
        if self.patience is not None:
            check_scalar(self.patience, "patience", numbers.Integral, min_val=1)
        return self._space()

    def _check_components(self, n_features: int) -> None:
        if self.n_components is None and self._chooses_components:
            return
        check_scalar(self.n_components, "n_components", numbers.Integral, min_val=1)
        self.n_components_ = self.n_components
        if self.n_components > n_features:
            raise ValueError(
                f"{type(self).__name__}: n_components={self.n_components} is more than n_features={n_features}. "
                "No injective mixing makes fewer observed than hidden variables: ask for at most as many."
            )

    def _rows_per_batch(self, n_rows: int, noun: str = "pairs") -> int:
        """Return the batch size for so many rows, which are called so."""
        if self.batch_size is None:
            return min(self._default_batch_size, n_rows)
        if self.batch_size > n_rows:
            raise ValueError(
                f"{type(self).__name__}: batch_size={self.batch_size} is larger than the {n_rows} {noun} in the "
                "data. Leave it at None to take what fits, or give more data."
            )
        return self.batch_size

    def _settings(self, more: dict[str, Any]) -> dict[str, Any]:
        """Return what a checkpoint must agree with."""
        if self.checkpoint is None:
            return {}
        if not isinstance(self.random_state, numbers.Integral):
            raise ValueError(
                f"{type(self).__name__}: checkpoint is given but random_state={self.random_state!r}. A fit can only "
                "be resumed if it draws the same numbers again: set random_state to an integer."
            )
        ours = {k: v for k, v in self.get_params(deep=False).items() if k not in _NOT_SETTINGS}
        return {k: _stable_repr(v) for k, v in ours.items()} | more


def encode(encoder: Encoder, x: Tensor) -> Tensor:
    """Encode (n, n_features) in float64, a bounded number of rows at a time; (n, n_components)."""
    encoder = copy.deepcopy(encoder).double()
    device = encoder.whiten.mean.device
    with torch.no_grad():  # not inference_mode: what comes out may enter someone's own training
        return torch.cat([encoder(rows.to(device).double()) for rows in x.split(ENCODE_ROWS)])


def check_positive(value: Any, name: str) -> None:
    """Raise unless the value is a positive, finite number."""
    check_scalar(value, name, numbers.Real, min_val=0, include_boundaries="neither")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}.")


_NOT_SETTINGS = {"checkpoint", "patience", "device", "verbose"}


def as_array(data: Any) -> Any:
    """Return a tensor's values as a numpy array, anything else as it is."""
    if not isinstance(data, Tensor):
        return data
    data = data.detach().cpu()
    return (data.float() if data.dtype == torch.bfloat16 else data).numpy()  # numpy knows no bfloat16


def _stable_repr(value: Any) -> str:
    """Return a repr without memory addresses, the same in the next process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array)
        digest.update(f"{values.shape}{values.dtype}".encode())
        digest.update(values.astype(str).tobytes() if values.dtype == object else values.tobytes())
    return digest.hexdigest()[:16]
