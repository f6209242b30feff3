"""CPU time and peak memory of the command line on a large table: 200,000 rows, 40 features, a text label.

Run ``python benchmarks/commandline.py``. Each command runs in its own process; the baseline is a process that imports
what a fit needs and does nothing. Fits take few steps: other benchmarks measure the cost of a step.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _measure import _peak_bytes, save

N_ROWS, N_FEATURES, N_STEPS = 200_000, 40, 20


def write_table(path: Path) -> None:
    from pindown.simulate import Nuisance

    world = Nuisance.on_sphere(N_FEATURES, 4, 10.0, n_layers=1, random_state=0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{j}" for j in range(N_FEATURES)), "batch"])
        for piece in range(20):
            sample = world.sample(N_ROWS // 20, random_state=piece)
            names = [f"batch {value}" for value in sample.u.tolist()]
            writer.writerows([*row, name] for row, name in zip(sample.x.tolist(), names, strict=True))


def child(arguments: list[str]) -> None:
    """Run one command in this process, and print its peak memory."""
    if arguments == ["nothing"]:
        import pindown.auditing.audit
        import pindown.runs  # noqa: F401
    else:
        from pindown.cli import app

        app(arguments, standalone_mode=False)
    print(time.process_time(), _peak_bytes())


def measured(*arguments: str) -> tuple[float, float]:
    """Return CPU seconds, imports included, and peak MB of a command."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    seconds, peak = done.stdout.split()[-2:]
    return float(seconds), int(peak) / 2**20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder) / "data.csv", Path(folder) / "run"
        write_table(data)
        few = ("--steps", str(N_STEPS))
        commands = {
            "imports alone": ("nothing",),
            "check": ("check", str(data), "--nuisance", "batch"),
            "fit": ("fit", str(data), "--nuisance", "batch", *few, "-o", str(run)),
            "fit, pairs": ("fit", str(data), "--pairs", "next", "-d", "5", *few, "-o", f"{run}-of-pairs"),
            "transform": ("transform", str(run), str(data), "-o", str(Path(folder) / "codes.csv")),
        }
        found = {name: measured(*arguments) for name, arguments in commands.items()}
        file_mb, baseline = data.stat().st_size / 2**20, found["imports alone"][1]
    rows = [
        {
            "what": name,
            "n_samples": N_ROWS,
            "n_features": N_FEATURES,
            "n_steps": N_STEPS if name.startswith("fit") else 0,
            "cpu_seconds": seconds,
            "peak_MB": peak,
            "MB_beyond_imports": peak - baseline,
            "file_MB": file_mb,
            "numbers_MB": N_ROWS * N_FEATURES * 8 / 2**20,
        }
        for name, (seconds, peak) in found.items()
    ]
    save("commandline", rows)


if __name__ == "__main__":
    child(sys.argv[1:]) if len(sys.argv) > 1 else main()
