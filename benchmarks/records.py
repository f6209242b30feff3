"""Tables on record, run again: whether the present code reproduces them.

``python benchmarks/records.py`` runs the first two seeds on record of every row of every quick table again, and
compares each score with that on record for the same seed. A score has moved if its mean change over these seeds is
larger than the spread between seeds on record. ``--jobs 16`` on a larger machine, ``--limit`` for a part. Finished
parts are saved next to the output, and the same command resumes where it was stopped. ``--missing`` runs what the
record has no comparison of. Rows that were not run keep their comparison and its date.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pindown_papers
from _settings import ROOT, where
from pindown_papers import Record, Results

OUTPUT = Path(__file__).parent / "results" / "records.json"
LEAST = 0.01
"""A change that is no change, whatever the spread: rounding of tables, other kernels."""


def on_record() -> list[Record]:
    """Return the records of all quick tables."""
    return [
        record for path in sorted((ROOT / "docs" / "results").glob("*-quick.jsonl")) for record in Results(path).read()
    ]


def wanted(records: Iterable[Record], n_seeds: int) -> list[Record]:
    """Return the first seeds on record of every row, the shortest runs first."""
    rows = defaultdict(list)
    for record in sorted(records, key=lambda r: r.seed):
        rows[record.experiment, record.row].append(record)
    return sorted((record for row in rows.values() for record in row[:n_seeds]), key=lambda r: r.seconds)


def again(record: Record) -> Record:
    """Run one row and seed with the settings of the table."""
    import torch

    torch.set_num_threads(1)
    (experiment,) = (e for e in pindown_papers.EXPERIMENTS if e.name == record.experiment)
    if not record.answers(experiment, experiment.quick):
        raise ValueError(f"{record.experiment} row {record.row} was recorded with other settings than it has today")
    (row,) = (row for row in experiment.rows if row.number == record.row)
    (found,) = pindown_papers.reproduce(experiment, experiment.quick, [(row, record.seed)], device="cpu")
    return found


def run(todo: list[Record], results: Results, jobs: int, limit: float) -> int:
    """Run what is not done yet, and save each result when it is finished; return how many could not be run."""
    done = {(r.experiment, r.row, r.seed) for r in results.open()}
    todo = [r for r in todo if (r.experiment, r.row, r.seed) not in done]
    began, failed = time.time(), 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        doing = {}
        for record in todo:
            if record.seconds <= limit:
                doing[pool.submit(again, record)] = record
        for count, future in enumerate(as_completed(doing), 1):
            record = doing[future]
            try:
                results.append(future.result())
            except Exception as error:  # of one row, such as a package that is not there: others are worth their time
                print(f"{record.experiment} {record.row}: {error!r}", flush=True)
                failed += 1
                continue
            print(f"{count} of {len(doing)}, {time.time() - began:.0f} s: {record.experiment} {record.row}", flush=True)
    return failed


def compared(records: list[Record], found: list[Record], when: str) -> list[dict[str, Any]]:
    """Return by how much each score of each row has changed, and how much it varies between seeds on record."""
    kept: dict[tuple[str, int], dict[int, Record]] = defaultdict(dict)
    for record in records:
        kept[record.experiment, record.row][record.seed] = record
    rows: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in found:
        rows[record.experiment, record.row].append(record)
    lines = []
    for (experiment, number), new in sorted(rows.items()):
        old = kept[experiment, number]
        for score in sorted(set.intersection(*(set(r.scores) for r in (*new, *old.values())))):  # not all have each
            if "fit, s" in score:
                continue
            change = np.mean([r.scores[score] - old[r.seed].scores[score] for r in new])
            values = [r.scores[score] for r in old.values()]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
            moved = abs(change) > max(LEAST, 0.0 if np.isnan(spread) else spread)
            lines.append(
                {"experiment": experiment, "row": number, "when": when, "score": score,
                 "seeds": sorted(r.seed for r in new),
                 "recorded": float(np.mean([old[r.seed].scores[score] for r in new])), "change": float(change),
                 "spread": None if np.isnan(spread) else spread, "moved": bool(moved)}
            )  # fmt: skip
    return lines


def with_new(lines: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return comparisons; new ones of a row replace the old ones.

    Examples
    --------
    >>> was = [{"experiment": "a", "row": 1, "score": "r2"}, {"experiment": "a", "row": 2, "score": "r2"}]
    >>> with_new(was, [{"experiment": "a", "row": 2, "score": "mcc"}])
    [{'experiment': 'a', 'row': 1, 'score': 'r2'}, {'experiment': 'a', 'row': 2, 'score': 'mcc'}]
    """
    again = {(line["experiment"], line["row"]) for line in new}
    kept = [line for line in lines if (line["experiment"], line["row"]) not in again]
    return sorted([*kept, *new], key=lambda line: (line["experiment"], line["row"], line["score"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=2, help="how many of the seeds on record")
    parser.add_argument("--limit", type=float, default=float("inf"), help="leave out runs that took more seconds")
    parser.add_argument("--only", default="", help="experiments whose names begin so")
    parser.add_argument("--missing", action="store_true", help="only seeds of rows that were never compared")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    records = on_record()
    was = json.loads(arguments.output.read_text(encoding="utf-8"))["rows"] if arguments.output.exists() else []
    known = {(line["experiment"], line["row"], seed) for line in was for seed in line["seeds"]}
    todo = [r for r in wanted(records, arguments.seeds) if r.experiment.startswith(arguments.only)]
    if arguments.missing:
        todo = [r for r in todo if (r.experiment, r.row, r.seed) not in known]
    results = Results(arguments.output.with_suffix(".jsonl"))
    failed = run(todo, results, arguments.jobs, arguments.limit)
    lines = with_new(was, compared(records, results.read(), time.strftime("%Y-%m-%d")))
    record = {"where": where(), "rows": lines}
    arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    moved = [line for line in lines if line["moved"]]
    for line in moved:
        print(
            f"{line['experiment']} row {line['row']}, {line['score']}: {line['recorded']:.4f} {line['change']:+.4f}, "
            f"between seeds ± {line['spread'] or 0:.4f}"
        )
    n_samples = len({(line["experiment"], line["row"]) for line in lines})
    print(f"{len(lines)} scores of {n_samples} rows, {len(moved)} moved; {failed} runs failed.")
    sys.exit(bool(moved or failed))


if __name__ == "__main__":
    main()
