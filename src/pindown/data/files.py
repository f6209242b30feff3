"""Samples in files: parquet, numpy arrays and the activations of a network, and anything else as a source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch.utils.data import DataLoader, Dataset, IterableDataset

from pindown import _files
from pindown._names import listed, nearest, printable, quoted
from pindown.data.data import ROLES, Sides, require_numbers, roles_of
from pindown.data.images import IMAGES, ImageFolder
from pindown.data.sources import (
    ArraySource,
    Batch,
    ConcatSource,
    DatasetSource,
    IndexedSource,
    LoaderSource,
    Source,
    rebatched,
)
from pindown.data.table_files import map_npy, map_npz, numbers_of, optional_module
from pindown.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

READ_BYTES = 1 << 24  # bytes of samples that are read from a parquet file at once, counted in float64
RECORD = "activations.json"  # the file of a folder of activations that lists its shards

Columns = str | Sequence[str]


def as_source(X: object) -> Source:
    """Return the source of the samples of X; a source is returned as it is.

    Parameters
    ----------
    X : array, tensor, memory map, Dataset, IterableDataset, DataLoader, Process, str, Path or Source
        The samples, or where they come from. Text is the path of a file or folder: see `open_path`.

    Examples
    --------
    >>> as_source([[1.0, 2.0]]).shape
    (2,)
    >>> as_source({"x": 1})
    Traceback (most recent call last):
    TypeError: X must be an array, a tensor, a torch Dataset or DataLoader, a simulation, a path, or a ...
    """
    match X:
        case Source():
            return X
        case DataLoader() | IterableDataset():
            return LoaderSource(X)
        case str() | Path():
            return open_path(X)
    if hasattr(X, "shape") or hasattr(X, "__array__") or isinstance(X, list | tuple):
        return ArraySource(X)
    if isinstance(X, Dataset):
        return DatasetSource(X)
    kinds = "a tensor, a torch Dataset or DataLoader, a simulation, a path, or a pindown.data.Source"
    raise TypeError(f"X must be an array, {kinds}, got {type(X).__name__}.")


def require_in_memory(owner: str, X: object) -> None:
    """Raise if X is not an array of numbers in memory: a source, a masked array, dates."""
    if isinstance(X, Source | DataLoader | Dataset | str | Path):
        some = 'next(pindown.data.as_source(X).blocks(1_000))["x"]'
        raise TypeError(f"{owner}: X must be an array in memory, got {type(X).__name__}. Take some samples: {some}.")
    require_numbers("X", X)


def open_path(path: str | Path) -> Source:
    """Return the samples of a file or a folder: parquet, numpy arrays, images, or activations.

    An ``.npz``, or a folder of ``.npy`` files, may have an ``x`` and other arrays that are named by role. In a folder
    without an ``x.npy`` all ``.npy`` files together are x, in the order of their names.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}.")
    if path.is_dir():
        return _open_folder(path)
    match path.suffix.lower():
        case ".parquet":
            return ParquetSource(path)
        case ".npy":
            return ArraySource(map_npy(path))
        case ".npz":
            return _by_role(map_npz(path), path)
    raise InputError("X", f"{path.name}: samples are read from .parquet, .npy and .npz. Pass the array of other files.")


def _open_folder(path: Path) -> Source:
    if (path / RECORD).exists():
        return open_shards(path)
    files = {file.stem: file for file in sorted(path.glob("*.npy"))}
    if "x" in files or "X" in files:
        return _by_role({name: map_npy(file) for name, file in files.items()}, path)
    if files:
        return ConcatSource([ArraySource(map_npy(file)) for file in files.values()])
    if any(path.rglob("*.parquet")):
        return ParquetSource(path)
    if any(file.suffix.lower() in IMAGES for file in path.rglob("*")):
        return ImageFolder(path)
    raise InputError("X", f"{path}: the folder has no .parquet or .npy files, and no images.")


def _by_role(arrays: dict[str, NDArray[np.generic]], path: Path) -> IndexedSource:
    """Return arrays as a source: x, or the only one, with those that are named by a role."""
    x = next((name for name in arrays if name in ("x", "X") or len(arrays) == 1), None)
    if x is None:
        raise InputError("X", f"{path.name} has the arrays {listed([*arrays])}, but no x.")
    return ArraySource(arrays[x], **{role: arrays[role] for role in (*ROLES, "y") if role in arrays})


# ---- activations ----------------------------------------------------------------------------------------------------


def open_shards(folder: Path) -> Source:
    """Return the activations in a folder that `pindown.activations` wrote; the input of each is its group.

    All shards are read once, to compare them with their checksums.
    """
    shards = read_record(folder)["shards"]
    if not shards:
        raise InputError("X", f"{folder} has no complete shard yet. Continue the extraction by the same call.")
    try:
        arrays = [_open_shard(folder, number, **shard) for number, shard in enumerate(shards)]
        return ConcatSource([ArraySource(each["x"], groups=each["input"]) for each in arrays])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        remedy = "Copy the folder again, or extract it into another"
        raise InputError("X", f"{folder}: a shard is missing or damaged ({error}). {remedy}.") from error


def shard_name(number: int) -> str:
    """Return the name of the file of a shard."""
    return f"activations-{number:05d}.safetensors"


def _open_shard(
    folder: Path, number: int, file: str, sha256: str, samples: int, **_: object
) -> dict[str, NDArray[np.generic]]:
    if file != shard_name(number):
        raise ValueError(f"{printable(file)} is not the name of shard {number}")
    if _files.sha256(folder / file) != sha256:
        raise ValueError(f"{file} does not match its checksum")
    arrays = map_safetensors(folder / file)
    if not len(arrays["x"]) == len(arrays["input"]) == samples:
        raise ValueError(f"{file} does not have {samples} samples")
    return arrays


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of a folder of activations, or raise if it is damaged."""
    try:
        record = _files.read_json(folder / RECORD)
        if not isinstance(record.get("shards"), list) or not isinstance(record.get("complete"), bool):
            raise ValueError("it does not list shards")
        if record.get("format") != 2:
            raise ValueError(f"its format is {printable(record.get('format'))}, not 2")
    except ValueError as error:
        raise InputError("X", f"{folder / RECORD} is damaged ({error}). Extract into another folder.") from error
    return record


def map_safetensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """Return the tensors of a safetensors file as arrays, which are mapped: their numbers are read when needed."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118 (no dict)
    except SafetensorError as error:
        raise ValueError(f"{path.name} is not a valid safetensors file ({error})") from error


# ---- parquet --------------------------------------------------------------------------------------------------------


class ParquetSource(Source):
    """A stream of the rows of a parquet file, or of all such files in a folder, read some at a time.

    Files come in the order of their paths; folders named ``site=north`` are a column ``site``. Rows come in the order
    in which they were written, so they should not be sorted by a label. Needs pyarrow:
    ``pip install 'pindown[tables]'``.

    Parameters
    ----------
    path : str or Path
        The file or the folder.
    features : str or sequence of str, optional
        The columns of x, or one column of lists of equal length. By default all columns of numbers without a role.
    signal, nuisance, pairs, given, groups, truth, y : str or sequence of str, optional
        Columns of side variables, by role: one gives an array (n,), several (n, k).

    Attributes
    ----------
    names : tuple of str
        The columns of x.

    Examples
    --------
    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> table = pyarrow.table({"height": [1.5, 1.7, 1.8], "age": [30.0, 41.0, 22.0], "site": ["n", "s", "n"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(table, f"{folder}/part-0.parquet")
    ...     source = ParquetSource(folder, nuisance="site")
    ...     batch = next(source.blocks(2))
    >>> source.names, source.n_samples, batch["x"].tolist(), batch["nuisance"].tolist()
    (('height', 'age'), 3, [[1.5, 30.0], [1.7, 41.0]], ['n', 's'])
    """

    def __init__(self, path: str | Path, *, features: Columns | None = None, **sides: Unpack[Sides]) -> None:
        self.path, self.side_variables = Path(path), roles_of(sides)
        self._dataset = _open_parquet(self.path)
        schema, numeric = self._dataset.schema, numbers_of(self._dataset.schema)
        roles = self.side_variables | ({} if features is None else {"features": features})
        for role, columns in roles.items():
            for name in _several(columns):
                if name not in schema.names:
                    hint = nearest(name, schema.names)
                    raise InputError(role, f"{self.path.name} has no column {quoted(name)}: {hint}")
        used = {name for columns in self.side_variables.values() for name in _several(columns)}
        self.names = tuple(name for name in numeric if name not in used) if features is None else _several(features)
        if not self.names:
            has = f"it has {listed(schema.names)}"
            raise InputError("features", f"{self.path.name} has no column of numbers left: {has}.")
        has_lists = len(self.names) == 1 and "list<" in str(schema.field(self.names[0]).type)
        if not has_lists and (text := [name for name in self.names if name not in numeric]):
            raise InputError("features", f"{self.path.name}: {quoted(text[0])} has no numbers. Leave it out.")
        self._roles = {"x": self.names[0] if has_lists else self.names, **self.side_variables}
        self.n_samples = self._dataset.count_rows()
        if self.n_samples == 0:
            raise InputError("X", f"{self.path.name} has no rows: there is nothing to learn from.")
        self.shape = next(self._batches(1))["x"].shape[1:]

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the rows once, in order."""
        at_once = READ_BYTES // (8 * math.prod(self.shape))
        return rebatched(self._batches(max(n_samples, at_once)), n_samples)

    def _batches(self, n_samples: int) -> Iterator[Batch]:
        """Yield at most so many rows at a time; the library would read ahead, and hold three times as many."""
        columns = list(dict.fromkeys(name for columns in self._roles.values() for name in _several(columns)))
        at_once = {"batch_size": n_samples, "batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
        for rows in self._dataset.to_batches(columns, **at_once):
            if rows.num_rows:
                frame = rows.to_pandas()
                yield {role: _matrix(self.path, frame, columns) for role, columns in self._roles.items()}


def _open_parquet(path: Path) -> Any:
    dataset = optional_module("pyarrow.dataset", path, "tables")
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}.")
    files = sorted(map(str, path.rglob("*.parquet"))) if path.is_dir() else [str(path)]
    if not files:
        raise InputError("X", f"{path}: the folder has no .parquet files.")
    try:
        return dataset.dataset(files, format="parquet", partitioning="hive")
    except (ValueError, OSError) as error:  # pyarrow's own are among them
        cause = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".").rpartition(": ")[-1]
        raise InputError("X", f"{path.name} cannot be read as parquet ({cause}). Save it again.") from error


def _several(columns: Columns) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _matrix(path: Path, frame: pd.DataFrame, columns: Columns) -> NDArray[np.generic]:
    """Return one column as (n,), or (n, k) if it holds lists; several as (n, k)."""
    if not isinstance(columns, str):
        return np.stack([np.asarray(frame[name]) for name in columns], axis=1)
    values = np.asarray(frame[columns])
    if not isinstance(values[0], np.ndarray):
        return values
    if len({len(value) for value in values}) > 1:
        raise InputError(columns, f"{path.name}: the lists in {quoted(columns)} differ in length.")
    return np.stack(list(values))
