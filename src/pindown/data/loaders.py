"""Rows from torch's own: `DatasetSource` takes them in any order, `LoaderSource` goes through a stream."""

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
from pindown.data.arrays import as_tensor
from pindown.data.data import ROLES, as_array
from pindown.data.source import Batch, IndexedSource, Source
from pindown.data.streaming import rebatched, require_finite

Roles = Sequence[str | None] | Mapping[str, str]
"""What the parts of an item are: names in order, None for a part to be left out; or a name for each key of a dict."""

PARTS = ("x", "y", *ROLES)
"""Keys of an item that is a dict; others are left out."""

OBSERVED = ("x", "pairs", "y")
"""Parts that may be rows of numbers, which must all be finite then."""


class DatasetSource(IndexedSource):
    """Rows of a map-style ``torch.utils.data.Dataset``, an item each.

    An item is x, or (x, y), or a dict with ``x`` and what belongs to it, by role. Chance that the dataset takes from
    torch, as augmentations do, comes from a generator of the source's own: the process's stays untouched.

    Parameters
    ----------
    dataset : Dataset
        With ``__len__`` and ``__getitem__``. For worker processes, give a ``DataLoader`` to `LoaderSource`.
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

    def __init__(self, dataset: Dataset, *, roles: Roles | None = None) -> None:
        self.dataset, self.roles, self._chance = dataset, roles, _Chance()
        self.n_samples = len(dataset)  # type: ignore[arg-type]  # torch leaves it to subclasses
        if self.n_samples == 0:
            raise ValueError(f"{type(dataset).__name__} has no items: there is nothing to learn from.")
        self.shape = _shape(self._named([0])[0]["x"])

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows, in this order."""
        which = np.asarray(rows).tolist()
        return _stacked(self._named(which), which, self.shape)

    def _named(self, rows: list[int]) -> list[dict[str, Any]]:
        with self._chance.lent():
            # Torch's own way to ask for several at once, where a dataset has it.
            several = getattr(self.dataset, "__getitems__", None)
            items = [self.dataset[row] for row in rows] if several is None else several(rows)
        return [_named(item, self.roles, f"Item {row:,}") for row, item in zip(rows, items, strict=True)]


class LoaderSource(Source):
    """A stream of rows: the batches of a ``DataLoader``, in the size asked for, or the items of an ``IterableDataset``.

    Items are as in `DatasetSource`. A loader's order, sampler, collation and worker processes are its own. It is gone
    through anew for every epoch. Chance that it takes from torch, to shuffle or to augment, is new in each and the same
    in every fit, unless the loader has a generator of its own.

    Parameters
    ----------
    loader : DataLoader or IterableDataset
        What gives the rows. With ``batch_size=None`` the items of a loader are taken for batches.
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

    def __init__(self, loader: DataLoader | IterableDataset, *, roles: Roles | None = None) -> None:
        self.loader, self.roles = loader, roles
        self.n_samples = _length(loader)
        first = next(self._parts(0), None)
        if first is None:
            raise ValueError(f"{type(loader).__name__} gave no items: there is nothing to learn from.")
        self.shape = _shape(first["x"])[isinstance(loader, DataLoader) :]

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the loader once, in its order."""
        return self._epoch(n_samples, 0)

    def epochs(self, n_samples: int) -> Iterator[Iterator[Batch]]:
        """Go through the loader again and again, with other chance each time."""
        return (self._epoch(n_samples, epoch) for epoch in count())

    def _epoch(self, n_samples: int, epoch: int) -> Iterator[Batch]:
        seen = 0
        for batch in rebatched(self._batches(n_samples, epoch), n_samples):
            seen += len(batch["x"])
            yield batch
        if not seen:
            raise ValueError(
                f"{type(self.loader).__name__} gave items once, and none when gone through again. It must start anew "
                "whenever it is iterated over: let __iter__ open what it reads."
            )

    def _batches(self, n_samples: int, epoch: int) -> Iterator[Batch]:
        """Give what the loader gives, as batches: its own, or so many items each."""
        seen, parts = 0, self._parts(epoch)
        if isinstance(self.loader, DataLoader):
            for batch in parts:
                yield _checked(batch, seen, self.shape)
                seen += len(batch["x"])
        while items := list(islice(parts, n_samples)):
            yield _stacked(items, range(seen, seen + len(items)), self.shape)
            seen += len(items)

    def _parts(self, epoch: int) -> Iterator[dict[str, Any]]:
        """Go through the loader, and give the parts of a batch or an item their names."""
        chance, seen, noun = _Chance(epoch), 0, "Batch" if isinstance(self.loader, DataLoader) else "Item"
        with chance.lent():
            iterator = iter(self.loader)
        while True:
            with chance.lent(), _named_shapes(f"{noun} {seen:,}"):
                try:
                    raw = next(iterator)
                except StopIteration:
                    return
            yield _named(raw, self.roles, f"{noun} {seen:,}")
            seen += 1


class _Chance:
    """The chance that somebody else's code takes from torch's global generator, as a stream of its own."""

    def __init__(self, seed: int = 0) -> None:
        self._state = torch.Generator().manual_seed(seed).get_state()

    @contextmanager
    def lent(self) -> Iterator[None]:
        with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
            torch.default_generator.set_state(self._state)
            yield
            self._state = torch.default_generator.get_state()


@contextmanager
def _named_shapes(what: str) -> Iterator[None]:
    """Say in a sentence that items of a batch differ in shape; other errors are the loader's own."""
    try:
        yield
    except RuntimeError as error:
        found = re.search(r"got (\[.*?\]) at entry 0 and (\[.*?\]) at entry (\d+)", str(error))
        if found is None:
            raise
        raise ValueError(
            f"{what}: item {found[3]} of it has shape {found[2]}, the first one {found[1]}. Rows of a source have one "
            "shape: crop, pad or resize them in the dataset."
        ) from error


def _named(item: Any, roles: Roles | None, what: str) -> dict[str, Any]:
    """Return the parts of an item, or of a batch, by role."""
    if isinstance(item, Mapping):
        names = roles if isinstance(roles, Mapping) else {part: part for part in PARTS}
        found = {role: item[key] for key, role in names.items() if key in item}
        has = f"the keys {', '.join(map(str, item))}"
    elif isinstance(item, tuple | list):
        order = ("x", "y")[: len(item)] if roles is None else tuple(roles)
        if len(order) != len(item):
            raise ValueError(
                f"{what} has {len(item)} parts. Say what they are, None for one to be left out, such as "
                f"roles={('x', 'signal', None, None, None)[: max(2, len(item))]}."
            )
        found = {role: part for role, part in zip(order, item, strict=True) if role is not None}
        has = f"the parts {order}"
    else:
        found, has = {"x": item}, ""
    if "x" not in found:
        raise ValueError(f"{what} has {has}, but no x. Say which one it is, such as roles={{'image': 'x'}}.")
    if unknown := [role for role in found if role not in PARTS]:
        raise ValueError(f"roles: {unknown[0]!r} is no role. There are {', '.join(PARTS)}.")
    return found


def _stacked(items: list[dict[str, Any]], numbers: Sequence[int], shape: tuple[int, ...]) -> Batch:
    """Return items as a batch, after checking that they have one shape."""
    shapes = {name: shape if name == "x" else _shape(part) for name, part in items[0].items()}
    for number, item in zip(numbers, items, strict=True):
        if item.keys() != items[0].keys():
            raise ValueError(
                f"Item {number:,} has {sorted(item)}, item {numbers[0]:,} {sorted(items[0])}. Let the dataset give the "
                "same parts in every item."
            )
        for name, expected in shapes.items():
            if (found := _shape(item[name])) != expected:
                _refuse_shape(f"Item {number:,}" + (f" of {name}" if name != "x" else ""), found, expected)
    parts = {name: [item[name] for item in items] for name in items[0]}
    batch = {name: torch.stack(part) if isinstance(part[0], Tensor) else as_array(part) for name, part in parts.items()}
    _require_finite(batch, numbers)
    return batch


def _checked(parts: dict[str, Any], first: int, shape: tuple[int, ...]) -> Batch:
    """Return a loader's batch, after checking that its rows are like those before."""
    batch = {name: part if isinstance(part, Tensor) else as_array(part) for name, part in parts.items()}
    n, *found = _shape(batch["x"])
    if tuple(found) != shape:
        _refuse_shape(f"Item {first:,}", tuple(found), shape)
    if wrong := [name for name, part in batch.items() if len(part) != n]:
        raise ValueError(f"A batch has {n} rows of x, but {len(batch[wrong[0]])} of {wrong[0]}.")
    _require_finite(batch, range(first, first + n))
    return batch


def _require_finite(batch: Batch, numbers: Sequence[int]) -> None:
    """Raise if an observation or a partner is not whole."""
    for name in OBSERVED:
        if name == "x" or len(_shape(batch.get(name))) > 1:  # what is one number a row are labels, or groups
            require_finite(as_tensor(batch[name]), numbers, "Item", name)


def _refuse_shape(what: str, found: tuple[int, ...], shape: tuple[int, ...]) -> None:
    raise ValueError(
        f"{what} has shape {found}, the first one {shape}. Rows of a source have one shape: crop, pad or resize them "
        "in the dataset."
    )


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def _length(loader: DataLoader | IterableDataset) -> int | None:
    """Return the number of rows in a pass, if the loader says so."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return None
    if not isinstance(loader.sampler, Sized):
        return None
    n = len(loader.sampler)
    return n - n % loader.batch_size if loader.drop_last else n
