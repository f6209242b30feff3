"""What belongs to each picture of a folder: the rows of a csv file, by the file they are about."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import counted, listed, nearest
from pindown.tables.source import MISSING, as_label

Table = dict[str, dict[str, str]]


def read_labels(path: Path, asked: Sequence[str]) -> Table:
    """Return the rows of a csv file by the picture they belong to; it must have the columns asked for."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path.name} is no text in UTF-8: byte {error.start} is {error.object[error.start]:#x}. Save it as UTF-8."
        ) from error
    reader = csv.DictReader(lines, delimiter=max(",;\t", key=lines[0].count) if lines else ",")
    columns = reader.fieldnames or []
    key = "file" if "file" in columns else next(iter(columns), "")
    found: Table = {}
    for line in reader:
        row = {column: (line[column] or "").strip() for column in columns}
        if not row[key]:  # a line of separators, at the end of a sheet
            continue
        name = PurePosixPath(row[key]).as_posix()  # ./0.png is 0.png
        if name in found:
            raise ValueError(f"{path.name} has {name} twice. A picture has one row.")
        found[name] = row
    if len(columns) < 2 or not found:
        raise ValueError(f"{path.name}: a file of labels has a head, a column of files and one of labels at least.")
    for column in asked:
        if column not in columns:
            raise ValueError(f"{path.name}: no column is called {column!r}: {nearest(column, list(columns))}")
    return found


def with_labels(
    names: list[str], table: Table, asked: Sequence[str], path: Path, *, skip: bool
) -> tuple[list[str], list[str]]:
    """Return the pictures that have something in all columns asked for, and what to note of others and of their rows.

    Raises
    ------
    ValueError
        If one has not, unless they are to be skipped.
    """
    if not any(name in table for name in names):
        raise ValueError(
            f"{path.name} has none of the {len(names)} pictures, such as {names[0]}; its first is {next(iter(table))}. "
            "Its paths must be those within the folder."
        )
    kept = [name for name in names if name in table and all(not _is_missing(table[name][column]) for column in asked)]
    if not kept:
        raise ValueError(
            f"{path.name}: {listed([*map(repr, asked)])} has no values. Fill the column in, or take another."
        )
    missing = [name for name in names if name not in set(kept)]
    if missing and not skip:
        raise ValueError(
            f"{path.name} misses {counted(len(missing), 'picture')}, such as {missing[0]}: no row has it, or an empty "
            "one (none and NA are empty, too). Add them, or pass skip_unlabelled=True to leave these pictures out."
        )
    notes = [f"{counted(len(missing), 'picture')} without a label left out: {listed(missing)}"] if missing else []
    strays = [name for name in table if name not in set(names)]
    if strays:
        rows = "1 row is" if len(strays) == 1 else f"{len(strays):,} rows are"
        notes.append(f"{rows} passed over in {path.name}, since there is no such picture: {strays[0]}")
    return kept, notes


def columns_of(table: Table, names: list[str], columns: str | Sequence[str]) -> NDArray[Any]:
    """Return a column of labels of these pictures, (n,), or several, (n, k): numbers where all are."""
    some = (columns,) if isinstance(columns, str) else tuple(columns)
    sides = [as_label([table[name][column] for name in names]) for column in some]
    return sides[0] if isinstance(columns, str) else np.stack(sides, axis=1)


def _is_missing(cell: str) -> bool:
    return cell.lower() in MISSING
