"""Table files, read by column name: csv, tsv, xlsx, parquet, h5ad and the arrays of numpy; and files of latents."""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
import zipfile
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown._files import atomic_path, require_writable
from pindown._names import listed, nearest, printable, quoted
from pindown.data.labels import as_label, missing
from pindown.errors import InputError

if TYPE_CHECKING:
    import pyarrow
    from scipy.sparse import sparray

Matrix = NDArray[np.float64]
Label = NDArray[np.generic]

MISSING = frozenset(
    {"", "na", "n/a", "nan", "null", "none", "#n/a", "#value!", "#div/0!", "#num!", "#ref!", "#name?", "#null!"}
)
"""Cells that hold nothing, or what a spreadsheet could not compute, in lower case."""

HEAD = 5_000  # lines of a text file from which the types of its columns are decided
WRITABLE = (".csv", ".tsv", ".npy", ".npz")  # suffixes of files that `write_latents` writes


@dataclass(frozen=True, eq=False)
class TableFile(ABC):
    """A table file whose columns are known, and nothing else has been read; abstract."""

    path: Path
    names: tuple[str, ...]  # all columns that have a name
    numeric: tuple[str, ...]  # columns of numbers
    blocks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # arrays of an .npz, or X of an .h5ad
    deep: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # shapes of arrays with more than two dimensions

    @abstractmethod
    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, Label]]:
        """Return some columns as a matrix (n, k), NaN where a number is missing, and others as labels, (n,) each.

        Labels have None or NaN where one is missing.
        """

    @abstractmethod
    def sample_names(self) -> Label | None:
        """Return the names of the samples, if the file has them apart from its columns; None otherwise."""

    def default_block(self) -> tuple[str, ...] | None:
        """Return the columns of ``X``, or of the only block; None without blocks."""
        for name in ("X", "x", *(self.blocks if len(self.blocks) == 1 else () if self.blocks else self.deep)):
            if name in self.deep:
                raise self.lacks(name, "features", ())
            if name in self.blocks:
                return self.blocks[name]
        if self.blocks:
            several = listed([*self.blocks])
            raise InputError("features", f"{self.path.name} has several arrays: {several}. Name one by `features`.")
        return None

    def require(self, name: str, argument: str) -> None:
        """Raise if there is no such column."""
        if name not in self.names:
            raise self.lacks(name, argument, self.names)

    def lacks(self, name: str, argument: str, names: Sequence[str]) -> InputError:
        """Return the error for a column or block that is not there, with the name that was probably meant."""
        if name in self.deep:
            return InputError(
                argument,
                f"`{argument}`: {name} in {self.path.name} has shape {self.deep[name]}, but a table has one line per "
                f"sample. Give a folder of images, fit the array in Python, or flatten it: {name}.reshape(len({name}), "
                "-1).",
            )
        hint = nearest(name, names)
        return InputError(argument, f"`{argument}`: {self.path.name} has no column {quoted(name)}: {hint}")


@dataclass(frozen=True, eq=False)
class ColumnTable(TableFile):
    """A file of which single columns are loaded: `load` maps names to columns, and `index` returns names of samples."""

    load: Callable[[Sequence[str]], Mapping[str, Any]] = lambda names: {}
    index: Callable[[], ArrayLike | None] = lambda: None

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, Label]]:
        """Return some columns as a matrix and others as labels."""
        numeric = set(self.numeric)
        if text := [name for name in numbers if name not in numeric]:
            raise InputError("features", f"{self.path.name}: column {quoted(text[0])} has no numbers. Leave it out.")
        with _readable(self.path):
            columns = self.load(tuple(dict.fromkeys((*numbers, *labels))))
        lengths = {name: len(np.asarray(column)) for name, column in columns.items()}
        first = next(iter(lengths))
        for name, length in lengths.items():
            if length != lengths[first]:
                counts = f"{name} has {length} rows, but {first} has {lengths[first]}"
                raise ValueError(f"{self.path.name}: {counts}. Save one row per sample in both.")
        matrix = np.empty((lengths[first], len(numbers)))
        for k, name in enumerate(numbers):
            matrix[:, k] = columns[name]
        return matrix, {name: _label(columns[name]) for name in labels}

    def sample_names(self) -> Label | None:
        """Return the names that the file itself has for its samples."""
        names = self.index()
        return None if names is None else _label(names)


def _label(column: ArrayLike) -> Label:
    """Return numbers and text as they are, other values as text, and missing ones as None."""
    values = np.asarray(column)
    if values.dtype.kind != "O":
        return values
    empty = missing(values)
    plain = np.array(values[~empty].tolist()).dtype.kind in "buifU"
    kept = [None if gone else v if plain else str(v) for v, gone in zip(values, empty, strict=True)]
    return np.array(kept, dtype=object if empty.any() else None)


def open_table(path: Path) -> TableFile:
    """Open a table file: read the names of its columns, and which of them hold numbers."""
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise ValueError(f"{path.name}: cannot read files in {suffix or 'nothing'!r}: {nearest(suffix, [*READERS])}")
    if not path.exists():
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no file {path}: there is no folder {path.parent} either.")
        others = sorted(other.name for other in path.parent.iterdir() if other.suffix.lower() in READERS)
        raise FileNotFoundError(f"there is no file {path}: {nearest(path.name, others)}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a data file in it.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} is empty: give a file with a line of names and a line for each sample.")
    try:
        return READERS[suffix](path)
    except ImportError as error:
        raise ValueError(f"{error} Or save a .csv.") from error
    except PermissionError as error:
        raise PermissionError(f"{path} cannot be read ({error.strerror}): ask for permission, or copy it.") from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what a library raises for a bad file into one sentence, and silence its warnings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except (PermissionError, InputError):
        raise
    except Exception as error:  # each library has errors of its own
        cause = printable(next(iter(str(error).splitlines()), type(error).__name__).rstrip("."), 200)
        raise InputError("X", f"{path.name} cannot be read as {path.suffix} ({cause}). Save it again.") from error


def optional_module(module: str, path: Path, extra: str) -> ModuleType:
    """Return a module of an optional package, or raise an error that says how to install it."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of its own dependencies
            return import_module(module)
    except ImportError as error:
        package = {"PIL": "Pillow"}.get(name := module.partition(".")[0], name)
        raise ImportError(f"{path.name} needs {package}: pip install 'pindown[{extra}]'.") from error


def _require_unique(path: Path, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path.name}: several columns are called {listed(twice, 4)}. Give each its own name.")


# ---- text and spreadsheets ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TextTable(TableFile):
    """A ``.csv`` or ``.tsv`` file, or the first sheet of an ``.xlsx``."""

    header: tuple[str, ...] = ()  # with the columns without a name
    separator: str = ","
    decimal: str = "."
    sheet: str | None = None  # text of a spreadsheet

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, Label]]:
        """Return some columns as a matrix and others as labels."""
        place = {name: j for j, name in enumerate(self.header)}
        matrix, cells = self._cells([place[name] for name in numbers], [place[name] for name in labels])
        numeric = set(self.numeric)
        return matrix, {name: self._label(cells[place[name]], name in numeric) for name in labels}

    def sample_names(self) -> Label | None:
        """Return the first column if it has no name: pandas writes its index so."""
        return None if self.header[0] else np.array(self._cells([], [0])[1][0])

    def _cells(self, numbers: Sequence[int], texts: Sequence[int]) -> tuple[Matrix, dict[int, list[str]]]:
        """Read columns by their places, line by line: numbers, and cells as text."""
        flat, cells, n_rows = array("d"), {j: list[str]() for j in texts}, 0
        known: dict[str, str] = {}  # equal texts share memory
        with _lines(self.path, self.separator, self.sheet) as lines:
            next(lines)  # the header
            for n_rows, (line, row) in enumerate(lines, 1):  # noqa: B007 (it is used below)
                picked = [row[j] for j in numbers]
                try:
                    values = [*map(float, picked)]
                except ValueError:
                    values = [self._number(row, j, line) for j in numbers]
                if self.decimal == "," or "_" in "".join(picked):  # float misreads both
                    values = [self._number(row, j, line) for j in numbers]
                flat.extend(values)
                for j, column in cells.items():
                    column.append(known.setdefault(text := row[j].strip(), text))
        return np.frombuffer(flat).reshape(n_rows, len(numbers)), cells

    def _number(self, row: Sequence[str], j: int, line: int) -> float:
        """Return the number in a cell, NaN if it is missing, or raise if it is text."""
        cell = row[j]
        if _is_number(cell, self.decimal):
            return float(_with_point(cell, self.decimal))
        if cell.strip().lower() in MISSING:
            return math.nan
        name, mark = quoted(self.header[j]), "comma" if self.decimal == "," else "point"
        hint = f" Decimals need a {mark} in this file, and thousands no mark." if set(cell) & set(",.") else ""
        where = f"{self.path.name}, line {line}: column {name} has numbers, but here the text {quoted(cell)}"
        raise InputError("features", f"{where}.{hint} Correct it, or leave the column out: `drop={name}`.")

    def _label(self, cells: list[str], is_numeric: bool) -> Label:
        """Return text as labels: whole numbers, numbers or text; None where a cell is empty."""
        if empty := {cell for cell in set(cells) if cell.lower() in MISSING}:
            return np.array([None if cell in empty else cell for cell in cells], dtype=object)
        return as_label([_with_point(cell, self.decimal) for cell in cells] if is_numeric else cells)


def open_text(path: Path, sheet: str | None = None) -> TextTable:
    """Read the header and the first lines: the names, and which columns hold numbers."""
    separator = "," if sheet is not None else "\t" if path.suffix.lower() == ".tsv" else _separator(path)
    with _lines(path, separator, sheet) as lines:
        header = tuple(cell.strip() for cell in next(lines, (0, []))[1])
        head = [row for _, row in islice(lines, HEAD)]
    names = tuple(name for name in header if name)
    if not names:
        raise ValueError(f"{path.name} has no names in its first line: give each column one.")
    if all(_is_number(name, ".") for name in names):
        raise ValueError(f"{path.name}: the header is missing. Put a line with the names of the columns before it.")
    _require_unique(path, names)
    if not head:
        raise ValueError(f"{path.name} has names but no rows: give a line for each sample below them.")
    decimal = "," if separator != "," and _decimals_have_commas(head) else "."
    columns = zip(header, zip(*head, strict=True), strict=True)
    numeric = tuple(name for name, column in columns if name and _mostly_numbers(column, decimal))
    return TextTable(path, names, numeric, header=header, separator=separator, decimal=decimal, sheet=sheet)


def open_excel(path: Path) -> TextTable:
    """Read the first sheet of a spreadsheet, as text."""
    openpyxl, text = optional_module("openpyxl", path, "tables"), io.StringIO()
    write, width = csv.writer(text).writerow, 0
    with _readable(path), closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as workbook:
        sheet = workbook.worksheets[0]
        sheet.reset_dimensions()  # which a file may state larger than they are
        for row in sheet.iter_rows(values_only=True):
            filled = max((j + 1 for j, cell in enumerate(row) if cell is not None), default=0)
            width = width or filled
            cells = [*row[: max(width, filled)], *[None] * (width - len(row))] if filled else []
            write([int(c) if isinstance(c, float) and c.is_integer() else c for c in cells])
    return open_text(path, text.getvalue())


@contextmanager
def _lines(path: Path, separator: str, sheet: str | None) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """Open a text table; yield its lines that are not empty as numbers and cells, all equally wide."""

    def lines() -> Iterator[tuple[int, list[str]]]:
        width = 0
        for cells in reader:
            if len(cells) == width:
                if cells[0] or any(cells):
                    yield reader.line_num, cells
            elif len(cells) < 2 and not "".join(cells).strip():  # a blank line
                continue
            elif width:
                where = f"{path.name}, line {reader.line_num}: {len(cells)} cells, but the first line has {width}"
                raise ValueError(f"{where}. Is a separator missing, or text not in quotes?")
            elif cells != ["sep=", ""]:  # spreadsheets write a line about separators first
                width = len(cells)
                yield reader.line_num, cells

    with io.StringIO(sheet) if sheet is not None else path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            yield lines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path.name} is not UTF-8 text. In a spreadsheet, save it as CSV UTF-8.") from error
        except csv.Error as error:
            raise ValueError(f"{path.name} cannot be read as csv ({error}). Save it again.") from error


def _separator(path: Path) -> str:
    """Return what separates the cells of the first line: some spreadsheets write semicolons, or tabs, into a .csv."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        line = file.readline()
    return line[4] if re.fullmatch("sep=[,;\t]\\s*", line) else max(",;\t", key=line.count)


def _decimals_have_commas(head: Sequence[Sequence[str]]) -> bool:
    """Whether more cells are like 0,5 than like 0.5, and not all of them could be thousands, such as 1,500."""
    decimal, cells = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*"), [*chain.from_iterable(head)]
    with_comma = [cell for cell in cells if decimal.fullmatch(cell)]
    n_points = sum(decimal.fullmatch(_with_point(cell, ",")) is not None for cell in cells)
    thousands = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*")
    return len(with_comma) > n_points and not all(map(thousands.fullmatch, with_comma))


def _with_point(cell: str, decimal: str) -> str:
    """Exchange commas and points, so that 1.500 with a point for thousands is not read as one and a half."""
    return cell.translate({44: ".", 46: ","}) if decimal == "," else cell


def _mostly_numbers(column: Sequence[str], decimal: str) -> bool:
    """Whether more than half of the cells that are not empty are numbers: the others are then mistakes."""
    full = [cell for cell in column if cell.strip().lower() not in MISSING]
    return sum(_is_number(cell, decimal) for cell in full) > len(full) / 2


def _is_number(cell: str, decimal: str) -> bool:
    try:
        float(_with_point(cell, decimal))
    except ValueError:
        return False
    return "_" not in cell


# ---- arrays of numpy ------------------------------------------------------------------------------------------------


def map_npy(path: Path) -> NDArray[np.generic]:
    """Map the array of an ``.npy``."""
    with _readable(path), path.open("rb") as file:
        return np.memmap(path, mode="r", **_layout(path.stem, file, path.stat().st_size))


def map_npz(path: Path) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of an ``.npz``: mapped where they are not compressed, otherwise read."""
    with _readable(path), zipfile.ZipFile(path) as archive:
        found = {info.filename.removesuffix(".npy"): mapped_member(path, archive, info) for info in archive.infolist()}
        if len(found) < len(archive.infolist()):
            raise ValueError("two of its arrays have one name")
        return found


def mapped_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[np.generic]:
    """Map an array of an ``.npz``, or read it if it is compressed."""
    with archive.open(info) as member:
        layout = _layout(info.filename.removesuffix(".npy"), member, info.file_size)
        if info.compress_type != zipfile.ZIP_STORED:
            numbers = np.frombuffer(bytearray(member.read()), layout["dtype"])
            return numbers.reshape(layout["shape"], order=layout["order"])
    with path.open("rb") as raw:  # the sizes of name and extra field come before them, and may differ from the index's
        raw.seek(info.header_offset + 26)
        name, extra = np.frombuffer(raw.read(4), dtype="<u2")
    layout["offset"] += info.header_offset + 30 + int(name) + int(extra)
    return np.memmap(path, mode="r", **layout)


def _layout(name: str, file: IO[bytes], size: int) -> dict[str, Any]:
    """Return how an array lies in a file of this size, or raise if it holds something else."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
    except ValueError as error:
        raise ValueError(f"{name} is not an array") from error
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects: turn them into text, {name}.astype(str)")
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError(f"{name} has the shape {shape}, and another number of bytes")
    return {"dtype": dtype, "shape": shape, "order": "F" if is_fortran else "C", "offset": file.tell()}


def open_npy(path: Path) -> ColumnTable:
    """Open one matrix, whose columns are called 0, 1, 2 and so on."""
    matrix = map_npy(path)
    if matrix.ndim > 2:
        raise ColumnTable(path, (), (), deep={"X": matrix.shape}).lacks("X", "features", ())
    if matrix.ndim != 2 or matrix.dtype.kind not in "buif":
        raise ValueError(f"{path.name} must hold a matrix of numbers, but has {matrix.dtype} of {matrix.shape}.")
    columns = {str(j): matrix[:, j] for j in range(matrix.shape[1])}
    return ColumnTable(path, tuple(columns), tuple(columns), load=lambda names: {name: columns[name] for name in names})


def open_npz(path: Path) -> ColumnTable:
    """Open arrays: a matrix X is a block, whose columns are called X_0, X_1 …; one-dimensional arrays are columns."""
    columns, blocks, deep = dict[str, NDArray[np.generic]](), dict[str, tuple[str, ...]](), dict[str, tuple[int, ...]]()
    for name, values in map_npz(path).items():
        if values.ndim == 1 or values.shape[1:] == (1,):
            columns[name] = values.reshape(-1)
        elif values.ndim == 2:
            blocks[name] = tuple(f"{name}_{j}" for j in range(values.shape[1]))
            columns |= zip(blocks[name], values.T, strict=True)
        elif values.ndim > 2:
            deep[name] = values.shape
    if not columns and not deep:
        raise ValueError(f"{path.name} has no array of one or two dimensions: save one called X, one row per sample.")
    numeric = tuple(name for name, column in columns.items() if column.dtype.kind in "buif")
    return ColumnTable(
        path, tuple(columns), numeric, blocks, deep, load=lambda names: {name: columns[name] for name in names}
    )


# ---- parquet and h5ad -----------------------------------------------------------------------------------------------


PANDAS_INDEX = "__index_level_"  # how pandas names the columns of a parquet file that hold its index


def open_parquet(path: Path) -> ColumnTable:
    """Read the schema: the names, and which columns hold numbers."""
    parquet = optional_module("pyarrow.parquet", path, "tables")

    def load(names: Sequence[str]) -> Any:
        return parquet.read_table(path, columns=list(names)).to_pandas(ignore_metadata=True)

    with _readable(path):
        schema = parquet.read_schema(path)
    _require_unique(path, schema.names)
    index = [name for name in schema.names if name.startswith(PANDAS_INDEX)]
    names = tuple(name for name in schema.names if name not in index)
    return ColumnTable(
        path, names, numbers_of(schema), load=load, index=lambda: load(index)[index[0]] if index else None
    )


def numbers_of(schema: pyarrow.Schema) -> tuple[str, ...]:
    """Return the columns of numbers in the schema of a parquet file."""
    types = import_module("pyarrow.types")
    kinds = (types.is_integer, types.is_floating, types.is_boolean)
    columns = [column for column in schema if not column.name.startswith(PANDAS_INDEX)]
    return tuple(column.name for column in columns if any(is_kind(column.type) for is_kind in kinds))


def open_h5ad(path: Path) -> ColumnTable:
    """Open cells: the columns of ``obs``, and as blocks ``X``, which stays on disk, and the matrices of ``obsm``."""
    anndata = optional_module("anndata", path, "cells")
    with _readable(path):
        cells = anndata.read_h5ad(path, backed="r")
    blocks = {"X": tuple(map(str, cells.var_names))}
    for name, matrix in cells.obsm.items():
        if getattr(matrix, "ndim", 0) == 2:
            blocks[name] = tuple(f"{name}_{j}" for j in range(matrix.shape[1]))
    obs = tuple(map(str, cells.obs.columns))
    in_blocks = tuple(name for block in blocks.values() for name in block)
    _require_unique(path, (*obs, *in_blocks))

    def load(names: Sequence[str]) -> Mapping[str, ArrayLike]:
        wanted = set(names)
        found: dict[str, ArrayLike] = {name: cells.obs[name] for name in obs if name in wanted}
        for block, columns in blocks.items():
            if chosen := [j for j, name in enumerate(columns) if name in wanted]:
                values = cells.X if block == "X" else cells.obsm[block]
                values = (values.to_memory() if hasattr(values, "to_memory") else values[:])[:, chosen]
                values = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
                found |= zip((columns[j] for j in chosen), values.T, strict=True)
        return found

    numbers = tuple(name for name in obs if cells.obs[name].dtype.kind in "buif")
    names, numeric = (*obs, *in_blocks), (*numbers, *in_blocks)
    return ColumnTable(path, names, numeric, blocks, load=load, index=lambda: cells.obs_names.astype(str))


READERS: dict[str, Callable[[Path], TableFile]] = {
    ".csv": open_text,
    ".tsv": open_text,
    ".xlsx": open_excel,
    ".npz": open_npz,
    ".npy": open_npy,
    ".parquet": open_parquet,
    ".h5ad": open_h5ad,
}
"""The function that opens a file, by its suffix."""


# ---- writing --------------------------------------------------------------------------------------------------------


def check_writable(path: Path) -> None:
    """Raise `ValueError` if latents are not written in the format of this suffix, `OSError` if not in this folder."""
    if path.suffix.lower() not in WRITABLE:
        hint = nearest(path.suffix, WRITABLE)
        raise ValueError(f"{path.name}: cannot write files in {path.suffix or 'nothing'!r}: {hint}")
    require_writable(path)


def write_latents(
    path: Path,
    latents: NDArray[np.floating] | sparray,
    names: Sequence[str],
    other_columns: Mapping[str, NDArray[np.generic]] | None = None,
) -> None:
    """Write latents (n, d), in the format of the suffix, completely or not at all.

    The ``other_columns``, such as the names of samples, come first; a ``.npy``, which is a matrix, has none. A sparse
    matrix goes to a ``.npz``, which `scipy.sparse.load_npz` reads.
    """
    more = {} if other_columns is None else other_columns
    with atomic_path(path) as temporary:
        match path.suffix.lower():
            case ".npy":
                with temporary.open("wb") as file:
                    np.save(file, latents)
            case ".npz":
                arrays = {f"{name}_" if name in ("latents", "names") else name: part for name, part in more.items()}
                if not isinstance(latents, np.ndarray):  # as scipy saves a sparse matrix
                    rows = latents.tocsr()
                    arrays |= {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
                    arrays |= {"shape": np.array(rows.shape), "format": np.array(b"csr"), "_is_array": np.array(True)}
                else:
                    arrays["latents"] = latents
                with temporary.open("wb") as file:
                    np.savez(file, allow_pickle=False, names=np.array(names), **arrays)
            case suffix:
                import pandas as pd

                table = pd.DataFrame(latents, columns=list(names))
                for k, (name, part) in enumerate(more.items()):
                    table.insert(k, name, part, allow_duplicates=True)
                table.to_csv(temporary, sep="\t" if suffix == ".tsv" else ",", index=False, lineterminator="\n")
