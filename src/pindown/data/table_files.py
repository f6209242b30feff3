"""Table files, read by column name: csv, tsv and xlsx by pandas, npy and npz by numpy, parquet, and h5ad by anndata."""

from __future__ import annotations

import csv
import io
import re
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import compress, islice
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown._files import atomic_path, require_writable
from pindown._names import listed, nearest, quoted
from pindown.data.labels import as_label, missing
from pindown.errors import InputError

Matrix = NDArray[np.float64]
Label = NDArray[np.generic]

MISSING = frozenset(
    {"", "na", "n/a", "nan", "null", "none", "#n/a", "#value!", "#div/0!", "#num!", "#ref!", "#name?", "#null!"}
)
"""Cells that hold nothing, or what a spreadsheet could not compute, in lower case."""

HEAD = 5_000
"""Rows of a text file from which the types of its columns are decided."""

AT_ONCE = 1 << 22
"""Cells of a text file in memory at a time."""

WRITABLE = (".csv", ".tsv", ".npy", ".npz")
"""Suffixes of files that `write_latents` writes."""


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
    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, Label]]:
        """Return some columns as a matrix (n, k), NaN where a number is missing, and others as labels, (n,) each.

        Labels have None or NaN where one is missing.
        """

    @abstractmethod
    def sample_names(self) -> Label | None:
        """Return the names that the file itself has for its samples, beside all columns; None without any."""

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
        if text := [name for name in numbers if name not in self.numeric]:
            raise InputError("features", f"{self.path.name}: column {quoted(text[0])} has no numbers. Leave it out.")
        columns = self.load(tuple(dict.fromkeys((*numbers, *labels))))
        lengths = {name: len(np.asarray(column)) for name, column in columns.items()}
        first = next(iter(lengths))
        for name, length in lengths.items():
            if length != lengths[first]:
                raise ValueError(
                    f"{self.path.name}: {name} has {length} rows, but {first} has {lengths[first]}. Save one row per "
                    "sample in both."
                )
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
    >>>     >>> with tempfile.TemporaryDirectory() as folder:
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
    except PermissionError as error:
        raise PermissionError(f"{path} cannot be read ({error.strerror}): ask for permission, or copy it.") from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what a library raises for a bad file into a sentence, and silence its warnings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except (PermissionError, MemoryError):
        raise
    except Exception as error:  # each library has errors of its own
        cause = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise ValueError(f"{path.name} cannot be read as {path.suffix} ({cause}). Save it again.") from error


def _optional(module: str, path: Path, extra: str) -> ModuleType:
    try:
        with warnings.catch_warnings(action="ignore"):  # of its own dependencies
            return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ValueError(f"{path.name} needs {package}: pip install 'pindown[{extra}]', or save a .csv.") from error


def _require_unique(path: Path, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path.name}: several columns are called {listed(twice, 4)}. Give each its own name.")


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

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, Label]]:
        """Return some columns as a matrix and others as labels."""
        texts = {name: self.header.index(name) for name in labels}
        matrix, cells = self._cells([self.header.index(name) for name in numbers if name not in texts], texts.values())
        for k, name in enumerate(numbers):
            if name in texts:  # a column that is a label, too
                values = [float(_with_point(c, self.decimal)) for c in cells[texts[name]]]
                matrix = np.insert(matrix, k, values, axis=1)
        return matrix, {name: self._label(cells[j], name in self.numeric) for name, j in texts.items()}

    def texts(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return columns as the text that is written there."""
        cells = self._cells([], [self.header.index(name) for name in dict.fromkeys(names)])[1]
        return {name: cells[self.header.index(name)] for name in names}

    def sample_names(self) -> Label | None:
        """Return the first column if it has no name: pandas writes its index so."""
        return None if self.header[0] else np.array(self._cells([], [0])[1][0])

    def _cells(self, numbers: Sequence[int], texts: Iterable[int]) -> tuple[Matrix, dict[int, list[str]]]:
        """Read columns by their places, a bounded number of lines at a time: numbers, and cells as text."""
        import pandas as pd

        matrix = np.empty((len(self._has_content), len(numbers)))
        cells: dict[int, list[str]] = {j: [] for j in texts}
        known: dict[str, str] = {}  # equal texts share memory
        spellings = {spelled for word in MISSING for spelled in (word, word.upper(), word.capitalize(), "NaN")}
        exact = tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1)  # without being asked to
        with _lines(self.path, self.separator, self.sheet) as (file, _, lines):
            next(lines)  # the header
            try:
                for part in pd.read_csv(
                    file,
                    sep=self.separator,
                    decimal=self.decimal,
                    header=None,
                    names=list(range(len(self.header))),
                    index_col=False,
                    usecols=[*numbers, *cells],
                    dtype={**dict.fromkeys(numbers, "float64"), **dict.fromkeys(cells, object)},
                    keep_default_na=False,
                    na_values=dict.fromkeys(numbers, sorted(spellings)),
                    skipinitialspace=True,
                    chunksize=max(1, AT_ONCE // len(self.header)),
                    **({} if exact else {"float_precision": "round_trip"}),
                ):
                    matrix[part.index] = part[numbers]
                    for j, column in cells.items():
                        column += [known.setdefault(text, text.strip()) for text in part[j]]
            except ValueError as error:
                raise self._wrong_cell(numbers) from error
        if self._has_content.all():
            return matrix, cells
        return matrix[self._has_content], {j: list(compress(c, self._has_content)) for j, c in cells.items()}

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
                        name, mark = quoted(self.header[j]), "comma" if self.decimal == "," else "point"
                        hint = f" Decimals need a {mark} in this file, and thousands no mark."
                        return InputError(
                            "features",
                            f"{self.path.name}, line {reader.line_num}: column {name} has numbers, but here the text "
                            f"{quoted(cells[j])}.{hint if set(cells[j]) & set(',.') else ''} Correct the cell, or "
                            f"leave the column out: `drop={name}`.",
                        )
        return ValueError(f"{self.path.name} cannot be read as {self.path.suffix}. Save it again.")

    def _label(self, cells: list[str], is_numeric: bool) -> Label:
        """Return text as labels: whole numbers, numbers or text; None where a cell is empty."""
        if empty := {cell for cell in set(cells) if cell.lower() in MISSING}:
            return np.array([None if cell in empty else cell for cell in cells], dtype=object)
        return as_label([_with_point(cell, self.decimal) for cell in cells] if is_numeric else cells)


def open_text(path: Path, sheet: str | None = None) -> TextTable:
    """Read the header and the first lines: the names, and which columns hold numbers."""
    separator = "," if sheet is not None else "\t" if path.suffix.lower() == ".tsv" else _separator(path)
    with _lines(path, separator, sheet) as (_, _, lines):
        header = tuple(cell.strip() for cell in next(lines, []))
        head = [cells for cells in islice(lines, HEAD) if any(cells)]
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
    decimal = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")
    with_comma = [cell for cells in head for cell in cells if decimal.fullmatch(cell)]
    n_points = sum(decimal.fullmatch(_with_point(cell, ",")) is not None for cells in head for cell in cells)
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


# ---- arrays, parquet and h5ad ---------------------------------------------------------------------------------------


def open_npy(path: Path) -> ColumnTable:
    """Open one matrix, whose columns are called 0, 1, 2 and so on."""
    with _readable(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim > 2:
        raise ColumnTable(path, (), (), deep={"X": array.shape}).lacks("X", "features", ())
    if array.ndim != 2 or array.dtype.kind not in "buif":
        raise ValueError(f"{path.name} must hold a matrix of numbers, but has {array.dtype} of {array.shape}.")
    columns = {str(j): array[:, j] for j in range(array.shape[1])}
    return ColumnTable(path, tuple(columns), tuple(columns), load=_from(columns))


def open_npz(path: Path) -> ColumnTable:
    """Open arrays: a matrix X is a block, whose columns are called X_0, X_1 …; one-dimensional arrays are columns."""
    columns: dict[str, NDArray[np.generic]] = {}
    blocks: dict[str, tuple[str, ...]] = {}
    deep: dict[str, tuple[int, ...]] = {}
    with _readable(path):
        arrays = np.load(path, allow_pickle=False)
    with arrays:
        for name in arrays.files:
            try:
                array = arrays[name]
            except (ValueError, OSError) as error:
                why = f"If it holds Python objects, turn them into text: {name}.astype(str)"
                raise ValueError(f"{path.name}: {name} cannot be read. {why}.") from error
            if array.ndim == 1 or array.shape[1:] == (1,):
                columns[name] = array.reshape(-1)
            elif array.ndim == 2:
                blocks[name] = tuple(f"{name}_{j}" for j in range(array.shape[1]))
                columns |= zip(blocks[name], array.T, strict=True)
            elif array.ndim > 2:
                deep[name] = array.shape
    if not columns and not deep:
        raise ValueError(f"{path.name} has no array of one or two dimensions: save one called X, one row per sample.")
    numeric = tuple(name for name, column in columns.items() if column.dtype.kind in "buif")
    return ColumnTable(path, tuple(columns), numeric, blocks, deep, load=_from(columns))


def _from(columns: Mapping[str, NDArray[np.generic]]) -> Callable[[Sequence[str]], Mapping[str, NDArray[np.generic]]]:
    return lambda names: {name: columns[name] for name in names}


def open_parquet(path: Path) -> ColumnTable:
    """Read the schema: the names, and which columns hold numbers."""
    parquet = _optional("pyarrow.parquet", path, "tables")

    def load(names: Sequence[str]) -> Any:
        with _readable(path):
            return parquet.read_table(path, columns=list(names)).to_pandas(ignore_metadata=True)

    with _readable(path):
        schema = parquet.read_schema(path)
    _require_unique(path, schema.names)
    numeric, index = numbers_of(schema), [name for name in schema.names if name.startswith(PANDAS_INDEX)]
    names = tuple(name for name in schema.names if name not in index)
    return ColumnTable(path, names, numeric, load=load, index=lambda: load(index)[index[0]] if index else None)


PANDAS_INDEX = "__index_level_"
"""How pandas names the columns of a parquet file that hold its index."""


def numbers_of(schema: Any) -> tuple[str, ...]:
    """Return the columns of numbers in the schema of a parquet file."""
    types = import_module("pyarrow.types")
    kinds = (types.is_integer, types.is_floating, types.is_boolean)
    columns = [column for column in schema if not column.name.startswith(PANDAS_INDEX)]
    return tuple(column.name for column in columns if any(is_kind(column.type) for is_kind in kinds))


def open_h5ad(path: Path) -> ColumnTable:
    """Open cells: the columns of ``obs``, and as blocks ``X``, which stays on disk, and the matrices of ``obsm``."""
    anndata = _optional("anndata", path, "cells")
    with _readable(path):
        cells = anndata.read_h5ad(path, backed="r")
    blocks = {"X": tuple(map(str, cells.var_names))}
    for name, array in cells.obsm.items():
        if getattr(array, "ndim", 0) == 2:
            blocks[name] = tuple(f"{name}_{j}" for j in range(array.shape[1]))
    obs = tuple(map(str, cells.obs.columns))
    in_blocks = tuple(name for block in blocks.values() for name in block)
    _require_unique(path, (*obs, *in_blocks))

    def load(names: Sequence[str]) -> Mapping[str, ArrayLike]:
        found: dict[str, ArrayLike] = {name: cells.obs[name] for name in names if name in obs}
        for block, columns in blocks.items():
            wanted = [j for j, name in enumerate(columns) if name in set(names)]
            if wanted:
                with _readable(path):
                    values = cells.X if block == "X" else cells.obsm[block]
                    values = (values.to_memory() if hasattr(values, "to_memory") else values[:])[:, wanted]
                    values = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
                found |= zip((columns[j] for j in wanted), values.T, strict=True)
        return found

    numbers = tuple(name for name in obs if cells.obs[name].dtype.kind in "buif")
    names = (*obs, *in_blocks)
    return ColumnTable(
        path, names, (*numbers, *in_blocks), blocks, load=load, index=lambda: cells.obs_names.astype(str)
    )


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
    """Raise if a file of latents cannot be written here: `ValueError` for its suffix, `OSError` for its folder."""
    if path.suffix.lower() not in WRITABLE:
        hint = nearest(path.suffix, WRITABLE)
        raise ValueError(f"{path.name}: cannot write files in {path.suffix or 'nothing'!r}: {hint}")
    require_writable(path)


def write_latents(
    path: Path, latents: Any, names: Sequence[str], beside: Mapping[str, NDArray[np.generic]] | None = None
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
    more = {} if beside is None else beside
    with atomic_path(path) as temporary:
        match path.suffix.lower():
            case ".npy":
                with temporary.open("wb") as file:
                    np.save(file, latents)
            case ".npz":
                arrays = {f"{name}_" if name in ("latents", "names") else name: part for name, part in more.items()}
                if hasattr(latents, "tocsr"):  # as scipy saves a sparse matrix
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
