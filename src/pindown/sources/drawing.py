"""How batches come about: labels as numbers, rows in a new order every epoch, fresh rows from a world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pindown.processes import Process
from pindown.sources.batches import CapturableDraw, Draw

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Makes another view of every row: (n, n_features) and a generator in, (n, n_features) out."""


class Numbered(NamedTuple):
    """Distinct values, sorted; the number in them of each row's value; the rows of each value."""

    values: np.ndarray
    labels: np.ndarray  # (n,)
    counts: np.ndarray


def numbered(y: Any, noun: str) -> Numbered:
    """Give a number to each value of a 1-d array, each of which is a ``noun``, or say what is wrong with them."""
    if _some_missing(y):
        raise ValueError(f"y (the {noun}s) contains NaN or None. Give each row a {noun}, or leave the row out.")
    try:
        return Numbered(*np.unique(y, return_inverse=True, return_counts=True))
    except TypeError as error:
        raise ValueError(
            f"y (the {noun}s) mixes types that cannot be compared ({error}). Make them all text or all numbers."
        ) from error


def _some_missing(values: np.ndarray) -> bool:
    if values.dtype.kind == "O":
        return any(v is None or (not isinstance(v, str) and str(v) in ("nan", "NaT", "<NA>")) for v in values)
    return bool((values != values).any())


class Rows(Protocol):
    """Something whose rows can be taken in any order; `Epochs` draws from it."""

    @property
    def x(self) -> Tensor:
        """The observations, which say what device the rows are on."""
        ...

    def __len__(self) -> int: ...

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the rows at these positions, and what belongs to them."""
        ...


@dataclass(frozen=True)
class Labelled:
    """Rows with the number of their label."""

    x: Tensor  # (n, n_features)
    labels: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.x)

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the rows at these positions and their labels."""
        return self.x[which], self.labels[which]


class Epochs(CapturableDraw):
    """Batches without replacement: each epoch is a new order, known from the seed and the step alone."""

    def __init__(self, source: Rows, batch_size: int) -> None:
        self.source, self.batch_size = source, batch_size
        self.rows = torch.empty(batch_size, dtype=torch.int64, device=source.x.device)
        self._epoch, self._order = -1, self.rows

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Put the row numbers of this step's batch into `rows`."""
        n = len(self.source)
        epoch, k = divmod(step, n // self.batch_size)
        if epoch != self._epoch:
            # Not the generator itself: a resumed run must find the order of an epoch it starts in the middle of.
            shuffler = torch.Generator().manual_seed((generator.initial_seed() * 7_919 + epoch) % 2**63)
            self._order = torch.randperm(n, generator=shuffler).to(self.rows.device)
            self._epoch = epoch
        self.rows.copy_(self._order[k * self.batch_size : (k + 1) * self.batch_size])

    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return what the source has at `rows`."""
        return self.source.take(self.rows, generator)


@dataclass(frozen=True)
class FreshLabelled(CapturableDraw):
    """Batches of labelled rows from a world, new at every step."""

    process: Process
    batch_size: int

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Nothing to make ready."""

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return fresh samples and their labels."""
        sample = self.process.sample(self.batch_size, random_state=generator, device=generator.device)
        assert sample.u is not None
        return sample.x, sample.u


@dataclass(frozen=True)
class Augmented:
    """Batches whose rows are shown in another view every time.

    Not capturable in a CUDA graph, since someone else's function may wait for the device.
    """

    draw: Draw
    augment: Augment

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step, its rows augmented."""
        x, *others = self.draw(step, generator)
        view = self.augment(x, generator)
        if not isinstance(view, Tensor) or view.shape != x.shape:
            got = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
            raise ValueError(
                f"augment must map a batch to a tensor of the same shape, {tuple(x.shape)}; got {got}. "
                "It is called as augment(x, generator) and returns another view of every row."
            )
        return view, *others
