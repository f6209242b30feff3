"""Which reader a file wants, by the end of its name."""

from __future__ import annotations

from pathlib import Path

from pindown._names import nearest
from pindown.data.tables.arrays import open_npy, open_npz
from pindown.data.tables.frames import open_h5ad, open_parquet
from pindown.data.tables.source import TableFile
from pindown.data.tables.text import open_text

READERS = {
    ".csv": open_text,
    ".tsv": open_text,
    ".npz": open_npz,
    ".npy": open_npy,
    ".parquet": open_parquet,
    ".h5ad": open_h5ad,
}


def open_table(path: Path) -> TableFile:
    r"""Look at the names in a data file.

    Parameters
    ----------
    path : Path
        A file that ends in ``.csv``, ``.tsv``, ``.npz``, ``.npy``, ``.parquet`` or ``.h5ad``.

    Raises
    ------
    ValueError
        If the file is empty, or not what its name says.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = Path(folder) / "data.csv"
    ...     _ = data.write_text("height,age,site\n1.7,30,north\n1.6,41,south\n")
    ...     source = open_table(data)
    ...     numbers, labels = source.read(["age", "height"], ["site"])
    >>> source.names, source.numeric
    (('height', 'age', 'site'), ('height', 'age'))
    >>> numbers.tolist(), labels["site"].tolist()
    ([[30.0, 1.7], [41.0, 1.6]], ['north', 'south'])
    """
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise ValueError(f"{path.name}: cannot read files in {suffix or 'nothing'!r}: {nearest(suffix, [*READERS])}")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}{_beside(path)}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a data file in it.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} is empty: give a file with a line of names and a line for each row.")
    try:
        return READERS[suffix](path)
    except PermissionError as error:
        raise PermissionError(f"{path} cannot be read ({error.strerror}): ask for permission, or copy it.") from error


def _beside(path: Path) -> str:
    """Return a hint at a file that lies in the same folder."""
    if not path.parent.is_dir():
        return f": there is no folder {path.parent} either. Give the path of a data file."
    others = sorted(other.name for other in path.parent.iterdir() if other.suffix.lower() in READERS)
    return f": {nearest(path.name, others)}" if others else ": give the path of a data file."
