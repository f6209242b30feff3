"""`Observes`: what reads observations and side variables, or says what is wrong with them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from pindown.auditing.refits import check_roles
from pindown.auditing.spec import MethodSpec
from pindown.data import ArraySource, GeneratorSource, IndexedSource, SubsetSource, as_source
from pindown.data.data import Data, from_torch
from pindown.data.files import require_in_memory
from pindown.data.sources import require_finite_samples
from pindown.methods.inputs import TrainingInput, is_in_memory, read_source
from pindown.networks import preprocessing
from pindown.networks.preprocessing import Preprocess, Preprocessing
from pindown.simulate import Process

COLOURS = (1, 3, 4)
"""Channels of pictures: grey, colours, and how far these cover."""


class Observes(BaseEstimator):
    """Rows of one shape, in memory or from a source, with side variables by the part they play; abstract."""

    spec: ClassVar[MethodSpec[Any]]
    preprocess: Preprocess
    shape_in_: tuple[int, ...]

    def _read(self, X: Any, sides: dict[str, Any], rng: torch.Generator, *, reset: bool = True) -> TrainingInput:
        """Read observations and side variables, or say what is wrong with them."""
        sides = {role: values for role, values in sides.items() if values is not None}
        if isinstance(X, Data):
            if sides:
                raise ValueError(f"{type(self).__name__}: X is Data and has its side variables: give no y beside it.")
            X, sides, names = X.X, X.side_variables, X.names
        else:
            names = ()
        if is_in_memory(X):
            array = self._validated(X, reset=reset)
            self._check_lengths(len(array), sides)
            inputs = TrainingInput(Data(array, **sides, names=names))
        else:
            source = as_source(X)
            if not self._reads(source.shape):
                self._require_flat("each row of X", source.shape, source.shape)
            inputs = read_source(source, self.spec.roles.y, sides, rng)
            if isinstance(inputs.source, GeneratorSource):  # a world tells more than a method asks for
                known = (self.spec.roles.y,) if isinstance(X, Process) else (self.spec.roles.y, *self.spec.roles.also)
                inputs = TrainingInput(inputs.data.only(*filter(None, known)), inputs.source)
            if reset:
                self._remember_shape(source.shape)
            self._require_shape(source.shape)
        check_roles(type(self).__name__, inputs.data.side_variables, self.spec.roles.used)
        return inputs

    def _validated(self, X, *, reset: bool, start: int = 0) -> np.ndarray:
        """Return X as a finite float array with the right shape of rows, or say what is wrong with it.

        Its first row has the number ``start`` in messages.
        """
        X = X.X if isinstance(X, Data) else X
        require_in_memory(type(self).__name__, X)
        array, least = from_torch(X), 2 if reset else 1
        self._require_numbers(array)
        # In C order and writeable: torch reads no array with negative strides, and warns of read-only ones.
        order: dict[str, Any] = {"order": "C", "force_writeable": True, "ensure_all_finite": False}
        if len(_shape(array)) < 3 or hasattr(array, "toarray"):
            array = validate_data(
                self, array, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=least, **order
            )
        else:
            whole = np.asarray(array).dtype.kind in "bui"  # pixels: float32 has digits enough for them
            kinds = np.float32 if whole else [np.float64, np.float32]
            array = check_array(
                array, dtype=kinds, allow_nd=True, ensure_min_samples=least, estimator=self, input_name="X", **order
            )
            if not self._accepts(array.shape[1:]):
                array = self._flattened(array)
        if reset:
            self._remember_shape(array.shape[1:])
        self._require_shape(array.shape[1:])
        require_finite_samples(array, "X", start=start)
        return array

    def _require_numbers(self, array: Any) -> None:
        """Raise if X is a single column or row, or complex: scikit-learn would show all of it."""
        if len(_shape(array)) == 1:
            raise ValueError(
                f"{type(self).__name__}: X has shape {_shape(array)}, but must have a row per sample and a column per "
                "observed variable. Reshape your data: X.reshape(-1, 1) if there is one variable, X.reshape(1, -1) if "
                "there is one sample."
            )
        if getattr(getattr(array, "dtype", None), "kind", "") == "c":
            raise ValueError(
                f"{type(self).__name__}: Complex data not supported: X is {array.dtype}. Give real and imaginary parts "
                "as columns of their own: np.hstack([X.real, X.imag])."
            )

    def _check_lengths(self, n_samples: int, sides: dict[str, Any]) -> None:
        for role, values in sides.items():
            if isinstance(values, str):
                continue
            name = "y" if role == self.spec.roles.y else role
            n = _shape(values)[0] if _shape(values) else "none"
            if n != n_samples:
                raise ValueError(
                    f"X has {n_samples} rows but {name} has {n}. Row i of {name} must belong to row i of X."
                )

    def _flattened(self, array: np.ndarray) -> np.ndarray:
        """Return samples as vectors, if they are whitened, or raise."""
        self._require_flat("X", array.shape, array.shape[1:])
        return array.reshape(len(array), -1)

    def _side_variable(self, X: Any, y: Any) -> Any:
        """Return y, or, if there is none, what `Data` has in its place."""
        return X.side_variables.get(self.spec.roles.y) if y is None and isinstance(X, Data) and self.spec.roles.y else y

    def _accepts(self, shape: tuple[int, ...]) -> bool:
        """Return whether samples of this shape are encoded as they are."""
        return True

    def _reads(self, shape: tuple[int, ...]) -> bool:
        """Return whether samples of this shape are encoded, as they are or, with `whiten`, as vectors."""
        return self._accepts(shape) or self.preprocess is preprocessing.whiten

    def _require_flat(self, what: str, shape: tuple[int, ...], of_row: tuple[int, ...]) -> None:
        if not self._reads(of_row):
            remedy = "Lay each row out as a vector: X.reshape(len(X), -1)."
            if "preprocess" in self.get_params(deep=False):
                remedy = (
                    "With preprocess=preprocessing.whiten (from pindown.networks) each row is laid out as a vector."
                )
            raise ValueError(
                f"{type(self).__name__} wants rows of numbers, (n_samples, n_features), but {what} has shape {shape}. "
                f"{remedy}"
            )

    def _require_shape(self, shape: tuple[int, ...]) -> None:
        if shape != self.shape_in_:
            raise ValueError(
                f"X has rows of shape {shape}, but {type(self).__name__} was fitted to rows of shape {self.shape_in_}."
            )

    def _remember_shape(self, shape: tuple[int, ...]) -> None:
        if len(shape) == 3 and min(shape[:2]) > COLOURS[-1] and shape[2] in COLOURS:
            raise ValueError(
                f"{type(self).__name__}: rows of X have shape {tuple(shape)}, and pictures are (c, h, w). Are colours "
                "last? Give np.moveaxis(X, -1, 1)."
            )
        self.shape_in_, self.n_features_in_ = tuple(shape), math.prod(shape)

    def fitted_preprocessing(self, X: Any) -> Preprocessing:
        """Return the preprocessing that `fit` would use, fitted to observations; its ``note`` says what it does.

        Parameters
        ----------
        X : array (n, …) or IndexedSource
            The observations.
        """
        return self._fit_preprocessing(X if isinstance(X, IndexedSource) else np.asarray(from_torch(X)))

    def _fit_preprocessing(self, X: np.ndarray | IndexedSource, rows: np.ndarray | None = None) -> Preprocessing:
        """Return the first layer that suits these rows; None: all."""
        source = X if isinstance(X, IndexedSource) else ArraySource(X)
        chosen = source if rows is None else SubsetSource(source, rows)
        return preprocessing.fitted(type(self).__name__, self._preprocess_for(source.shape), chosen)

    def _preprocess_for(self, shape: tuple[int, ...]) -> Preprocess:
        """Return what is done first to rows of this shape: by default what was asked for."""
        return self.preprocess


def _shape(values: Any) -> tuple[int, ...]:
    """Return the shape of array-likes; not np.shape, which some that can be made arrays forbid to ask them."""
    return tuple(values.shape) if hasattr(values, "shape") else np.asarray(values).shape
