"""`as_source`: whatever holds rows, as a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from pindown.data.arrays import ArraySource
from pindown.data.files import open_path
from pindown.data.loaders import DatasetSource, LoaderSource
from pindown.data.source import Source


def require_in_memory(owner: str, X: Any) -> None:
    """Raise if X gives rows when it is asked for them, where they must lie in memory.

    Examples
    --------
    >>> require_in_memory("audit", "recording.npy")
    Traceback (most recent call last):
    TypeError: audit: X must be rows in memory here, got str: only fit and transform go through a source. Take some
    of its rows, next(pindown.data.as_source(X).blocks(1_000))["x"].
    """
    if isinstance(X, Source | DataLoader | Dataset | str | Path):
        raise TypeError(
            f"{owner}: X must be rows in memory here, got {type(X).__name__}: only fit and transform go through a "
            'source. Take some of its rows, next(pindown.data.as_source(X).blocks(1_000))["x"].'
        )


def as_source(X: Any) -> Source:
    """Return what gives the rows of X; a source is returned as it is.

    Parameters
    ----------
    X : array, tensor, memory map, Dataset, IterableDataset, DataLoader, Process, str, Path or Source
        Where rows lie or come from. Text is the path of a file or folder: see `pindown.data.files.open_path`.

    Examples
    --------
    >>> as_source([[1.0, 2.0]]).shape
    (2,)
    >>> as_source({"x": 1})
    Traceback (most recent call last):
    TypeError: X must be an array, a tensor, a torch Dataset or DataLoader, a simulation of pindown.simulate, the path
    of a file or folder, or a pindown.data.Source, got dict.
    """
    match X:
        case Source():
            return X
        case DataLoader() | IterableDataset():
            return LoaderSource(X)
        case str() | Path():
            return open_path(X)
    if hasattr(X, "shape") or hasattr(X, "__array__") or isinstance(X, list | tuple):
        return ArraySource(X)
    if isinstance(X, Dataset):
        return DatasetSource(X)
    raise TypeError(
        "X must be an array, a tensor, a torch Dataset or DataLoader, a simulation of pindown.simulate, the path of a "
        f"file or folder, or a pindown.data.Source, got {type(X).__name__}."
    )
