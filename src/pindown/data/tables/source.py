"""What all data files have in common: columns with names, some of them numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import listed, nearest
from pindown.errors import InputError

Matrix = NDArray[np.float64]

MISSING = frozenset(
    {"", "na", "n/a", "nan", "null", "none", "#n/a", "#value!", "#div/0!", "#num!", "#ref!", "#name?", "#null!"}
)
"""Cells that hold nothing, or what a spreadsheet could not compute, in small letters."""


@dataclass(frozen=True, eq=False)
class TableFile(ABC):
    """A data file of which the names are known, and nothing else is read yet; abstract.

    Parameters
    ----------
    path : Path
        The file.
    names : tuple of str
        All columns; unnamed ones are left out.
    numeric : tuple of str
        Those that hold numbers.
    blocks : mapping of str to tuple of str
        Columns that have a name together: the arrays of an ``.npz``, or ``X`` of an ``.h5ad``.
    deep : mapping of str to tuple of int
        Shapes of arrays with more than two dimensions, which are no columns.
    """

    path: Path
    names: tuple[str, ...]
    numeric: tuple[str, ...]
    blocks: Mapping[str, tuple[str, ...]]
    deep: Mapping[str, tuple[int, ...]] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix (n, k), NaN for what is missing, and others as labels, (n,) each."""

    def row_names(self) -> NDArray[Any] | None:
        """Return what the file itself calls its rows, beside all columns; None if it does not."""
        return None

    def default_block(self) -> tuple[str, ...] | None:
        """Return the columns to look at where nothing else is said: ``X``, or the only block; None without blocks."""
        for name in ("X", "x"):
            if name in self.blocks:
                return self.blocks[name]
        if self.deep and (not self.blocks or {"X", "x"} & {*self.deep}):
            name = next((name for name in ("X", "x") if name in self.deep), next(iter(self.deep)))
            raise ValueError(f"{self.path.name}: {no_columns(name, self.deep[name])}")
        if len(self.blocks) > 1:
            blocks = listed([*self.blocks])
            raise InputError("features", f"{self.path.name}: say by `features` which array to look at: {blocks}.")
        return next(iter(self.blocks.values()), None)

    def require(self, name: str, option: str) -> None:
        """Raise if there is no such column, and say which one was probably meant."""
        if name not in self.names:
            raise self.lacks(name, option, self.names)

    def lacks(self, name: str, option: str, names: Sequence[str]) -> InputError:
        """Return the error that says which column, or block, was probably meant."""
        if name in self.deep:
            return InputError(option, f"`{option}`: {no_columns(name, self.deep[name])}")
        return InputError(option, f"`{option}`: {self.path.name} has no column {name!r}: {nearest(name, names)}")


def no_columns(name: str, shape: tuple[int, ...]) -> str:
    """Say why an array is not read, and what to do.

    Examples
    --------
    >>> no_columns("X", (300, 3, 8, 8))
    'X has shape (300, 3, 8, 8), and the shell reads columns, a row per sample. Give a folder of pictures, fit the \
array in Python, or lay each row out as columns: X.reshape(len(X), -1).'
    """
    return (
        f"{name} has shape {shape}, and the shell reads columns, a row per sample. Give a folder of pictures, fit the "
        f"array in Python, or lay each row out as columns: {name}.reshape(len({name}), -1)."
    )


def refuse_duplicates(path: Path, names: Sequence[str], remedy: str = "Give each its own.") -> None:
    """Raise if two columns share a name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path.name}: several columns are called {listed(twice, 4)}. {remedy}")


def as_label(values: Sequence[str]) -> NDArray[Any]:
    """Return a column of text as whole numbers if all of it are, as numbers if all are, or as the text it is.

    Examples
    --------
    >>> as_label(["3", "12"]), as_label(["0.5", "1"]), as_label(["01", "b"])
    (array([ 3, 12]), array([0.5, 1. ]), array(['01', 'b'], dtype='<U2'))
    """
    distinct = list(dict.fromkeys(values))
    for kind in (int, float):
        try:
            known = {text: kind(text) for text in distinct}
        except ValueError:
            continue
        if len(set(known.values())) == len(known):  # 1 and 01 are two names, not one number
            return np.array([known[text] for text in values])
    return np.array(values)
