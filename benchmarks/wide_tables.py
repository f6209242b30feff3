"""Seconds and megabytes of ``check``, ``plan`` and ``fit`` on a table of few samples and very many features.

Run ``python benchmarks/wide_tables.py`` (some minutes on two cores). 200 samples of simulated expression, three labs,
four cell types, in a csv. Each command runs in its own process. CPU seconds are measured as well as wall-clock seconds,
which depend on other load. *Old way* is an earlier version of the data summary of every plan and fit, which whitened
all features by their whole covariance. It is not tried with 10,000 features, where a covariance takes .8 GB, several
times over, and is stopped after two minutes.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from _measure import save

N_ROWS, WIDTHS, MOST_SECONDS = 200, (2_000, 10_000), 120
OLD_WAY = """
import sys
from pathlib import Path
from pindown import Forget, networks
from pindown.networks import preprocessing
from pindown.data.tables import Columns, open_table, read_data
data = read_data(open_table(Path(sys.argv[1])), Columns(drop=("type",), nuisance=("lab",)))
Forget(encoder=networks.linear, preprocess=preprocessing.whiten, random_state=0).prepare(data)
"""


def write_table(path: Path, n_columns: int) -> None:
    """Write samples of four cell types, in three labs that shift and scale every feature."""
    rng = np.random.default_rng(0)
    kind, lab = rng.integers(4, size=N_ROWS), rng.integers(3, size=N_ROWS)
    x = (rng.normal(size=(4, n_columns)) * (rng.random(n_columns) < 0.3))[kind] + rng.normal(size=(N_ROWS, n_columns))
    x = x * np.exp(0.3 * rng.normal(size=(3, n_columns)))[lab] + 0.8 * rng.normal(size=(3, n_columns))[lab]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["lab", "type", *(f"gene_{j}" for j in range(n_columns))])
        table.writerows(
            [f"lab{a}", f"type{b}", *(f"{v:.4f}" for v in row)] for a, b, row in zip(lab, kind, x, strict=True)
        )


def measured(words: list[str]) -> tuple[float, float, float]:
    """Run a command on one thread; return wall-clock seconds, CPU seconds, and peak megabytes."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    breaking_off = threading.Timer(MOST_SECONDS, process.kill)
    breaking_off.start()
    _, status, used = os.wait4(process.pid, 0)
    breaking_off.cancel()
    if status and time.perf_counter() - start < MOST_SECONDS:
        raise RuntimeError(f"{' '.join(words[:4])} … ended with {status}")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Measure all, and save the table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for width in WIDTHS:
            path = Path(folder) / f"wide_{width}.csv"
            write_table(path, width)
            data = [str(path), "--nuisance", "lab", "--drop", "type"]
            work = {
                "nothing but imports": ["-c", "import pindown.auditing.page, pindown.runs, pindown.methods"],
                "check": ["-m", "pindown", "check", *data],
                "plan": ["-m", "pindown", "plan", *data],
                "fit": ["-m", "pindown", "fit", *data, "-o", str(Path(folder) / "run"), "--force"],
            }
            if width <= 2_000:
                work["old way, one look"] = ["-c", OLD_WAY, str(path)]
            for name, words in work.items():
                clock, processor, megabytes = measured(words)
                rows.append(
                    {
                        "rows": N_ROWS,
                        "columns": width,
                        "command": name,
                        "seconds": round(clock, 1),
                        "processor_seconds": round(processor, 1),
                        "megabytes": round(megabytes),
                    }
                )
                print(rows[-1], flush=True)
            shutil.rmtree(Path(folder) / "run")
    save("wide_tables", rows)


if __name__ == "__main__":
    main()
