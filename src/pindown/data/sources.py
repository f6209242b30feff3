"""Sources of samples: arrays and memory maps, files, torch datasets and loaders, simulations; and their moments.

Nothing else in the package needs to know whether samples lie in memory, in files, or are made on request.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from pindown._random import GLOBAL_GENERATOR
from pindown.data.data import LARGEST, ROLES, Sides, as_array, require_numbers, roles_of
from pindown.errors import InputError

Batch = dict[str, Any]
"""Some samples: ``x``, an array or a tensor (n, …), and side variables by role; or ``y`` where the role is open."""

NUMBERS = "biuf"  # kinds of numpy types that are numbers


class Source(ABC):
    """Samples of one shape, and perhaps side variables; abstract.

    A source is of one of three kinds: samples in any order (`IndexedSource`), new samples at every call
    (`GeneratorSource`), or a stream, which can only be read from its beginning to its end.
    """

    shape: tuple[int, ...]  # of one sample
    n_samples: int | None  # None: it never ends, or its end is not known

    @abstractmethod
    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the samples once, in order, at most so many at a time; endlessly if there is no end."""

    def epochs(self, n_samples: int) -> Iterator[Iterator[Batch]]:
        """Go through the samples again and again; a stream that shuffles has a new order in each epoch."""
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
        parts: dict[str, list[NDArray[np.generic]]] = {}
        for batch in self.blocks(1_024):
            for name, part in batch.items():
                if name != "x":
                    parts.setdefault(name, []).append(as_array(part))
        return {name: np.concatenate(some) for name, some in parts.items()}

    def __len__(self) -> int:
        return self.n_samples

    def __getitem__(self, rows: ArrayLike) -> NDArray[np.generic]:
        """Return ``x`` of the samples with these numbers."""
        return as_array(self.take(np.asarray(rows))["x"])

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the samples once, in order."""
        for first in range(0, len(self), n_samples):
            yield self.take(np.arange(first, min(first + n_samples, len(self))))


class GeneratorSource(Source):
    """A source that generates samples, on the device of a random generator; abstract."""

    n_samples: None = None

    @abstractmethod
    def draw(self, n_samples: int, generator: torch.Generator) -> Batch:
        """Return so many new samples, on the generator's device."""

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Generate samples endlessly, on the CPU, always the same."""
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
        self.parts: Batch = {name: _indexable(part, name) for name, part in parts.items()}
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
    ordered, place = np.unique(rows, return_inverse=True)  # h5py needs increasing indices without repeats
    return np.asarray(part[ordered])[place]


def is_mapped(values: object) -> bool:
    """Return whether samples stay elsewhere until they are needed: in a memory map, an h5py or a zarr array."""
    if isinstance(values, np.memmap):
        return True
    in_memory = isinstance(values, np.ndarray | Tensor) or hasattr(values, "iloc") or hasattr(values, "toarray")
    return not in_memory and all(hasattr(values, part) for part in ("shape", "dtype", "__getitem__"))


def as_tensor(values: object) -> Tensor:
    """Return numbers as a tensor, which shares their memory if torch can: not of a read-only array, for one."""
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


BLOCK_BYTES, ROWS_BYTES = 1 << 26, 1 << 30  # in float64, of a block of samples, and of what `first_samples` takes
WHITEN_SAMPLES = 20_000  # samples that moments are estimated from if a source does not know how many it has


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance of samples, in float64; variances are divided by n."""

    n: int  # number of samples
    mean: Tensor  # (d,)
    variance: Tensor  # (d,)
    covariance: Tensor | None  # (d, d), if requested


def moments(
    source: Source, *, covariance: bool = True, n_samples: int | None = None, channel: int | None = None
) -> Moments:
    """Return mean and variance of a source's samples, block by block, exact also where the mean is much larger.

    Moments of blocks, each in two passes, are merged after Chan, Golub and LeVeque (1979).

    Parameters
    ----------
    source : Source
        The samples; each is flattened.
    covariance : bool
        Whether to compute the d × d covariance, or the variances only.
    n_samples : int or None
        Number of samples: drawn at random, or the first ones of a stream. None: all, or `WHITEN_SAMPLES` if the source
        has no known end.
    channel : int or None
        An axis of a sample whose places are the variables, such as colours: 0 for images (c, h, w), −1 for sequences
        (t, c). None: every number is a variable.

    Raises
    ------
    ValueError
        If a sample has NaN or infinity, or there are no samples.

    Examples
    --------
    >>> found = moments(ArraySource(np.array([[0.0, 1e9], [2.0, 1e9 + 2]])))
    >>> found.mean.tolist(), found.covariance.tolist()
    ([1.0, 1000000001.0], [[1.0, 1.0], [1.0, 1.0]])
    """
    axes = len(source.shape)
    if channel is not None and not -axes <= channel < axes:
        raise InputError("channel", f"`channel={channel}` is no axis of a sample, whose shape is {source.shape}.")
    seen, n, largest, total = 0, 0, 0.0, None
    for numbers, batch in some_blocks(source, n_samples):
        x = as_tensor(batch["x"]).double()
        require_finite(x, numbers)
        seen, largest = seen + len(x), max(largest, _largest(x))
        flat = x.reshape(len(x), -1) if channel is None else x.movedim(channel % axes + 1, -1).flatten(0, -2)
        spread = torch.cov(flat.T, correction=0).reshape(flat.shape[1], -1) if covariance else flat.var(0, correction=0)
        total = (flat.mean(0), spread) if total is None else _merged(total, n, (flat.mean(0), spread), len(flat))
        n += len(flat)
    if total is None:
        raise InputError("X", "The source has no samples. Check that it is right.")
    _require_squares(largest, "X")
    mean, spread = (part.cpu() for part in total)
    return Moments(seen, mean, spread.diagonal() if covariance else spread, spread if covariance else None)


def _merged(old: tuple[Tensor, Tensor], n_old: int, new: tuple[Tensor, Tensor], n_new: int) -> tuple[Tensor, Tensor]:
    """Return the moments of two sets of samples together."""
    fraction, step = n_new / (n_old + n_new), new[0] - old[0]
    between = torch.outer(step, step) if new[1].ndim == 2 else step.square()
    # In place: with many features the covariance is the largest thing in memory.
    spread = old[1].mul_(1 - fraction).add_(new[1], alpha=fraction).add_(between, alpha=fraction * (1 - fraction))
    return old[0] + fraction * step, spread


def first_samples(source: Source, n_samples: int) -> Batch:
    """Return some samples in memory: drawn at random, in order, or the first ones of a stream.

    Parameters
    ----------
    source : Source
        Where they come from.
    n_samples : int
        How many at most; all, if there are no more; fewer, if they would need more than a GiB in float64.

    Examples
    --------
    >>> source = ArraySource(np.arange(1_000))
    >>> first_samples(source, 3)["x"].tolist(), len(first_samples(source, 10**6)["x"])
    ([511, 636, 848], 1000)
    """
    n_samples = max(1, min(n_samples, ROWS_BYTES // _sample_bytes(source)))
    return concatenated([batch for _, batch in some_blocks(source, n_samples)])


def some_blocks(source: Source, n_samples: int | None) -> Iterator[tuple[Sequence[int] | NDArray[np.int64], Batch]]:
    """Go through some samples in blocks of bounded size, with their numbers: see `moments` for which."""
    size = max(1, BLOCK_BYTES // _sample_bytes(source))
    if isinstance(source, IndexedSource) and n_samples is not None and n_samples < source.n_samples:
        chosen = np.sort(np.random.default_rng(0).choice(source.n_samples, n_samples, replace=False))
        for first in range(0, n_samples, size):
            yield chosen[first : first + size], source.take(chosen[first : first + size])
        return
    if n_samples is None:
        n_samples = WHITEN_SAMPLES if source.n_samples is None else source.n_samples
    seen = 0
    for batch in source.blocks(min(size, n_samples)):
        some = {name: part[: n_samples - seen] for name, part in batch.items()}
        yield range(seen, seen + len(some["x"])), some
        seen += len(some["x"])
        if seen == n_samples:
            return


def rebatched(batches: Iterator[Batch], n_samples: int) -> Iterator[Batch]:
    """Yield the same samples in batches of this size; the last may be smaller."""
    held: list[Batch] = []
    ready = 0
    for batch in batches:
        held.append(batch)
        ready += len(batch["x"])
        if ready < n_samples:
            continue
        whole = concatenated(held)
        for first in range(0, ready - n_samples + 1, n_samples):
            yield {name: part[first : first + n_samples] for name, part in whole.items()}
        ready %= n_samples
        held = [{name: part[len(part) - ready :] for name, part in whole.items()}] if ready else []
    if held:
        yield concatenated(held)


def require_finite(x: Tensor, numbers: Sequence[int] | NDArray[np.int64], name: str = "x") -> None:
    """Raise if a sample has NaN or infinity, and give its number."""
    if x.is_floating_point() and not (finite := x.reshape(len(x), -1).isfinite().all(1)).all():
        which = numbers[int((~finite).nonzero()[0])]
        message = f"Sample {which:,} of {name} has NaN or infinity. Leave such samples out, or fill what is missing."
        raise InputError(name, message)


def require_finite_samples(values: NDArray[np.generic], of: str, *, start: int = 0) -> None:
    """Raise if a sample of (n, …) has NaN, infinity, or numbers that are too large or too small to compute with.

    The first sample has the number ``start`` in messages. Works block by block, since ``values`` may be a memory map.
    """
    size = max(1, BLOCK_BYTES // (8 * max(1, math.prod(values.shape[1:]))))
    largest = 0.0
    for first in range(0, len(values), size):
        block = as_tensor(values[first : first + size])
        require_finite(block, range(start + first, start + first + len(block)), of)
        largest = max(largest, _largest(block))
    _require_squares(largest, of)


def _largest(x: Tensor) -> float:
    return max(abs(float(bound)) for bound in x.aminmax()) if x.numel() and x.is_floating_point() else 0.0


def _require_squares(largest: float, name: str) -> None:
    """Raise if the largest number, or all of them, have no square in float64."""
    if largest > LARGEST or 0 < largest < 1 / LARGEST:
        message = f"The largest number of {name} is {largest:.3g}, whose square float64 cannot hold. Multiply {name} by"
        raise InputError(name, f"{message} {1 / largest:.0e}, or leave out numbers that stand for missing values.")


def _sample_bytes(source: Source) -> int:
    return 8 * max(1, math.prod(source.shape))


RolesOfFields = Sequence[str | None] | Mapping[str, str]
"""Roles of the parts of an item: in order, None to leave a part out; or the role of each key of a dict."""

PARTS = ("x", "y", *ROLES)  # keys of an item that is a dict; others are left out


class DatasetSource(IndexedSource):
    """The items of a map-style ``torch.utils.data.Dataset`` as samples.

    An item is x, or (x, y), or a dict with ``x`` and side variables by role. Random numbers that the dataset takes from
    torch, such as for augmentation, come from a generator of this source: torch's global generator stays as it is.

    Parameters
    ----------
    dataset : Dataset
        With ``__len__`` and ``__getitem__``. For worker processes, pass a ``DataLoader`` to `LoaderSource`.
    roles : sequence of str or None, or mapping of str to str, optional
        What the parts of an item are: ``("x", "signal", None)`` leaves a third one out; ``{"image": "x"}`` names keys.

    Examples
    --------
    >>> from torch.utils.data import TensorDataset
    >>> data = TensorDataset(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 0]))
    >>> source = DatasetSource(data, roles=("x", "nuisance"))
    >>> source.shape, source.n_samples
    ((2,), 3)
    >>> batch = source.take(np.array([2, 0]))
    >>> batch["x"].tolist(), batch["nuisance"].tolist()
    ([[4.0, 5.0], [0.0, 1.0]], [0, 0])
    """

    def __init__(self, dataset: Dataset[object], *, roles: RolesOfFields | None = None) -> None:
        self.dataset, self.roles, self._random = dataset, roles, _RandomStream()
        self.n_samples = len(dataset) if isinstance(dataset, Sized) else 0
        if self.n_samples == 0:
            raise InputError("X", f"{type(dataset).__name__} has no items: there is nothing to learn from.")
        self.shape = _shape(self._items([0])[0]["x"])

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return the items with these numbers, in this order."""
        numbers = np.asarray(rows).tolist()
        return _stacked(self._items(numbers), numbers, self.shape)

    def _items(self, numbers: list[int]) -> list[Batch]:
        with self._random.lent():
            # torch's own method for several items at once, where a dataset has it
            several = getattr(self.dataset, "__getitems__", None)
            items = [self.dataset[number] for number in numbers] if several is None else several(numbers)
        return [_by_role(item, self.roles, f"Item {number:,}") for number, item in zip(numbers, items, strict=True)]


class LoaderSource(Source):
    """The batches of a ``DataLoader``, in the size that is needed, or the items of an ``IterableDataset``, as a stream.

    Items are as in `DatasetSource`. Order, sampler, collation and worker processes are those of the loader, which is
    iterated again for every epoch. Random numbers that it takes from torch, to shuffle or to augment, differ between
    epochs and are the same in every fit, unless the loader has a generator of its own.

    Parameters
    ----------
    loader : DataLoader or IterableDataset
        With ``batch_size=None`` the items of a loader are taken for batches.
    roles : sequence of str or None, or mapping of str to str, optional
        What the parts of an item are.

    Examples
    --------
    >>> from torch.utils.data import TensorDataset
    >>> source = LoaderSource(DataLoader(TensorDataset(torch.arange(10.0)[:, None]), batch_size=4))
    >>> source.shape, source.n_samples
    ((1,), 10)
    >>> [len(batch["x"]) for batch in source.blocks(6)]
    [6, 4]
    """

    def __init__(
        self, loader: DataLoader[object] | IterableDataset[object], *, roles: RolesOfFields | None = None
    ) -> None:
        self.loader, self.roles = loader, roles
        self.n_samples = _length(loader)
        first = next(self._parts(0), None)
        if first is None:
            raise InputError("X", f"{type(loader).__name__} gave no items: there is nothing to learn from.")
        self.shape = _shape(first["x"])[isinstance(loader, DataLoader) :]

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the loader once, in its order."""
        return self._epoch(n_samples, 0)

    def epochs(self, n_samples: int) -> Iterator[Iterator[Batch]]:
        """Go through the loader again and again, with other random numbers each time."""
        return (self._epoch(n_samples, epoch) for epoch in count())

    def _epoch(self, n_samples: int, epoch: int) -> Iterator[Batch]:
        is_empty = True
        for batch in rebatched(self._batches(n_samples, epoch), n_samples):
            is_empty = False
            yield batch
        if is_empty:
            why = "gave items once, and none when iterated again: let its __iter__ start from the beginning"
            raise InputError("X", f"{type(self.loader).__name__} {why}.")

    def _batches(self, n_samples: int, epoch: int) -> Iterator[Batch]:
        """Yield the batches of a loader, or items in batches of this size."""
        seen, parts = 0, self._parts(epoch)
        if isinstance(self.loader, DataLoader):
            for batch in parts:
                _require_shape(f"Item {seen:,}", batch["x"][0], self.shape)
                yield _checked(batch, range(seen, seen + len(batch["x"])))
                seen += len(batch["x"])
        while items := list(islice(parts, n_samples)):
            yield _stacked(items, range(seen, seen + len(items)), self.shape)
            seen += len(items)

    def _parts(self, epoch: int) -> Iterator[Batch]:
        """Yield batches or items, with their parts by role."""
        random, noun = _RandomStream(epoch), "Batch" if isinstance(self.loader, DataLoader) else "Item"
        with random.lent():
            iterator = iter(self.loader)
        for number in count():
            what = f"{noun} {number:,}"
            with random.lent():
                try:
                    raw = next(iterator)
                except StopIteration:
                    return
            yield _by_role(raw, self.roles, what)


class _RandomStream:
    """A state of torch's global generator for a loader's code, kept between calls."""

    def __init__(self, seed: int = 0) -> None:
        self._state = torch.Generator().manual_seed(seed).get_state()

    @contextmanager
    def lent(self) -> Iterator[None]:
        with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
            torch.default_generator.set_state(self._state)
            yield
            self._state = torch.default_generator.get_state()


def _by_role(item: object, roles: RolesOfFields | None, what: str) -> Batch:
    """Return the parts of an item, or of a batch, by role."""
    if isinstance(item, Mapping):
        names = roles if isinstance(roles, Mapping) else {part: part for part in PARTS}
        found = {role: item[key] for key, role in names.items() if key in item}
    else:
        parts = item if isinstance(item, tuple | list) else (item,)
        order = ("x", "y")[: len(parts)] if roles is None else tuple(roles)
        if len(order) != len(parts):
            like = ("x", "signal", None, None, None)[: max(2, len(parts))]
            raise InputError("roles", f"{what} has {len(parts)} parts. Name their roles, such as `roles={like}`.")
        found = {role: part for role, part in zip(order, parts, strict=True) if role is not None}
    if "x" not in found:
        has = ", ".join(map(str, item if isinstance(item, Mapping) else found))
        raise InputError("roles", f"{what} has the parts {has}, but no x. Name it, such as roles={{'image': 'x'}}.")
    if unknown := [role for role in found if role not in PARTS]:
        raise InputError("roles", f"{unknown[0]!r} in roles is no role. There are {', '.join(PARTS)}.")
    return found


def _stacked(items: list[Batch], numbers: Sequence[int], shape: tuple[int, ...]) -> Batch:
    """Return items as a batch, after checking that they have the same parts and shapes."""
    expected = {name: _shape(part) for name, part in items[0].items()} | {"x": shape}
    for number, item in zip(numbers, items, strict=True):
        if item.keys() != expected.keys():
            same = "Return the same for all"
            raise InputError("X", f"Item {number:,} has the parts {[*item]}, the first one {[*expected]}. {same}.")
        for name, part in item.items():
            _require_shape(f"Item {number:,}" if name == "x" else f"Item {number:,} of {name}", part, expected[name])
    parts = {name: [item[name] for item in items] for name in expected}
    return _checked(
        {name: torch.stack(part) if isinstance(part[0], Tensor) else part for name, part in parts.items()}, numbers
    )


def _require_shape(what: str, part: object, expected: tuple[int, ...]) -> None:
    if (found := _shape(part)) != expected:
        remedy = "Samples have one shape: crop, pad or resize them in the dataset"
        raise InputError("X", f"{what} has shape {found}, the first one {expected}. {remedy}.")


def _checked(parts: Batch, numbers: Sequence[int]) -> Batch:
    """Return parts as a batch, or raise if one has another length than x, or a sample has NaN or infinity."""
    batch = {name: part if isinstance(part, Tensor) else as_array(part, name) for name, part in parts.items()}
    for name, part in batch.items():
        if len(part) != len(numbers):
            raise InputError(name, f"A batch has {len(numbers)} samples of x, but {len(part)} of {name}.")
        if name == "x" or (name in ("pairs", "y") and part.ndim > 1):  # one number per sample is a label, or a group
            require_finite(as_tensor(part), numbers, name)
    return batch


def _shape(x: object) -> tuple[int, ...]:
    return tuple(x.shape if hasattr(x, "shape") else np.asarray(x).shape)


def _length(loader: DataLoader[object] | IterableDataset[object]) -> int | None:
    """Return the number of samples in an epoch, if the loader knows it."""
    if isinstance(loader, DataLoader) and loader.batch_size and isinstance(loader.sampler, Sized):
        n = len(loader.sampler)
        return n - n % loader.batch_size if loader.drop_last else n
    return None
