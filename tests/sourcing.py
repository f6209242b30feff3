"""A list of sources of all kinds, each with the rows it must give: the laws of tests/test_sources.py hold for all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from pindown.data import ArraySource, Batch, ConcatSource, DatasetSource, LoaderSource, ParquetSource, Source, as_source
from pindown.simulate import Clusters

h5py, pyarrow, zarr = (pytest.importorskip(name) for name in ("h5py", "pyarrow", "zarr"))
pytest.importorskip("pyarrow.parquet")

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
    return Case(
        ArraySource(np.load(folder / "x.npy", mmap_mode="r"), signal=labels()), {"x": rows(), "signal": labels()}
    )


def in_h5(folder: Path) -> Case:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=rows(), chunks=(10, 5), compression="gzip")
        file["u"] = labels()
    file = h5py.File(folder / "x.h5", "r")
    return Case(ArraySource(file["x"], nuisance=file["u"]), {"x": rows(), "nuisance": labels()})


def in_zarr(folder: Path) -> Case:
    array = zarr.create_array(folder / "x.zarr", shape=(N, *SHAPE), chunks=(10, 5), dtype="float32")
    array[:] = rows()
    return Case(as_source(zarr.open_array(folder / "x.zarr", mode="r")), {"x": rows()})


class Items(Dataset):
    """Items as a dict, of which one key plays no part."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": rows()[i], "signal": f"c{labels()[i]}", "path": "…"}


class Stream(IterableDataset):
    """The same rows, one after another, with no word of how many."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        return iter(zip(rows(), labels().tolist(), strict=True))


class Drifting(IterableDataset):
    """Rows without end."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        rng = torch.Generator().manual_seed(0)
        while True:
            yield torch.randn(3, generator=rng)


def in_parquet(folder: Path) -> Case:
    for part, some in enumerate(np.array_split(np.arange(N), 3)):
        columns = {f"f{j}": rows()[some, j] for j in range(5)}
        table = pyarrow.table({**columns, "site": [f"s{u}" for u in labels()[some]], "day": labels()[some]})
        pyarrow.parquet.write_table(table, folder / f"part-{part}.parquet", row_group_size=10)
    truth = {"x": rows(), "signal": np.array([f"s{u}" for u in labels()]), "nuisance": labels()}
    return Case(ParquetSource(folder, signal="site", nuisance="day"), truth)


def lists_in_parquet(folder: Path) -> Case:
    table = pyarrow.table({"x": list(rows()), "u": labels(), "v": labels() + 1})
    pyarrow.parquet.write_table(table, folder / "x.parquet")
    source = ParquetSource(folder / "x.parquet", features="x", nuisance=["u", "v"])
    return Case(source, {"x": rows(), "nuisance": np.stack([labels(), labels() + 1], 1)})


def in_parts(folder: Path) -> Case:
    for part, some in enumerate(np.array_split(rows(), 4)):
        np.save(folder / f"part-{part}.npy", some)
    return Case(as_source(folder), {"x": rows()})


def by_role(folder: Path) -> Case:
    np.save(folder / "x.npy", rows())
    np.save(folder / "groups.npy", labels())
    return Case(as_source(str(folder)), {"x": rows(), "groups": labels()})


def in_npz(folder: Path, save: Callable[..., None] = np.savez) -> Case:
    save(folder / "x.npz", X=np.asfortranarray(rows()), signal=labels(), other=3)
    return Case(as_source(folder / "x.npz"), {"x": rows(), "signal": labels()})


class Countdown(Source):
    """A source as somebody else would write it: a stream of a known length."""

    shape, n_samples = (2,), 50

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        for first in range(50, 0, -n_samples):
            x = np.arange(first, max(0, first - n_samples), -1.0)
            yield {"x": np.stack([x, x**2], 1), "groups": x // 10}


def countdown() -> Batch:
    x = np.arange(50, 0, -1.0)
    return {"x": np.stack([x, x**2], 1), "groups": x // 10}


images = rows((3, 4, 4), np.uint8)

CASES: dict[str, Callable[[Path], Case]] = {
    "array": lambda _: Case(ArraySource(rows(), y=labels()), {"x": rows(), "y": labels()}),
    "tensor": lambda _: Case(as_source(torch.tensor(rows())), {"x": rows()}),
    "images": lambda _: Case(ArraySource(images, groups=labels()), {"x": images, "groups": labels()}),
    "big-endian": lambda _: Case(ArraySource(rows(dtype=">f8")), {"x": rows(dtype=">f8")}),
    "reversed": lambda _: Case(as_source(rows()[::-1]), {"x": rows()[::-1]}),
    "text beside": lambda _: Case(
        ArraySource(rows().tolist(), given=[f"c{u}" for u in labels()]),
        {"x": rows().astype(float), "given": np.array([f"c{u}" for u in labels()])},
    ),
    "read-only map": read_only_map,
    "h5": in_h5,
    "zarr": in_zarr,
    "concatenated": lambda _: Case(
        ConcatSource([ArraySource(rows()[:40], y=labels()[:40]), ArraySource(rows()[40:], y=labels()[40:])]),
        {"x": rows(), "y": labels()},
    ),
    "dataset": lambda _: Case(
        DatasetSource(TensorDataset(torch.tensor(rows()), torch.tensor(labels()))), {"x": rows(), "y": labels()}
    ),
    "dataset of dicts": lambda _: Case(
        as_source(Items()), {"x": rows(), "signal": np.array([f"c{u}" for u in labels()])}
    ),
    "loader": lambda _: Case(
        LoaderSource(DataLoader(list(zip(rows(), labels(), strict=True)), batch_size=8), roles=("x", "nuisance")),
        {"x": rows(), "nuisance": labels()},
    ),
    "loader with workers": lambda _: Case(
        as_source(DataLoader(TensorDataset(torch.tensor(rows())), batch_size=16, num_workers=2)), {"x": rows()}
    ),
    "stream": lambda _: Case(as_source(Stream()), {"x": rows(), "y": labels()}),
    "loader of a stream": lambda _: Case(as_source(DataLoader(Stream(), batch_size=9)), {"x": rows(), "y": labels()}),
    "endless stream": lambda _: Case(as_source(Drifting()), None),
    "parquet folder": in_parquet,
    "parquet lists": lists_in_parquet,
    "npy parts": in_parts,
    "npy by role": by_role,
    "npz": in_npz,
    "npz, compressed": lambda folder: in_npz(folder, np.savez_compressed),
    "world": lambda _: Case(Clusters.on_sphere(3, 5, 10.0, random_state=0), None),
    "somebody else's": lambda _: Case(Countdown(), countdown()),
}
