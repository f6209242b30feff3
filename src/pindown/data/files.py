"""Rows that lie in files: `ParquetSource`, read as a stream, and arrays of numpy, mapped into memory."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import listed, nearest
from pindown.data.arrays import ArraySource
from pindown.data.data import ROLES
from pindown.data.images import IMAGES, ImageFolder
from pindown.data.joined import Joined
from pindown.data.shards import RECORD, open_shards
from pindown.data.source import Batch, IndexedSource, Source
from pindown.data.streaming import rebatched

ARRAYS = (".npy", ".npz")
"""Files that numpy writes."""

READ_BYTES = 1 << 24
"""Bytes of rows that are read from a parquet file at once, counted in float64."""

Columns = str | Sequence[str]


class ParquetSource(Source):
    """Rows of a parquet file, or of all those in a folder, read a bounded number at a time.

    Files come in the order of their paths; folders named ``site=north`` are a column ``site``. Rows come as they are
    written, so they should not be sorted by what is to be learned. Needs pyarrow: ``pip install 'pindown[tables]'``.

    Parameters
    ----------
    path : str or Path
        The file or the folder.
    features : str or sequence of str, optional
        The columns of x, or one column of lists of equal length. By default all that hold numbers and play no part.
    signal, nuisance, pairs, given, groups, y : str or sequence of str, optional
        Columns that belong to x, by the part they play: one gives an array (n,), several (n, k).

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
        for columns in self.side_variables.values():
            self._require(columns)
        self.names = self._features(features)
        self.n_samples = self._dataset.count_rows()
        if self.n_samples == 0:
            raise ValueError(f"{self.path.name} has no rows: there is nothing to learn from.")
        self._at_once = 1
        self.shape = next(self._batches(1))["x"].shape[1:]
        self._at_once = max(1, READ_BYTES // (8 * math.prod(self.shape)))

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        """Go through the rows once, in order."""
        return rebatched(self._batches(n_samples), n_samples)

    def _batches(self, n_samples: int) -> Iterator[Batch]:
        """Give rows of one file after another, enough at a time that reading is no matter of single rows."""
        parquet, dataset = import_module("pyarrow.parquet"), import_module("pyarrow.dataset")
        columns = dict.fromkeys(
            (*self.names, *(name for side in self.side_variables.values() for name in _several(side)))
        )
        # Not by the dataset's own scanner: it reads ahead, and has been seen to hold three times what it had read.
        for fragment in self._dataset.get_fragments():
            folders = dataset.get_partition_keys(fragment.partition_expression)
            wanted = [name for name in columns if name not in folders]
            with parquet.ParquetFile(fragment.path) as file:
                for rows in file.iter_batches(max(n_samples, self._at_once), columns=wanted, use_threads=False):
                    parts = {name: rows[name] for name in wanted} | {
                        name: np.full(len(rows), value) for name, value in folders.items()
                    }
                    sides = {role: _matrix(self.path, parts, side) for role, side in self.side_variables.items()}
                    yield {"x": _matrix(self.path, parts, self._x), **sides}

    @property
    def _x(self) -> Columns:
        """The columns of x; by itself if it is one that holds lists."""
        lists = len(self.names) == 1 and _holds_lists(self._dataset.schema.field(self.names[0]).type)
        return self.names[0] if lists else self.names

    def _features(self, features: Columns | None) -> tuple[str, ...]:
        types = import_module("pyarrow.types")
        numbers = (types.is_integer, types.is_floating, types.is_boolean)
        schema = self._dataset.schema
        numeric = [field.name for field in schema if any(test(field.type) for test in numbers)]
        if features is not None:
            self._require(features)
            for name in _several(features):
                if name not in numeric and not _holds_lists(schema.field(name).type):
                    raise ValueError(f"{self.path.name}: {name} holds no numbers. Leave it out of the features.")
            return _several(features)
        used = {name for side in self.side_variables.values() for name in _several(side)}
        found = tuple(name for name in numeric if name not in used and not name.startswith("__index_level_"))
        if not found:
            has = listed(schema.names)
            raise ValueError(f"{self.path.name} has no column of numbers left: it has {has}. Say features=….")
        return found

    def _require(self, columns: Columns) -> None:
        names = self._dataset.schema.names
        for name in _several(columns):
            if name not in names:
                raise ValueError(f"{self.path.name} has no column {name!r}: {nearest(name, names)}")


def open_path(path: str | Path) -> Source:
    """Return what gives the rows of a file, or of a folder of files: parquet, numpy, pictures, or activations.

    An ``.npz``, or a folder of ``.npy`` files, may have an ``x`` and other arrays that are named by role. Of a folder
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
            return ArraySource(_mapped(path))
        case ".npz":
            return _by_role(_members(path), path)
    raise ValueError(
        f"{path.name}: rows are read from .parquet, .npy and .npz. Open other files yourself, and hand over the array, "
        "such as h5py.File(path)['x']."
    )


def _open_folder(path: Path) -> Source:
    if (path / RECORD).exists():
        return open_shards(path)
    maps = {file.stem: file for file in sorted(path.glob("*.npy"))}
    if not maps:
        if any(path.rglob("*.parquet")):
            return ParquetSource(path)
        if any(file.suffix.lower() in IMAGES for file in path.rglob("*")):
            return ImageFolder(path)
        raise ValueError(f"{path}: the folder holds neither .parquet nor .npy files, nor pictures.")
    if "x" in maps or "X" in maps:
        return _by_role({name: _mapped(file) for name, file in maps.items()}, path)
    return Joined([ArraySource(_mapped(file)) for file in maps.values()])


def _by_role(arrays: dict[str, Any], path: Path) -> IndexedSource:
    """Return arrays as a source: x, or the only one, with those that are called by a role."""
    names = [name for name in arrays if name in ("x", "X") or len(arrays) == 1]
    if not names:
        raise ValueError(f"{path.name} has the arrays {listed([*arrays])}, but no x.")
    return ArraySource(arrays[names[0]], **{role: arrays[role] for role in (*ROLES, "y") if role in arrays})


def _mapped(path: Path) -> NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:  # numpy takes what it does not know for a pickle, and says how to load one
        raise ValueError(
            f"{path.name} cannot be read as an array: it holds text or Python objects, or was cut short. Save the "
            "array again by numpy.save."
        ) from error


def _members(path: Path) -> dict[str, Any]:
    """Return the arrays of an ``.npz``: mapped where they are stored as they are, else read."""
    try:
        with zipfile.ZipFile(path) as archive, np.load(path) as arrays:
            infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            return {
                name: mapped_member(path, archive, infos[name])
                if infos[name].compress_type == zipfile.ZIP_STORED
                else arrays[name]
                for name in arrays.files
            }
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path.name} cannot be read as arrays ({error}): save it again by numpy.savez.") from error


def mapped_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Map an array that is stored in an ``.npz`` as it is, without compression."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(member)
        header = member.tell()
    with path.open("rb") as raw:  # the sizes of name and extra field stand before them, and may differ from the index's
        raw.seek(info.header_offset + 26)
        name, extra = np.frombuffer(raw.read(4), dtype="<u2")
    offset = info.header_offset + 30 + int(name) + int(extra) + header
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


def _open_parquet(path: Path) -> Any:
    try:
        dataset = import_module("pyarrow.dataset")
    except ImportError as error:
        raise ImportError(f"{path.name}: reading parquet needs pyarrow: pip install 'pindown[tables]'.") from error
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}.")
    files = sorted(map(str, path.rglob("*.parquet"))) if path.is_dir() else [str(path)]
    if not files:
        raise ValueError(f"{path}: the folder holds no .parquet files.")
    try:
        return dataset.dataset(files, format="parquet", partitioning="hive")
    except (ValueError, OSError) as error:  # pyarrow's own are among them
        cause = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".").rpartition(": ")[-1]
        raise ValueError(
            f"{path.name} cannot be read as parquet ({cause}). Save it again, such as by pandas.DataFrame.to_parquet."
        ) from error


def _several(columns: Columns) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _matrix(path: Path, parts: Mapping[str, Any], columns: Columns) -> NDArray[Any]:
    """Return one column as (n,), or (n, k) if it holds lists; several as (n, k)."""
    if not isinstance(columns, str):
        return np.stack([_column(parts[name]) for name in columns], 1)
    values = parts[columns]
    if isinstance(values, np.ndarray) or not _holds_lists(values.type):
        return _column(values)
    flat = _column(values.flatten())
    if len({len(row) for row in values}) > 1:
        raise ValueError(f"{path.name}: the lists in {columns} differ in length, but rows of a source have one shape.")
    return flat.reshape(len(values), -1)


def _column(values: Any) -> NDArray[Any]:
    if isinstance(values, np.ndarray):  # what the name of a folder says
        return values
    decoded = values.dictionary_decode() if hasattr(values, "dictionary_decode") else values
    return decoded.to_numpy(zero_copy_only=False)


def _holds_lists(kind: Any) -> bool:
    types = import_module("pyarrow.types")
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
