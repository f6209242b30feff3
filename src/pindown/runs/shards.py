"""A folder of activations as data: what `pindown.activations` wrote; the input that a row is of is its group."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path

from pindown.data.data import Data
from pindown.data.tables import Columns
from pindown.errors import InputError


@dataclass(frozen=True)
class Shards:
    """A folder of activations, of which nothing is read yet."""

    path: Path

    def study(self, columns: Columns) -> Data:
        """Open the rows, which stay where they are; or say what is wrong with them."""
        from pindown.data import IndexedSource
        from pindown.data.files import open_shards, read_record

        for part in fields(columns):
            if getattr(columns, part.name):
                raise InputError(
                    part.name,
                    f"`{part.name}` names columns of a table, but the data are a folder of activations, whose rows "
                    "belong to their inputs and to nothing else. Leave it out.",
                )
        source = open_shards(self.path)
        assert isinstance(source, IndexedSource)
        notes = (
            ()
            if read_record(self.path)["complete"]
            else (f"{self.path.name}: the extraction was broken off, and has {source.n_samples} rows.",)
        )
        return Data(source, groups=source.side_variables()["groups"], notes=notes)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the record and of all shards."""
        total = hashlib.sha256()
        for path in sorted(self.path.glob("activations*")):
            with path.open("rb") as file:
                total.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return total.hexdigest()


def has_activations(path: Path) -> bool:
    """Say whether a folder is one of activations."""
    from pindown.data.files import RECORD

    return (path / RECORD).is_file()
