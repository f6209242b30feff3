"""From what a user gives to `Prepared`: samples and side variables are read, split, preprocessed and summarised."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data
from torch import Tensor

from pindown import _random
from pindown._names import listed
from pindown.auditing.refits import check_roles
from pindown.auditing.spec import MethodSpec
from pindown.data import ArraySource, GeneratorSource, IndexedSource, Source, as_source, first_samples
from pindown.data.data import Data, as_array, from_torch
from pindown.data.files import require_in_memory
from pindown.data.sources import SubsetSource, is_mapped, require_finite_samples
from pindown.data.splits import Split, divided
from pindown.methods.parameters import check_components
from pindown.networks import Preprocessing, Whiten, preprocessing
from pindown.networks.preprocessing import Preprocess
from pindown.networks.spaces import Space
from pindown.simulate import Process
from pindown.training import best_device

if TYPE_CHECKING:
    from pindown.methods.base import BaseEncoder

AT_ONCE = 1 << 24  # size of the arrays that are preprocessed at once

SUMMARY_SAMPLES, MIN_SUMMARY_SAMPLES, SUMMARY_NUMBERS = 20_000, 2_000, 1 << 25
"""Number of samples of a stream or a simulation that are read before training; for images at least the second, or as
many as have so many numbers."""

CHANNELS = (1, 3, 4)  # of images: grey, colours, colours with transparency

ArrayOrTensor: TypeAlias = ArrayLike | Tensor
DataLike: TypeAlias = "ArrayLike | Tensor | Data | Source | Prepared"
Encoded: TypeAlias = Any  # an array or a tensor, as X came


@dataclass(frozen=True, eq=False)
class DataSummary:
    """What a method reads off the data before the first step, for `fit` and `plan` alike. Methods add to it."""

    n_components: int
    train_indices: NDArray[np.int64] | None = None  # the samples to learn from; None: all
    warnings: tuple[str, ...] = ()  # reasons not to make any claim
    notes: tuple[str, ...] = ()  # what was counted, and how


@dataclass(frozen=True, eq=False)
class TrainingInput:
    """Samples with their side variables, their split, and the source of batches if these are not all samples."""

    data: Data
    source: Source | None = None  # a stream, or a simulation
    splits: tuple[Split, ...] = ()  # training and validation samples: once, or in folds

    @property
    def n_samples(self) -> float:
        """Number of samples to learn from; infinity for an endless source."""
        if self.source is None:
            return len(self.data)
        return math.inf if self.source.n_samples is None else self.source.n_samples

    @property
    def some_samples(self) -> np.ndarray:
        """Samples in memory: all, or the first block of a source."""
        X = self.data.X
        return np.asarray(next(X.blocks(SUMMARY_SAMPLES))["x"] if isinstance(X, IndexedSource) else X)

    @property
    def digest(self) -> str:
        """Fingerprint of the data that were read, and of the source's description."""
        X = self.data.X
        some = X[np.linspace(0, len(X) - 1, 1_000).astype(np.int64)] if isinstance(X, IndexedSource) else X
        sides = [self.data.side_variables[role] for role in sorted(self.data.side_variables)]
        return digest(some, *sides) if self.source is None else f"{self.source!r} {digest(some, *sides)}"


@dataclass(frozen=True, eq=False)
class Prepared:
    """All that is decided before the first step of training."""

    inputs: TrainingInput
    samples: TrainingInput  # the same as they are trained on, perhaps preprocessed
    preprocessing: Preprocessing
    summary: DataSummary
    space: Space
    seed: int
    device: torch.device

    @property
    def n_samples(self) -> float:
        """Number of samples to learn from."""
        return self.inputs.n_samples if self.summary.train_indices is None else len(self.summary.train_indices)

    def with_train_indices(self, indices: NDArray[np.int64]) -> Prepared:
        """Return the same with other samples to learn from."""
        return replace(self, summary=replace(self.summary, train_indices=indices))


def prepare(est: BaseEncoder, X: DataLike | Process, sides: Mapping[str, object], *, hold_out: bool = True) -> Prepared:
    """Read, split, preprocess and summarise data for an estimator; raise if it cannot be trained on them."""
    device, seed = best_device(est.device), _random.draw_seed(est.random_state)
    inputs = est._read(X, sides, _random.generator(seed, device))
    est._check_inputs(inputs)
    inputs = replace(inputs, splits=_splits(est, inputs, seed) if hold_out else ())
    learned = inputs.splits[0].learned if len(inputs.splits) == 1 else None
    preprocessing = est.fitted_preprocessing(inputs.data.X, learned)
    check_components(est, preprocessing)
    summary = est._summarize(inputs, preprocessing, seed)
    if summary.train_indices is None:
        summary = replace(summary, train_indices=learned)
    samples, space = est._training_samples(inputs, preprocessing), est._space(summary.n_components)
    return Prepared(inputs, samples, preprocessing, summary, space, seed, device)


def _splits(est: BaseEncoder, inputs: TrainingInput, seed: int) -> tuple[Split, ...]:
    """Return the split into training and validation samples; none of a source whose samples are always new."""
    side, defaults = est.spec.roles.y, est.training_defaults
    if inputs.source is not None or side not in (None, "pairs", *inputs.data.side_variables):
        return ()
    how = {"paired": side == "pairs", "labelled": est.spec.roles.categorical, "folds": defaults.cross_validated}
    fraction = 0.0 if defaults.adversarial else est.trainer.validation_fraction
    return divided(inputs.data, fraction=fraction, seed=seed, **how)


def preprocessed(preprocessing: Preprocessing, inputs: TrainingInput) -> TrainingInput:
    """Return samples in memory as a whitening that drops directions returns them; others unchanged."""
    data = inputs.data
    if inputs.source is not None or not isinstance(data.X, np.ndarray) or not isinstance(preprocessing, Whiten):
        return inputs
    if preprocessing.scale is None or preprocessing.shape_out == preprocessing.shape_in:
        return inputs
    pairs = _through(preprocessing, data.pairs) if np.shape(data.pairs) == data.X.shape else data.pairs
    return replace(inputs, data=replace(data, X=_through(preprocessing, data.X), pairs=pairs))


def _through(preprocessing: Preprocessing, samples: ArrayLike) -> np.ndarray:
    size = max(1, AT_ONCE // max(1, math.prod(preprocessing.shape_in)))
    return torch.cat([preprocessing(part) for part in torch.as_tensor(as_array(samples)).split(size)]).numpy()


def is_in_memory(X: object) -> bool:
    """Return whether X is in memory: an array that is no memory map, a tensor, a list, a data frame."""
    if isinstance(X, Source) or is_mapped(X):
        return False
    return isinstance(X, np.ndarray | Tensor | list | tuple) or hasattr(X, "__array__") or hasattr(X, "toarray")


def digest(*arrays: ArrayLike) -> str:
    """Return a fingerprint of arrays."""
    total = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array)
        total.update(f"{values.shape}{values.dtype}".encode())
        total.update(values.astype(str).tobytes() if values.dtype == object else values.tobytes())
    return total.hexdigest()[:16]


class InputReader(BaseEstimator):
    """An estimator that reads samples of one shape, in memory or from a source, with side variables; abstract."""

    spec: ClassVar[MethodSpec[Any]]
    preprocess: Preprocess
    shape_in_: tuple[int, ...]

    def _read(
        self, X: DataLike | Process, sides: Mapping[str, object], rng: torch.Generator, *, reset: bool = True
    ) -> TrainingInput:
        """Read samples and side variables, or raise."""
        name, roles = type(self).__name__, self.spec.roles
        given: dict[str, Any] = {role: values for role, values in sides.items() if values is not None}
        names: tuple[str, ...] = ()
        if isinstance(X, Data):
            if given:
                raise ValueError(f"{name}: X is Data, which has its side variables. Do not give {listed([*given])}.")
            data = X
            X, given, names = data.X, data.side_variables, data.names
        if is_in_memory(X):
            array = self._validated(X, reset=reset)
            self._check_lengths(len(array), given)
            inputs = TrainingInput(Data(array, **given, names=names))
        else:
            source = as_source(X)
            self._require_flat("each row of X", source.shape, source.shape)
            inputs = _read_source(source, roles.y, given, rng)
            if isinstance(inputs.source, GeneratorSource):  # a simulation has more than a method uses
                used = (roles.y,) if isinstance(X, Process) else (roles.y, *roles.also)
                inputs = replace(inputs, data=inputs.data.only(*filter(None, used)))
            if reset:
                self._remember_shape(source.shape)
            self._require_shape(source.shape)
        check_roles(name, inputs.data.side_variables, roles.used)
        return inputs

    def _validated(self, X: DataLike, *, reset: bool, start: int = 0) -> np.ndarray:
        """Return X as a finite float array of samples of the right shape, or raise; messages count from ``start``."""
        X = X.X if isinstance(X, Data) else X
        require_in_memory(type(self).__name__, X)
        array, least = from_torch(X), 2 if reset else 1
        self._require_real_samples(array)
        # In C order and writeable: torch reads no array with negative strides, and warns of read-only ones.
        order: dict[str, Any] = {"order": "C", "force_writeable": True, "ensure_all_finite": False}
        if len(_shape(array)) < 3 or hasattr(array, "toarray"):
            array = validate_data(
                self, array, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=least, **order
            )
        else:
            whole = np.asarray(array).dtype.kind in "bui"  # pixels: float32 is precise enough
            order |= {"allow_nd": True, "ensure_min_samples": least, "estimator": self, "input_name": "X"}
            array = check_array(array, dtype=np.float32 if whole else [np.float64, np.float32], **order)
            if not self._accepts(array.shape[1:]):
                self._require_flat("X", array.shape, array.shape[1:])
                array = array.reshape(len(array), -1)
        if reset:
            self._remember_shape(array.shape[1:])
        self._require_shape(array.shape[1:])
        require_finite_samples(array, "X", start=start)
        return array

    def _require_real_samples(self, array: Any) -> None:
        """Raise if X is one-dimensional or complex."""
        if len(_shape(array)) == 1:
            raise ValueError(
                f"{type(self).__name__}: X must have a row per sample and a column per feature, got shape "
                f"{_shape(array)}. Reshape your data: X.reshape(-1, 1) if there is one feature, X.reshape(1, -1) if "
                "there is one sample."
            )
        if getattr(getattr(array, "dtype", None), "kind", "") == "c":
            raise ValueError(
                f"{type(self).__name__}: Complex data not supported: X is {array.dtype}. Give real and imaginary parts "
                "as features: np.hstack([X.real, X.imag])."
            )

    def _check_lengths(self, n_samples: int, sides: Mapping[str, object]) -> None:
        for role, values in sides.items():
            if isinstance(values, str):
                continue
            name = "y" if role == self.spec.roles.y else role
            n = _shape(values)[0] if _shape(values) else "none"
            if n != n_samples:
                what = f"Row i of {name} must belong to row i of X."
                raise ValueError(f"X has {n_samples} rows but {name} has {n}. {what}")

    def _accepts(self, shape: tuple[int, ...]) -> bool:
        """Return whether samples of this shape are encoded as they are."""
        return True

    def _reads(self, shape: tuple[int, ...]) -> bool:
        """Return whether samples of this shape are encoded, as they are or, with `whiten`, as vectors."""
        return self._accepts(shape) or self.preprocess is preprocessing.whiten

    def _require_flat(self, what: str, shape: tuple[int, ...], of_row: tuple[int, ...]) -> None:
        if self._reads(of_row):
            return
        remedy = "Make each sample a vector: X.reshape(len(X), -1)."
        if "preprocess" in self.get_params(deep=False):
            remedy = "With preprocess=preprocessing.whiten (from pindown.networks) each sample is made a vector."
        must = "X must have shape (n_samples, n_features)"
        raise ValueError(f"{type(self).__name__}: {must}, but {what} has shape {shape}. {remedy}")

    def _require_shape(self, shape: tuple[int, ...]) -> None:
        if shape != self.shape_in_:
            fitted = f"{type(self).__name__} was fitted to rows of shape {self.shape_in_}"
            raise ValueError(f"X has rows of shape {shape}, but {fitted}.")

    def _remember_shape(self, shape: tuple[int, ...]) -> None:
        if len(shape) == 3 and min(shape[:2]) > CHANNELS[-1] and shape[2] in CHANNELS:
            raise ValueError(
                f"{type(self).__name__}: images must have shape (c, h, w), got {tuple(shape)}. If channels come last, "
                "give np.moveaxis(X, -1, 1)."
            )
        self.shape_in_, self.n_features_in_ = tuple(shape), math.prod(shape)

    def fitted_preprocessing(
        self, X: ArrayOrTensor | IndexedSource, rows: NDArray[np.int64] | None = None
    ) -> Preprocessing:
        """Return the preprocessing that `fit` would use, fitted to these rows of X; its ``note`` says what it does."""
        source = X if isinstance(X, IndexedSource) else ArraySource(np.asarray(from_torch(X)))
        chosen = source if rows is None else SubsetSource(source, rows)
        return preprocessing.fitted(type(self).__name__, self._preprocess_for(source.shape), chosen)

    def _preprocess_for(self, shape: tuple[int, ...]) -> Preprocess:
        """Return the preprocessing of samples of this shape: by default as requested."""
        return self.preprocess


def _read_source(X: object, side: str | None, sides: Mapping[str, object], rng: torch.Generator) -> TrainingInput:
    """Read a source: all side variables if it has an index, else its first samples."""
    source = as_source(X)
    if isinstance(source, IndexedSource):
        found = _by_role(source.side_variables(), side, sides)
        positives = found.get("pairs")
        if positives is not None and np.ndim(positives) > 1:
            require_finite_samples(as_array(positives), "pairs")
        return TrainingInput(Data(source, **found))
    if sides:
        raise ValueError(
            f"{listed([*sides])} came as an array with a source that has no index, so that it is not known which row "
            "belongs to which sample. Let the source give both, as (x, y) or by role."
        )
    n_samples = min(SUMMARY_SAMPLES, max(MIN_SUMMARY_SAMPLES, SUMMARY_NUMBERS // math.prod(source.shape)))
    first = source.draw(n_samples, rng) if isinstance(source, GeneratorSource) else first_samples(source, n_samples)
    arrays = {name: as_array(part) for name, part in first.items()}
    return TrainingInput(Data(arrays.pop("x"), **_by_role(arrays, side, {})), source)


def _by_role(found: Mapping[str, Any], side: str | None, given: Mapping[str, object]) -> dict[str, Any]:
    """Return side variables by role: ``y`` of a source has the role that the method learns from."""
    named = {side if name == "y" and side else name: part for name, part in found.items()}
    named.pop("y", None)  # labels of a dataset, for a method without a side variable
    return {**named, **given}


def _shape(values: object) -> tuple[int, ...]:
    """Return the shape of array-likes, some of which do not allow np.shape."""
    return tuple(values.shape) if hasattr(values, "shape") else np.asarray(values).shape
