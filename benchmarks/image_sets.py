"""Memory for an image set of official size: 480,000 images of 64 × 64 × 3 bytes, all of them zeros.

Run ``python benchmarks/image_sets.py`` (a minute; the file is sparse and takes no space on most disks). All of its
5.9 GB are read once in blocks, and 200 batches of 256 images are drawn; the baseline is the array in memory.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _measure import cpu_peaks, save
from pindown_papers.image_sets import MPI3D

SHAPE = (480_000, 64, 64, 3)
SIZES = (10, 10, 10, 8, 4, 15, 1)


def made(folder: str) -> tuple[Path, Path]:
    pictures, small = Path(folder, "pictures.npy"), Path(folder, "set.npz")
    if not pictures.exists():
        np.lib.format.open_memmap(pictures, "w+", np.uint8, SHAPE).flush()
        np.savez(small, images=np.zeros(1))
    return small, pictures


def once_through(folder: str, *, warm_up: bool = False) -> dict[str, Any]:
    small, pictures = made(folder)
    source = MPI3D(small, unpacked=pictures, sizes=SIZES)
    start, rows = time.perf_counter(), 0
    for batch in source.blocks(1_024):
        rows += len(batch["x"])
        if warm_up:
            break
    return {"rows": rows, "seconds": time.perf_counter() - start}


def drawn(folder: str, *, warm_up: bool = False) -> dict[str, Any]:
    small, pictures = made(folder)
    source = MPI3D(small, unpacked=pictures, sizes=SIZES)
    start, rows, rng = time.perf_counter(), 0, np.random.default_rng(0)
    for _ in range(1 if warm_up else 200):
        rows += len(source.take(rng.integers(source.n_samples, size=256))["x"])
    return {"rows": rows, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made(folder)
        rows = []
        for name, work in (("once through, in blocks", once_through), ("batches drawn at random", drawn)):
            found, own, mapped = cpu_peaks(work, folder)
            rows.append(
                {
                    "what": name,
                    "rows": found["rows"],
                    "rows_per_second": found["rows"] / found["seconds"],
                    "MB": own / 1e6,
                    "mapped_MB": mapped / 1e6,
                    "in_memory_MB": float(np.prod(SHAPE)) / 1e6,
                }
            )
        save("image_sets", rows)
