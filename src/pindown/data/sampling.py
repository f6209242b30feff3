"""How batches come about: rows in a new order every epoch, rows of a stream in theirs, fresh rows from a world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from pindown.data.arrays import as_tensor
from pindown.data.batches import CapturableDraw, Draw
from pindown.data.source import Batch, GeneratorSource, IndexedSource, Source

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Makes another view of every row: (n, …) and a generator in, (n, …) out."""

Chance = Callable[[int, torch.Generator], tuple[Tensor, ...]]
"""Makes the random numbers that an objective wants beside so many rows, on the generator's device."""

Read = Callable[[Batch], tuple[Any, ...]]
"""Turns a batch into what an objective takes: the observations, then a field for each thing that belongs to them."""

MOST_OF_A_GPU = 0.25
"""Share of a GPU's free memory that observations may take; if they need more they stay where they are."""


def on_device(X: np.ndarray | IndexedSource, device: torch.device) -> Tensor | IndexedSource:
    """Return observations where batches are drawn from: on the device if they are in memory and fit there."""
    if isinstance(X, IndexedSource):
        return X
    fits = device.type != "cuda" or X.nbytes < MOST_OF_A_GPU * torch.cuda.mem_get_info(device)[0]
    return torch.as_tensor(X, device=device if fits else "cpu")


def taken(x: Tensor | IndexedSource, which: Tensor) -> Tensor:
    """Return the observations at these positions."""
    return torch.as_tensor(x[which.numpy()]) if isinstance(x, IndexedSource) else x[which]


class Takeable(Protocol):
    """Something whose rows can be taken in any order; `Epochs` draws from it."""

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        ...

    def __len__(self) -> int: ...

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the rows at these positions, and what belongs to them."""
        ...


class Rows:
    """Observations, the fields that belong to them, and perhaps random numbers that are new whenever they are taken.

    With ``among``, numbers of rows, only these are there, numbered anew; nothing is copied.

    Examples
    --------
    >>> rows = Rows(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([7, 8, 9]))
    >>> [part.tolist() for part in rows.take(torch.tensor([2, 0]), torch.Generator())]
    [[[3.0], [1.0]], [9, 7]]
    """

    def __init__(
        self, x: Tensor | IndexedSource, *fields: Any, chance: Chance | None = None, among: np.ndarray | None = None
    ) -> None:
        self.x, self.chance = x, chance
        self.device = x.device if isinstance(x, Tensor) else torch.device("cpu")
        self.fields = tuple(as_tensor(field).to(self.device) for field in fields)
        self.among = None if among is None else torch.as_tensor(among, device=self.device)

    def __len__(self) -> int:
        return len(self.x) if self.among is None else len(self.among)

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the rows at these positions, and what belongs to them."""
        random = () if self.chance is None else self.chance(len(which), generator)
        which = which if self.among is None else self.among[which]
        return taken(self.x, which), *(field[which] for field in self.fields), *random


class Epochs(CapturableDraw):
    """Batches without replacement, so many an epoch: each is a new order, known from the seed and the step alone."""

    def __init__(self, source: Takeable, batch_size: int) -> None:
        self.source, self.batch_size = source, batch_size
        self.rows = torch.empty(batch_size, dtype=torch.int64, device=source.device)
        self._epoch, self._order = -1, self.rows

    def __len__(self) -> int:
        return len(self.source) // self.batch_size

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Put the row numbers of this step's batch into `rows`."""
        n = len(self.source)
        epoch, k = divmod(step, len(self))
        if epoch != self._epoch:
            # Not the generator itself: a resumed run must find the order of an epoch it starts in the middle of.
            self._order = torch.randperm(n, generator=_of_epoch(generator, epoch)).to(self.rows.device)
            self._epoch = epoch
        self.rows.copy_(self._order[k * self.batch_size : (k + 1) * self.batch_size])

    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return what the source has at `rows`."""
        return self.source.take(self.rows, generator)


class EpochsWithin:
    """Batches without replacement whose rows all have one value of a label: each epoch cuts every value anew.

    Examples
    --------
    >>> rows = Rows(torch.arange(6.0)[:, None], torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> draw = EpochsWithin(rows, 3, np.array([0, 1, 0, 1, 0, 1]))
    >>> sorted(draw(0, torch.Generator())[1].tolist()) in ([0, 0, 0], [1, 1, 1])
    True
    """

    def __init__(self, source: Takeable, batch_size: int, labels: np.ndarray) -> None:
        self.source, self.batch_size = source, batch_size
        self._values = [torch.as_tensor(np.flatnonzero(labels == value)) for value in np.unique(labels)]
        self._values = [rows for rows in self._values if len(rows) > 1]  # one row alone has no negatives
        self._epoch, self._batches = -1, self._cut(torch.Generator())
        self.rows = self._batches[0]

    def __len__(self) -> int:
        return len(self._batches)

    def _cut(self, generator: torch.Generator) -> list[Tensor]:
        batches: list[Tensor] = []
        for rows in self._values:
            mixed = rows[torch.randperm(len(rows), generator=generator)]
            batches += mixed.tensor_split(-(-len(rows) // self.batch_size))
        return [batches[k] for k in torch.randperm(len(batches), generator=generator)]

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step."""
        self.prepare(step, generator)
        return self.batch(generator)

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Put the row numbers of this step's batch into `rows`."""
        epoch, k = divmod(step, len(self))
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._cut(_of_epoch(generator, epoch))
        self.rows = self._batches[k].to(self.source.device)

    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return what the source has at `rows`."""
        return self.source.take(self.rows, generator)


def _of_epoch(generator: torch.Generator, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed((generator.initial_seed() * 7_919 + epoch) % 2**63)


@dataclass(frozen=True)
class Beside:
    """Batches of several draws, one after the other."""

    draws: tuple[Draw, ...]

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batches of this step."""
        return tuple(part for draw in self.draws for part in draw(step, generator))


@dataclass(frozen=True)
class CapturableBeside(CapturableDraw):
    """The same of draws that can all be captured in a CUDA graph."""

    draws: tuple[CapturableDraw, ...]

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Make all ready."""
        for draw in self.draws:
            draw.prepare(step, generator)

    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the batches."""
        return tuple(part for draw in self.draws for part in draw.batch(generator))


def beside(draws: Sequence[Draw]) -> Draw:
    """Return a draw of the batches of several."""
    capturable = tuple(draw for draw in draws if isinstance(draw, CapturableDraw))
    return CapturableBeside(capturable) if len(capturable) == len(draws) else Beside(tuple(draws))


@dataclass(frozen=True)
class FromHost:
    """Batches that are gathered in main memory and then brought to a device, since all rows do not fit there."""

    draw: Epochs | EpochsWithin
    device: torch.device

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step."""
        # Which rows come follows from the seed, as if they were on the device; only chance is drawn here, by step.
        self.draw.prepare(step, generator)
        here = torch.Generator().manual_seed((generator.initial_seed() * 7_919 + step) % 2**63)
        return tuple(part.to(self.device) for part in self.draw.batch(here))


def brought(draw: Epochs | EpochsWithin, source: Takeable, device: torch.device) -> Draw:
    """Return a draw whose batches are on the device, wherever its rows are."""
    return draw if source.device.type == device.type else FromHost(draw, device)


@dataclass(frozen=True)
class Fresh(CapturableDraw):
    """Batches that a source makes anew at every step."""

    source: GeneratorSource
    batch_size: int
    read: Read
    chance: Chance | None = None

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Nothing to make ready."""

    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return new rows, and what belongs to them."""
        fields = self.read(self.source.draw(self.batch_size, generator))
        return *fields, *(() if self.chance is None else self.chance(self.batch_size, generator))


class Streamed:
    """Batches of a stream in its own order, from its beginning again when it ends; what is left over is passed over.

    Going on in the middle, as a resumed fit does, goes through the stream up to there.
    """

    def __init__(
        self, source: Source, batch_size: int, read: Read, device: torch.device, chance: Chance | None = None
    ) -> None:
        self.source, self.batch_size, self.read, self.device, self.chance = source, batch_size, read, device, chance
        self._restart()

    def _restart(self) -> None:
        self._next, self._batches = 0, self._whole_batches()

    def _whole_batches(self) -> Iterator[Batch]:
        for epoch in self.source.epochs(self.batch_size):
            n = 0
            for batch in epoch:
                if len(batch["x"]) == self.batch_size:
                    n += 1
                    yield batch
            if not n:
                raise ValueError(
                    f"the source has fewer rows than a batch, {self.batch_size}: give a smaller batch_size, or more "
                    "rows."
                )

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step."""
        if step < self._next:
            self._restart()
        while self._next <= step:
            batch = next(self._batches)
            self._next += 1
        random = () if self.chance is None else self.chance(self.batch_size, generator)
        return *(torch.as_tensor(part).to(self.device) for part in self.read(batch)), *random


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
