"""Arrays of numpy: ``.npy`` is one matrix, ``.npz`` several arrays with names."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.data.tables.source import Matrix, TableFile, no_columns
from pindown.errors import InputError


def holds_no_numbers(path: Path, name: str) -> InputError:
    """Return the error to raise for a column that must be numbers."""
    return InputError(name, f"{path.name}: {name} holds no numbers. Leave it out: `drop={name!r}`.")


def open_npy(path: Path) -> TableFile:
    """Look at one matrix, whose columns are called 0, 1, 2 and so on."""
    array = _load(path)
    if array.ndim > 2:
        raise ValueError(f"{path.name}: {no_columns('X', array.shape)}")
    if array.ndim != 2 or array.dtype.kind not in "buif":
        raise ValueError(
            f"{path.name} must hold a matrix of numbers, a row per sample, but has {array.dtype} of {array.shape}. For "
            "labels beside it, or several arrays, save an .npz."
        )
    names = tuple(str(j) for j in range(array.shape[1]))
    return ArrayTable(path, names, names, {}, {name: array[:, j] for j, name in enumerate(names)})


def open_npz(path: Path) -> TableFile:
    """Look at arrays: one with two dimensions is a block, whose columns are called X_0, X_1 …; others are columns."""
    arrays = _load(path)
    columns: dict[str, NDArray[Any]] = {}
    blocks: dict[str, tuple[str, ...]] = {}
    deep: dict[str, tuple[int, ...]] = {}
    for name in arrays.files:
        array = _member(path, arrays, name)
        if array.ndim == 1 or array.shape[1:] == (1,):
            columns[name] = array.reshape(-1)
        elif array.ndim == 2:
            blocks[name] = tuple(f"{name}_{j}" for j in range(array.shape[1]))
            columns |= {part: array[:, j] for j, part in enumerate(blocks[name])}
        elif array.ndim > 2:
            deep[name] = array.shape
    if not columns and not deep:
        raise ValueError(f"{path.name} holds no array with one or two dimensions: save one called X, a row per sample.")
    numeric = tuple(name for name, column in columns.items() if column.dtype.kind in "buif")
    return ArrayTable(path, tuple(columns), numeric, blocks, columns, deep=deep)


@dataclass(frozen=True, eq=False)
class ArrayTable(TableFile):
    """Columns that are there already; they may differ in length until they are used together."""

    columns: Mapping[str, NDArray[Any]]

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix and others as labels."""
        lengths = {name: len(self.columns[name]) for name in (*numbers, *labels)}
        first = next(iter(lengths))
        for name, length in lengths.items():
            if length != lengths[first]:
                raise ValueError(
                    f"{self.path.name}: {name} has {length} rows, but {first} has {lengths[first]}. Row i of one must "
                    "belong to row i of the other."
                )
        for name in numbers:
            if self.columns[name].dtype.kind not in "buif":
                raise holds_no_numbers(self.path, name)
        matrix = np.empty((lengths[first], len(numbers)))
        for k, name in enumerate(numbers):
            matrix[:, k] = self.columns[name]
        return matrix, {name: self._label(name) for name in labels}

    def _label(self, name: str) -> NDArray[Any]:
        column = self.columns[name]
        if column.dtype.kind == "f" and np.isnan(column).any():
            raise ValueError(
                f"{self.path.name}: {name} is NaN in {int(np.isnan(column).sum())} of {len(column)} rows. Give these "
                "rows a value, or leave them out."
            )
        return column


def _load(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r" if path.suffix.lower() == ".npy" else None, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path.name} cannot be read as numpy's {path.suffix}: save it again by numpy.") from error


def _member(path: Path, arrays: Any, name: str) -> NDArray[Any]:
    try:
        return arrays[name]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path.name}: {name} cannot be read. If it holds Python objects, turn them into text: {name}.astype(str)."
        ) from error
