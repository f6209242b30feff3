"""Time, peak memory and the machine they belong to; benchmarks print ratios to a baseline of the same run."""

from __future__ import annotations

import json
import multiprocessing
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def seconds(work: Callable[[], Any], *, repeat: int = 7) -> float:
    """Return the median time of a call, after one that warms up."""
    work()
    times = []
    for _ in range(repeat):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return median(times)


def replay_seconds(work: Callable[[], Any], *, repeat: int = 50, generator: torch.Generator | None = None) -> float:
    """Return the time of a call on a GPU without launch overhead: captured as a graph and replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        work()
    return seconds(lambda: [graph.replay() for _ in range(repeat)], repeat=5) / repeat


def gpu_peak_bytes(work: Callable[[], Any]) -> int:
    """Return the most memory a call holds on a GPU beyond what was held before."""
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def cpu_peak_bytes(work: Callable[..., Any], *args: Any) -> int:
    """Return the most memory ``work(*args)`` holds beyond ``work(*args, warm_up=True)``, in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "pindown.methods"])  # slow to import: once for all processes
    queue = context.Queue()
    process = context.Process(target=_report_peak, args=(queue, work, args))
    process.start()
    growth = queue.get()
    process.join()
    return growth


def _report_peak(queue: Any, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    work(*args, warm_up=True)
    Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far
    before = _peak_bytes()
    work(*args)
    queue.put(_peak_bytes() - before)


def cpu_peaks(work: Callable[..., Any], *args: Any) -> tuple[Any, int, int]:
    """Return what ``work(*args)`` returns, and the most memory it holds in a process of its own, as `cpu_peak_bytes`.

    The first number is its own memory, the second pages of mapped files, which the system may drop at any time.
    """
    context = multiprocessing.get_context("forkserver")
    queue = context.Queue()
    process = context.Process(target=_report_both_peaks, args=(queue, work, args))
    process.start()
    found = queue.get()
    process.join()
    return found


def _report_both_peaks(queue: Any, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    work(*args, warm_up=True)
    before = _status("RssAnon"), _status("RssFile")
    peak, done = list(before), threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[:] = max(peak[0], _status("RssAnon")), max(peak[1], _status("RssFile"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = work(*args)
    done.set()
    watcher.join()
    queue.put((result, peak[0] - before[0], peak[1] - before[1]))


def _peak_bytes() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    """Return a memory entry of this process from /proc, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def save(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows and write them to ``results/``, with the machine they belong to."""
    for row in rows:
        print("  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()))
    write(record(name), rows)


def record(name: str) -> Path:
    """Return the path of a record; GPU and CPU have separate ones."""
    return RESULTS / f"{name}_{'gpu' if torch.cuda.is_available() else 'cpu'}.json"


def where() -> dict[str, str]:
    """Return a description of the machine that the numbers belong to."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    return {"device": device, "torch": torch.__version__, "python": platform.python_version()}


def write(path: Path, rows: list[dict[str, Any]], at: dict[str, str] | None = None) -> None:
    """Write rows, whole or not at all: what was there stays if the command is stopped. ``at``: where, if not here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps({"where": at or where(), "rows": rows}, indent=1) + "\n")
    beside.replace(path)
