"""An estimator as one file that executes nothing: safetensors and JSON, readable forever.

`Saves` gives an estimator its method ``save``; `load` brings the estimator back.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pindown import __version__
from pindown._files import atomic_path, pack_tensors, unpack_tensors
from pindown._names import printable
from pindown._random import torch_defaults
from pindown.errors import InputError
from pindown.saving.format_1 import from_format_1
from pindown.saving.table import Named, handed_over
from pindown.saving.values import Reader, Writer
from pindown.training.devices import best_device

__all__ = ["Saves", "load"]

FORMAT = 2
"""The format that this version writes. Files of all formats up to it can be loaded."""


class Saves:
    """An estimator that can be written to a file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator to one file, with its parameters and all that it learned; see `pindown.load`.

        The file is written completely or not at all. It holds numbers and text, and nothing that is executed.

        Parameters
        ----------
        path : path
            The file. An existing file is replaced.

        Warns
        -----
        UserWarning
            If a parameter, such as a lambda, cannot be saved. What was learned is saved nevertheless.

        Raises
        ------
        ValueError
            If something that was learned cannot be saved.
        OSError
            If the file cannot be written.
        """
        owner, path, writer = type(self).__name__, Path(path), Writer()
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder. Give a file in it, such as {path / 'estimator.pindown'}.")
        try:
            estimator = writer.value(self, "")
        except ValueError as error:
            raise ValueError(f"{owner} cannot be saved: {error}") from error
        if writer.unsaved:
            warnings.warn(
                f"{owner}: {', '.join(writer.unsaved)} cannot be saved. What was learned is saved; to fit again after "
                "loading, pass it to set_params. Functions at the top level of a module can be saved.",
                stacklevel=2,
            )
        content = {"estimator": estimator, "modules": writer.modules, "names": writer.names}
        with atomic_path(path) as temporary:
            entry = {"format": FORMAT, "versions": versions(), "content": content}
            temporary.write_bytes(pack_tensors(writer.tensors, entry))


@torch_defaults()
def load(
    path: str | os.PathLike[str],
    *,
    trust: Iterable[Named | nn.Module | str] = (),
    device: str | torch.device | None = None,
) -> Any:
    """Return the estimator that its `save` wrote, with its parameters and all that it learned.

    Nothing in a file is executed. A file can name classes and functions of a closed table, which are parts of pindown
    and layers of torch. Anything else it needs, you hand over.

    Parameters
    ----------
    path : path
        The file.
    trust : list
        Classes and functions of your own, such as the function that makes your network; networks whose class a file
        cannot describe; and names of methods that other packages have registered, which are then imported.
    device : str or None
        Where the networks go. None takes the kind of device they were on, if there is one here, and else the CPU.

    Raises
    ------
    InputError
        If the file is damaged, of a newer format, not an estimator, or needs something that was not handed over.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pindown import Contrast
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Contrast(3, max_iter=500).save(Path(folder, "contrast.pindown"))
    ...     load(Path(folder, "contrast.pindown"))
    Contrast(max_iter=500, n_components=3)
    """
    path, place, handed = Path(path), None if device is None else best_device(device), handed_over(trust)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Give the file that `save` wrote.")
    data, wrote = path.read_bytes(), "another program or version"
    try:
        tensors, entry = unpack_tensors(data) if (old := from_format_1(data)) is None else old
        wrote = ", ".join(f"{printable(k)} {printable(v)}" for k, v in entry["versions"].items())
        if type(form := entry.pop("format")) is not int or form > FORMAT:
            raise ValueError(f"its format is {printable(form)}, and pindown {__version__} reads up to {FORMAT}")
        if form < 1 or entry.keys() - {"sha256"} != {"versions", "content"}:
            raise ValueError("it is not what `save` writes")
        return Reader(entry["content"], tensors, handed, place).estimator
    except InputError as error:
        raise InputError(error.argument, f"{path} cannot be loaded: {error}") from None
    except Exception as error:  # whatever the bytes are, this sentence is about them
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}, {printable(error, 200)}"
        remedy = "Update pindown if that is newer; otherwise copy the file again from where it was saved"
        raise InputError("path", f"{path} cannot be loaded: {reason}. It was written by {wrote}. {remedy}.") from error


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = {"pindown": __version__, **{name: version(name) for name in ("torch", "numpy", "scikit-learn")}}
    return {**packages, "python": platform.python_version()}
