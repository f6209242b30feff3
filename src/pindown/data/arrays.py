"""`ArraySource`: rows that lie in memory or behind a map, with what belongs to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown.data.data import as_array
from pindown.data.source import Batch, IndexedSource

NUMBERS = "biuf"
"""Kinds of numpy types that are numbers."""


class ArraySource(IndexedSource):
    """Rows of arrays: numpy arrays and memory maps, tensors, h5py and zarr arrays, whatever has a shape and rows.

    Nothing is read before it is asked for, and a map is never copied as a whole, nor written to: a batch holds copies
    of its rows, on the device of a tensor.

    Parameters
    ----------
    x : array of shape (n, …)
        The observations.
    signal, nuisance, pairs, given, groups, truth, floor : array of n rows, optional
        What belongs to them, by the part it plays: see `pindown.data.data.Data`.
    y : array of n rows, optional
        What belongs to them, if the estimator is to say what it is.

    Examples
    --------
    >>> source = ArraySource(np.arange(12.0).reshape(4, 3), signal=["a", "b", "a", "c"])
    >>> source.shape, source.n_samples
    ((3,), 4)
    >>> batch = source.take(np.array([3, 0]))
    >>> batch["x"][:, 0].tolist(), batch["signal"].tolist()
    ([9.0, 0.0], ['c', 'a'])
    """

    def __init__(
        self,
        x: Any,
        *,
        signal: Any = None,
        nuisance: Any = None,
        pairs: Any = None,
        given: Any = None,
        groups: Any = None,
        truth: Any = None,
        floor: Any = None,
        y: Any = None,
    ) -> None:
        roles = {"signal": signal, "nuisance": nuisance, "pairs": pairs, "given": given, "groups": groups}
        roles |= {"truth": truth, "floor": floor, "y": y}
        sides = {role: side for role, side in roles.items() if side is not None}
        self.parts: dict[str, Any] = {name: in_rows(part, name) for name, part in {"x": x, **sides}.items()}
        x = self.parts["x"]
        if x.is_complex() if isinstance(x, Tensor) else np.dtype(x.dtype).kind not in NUMBERS:
            raise ValueError(f"x must hold numbers, got {x.dtype}. Leave out what is text, or turn it into numbers.")
        self.n_samples, *shape = x.shape
        self.shape = tuple(shape)
        for name, part in self.parts.items():
            if (n := part.shape[0]) != self.n_samples:
                raise ValueError(
                    f"{name} has {n} rows, but x has {self.n_samples}. Row i of {name} must belong to row i of x."
                )
        if self.n_samples == 0:
            raise ValueError(f"x has no rows (shape {tuple(x.shape)}): there is nothing to learn from.")

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows, in this order."""
        return {name: _taken(part, np.asarray(rows)) for name, part in self.parts.items()}

    def side_variables(self) -> dict[str, NDArray[Any]]:
        """Return what belongs to all rows, without a look at x: partners behind a memory map stay there."""
        return {name: as_array(part) for name, part in self.parts.items() if name != "x"}

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the rows once, in order, a slice at a time: maps and files are then read without jumps."""
        for first in range(0, self.n_samples, n_samples):
            yield {name: _copied(part[first : first + n_samples]) for name, part in self.parts.items()}


def in_rows(values: Any, name: str) -> Any:
    """Return what has a shape and rows as it is, a detached tensor, and anything else as a numpy array."""
    if isinstance(values, Tensor):
        values = values.detach()
    elif not isinstance(values, np.ndarray) and not is_mapped(values):
        values = as_array(values)
    if not len(values.shape):
        raise ValueError(f"{name} must have rows, got a single value of type {type(values).__name__}.")
    return values


def is_mapped(values: Any) -> bool:
    """Say whether these are rows that lie elsewhere until they are asked for: a memory map, an h5 or a zarr array.

    Examples
    --------
    >>> is_mapped(np.zeros(3)), is_mapped([1, 2])
    (False, False)
    """
    if isinstance(values, np.memmap):
        return True
    in_memory = isinstance(values, np.ndarray | Tensor) or hasattr(values, "iloc") or hasattr(values, "toarray")
    return not in_memory and all(hasattr(values, part) for part in ("shape", "dtype", "__getitem__"))


def as_tensor(values: Any) -> Tensor:
    """Return numbers as a tensor that shares their memory where torch can: not if they are read-only, or turned round.

    Examples
    --------
    >>> as_tensor(np.array([1, 2], dtype=">f4"))
    tensor([1., 2.])
    """
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def _taken(part: Any, rows: NDArray[np.int64]) -> Any:
    if isinstance(part, Tensor):
        return part[torch.as_tensor(rows, device=part.device)]
    if isinstance(part, np.ndarray):
        return np.asarray(part[rows])
    # Files of arrays want each row once, in order.
    ordered, place = np.unique(rows, return_inverse=True)
    return np.asarray(part[ordered])[place]


def _copied(part: Any) -> Any:
    return part.clone() if isinstance(part, Tensor) else np.array(part)
