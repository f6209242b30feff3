"""A folder of pictures as data: which of its options a run remembers, and how a study is read from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pindown.data.data import NEXT, Data
from pindown.data.tables import Columns, TableFile, check_label, open_table, read_data
from pindown.errors import InputError
from pindown.runs.shards import Shards, has_activations

LEAST_ROWS, NUMBERS = 1_000, 1 << 28
"""Pictures that are taken into memory where all are wanted at once: at least so many, or as many as have so many
numbers, a gigabyte."""


@dataclass(frozen=True)
class PictureOptions:
    """How pictures are read, beside the part that each column of their labels plays: see `pindown.data.ImageFolder`.

    Examples
    --------
    >>> PictureOptions(labels="labels.csv", size=(64, 64)).as_dict()
    {'labels': 'labels.csv', 'size': [64, 64]}
    """

    labels: str | None = None
    size: tuple[int, int] | None = None
    channels: int | None = None
    background: float | None = None
    skip_corrupt: bool = False
    skip_unlabelled: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return what was asked for, as JSON has it."""
        asked = {name: value for name, value in asdict(self).items() if value not in (None, False)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asked.items()}

    @classmethod
    def from_dict(cls, parts: Mapping[str, Any]) -> PictureOptions:
        """Return what `as_dict` was made from."""
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in parts.items()}
        return cls(**values)


@dataclass(frozen=True)
class Folder:
    """A folder of pictures, of which nothing is read yet."""

    path: Path
    options: PictureOptions

    def study(self, columns: Columns, *, measured: bool = False, encoded: bool = False) -> Data:
        """Look at the pictures, and at what belongs to them; or say what is wrong with them."""
        from pindown.data import ImageFolder

        columns.check_roles()
        _refuse_columns(columns)
        consecutive = columns.pairs == NEXT
        parts = {
            "signal": columns.signal,
            "nuisance": columns.nuisance,
            "given": columns.given,
            "groups": columns.group,
            "pairs": None if consecutive else columns.pairs,
            "truth": columns.truth,
        }
        named: dict[str, Any] = {}
        for role, part in parts.items():
            if part:
                named[role] = part[0] if len(part) == 1 and role != "truth" else part
        source = ImageFolder(self.path, **asdict(self.options), **named)
        sides: dict[str, Any] = dict(source.side_variables())
        if not encoded:
            for role, values in sides.items():
                if role != "truth" and values.ndim == 1:
                    check_label({"groups": "group"}.get(role, role), str(named[role]), values, measured=measured)
        sides |= {"pairs": NEXT} if consecutive else {}
        return Data(source, **sides, notes=source.notes, ids=list(source.files), id_name="file")


def _refuse_columns(columns: Columns) -> None:
    for part in ("features", "drop", "id", "impute", "counts"):
        if getattr(columns, part):
            raise InputError(
                part, f"`{part}` is about columns of a table, but the data are a folder of images. Leave it out."
            )


def opened(path: Path, options: PictureOptions) -> TableFile | Folder | Shards:
    """Open a data file, or a folder of pictures or of activations.

    Raises
    ------
    ValueError
        If options of pictures are given beside a file.
    """
    if path.is_dir() and not has_activations(path):
        return Folder(path, options)
    if asked := options.as_dict():
        name = next(iter(asked))
        raise InputError(
            name, f"`{name}` is for a folder of images, but {path} is none. Leave it out, or give the folder."
        )
    return Shards(path) if path.is_dir() else open_table(path)


def read_study(
    source: TableFile | Folder | Shards,
    columns: Columns,
    *,
    measured: bool = False,
    encoded: bool = False,
    medians: Mapping[str, float] | None = None,
) -> Data:
    """Read what `opened` has opened: see `pindown.data.tables.read_data`."""
    if isinstance(source, Folder):
        return source.study(columns, measured=measured, encoded=encoded)
    if isinstance(source, Shards):
        return source.study(columns)
    return read_data(source, columns, measured=measured, encoded=encoded, medians=medians)


def in_memory(data: Data) -> Data:
    """Return the data as they are; of pictures that would take too much memory, some of them, with a note."""
    if not data.is_source:
        return data
    most = max(LEAST_ROWS, NUMBERS // data.n_features)
    some = data.sample(most)
    some = some if not some.is_source else some.take(range(len(some)))
    said = (f"{len(some)} of {len(data)} rows were taken, as many as fit into a gigabyte.",)
    return replace(some, notes=(*some.notes, *(said if len(some) < len(data) else ())))


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint_of(source: TableFile | Folder | Shards) -> str:
    """Return the SHA-256 of a file; of a folder, of the names and contents of all pictures, and of their labels."""
    if isinstance(source, Shards):
        return source.fingerprint
    if not isinstance(source, Folder):
        return fingerprint(source.path)
    from pindown.data.images import image_paths

    total = hashlib.sha256()
    for name in image_paths(source.path):
        total.update(f"{name} {fingerprint(source.path / name)}\n".encode())
    if source.options.labels is not None:
        total.update(fingerprint(Path(source.options.labels)).encode())
    return total.hexdigest()
