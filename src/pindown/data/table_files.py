"""Table files, read by column name: csv, tsv and xlsx by pandas, npy and npz by numpy, parquet, and h5ad by anndata."""

from __future__ import annotations

import csv
import io
import re
import tempfile
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from pindown._files import atomic_path
from pindown._names import listed, nearest, quoted
from pindown.data.labels import as_label
from pindown.errors import InputError

if TYPE_CHECKING:
    pass

Matrix = NDArray[np.float64]

MISSING = frozenset(
    {"", "na", "n/a", "nan", "null", "none", "#n/a", "#value!", "#div/0!", "#num!", "#ref!", "#name?", "#null!"}
)
"""Cells that hold nothing, or what a spreadsheet could not compute, in lower case."""

_SPELLINGS = sorted({spelled for word in MISSING for spelled in (word, word.upper(), word.capitalize(), "NaN")})

HEAD = 5_000
"""Rows of a text file from which the types of its columns are decided."""

AT_ONCE = 1 << 22
"""Cells of a text file in memory at a time."""

WRITABLE = (".csv", ".tsv", ".npy", ".npz")
"""Suffixes of files that `write_latents` writes."""

INDEX = "__index_level_"
"""How pandas names the columns of a parquet file that hold its index."""


@dataclass(frozen=True, eq=False)
class TableFile(ABC):
    """A table file whose columns are known, and nothing else has been read; abstract.

    Parameters
    ----------
    path : Path
        The file.
    names : tuple of str
        All columns that have a name.
    numeric : tuple of str
        Columns of numbers.
    blocks : mapping of str to tuple of str
        Columns that have a name together: the arrays of an ``.npz``, or ``X`` of an ``.h5ad``.
    deep : mapping of str to tuple of int
        Shapes of arrays with more than two dimensions, which are not columns.
    """

    path: Path
    names: tuple[str, ...]
    numeric: tuple[str, ...]
    blocks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deep: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @abstractmethod
    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix (n, k), NaN where a number is missing, and others as labels, (n,) each.

        Labels have None or NaN where one is missing.
        """

    def sample_names(self) -> NDArray[Any] | None:
        """Return the names that the file itself has for its samples, beside all columns; None without any."""
        return None

    def default_block(self) -> tuple[str, ...] | None:
        """Return the columns of ``X``, or of the only block; None without blocks."""
        for name in ("X", "x"):
            if name in self.blocks:
                return self.blocks[name]
        if self.deep and (not self.blocks or {"X", "x"} & {*self.deep}):
            name = next((name for name in ("X", "x") if name in self.deep), next(iter(self.deep)))
            raise InputError("features", f"{self.path.name}: {_not_columns(name, self.deep[name])}")
        if len(self.blocks) > 1:
            arrays = listed([*self.blocks])
            raise InputError("features", f"{self.path.name} has several arrays: {arrays}. Name one by `features`.")
        return next(iter(self.blocks.values()), None)

    def require(self, name: str, argument: str) -> None:
        """Raise if there is no such column."""
        if name not in self.names:
            raise self.lacks(name, argument, self.names)

    def lacks(self, name: str, argument: str, names: Sequence[str]) -> InputError:
        """Return the error for a column or block that is not there, with the name that was probably meant."""
        if name in self.deep:
            return InputError(argument, f"`{argument}`: {_not_columns(name, self.deep[name])}")
        hint = nearest(name, names)
        return InputError(argument, f"`{argument}`: {self.path.name} has no column {quoted(name)}: {hint}")

    def _require_numeric(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.numeric:
                raise InputError(
                    "features", f"{self.path.name}: {quoted(name)} has no numbers. Leave it out: `drop={quoted(name)}`."
                )


def open_table(path: Path) -> TableFile:
    r"""Open a table file: read the names of its columns, and which of them hold numbers.

    Parameters
    ----------
    path : Path
        A file that ends in ``.csv``, ``.tsv``, ``.xlsx``, ``.npz``, ``.npy``, ``.parquet`` or ``.h5ad``.

    Raises
    ------
    ValueError
        If the file is empty, or is not what its suffix says.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = Path(folder) / "data.csv"
    ...     _ = data.write_text("height,age,site\n1.7,30,north\n1.6,41,south\n")
    ...     table = open_table(data)
    ...     numbers, labels = table.read(["age", "height"], ["site"])
    >>> table.names, table.numeric
    (('height', 'age', 'site'), ('height', 'age'))
    >>> numbers.tolist(), labels["site"].tolist()
    ([[30.0, 1.7], [41.0, 1.6]], ['north', 'south'])
    """
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise ValueError(f"{path.name}: cannot read files in {suffix or 'nothing'!r}: {nearest(suffix, [*READERS])}")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}{_in_folder(path)}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a data file in it.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} is empty: give a file with a line of names and a line for each sample.")
    try:
        return READERS[suffix](path)
    except PermissionError as error:
        raise PermissionError(f"{path} cannot be read ({error.strerror}): ask for permission, or copy it.") from error


def _in_folder(path: Path) -> str:
    """Return a hint at a file in the same folder."""
    if not path.parent.is_dir():
        return f": there is no folder {path.parent} either. Give the path of a data file."
    others = sorted(other.name for other in path.parent.iterdir() if other.suffix.lower() in READERS)
    return f": {nearest(path.name, others)}" if others else ": give the path of a data file."


def _not_columns(name: str, shape: tuple[int, ...]) -> str:
    """Say why an array is not read, and what to do.

    Examples
    --------
    >>> _not_columns("X", (300, 3, 8, 8))
    'X has shape (300, 3, 8, 8), but a table has one line per sample. Give a folder of images, fit the array in \
Python, or flatten the samples: X.reshape(len(X), -1).'
    """
    return (
        f"{name} has shape {shape}, but a table has one line per sample. Give a folder of images, fit the array in "
        f"Python, or flatten the samples: {name}.reshape(len({name}), -1)."
    )


def _require_unique(path: Path, names: Sequence[str], remedy: str = "Give each its own.") -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path.name}: several columns are called {listed(twice, 4)}. {remedy}")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what a library raises for a bad file into a sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library's own dependencies
            yield
    except (PermissionError, MemoryError, InputError):
        raise
    except Exception as error:  # each library has errors of its own
        cause = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise ValueError(f"{path.name} cannot be read as {path.suffix} ({cause}). Save it again.") from error


def _optional(module: str, path: Path, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ValueError(
            f"{path.name}: reading {path.suffix} needs {package}: pip install 'pindown[{extra}]', or save the data as "
            ".csv."
        ) from error


# ---- text and spreadsheets ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TextTable(TableFile):
    """A ``.csv`` or ``.tsv`` file, or the first sheet of an ``.xlsx``.

    ``header`` has the columns without a name, too; ``sheet`` is the text of a spreadsheet.
    """

    header: tuple[str, ...] = ()
    separator: str = ","
    decimal: str = "."
    sheet: str | None = None

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix and others as labels."""
        place = {name: j for j, name in enumerate(self.header)}
        texts = {name: place[name] for name in labels}
        both = {name: k for k, name in enumerate(numbers) if name in texts}
        matrix, cells = self._cells([place[name] for name in numbers if name not in both], [*texts.values()])
        for name, k in both.items():
            values = [self._as_number(cell) for cell in cells[place[name]]]
            matrix = np.insert(matrix, k, values, axis=1)
        return matrix, {name: self._label(cells[j], name in self.numeric) for name, j in texts.items()}

    def sample_names(self) -> NDArray[Any] | None:
        """Return the first column if it has no name: pandas writes its index so."""
        return None if self.header[0] else np.array(self._cells([], [0])[1][0])

    def texts(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return columns as the text that is written there."""
        cells = self._cells([], [self.header.index(name) for name in dict.fromkeys(names)])[1]
        return {name: cells[self.header.index(name)] for name in names}

    def _cells(self, numbers: list[int], texts: list[int]) -> tuple[Matrix, dict[int, list[str]]]:
        """Read columns by their places, a bounded number of lines at a time: numbers, and cells as text."""
        import pandas as pd

        has_content = self._has_content
        matrix = np.empty((len(has_content), len(numbers)))
        cells: dict[int, list[str]] = {j: [] for j in texts}
        known: dict[str, str] = {}  # equal texts share memory
        dtypes = {**dict.fromkeys(numbers, "float64"), **dict.fromkeys(texts, object)}
        options: dict[str, Any] = {"keep_default_na": False, "na_values": dict.fromkeys(numbers, _SPELLINGS)}
        if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):
            options["float_precision"] = "round_trip"  # what later versions do
        with _lines(self.path, self.separator, self.sheet) as (file, _, lines):
            next(lines)  # the header
            try:
                parts = pd.read_csv(
                    file,
                    sep=self.separator,
                    decimal=self.decimal,
                    header=None,
                    names=list(range(len(self.header))),
                    index_col=False,
                    usecols=list(dtypes),
                    dtype=dtypes,
                    skipinitialspace=True,
                    chunksize=max(1, AT_ONCE // len(self.header)),
                    **options,
                )
                for part in parts:
                    matrix[part.index] = part[numbers]
                    for j in texts:
                        cells[j] += [known.setdefault(text, text.strip()) for text in part[j]]
            except ValueError as error:
                raise self._wrong_cell(numbers) from error
        if has_content.all():
            return matrix, cells
        return matrix[has_content], {j: list(compress(column, has_content)) for j, column in cells.items()}

    @cached_property
    def _has_content(self) -> NDArray[np.bool_]:
        """Whether each line below the header has content; raise if a line is longer or shorter: pandas does not."""
        with _lines(self.path, self.separator, self.sheet) as (_, _, lines):
            next(lines)
            return np.array([cells[0] != "" or any(cells) for cells in lines], dtype=bool)

    def _wrong_cell(self, numbers: Sequence[int]) -> ValueError:
        """Return the error for the first cell that is not a number."""
        with _lines(self.path, self.separator, self.sheet) as (_, reader, lines):
            for cells in islice(lines, 1, None):
                for j in numbers:
                    if cells[j].strip().lower() not in MISSING and not _is_number(cells[j], self.decimal):
                        mark = "comma" if self.decimal == "," else "point"
                        hint = f" Decimals need a {mark} in this file, and thousands no mark."
                        return InputError(
                            "features",
                            f"{self.path.name}, line {reader.line_num}: column {quoted(self.header[j])} has numbers, "
                            f"but here the text {quoted(cells[j])}.{hint if set(cells[j]) & set(',.') else ''} Correct "
                            f"the cell, or leave the column out: `drop={quoted(self.header[j])}`.",
                        )
        return ValueError(f"{self.path.name} cannot be read as {self.path.suffix}. Save it again.")

    def _as_number(self, cell: str) -> float:
        return float(_with_point(cell, self.decimal)) if _is_number(cell, self.decimal) else np.nan

    def _label(self, cells: list[str], is_numeric: bool) -> NDArray[Any]:
        """Return text as labels: whole numbers, numbers or text; None where a cell is empty."""
        if empty := {cell for cell in set(cells) if cell.lower() in MISSING}:
            return np.array([None if cell in empty else cell for cell in cells], dtype=object)
        return as_label([_with_point(cell, self.decimal) for cell in cells] if is_numeric else cells)


def open_text(path: Path, sheet: str | None = None) -> TextTable:
    """Read the header and the first lines: the names, and which columns hold numbers."""
    separator = "," if sheet is not None else "\t" if path.suffix.lower() == ".tsv" else find_separator(path)
    with _lines(path, separator, sheet) as (_, _, lines):
        header = tuple(cell.strip() for cell in next(lines, []))
        _check_header(path, header)
        head = [cells for cells in islice(lines, HEAD) if any(cells)]
    if not head:
        raise ValueError(f"{path.name} has names but no rows: give a line for each sample below them.")
    decimal = "," if separator != "," and _decimals_have_commas(head) else "."
    names = tuple(name for name in header if name)
    columns = dict(zip(header, zip(*head, strict=True), strict=True))
    numeric = tuple(name for name in names if _mostly_numbers(columns[name], decimal))
    return TextTable(path, names, numeric, header=header, separator=separator, decimal=decimal, sheet=sheet)


def open_excel(path: Path) -> TextTable:
    """Read the first sheet of a spreadsheet, as text."""
    _optional("openpyxl", path, "tables")
    import pandas as pd

    with _readable(path):
        sheet = pd.read_excel(path, header=None, dtype=object, na_filter=False)
    return open_text(path, sheet.to_csv(index=False, header=False))


@contextmanager
def _lines(path: Path, separator: str, sheet: str | None) -> Iterator[tuple[TextIO, Any, Iterator[list[str]]]]:
    """Open a text table; yield the file, a reader that counts its lines, and the lines of cells, all equally wide."""

    def lines() -> Iterator[list[str]]:
        width = 0
        for cells in reader:
            if len(cells) == width:
                yield cells
            elif len(cells) < 2 and not "".join(cells).strip():  # a blank line
                continue
            elif width:
                raise ValueError(
                    f"{path.name}, line {reader.line_num}: {len(cells)} cells, but the first line has {width}. Is a "
                    "separator missing, or text with a separator not in quotes?"
                )
            elif cells != ["sep=", ""]:  # spreadsheets write a line about separators first
                width = len(cells)
                yield cells

    with io.StringIO(sheet) if sheet is not None else path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            yield file, reader, lines()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path.name} is not UTF-8 text: save it as UTF-8, in a spreadsheet as CSV UTF-8."
            ) from error
        except csv.Error as error:
            raise ValueError(f"{path.name} cannot be read as csv ({error}). Save it again.") from error


def find_separator(path: Path) -> str:
    """Return what separates the cells of the first line: some spreadsheets write semicolons, or tabs, into a .csv."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        line = file.readline()
    return line[4] if re.fullmatch("sep=[,;\t]\\s*", line) else max(",;\t", key=line.count)


def _check_header(path: Path, header: Sequence[str]) -> None:
    names = [name for name in header if name]
    if not names:
        raise ValueError(f"{path.name} has no names in its first line: give each column one.")
    if all(_is_number(name, ".") for name in names):
        raise ValueError(
            f"{path.name}: the header is missing, its first line holds numbers ({listed(names, 3)}). Put a line with "
            "the names of the columns before it."
        )
    _require_unique(path, names)


def _decimals_have_commas(head: Sequence[Sequence[str]]) -> bool:
    """Whether more cells are like 0,5 than like 0.5, and not all of them could be thousands, such as 1,500."""
    cells = [cell for cells in head for cell in cells]
    with_comma = [cell for cell in cells if _COMMA.fullmatch(cell)]
    n_points = sum(_COMMA.fullmatch(_with_point(cell, ",")) is not None for cell in cells)
    return len(with_comma) > n_points and not all(map(_THOUSANDS.fullmatch, with_comma))


_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*")


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


@dataclass(frozen=True, eq=False)
class ArrayTable(TableFile):
    """Columns of a ``.npy`` or ``.npz`` file; they may differ in length until they are used together."""

    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix and others as labels."""
        self._require_numeric(numbers)
        first, *others = dict.fromkeys((*numbers, *labels))
        n_samples = len(self.columns[first])
        for name in others:
            if (n := len(self.columns[name])) != n_samples:
                raise ValueError(
                    f"{self.path.name}: {name} has {n} rows, but {first} has {n_samples}. Give one row per sample in "
                    "both."
                )
        matrix = np.empty((n_samples, len(numbers)))
        for k, name in enumerate(numbers):
            matrix[:, k] = self.columns[name]
        return matrix, {name: self.columns[name] for name in labels}


def open_npy(path: Path) -> ArrayTable:
    """Open one matrix, whose columns are called 0, 1, 2 and so on."""
    with _readable(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim > 2:
        raise InputError("features", f"{path.name}: {_not_columns('X', array.shape)}")
    if array.ndim != 2 or array.dtype.kind not in "buif":
        raise ValueError(
            f"{path.name} must hold a matrix of numbers, one row per sample, but has {array.dtype} of {array.shape}. "
            "For labels beside it, or several arrays, save an .npz."
        )
    columns = {str(j): array[:, j] for j in range(array.shape[1])}
    return ArrayTable(path, tuple(columns), tuple(columns), columns=columns)


def open_npz(path: Path) -> ArrayTable:
    """Open arrays: a matrix X is a block, whose columns are called X_0, X_1 …; one-dimensional arrays are columns."""
    columns: dict[str, NDArray[Any]] = {}
    blocks: dict[str, tuple[str, ...]] = {}
    deep: dict[str, tuple[int, ...]] = {}
    with _readable(path):
        arrays = np.load(path, allow_pickle=False)
    with arrays:
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
        raise ValueError(f"{path.name} has no array of one or two dimensions: save one called X, one row per sample.")
    numeric = tuple(name for name, column in columns.items() if column.dtype.kind in "buif")
    return ArrayTable(path, tuple(columns), numeric, blocks, deep, columns)


def _member(path: Path, arrays: Any, name: str) -> NDArray[Any]:
    try:
        return arrays[name]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path.name}: {name} cannot be read. If it holds Python objects, turn them into text: {name}.astype(str)."
        ) from error


# ---- parquet and h5ad -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ParquetTable(TableFile):
    """Columns of a ``.parquet`` file; ``index`` is the column in which pandas keeps its index, if there is one."""

    index: str | None = None

    def sample_names(self) -> NDArray[Any] | None:
        """Return the index of pandas."""
        return None if self.index is None else self.read((), (self.index,))[1][self.index]

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix and others as labels."""
        parquet = import_module("pyarrow.parquet")
        self._require_numeric(numbers)
        with _readable(self.path):
            table = parquet.read_table(self.path, columns=list(dict.fromkeys((*numbers, *labels))))
            matrix = np.empty((len(table), len(numbers)))
            for k, name in enumerate(numbers):
                matrix[:, k] = table[name].cast("float64", safe=False).to_numpy()
        return matrix, {name: _label(table[name].to_pylist()) for name in labels}


def open_parquet(path: Path) -> ParquetTable:
    """Read the schema: the names, and which columns hold numbers."""
    parquet = _optional("pyarrow.parquet", path, "tables")
    types = import_module("pyarrow.types")
    with _readable(path):
        schema = parquet.read_schema(path)
    _require_unique(path, schema.names)
    kinds = (types.is_integer, types.is_floating, types.is_boolean)
    columns = [column for column in schema if not column.name.startswith(INDEX)]
    numeric = tuple(column.name for column in columns if any(is_kind(column.type) for is_kind in kinds))
    index = next((name for name in schema.names if name.startswith(INDEX)), None)
    return ParquetTable(path, tuple(column.name for column in columns), numeric, index=index)


@dataclass(frozen=True, eq=False)
class CellTable(TableFile):
    """Cells of an ``.h5ad`` file; ``X`` stays on disk until it is read."""

    cells: Any = None

    def sample_names(self) -> NDArray[Any] | None:
        """Return the names of the cells."""
        return np.array([str(name) for name in self.cells.obs_names])

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix and others as labels."""
        matrix = np.empty((self.cells.n_obs, len(numbers)))
        place = {name: k for k, name in enumerate(numbers)}
        for block, names in self.blocks.items():
            wanted = [j for j, name in enumerate(names) if name in place]
            if wanted:
                matrix[:, [place[names[j]] for j in wanted]] = self._block(block, wanted)
        for name in set(numbers) & set(self.cells.obs.columns):
            matrix[:, place[name]] = self.cells.obs[name].to_numpy()
        return matrix, {name: self._label(name) for name in labels}

    def _block(self, block: str, columns: list[int]) -> Any:
        if block != "X":
            return np.asarray(self.cells.obsm[block])[:, columns]
        with _readable(self.path):
            on_disk = self.cells.X
            values = (on_disk.to_memory() if hasattr(on_disk, "to_memory") else on_disk[:])[:, columns]
        return values.toarray() if hasattr(values, "toarray") else values

    def _label(self, name: str) -> NDArray[Any]:
        if name not in self.cells.obs:
            return self.read([name], [])[0][:, 0]
        column = self.cells.obs[name]
        return _label(column.astype(object).where(column.notna(), None).tolist())


def open_h5ad(path: Path) -> CellTable:
    """Open cells: the columns of ``obs``, and as blocks ``X`` and the matrices of ``obsm``."""
    with warnings.catch_warnings(action="ignore"):  # of anndata's own dependencies
        anndata = _optional("anndata", path, "cells")
    with _readable(path):
        cells = anndata.read_h5ad(path, backed="r")
    blocks = {"X": tuple(map(str, cells.var_names))}
    _require_unique(path, blocks["X"], "Make them unique: adata.var_names_make_unique().")
    for name, array in cells.obsm.items():
        if getattr(array, "ndim", 0) == 2:
            blocks[name] = tuple(f"{name}_{j}" for j in range(array.shape[1]))
    obs = tuple(map(str, cells.obs.columns))
    in_blocks = tuple(name for block in blocks.values() for name in block)
    _require_unique(path, (*obs, *in_blocks))
    numbers = tuple(name for name in obs if cells.obs[name].dtype.kind in "buif")
    return CellTable(path, (*obs, *in_blocks), (*numbers, *in_blocks), blocks, cells=cells)


def _label(values: list[Any]) -> NDArray[Any]:
    """Return numbers and text as they are, other values as text, and missing ones as None."""
    empty = [value is None or value != value for value in values]
    is_plain = np.array([value for value, gone in zip(values, empty, strict=True) if not gone]).dtype.kind in "buifU"
    kept = [None if gone else value if is_plain else str(value) for value, gone in zip(values, empty, strict=True)]
    return np.array(kept, dtype=object if any(empty) else None)


READERS = {
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
    """Raise if a file of latents cannot be written here; nothing is left behind.

    Raises
    ------
    ValueError
        If files of this suffix are not written.
    OSError
        If the folder does not exist, or may not be written to.
    """
    if path.suffix.lower() not in WRITABLE:
        hint = nearest(path.suffix, WRITABLE)
        raise ValueError(f"{path.name}: cannot write files in {path.suffix or 'nothing'!r}: {hint}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} cannot be written: it is a folder. Give the path of a file.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):  # permissions alone do not show a read-only disk
            pass
    except OSError as error:
        raise type(error)(
            f"{path} cannot be written: {error.strerror or error}. Give a path in a folder that you may write to."
        ) from error


def write_latents(
    path: Path, latents: Any, names: Sequence[str], beside: Mapping[str, NDArray[Any]] | None = None
) -> None:
    """Write latents (n, d), in the format of the suffix, completely or not at all.

    Columns ``beside`` them, such as the names of samples, come first; a ``.npy``, which is a matrix, has none. A sparse
    matrix goes to a ``.npz``, which `scipy.sparse.load_npz` reads.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "z.csv"
    ...     write_latents(file, np.array([[0.5, -1.0], [0.1, 2.0]]), ["z0", "z1"])
    ...     print(file.read_text().split())
    ['z0,z1', '0.5,-1.0', '0.1,2.0']
    """
    more = {} if beside is None else dict(beside)
    with atomic_path(path) as temporary:
        match path.suffix.lower():
            case ".npy":
                with temporary.open("wb") as file:
                    np.save(file, latents)
            case ".npz":
                with temporary.open("wb") as file:
                    renamed = {
                        f"{name}_" if name in ("latents", "names") else name: part for name, part in more.items()
                    }
                    arrays = _csr(latents) if hasattr(latents, "tocsr") else {"latents": latents}
                    np.savez(file, allow_pickle=False, names=np.array(names), **arrays, **renamed)
            case suffix:
                import pandas as pd

                table = pd.DataFrame(latents, columns=list(names))
                for k, (name, part) in enumerate(more.items()):
                    table.insert(k, name, part, allow_duplicates=True)
                table.to_csv(temporary, sep="\t" if suffix == ".tsv" else ",", index=False, lineterminator="\n")


def _csr(latents: Any) -> dict[str, NDArray[Any]]:
    """Return a sparse matrix as scipy keeps it in a file."""
    rows = latents.tocsr()
    parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
    return {**parts, "shape": np.array(rows.shape), "format": np.array(b"csr"), "_is_array": np.array(True)}
