"""Whether a `Dictionary` distinguishes samples: how often `checks.distinct_latents` is right where folds are known.

Run ``python benchmarks/told_apart.py`` (seeds 900 to 929, a quarter of an hour on one core), or in parts, as
``noise_bands.py`` is run. Each seed has two simulations of three latents: one drawn at random, and the worst of five,
the first included, in which observations of distant latents are nearest to each other. One start of 200 steps folds
some of both. If the two simulations are the same, it counts once. Thresholds were chosen on seeds 500 to 672. The
baselines are two other statistics of the same latents: how much of X they leave unexplained, and the fraction of
samples at which the encoder reverses orientation. The table is written to docs/results/checks.md and saved in results/.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch
from _measure import save
from _parts import asked, put_into, runs, spans
from noise_bands import PAGE
from pindown_papers.simulations import separation
from sklearn.metrics import roc_auc_score

from pindown import Dictionary
from pindown.auditing.checks.encoders import distinct_latents, structure_kept
from pindown.metrics import mcc
from pindown.networks.folding import find_folding
from pindown.simulate import Structured

SUPPORT = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]]
WORLDS = ("any", "least separated of five")
REPORT = 900, 930
GOOD, FOLDED = 0.95, 0.9
"""MCC from which latents are recovered, and below which one is folded."""


def world_of(kind: int, seed: int) -> Structured:
    """Return a simulation, or the one of five in which observations of distant latents are nearest to each other."""
    drawn = [Structured.well_posed(SUPPORT, n_candidates=5, random_state=10 * seed + k) for k in range((1, 5)[kind])]
    return min(drawn, key=separation) if kind else drawn[0]


def looked_at(kind: int, seed: int) -> list[dict[str, Any]]:
    """Return three statistics of a short fit on new samples, and the truth."""
    start, world = time.perf_counter(), world_of(kind, seed)
    train, test = world.sample(3_000, random_state=seed), world.sample(1_000, random_state=seed + 1_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = Dictionary(3, n_restarts=1, max_iter=200, batch_size=256, verbose=False, device="cpu", random_state=seed)
        codes = est.fit(train.x).transform(test.x)
    rows = test.x.double().numpy()
    told, apart = structure_kept(est.transform, rows), distinct_latents(est.transform, rows)
    return [
        {
            "world": WORLDS[kind],
            "seed": seed,
            "separation": separation(world),
            "mcc": float(mcc(codes, test.z)),
            "apart": apart.statistic,
            "outcome": apart.outcome,
            "untold": 1 - told.statistic,
            "untold_outcome": told.outcome,
            "turned": find_folding(est.encoder_.double(), test.x.double()).share,
            "seconds": time.perf_counter() - start,
        }
    ]


def report(found: list[dict[str, Any]]) -> None:
    """Save all runs, and put the counts into their page."""
    found = list({(run["seed"], run["separation"]): run for run in found}.values())
    good, folded = ([r for r in found if keep(r["mcc"])] for keep in (lambda m: m > GOOD, lambda m: m < FOLDED))
    names = {"apart": "rows told apart", "untold": "signal told", "turned": "share turned over"}
    auc = {
        name: float(roc_auc_score([0] * len(good) + [1] * len(folded), [r[name] for r in good + folded]))
        for name in names
    }
    rows = [
        {
            "codes": kind,
            "runs": len(some),
            **{outcome: sum(r["outcome"] == outcome for r in some) for outcome in ("holds", "undecided", "fails")},
            "refused by what they tell": sum(r["untold_outcome"] == "fails" for r in some),
            **{name: [round(float(q), 4) for q in np.quantile([r[name] for r in some], (0, 0.5, 1))] for name in names},
        }
        for kind, some in (
            (f"recovered (MCC > {GOOD})", good),
            ("between", [r for r in found if FOLDED <= r["mcc"] <= GOOD]),
            (f"folded (MCC < {FOLDED})", folded),
        )
        if some
    ]
    seconds = sum(r["seconds"] for r in found)
    save("told_apart", [*rows, {"auc": auc, "core_seconds": seconds, "torch": torch.__version__}, *found])
    lines = [
        "| codes | fits | holds | undecided | fails | statistic: least, median, most | fails by what codes tell |",
        "|---|---:|---:|---:|---:|---|---:|",
    ]
    for row in rows:
        least, middle, most = row["apart"]
        cells = (row["codes"], row["runs"], row["holds"], row["undecided"], row["fails"])
        spread = f"{least:.3f}, {middle:.3f}, {most:.3f}"
        lines.append(f"| {' | '.join(map(str, cells))} | {spread} | {row['refused by what they tell']} |")
    areas = ", ".join(f"{names[name]} {value:.2f}" for name, value in auc.items())
    text = f"Seeds {spans(r['seed'] for r in found)}.\n\n" + "\n".join(lines)
    text += f"\n\nHow well each statistic orders recovered before folded codes (area under the curve): {areas}."
    put_into(PAGE.with_name("checks.md"), text, "folded dictionaries")
    print(text)


def main() -> None:
    wanted = asked(__doc__)
    chosen = [k for k, name in enumerate(WORLDS) if wanted.only in name]
    found = runs(looked_at, [(k, seed) for seed in range(*wanted.seeds or REPORT) for k in chosen], wanted)
    if wanted.to is None:
        report(found)


if __name__ == "__main__":
    main()
