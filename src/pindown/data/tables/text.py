"""Tables as text: ``.csv`` and ``.tsv``, read in pieces."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.data.tables.source import MISSING, Matrix, TableFile, as_label, refuse_duplicates
from pindown.errors import InputError

PIECE = 5_000
"""Rows held as text at a time; by the first ones it is settled which columns are numbers."""


def open_text(path: Path) -> TableFile:
    """Read the header and the first rows: names, and which columns hold numbers."""
    separator = "\t" if path.suffix.lower() == ".tsv" else find_separator(path)
    with _rows(path, separator) as rows:
        _, header = next(rows, (0, []))
        names = [cell.strip() for cell in header]
        _check_header(path, names)
        first = [row for _, row in islice(rows, PIECE)]
    if not first:
        raise ValueError(f"{path.name} has names but no rows: give a line for each row below them.")
    columns = dict(zip(names, zip(*first, strict=True), strict=True))
    named = tuple(name for name in names if name)
    has_commas = separator != "," and _decimals_have_commas(first)
    numeric = tuple(name for name in named if _mostly_numbers(columns[name], has_commas))
    return TextTable(path, named, numeric, {}, tuple(names), separator, has_commas)


@dataclass(frozen=True, eq=False)
class TextTable(TableFile):
    """A ``.csv`` or ``.tsv``; ``header`` has the unnamed columns, too, and decimals may be written with commas."""

    header: tuple[str, ...]
    separator: str
    has_commas: bool

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix and others as labels, in one pass."""
        place = {name: j for j, name in enumerate(self.header)}
        at, beside = [place[name] for name in numbers], {name: place[name] for name in labels}
        pieces: list[Matrix] = []
        cells: dict[str, list[str]] = {name: [] for name in labels}
        known: dict[str, str] = {}  # equal labels share their memory
        with _rows(self.path, self.separator) as rows:
            next(rows)
            while piece := list(islice(rows, PIECE)):
                lines, kept = zip(*piece, strict=True)
                pieces.append(self._numbers(kept, lines, at))
                for name, j in beside.items():
                    cells[name] += [known.setdefault(row[j].strip(), row[j].strip()) for row in kept]
        return np.concatenate(pieces), {name: self._label(name, column) for name, column in cells.items()}

    def row_names(self) -> NDArray[Any] | None:
        """Return the first column if it has no name, as where a data frame was written with its index."""
        if self.header[0]:
            return None
        with _rows(self.path, self.separator) as rows:
            next(rows)
            return np.array([row[0].strip() for _, row in rows])

    def _numbers(self, rows: Sequence[Sequence[str]], lines: Sequence[int], at: Sequence[int]) -> Matrix:
        try:
            if not self.has_commas:
                return np.array([[float(row[j]) for j in at] for row in rows])
            return np.array([[float(_with_point(row[j])) for j in at] for row in rows])
        except ValueError:  # a cell is empty, or text
            cells = zip(rows, lines, strict=True)
            return np.array([[self._number(row[j], line, j) for j in at] for row, line in cells])

    def _number(self, cell: str, line: int, j: int) -> float:
        if cell.strip().lower() in MISSING:
            return np.nan
        try:
            return float(_with_point(cell) if self.has_commas else cell)
        except ValueError:
            name, mark = self.header[j], "comma" if self.has_commas else "point"
            decimals = f" Decimals need a {mark} in this file, and thousands no mark." if set(cell) & set(",.") else ""
            raise InputError(
                name,
                f"{self.path.name}, line {line}: column {name!r} holds numbers, but here the text {cell!r}.{decimals} "
                f"Correct the cell, or leave the column out: `drop={name!r}`.",
            ) from None

    def _label(self, name: str, column: list[str]) -> NDArray[Any]:
        empty = [i for i, cell in enumerate(column) if cell.lower() in MISSING]
        if empty:
            cell = column[empty[0]]
            holds = f"holds {cell!r}, which is read as nothing," if cell else "is empty"
            fill = "If that is a value, call it otherwise" if cell else "Fill it, such as with 'unknown'"
            raise ValueError(
                f"{self.path.name}: column {name!r} {holds} in {len(empty)} of {len(column)} rows, first in row "
                f"{empty[0] + 1}. {fill}, or leave these rows out."
            )
        return as_label([_with_point(cell) for cell in column] if self.has_commas and name in self.numeric else column)


@contextmanager
def _rows(path: Path, separator: str) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """Yield lines of cells with their numbers, all as wide as the first; lines without content are passed over."""

    def checked() -> Iterator[tuple[int, list[str]]]:
        width = None
        reader = csv.reader(file, delimiter=separator, strict=True)
        for row in reader:
            # Spreadsheets write a line about separators first, and lines without content last.
            if not row or (row == ["sep=", ""] if width is None else not any(row)):
                continue
            width = len(row) if width is None else width
            if len(row) != width:
                raise ValueError(
                    f"{path.name}, line {reader.line_num}: {len(row)} cells, but the first line has {width}. Is a "
                    "separator missing, or text with a separator not in quotes?"
                )
            yield reader.line_num, row

    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            yield checked()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path.name} is no UTF-8 text (byte {error.start}): save it as UTF-8, in a spreadsheet as CSV UTF-8."
            ) from error
        except csv.Error as error:
            raise ValueError(f"{path.name} is no table in text ({error}): save it as CSV again.") from error


def find_separator(path: Path) -> str:
    """Return what the first line is separated by: some spreadsheets write semicolons, or tabs, into a .csv."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        line = file.readline()
    if re.fullmatch("sep=[,;\t]\\s*", line):
        return line[4]
    return max(",;\t", key=line.count)


def _check_header(path: Path, names: Sequence[str]) -> None:
    if not any(names):
        raise ValueError(f"{path.name} has no names in its first line: give each column one.")
    if all(_is_number(name) for name in names if name):
        raise ValueError(
            f"{path.name}: the header is missing, its first line holds numbers ({', '.join(names[:3])} …). Put a line "
            "with the names of the columns before it."
        )
    refuse_duplicates(path, [name for name in names if name])


def _decimals_have_commas(rows: Sequence[Sequence[str]]) -> bool:
    """Say whether more cells are like 0,5 than like 0.5, and not all of them could be thousands, such as 1,500."""
    cells = [cell for row in rows for cell in row]
    with_comma = [cell for cell in cells if _COMMA.fullmatch(cell)]
    n_points = sum(_COMMA.fullmatch(_with_point(cell)) is not None for cell in cells)
    return len(with_comma) > n_points and not all(map(_THOUSANDS.fullmatch, with_comma))


_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*")


def _with_point(cell: str) -> str:
    """Exchange commas and points, so that 1.500 with a point for thousands is not read as one and a half."""
    return cell.translate({44: ".", 46: ","})


def _mostly_numbers(column: Sequence[str], has_commas: bool) -> bool:
    """Say whether more than half of the cells that are not empty are numbers: the others are then mistakes."""
    full = [cell for cell in column if cell.strip().lower() not in MISSING]
    return sum(_is_number(_with_point(cell) if has_commas else cell) for cell in full) > len(full) / 2


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
