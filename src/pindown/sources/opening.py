"""`as_source`: whatever holds rows, as a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from pindown.processes import Process
from pindown.sources.arrays import Arrays
from pindown.sources.files import open_path
from pindown.sources.source import Source
from pindown.sources.torch_data import FromDataset, FromLoader
from pindown.sources.worlds import World


def require_rows(owner: str, X: Any) -> None:
    """Raise if X gives rows when it is asked for them, where they must lie in memory.

    Examples
    --------
    >>> require_rows("audit", "recording.npy")
    Traceback (most recent call last):
    TypeError: audit: X must be rows in memory here, got str: only fit and transform go through a source. Take some
    of its rows, next(pindown.sources.as_source(X).blocks(1_000))["x"].
    """
    if isinstance(X, Source | Process | DataLoader | Dataset | str | Path):
        raise TypeError(
            f"{owner}: X must be rows in memory here, got {type(X).__name__}: only fit and transform go through a "
            'source. Take some of its rows, next(pindown.sources.as_source(X).blocks(1_000))["x"].'
        )


def as_source(X: Any) -> Source:
    """Return what gives the rows of X; a source is returned as it is.

    Parameters
    ----------
    X : array, tensor, memory map, Dataset, IterableDataset, DataLoader, Process, str, Path or Source
        Where rows lie or come from. Text is the path of a file or folder: see `pindown.sources.files.open_path`.

    Examples
    --------
    >>> as_source([[1.0, 2.0]]).shape
    (2,)
    >>> as_source({"x": 1})
    Traceback (most recent call last):
    TypeError: X must be an array, a tensor, a torch Dataset or DataLoader, a world of pindown.processes, the path of a
    file or folder, or a pindown.sources.Source, got dict.
    """
    match X:
        case Source():
            return X
        case Process():
            return World(X)
        case DataLoader() | IterableDataset():
            return FromLoader(X)
        case str() | Path():
            return open_path(X)
    if hasattr(X, "shape") or hasattr(X, "__array__") or isinstance(X, list | tuple):
        return Arrays(X)
    if isinstance(X, Dataset):
        return FromDataset(X)
    raise TypeError(
        "X must be an array, a tensor, a torch Dataset or DataLoader, a world of pindown.processes, the path of a file "
        f"or folder, or a pindown.sources.Source, got {type(X).__name__}."
    )
