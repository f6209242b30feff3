"""A list of sources of all kinds, each with the rows it must give: the laws of tests/test_sources.py hold for all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import zarr

from pindown.processes import Clusters
from pindown.sources import Arrays, Batch, Source, World, as_source

N, SHAPE = 103, (5,)  # a prime number of rows: no block size divides it


def rows(shape: tuple[int, ...] = SHAPE, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).normal(3.0, 2.0, size=(N, *shape)).astype(dtype)


def labels() -> np.ndarray:
    return np.arange(N) % 7


@dataclass(frozen=True, eq=False)
class Case:
    """A source, and the batch of all its rows if it ends."""

    source: Source
    truth: Batch | None


def read_only_map(folder: Path) -> Case:
    np.save(folder / "x.npy", rows())
    (folder / "x.npy").chmod(0o444)
    return Case(Arrays(np.load(folder / "x.npy", mmap_mode="r"), signal=labels()), {"x": rows(), "signal": labels()})


def in_h5(folder: Path) -> Case:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=rows(), chunks=(10, 5), compression="gzip")
        file["u"] = labels()
    file = h5py.File(folder / "x.h5", "r")
    return Case(Arrays(file["x"], nuisance=file["u"]), {"x": rows(), "nuisance": labels()})


def in_zarr(folder: Path) -> Case:
    array = zarr.create_array(folder / "x.zarr", shape=(N, *SHAPE), chunks=(10, 5), dtype="float32")
    array[:] = rows()
    return Case(as_source(zarr.open_array(folder / "x.zarr", mode="r")), {"x": rows()})


class Countdown(Source):
    """A source as somebody else would write it: a stream of a known length."""

    shape, n_rows = (2,), 50

    def blocks(self, n_rows: int) -> Iterator[Batch]:
        for first in range(50, 0, -n_rows):
            x = np.arange(first, max(0, first - n_rows), -1.0)
            yield {"x": np.stack([x, x**2], 1), "groups": x // 10}


def countdown() -> Batch:
    x = np.arange(50, 0, -1.0)
    return {"x": np.stack([x, x**2], 1), "groups": x // 10}


images = rows((3, 4, 4), np.uint8)

CASES: dict[str, Callable[[Path], Case]] = {
    "array": lambda _: Case(Arrays(rows(), y=labels()), {"x": rows(), "y": labels()}),
    "tensor": lambda _: Case(as_source(torch.tensor(rows())), {"x": rows()}),
    "images": lambda _: Case(Arrays(images, groups=labels()), {"x": images, "groups": labels()}),
    "big-endian": lambda _: Case(Arrays(rows(dtype=">f8")), {"x": rows(dtype=">f8")}),
    "reversed": lambda _: Case(as_source(rows()[::-1]), {"x": rows()[::-1]}),
    "text beside": lambda _: Case(
        Arrays(rows().tolist(), given=[f"c{u}" for u in labels()]),
        {"x": rows().astype(float), "given": np.array([f"c{u}" for u in labels()])},
    ),
    "read-only map": read_only_map,
    "h5": in_h5,
    "zarr": in_zarr,
    "world": lambda _: Case(World(Clusters.on_sphere(3, 5, 10.0, random_state=0)), None),
    "somebody else's": lambda _: Case(Countdown(), countdown()),
}
