"""Rows in safetensors files, a folder of them, mapped into memory: what `pindown.activations` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.data.arrays import ArraySource
from pindown.data.joined import Joined
from pindown.data.source import Source

RECORD = "activations.json"
"""The file of a folder that says what its shards hold, and how far they go."""

KINDS = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32}
"""Numbers that can be mapped, by their names in safetensors files."""


def mapped(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a safetensors file as read-only maps: nothing is read before it is asked for.

    Examples
    --------
    >>> import tempfile
    >>> from safetensors.numpy import save_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_file({"x": np.eye(3, dtype=np.float32)}, f"{folder}/x.safetensors")
    ...     np.array(mapped(Path(folder, "x.safetensors"))["x"][1])
    array([0., 1., 0.], dtype=float32)
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > path.stat().st_size:
            raise ValueError(f"{path.name} is no safetensors file")
        header = json.loads(file.read(size))
    found: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in KINDS:
            raise ValueError(f"{path.name}: {name} holds {entry['dtype']}, and {', '.join(KINDS)} can be mapped.")
        start = 8 + size + entry["data_offsets"][0]
        shape = tuple(entry["shape"])
        found[name] = np.memmap(path, dtype=KINDS[entry["dtype"]], mode="r", offset=start, shape=shape)
    return found


def read_record(folder: Path) -> dict[str, Any]:
    """Return what a folder says of its shards, or say that it is damaged.

    Raises
    ------
    ValueError
        If the record is no record.
    """
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        if not isinstance(record, dict) or not isinstance(record.get("shards"), list) or "complete" not in record:
            raise ValueError("it says nothing of shards")
    except ValueError as error:
        raise ValueError(
            f"{folder / RECORD} is damaged ({error}): what the shards hold is not known. Extract them anew, into "
            "another folder."
        ) from error
    return record


def open_shards(folder: Path) -> Source:
    """Return the rows of all whole shards of a folder, with the number of the input that each is from as its group.

    Raises
    ------
    ValueError
        If there are none yet, or one is gone or damaged.
    """
    paths = [folder / shard["file"] for shard in read_record(folder)["shards"]]
    if not paths:
        raise ValueError(f"{folder}: no shard is written yet. Let the extraction go on, with the same call.")
    try:
        shards = [mapped(path) for path in paths]
        return Joined([ArraySource(shard["x"], groups=shard["input"]) for shard in shards])
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{folder}: a shard is gone or damaged ({error}). Copy the folder anew, or extract it again into another."
        ) from error
