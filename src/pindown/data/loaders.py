"""Sources from torch: `DatasetSource` takes the items of a Dataset, `LoaderSource` is the stream of a DataLoader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from pindown._random import GLOBAL_GENERATOR
from pindown.data.data import ROLES, as_array
from pindown.data.sources import Batch, IndexedSource, Source, as_tensor
from pindown.data.streaming import rebatched, require_finite
from pindown.errors import InputError

Roles = Sequence[str | None] | Mapping[str, str]
"""Roles of the parts of an item: in order, None to leave a part out; or the role of each key of a dict."""

PARTS = ("x", "y", *ROLES)
"""Keys of an item that is a dict; others are left out."""

Shape = tuple[int, ...]


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

    def __init__(self, dataset: Dataset[Any], *, roles: Roles | None = None) -> None:
        self.dataset, self.roles, self._random = dataset, roles, _RandomStream()
        self.n_samples = len(dataset) if isinstance(dataset, Sized) else 0
        if self.n_samples == 0:
            raise InputError("X", f"{type(dataset).__name__} has no items: there is nothing to learn from.")
        self.shape = _shape(self._items([0])[0]["x"])

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return the items with these numbers, in this order."""
        numbers = np.asarray(rows).tolist()
        return _stacked(self._items(numbers), numbers, self.shape)

    def _items(self, numbers: list[int]) -> list[dict[str, Any]]:
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

    def __init__(self, loader: DataLoader[Any] | IterableDataset[Any], *, roles: Roles | None = None) -> None:
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
                yield _checked(batch, seen, self.shape)
                seen += len(batch["x"])
        while items := list(islice(parts, n_samples)):
            yield _stacked(items, range(seen, seen + len(items)), self.shape)
            seen += len(items)

    def _parts(self, epoch: int) -> Iterator[dict[str, Any]]:
        """Yield batches or items, with their parts by role."""
        random, noun = _RandomStream(epoch), "Batch" if isinstance(self.loader, DataLoader) else "Item"
        with random.lent():
            iterator = iter(self.loader)
        for number in count():
            what = f"{noun} {number:,}"
            with random.lent(), _explained_shapes(what):
                try:
                    raw = next(iterator)
                except StopIteration:
                    return
            yield _by_role(raw, self.roles, what)


class _RandomStream:
    """A state of torch's global generator that is lent to other people's code, and kept between calls."""

    def __init__(self, seed: int = 0) -> None:
        self._state = torch.Generator().manual_seed(seed).get_state()

    @contextmanager
    def lent(self) -> Iterator[None]:
        with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
            torch.default_generator.set_state(self._state)
            yield
            self._state = torch.default_generator.get_state()


@contextmanager
def _explained_shapes(what: str) -> Iterator[None]:
    """Explain torch's error for items of different shapes; other errors are the loader's own."""
    try:
        yield
    except RuntimeError as error:
        found = re.search(r"got (\[.*?\]) at entry 0 and (\[.*?\]) at entry (\d+)", str(error))
        if found is None:
            raise
        raise _other_shape(f"{what}: item {found[3]}", found[2], found[1]) from error


def _by_role(item: Any, roles: Roles | None, what: str) -> dict[str, Any]:
    """Return the parts of an item, or of a batch, by role."""
    if isinstance(item, Mapping):
        names = roles if isinstance(roles, Mapping) else {part: part for part in PARTS}
        found = {role: item[key] for key, role in names.items() if key in item}
    elif isinstance(item, tuple | list):
        order = ("x", "y")[: len(item)] if roles is None else tuple(roles)
        if len(order) != len(item):
            like = ("x", "signal", None, None, None)[: max(2, len(item))]
            raise InputError("roles", f"{what} has {len(item)} parts. Name their roles, such as `roles={like}`.")
        found = {role: part for role, part in zip(order, item, strict=True) if role is not None}
    else:
        found = {"x": item}
    if "x" not in found:
        has = ", ".join(map(str, item if isinstance(item, Mapping) else found))
        raise InputError("roles", f"{what} has the parts {has}, but no x. Name it, such as roles={{'image': 'x'}}.")
    if unknown := [role for role in found if role not in PARTS]:
        raise InputError("roles", f"{unknown[0]!r} in roles is no role. There are {', '.join(PARTS)}.")
    return found


def _stacked(items: list[dict[str, Any]], numbers: Sequence[int], shape: Shape) -> Batch:
    """Return items as a batch, after checking that they have the same parts and shapes."""
    expected = {name: _shape(part) for name, part in items[0].items()} | {"x": shape}
    for number, item in zip(numbers, items, strict=True):
        _require_shapes(f"Item {number:,}", {name: _shape(part) for name, part in item.items()}, expected)
    parts = {name: [item[name] for item in items] for name in expected}
    batch = {
        name: torch.stack(part) if isinstance(part[0], Tensor) else as_array(part, name) for name, part in parts.items()
    }
    return _finite(batch, numbers)


def _checked(parts: dict[str, Any], first: int, shape: Shape) -> Batch:
    """Return a loader's batch, after checking that its samples are like those before."""
    batch = {name: part if isinstance(part, Tensor) else as_array(part, name) for name, part in parts.items()}
    n, *found = _shape(batch["x"])
    _require_shapes(f"Item {first:,}", {"x": tuple(found)}, {"x": shape})
    if wrong := [name for name, part in batch.items() if len(part) != n]:
        raise InputError(wrong[0], f"A batch has {n} samples of x, but {len(batch[wrong[0]])} of {wrong[0]}.")
    return _finite(batch, range(first, first + n))


def _require_shapes(what: str, found: dict[str, Shape], expected: dict[str, Shape]) -> None:
    """Raise if an item has other parts, or parts of other shapes, than the first."""
    if found.keys() != expected.keys():
        raise InputError("X", f"{what} has the parts {[*found]}, the first one {[*expected]}. Return the same for all.")
    for name, shape in expected.items():
        if found[name] != shape:
            raise _other_shape(what if name == "x" else f"{what} of {name}", found[name], shape)


def _other_shape(what: str, found: object, expected: object) -> InputError:
    remedy = "Samples have one shape: crop, pad or resize them in the dataset"
    return InputError("X", f"{what} has shape {found}, the first one {expected}. {remedy}.")


def _finite(batch: Batch, numbers: Sequence[int]) -> Batch:
    """Return the batch, or raise if a sample or its positive has NaN or infinity."""
    for name in ("x", "pairs", "y"):
        if name == "x" or len(_shape(batch.get(name))) > 1:  # one number per sample is a label, or a group
            require_finite(as_tensor(batch[name]), numbers, name)
    return batch


def _shape(x: Any) -> Shape:
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def _length(loader: DataLoader[Any] | IterableDataset[Any]) -> int | None:
    """Return the number of samples in an epoch, if the loader knows it."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return None
    if not isinstance(loader.sampler, Sized):
        return None
    n = len(loader.sampler)
    return n - n % loader.batch_size if loader.drop_last else n
