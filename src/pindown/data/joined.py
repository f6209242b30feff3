"""`Joined`: several sources of rows, one after another, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.data.source import Batch, IndexedSource
from pindown.data.streaming import joined


class Joined(IndexedSource):
    """Rows of several sources, one after another: the parts of a data set that is too large for one file.

    Parameters
    ----------
    sources : sequence of IndexedSource
        With rows of one shape, and the same side variables.

    Examples
    --------
    >>> from pindown.data.arrays import ArraySource
    >>> source = Joined([ArraySource(np.arange(3)), ArraySource(np.arange(10, 12))])
    >>> source.n_samples, source.take(np.array([4, 0, 3]))["x"].tolist()
    (5, [11, 0, 10])
    """

    def __init__(self, sources: Sequence[IndexedSource]) -> None:
        if not sources:
            raise ValueError("Joined: there are no sources to join.")
        self.sources, self.shape = tuple(sources), sources[0].shape
        for k, source in enumerate(sources):
            if source.shape != self.shape:
                raise ValueError(
                    f"Joined: rows of part {k} have shape {source.shape}, those of the first {self.shape}."
                )
        self._ends = np.cumsum([source.n_samples for source in sources])
        self.n_samples = int(self._ends[-1])

    def side_variables(self) -> dict[str, NDArray[Any]]:
        """Return what belongs to all rows, part by part."""
        parts = [source.side_variables() for source in self.sources]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows, in this order."""
        rows = np.asarray(rows)
        part = np.searchsorted(self._ends, rows, side="right")
        order = np.argsort(part, kind="stable")
        starts = self._ends - [source.n_samples for source in self.sources]
        found = joined([self.sources[k].take(rows[part == k] - starts[k]) for k in np.unique(part)])
        place = np.argsort(order)
        return {name: values[place] for name, values in found.items()}
