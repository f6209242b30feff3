"""Files that other packages read: ``.parquet`` by pyarrow, ``.h5ad`` by anndata. Both are optional."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.data.tables.arrays import holds_no_numbers
from pindown.data.tables.source import Matrix, TableFile, refuse_duplicates


def open_parquet(path: Path) -> TableFile:
    """Read the schema: names, and which columns hold numbers."""
    parquet = _optional("pyarrow.parquet", path, extra="tables")
    types = import_module("pyarrow.types")
    with _as_ours(path):
        schema = parquet.read_schema(path)
    refuse_duplicates(path, schema.names)
    numeric = tuple(
        field.name
        for field in schema
        if types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type)
    )
    # Where pandas keeps its index is no column of the data.
    names = tuple(name for name in schema.names if not name.startswith(INDEX))
    index = next((name for name in schema.names if name.startswith(INDEX)), None)
    return ParquetTable(path, names, tuple(name for name in numeric if name in names), {}, index)


INDEX = "__index_level_"


@dataclass(frozen=True, eq=False)
class ParquetTable(TableFile):
    """Columns of a ``.parquet``; ``index`` is where pandas keeps names of rows, if there are any."""

    index: str | None

    def row_names(self) -> NDArray[Any] | None:
        """Return the index of pandas."""
        return None if self.index is None else self.read((), (self.index,))[1][self.index]

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix and others as labels."""
        parquet = import_module("pyarrow.parquet")
        with _as_ours(self.path):
            table = parquet.read_table(self.path, columns=list(dict.fromkeys((*numbers, *labels))))
        for name in numbers:
            if name not in self.numeric:
                raise holds_no_numbers(self.path, name)
        matrix = np.empty((len(table), len(numbers)))
        for k, name in enumerate(numbers):
            matrix[:, k] = table[name].to_numpy()
        return matrix, {name: _label(self.path, name, table[name].to_pylist()) for name in labels}


def open_h5ad(path: Path) -> TableFile:
    """Look at observations: the columns of ``obs``, and as blocks ``X`` and the arrays in ``obsm``."""
    cells = _cells(path)
    blocks = {"X": tuple(map(str, cells.var_names))}
    refuse_duplicates(path, blocks["X"], "Make them unique: adata.var_names_make_unique().")
    for name, array in cells.obsm.items():
        if getattr(array, "ndim", 0) == 2:
            blocks[name] = tuple(f"{name}_{j}" for j in range(array.shape[1]))
    obs = tuple(map(str, cells.obs.columns))
    refuse_duplicates(path, [*obs, *(name for block in blocks.values() for name in block)])
    numbers = tuple(name for name in obs if cells.obs[name].dtype.kind in "buif")
    in_blocks = tuple(name for block in blocks.values() for name in block)
    return CellTable(path, (*obs, *in_blocks), (*numbers, *in_blocks), blocks, cells)


@dataclass(frozen=True, eq=False)
class CellTable(TableFile):
    """Cells of an ``.h5ad``; ``X`` stays on disk until it is read."""

    cells: Any

    def row_names(self) -> NDArray[Any] | None:
        """Return the names of the cells."""
        return np.array([str(name) for name in self.cells.obs_names])

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> tuple[Matrix, dict[str, NDArray[Any]]]:
        """Return some columns as a matrix and others as labels."""
        matrix = np.empty((self.cells.n_obs, len(numbers)))
        place = {name: k for k, name in enumerate(numbers)}
        for block, names in self.blocks.items():
            wanted = [(j, name) for j, name in enumerate(names) if name in place]
            if wanted:
                values = self._block(block, [j for j, _ in wanted])
                matrix[:, [place[name] for _, name in wanted]] = values
        for name in set(numbers) & set(self.cells.obs.columns):
            matrix[:, place[name]] = self.cells.obs[name].to_numpy()
        return matrix, {name: self._one_label(name) for name in labels}

    def _block(self, block: str, columns: list[int]) -> Any:
        if block != "X":
            return np.asarray(self.cells.obsm[block])[:, columns]
        with _quietly():
            on_disk = self.cells.X
            values = (on_disk.to_memory() if hasattr(on_disk, "to_memory") else on_disk[:])[:, columns]
        return values.toarray() if hasattr(values, "toarray") else values

    def _one_label(self, name: str) -> NDArray[Any]:
        if name not in self.cells.obs:
            return self.read([name], [])[0][:, 0]
        column = self.cells.obs[name]
        return _label(
            self.path, name, [None if missing else v for v, missing in zip(column, column.isna(), strict=True)]
        )


def _cells(path: Path) -> Any:
    with _quietly():
        anndata = _optional("anndata", path, extra="cells")
        with _as_ours(path):
            return anndata.read_h5ad(path, backed="r")


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what anndata says of its own dependencies from the user, who can do nothing about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _label(path: Path, name: str, values: list[Any]) -> NDArray[Any]:
    missing = [i for i, value in enumerate(values) if value is None or value != value]
    if missing:
        raise ValueError(
            f"{path.name}: column {name!r} is empty in {len(missing)} of {len(values)} rows, first in row "
            f"{missing[0] + 1}. Fill it, such as with 'unknown', or leave these rows out."
        )
    array = np.array(values)
    return array if array.dtype.kind in "buifU" else np.array([str(value) for value in values])


def _optional(module: str, path: Path, *, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ValueError(
            f"{path.name}: reading {path.suffix} needs {package}: pip install 'pindown[{extra}]', or save the data as "
            ".csv."
        ) from error


@contextmanager
def _as_ours(path: Path) -> Iterator[None]:
    """Turn what a foreign reader raises into a sentence."""
    try:
        yield
    except (PermissionError, MemoryError):
        raise
    except Exception as error:  # each reader has errors of its own
        cause = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise ValueError(f"{path.name} cannot be read as {path.suffix} ({cause}): save it again.") from error
