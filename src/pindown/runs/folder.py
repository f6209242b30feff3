"""The folder of a run. It is made beside its place and moved there when it is whole.

::

    run/
      run.json              data file and its fingerprint, columns, estimator, parameters, versions
      estimator.pindown     the fitted estimator, as `pindown.load` reads it
      latents.csv           the latents of the rows that were fitted; latents.npz if they are a sparse matrix
      scores.json           how it went
      log.txt               what happened when
      audit.html, .json     after `pindown audit`

While a fit is under way the folder is called ``run.unfinished``, and has a ``checkpoint``. A fit that was killed leaves
it behind, and the same fit goes on from there. It is begun in a hidden workshop beside, ``.run.unfinished.…``, and
moved there with its record.
"""

from __future__ import annotations

import copy
import errno
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pindown import __version__
from pindown._files import atomic_path
from pindown.data.tables import Columns, TableFile
from pindown.errors import InputError
from pindown.methods.base import BaseEncoder
from pindown.methods.registry import find
from pindown.runs.pictures import Folder, PictureOptions, fingerprint_of, opened
from pindown.runs.recipe import Recipe
from pindown.runs.shards import Shards
from pindown.saving import load

FORMAT = 2
RECORD, ESTIMATOR, SCORES, LOG = "run.json", "estimator.pindown", "scores.json", "log.txt"
LATENTS, SPARSE_LATENTS = "latents.csv", "latents.npz"


@dataclass(frozen=True)
class Run:
    """A finished run, or one under way; ``record`` is what ``run.json`` says."""

    path: Path
    record: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> Run:
        """Return the finished run in a folder.

        Raises
        ------
        ValueError
            If there is none, or it is unfinished.
        """
        beside = Place(path).unfinished
        if (beside / RECORD).exists() and not (path / RECORD).exists():
            command = _read(beside / RECORD).get("command", "the same fit")
            raise ValueError(f"{path} is unfinished: to go on, give its command again: {command}")
        if not path.exists():
            raise ValueError(f"there is no run {path}: give the folder that pindown fit wrote (-o).")
        if not (path / RECORD).is_file():
            raise ValueError(f"{path} is no run: it has no {RECORD}. Give the folder that pindown fit wrote (-o).")
        return cls(path, _read(path / RECORD))

    @property
    def of_another_version(self) -> str:
        """A sentence, if another version of pindown made this run; otherwise nothing."""
        made_by = self.record.get("versions", {}).get("pindown", "of which nothing is known")
        if made_by == __version__:
            return ""
        return (
            f"{self.path} was made by pindown {made_by}, and this is {__version__}: its encoder gives the latents it "
            "gave, but a fit made again may differ."
        )

    @property
    def columns(self) -> Columns:
        """The columns, features by name."""
        return Columns.from_dict(self.record["columns"])

    @property
    def recipe(self) -> Recipe:
        """The estimator and its parameters."""
        return Recipe(**self.record["recipe"])

    @property
    def checkpoint(self) -> Path:
        """The file with the state of a fit under way; estimators with several parts add their names to it."""
        return self.path / "checkpoint" / "fit.safetensors"

    def load(self, *, device: str | None = None) -> BaseEncoder:
        """Return the fitted estimator; its method's package may be imported from, since it was fitted from there.

        Raises
        ------
        ValueError
            If its file is gone, damaged, or something else.
        """
        kind = find(self.recipe.estimator)
        try:
            return load(self.path / ESTIMATOR, trust=[kind], device=device)
        except FileNotFoundError as error:
            raise ValueError(f"{self.path} has no {ESTIMATOR}: fit again.") from error

    def save(self, estimator: BaseEncoder) -> None:
        """Keep the fitted estimator, without where its checkpoint was."""
        clean = copy.copy(estimator)
        clean.set_params(trainer=replace(estimator.trainer, checkpoint=None))
        clean.save(self.path / ESTIMATOR)

    def log(self, message: str) -> None:
        """Add a line to the log."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with (self.path / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{now} {message}\n")

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Write JSON to a file of the run, whole or not at all."""
        with atomic_path(self.path / name) as beside:
            text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
            beside.write_text(text + "\n", encoding="utf-8")

    def find_data(self, path: Path | None = None) -> TableFile | Folder | Shards:
        """Open the data file or folder, after seeing that it has not changed since the fit.

        Parameters
        ----------
        path : Path, optional
            Where it is now, if it was moved.
        """
        was = Path(self.record["data"]["path"])
        found = was if path is None else path
        if not found.exists():
            raise InputError(
                "data", f"there is no file {found}, which this run was fitted to: say where it is now by `data`."
            )
        source = opened(found, PictureOptions.from_dict(self.record.get("pictures", {})))
        if fingerprint_of(source) != self.record["data"]["sha256"]:
            raise InputError(
                "data", f"{found} has changed since the fit: fit again, or say by `data` where the old file is."
            )
        return source


@dataclass(frozen=True)
class Place:
    """Where a run goes: ``path``, and beside it the folder in which it is made."""

    path: Path
    _made: list[Path] = field(default_factory=list, repr=False, compare=False)

    @property
    def unfinished(self) -> Path:
        """The folder of a fit that is under way, or was killed."""
        return self.path.with_name(f"{self.path.name}.unfinished")

    @property
    def _replaced(self) -> Path:
        return self.path.with_name(f"{self.path.name}.replaced")

    @property
    def _folder(self) -> Path:
        """The folder in which it is made, or the nearest one above that there is."""
        return next(parent for parent in self.path.absolute().parents if parent.exists())

    def check(self, *, force: bool) -> None:
        """Raise if a run cannot go here; nothing is made.

        Raises
        ------
        ValueError
            If there is something else, or a run that must not be overwritten.
        OSError
            If the folder cannot be written to.
        """
        self._check_path(force=force)
        if self.unfinished.exists() and not _is_ours(self.unfinished):
            raise InputError(
                "output",
                f"`output`: {self.unfinished}, where the run would be made, holds other things: move them away.",
            )
        if self.unfinished.exists():
            with self.held():
                pass
        try:
            with tempfile.TemporaryFile(dir=self._folder):  # permissions alone would not tell of a read-only disk
                pass
        except OSError as error:
            why = error.strerror or error
            raise type(error)(
                f"`output`: {self.path} cannot be made: {why}. Give a folder that you may write to."
            ) from error

    def _check_path(self, *, force: bool) -> None:
        if self.path.exists() and (not self.path.is_dir() or self.path.resolve() == Path.cwd()):
            raise InputError(
                "output", f"`output`: {self.path} is not a valid output directory: give the name of a folder to make."
            )
        if self.path.exists() and any(self.path.iterdir()):
            if not (self.path / RECORD).is_file():
                raise InputError("output", f"`output`: {self.path} holds other things: give the name of a new folder.")
            if not force:
                raise InputError(
                    "output",
                    f"`output`: {self.path} holds a finished run: give another name, or `force` to replace it.",
                )

    def begun(self, asked: dict[str, Any], *, force: bool) -> Run | None:
        """Return the unfinished run that asked for the same, if there is one; with ``force`` others do not matter."""
        if not (self.unfinished / RECORD).is_file():
            return None
        try:
            run = Run(self.unfinished, _read(self.unfinished / RECORD))
        except ValueError:
            if force:
                return None
            raise
        changed = [name for name in asked if run.record["asked"].get(name) != asked[name]]
        if not changed:
            return run
        if force:
            return None
        raise InputError(
            "output",
            f"`output`: {self.unfinished} is an unfinished fit that differs in {', '.join(changed)}. To finish it: "
            f"{run.record['command']}; or give another `output`, or `force` to start anew.",
        )

    @contextmanager
    def begun_alone(self, record: dict[str, Any], *, force: bool) -> Iterator[Run]:
        """Begin a run in the place of an unfinished one, and hold it, unless another process does since `check`."""
        self.check(force=force)
        self._made[:] = [folder for folder in self.unfinished.parents if not folder.exists()]
        with ExitStack() as hold:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                run = self._begin({"format": FORMAT, **record, "versions": versions()}, hold)
            except BaseException:
                self._remove_made()
                raise
            try:
                self._check_path(force=force)  # again: the fit that held the place before may have finished meanwhile
            except ValueError:
                self.give_up()
                raise
            yield run

    def _begin(self, record: dict[str, Any], hold: ExitStack) -> Run:
        """Make a folder with its record, held, and move it to where nobody else's is: of two such moves one fails."""
        with self._workshop() as workshop:
            new = workshop / "new"
            new.mkdir()
            hold.enter_context(_locked(new, self._busy))
            Run(new, record).write(RECORD, record)
            if self.unfinished.exists():
                with self.held():
                    os.rename(self.unfinished, workshop / "old")
            try:
                os.rename(new, self.unfinished)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise ValueError(self._busy) from None
        return Run(self.unfinished, record)

    @contextmanager
    def _workshop(self) -> Iterator[Path]:
        """Give a hidden folder beside the place, held as long as it is there; those that kills left behind go."""
        prefix, beside = f".{self.unfinished.name}.", self.path.parent
        # A hold shows another process that this one is not left behind.
        with (
            tempfile.TemporaryDirectory(prefix=prefix, dir=beside, ignore_cleanup_errors=True) as name,
            _locked(Path(name), self._busy),
        ):
            workshop = Path(name)
            alike = (path for path in beside.iterdir() if path.name.startswith(prefix) and path.is_dir())
            for left in [path for path in alike if path.name != workshop.name]:
                with suppress(ValueError, OSError), _locked(left, self._busy):
                    shutil.rmtree(left)
            yield workshop

    @property
    def _busy(self) -> str:
        return f"`output`: another fit is under way in {self.unfinished}: wait for it, or give another name."

    def held(self) -> AbstractContextManager[None]:
        """Keep other fits out of the folder that is under way; a kill lets go of it.

        Raises
        ------
        ValueError
            If another fit holds it.
        """
        return _locked(self.unfinished, self._busy)

    def give_up(self) -> None:
        """Remove the folder of a run that came to nothing, and those that were made for it."""
        shutil.rmtree(self.unfinished, ignore_errors=True)
        self._remove_made()

    def _remove_made(self) -> None:
        for folder in self._made:
            with suppress(OSError):  # something else was put there
                folder.rmdir()

    def finish(self) -> Run:
        """Move the whole run into place, instead of an older one; a kill in between loses neither."""
        for stray in self.unfinished.rglob(".*"):  # what a kill left half written beside its place
            stray.unlink()
        if self.path.exists() and any(self.path.iterdir()):
            self._forget_replaced()
            os.rename(self.path, self._replaced)
        elif self.path.exists():
            self.path.rmdir()
        os.rename(self.unfinished, self.path)
        self._forget_replaced()
        run = Run.open(self.path)
        shutil.rmtree(run.checkpoint.parent, ignore_errors=True)  # a finished fit has nothing to go on from
        return run

    def _forget_replaced(self) -> None:
        if (self._replaced / RECORD).is_file():
            shutil.rmtree(self._replaced)


@contextmanager
def _locked(folder: Path, busy: str) -> Iterator[None]:
    """Hold the lock of a folder of ours; raise if another process does, or has moved the folder away meanwhile."""
    try:
        import fcntl
    except ImportError:  # a system that has no such locks
        yield
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        raise ValueError(busy) from None
    try:
        with suppress(OSError):  # a disk that has none
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(busy) from None
        if not _is_at(folder, descriptor):
            raise ValueError(busy)
        yield
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Say whether an open folder is still the one at a path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_ours(folder: Path) -> bool:
    """Say whether a folder holds a run, or one of which a kill left next to nothing."""
    inside = [path.name for path in folder.iterdir()] if folder.is_dir() else [folder.name]
    return RECORD in inside or all(name.startswith(f".{RECORD}.") for name in inside)


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = {"pindown": __version__, **{name: version(name) for name in ("torch", "numpy", "scikit-learn")}}
    return {**packages, "python": platform.python_version()}


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']}, not {FORMAT}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no record of a run of this version ({error}): fit again.") from error
    return record
