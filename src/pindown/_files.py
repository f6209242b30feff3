"""Files that are written completely or not at all, and that carry a checksum of all of their bytes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pindown._names import quoted

if TYPE_CHECKING:
    from torch import Tensor

ENTRY = "pindown"
"""Key of the one entry of metadata in our safetensors files. Its value is JSON that starts with the checksum."""

_ZEROS = "0" * 64
_TENSORS_START = ('{"__metadata__":{"' + ENTRY + '":"{\\"sha256\\":\\"').encode()
_JSON_START = b'{\n "sha256": "'


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary file in the same folder, and move it to `path` at the end.

    A crash leaves the old file or the new one. The temporary name is random and the file is new, so that a symbolic
    link that somebody planted is not followed. The data are on the disk before the move.
    """
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o666))
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        with suppress(OSError):  # Windows has no fsync of folders
            _sync(path.parent)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):  # a full disk names no file
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def require_writable(path: Path) -> None:
    """Raise an OSError with path, cause and remedy if a file could not be written here; nothing is left behind."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} cannot be written: it is a folder. Give the path of a file.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):  # permissions alone do not show a read-only disk
            pass
    except OSError as error:
        why = f"{error.strerror or error}. Give a path in a folder that you may write to"
        raise type(error)(f"{path} cannot be written: {why}.") from error


def remove_temporary(folder: Path) -> None:
    """Delete the temporary files of `atomic_path` that a crash left in a folder to which no other process writes."""
    for path in folder.iterdir():
        if re.fullmatch(r"\..+\.[0-9a-f]{16}", path.name) and path.is_file():
            path.unlink()


def _sync(path: Path) -> None:
    """Wait until a file is on the disk; some disks report only then that they are full."""
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems have no fsync
            raise
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with a checksum of the file, completely or not at all."""
    text = json.dumps({"sha256": _ZEROS, **content}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_path(path) as temporary:
        temporary.write_bytes(_sealed(text.encode(), len(_JSON_START)))


def read_json(path: Path) -> dict[str, Any]:
    """Return the content that `write_json` wrote, or raise ValueError if it is damaged, or from another program."""
    data = path.read_bytes()
    _check_seal(data, _JSON_START, 0)
    content = parse_json(data)
    del content["sha256"]
    return content


def parse_json(text: str | bytes) -> dict[str, Any]:
    """Return an object of strict JSON: no key twice, no NaN, and not nested too deeply.

    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: it has the key 'a' twice
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key, times in Counter(key for key, _ in pairs).items():
            if times > 1:
                raise ValueError(f"it has the key {quoted(key)} twice")
        return dict(pairs)

    def no_number(text: str) -> None:
        raise ValueError(f"it has {text} in place of a number")

    try:
        content = json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("it is not an object of JSON")
    return content


def pack_tensors(tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> bytes:
    """Return a safetensors file with JSON as its metadata and a checksum of all bytes."""
    from safetensors.torch import save

    entry = json.dumps({"sha256": _ZEROS, **content}, allow_nan=False, separators=(",", ":"))
    data = save(dict(tensors), {ENTRY: entry})  # one entry: the order of several is random
    if data[8 : 8 + len(_TENSORS_START)] != _TENSORS_START:
        raise RuntimeError("safetensors does not write the metadata first. Install a version from 0.4.5.")
    return _sealed(data, 8 + len(_TENSORS_START))


def unpack_tensors(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the JSON that `pack_tensors` packed, or raise ValueError if the bytes are damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    _check_seal(data, _TENSORS_START, 8)
    try:
        header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
        content = parse_json(header["__metadata__"][ENTRY])
        tensors = load(data)
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"it is not a valid safetensors file ({error})") from error
    del content["sha256"]
    return tensors, content


def _sealed(data: bytes, start: int) -> bytes:
    """Replace the zeros at `start` by the checksum of the data with the zeros."""
    return data[:start] + hashlib.sha256(data).hexdigest().encode() + data[start + len(_ZEROS) :]


def _check_seal(data: bytes, prefix: bytes, offset: int) -> None:
    start = offset + len(prefix)
    end = start + len(_ZEROS)
    if data[offset:start] != prefix:
        raise ValueError("it does not start with a checksum: it is damaged, or another program or version wrote it")
    if hashlib.sha256(data[:start] + _ZEROS.encode() + data[end:]).hexdigest().encode() != data[start:end]:
        raise ValueError("its content does not match its checksum: it is damaged")
