"""Data: samples with side variables by role, and sources that give them in batches.

`Data` holds samples with their side variables. A `Source` gives batches of samples, wherever they are: `as_source`
makes one from an array, a memory map, a file, a torch Dataset or DataLoader. What needs torch is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pindown.data.data import Data

if TYPE_CHECKING:
    from pindown.data.files import ParquetSource, as_source
    from pindown.data.images import ImageFolder
    from pindown.data.sources import (
        ArraySource,
        Batch,
        ConcatSource,
        DatasetSource,
        GeneratorSource,
        IndexedSource,
        LoaderSource,
        Source,
        first_samples,
        moments,
    )

_ELSEWHERE = {"ImageFolder": "images", "ParquetSource": "files", "as_source": "files"}
"""The module of each name that is not in `pindown.data.sources`."""

__all__ = [
    "ArraySource",
    "Batch",
    "ConcatSource",
    "Data",
    "DatasetSource",
    "GeneratorSource",
    "ImageFolder",
    "IndexedSource",
    "LoaderSource",
    "ParquetSource",
    "Source",
    "as_source",
    "first_samples",
    "moments",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"pindown.data.{_ELSEWHERE.get(name, 'sources')}"), name)
    raise AttributeError(f"module 'pindown.data' has no attribute {name!r}")
