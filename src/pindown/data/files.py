"""Samples in files: parquet, numpy arrays and the activations of a network, and anything else as a source."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset

from pindown._names import listed, nearest, quoted
from pindown.data.data import ROLES, require_numbers
from pindown.data.images import IMAGES, ImageFolder
from pindown.data.loaders import DatasetSource, LoaderSource
from pindown.data.sources import ArraySource, Batch, ConcatSource, IndexedSource, Source
from pindown.data.streaming import rebatched
from pindown.errors import InputError

READ_BYTES = 1 << 24
"""Bytes of samples that are read from a parquet file at once, counted in float64."""

RECORD = "activations.json"
"""The file of a folder of activations that lists its shards."""

DTYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32}
"""Types that can be mapped, by their names in safetensors files."""

Columns = str | Sequence[str]


def as_source(X: Any) -> Source:
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
    TypeError: X must be an array, a tensor, a torch Dataset or DataLoader, a simulation of pindown.simulate, the path
    of a file or folder, or a pindown.data.Source, got dict.
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
    raise TypeError(
        "X must be an array, a tensor, a torch Dataset or DataLoader, a simulation of pindown.simulate, the path of a "
        f"file or folder, or a pindown.data.Source, got {type(X).__name__}."
    )


def require_in_memory(owner: str, X: Any) -> None:
    """Raise if X is not an array of numbers in memory: a source, a masked array, dates.

    Examples
    --------
    >>> require_in_memory("audit", "recording.npy")
    Traceback (most recent call last):
    TypeError: audit: X must be an array in memory, got str: only fit and transform take a source. Take some of its
    samples: next(pindown.data.as_source(X).blocks(1_000))["x"].
    """
    if isinstance(X, Source | DataLoader | Dataset | str | Path):
        raise TypeError(
            f"{owner}: X must be an array in memory, got {type(X).__name__}: only fit and transform take a source. "
            'Take some of its samples: next(pindown.data.as_source(X).blocks(1_000))["x"].'
        )
    require_numbers("X", X)


def open_path(path: str | Path) -> Source:
    """Return the samples of a file or a folder: parquet, numpy arrays, images, or activations.

    An ``.npz``, or a folder of ``.npy`` files, may have an ``x`` and other arrays that are named by role. In a folder
    without an ``x.npy`` all ``.npy`` files together are x, in the order of their names.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in range(3):
    ...         np.save(f"{folder}/part-{part}.npy", np.zeros((10, 4)))
    ...     source = open_path(folder)
    >>> source.n_samples, source.shape
    (30, (4,))
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
            return ArraySource(_map_npy(path))
        case ".npz":
            return _by_role(_map_npz(path), path)
    raise InputError(
        "X",
        f"{path.name}: samples are read from .parquet, .npy and .npz. Open other files yourself, and pass the array, "
        "such as h5py.File(path)['x'].",
    )


def _open_folder(path: Path) -> Source:
    if (path / RECORD).exists():
        return open_shards(path)
    files = {file.stem: file for file in sorted(path.glob("*.npy"))}
    if "x" in files or "X" in files:
        return _by_role({name: _map_npy(file) for name, file in files.items()}, path)
    if files:
        return ConcatSource([ArraySource(_map_npy(file)) for file in files.values()])
    if any(path.rglob("*.parquet")):
        return ParquetSource(path)
    if any(file.suffix.lower() in IMAGES for file in path.rglob("*")):
        return ImageFolder(path)
    raise InputError("X", f"{path}: the folder has no .parquet or .npy files, and no images.")


def _by_role(arrays: dict[str, Any], path: Path) -> IndexedSource:
    """Return arrays as a source: x, or the only one, with those that are named by a role."""
    x = next((name for name in arrays if name in ("x", "X") or len(arrays) == 1), None)
    if x is None:
        raise InputError("X", f"{path.name} has the arrays {listed([*arrays])}, but no x.")
    return ArraySource(arrays[x], **{role: arrays[role] for role in (*ROLES, "y") if role in arrays})


# ---- maps -----------------------------------------------------------------------------------------------------------


def _map_npy(path: Path) -> NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError, OSError) as error:  # numpy takes what it does not know for a pickle
        raise InputError(
            "X",
            f"{path.name} cannot be read as an array: it has text or Python objects, or is damaged. Save the array "
            "again by numpy.save.",
        ) from error


def _map_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz``: mapped where they are not compressed, otherwise read."""
    try:
        with zipfile.ZipFile(path) as archive, np.load(path) as arrays:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            return {
                name: mapped_member(path, archive, members[name])
                if members[name].compress_type == zipfile.ZIP_STORED
                else arrays[name]
                for name in arrays.files
            }
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(
            "X", f"{path.name} cannot be read as arrays ({error}). Save them again by numpy.savez."
        ) from error


def mapped_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Map an array that an ``.npz`` holds without compression."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(member)
        header = member.tell()
    with path.open("rb") as raw:  # the sizes of name and extra field come before them, and may differ from the index's
        raw.seek(info.header_offset + 26)
        name, extra = np.frombuffer(raw.read(4), dtype="<u2")
    offset = info.header_offset + 30 + int(name) + int(extra) + header
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


# ---- activations ----------------------------------------------------------------------------------------------------


def open_shards(folder: Path) -> Source:
    """Return the activations in a folder that `pindown.activations` wrote; the input of each is its group.

    Raises
    ------
    ValueError
        If there are none yet, or a file is missing or damaged.
    """
    paths = [folder / shard["file"] for shard in read_record(folder)["shards"]]
    if not paths:
        raise InputError("X", f"{folder} has no complete shard yet. Continue the extraction by the same call.")
    try:
        shards = [map_safetensors(path) for path in paths]
        return ConcatSource([ArraySource(shard["x"], groups=shard["input"]) for shard in shards])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            "X",
            f"{folder}: a shard is missing or damaged ({error}). Copy the folder again, or extract it into another.",
        ) from error


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of a folder of activations, or raise if it is damaged."""
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        if not isinstance(record, dict) or not isinstance(record.get("shards"), list) or "complete" not in record:
            raise ValueError("it lists no shards")
    except ValueError as error:
        raise InputError(
            "X", f"{folder / RECORD} is damaged ({error}). Extract the activations again, into another folder."
        ) from error
    return record


def map_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a safetensors file as read-only memory maps.

    Examples
    --------
    >>> import tempfile
    >>> from safetensors.numpy import save_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_file({"x": np.eye(3, dtype=np.float32)}, f"{folder}/x.safetensors")
    ...     np.array(map_safetensors(Path(folder, "x.safetensors"))["x"][1])
    array([0., 1., 0.], dtype=float32)
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > path.stat().st_size:
            raise ValueError(f"{path.name} is not a safetensors file")
        header = json.loads(file.read(size))
    found: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{path.name}: {name} has the type {entry['dtype']}, only {', '.join(DTYPES)} are mapped")
        start = 8 + size + entry["data_offsets"][0]
        found[name] = np.memmap(path, DTYPES[entry["dtype"]], "r", start, tuple(entry["shape"]))
    return found


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
    signal, nuisance, pairs, given, groups, y : str or sequence of str, optional
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

    def __init__(
        self,
        path: str | Path,
        *,
        features: Columns | None = None,
        signal: Columns | None = None,
        nuisance: Columns | None = None,
        pairs: Columns | None = None,
        given: Columns | None = None,
        groups: Columns | None = None,
        y: Columns | None = None,
    ) -> None:
        self.path = Path(path)
        sides = {"signal": signal, "nuisance": nuisance, "pairs": pairs, "given": given, "groups": groups, "y": y}
        self.side_variables = {role: columns for role, columns in sides.items() if columns is not None}
        self._dataset = _open_parquet(self.path)
        for role, columns in self.side_variables.items():
            self._require(columns, role)
        self.names = self._features(features)
        self.n_samples = self._dataset.count_rows()
        if self.n_samples == 0:
            raise InputError("X", f"{self.path.name} has no rows: there is nothing to learn from.")
        self._at_once = 1
        self.shape = next(self._batches(1))["x"].shape[1:]
        self._at_once = max(1, READ_BYTES // (8 * math.prod(self.shape)))

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the rows once, in order."""
        return rebatched(self._batches(n_samples), n_samples)

    def _batches(self, n_samples: int) -> Iterator[Batch]:
        """Yield the rows of one file after another, many at a time."""
        parquet, dataset = import_module("pyarrow.parquet"), import_module("pyarrow.dataset")
        sides = [name for side in self.side_variables.values() for name in _several(side)]
        columns = dict.fromkeys((*self.names, *sides))
        # Not by the dataset's own scanner, which reads ahead and holds three times what it was asked for.
        for fragment in self._dataset.get_fragments():
            folders = dataset.get_partition_keys(fragment.partition_expression)
            wanted = [name for name in columns if name not in folders]
            with parquet.ParquetFile(fragment.path) as file:
                for rows in file.iter_batches(max(n_samples, self._at_once), columns=wanted, use_threads=False):
                    parts = {name: rows[name] for name in wanted}
                    parts |= {name: np.full(len(rows), value) for name, value in folders.items()}
                    roles = {"x": self._x, **self.side_variables}
                    yield {role: _matrix(self.path, parts, columns) for role, columns in roles.items()}

    @property
    def _x(self) -> Columns:
        """The columns of x; a single name if that column holds lists."""
        has_lists = len(self.names) == 1 and _has_lists(self._dataset.schema.field(self.names[0]).type)
        return self.names[0] if has_lists else self.names

    def _features(self, features: Columns | None) -> tuple[str, ...]:
        types, schema = import_module("pyarrow.types"), self._dataset.schema
        numbers = (types.is_integer, types.is_floating, types.is_boolean)
        numeric = [column.name for column in schema if any(is_kind(column.type) for is_kind in numbers)]
        if features is not None:
            self._require(features, "features")
            for name in _several(features):
                if name not in numeric and not _has_lists(schema.field(name).type):
                    raise InputError(
                        "features", f"{self.path.name}: {quoted(name)} has no numbers. Leave it out of the features."
                    )
            return _several(features)
        used = {name for side in self.side_variables.values() for name in _several(side)}
        found = tuple(name for name in numeric if name not in used and not name.startswith("__index_level_"))
        if not found:
            names = listed(schema.names)
            raise InputError("features", f"{self.path.name} has no column of numbers left: it has {names}.")
        return found

    def _require(self, columns: Columns, argument: str) -> None:
        names = self._dataset.schema.names
        for name in _several(columns):
            if name not in names:
                raise InputError(argument, f"{self.path.name} has no column {quoted(name)}: {nearest(name, names)}")


def _open_parquet(path: Path) -> Any:
    try:
        dataset = import_module("pyarrow.dataset")
    except ImportError as error:
        raise ImportError(f"{path.name}: reading parquet needs pyarrow: pip install 'pindown[tables]'.") from error
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


def _matrix(path: Path, parts: Mapping[str, Any], columns: Columns) -> NDArray[Any]:
    """Return one column as (n,), or (n, k) if it holds lists; several as (n, k)."""
    if not isinstance(columns, str):
        return np.stack([_column(parts[name]) for name in columns], 1)
    values = parts[columns]
    if isinstance(values, np.ndarray) or not _has_lists(values.type):
        return _column(values)
    if len({len(row) for row in values}) > 1:
        raise InputError(
            columns, f"{path.name}: the lists in {quoted(columns)} differ in length, but samples have one shape."
        )
    return _column(values.flatten()).reshape(len(values), -1)


def _column(values: Any) -> NDArray[Any]:
    if isinstance(values, np.ndarray):  # from the name of a folder
        return values
    decoded = values.dictionary_decode() if hasattr(values, "dictionary_decode") else values
    return decoded.to_numpy(zero_copy_only=False)


def _has_lists(kind: Any) -> bool:
    types = import_module("pyarrow.types")
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
