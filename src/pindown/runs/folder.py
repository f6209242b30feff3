"""The folder of a run. It is made next to its place, and moved there when it is complete.

::

    run/
      run.json              data file and its checksum, columns, estimator, parameters, versions, checksums of the parts
      estimator.pindown     the fitted estimator, as `pindown.load` reads it
      latents.csv           the latents of the samples of the fit; latents.npz if they are a sparse matrix
      latents.h5ad          of an .h5ad file: a copy with the latents in obsm["X_pindown"]
      scores.json           how it went
      log.txt               what happened when
      audit.html, .json     after `pindown audit`

During a fit the folder is called ``run.unfinished``, and has a ``checkpoint``. A fit that is killed leaves it behind,
and the same fit resumes from there. A file ``.run.lock`` next to it keeps other fits out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pindown import __version__
from pindown._files import read_json, remove_temporary, require_writable, sha256, write_json
from pindown._names import listed, printable
from pindown.data.tables import Columns
from pindown.errors import InputError
from pindown.methods.base import BaseEncoder
from pindown.methods.registry import find, installed
from pindown.runs.inputs import IMAGE_OPTIONS, Source, fingerprint, open_data
from pindown.runs.recipe import Recipe
from pindown.saving import load, versions

FORMAT = 3
RECORD, ESTIMATOR, SCORES, LOG = "run.json", "estimator.pindown", "scores.json", "log.txt"
LATENTS, SPARSE_LATENTS, ANNOTATED = "latents.csv", "latents.npz", "latents.h5ad"

_FIELDS = dict.fromkeys(("data", "columns", "recipe", "asked", "versions", "parts"), dict) | {
    "command": str,
    "notes": list,
}
"""What a record must have, and of what type."""


@dataclass(frozen=True)
class Run:
    """A finished run, or one under way; ``record`` is the content of ``run.json``."""

    path: Path
    record: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> Run:
        """Return the finished run in a folder; raise an InputError if there is none, or it is unfinished or damaged."""
        unfinished = Place(path).unfinished / RECORD
        if unfinished.exists() and not (path / RECORD).exists():
            command = printable(_read(unfinished)["command"], 500)
            raise InputError("run", f"{path} is unfinished: to resume, give its command again: {command}")
        if not (path / RECORD).is_file():
            why = f"it has no {RECORD}" if path.exists() else "there is no such folder"
            raise InputError("run", f"{path} is not a run: {why}. Give the folder that pindown fit wrote.")
        return cls(path, _read(path / RECORD))

    @property
    def of_another_version(self) -> str:
        """A sentence, if another version of pindown made this run; otherwise nothing."""
        made_by = self.record["versions"].get("pindown")
        by = f"{self.path} was made by pindown {printable(made_by)}, and this is {__version__}"
        return "" if made_by == __version__ else f"{by}: its encoder gives the same latents, a new fit may differ."

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

    def kind(self, address: str | None = None) -> type[BaseEncoder]:
        """Return the class of the estimator: installed, or at the user's address; a record cannot choose it."""
        name = self.recipe.estimator
        kind = installed(name) if address is None else find(address)
        if kind is None or (address is not None and kind is not installed(name) and address != name):
            why = "which is not installed as a method" if address is None else f"not {address}"
            hint = f"If you know that package, name it: `estimator={printable(name)!r}`."
            raise InputError("estimator", f"{self.path} was fitted by {printable(name)}, {why}. {hint}")
        return kind

    def load(self, *, device: str | None = None, estimator: str | None = None) -> BaseEncoder:
        """Return the fitted estimator, or raise; ``estimator`` is the address of a class that is not installed."""
        kind, path = self.kind(estimator), self.path / ESTIMATOR
        if not path.is_file():
            raise InputError("run", f"{self.path} has no {ESTIMATOR}: fit again.")
        if ESTIMATOR in self.changed_parts():
            why = "is damaged, or belongs to another run. Copy the folder again from where it was made."
            raise InputError("run", f"{path} {why}")
        fitted = load(path, trust=[kind], device=device)
        features = self.record["columns"].get("features")
        if type(fitted) is not kind or (features and fitted.n_features_in_ != len(features)):
            raise InputError("run", f"{path} does not belong to this run. Copy the folder again.")
        return fitted

    def changed_parts(self) -> tuple[str, ...]:
        """Return the files that are not what they were when the run, or its audit, was finished."""
        parts = self.record["parts"].items()
        return tuple(name for name, was in parts if (self.path / name).is_file() and sha256(self.path / name) != was)

    def bind(self, *names: str) -> None:
        """Write the checksums of files into the record; raise if the run was deleted meanwhile."""
        if not (self.path / RECORD).is_file():
            raise InputError("run", f"{self.path} was deleted or moved meanwhile.")
        self.record["parts"] |= {name: sha256(self.path / name) for name in names}
        write_json(self.path / RECORD, self.record)

    def log(self, message: str) -> None:
        """Add a line to the log."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with (self.path / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{now} {printable(message, 2_000)}\n")

    def find_data(self, path: Path | None = None) -> Source:
        """Open the data, which may have moved to ``path``; raise an InputError if they have changed since the fit."""
        found = Path(self.record["data"]["path"]) if path is None else path
        name = printable(found, 500)
        if not found.exists():
            why = "which this run was fitted to: say where it is now by `data`."
            raise InputError("data", f"there is no file {name}, {why}")
        source = open_data(found, self.record.get("pictures", {}))
        if fingerprint(source) != self.record["data"]["sha256"]:
            why = "has changed since the fit: fit again, or say by `data` where the old file is."
            raise InputError("data", f"{name} {why}")
        return source


@dataclass(frozen=True)
class Place:
    """The output folder of a run, ``path``, and the temporary folder next to it in which it is made."""

    path: Path

    @property
    def unfinished(self) -> Path:
        """The folder of a fit that is under way, or was killed."""
        return self._next_to("{}.unfinished")

    @property
    def _replaced(self) -> Path:
        return self._next_to("{}.replaced")

    def _next_to(self, name: str) -> Path:
        path = self.path if self.path.name else self.path.resolve()  # of the working directory
        return path.with_name(name.format(path.name))

    def check(self, *, force: bool) -> None:
        """Raise if a run cannot go here: something else is here (InputError), or nothing can be written (OSError)."""
        self._check_path(force=force)
        lock = self._next_to(".{}.lock").absolute()
        require_writable(next(folder for folder in lock.parents if folder.exists()) / lock.name)
        if self.unfinished.exists():
            if not _is_ours(self.unfinished):
                raise _refused(f"{self.unfinished}, where the run would be made, holds other things: move them away.")
            with self.held():
                pass

    def _check_path(self, *, force: bool) -> None:
        path = self.path
        if path.exists() and (not path.is_dir() or path.resolve() == Path.cwd()):
            raise _refused(f"{path} cannot be the folder of a run: give the name of a folder to make.")
        if path.exists() and any(path.iterdir()):
            if not (path / RECORD).is_file():
                raise _refused(f"{path} holds other things: give the name of a new folder.")
            if not force:
                raise _refused(f"{path} holds a finished run: give another name, or `force` to replace it.")

    def begun(self, requested: dict[str, Any], *, force: bool) -> Run | None:
        """Return the unfinished run of the same request, if there is one; with `force` another one is ignored."""
        if not (self.unfinished / RECORD).is_file():
            return None
        try:
            run = self.under_way()
            changed = [name for name in requested if run.record["asked"].get(name) != requested[name]]
            if not changed:
                return run
            raise _refused(
                f"{self.unfinished} is an unfinished fit that differs in {listed(changed)}. To finish it: "
                f"{printable(run.record['command'], 500)}; or give another `output`, or `force` to start again."
            )
        except InputError:
            if force:
                return None
            raise

    def under_way(self) -> Run:
        """Return the run that another process has begun here."""
        return Run(self.unfinished, _read(self.unfinished / RECORD))

    @contextmanager
    def begun_alone(self, record: Mapping[str, Any], *, force: bool) -> Iterator[Run]:
        """Begin a run in the place of an unfinished one, and hold it, unless another process does so since `check`."""
        self.check(force=force)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.held():
            self._check_path(force=force)  # again: the fit that held the place may have finished since
            old = self._next_to(".{}.unfinished")
            shutil.rmtree(old, ignore_errors=True)  # of a fit that was killed
            if self.unfinished.exists():
                os.rename(self.unfinished, old)
                shutil.rmtree(old)
            self.unfinished.mkdir()
            run = Run(self.unfinished, {"format": FORMAT, **record, "parts": {}, "versions": versions()})
            write_json(run.path / RECORD, run.record)
            yield run

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other fits out of this place, or raise an InputError if another one holds it; a kill releases it."""
        file = self._next_to(".{}.lock")
        lock = FileLock(file)
        try:
            with suppress(FileExistsError):
                file.touch(exist_ok=False)  # follows no link
            before = file.stat()
            lock.acquire(blocking=False)
            if not os.path.samestat(before, file.stat()):  # the fit that held it has removed it meanwhile
                raise FileNotFoundError
        except (Timeout, FileNotFoundError):
            lock.release()
            why = f"another fit is under way in {self.unfinished}: wait for it, or give another name."
            raise _refused(why) from None
        try:
            yield
        finally:
            with suppress(OSError):  # Windows cannot
                file.unlink(missing_ok=True)  # while it is held: afterwards it may be another fit's
            lock.release()

    def give_up(self) -> None:
        """Remove the folder of a run that failed."""
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def finish(self) -> Run:
        """Bind the parts of the run together, and move it into place; a kill loses neither it nor an old one."""
        run = self.under_way()
        for folder in (run.path, run.checkpoint.parent):
            if folder.is_dir():
                remove_temporary(folder)
        run.bind(*(path.name for path in run.path.iterdir() if path.is_file() and path.name not in (RECORD, LOG)))
        if self.path.exists() and any(self.path.iterdir()):
            self._forget_replaced()
            os.rename(self.path, self._replaced)
        elif self.path.exists():
            self.path.rmdir()
        os.rename(self.unfinished, self.path)
        self._forget_replaced()
        finished = Run.open(self.path)
        shutil.rmtree(finished.checkpoint.parent, ignore_errors=True)  # a finished fit has nothing to resume from
        return finished

    def _forget_replaced(self) -> None:
        if (self._replaced / RECORD).is_file():
            shutil.rmtree(self._replaced)


def _refused(why: str) -> InputError:
    return InputError("output", f"`output`: {why}")


def _is_ours(folder: Path) -> bool:
    """Return whether a folder holds a run, or what is left of one that was killed at its start."""
    inside = [path.name for path in folder.iterdir()] if folder.is_dir() else [folder.name]
    return RECORD in inside or all(name.startswith(f".{RECORD}.") for name in inside)


def _read(path: Path) -> dict[str, Any]:
    """Return the record of a run, or raise if it is damaged or incomplete."""
    try:
        record = read_json(path)
        if record.get("format") != FORMAT:
            raise ValueError(f"its format is {printable(record.get('format'))}, not {FORMAT}")
        for name, kind in _FIELDS.items():
            if not isinstance(record.get(name), kind):
                raise ValueError(f"it has no {name!r}")
        parts = record["parts"].items()
        if any("/" in name or name.startswith(".") or not isinstance(was, str) for name, was in parts):
            raise ValueError("its parts are not files of this folder")
        Columns.from_dict(record["columns"])
        Recipe(**record["recipe"])
        if odd := {*record.get("pictures", {})} - {*IMAGE_OPTIONS}:
            raise ValueError(f"it has {listed(sorted(odd))} of images")
        _ = record["data"]["path"] + record["data"]["sha256"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "run", f"{path} is not the record of a run of this version ({printable(error, 200)}): fit again."
        ) from error
    return record
