"""`Joined`: several sources of rows, one after another, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.sources.source import Batch, Indexed
from pindown.sources.streaming import joined


class Joined(Indexed):
    """Rows of several sources, one after another: the parts of a data set that is too large for one file.

    Parameters
    ----------
    sources : sequence of Indexed
        With rows of one shape, and the same side variables.

    Examples
    --------
    >>> from pindown.sources.arrays import Arrays
    >>> source = Joined([Arrays(np.arange(3)), Arrays(np.arange(10, 12))])
    >>> source.n_rows, source.take(np.array([4, 0, 3]))["x"].tolist()
    (5, [11, 0, 10])
    """

    def __init__(self, sources: Sequence[Indexed]) -> None:
        if not sources:
            raise ValueError("Joined: there are no sources to join.")
        self.sources, self.shape = tuple(sources), sources[0].shape
        for k, source in enumerate(sources):
            if source.shape != self.shape:
                raise ValueError(
                    f"Joined: rows of part {k} have shape {source.shape}, those of the first {self.shape}."
                )
        self._ends = np.cumsum([source.n_rows for source in sources])
        self.n_rows = int(self._ends[-1])

    def sides(self) -> dict[str, NDArray[Any]]:
        """Return what belongs to all rows, part by part."""
        parts = [source.sides() for source in self.sources]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows, in this order."""
        rows = np.asarray(rows)
        part = np.searchsorted(self._ends, rows, side="right")
        order = np.argsort(part, kind="stable")
        starts = self._ends - [source.n_rows for source in self.sources]
        found = joined([self.sources[k].take(rows[part == k] - starts[k]) for k in np.unique(part)])
        place = np.argsort(order)
        return {name: values[place] for name, values in found.items()}
