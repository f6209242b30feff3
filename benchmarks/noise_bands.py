"""Whether the band that an audit gives for noisy data contains the true score, and whether true claims are made.

Run ``python benchmarks/noise_bands.py`` (seeds 200 to 299, all cores; eight minutes on sixteen), or in parts whose
runs are written to files, ``python benchmarks/noise_bands.py --seeds 200 250 --to some.jsonl``, and ``--parts *.jsonl``
for the table of all of them, together with those on record if there are fewer than a hundred. The width of bands, and
how fits are compared, were chosen on seeds from 1000 on. The table is written to docs/results/audits.md and saved in
results/.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import save
from _parts import asked, put_into, runs, spans

from pindown import networks
from pindown.auditing.audit import audit
from pindown.auditing.checks.noise import Ceiling, band
from pindown.data.data import Data
from pindown.methods import Classify, Contrast, Dictionary, Forget
from pindown.simulate import Clusters, Nuisance, Pairs, Structured

REPORT = 200, 300
RECORD = Path(__file__).parent / "results" / "noise_bands_cpu.json"
ENOUGH = 100
"""Runs of a world from which others that are on record are left aside."""

PAGE = Path(__file__).parents[1] / "docs" / "results" / "audits.md"
COLUMNS, SHARES = 30, (0.1, 0.3, 0.5)
ROWS = 2_800  # so that half of what an audit learns from is not so few that fits divide it into folds
SUPPORT = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]] * (COLUMNS // 6)

Made = tuple[Any, np.ndarray, np.ndarray | None, np.ndarray]
"""An estimator, X, its side variable, and the latents."""


@dataclass(frozen=True)
class Case:
    """A simulation: how it is drawn for a seed and a fraction of noise; and whether anything can be claimed."""

    world: str
    make: Callable[[int, float, bool], Made]
    share: float
    shuffled: bool = False


def spread_over_columns(signal: Any, share: float, seed: int) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Return a linear map of the signal to many features, and a function that adds noise of a fraction of variance."""
    rng = np.random.default_rng([seed, 1])
    lift = rng.normal(size=(signal.shape[1], COLUMNS))
    size = (signal.numpy() @ lift).std(0) * np.sqrt(share / (1 - share))
    return lift, lambda x: x + rng.normal(size=x.shape) * size


def pairs(seed: int, share: float, shuffled: bool) -> Made:
    sample = Pairs.on_sphere(3, 10.0, random_state=seed).sample(ROWS, random_state=seed + 1)
    lift, noisy = spread_over_columns(sample.x, share, seed)
    x, partners = (noisy(part.numpy() @ lift) for part in (sample.x, sample.x_pos))
    partners = np.random.default_rng(seed).permutation(partners) if shuffled else partners
    return Contrast(3, max_iter=100, batch_size=256), x, partners, sample.z.numpy()


def labels(seed: int, share: float, shuffled: bool) -> Made:
    sample = Clusters.on_sphere(3, 12, 10.0, random_state=seed).sample(ROWS, random_state=seed + 1)
    lift, noisy = spread_over_columns(sample.x, share, seed)
    classes = np.random.default_rng(seed).permutation(sample.u.numpy()) if shuffled else sample.u.numpy()
    # The default rate of few rows is a third of this, for fits that choose their own length: 150 steps are too few.
    quick = Classify(3, max_iter=150, batch_size=256, learning_rate=1e-2)
    return quick, noisy(sample.x.numpy() @ lift), classes, sample.z.numpy()


def nuisance(seed: int, share: float, shuffled: bool) -> Made:
    sample = Nuisance.on_sphere(6, 3, 10.0, n_layers=1, random_state=seed).sample(2_000, random_state=seed + 1)
    lift, noisy = spread_over_columns(sample.x, share, seed)
    values = np.random.default_rng(seed).permutation(sample.u.numpy()) if shuffled else sample.u.numpy()
    forget = Forget(4, encoder=networks.linear, max_iter=60, batch_size=256)
    return forget, noisy(sample.x.numpy() @ lift), values, sample.z.numpy()


def structure(seed: int, share: float, shuffled: bool, n_restarts: int = 1) -> Made:
    sample = Structured.from_support(SUPPORT, n_candidates=5, random_state=seed).sample(2_000, random_state=seed + 1)
    rng, x = np.random.default_rng([seed, 1]), sample.x.numpy()
    x = x + rng.normal(size=x.shape) * x.std(0) * np.sqrt(share / (1 - share))
    x = rng.permuted(x, axis=0) if shuffled else x
    return Dictionary(3, n_restarts=n_restarts, max_iter=200, batch_size=256), x, None, sample.z.numpy()


def two_restarts(seed: int, share: float, shuffled: bool) -> Made:
    return structure(seed, share, shuffled, n_restarts=2)


CASES = (
    *(
        Case(make.__name__ + (", shuffled" if shuffled else ""), make, share, shuffled)
        for make in (pairs, labels, nuisance, structure)
        for share, shuffled in (*((share, False) for share in SHARES), (0.3, True))
    ),
    Case("structure, two restarts", two_restarts, 0.1),
)
N_SHUFFLED = 25
"""Seeds of worlds whose side information belongs to other rows, or whose columns were permuted."""


def audited(number: int, seed: int) -> list[dict[str, Any]]:
    """Audit one noisy simulation; return the result and the truth."""
    case, start = CASES[number], time.perf_counter()
    est, x, y, z = case.make(seed, case.share, case.shuffled)
    est.set_params(random_state=seed, verbose=False, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = Data(x, truth=z, **({} if y is None else {est.spec.roles.y: y}))
        found = audit(est.fit(x, y), data, n_fits=2, random_state=seed)
    record = {
        "world": case.world,
        "condition": case.share,
        "seed": seed,
        "claims": found.claims,
        "reasons": found.reasons,
        "noise": found.noise,
        "agreement": min(each.worst for each in found.agreement),
        "seconds": time.perf_counter() - start,
    }
    if found.band is not None:
        true = next(score.value for score in found.recovery if score.name == found.band.score)
        record |= {"score": found.band.score, "low": found.band.low, "high": found.band.high, "true": true}
        record |= {"ceiling": found.band.ceiling, "held": found.band.holds(true)}
    return [record]


def banded_again(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run with the band that follows from its ceiling and agreement, by the present width of bands."""
    if "true" not in run:
        return run
    found = band(Ceiling(run["score"], run["ceiling"]), run["agreement"], run["noise"])
    return run | {"low": found.low, "high": found.high, "held": found.holds(run["true"])}


def counted(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per simulation and fraction of noise: how often the band contained the score, and the claims."""
    rows, runs = [], list(map(banded_again, runs))
    for case in CASES:
        own = [run for run in runs if (run["world"], run["condition"]) == (case.world, case.share)]
        if not own:
            continue
        banded = [run for run in own if "true" in run]
        middle = {name: float(np.median([run[name] for run in banded])) for name in ("true", "low", "high") if banded}
        rows.append(
            {
                "world": case.world,
                "noise": case.share,
                "runs": len(own),
                "seeds": spans(run["seed"] for run in own),
                "measured": float(np.median([run["noise"] for run in own])),
                "banded": len(banded),
                "held": sum(run["held"] for run in banded),
                "claims": sum(run["claims"] for run in own),
                "seconds": float(np.median([run["seconds"] for run in own])),
                **middle,
                "score": banded[0]["score"] if banded else "",
                "reasons": sorted({reason for run in own for reason in run["reasons"]})[:20],
            }
        )
    return rows


def on_record(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return these rows in the order of the cases, those with too few runs together with what is on record for others.

    Medians of two sets of runs are weighted by their number.
    """
    saved = json.loads(RECORD.read_text(encoding="utf-8"))["rows"] if RECORD.exists() else []
    old, new = ({(row["world"], row["noise"]): row for row in some if "world" in row} for some in (saved, rows))
    found = []
    for case in CASES:
        here, there = new.get((case.world, case.share)), old.get((case.world, case.share))
        if here is None or there is None:
            found += [row for row in (here, there) if row is not None]
        elif here["runs"] >= (N_SHUFFLED if case.shuffled else ENOUGH):
            found.append(here)
        else:
            found.append(joined(there, here))
    return found


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return one row for two sets of seeds.

    Examples
    --------
    >>> lots = ({"runs": 3, "held": 3, "seeds": "0–2", "true": 0.5, "reasons": []},
    ...         {"runs": 1, "held": 0, "seeds": "9", "true": 0.9, "reasons": ["so"]})
    >>> joined(*lots)
    {'runs': 4, 'held': 3, 'seeds': '0–2, 9', 'true': 0.6, 'reasons': ['so']}
    """
    n, m = first["runs"], second["runs"]
    row = {}
    for name, value in first.items():
        other = second.get(name, value)
        if name in ("runs", "banded", "held", "claims"):
            row[name] = value + other
        elif name == "seeds":
            row[name] = f"{value}, {other}"
        elif name == "reasons":
            row[name] = sorted({*value, *other})[:20]
        elif name in ("measured", "seconds", "true", "low", "high"):
            row[name] = round((n * value + m * other) / (n + m), 6)
        else:
            row[name] = value
    return row


def report(runs: list[dict[str, Any]]) -> None:
    """Save the counts, and put the table into its page."""
    rows = on_record(counted(runs))
    save(
        "noise_bands",
        [
            *rows,
            {"core_seconds": sum(run["seconds"] for run in runs), "numpy": np.__version__, "torch": torch.__version__},
        ],
    )
    lines = [
        "| world | noise | measured | score of the true latents | median | band, median | held it | claims |",
        "|---|---:|---:|---|---:|---|---:|---:|",
    ]
    for row in rows:
        band = f"{row['low']:.3f} to {row['high']:.3f}" if row["banded"] else "–"
        true, held = (f"{row['true']:.3f}", f"{row['held']} of {row['banded']}") if row["banded"] else ("–", "–")
        true, held = ("–", "–") if "shuffled" in row["world"] else (true, held)
        cells = (row["world"], f"{row['noise']:.0%}", f"{row['measured']:.1%}", row["score"], true, band, held)
        lines.append(f"| {' | '.join(cells)} | {row['claims']} of {row['runs']} |")
    text = f"{COLUMNS} columns; seeds of each row are in the record.\n\n" + "\n".join(lines)
    put_into(PAGE, text, "noise")
    print(text)


def main() -> None:
    wanted = asked(__doc__)
    chosen = [k for k, case in enumerate(CASES) if wanted.only in case.world]
    seeds = range(*wanted.seeds or REPORT)
    jobs = [(k, seed) for seed in seeds for k in chosen if not CASES[k].shuffled or seed < seeds.start + N_SHUFFLED]
    found = runs(audited, jobs, wanted)
    if wanted.to is None:
        report(found)


if __name__ == "__main__":
    main()
