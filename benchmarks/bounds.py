"""How far the bounds of the tests are from the values that they bound: mean, spread and margin over seeds and numerics.

``python benchmarks/bounds.py`` runs every test and doctest that asserts that something is larger or smaller, with
shifted seeds and with the kernels of other machines; ``--jobs 16`` on a larger machine. Finished parts are saved next
to the output, so that the same command resumes where it was stopped. Bounds that a run has not reached stay on record
as an earlier one measured them, if the test still asserts them. The command exits with an error if a bound is less
than three standard deviations from the mean.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import itertools
import json
import subprocess
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from _settings import NUMERICS, ROOT, environment, where

OUTPUT = Path(__file__).parent / "results" / "bounds.json"
SETTINGS = [*(("default", shift) for shift in range(5)), *((name, 0) for name in NUMERICS if name != "default")]
"""Five worlds, and the first of them with other kernels."""
ENOUGH = 3.0
"""Spreads between the mean and its bound."""
UNIT_SECONDS = 25
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
LEFT_OUT = {
    "test_cli.py", "test_docs.py", "test_page.py", "test_audit_page.py", "test_tables.py", "test_package.py",
    "test_losses_processes.py",
}  # fmt: skip
"""Tests of text and pages, in which nothing that is compared depends on seeds; one whose other processes do not know
of a shift, so that both sides would be of different worlds."""


# which tests


def compares(tree: ast.AST) -> bool:
    """Return whether there is an inequality anywhere below a node."""
    return any(isinstance(node, ast.Compare) and isinstance(node.ops[0], ORDER) for node in ast.walk(tree))


def of_file(path: Path) -> Iterator[str]:
    """Yield the tests of a file that compare; the whole file if a helper of theirs does."""
    name = str(path.relative_to(ROOT))
    parts = ast.parse(path.read_text(encoding="utf-8")).body
    asserting = [p for p in parts if any(isinstance(n, ast.Assert) and compares(n.test) for n in ast.walk(p))]
    names = [p.name for p in asserting if isinstance(p, ast.FunctionDef) and p.name.startswith("test_")]
    yield from [f"{name}::{each}" for each in names] if len(names) == len(asserting) else [name]


def with_doctests(path: Path) -> bool:
    """Return whether an example in a file is an inequality that holds."""
    try:
        examples = doctest.DocTestParser().get_examples(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return any(example.want == "True\n" and compares(ast.parse(example.source)) for example in examples)


def tests() -> list[str]:
    """Return all tests and doctests that compare, as pytest takes them."""
    files = [*sorted((ROOT / "tests").glob("test_*.py")), *sorted((ROOT / "docs" / "own_method").glob("test_*.py"))]
    found = [test for path in files if path.name not in LEFT_OUT for test in of_file(path)]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.py"))]
    return found + [str(path.relative_to(ROOT)) for path in pages if with_doctests(path)]


def units(names: list[str], seconds: dict[str, float]) -> list[list[str]]:
    """Divide tests into parts of half a minute or a file, whole files together since they share what they fit."""
    files = defaultdict(list)
    for name in names:
        files[name.partition("::")[0]].append(name)
    costs = {file: seconds.get(file, 15.0 if files[file] == [file] else 2.0 * len(files[file])) for file in files}
    parts: list[list[str]] = []
    loads: list[float] = []
    for file in sorted(files, key=lambda f: -costs[f]):
        fits = [i for i, load in enumerate(loads) if load + costs[file] <= UNIT_SECONDS]
        if fits:
            parts[fits[0]] += files[file]
            loads[fits[0]] += costs[file]
        else:
            parts.append(list(files[file]))
            loads.append(costs[file])
    return parts


# running


def run(names: list[str], shift: int, numerics: str, path: Path, until: float) -> str:
    """Run tests in a separate process, unless that was done; return the error if it was aborted."""
    if path.exists():
        return ""
    if time.time() > until:
        return "no time left"
    files = sorted({name.partition("::")[0] for name in names})
    going_on = ["--doctest-continue-on-failure", "--continue-on-collection-errors"]
    command = [sys.executable, "-m", "pytest", "-p", "_comparing", "-q", *going_on, *files]
    asked = {"PINDOWN_TESTS": " ".join(names), "PINDOWN_SEED_SHIFT": str(shift), "PINDOWN_BOUNDS": str(path)}
    variables = environment(numerics, **asked, CUDA_VISIBLE_DEVICES="")
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    return "" if path.exists() else (done.stdout + done.stderr)[-2_000:]


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all tests under all settings; return the notes of each part."""
    known = json.loads(OUTPUT.read_text(encoding="utf-8"))["seconds"] if OUTPUT.exists() else {}
    parts = units(arguments.tests or tests(), known)
    folder = arguments.output.with_suffix(".parts")
    folder.mkdir(parents=True, exist_ok=True)
    began, notes = time.time(), []
    until = began + (arguments.limit or float("inf"))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        doing = {}
        # The longest in all settings first, so that none is begun when the others are done.
        for names, (numerics, shift) in itertools.product(parts, arguments.settings):
            path = folder / f"{numerics}-{shift}-{zlib.crc32(' '.join(names).encode()):08x}.json"
            doing[pool.submit(run, names, shift, numerics, path, until)] = (path, shift, numerics)
        for count, future in enumerate(as_completed(doing), 1):
            path, shift, numerics = doing[future]
            wrong = future.result()
            print(f"{count} of {len(doing)}, {time.time() - began:.0f} s: {path.stem} {wrong}", flush=True)
            if not wrong:
                notes.append({"shift": shift, "numerics": numerics} | json.loads(path.read_text(encoding="utf-8")))
    return notes


# summing up


def rows(notes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean, spread and margin of each comparison whose sides depend on seeds or numerics."""
    places: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for part in notes:
        for seen in part["compared"]:
            places[seen["test"], seen["text"], seen["part"], seen["k"]].append(
                seen | {"plain": (part["shift"], part["numerics"]) == (0, "default")}
            )
    found = [row(*place, seen) for place, seen in places.items()]
    worst: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in filter(None, found):  # of those in a loop, the one with the least margin
        if place(each) not in worst or each["margin"] < worst[place(each)]["margin"]:
            worst[place(each)] = each
    return list(worst.values())


def place(each: dict[str, Any]) -> tuple[str, str, int]:
    """Return the sort key of a bound in the table."""
    return each["test"], each["bound"], each["part"]


def row(test: str, text: str, part: int, k: int, seen: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the statistics of one comparison, or None where nothing varies."""
    slack = np.array([each["slack"] for each in seen])
    if len(slack) < 2 or np.ptp(slack) <= 1e-12 * np.abs(slack).max():
        return None
    usual = [each["slack"] for each in seen if each["plain"]]
    holds = -1 if usual and usual[0] < 0 else 1  # asserted not to hold, as in (r2 > 0.9) == related
    mean = {}
    if "bound" in seen[0]:
        sign = 1 if seen[0]["at_least"] else -1
        mean = {"mean": float(seen[0]["bound"] + sign * slack.mean())}
    (spread, margin), by_ratio = towards(holds * slack), False
    sides = np.array([each["sides"] for each in seen])
    if (sides > 0).all():
        of_logs, margin_of_logs = towards(holds * np.log(sides[:, 1] / sides[:, 0]))
        if margin_of_logs > max(margin, 0):
            spread, margin, by_ratio = of_logs, margin_of_logs, True
    return {
        "test": test, "bound": text, "part": part, **mean, "slack": float(holds * slack.mean()), "spread": spread,
        "by_ratio": by_ratio, "margin": margin, "runs": len(slack), "missed": int((holds * slack < 0).sum()),
    }  # fmt: skip


def towards(slack: np.ndarray) -> tuple[float, float]:
    """Return the one-sided standard deviation of a margin, and how many of them the mean is away from the bound."""
    away = slack - slack.mean()
    # What lies on the far side of the mean does not threaten the bound: an R² may be -1 or -50 where chance is.
    spread = np.sqrt(2 * np.square(away[away < 0]).sum() / (len(slack) - 1))
    return float(spread), float(min(slack.mean() / spread, 1e6))


def is_level(each: dict[str, Any]) -> bool:
    """Return whether a bound is the level of a test: the fraction of p-values below it is as large as the level."""
    return "pvalue" in each["bound"]


def statements(notes: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Return which statements failed, or which tests were aborted, in which settings."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for part in notes:
        for test, text in part[key].items() if isinstance(part[key], dict) else part[key]:
            found[test, "" if key == "broken" else text].append(f"{part['numerics']} {part['shift']}")
    return [{"test": test, "text": text, "in": sorted(set(runs))} for (test, text), runs in sorted(found.items())]


def by_file(notes: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean seconds that the tests of a file take."""
    seconds: dict[str, float] = defaultdict(float)
    runs = len({(part["shift"], part["numerics"]) for part in notes})
    for part in notes:
        for test, time_ in part["seconds"].items():
            seconds[test.partition("::")[0]] += time_ / runs
    return {file: round(s, 1) for file, s in sorted(seconds.items())}


def kept(before: dict[str, Any], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return earlier results on bounds that are still asserted, in tests that the new run has not reached."""
    come_to, asserted = {each["test"].partition("[")[0] for each in new}, {}
    earlier = "; ".join(f"{name} {', '.join(map(str, shifts))}" for name, shifts in before["settings"].items())
    found = []
    for each in before["rows"]:
        path = ROOT / each["test"].partition("::")[0]
        if each["test"].partition("[")[0] in come_to or path.suffix != ".py" or not path.exists():
            continue
        if path not in asserted:
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            asserted[path] = {ast.unparse(node) for node in nodes if isinstance(node, ast.Compare)}
        if each["bound"] in asserted[path]:
            found.append({"over": f"{earlier}, {before['when']}"} | each)
    return found


def thin(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the bounds that are too close to the mean."""
    return [each for each in record["rows"] if each["margin"] < ENOUGH and not is_level(each)]


def setting(text: str) -> tuple[str, int]:
    """Read one setting: numerics, and by how much seeds are shifted."""
    numerics, _, shift = text.partition(":")
    if numerics not in NUMERICS or not shift.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not as default:0. Numerics are {', '.join(NUMERICS)}.")
    return numerics, int(shift)


def settings_of(notes: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the seed shifts of each numerical setting."""
    found: dict[str, set[int]] = defaultdict(set)
    for part in notes:
        found[part["numerics"]].add(part["shift"])
    return {numerics: sorted(found[numerics]) for numerics in NUMERICS if numerics in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", help="tests as pytest takes them; all that compare if none is named")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--settings", type=setting, nargs="+", default=SETTINGS, metavar="NUMERICS:SHIFT",
        help=f"as default:0 default:1; numerics are {', '.join(NUMERICS)}",
    )  # fmt: skip
    parser.add_argument("--limit", type=float, help="seconds after which nothing more is begun")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    notes = measure(arguments)
    found = rows(notes)
    before = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.exists() else None
    record = {
        "where": where(), "when": time.strftime("%Y-%m-%d"), "settings": settings_of(notes),
        "rows": sorted(found + (kept(before, found) if before else []), key=place),
        "fallen": statements(notes, "fallen"), "broken": statements(notes, "broken"), "seconds": by_file(notes),
    }  # fmt: skip
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    few = thin(record)
    for each in sorted(few, key=lambda r: r["margin"]):
        print(
            f"{each['margin']:6.2f} spreads, {each['missed']} of {each['runs']} missed: {each['test']}: {each['bound']}"
        )
    print(f"{len(record['rows'])} bounds, {len(few)} of them thin.")
    sys.exit(bool(few))


if __name__ == "__main__":
    main()
