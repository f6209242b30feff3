"""The data of a run: a table, a folder of images, or a folder of activations; opened, read, and recognised again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pindown._files import sha256
from pindown.data import ImageFolder, IndexedSource
from pindown.data.data import NEXT, Data
from pindown.data.files import RECORD, open_shards, read_record
from pindown.data.images import image_paths
from pindown.data.tables import Columns, TableFile, check_label, open_table, read_data
from pindown.errors import InputError

IMAGE_OPTIONS = ("labels", "size", "channels", "background", "skip_corrupt", "skip_unlabelled")
"""How the images of a folder are read: parameters of `pindown.data.ImageFolder` besides roles."""


@dataclass(frozen=True)
class Images:
    """A folder of images that have not been read yet; ``options`` are those of `IMAGE_OPTIONS` that were given."""

    path: Path
    options: Mapping[str, Any]

    def read(self, columns: Columns, *, measured: bool = False, encoded: bool = False) -> Data:
        """Return the images with their side variables, or raise if something is wrong with them."""
        columns.check_roles()
        _require_unused(columns, ("features", "drop", "id", "impute", "counts"), "a folder of images")
        named: dict[str, Any] = {}
        for role in ("signal", "nuisance", "given", "truth", "group", "pairs"):
            if (column := getattr(columns, role)) and column != NEXT:
                named[role] = column[0] if len(column) == 1 and role != "truth" else column
        renamed = {"groups" if role == "group" else role: column for role, column in named.items()}
        source = ImageFolder(self.path, **self.options, **renamed)
        sides: dict[str, Any] = dict(source.side_variables())
        for role, column in {} if encoded else named.items():
            values = sides["groups" if role == "group" else role]
            if role != "truth" and values.ndim == 1:
                check_label(role, str(column), values, measured=measured)
        sides |= {"pairs": NEXT} if columns.pairs == NEXT else {}
        return Data(source, **sides, notes=source.notes, ids=list(source.files), id_name="file")


@dataclass(frozen=True)
class Activations:
    """A folder that `pindown.activations` wrote, not read yet."""

    path: Path

    def read(self, columns: Columns) -> Data:
        """Return the activations, which stay on the disk, with the input that each belongs to as its group."""
        _require_unused(columns, (field.name for field in fields(columns)), "activations, which are grouped by input")
        source, complete = open_shards(self.path), read_record(self.path)["complete"]
        assert isinstance(source, IndexedSource)
        notes = () if complete else (f"{self.path.name}: the extraction stopped after {source.n_samples} samples.",)
        return Data(source, groups=source.side_variables()["groups"], notes=notes)


def _require_unused(columns: Columns, parts: Iterable[str], data: str) -> None:
    for part in parts:
        if getattr(columns, part):
            raise InputError(part, f"`{part}` is about columns of a table, but the data are {data}. Leave it out.")


Source = TableFile | Images | Activations


def open_data(path: Path, options: Mapping[str, Any]) -> Source:
    """Return a data file, or a folder of images or activations; read nothing but the names of columns."""
    if path.is_dir() and not (path / RECORD).is_file():
        return Images(path, options)
    for name in options:
        why = f"is for a folder of images, but {path} is none. Leave it out, or give the folder."
        raise InputError(name, f"`{name}` {why}")
    return Activations(path) if path.is_dir() else open_table(path)


def read(source: Source, columns: Columns, *, measured: bool = False) -> Data:
    """Return the samples of what `open_data` opened: see `pindown.data.tables.read_data`."""
    match source:
        case Activations():
            return source.read(columns)
        case Images():
            return source.read(columns, measured=measured)
    return read_data(source, columns, measured=measured)


def in_memory(data: Data, n_samples: int, n_numbers: int) -> Data:
    """Return some samples in memory: ``n_samples`` at most, fewer if they hold ``n_numbers``, but at least 1,000."""
    some = data.sample(min(n_samples, max(1_000, n_numbers // max(1, data.n_features))))
    return some.take(range(len(some))) if some.is_source else some


def fingerprint(source: Source) -> str:
    """Return a SHA-256 of all that is read: a file; or the names and contents of all images, and of their labels."""
    match source:
        case Activations(path):  # whose record has the checksums of all shards, which are compared where they are read
            return sha256(path / RECORD)
        case Images(path, options):
            total = hashlib.sha256()
            for name in image_paths(path):
                total.update(f"{name} {sha256(path / name)}\n".encode())
            if "labels" in options:
                total.update(sha256(Path(options["labels"])).encode())
            return total.hexdigest()
    return sha256(source.path)
