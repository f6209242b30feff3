"""Moments and one epoch of batches: samples in memory maps or files against the same samples in memory.

Run ``python benchmarks/sources.py`` (about five minutes on one core, 1 GB in a temporary folder). The baseline is plain
numpy on an array in memory: convert it to float64, compute mean and covariance, index the samples of each batch. Own
memory is memory that a process cannot release; pages of a mapped file are counted separately, since the system drops
them when it needs memory. Times are CPU times.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from _measure import cpu_peaks, save
from torch.utils.data import DataLoader, Dataset

from pindown.data import ArraySource, IndexedSource, LoaderSource, Source, as_source, moments
from pindown.data.sources import as_tensor

N_ROWS, N_COLUMNS, BATCH = 1_000_000, 256, 512
PART = N_ROWS // 20


def parts() -> Iterator[np.ndarray]:
    """Yield samples a part at a time: normal, correlated, and far from zero."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(N_COLUMNS, N_COLUMNS)).astype(np.float32) / 16
    for _ in range(N_ROWS // PART):
        yield rng.normal(size=(PART, N_COLUMNS)).astype(np.float32) @ mixing + 100


def write_map(path: Path) -> None:
    whole = np.lib.format.open_memmap(path, "w+", np.float32, (N_ROWS, N_COLUMNS))
    for k, part in enumerate(parts()):
        whole[k * PART : (k + 1) * PART] = part


def write_h5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        whole = file.create_dataset("x", (N_ROWS, N_COLUMNS), np.float32)
        for k, part in enumerate(parts()):
            whole[k * PART : (k + 1) * PART] = part


def write_parquet(path: Path) -> None:
    path.mkdir()
    for k, part in enumerate(parts()):
        table = pa.table({f"x{j}": part[:, j] for j in range(N_COLUMNS)})
        pq.write_table(table, path / f"{k:02}.parquet", row_group_size=10_000)


class Rows(Dataset):
    """The memory map as a user's dataset."""

    def __init__(self, path: Path) -> None:
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.tensor(self.rows[i])


def plain(path: Path, warm_up: bool = False) -> tuple[float, float]:
    """Compute moments and batches of an array in memory."""
    if warm_up:
        return 0.0, 0.0
    X = torch.from_numpy(np.load(path))
    start = time.process_time()
    rows = X.double()
    rows.mean(0), torch.cov(rows.T, correction=0)
    del rows
    middle = time.process_time()
    for which in torch.randperm(N_ROWS).split(BATCH):
        X[which].sum()
    return middle - start, time.process_time() - middle


def sourced(make: Callable[[Path], Source], path: Path, warm_up: bool = False) -> tuple[float, float]:
    """Do the same with a source."""
    if warm_up:
        moments(ArraySource(np.zeros((1_000, N_COLUMNS), dtype=np.float32)))
        return 0.0, 0.0
    source = make(path)
    start = time.process_time()
    moments(source)
    middle = time.process_time()
    if isinstance(source, IndexedSource):
        order = torch.randperm(N_ROWS).numpy()
        batches = (source.take(order[first : first + BATCH]) for first in range(0, N_ROWS, BATCH))
    else:
        batches = source.blocks(BATCH)
    for batch in batches:
        as_tensor(batch["x"]).sum()
    return middle - start, time.process_time() - middle


def of_h5(path: Path) -> Source:
    return ArraySource(h5py.File(path, "r")["x"])


def of_loader(path: Path) -> Source:
    return LoaderSource(DataLoader(Rows(path), batch_size=BATCH))


def measured(what: str, work: Callable[..., tuple[float, float]], *args: Any) -> dict[str, Any]:
    (moments_s, epoch_s), own, mapped = cpu_peaks(work, *args)
    print(what, moments_s, epoch_s, own >> 20, mapped >> 20, flush=True)
    return {
        "rows_in": what,
        "moments_s": moments_s,
        "epoch_s": epoch_s,
        "own_MB": own / 2**20,
        "mapped_MB": mapped / 2**20,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        write_map(path)
        found.append(measured("memory, as plain torch", plain, path))
        found.append(measured("a memory map", sourced, as_source, path))
        found.append(measured("a DataLoader of a Dataset", sourced, of_loader, path))
        path.unlink()
        path = Path(folder) / "x.h5"
        write_h5(path)
        found.append(measured("an h5 array", sourced, of_h5, path))
        path.unlink()
        path = Path(folder) / "x"
        write_parquet(path)
        found.append(measured("a folder of parquet files", sourced, as_source, path))
        shutil.rmtree(path)
    size = N_ROWS * N_COLUMNS * 4 / 2**20
    save("sources", [row | {"share_of_data": row["own_MB"] / size} for row in found])
