"""Benchmarks of many runs that may be made in parts: each run is a line of JSON, written when it ends."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

Record = dict[str, Any]


def asked(what: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read which runs are wanted, or from which files they are to be taken."""
    parser = argparse.ArgumentParser(description=(what or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "STOP"), help="default: all that are reported")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes; default: one per core")
    parser.add_argument("--to", type=Path, metavar="FILE", help="append the runs to this file, and make no table")
    parser.add_argument("--parts", type=Path, nargs="+", metavar="FILE", help="make the table from these files")
    return parser.parse_args(argv)


def runs(
    work: Callable[[int, int], list[Record]], jobs: Iterable[tuple[int, int]], wanted: argparse.Namespace
) -> list[Record]:
    """Return the records of all jobs, (case, seed) each; or those of the files that were named, each run once."""
    if wanted.parts:
        lines = [line for path in wanted.parts for line in path.read_text(encoding="utf-8").splitlines()]
        return list({_which(record): record for record in map(json.loads, lines)}.values())
    os.environ["OMP_NUM_THREADS"] = "1"  # as many processes run as there are cores
    found = []
    spawn = multiprocessing.get_context("spawn")
    with (
        open(wanted.to or os.devnull, "a", encoding="utf-8") as file,
        ProcessPoolExecutor(wanted.jobs, spawn, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for done in as_completed([pool.submit(work, *job) for job in jobs]):
            found += done.result()
            file.writelines(json.dumps(record) + "\n" for record in done.result())
            file.flush()
    return found


def _which(record: Record) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("when", "world", "condition", "seed"))


def spans(seeds: Iterable[int]) -> str:
    """Return seeds as ranges.

    Examples
    --------
    >>> spans([3, 0, 1, 2, 7])
    '0–3, 7'
    """
    left = sorted(set(seeds))
    parts = []
    while left:
        last = left[0]
        while last + 1 in left:
            last += 1
        parts.append(f"{left[0]}–{last}" if last > left[0] else f"{last}")
        left = [seed for seed in left if seed > last]
    return ", ".join(parts)


def put_into(page: Path, text: str, what: str = "table") -> None:
    """Replace the text between the two marks of a page."""
    begin, end = f"<!-- begin {what} -->", f"<!-- end {what} -->"
    head, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")
