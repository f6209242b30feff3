"""The file: one safetensors file, whose one entry of metadata is JSON; and what is said if it cannot be read."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import warnings
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from pindown import __version__
from pindown._files import atomic_path
from pindown.saving.names import Allowed, Refused
from pindown.saving.reading import Reader
from pindown.saving.writing import Writer

FORMAT = 1
"""What this version writes. Files of all formats up to it are read."""

ENTRY = "pindown"
"""Key of the entry of metadata."""


def save(estimator: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write an estimator to a file, whole or not at all: see `pindown.load`.

    Parameters
    ----------
    estimator : estimator
        Fitted or not.
    path : path
        The file. One that is there is replaced.

    Warns
    -----
    UserWarning
        If a parameter, such as a lambda, cannot be saved; what was learned is saved all the same.

    Raises
    ------
    ValueError
        If something that was learned cannot be saved.
    OSError
        If the file cannot be written.
    """
    owner, path, writer = type(estimator).__name__, Path(path), Writer()
    try:
        content = {"estimator": writer.value(estimator, ""), "modules": writer.modules, "names": writer.names}
    except ValueError as error:
        raise ValueError(f"{owner} cannot be saved: {error}") from error
    if writer.unsaved:
        warnings.warn(
            f"{owner}: {', '.join(writer.unsaved)} cannot be saved, since no file can hold it. What was learned is "
            "saved; to fit again after loading, give it anew by set_params. A function at the top of a module can be "
            "saved.",
            stacklevel=3,
        )
    _write(_packed(content, writer.tensors), path)


def load(
    path: str | os.PathLike[str],
    *,
    trust: Iterable[str] = (),
    using: Iterable[Any] = (),
    device: str | torch.device | None = None,
) -> Any:
    """Return the estimator that its `save` wrote, with its parameters and all that it learned.

    Nothing in a file is executed. Classes and functions that it names are taken from pindown, from torch's layers, and
    from packages that have registered an estimator (entry points ``pindown.methods``); from others if you say so.

    Parameters
    ----------
    path : path
        The file.
    trust : list of str
        Further packages that may be imported from, by their top-level names, ``["own_method"]``. Importing runs their
        code, so name those whose code you know.
    using : list of functions and classes
        Taken where the file names them, such as the function that makes your network.
    device : str or None
        Where the networks go. None puts them where they were trained, if there is such a device here, else on the CPU.

    Raises
    ------
    ValueError
        If this is no such file, is damaged, is of a newer format, or names what may not be imported.
    OSError
        If there is no file, or it may not be read.

    Examples
    --------
    >>> import tempfile
    >>> from pindown import Contrast
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Contrast(3, max_iter=500).save(Path(folder, "contrast.pindown"))
    ...     load(Path(folder, "contrast.pindown"))
    Contrast(max_iter=500, n_components=3)
    """
    path, place, allowed = Path(path), _checked_device(device), Allowed(trust, using)
    entry, tensors = _read(path)
    try:
        content = entry["content"]
        if entry["sha256"] != _digest(content, tensors):
            raise ValueError("its contents do not agree with its checksum")
        reader = Reader(tensors, allowed.fetch(content["names"]), place)
        for part in content["modules"]:
            reader.add_module(part)
        return reader.value(content["estimator"])
    except Refused as error:
        raise ValueError(f"{path} {error}") from error.__cause__
    except Exception as error:  # whatever the bytes are, it is this sentence that tells of them
        reason = error if type(error) is ValueError else f"{type(error).__name__}, {error}"
        versions = entry.get("versions")
        wrote = ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else "another program"
        raise ValueError(
            f"{path} cannot be loaded: {reason}. It is damaged, or does not go with the versions here; it was written "
            f"by {wrote}. Copy it anew from where it was saved, or save the estimator again."
        ) from error


def _checked_device(device: str | torch.device | None) -> torch.device | None:
    if device is None:
        return None
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"pindown.load: device={str(device)!r} is not there ({why}). Leave it out.") from error


def _packed(content: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    from safetensors.torch import save

    entry = {"format": FORMAT, "versions": _versions(), "sha256": _digest(content, tensors), "content": content}
    return save(tensors, {ENTRY: _text(entry)})  # one entry, since several come in any order


def _write(packed: bytes, path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Give a file in it, such as {path / 'estimator.pindown'}.")
    try:
        with atomic_path(path) as beside:
            beside.write_bytes(packed)
    except OSError as error:
        raise type(error)(
            f"{path} cannot be written: {error.strerror or error}. Give a file in a folder that you may write to, with "
            f"room for {len(packed):,} bytes."
        ) from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the entry of metadata and the tensors, or say why this is no file that can be read here."""
    from safetensors import safe_open

    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Give the file that save wrote.")
    try:
        with path.open("rb"), safe_open(path, framework="pt") as file:
            entry = json.loads((file.metadata() or {}).get(ENTRY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    except OSError as error:
        raise type(error)(
            f"{path} cannot be read: {error.strerror or error}. Give the file that save wrote."
        ) from error
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read ({error}). It is damaged or not whole, or another program wrote it. Give the file "
            "that save wrote, or copy it anew."
        ) from error
    if not isinstance(entry, dict) or not isinstance(entry.get("format"), int):
        raise ValueError(f"{path} holds tensors, but no estimator of pindown. Give the file that save wrote.")
    if not 1 <= entry["format"] <= FORMAT:
        versions = entry.get("versions")
        newer = versions.get("pindown") if isinstance(versions, dict) else "?"
        raise ValueError(
            f"{path} is of format {entry['format']}, written by pindown {newer}; pindown {__version__} reads "
            f"formats up to {FORMAT}. Update pindown."
        )
    return entry, tensors


def _digest(content: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(_text(content).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def _versions() -> dict[str, str]:
    packages = ("torch", "numpy", "scikit-learn")
    return {"pindown": __version__, "python": platform.python_version()} | {name: version(name) for name in packages}
