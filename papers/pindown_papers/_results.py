"""A results file: one JSON line per run, written whole, so that a killed reproduction goes on where it was."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pindown_papers._experiment import Record

_OPENING = b'{"experiment": '  # how every line begins, because it is the first field of a Record


@dataclass(frozen=True)
class Results:
    """A file of records.

    Parameters
    ----------
    path
        The file. `open` makes it, and its folder, if need be.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> record = Record("a/table1", 1, 0, "quick", {"d": 5}, {"linear": 0.8}, 2.5, "cpu", {"torch": "2.13.0"})
    >>> with TemporaryDirectory() as folder:
    ...     results = Results(Path(folder) / "new" / "results.jsonl")
    ...     before = results.open()
    ...     results.append(record)
    ...     after = results.open()
    >>> before, after == [record]
    ([], True)
    """

    path: Path

    def open(self) -> list[Record]:
        """Make sure that records can be appended, mend a line a kill has torn, and return what is there.

        Raises
        ------
        OSError
            If the file cannot be written.
        ValueError
            If it holds anything but records; it is then left as it was.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab"):
                pass
        except OSError as error:
            raise OSError(
                f"{self.path} cannot be written ({error.strerror}). Give a file in a folder you may write to."
            ) from error
        records, n_whole = self._parsed(self.path.read_bytes())
        with self.path.open("rb+") as file:
            file.truncate(n_whole)
            file.seek(max(n_whole - 1, 0))
            if file.read(1) not in (b"", b"\n"):  # the last record is complete but for the end of its line
                file.write(b"\n")
        return records

    def read(self) -> list[Record]:
        """Return the records that are whole, and leave the file alone."""
        return self._parsed(self.path.read_bytes())[0]

    def append(self, record: Record) -> None:
        """Add a record, and return when it is on the disk."""
        with self.path.open("ab") as file:
            file.write(f"{record.to_line()}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def _parsed(self, content: bytes) -> tuple[list[Record], int]:
        """Return the records, and how many bytes of the content they fill."""
        *lines, rest = content.split(b"\n")
        records = [self._record(line, number) for number, line in enumerate(lines, start=1)]
        if not rest:
            return records, len(content)
        try:
            return [*records, self._record(rest, len(lines) + 1)], len(content)
        except ValueError:
            # Only what is certainly ours may be thrown away.
            if not (rest.startswith(_OPENING) or _OPENING.startswith(rest)):
                raise
            return records, len(content) - len(rest)

    def _record(self, line: bytes, number: int) -> Record:
        try:
            return Record.from_line(line.decode())
        except ValueError as error:
            raise ValueError(
                f"{self.path} is no results file: line {number} is not a record. Give another file, or mend that line."
            ) from error
