"""The numerical tests, run once with each set of kernels that other machines use: which fail where.

``python benchmarks/numerics.py`` runs them all and keeps a record in ``results/numerics.json``, one entry for each
setting and each set of versions; ``python benchmarks/numerics.py two-threads`` runs one. In an environment with other
versions, such as that of ``make test-oldest``, the same command adds its entries to the record; ``--take`` adds those
of a record that another machine wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _settings import NUMERICS, ROOT, environment, where

RECORD = Path(__file__).parent / "results" / "numerics.json"
COMPUTING = "not slow and not text"
NEEDS = {"skylakex": "avx512f", "haswell": "avx2", "zen": "avx2"}
"""What the processor must have, or the kernels would be illegal instructions."""


def possible(numerics: str) -> bool:
    """Return whether this processor has the instructions of a setting."""
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text(encoding="utf-8").split()) if info.exists() else set()
    return numerics not in NEEDS or NEEDS[numerics] in flags


def run(numerics: str, jobs: str, tests: list[str], keep: Path | None) -> dict[str, Any]:
    """Run the tests that compute; return how many passed, which failed, and why some were skipped."""
    began = time.time()
    parallel = ["--numprocesses", jobs, "--dist", "worksteal"]
    command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-m", COMPUTING, *parallel, *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment(numerics), capture_output=True, text=True)
    if keep:
        (keep / f"{numerics}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    said = done.stdout.strip().splitlines()
    counts = dict.fromkeys(("passed", "failed", "error", "skipped"), 0)
    counts |= {kind.rstrip("s"): int(n) for n, kind in re.findall(r"(\d+) (passed|failed|errors?|skipped)", said[-1])}
    failed = [line.split(" ", 1)[1] for line in said if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode and not failed:
        failed = [(done.stdout + done.stderr)[-2_000:]]
    left_out = [line.partition("] ")[2] for line in said if line.startswith("SKIPPED ")]
    measured = {"left_out": left_out, "seconds": round(time.time() - began)}
    return {"variables": NUMERICS[numerics], **counts, "which": failed, **measured}


def keep(entries: list[dict[str, Any]]) -> None:
    """Write the record, whole or not at all."""
    RECORD.parent.mkdir(exist_ok=True)
    beside = RECORD.with_suffix(".part")
    beside.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    os.replace(beside, RECORD)


def with_new(entries: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the latest entry of each setting in each place.

    Examples
    --------
    >>> with_new([{"setting": "zen", "where": "here", "when": "1"}], [{"setting": "zen", "where": "here", "when": "2"}])
    [{'setting': 'zen', 'where': 'here', 'when': '2'}]
    """
    latest = {(e["setting"], str(e["where"])): e for e in sorted([*entries, *new], key=lambda e: e["when"])}
    return list(latest.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "numerics", nargs="*", metavar="setting", help=f"any of {', '.join(NUMERICS)}; all if none is named"
    )
    parser.add_argument("--jobs", default="auto", help="processes")
    parser.add_argument("--tests", nargs="+", default=[], help="as pytest takes them; all that compute if not given")
    parser.add_argument("--keep", type=Path, help="a folder for what pytest says")
    parser.add_argument("--take", type=Path, nargs="+", help="records of other machines to add, running nothing")
    arguments = parser.parse_args()
    if arguments.take:
        for path in arguments.take:
            keep(with_new(json.loads(RECORD.read_text("utf-8")), json.loads(path.read_text("utf-8"))))
        return
    if unknown := set(arguments.numerics) - set(NUMERICS):
        parser.error(f"{', '.join(sorted(unknown))}: no such setting. There are {', '.join(NUMERICS)}.")
    here, failures = where(), 0
    for numerics in arguments.numerics or NUMERICS:
        if not possible(numerics):
            print(f"{numerics}: this processor has no {NEEDS[numerics]}, left out")
            continue
        print(f"{numerics}: ", end="", flush=True)
        found = {"setting": numerics, "when": time.strftime("%Y-%m-%d %H:%M"), "where": here}
        found |= run(numerics, arguments.jobs, arguments.tests, arguments.keep)
        failures += len(found["which"])
        print(
            ", ".join(f"{found[kind]} {kind}" for kind in ("passed", "failed", "error", "skipped")),
            *found["which"],
            sep="\n  ",
        )
        entries = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
        keep(with_new(entries, [found]))
    print("All green." if not failures else f"{failures} failed.")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
