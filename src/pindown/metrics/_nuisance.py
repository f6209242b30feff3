"""Reading a nuisance: labels or a quantity, which rows can be audited, and what to do about the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import counted
from pindown.data.labels import combined, is_quantity
from pindown.metrics._exchange import Codes

MIN_ROWS = 4  # of a value: two to fit, two to score
MIN_GROUPS = 2
MIN_QUANTITY_ROWS = 8


@dataclass(frozen=True, eq=False)
class Nuisance:
    """One nuisance: its name, its value in each row (n,), and whether the values are labels or numbers on a scale."""

    name: str
    values: NDArray[Any]
    is_label: bool

    @cached_property
    def coded(self) -> NDArray[Any]:
        """Labels numbered from 0, quantities as they are; (n,)."""
        return combined(self.values) if self.is_label else self.values.astype(np.float64)

    def cells(self, strata: Codes) -> Codes:
        """Give combinations of stratum and value numbers from 0; a quantity has strata only."""
        return combined(strata, self.coded) if self.is_label else combined(strata)


def read_nuisances(caller: str, e: Any, n: int, continuous: bool | None) -> list[Nuisance]:
    """Split e into its columns, and decide for each whether it is a label or a quantity."""
    table = _as_array(caller, "e", e)
    if table.ndim not in (1, 2) or table.size == 0:
        raise ValueError(
            f"{caller}: e must have shape (n,) or (n, columns), got {table.shape}. Give one value, or row, per sample."
        )
    _check_length(caller, "e", table, n)
    columns = [table] if table.ndim == 1 else [_plain(column) for column in table.T]
    names = _names(e, len(columns))
    return [_nuisance(caller, name, column, continuous) for name, column in zip(names, columns, strict=True)]


def _nuisance(caller: str, name: str, column: NDArray[Any], continuous: bool | None) -> Nuisance:
    _check_complete(caller, name, column)
    is_label = not (is_quantity(column) if continuous is None else continuous)
    if not is_label and column.dtype.kind not in "buif":
        raise ValueError(f"{caller}: {name} must be numbers if continuous=True, got {column[0]!r}. Leave it out.")
    if len(np.unique(column)) < 2:
        raise ValueError(
            f"{caller}: {name} has one value only, {column[0]!r}, so there is nothing that could leak. "
            "Were the rows filtered by it? Pass rows of at least two values."
        )
    return Nuisance(name, column, is_label)


def read_labels(caller: str, name: str, values: Any, n: int) -> Codes:
    """Give the values of a column of labels, groups or strata numbers from 0."""
    column = _as_array(caller, name, values)
    if column.ndim != 1:
        raise ValueError(f"{caller}: {name} must have shape (n,), got {column.shape}. Join several columns into one.")
    _check_length(caller, name, column, n)
    _check_complete(caller, name, column)
    if name == "given" and is_quantity(column):
        raise ValueError(
            f"{caller}: given must be labels, got fractional numbers such as {column[0]!r}: their strata would be "
            "single rows. Cut it into a few bins."
        )
    return combined(column)


def auditable(caller: str, nuisance: Nuisance, groups: Codes, given: Codes | None) -> tuple[Codes, tuple[str, ...]]:
    """Return the rows that can be audited, and notes on those that cannot.

    Without strata nothing is left out silently or otherwise: a value that is too rare is an error. Within strata some
    combinations of label and nuisance are often missing, and only the others can be compared.
    """
    if given is None:
        _check_common(caller, nuisance, groups)
        return np.arange(len(groups)), ()
    cells = nuisance.cells(given)
    common = _is_common(cells, groups, MIN_ROWS if nuisance.is_label else MIN_QUANTITY_ROWS)[cells]
    varied = _n_distinct(given[common], nuisance.coded[common], given.max() + 1)[given] >= 2
    rows = np.flatnonzero(common & varied)
    if not rows.size:
        raise ValueError(
            f"{caller}: within every value of given {nuisance.name} has one value (or others too rare to compare), so "
            "what Z tells of the one cannot be told from what it tells of the other. Collect rows that cross them, or "
            "audit without given, and read `confounding` first."
        )
    left_out = {
        "too rare within its stratum": int(np.sum(~common)),
        f"in strata with one value of {nuisance.name}": int(np.sum(common & ~varied)),
    }
    return rows, tuple(f"{counted(count, 'row')} left out, {why}" for why, count in left_out.items() if count)


def _check_common(caller: str, nuisance: Nuisance, groups: Codes) -> None:
    name, cells = nuisance.name, nuisance.cells(np.zeros(len(groups), dtype=int))
    enough = MIN_ROWS if nuisance.is_label else MIN_QUANTITY_ROWS
    rows = np.bincount(cells)
    if (rows < enough).any():
        if not nuisance.is_label:
            raise ValueError(f"{caller}: {len(groups)} rows are too few to audit {name}, {enough} are needed.")
        raise ValueError(
            f"{caller}: value(s) {_some(nuisance, rows < enough)} of {name} have fewer than {enough} rows, two to fit "
            "and two to score. Merge rare values or leave their rows out; if they are a quantity, pass continuous=True."
        )
    if not (spread := _is_common(cells, groups, enough)).all():
        which = f"value(s) {_some(nuisance, ~spread)} of {name} are" if nuisance.is_label else f"{name} is"
        raise ValueError(
            f"{caller}: {which} in one group only and cannot be held out: reading the group would pass for reading "
            f"{name}. Collect more groups, or pass groups=None if rows are independent."
        )


def _is_common(cells: Codes, groups: Codes, enough: int) -> NDArray[np.bool_]:
    return (np.bincount(cells) >= enough) & (_n_distinct(cells, groups, cells.max() + 1) >= MIN_GROUPS)


def _n_distinct(keys: Codes, values: NDArray[Any], n_keys: int) -> Codes:
    """Count the distinct values of each key."""
    first = np.unique(combined(keys, values), return_index=True)[1]
    return np.bincount(keys[first], minlength=n_keys)


def _some(nuisance: Nuisance, which: NDArray[np.bool_]) -> str:
    values = np.unique(nuisance.values)[which].tolist()
    return ", ".join(map(repr, values[:5])) + (f" and {len(values) - 5} more" if len(values) > 5 else "")


def _as_array(caller: str, name: str, values: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values.detach() if hasattr(values, "detach") else values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{caller}: {name} cannot be read as an array: {error}") from error
    return _plain(array) if array.ndim == 1 else array


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    """Give a column of Python objects the type of what is in it; tables with mixed columns are such."""
    if column.dtype.kind != "O" or any(value is None or value != value for value in column):
        return column
    return np.array(column.tolist())


def _names(e: Any, n_columns: int) -> Sequence[str]:
    if n_columns == 1:
        return [str(getattr(e, "name", None) or "e")]
    names = getattr(e, "columns", None)
    return [f"e[:, {j}]" for j in range(n_columns)] if names is None else [str(name) for name in names]


def _check_length(caller: str, name: str, array: NDArray[Any], n: int) -> None:
    if len(array) != n:
        raise ValueError(
            f"{caller}: {name} has {len(array)} rows and Z has {n}, but row i of both must be the same sample. "
            "Was one of them filtered?"
        )


def _check_complete(caller: str, name: str, column: NDArray[Any]) -> None:
    if column.dtype.kind == "f":
        missing = np.flatnonzero(~np.isfinite(column))
    elif column.dtype.kind == "O":
        missing = np.flatnonzero([value is None or value != value for value in column])
    else:
        return
    if missing.size:
        raise ValueError(
            f"{caller}: {name} is missing or not finite in {missing.size} row(s), first row {missing[0]}. "
            "Drop these rows, or make 'unknown' a value of its own."
        )
