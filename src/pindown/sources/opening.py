"""`as_source`: whatever holds rows, as a source."""

from __future__ import annotations

from typing import Any

from pindown.processes import Process
from pindown.sources.arrays import Arrays
from pindown.sources.source import Source
from pindown.sources.worlds import World


def as_source(X: Any) -> Source:
    """Return what gives the rows of X: an array, a tensor, a map, a world; a source is returned as it is.

    Examples
    --------
    >>> as_source([[1.0, 2.0]]).shape
    (2,)
    >>> as_source({"x": 1})
    Traceback (most recent call last):
    TypeError: X must be an array, a tensor, a world of pindown.processes or a Source, got dict.
    """
    if isinstance(X, Source):
        return X
    if isinstance(X, Process):
        return World(X)
    if hasattr(X, "shape") or hasattr(X, "__array__") or isinstance(X, list | tuple):
        return Arrays(X)
    raise TypeError(f"X must be an array, a tensor, a world of pindown.processes or a Source, got {type(X).__name__}.")
