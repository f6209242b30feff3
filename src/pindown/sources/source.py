"""`Source`: where observations come from. Nothing else knows whether they lie in memory, in files, or nowhere yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pindown.data import as_array

Batch = dict[str, Any]
"""Some rows: ``x``, an array or a tensor (n, …), and what belongs to them, by role, or ``y`` if nothing says which."""


class Source(ABC):
    """Rows of one shape, and perhaps what belongs to each; abstract.

    A source is one of three kinds: rows that can be taken in any order (`Indexed`), rows that are drawn anew whenever
    they are asked for (`Drawn`), or a stream, which can only be gone through.
    """

    shape: tuple[int, ...]  # of one row of x
    n_rows: int | None  # None: it never ends, or nobody knows where

    @abstractmethod
    def blocks(self, n_rows: int) -> Iterator[Batch]:
        """Go through the rows once, in order, at most so many at a time; for ever if there is no end."""

    def epochs(self, n_rows: int) -> Iterator[Iterator[Batch]]:
        """Go through the rows again and again: what is shuffled comes in a new order, known from the epoch's number."""
        while True:
            yield self.blocks(n_rows)

    def __repr__(self) -> str:
        # The same in the next process: a checkpoint knows its data by it.
        return f"{type(self).__name__}(shape={self.shape}, n_rows={self.n_rows})"


class Indexed(Source):
    """A source whose rows can be taken in any order; abstract."""

    n_rows: int

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows."""

    def sides(self) -> dict[str, NDArray[Any]]:
        """Return what belongs to all rows, in memory: by going through them once."""
        parts: dict[str, list[Any]] = {}
        for batch in self.blocks(1_024):
            for name, part in batch.items():
                if name != "x":
                    parts.setdefault(name, []).append(as_array(part))
        return {name: np.concatenate(some) for name, some in parts.items()}

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Return the observations of these rows."""
        return as_array(self.take(np.asarray(rows))["x"])

    def blocks(self, n_rows: int) -> Iterator[Batch]:
        """Go through the rows once, in order."""
        for first in range(0, self.n_rows, n_rows):
            yield self.take(np.arange(first, min(first + n_rows, self.n_rows)))


class Drawn(Source):
    """A source that makes rows when they are asked for, on the device of a generator; abstract."""

    n_rows: None = None

    @abstractmethod
    def draw(self, n_rows: int, generator: torch.Generator) -> Batch:
        """Return so many new rows, on the generator's device."""

    def blocks(self, n_rows: int) -> Iterator[Batch]:
        """Draw for ever, on the CPU, always the same rows."""
        generator = torch.Generator().manual_seed(0)
        while True:
            yield self.draw(n_rows, generator)


class Chosen(Indexed):
    """Some rows of a source, in an order of one's own, without copying them."""

    def __init__(self, source: Indexed, rows: NDArray[np.int64]) -> None:
        self.source, self.rows = source, rows
        self.shape, self.n_rows = source.shape, len(rows)

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these of the chosen rows."""
        return self.source.take(self.rows[rows])
