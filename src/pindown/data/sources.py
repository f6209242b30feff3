"""Sources of samples: arrays and memory maps, parts of them, several of them, and samples that are generated.

Nothing else in the package needs to know whether samples lie in memory, in files, or are made on request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown.data.data import Sides, as_array, require_numbers, roles_of
from pindown.errors import InputError

Batch = dict[str, Any]
"""Some samples: ``x``, an array or a tensor (n, …), and side variables by role; or ``y`` where the role is open."""

NUMBERS = "biuf"
"""Kinds of numpy types that are numbers."""


class Source(ABC):
    """Samples of one shape, and perhaps side variables; abstract.

    A source is of one of three kinds: samples in any order (`IndexedSource`), new samples at every call
    (`GeneratorSource`), or a stream, which can only be read from its beginning to its end.
    """

    shape: tuple[int, ...]  # of one sample
    n_samples: int | None  # None: it never ends, or its end is not known

    @abstractmethod
    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the samples once, in order, at most so many at a time; for ever if there is no end."""

    def epochs(self, n_samples: int) -> Iterator[Iterator[Batch]]:
        """Go through the samples again and again; a stream that shuffles has an order of its own in each epoch."""
        while True:
            yield self.blocks(n_samples)

    def __repr__(self) -> str:
        # The same in another process: a checkpoint knows its data by it.
        return f"{type(self).__name__}(shape={self.shape}, n_samples={self.n_samples})"


class IndexedSource(Source):
    """A source whose samples can be taken in any order; abstract."""

    n_samples: int

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return the samples with these numbers, in this order."""

    def side_variables(self) -> dict[str, NDArray[np.generic]]:
        """Return the side variables of all samples, in memory; by default by going through them once."""
        parts: dict[str, list[Any]] = {}
        for batch in self.blocks(1_024):
            for name, part in batch.items():
                if name != "x":
                    parts.setdefault(name, []).append(as_array(part))
        return {name: np.concatenate(some) for name, some in parts.items()}

    def __len__(self) -> int:
        return self.n_samples

    def __getitem__(self, rows: Any) -> NDArray[np.generic]:
        """Return ``x`` of the samples with these numbers."""
        return as_array(self.take(np.asarray(rows))["x"])

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the samples once, in order."""
        for first in range(0, self.n_samples, n_samples):
            yield self.take(np.arange(first, min(first + n_samples, self.n_samples)))


class GeneratorSource(Source):
    """A source that generates samples, on the device of a random generator; abstract."""

    n_samples: None = None

    @abstractmethod
    def draw(self, n_samples: int, generator: torch.Generator) -> Batch:
        """Return so many new samples, on the generator's device."""

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Generate samples for ever, on the CPU, always the same."""
        generator = torch.Generator().manual_seed(0)
        while True:
            yield self.draw(n_samples, generator)


class SubsetSource(IndexedSource):
    """Some samples of a source, in any order, without copying them."""

    def __init__(self, source: IndexedSource, rows: NDArray[np.int64]) -> None:
        self.source, self.rows = source, rows
        self.shape, self.n_samples = source.shape, len(rows)

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these of the chosen samples."""
        return self.source.take(self.rows[rows])


class ConcatSource(IndexedSource):
    """The samples of several sources, one after another: a data set in several files.

    Parameters
    ----------
    sources : sequence of IndexedSource
        With samples of one shape, and the same side variables.

    Examples
    --------
    >>> source = ConcatSource([ArraySource(np.arange(3)), ArraySource(np.arange(10, 12))])
    >>> source.n_samples, source.take(np.array([4, 0, 3]))["x"].tolist()
    (5, [11, 0, 10])
    """

    def __init__(self, sources: Sequence[IndexedSource]) -> None:
        self.sources, self.shape = tuple(sources), sources[0].shape
        for k, source in enumerate(sources):
            if source.shape != self.shape:
                raise InputError("X", f"Samples of part {k} have shape {source.shape}, of the first {self.shape}.")
        self._ends = np.cumsum([source.n_samples for source in sources])
        self.n_samples = int(self._ends[-1])

    def side_variables(self) -> dict[str, NDArray[np.generic]]:
        """Return the side variables of all samples, part by part."""
        parts = [source.side_variables() for source in self.sources]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return the samples with these numbers, in this order."""
        rows = np.asarray(rows)
        part = np.searchsorted(self._ends, rows, side="right")
        starts = self._ends - [source.n_samples for source in self.sources]
        found = concatenated([self.sources[k].take(rows[part == k] - starts[k]) for k in np.unique(part)])
        place = np.argsort(np.argsort(part, kind="stable"))
        return {name: values[place] for name, values in found.items()}


class ArraySource(IndexedSource):
    """Samples of arrays: numpy arrays, memory maps, tensors, h5py and zarr arrays.

    Nothing is read before it is needed; a map is never copied as a whole, nor written to. A batch has copies of its
    samples, on the device of a tensor.

    Parameters
    ----------
    x : array of shape (n, …)
        The samples.
    signal, nuisance, pairs, given, groups, truth, floor : array of n samples, optional
        Side variables, by role: see `pindown.Data`.
    y : array of n samples, optional
        A side variable in the role that the estimator learns from.

    Examples
    --------
    >>> source = ArraySource(np.arange(12.0).reshape(4, 3), signal=["a", "b", "a", "c"])
    >>> source.shape, source.n_samples
    ((3,), 4)
    >>> batch = source.take(np.array([3, 0]))
    >>> batch["x"][:, 0].tolist(), batch["signal"].tolist()
    ([9.0, 0.0], ['c', 'a'])
    """

    def __init__(self, x: Any, **sides: Unpack[Sides]) -> None:
        require_numbers("x", x)
        parts = {"x": x, **roles_of(sides)}
        self.parts: dict[str, Any] = {name: _indexable(part, name) for name, part in parts.items()}
        x = self.parts["x"]
        if x.is_complex() if isinstance(x, Tensor) else np.dtype(x.dtype).kind not in NUMBERS:
            raise InputError("x", f"x must hold numbers, got {x.dtype}. Leave out text, or turn it into numbers.")
        self.n_samples, *shape = x.shape
        self.shape = tuple(shape)
        for name, part in self.parts.items():
            if (n := part.shape[0]) != self.n_samples:
                raise InputError(name, f"{name} has {n} samples, but x has {self.n_samples}. Pass one for each.")
        if self.n_samples == 0:
            raise InputError("x", f"x has no samples (shape {tuple(x.shape)}). Check that the array is right.")

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return the samples with these numbers, in this order."""
        return {name: _taken(part, np.asarray(rows)) for name, part in self.parts.items()}

    def side_variables(self) -> dict[str, NDArray[np.generic]]:
        """Return the side variables of all samples; positives behind a memory map stay there."""
        return {name: as_array(part) for name, part in self.parts.items() if name != "x"}

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the samples once, in order, a slice at a time: maps and files are then read without jumps."""
        for first in range(0, self.n_samples, n_samples):
            parts = {name: part[first : first + n_samples] for name, part in self.parts.items()}
            yield {name: part.clone() if isinstance(part, Tensor) else np.array(part) for name, part in parts.items()}


def _indexable(values: Any, name: str) -> Any:
    """Return arrays, maps and detached tensors as they are, anything else as a numpy array."""
    if isinstance(values, Tensor):
        values = values.detach()
    elif not is_mapped(values):
        values = as_array(values, name)
    if not len(values.shape):
        raise InputError(name, f"{name} must have one value per sample, got a single {type(values).__name__}.")
    return values


def _taken(part: Any, rows: NDArray[np.int64]) -> Any:
    if isinstance(part, Tensor):
        return part[torch.as_tensor(rows, device=part.device)]
    if isinstance(part, np.ndarray):
        return np.asarray(part[rows])
    ordered, place = np.unique(rows, return_inverse=True)  # h5py wants each row once, in order
    return np.asarray(part[ordered])[place]


def is_mapped(values: Any) -> bool:
    """Return whether samples stay elsewhere until they are needed: in a memory map, an h5py or a zarr array.

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
    """Return numbers as a tensor, which shares their memory if torch can: not of a read-only array, for one.

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


def concatenated(batches: Sequence[Batch]) -> Batch:
    """Return the samples of several batches as one."""
    if not batches:
        raise InputError("X", "The source has no samples. Check that it is right.")
    if len(batches) == 1:
        return batches[0]
    parts = {name: [batch[name] for batch in batches] for name in batches[0]}
    return {
        name: torch.cat(some) if isinstance(some[0], Tensor) else np.concatenate(some) for name, some in parts.items()
    }
