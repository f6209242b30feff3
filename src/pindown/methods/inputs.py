"""What a fit reads: arrays or a source, and side variables by the part they play; and what it saw before training."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown._names import listed
from pindown.data import GeneratorSource, IndexedSource, Source, as_source, first_samples
from pindown.data.data import Data, as_array
from pindown.data.sources import is_mapped, require_finite_samples
from pindown.data.splits import Split
from pindown.networks import Preprocessing, Whiten

AT_ONCE = 1 << 24
"""Numbers that go through a first layer at once."""

SUMMARY_SAMPLES, MIN_SUMMARY_SAMPLES, SUMMARY_NUMBERS = 20_000, 2_000, 1 << 25
"""Rows of a stream or a world that a fit looks at before it trains: for mean and covariance, labels, closed forms; and
of pictures at least the second, or as many as have so many numbers."""


@dataclass(frozen=True, eq=False)
class DataSummary:
    """What a fit saw of its data before the first step; `plan` sees the same. A method adds what it needs.

    Parameters
    ----------
    n_components : int
        Number of latents.
    rows : array of int or None
        The rows to learn from; None: all.
    warnings : tuple of str
        What stands against any claim already.
    """

    n_components: int
    rows: NDArray[np.int64] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class TrainingInput:
    """Rows to look at, with what belongs to them; and where batches come from, if these are not all rows."""

    data: Data
    source: Source | None = None  # a stream, or a world
    splits: tuple[Split, ...] = ()  # training and validation samples: once, or in folds

    @property
    def n_samples(self) -> float:
        """Number of rows to learn from; infinity if there is no end."""
        if self.source is None:
            return len(self.data)
        return math.inf if self.source.n_samples is None else self.source.n_samples

    @property
    def some_samples(self) -> np.ndarray:
        """Rows in memory: all, or the first of those that stay where they are."""
        X = self.data.X
        return np.asarray(next(X.blocks(SUMMARY_SAMPLES))["x"] if isinstance(X, IndexedSource) else X)

    @property
    def source_name(self) -> str:
        """What a source is called in a message: a world by its own name."""
        return type(self.source).__name__

    @property
    def digest(self) -> str:
        """A fingerprint of the data: of what was looked at, and of how a source describes itself."""
        X = self.data.X
        some = X[np.linspace(0, len(X) - 1, 1_000).astype(np.int64)] if isinstance(X, IndexedSource) else X
        sides = [self.data.side_variables[role] for role in sorted(self.data.side_variables)]
        return digest(some, *sides) if self.source is None else f"{self.source!r} {digest(some, *sides)}"


def preprocessed(first: Preprocessing, inputs: TrainingInput) -> TrainingInput:
    """Return samples in memory as a whitening that drops directions returns them; others as they are."""
    data = inputs.data
    if inputs.source is not None or not isinstance(data.X, np.ndarray) or not isinstance(first, Whiten):
        return inputs
    if first.scale is None or first.shape_out == first.shape_in:
        return inputs
    pairs = _through(first, data.pairs) if np.shape(data.pairs) == data.X.shape else data.pairs
    return replace(inputs, data=replace(data, X=_through(first, data.X), pairs=pairs))


def _through(first: Preprocessing, rows: Any) -> np.ndarray:
    size = max(1, AT_ONCE // max(1, math.prod(first.shape_in)))
    return torch.cat([first(part) for part in torch.as_tensor(as_array(rows)).split(size)]).numpy()


def is_in_memory(X: Any) -> bool:
    """Say whether X is rows in memory: an array that is no map, a tensor, a list, a data frame."""
    if isinstance(X, Source) or is_mapped(X):
        return False
    return isinstance(X, np.ndarray | Tensor | list | tuple) or hasattr(X, "__array__") or hasattr(X, "toarray")


def read_source(X: Any, side: str | None, sides: Mapping[str, Any], rng: torch.Generator) -> TrainingInput:
    """Read what gives batches: all side variables of rows that can be taken, or the first rows of others."""
    source = as_source(X)
    if isinstance(source, IndexedSource):
        found = _by_role(source.side_variables(), side, sides)
        partners = found.get("pairs")
        if partners is not None and np.ndim(partners) > 1:
            require_finite_samples(as_array(partners), "pairs")
        return TrainingInput(Data(source, **found))
    if sides:
        raise ValueError(
            f"{listed([*sides])} came as an array beside a source whose rows cannot be taken in any order, so that "
            "nobody knows which row belongs to which. Let the source give both, as (x, y) or by role."
        )
    n_samples = min(SUMMARY_SAMPLES, max(MIN_SUMMARY_SAMPLES, SUMMARY_NUMBERS // math.prod(source.shape)))
    first = source.draw(n_samples, rng) if isinstance(source, GeneratorSource) else first_samples(source, n_samples)
    arrays = {name: as_array(part) for name, part in first.items()}
    return TrainingInput(Data(arrays.pop("x"), **_by_role(arrays, side, {})), source)


def _by_role(found: Mapping[str, Any], side: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return side variables by role: what a source calls ``y`` is what the method learns from."""
    named = {side if name == "y" and side else name: part for name, part in found.items()}
    named.pop("y", None)  # labels of a data set that a method without a side variable passes over
    return {**named, **given}


def digest(*arrays: Any) -> str:
    """Return a fingerprint of arrays."""
    total = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array)
        total.update(f"{values.shape}{values.dtype}".encode())
        total.update(values.astype(str).tobytes() if values.dtype == object else values.tobytes())
    return total.hexdigest()[:16]
