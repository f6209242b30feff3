"""`Source`: where observations come from. Nothing else knows whether they lie in memory, in files, or nowhere yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pindown.data.data import as_array

Batch = dict[str, Any]
"""Some rows: ``x``, an array or a tensor (n, …), and what belongs to them, by role, or ``y`` if nothing says which."""


class Source(ABC):
    """Rows of one shape, and perhaps what belongs to each; abstract.

    A source is one of three kinds: samples in any order (`IndexedSource`), new samples at every call
    (`GeneratorSource`), or a stream, which is only read from its beginning to its end.
    """

    shape: tuple[int, ...]  # of one row of x
    n_samples: int | None  # None: it never ends, or nobody knows where

    @abstractmethod
    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the rows once, in order, at most so many at a time; for ever if there is no end."""

    def epochs(self, n_samples: int) -> Iterator[Iterator[Batch]]:
        """Go through the rows again and again: what is shuffled comes in a new order, known from the epoch's number."""
        while True:
            yield self.blocks(n_samples)

    def __repr__(self) -> str:
        # The same in the next process: a checkpoint knows its data by it.
        return f"{type(self).__name__}(shape={self.shape}, n_samples={self.n_samples})"


class IndexedSource(Source):
    """A source whose rows can be taken in any order; abstract."""

    n_samples: int

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows."""

    def side_variables(self) -> dict[str, NDArray[Any]]:
        """Return what belongs to all rows, in memory: by going through them once."""
        parts: dict[str, list[Any]] = {}
        for batch in self.blocks(1_024):
            for name, part in batch.items():
                if name != "x":
                    parts.setdefault(name, []).append(as_array(part))
        return {name: np.concatenate(some) for name, some in parts.items()}

    def __len__(self) -> int:
        return self.n_samples

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Return the observations of these rows."""
        return as_array(self.take(np.asarray(rows))["x"])

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the rows once, in order."""
        for first in range(0, self.n_samples, n_samples):
            yield self.take(np.arange(first, min(first + n_samples, self.n_samples)))


class GeneratorSource(Source):
    """A source that makes rows when they are asked for, on the device of a generator; abstract."""

    n_samples: None = None

    @abstractmethod
    def draw(self, n_samples: int, generator: torch.Generator) -> Batch:
        """Return so many new rows, on the generator's device."""

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Draw for ever, on the CPU, always the same rows."""
        generator = torch.Generator().manual_seed(0)
        while True:
            yield self.draw(n_samples, generator)


class SubsetSource(IndexedSource):
    """Some rows of a source, in an order of one's own, without copying them."""

    def __init__(self, source: IndexedSource, rows: NDArray[np.int64]) -> None:
        self.source, self.rows = source, rows
        self.shape, self.n_samples = source.shape, len(rows)

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these of the chosen rows."""
        return self.source.take(self.rows[rows])
