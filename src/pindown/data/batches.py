"""Batches of a training step: samples in a new order every epoch, a stream, generated samples; and positive pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from torch import Tensor

from pindown.data.data import samples_with_next
from pindown.data.labels import IntArray, numbered
from pindown.data.sources import (
    ArraySource,
    Batch,
    GeneratorSource,
    IndexedSource,
    Source,
    as_tensor,
    require_finite_samples,
)
from pindown.errors import InputError

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Return another view of every sample: (n, …) and a generator in, (n, …) out."""

DrawNoise = Callable[[int, torch.Generator], tuple[Tensor, ...]]
"""Return the random numbers that an objective needs with so many samples, on the generator's device."""

Read = Callable[[Batch], tuple[Any, ...]]
"""Return what an objective takes from a batch: the samples, then a field for each side variable."""

MOST_OF_A_GPU = 0.25
"""Fraction of a GPU's free memory that samples may take; if they need more, they stay in main memory."""


Batches = Callable[[int, torch.Generator], tuple[Tensor, ...]]
"""Return the batch of a step: tensors on the device of the generator, which all random numbers come from."""


class CapturableBatches(ABC):
    """Batches in two parts, so that a step can be captured in a CUDA graph and replayed; abstract.

    `prepare` runs on the host before each step and may write to tensors that `batch` reads. `batch` runs on the device
    alone, always with the same tensors, shapes and generator.
    """

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step."""
        self.prepare(step, generator)
        return self.batch(generator)

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Prepare a step; by default there is nothing to do."""
        return

    @abstractmethod
    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the prepared batch, without waiting for the device."""


def on_device(X: NDArray[np.generic] | IndexedSource, device: torch.device) -> Tensor | IndexedSource:
    """Return samples where batches are taken from: on the device if they are in memory and fit there."""
    if isinstance(X, IndexedSource):
        return X
    fits = device.type != "cuda" or X.nbytes < MOST_OF_A_GPU * torch.cuda.mem_get_info(device)[0]
    return torch.as_tensor(X, device=device if fits else "cpu")


def take(x: Tensor | IndexedSource, which: Tensor) -> Tensor:
    """Return the samples with these numbers."""
    return torch.as_tensor(x[which.numpy()]) if isinstance(x, IndexedSource) else x[which]


class IndexedSamples:
    """Samples with their fields, and perhaps noise that is new whenever they are taken.

    With ``among``, numbers of samples, only these are included, without copying them.
    """

    def __init__(
        self,
        x: Tensor | IndexedSource,
        *fields: object,
        chance: DrawNoise | None = None,
        among: NDArray[np.int64] | None = None,
    ) -> None:
        self.x, self.chance = x, chance
        self.device = x.device if isinstance(x, Tensor) else torch.device("cpu")
        self.fields = tuple(as_tensor(field).to(self.device) for field in fields)
        self.among = None if among is None else torch.as_tensor(among, device=self.device)

    def __len__(self) -> int:
        return len(self.x) if self.among is None else len(self.among)

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the samples with these numbers, their fields, and noise."""
        noise = () if self.chance is None else self.chance(len(which), generator)
        which = which if self.among is None else self.among[which]
        return take(self.x, which), *(field[which] for field in self.fields), *noise


class EpochBatches(ABC):
    """Batches without replacement, shuffled every epoch; they depend on the seed and the step alone; abstract."""

    def __init__(self, samples: SampleSet, batch_size: int) -> None:
        self.samples, self.batch_size = samples, batch_size
        self._epoch, self._batches = -1, self._cut(torch.Generator())
        self.rows = torch.empty_like(self._batches[0])

    @abstractmethod
    def _cut(self, generator: torch.Generator) -> Sequence[Tensor]:
        """Return the numbers of the samples of each batch of an epoch."""

    def __len__(self) -> int:
        return len(self._batches)

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step."""
        self.prepare(step, generator)
        return self.batch(generator)

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Put the numbers of this step's samples into `rows`."""
        epoch, k = divmod(step, len(self))
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._cut(_seeded(generator, epoch))
        self.rows = self._batches[k]

    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the samples of `rows`."""
        return self.samples.take(self.rows, generator)


class ShuffledBatches(EpochBatches, CapturableBatches):
    """Batches of one size, in a new order every epoch; the last samples of an epoch are left out."""

    def _cut(self, generator: torch.Generator) -> Sequence[Tensor]:
        n = len(self.samples) // self.batch_size * self.batch_size
        order = torch.randperm(len(self.samples), generator=generator)[:n].to(self.samples.device)
        return list(order.reshape(-1, self.batch_size))

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Write the numbers of this step's samples to `rows`, which stays the same tensor."""
        rows = self.rows
        super().prepare(step, generator)
        self.rows = rows.copy_(self.rows)


class BatchesWithinLevels(EpochBatches):
    """Batches that are each from one level of a label."""

    def __init__(self, samples: SampleSet, batch_size: int, labels: NDArray[np.generic]) -> None:
        levels = [torch.as_tensor(np.flatnonzero(labels == level)) for level in np.unique(labels)]
        self._levels = [rows for rows in levels if len(rows) > 1]  # one sample alone has no negatives
        super().__init__(samples, batch_size)

    def _cut(self, generator: torch.Generator) -> Sequence[Tensor]:
        batches: list[Tensor] = []
        for rows in self._levels:
            shuffled = rows[torch.randperm(len(rows), generator=generator)].to(self.samples.device)
            batches += shuffled.tensor_split(-(-len(rows) // self.batch_size))
        return [batches[k] for k in torch.randperm(len(batches), generator=generator)]


def _seeded(generator: torch.Generator, number: int) -> torch.Generator:
    """Return a generator for an epoch, or a step: a resumed fit must find the order of one that it enters midway."""
    return torch.Generator().manual_seed((generator.initial_seed() * 7_919 + number) % 2**63)


@dataclass(frozen=True)
class HostBatches:
    """Batches that are gathered in main memory and copied to a device, where not all samples fit."""

    batches: EpochBatches
    device: torch.device

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step."""
        # Which samples come follows from the seed, as on the device; noise comes from a generator for the step.
        self.batches.prepare(step, generator)
        return tuple(part.to(self.device) for part in self.batches.batch(_seeded(generator, step)))


def to_device(batches: EpochBatches, device: torch.device) -> Batches:
    """Return batches on the device, wherever their samples are."""
    return batches if batches.samples.device.type == device.type else HostBatches(batches, device)


@dataclass(frozen=True)
class ZippedBatches(CapturableBatches):
    """The batches of several, one after the other; see `zip_batches`."""

    parts: tuple[CapturableBatches, ...]

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Prepare all."""
        for part in self.parts:
            part.prepare(step, generator)

    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the batches, one after the other."""
        return tuple(field for part in self.parts for field in part.batch(generator))


def zip_batches(parts: Sequence[Batches]) -> Batches:
    """Return the batches of several, one after the other; they can be captured if all can."""
    capturable = tuple(part for part in parts if isinstance(part, CapturableBatches))
    if len(capturable) == len(parts):
        return ZippedBatches(capturable)
    return lambda step, generator: tuple(field for part in parts for field in part(step, generator))


@dataclass(frozen=True)
class GeneratedBatches(CapturableBatches):
    """Batches of new samples of a source at every step."""

    source: GeneratorSource
    batch_size: int
    read: Read
    chance: DrawNoise | None = None

    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return new samples, their fields, and noise."""
        fields = self.read(self.source.draw(self.batch_size, generator))
        return *fields, *(() if self.chance is None else self.chance(self.batch_size, generator))


class StreamBatches:
    """Batches of a stream in its own order, again and again; a smaller last batch is left out.

    A fit that is resumed goes through the stream up to where it stopped.
    """

    def __init__(
        self, source: Source, batch_size: int, read: Read, device: torch.device, chance: DrawNoise | None = None
    ) -> None:
        self.source, self.batch_size, self.read, self.device, self.chance = source, batch_size, read, device, chance
        self._next, self._batches = 0, self._whole_batches()

    def _whole_batches(self) -> Iterator[Batch]:
        for epoch in self.source.epochs(self.batch_size):
            n = 0
            for batch in epoch:
                if len(batch["x"]) == self.batch_size:
                    n += 1
                    yield batch
            if not n:
                raise ValueError(f"the source has fewer samples than a batch: give batch_size < {self.batch_size}.")

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step."""
        if step < self._next:
            self._next, self._batches = 0, self._whole_batches()
        while self._next <= step:
            batch = next(self._batches)
            self._next += 1
        noise = () if self.chance is None else self.chance(self.batch_size, generator)
        return *(torch.as_tensor(part).to(self.device) for part in self.read(batch)), *noise


def augmented(batches: Batches, augment: Augment) -> Batches:
    """Return batches that are augmented at every step; a CUDA graph cannot capture them, since `augment` may wait."""

    def views(step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        x, *fields = batches(step, generator)
        view = augment(x, generator)
        if not isinstance(view, Tensor) or view.shape != x.shape:
            got = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
            wanted = f"a tensor of the same shape, {tuple(x.shape)}, as augment(x, generator)"
            raise ValueError(f"augment must map a batch to {wanted}; got {got}.")
        return view, *fields

    return views


# ---- positive pairs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairing:
    """Anchors, and the candidates that the positive of each is drawn from.

    Anchor k is sample ``anchors[k]`` of ``x``. Its positive is sample ``places[start[k] + (skip[k] + i) mod size[k]]``
    of ``positives``, with i uniform in 0 … choices[k] − 1.
    """

    x: Tensor | IndexedSource
    positives: Tensor | IndexedSource
    anchors: Tensor  # (n,) int64
    places: Tensor  # (m,) int64
    start: Tensor  # (n,) int64
    skip: Tensor  # (n,) int64
    size: Tensor  # (n,) int64
    choices: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def device(self) -> torch.device:
        """The device of the samples."""
        return self.anchors.device

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the anchors with these numbers and a positive for each."""
        chance = torch.rand(len(which), generator=generator, device=which.device)
        pick = (chance * self.choices[which]).long()
        place = self.start[which] + (self.skip[which] + pick) % self.size[which]
        return take(self.x, self.anchors[which]), take(self.positives, self.places[place])


SampleSet = IndexedSamples | Pairing
"""Samples that can be taken in any order, with all that an objective takes."""


def pair_up(
    X: NDArray[np.generic] | IndexedSource,
    y: ArrayLike | None,
    device: torch.device | str = "cpu",
    *,
    groups: NDArray[np.generic] | None = None,
    among: IntArray | None = None,
) -> Pairing:
    """Return the pairs that ``y`` describes: positives like X, groups (1-d), or, if None, the next sample.

    The last sample of each of the ``groups`` has no next one. Anchors, and positives that are samples of X, are taken
    ``among`` some samples, if these are given.
    """
    x, n = on_device(X, torch.device(device)), len(X)
    if y is None or isinstance(y, str):
        indices = samples_with_next(n, groups)
        if among is not None:
            is_there = np.isin(np.arange(n), among)
            indices = indices[is_there[indices] & is_there[indices + 1]]
        return _one_each(x, x, indices, indices + 1)
    y = np.asarray(y)
    if y.ndim == 0 or len(y) != n:
        has = len(y) if y.ndim else "none"
        raise InputError("y", f"X has {n} samples but y has {has}. Pass one positive, or one group, per sample.")
    shape = X.shape if isinstance(X, IndexedSource) else X.shape[1:]
    indices = np.arange(n) if among is None else among
    if y.ndim > 1 and y.shape[1:] == shape:
        if isinstance(X, IndexedSource):
            return _one_each(x, ArraySource(y), indices, indices)
        kinds = [np.float64, np.float32]
        whole = check_array(y, dtype=kinds, order="C", force_writeable=True, allow_nd=True, ensure_all_finite=False)
        require_finite_samples(whole, "y (the positives)")
        return _one_each(x, on_device(whole, torch.device(device)), indices, indices)
    if y.ndim == 1 or y.shape[1:] == (1,):
        return _by_group(x, y.reshape(-1), indices)
    wanted = f"positives with the shape of X, {(n, *shape)}, a 1-d array of groups, or None (the next sample)"
    raise InputError("y", f"y must be an array of {wanted}, got shape {y.shape}.")


def _one_each(
    x: Tensor | IndexedSource, positives: Tensor | IndexedSource, anchors: IntArray, places: IntArray
) -> Pairing:
    """Pair samples of x with those at these places of an array of positives."""
    if len(anchors) < 2:
        raise InputError("pairs", f"{len(anchors)} pair of n_samples={len(x)} is left. Give at least 2 pairs.")
    each, one = np.arange(len(anchors)), np.ones_like(anchors)
    return Pairing(x, positives, *_on_device_of(x, anchors, places, each, np.zeros_like(each), one, one))


def _by_group(x: Tensor | IndexedSource, groups: NDArray[np.generic], indices: IntArray) -> Pairing:
    """Pair each of these samples with another of its group; samples alone in their group are left out."""
    _, label, count = numbered(groups[indices], "y", "group")
    if (n_groups := int((count > 1).sum())) < 2:
        found = f"y has {n_groups} groups of two samples or more, but pairs need two such groups"
        raise InputError("y", f"{found}. Give related samples one value, or pass the positives, in the shape of X.")
    order = np.argsort(label, kind="stable")  # samples of one group stand together
    first = (np.cumsum(count) - count)[label[order]]
    size = count[label[order]]
    paired = size > 1
    skip = np.arange(len(order)) - first + 1  # start behind the anchor, and never come round to it
    parts = (indices[order[paired]], indices[order], first[paired], skip[paired], size[paired], (size - 1)[paired])
    return Pairing(x, x, *_on_device_of(x, *parts))


def _on_device_of(x: Tensor | IndexedSource, *parts: IntArray) -> tuple[Tensor, ...]:
    device = x.device if isinstance(x, Tensor) else "cpu"
    return tuple(torch.as_tensor(part, dtype=torch.int64, device=device) for part in parts)
