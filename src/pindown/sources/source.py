"""`Source`: where observations come from. Nothing else knows whether they lie in memory, in files, or nowhere yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

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


class Indexed(Source):
    """A source whose rows can be taken in any order; abstract."""

    n_rows: int

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows."""

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
