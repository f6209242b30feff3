"""Latents to a file, whole or not at all."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from pindown._files import atomic_path
from pindown._names import nearest

WRITABLE = (".csv", ".tsv", ".npy", ".npz")
PIECE = 5_000


def check_writable(path: Path) -> None:
    """Find out now whether a file could be written; nothing is left behind.

    Raises
    ------
    ValueError
        If its name has another ending than those that can be written.
    OSError
        If its folder is not there, or may not be written to.
    """
    if path.suffix.lower() not in WRITABLE:
        hint = nearest(path.suffix, WRITABLE)
        raise ValueError(f"{path.name}: cannot write files in {path.suffix or 'nothing'!r}: {hint}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} cannot be written: it is a folder. Give the path of a file.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):  # permissions alone would not tell of a read-only disk
            pass
    except OSError as error:
        raise type(error)(
            f"{path} cannot be written: {error.strerror or error}. Give a path in a folder that you may write to."
        ) from error


def write_latents(
    path: Path, latents: Any, names: Sequence[str], beside: Mapping[str, NDArray[Any]] | None = None
) -> None:
    """Write latents (n, d), in the format that the end of the name says, whole or not at all.

    Columns ``beside`` them, such as what rows are called, come first; a ``.npy``, which is a matrix, has none. A sparse
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
                    taken: dict[str, Any] = {
                        f"{name}_" if name in ("latents", "names") else name: part for name, part in more.items()
                    }
                    whole_file = _csr(latents) if issparse(latents) else {"latents": latents}
                    np.savez(file, names=np.array(names), **whole_file, **taken)
            case suffix:
                with temporary.open("w", encoding="utf-8", newline="") as text:
                    writer = csv.writer(text, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
                    writer.writerow([*more, *names])
                    for start in range(0, len(latents), PIECE):
                        rows = latents[start : start + PIECE].tolist()
                        first = [part[start : start + PIECE].tolist() for part in more.values()]
                        writer.writerows([*values, *row] for *values, row in zip(*first, rows, strict=True))


def _csr(latents: Any) -> dict[str, Any]:
    """Return a sparse matrix as scipy keeps it in a file."""
    rows = latents.tocsr()
    parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
    return {**parts, "shape": np.array(rows.shape), "format": np.array(b"csr"), "_is_array": np.array(True)}
