"""The data of a run: a table, a folder of images, or a folder of activations; opened, read, and recognised again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pindown._files import sha256
from pindown.data import ImageFolder, IndexedSource
from pindown.data.data import NEXT, Data
from pindown.data.files import RECORD, open_shards, read_record
from pindown.data.images import image_paths
from pindown.data.tables import Columns, TableFile, check_label, open_table, read_data
from pindown.errors import InputError

LEAST_SAMPLES, NUMBERS = 1_000, 1 << 28
"""Images that are read into memory where all are wanted at once: at least so many, or as many as have so many numbers,
a gigabyte."""


@dataclass(frozen=True)
class ImageOptions:
    """How images are read, besides the role of each column of their labels: see `pindown.data.ImageFolder`.

    Examples
    --------
    >>> ImageOptions(labels="labels.csv", size=(64, 64)).as_dict()
    {'labels': 'labels.csv', 'size': [64, 64]}
    """

    labels: str | None = None
    size: tuple[int, int] | None = None
    channels: int | None = None
    background: float | None = None
    skip_corrupt: bool = False
    skip_unlabelled: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the options that were given, for JSON."""
        given = {name: value for name, value in asdict(self).items() if value is not None and value is not False}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    @classmethod
    def from_dict(cls, parts: Mapping[str, Any]) -> ImageOptions:
        """Return the options that `as_dict` turned into JSON."""
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in parts.items()}
        return cls(**values)


@dataclass(frozen=True)
class Images:
    """A folder of images that have not been read yet."""

    path: Path
    options: ImageOptions

    def read(self, columns: Columns, *, measured: bool = False, encoded: bool = False) -> Data:
        """Return the images with their side variables, or raise if something is wrong with them."""
        columns.check_roles()
        for part in ("features", "drop", "id", "impute", "counts"):
            if getattr(columns, part):
                raise InputError(
                    part, f"`{part}` is about columns of a table, but the data are a folder of images. Leave it out."
                )
        parts = {
            **{role: getattr(columns, role) for role in ("signal", "nuisance", "given", "truth")},
            "groups": columns.group,
            "pairs": None if columns.pairs == NEXT else columns.pairs,
        }
        named: dict[str, Any] = {
            role: part[0] if len(part) == 1 and role != "truth" else part for role, part in parts.items() if part
        }
        source = ImageFolder(self.path, **asdict(self.options), **named)
        sides: dict[str, Any] = dict(source.side_variables())
        for role, values in {} if encoded else sides.items():
            if role != "truth" and values.ndim == 1:
                check_label({"groups": "group"}.get(role, role), str(named[role]), values, measured=measured)
        sides |= {"pairs": NEXT} if columns.pairs == NEXT else {}
        return Data(source, **sides, notes=source.notes, ids=list(source.files), id_name="file")


@dataclass(frozen=True)
class Activations:
    """A folder that `pindown.activations` wrote, not read yet."""

    path: Path

    def read(self, columns: Columns) -> Data:
        """Return the activations, which stay on the disk, with the input that each belongs to as its group."""
        for part in fields(columns):
            if getattr(columns, part.name):
                raise InputError(
                    part.name,
                    f"`{part.name}` names columns of a table, but the data are a folder of activations, which have no "
                    "other side variable than their inputs. Leave it out.",
                )
        source, complete = open_shards(self.path), read_record(self.path)["complete"]
        assert isinstance(source, IndexedSource)
        notes = () if complete else (f"{self.path.name}: the extraction stopped after {source.n_samples} samples.",)
        return Data(source, groups=source.side_variables()["groups"], notes=notes)


Source = TableFile | Images | Activations


def open_data(path: Path, options: ImageOptions) -> Source:
    """Return a data file, or a folder of images or activations; read nothing but the names of columns.

    Raises
    ------
    InputError
        If options of images are given together with something else.
    """
    if path.is_dir() and not (path / RECORD).is_file():
        return Images(path, options)
    if given := options.as_dict():
        name = next(iter(given))
        raise InputError(
            name, f"`{name}` is for a folder of images, but {path} is none. Leave it out, or give the folder."
        )
    return Activations(path) if path.is_dir() else open_table(path)


def read(
    source: Source,
    columns: Columns,
    *,
    measured: bool = False,
    encoded: bool = False,
    medians: Mapping[str, float] | None = None,
) -> Data:
    """Return the samples of what `open_data` opened: see `pindown.data.tables.read_data`."""
    if isinstance(source, Images):
        return source.read(columns, measured=measured, encoded=encoded)
    if isinstance(source, Activations):
        return source.read(columns)
    return read_data(source, columns, measured=measured, encoded=encoded, medians=medians)


def in_memory(data: Data) -> Data:
    """Return data as they are, or of images that would take too much memory a sample, with a note."""
    if not data.is_source:
        return data
    some = data.sample(max(LEAST_SAMPLES, NUMBERS // data.n_features))
    some = some if not some.is_source else some.take(range(len(some)))
    note = (f"{len(some)} of {len(data)} samples were taken, as many as fit into a gigabyte.",)
    return replace(some, notes=(*some.notes, *(note if len(some) < len(data) else ())))


def fingerprint(source: Source) -> str:
    """Return a SHA-256 of all that is read: a file; or the names and contents of all images, and of their labels."""
    match source:
        case Activations(path):  # whose record has the checksums of all shards, which are compared where they are read
            return sha256(path / RECORD)
        case Images(path, options):
            total = hashlib.sha256()
            for name in image_paths(path):
                total.update(f"{name} {sha256(path / name)}\n".encode())
            if options.labels is not None:
                total.update(sha256(Path(options.labels)).encode())
            return total.hexdigest()
    return sha256(source.path)
