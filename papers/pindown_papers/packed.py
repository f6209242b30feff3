"""Arrays in files that are not made to be read row by row: members of an npz, MATLAB's, NORB's, pickled ones."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._files import atomic_path
from pindown._names import listed
from pindown.data.table_files import mapped_member

IN_MEMORY = 1 << 28
"""Bytes of a compressed array that are read into memory, without being asked to."""

COPIED = 1 << 24
"""Bytes that are unpacked at once."""

TRUSTED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("_codecs", "encode"),
}
"""What a pickle of arrays calls, and nothing else."""


def member(path: str | Path, name: str, unpacked: str | Path | None) -> NDArray[Any]:
    """Return an array of an npz: mapped where it is stored as it is, else unpacked once to a file and mapped there.

    Parameters
    ----------
    path : str or Path
        The npz.
    name : str
        Of the array.
    unpacked : str or Path, optional
        Where a compressed array is written as ``.npy``; one that is there is used. Small ones are read into memory.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez_compressed(f"{folder}/a.npz", imgs=np.arange(6).reshape(3, 2))
    ...     rows = member(f"{folder}/a.npz", "imgs", f"{folder}/imgs.npy")
    ...     type(rows).__name__, rows[2].tolist()
    ('memmap', [4, 5])
    """
    path = Path(path)
    require_file(path)
    if unpacked is not None and Path(unpacked).exists():
        return np.load(unpacked, mmap_mode="r")
    try:
        with zipfile.ZipFile(path) as archive:
            names = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if name not in names:
                raise ValueError(
                    f"{path.name} has no array {name}, only {listed([*names])}. Is this the official file?"
                )
            info = names[name]
            if info.compress_type == zipfile.ZIP_STORED:
                return mapped_member(path, archive, info)
            if unpacked is None and info.file_size > IN_MEMORY:
                raise ValueError(
                    f"{path.name}: {name} is compressed, {info.file_size / 1e9:.1f} GB, so its rows cannot be taken in "
                    "any order. Pass unpacked='pictures.npy', where it is written once."
                )
            if unpacked is None:
                with archive.open(info) as packed:
                    return np.lib.format.read_array(packed, allow_pickle=False)
            with archive.open(info) as packed, atomic_path(Path(unpacked)) as beside, beside.open("wb") as target:
                while block := packed.read(COPIED):
                    target.write(block)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path.name} cannot be read as an npz ({error}): is the download complete?") from error
    return np.load(unpacked, mmap_mode="r")


def arrays_of_pickle(path: str | Path) -> Any:
    """Return what a pickle holds if it is made of arrays, lists, dictionaries and numbers; it can run nothing else."""
    path = Path(path)
    require_file(path)
    with path.open("rb") as file:
        try:
            return _ArraysOnly(file, encoding="latin1").load()
        except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, ValueError) as error:
            raise ValueError(f"{path.name} cannot be read as a pickle of arrays ({error}).") from error


def norb_array(path: str | Path) -> NDArray[Any]:
    """Map a file of NORB's binary matrices: a magic number, the dimensions, the numbers."""
    kinds: dict[int, np.dtype[Any]] = {0x1E3D4C55: np.dtype(np.uint8), 0x1E3D4C54: np.dtype("<i4")}
    require_file(path)
    head = np.fromfile(path, dtype="<i4", count=16)
    if len(head) < 5 or int(head[0]) not in kinds or not 1 <= head[1] <= 8:
        raise ValueError(f"{Path(path).name} is no file of NORB's binary matrices. Unzip it if it is .gz.")
    n_dimensions = int(head[1])
    shape = tuple(int(size) for size in head[2 : 2 + n_dimensions])
    dtype, offset = kinds[int(head[0])], 4 * (2 + max(3, n_dimensions))
    needed = offset + int(np.prod(shape)) * dtype.itemsize
    if Path(path).stat().st_size < needed:
        raise ValueError(f"{Path(path).name} ends early: it has {Path(path).stat().st_size} of {needed} bytes.")
    return np.memmap(path, dtype, "r", offset, shape)


def matlab_head(path: Path, name: str) -> tuple[tuple[int, ...], str]:
    """Return the shape and the kind of number of an array of a MATLAB file, from its head."""
    from scipy.io import whosmat

    with _matlab(path, name):
        return {called: (shape, kind) for called, shape, kind in whosmat(path)}[name]


def matlab_array(path: Path, name: str) -> NDArray[Any]:
    """Return an array of a MATLAB file."""
    from scipy.io import loadmat

    with _matlab(path, name):
        return loadmat(path)[name]


@contextmanager
def _matlab(path: Path, name: str) -> Iterator[None]:
    from scipy.io.matlab import MatReadError

    try:
        yield
    except (KeyError, ValueError, OSError, TypeError, NotImplementedError, MatReadError) as error:  # of 7.3 the fifth
        raise ValueError(f"{path.name} cannot be read as a MATLAB file with an array {name} ({error}).") from error


def require_file(path: str | Path) -> None:
    """Raise if there is no such file."""
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}.")


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in TRUSTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no array")
        return super().find_class(module, name)
