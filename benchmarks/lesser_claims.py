"""Claims of audits on small tables whose distribution is known, and how far they are from the truth.

Run ``python benchmarks/lesser_claims.py`` (all cores; about two seconds a run on one), or in parts, as in `_parts`.
Classes are normal distributions whose means differ in one or two of six directions, mixed by a random matrix; 300
samples. Each claim is compared with the true distribution on 5,000 new samples: features and directions by R² of a
linear map, an order of samples by rank correlation, p(label | X) by R². *Shuffled*: labels belong to other samples. The
table is written to docs/results/audits.md and saved in results/.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _measure import save
from _parts import asked, put_into, runs, spans
from scipy.special import softmax
from scipy.stats import spearmanr

from pindown import Classify, Data, audit
from pindown.metrics import linear_r2
from pindown.training import Trainer

PAGE = Path(__file__).parents[1] / "docs" / "results" / "audits.md"
REPORT = 0, 40
N_ROWS, N_FRESH, N_COLUMNS = 300, 5_000, 6


@dataclass(frozen=True)
class World:
    """The means of classes, and the number of latents of the fit."""

    name: str
    means: tuple[tuple[float, float], ...]
    d: int


WORLDS = (
    World("two classes", ((0, 0), (3, 0)), 1),
    World("three classes, one far off", ((0, 0), (4, 0), (2, 1)), 2),
    World("three classes, told for sure", ((0, 0), (12, 0), (6, 12)), 2),
)


def drawn(world: World, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return latents, labels, and the true log-odds; features are a linear map of the latents."""
    labels = np.arange(n) % len(world.means)
    means = np.zeros((len(world.means), N_COLUMNS))
    means[:, :2] = world.means
    z = rng.normal(size=(n, N_COLUMNS)) + means[labels]
    return z, labels, z @ means.T - (means**2).sum(1) / 2


def audited(number: int, seed: int) -> list[dict[str, Any]]:
    """Return the claims of one table, true and shuffled, and their errors."""
    world, rng = WORLDS[number], np.random.default_rng(seed)
    mixing = rng.normal(size=(N_COLUMNS, N_COLUMNS))
    z, labels, _ = drawn(world, N_ROWS, rng)
    fresh, known, odds = drawn(world, N_FRESH, rng)
    found = []
    for condition in ("as it is", "shuffled"):
        y = labels if condition == "as it is" else rng.permutation(labels)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            est = Classify(
                world.d, max_iter=60, trainer=Trainer(validation_fraction=0.0), verbose=False, random_state=seed
            ).fit(z @ mixing, y)
            said = audit(est, z @ mixing, y, n_fits=2, random_state=seed)
        record = {"world": world.name, "condition": condition, "seed": seed, "claims": said.claims}
        if said.claims:
            kind, score = truth_of(said, est, Data(fresh @ mixing, signal=known), odds)
            record |= {"kind": kind, "true": score}
        found.append(record | {"agreement": min(each.worst for each in said.agreement)})
    return found


def truth_of(said: Any, est: Classify, fresh: Data, odds: np.ndarray) -> tuple[str, float]:
    """Return the kind of a claim, and how well its subject agrees with the true distribution."""
    own = est.transform(fresh.X) @ est.class_vectors_.T
    subject = said.theorem.subject
    if "p(label | X)" in subject:
        told, true = est.predict_proba(fresh.X), softmax(odds, axis=1)
        return "p(label | X)", float(1 - ((told - true) ** 2).sum() / ((true - true.mean(0)) ** 2).sum())
    if "function" in said.theorem.indeterminacy.name:
        return "the order of rows", abs(float(spearmanr(own[:, 1] - own[:, 0], odds[:, 1] - odds[:, 0])[0]))
    n = est.n_components_
    centred = odds - odds.mean(1, keepdims=True)
    kind = "all directions" if "first" not in subject or "the first 2" in subject else "the first direction"
    if kind == "the first direction":
        lead = est.spec.weaker.leading(est, fresh, fresh)[:, :1]
        return kind, linear_r2(lead, (odds[:, 1] - odds[:, 0])[:, None])
    return kind, linear_r2(est.transform(fresh.X), centred[:, :n])


def report(found: list[dict[str, Any]]) -> None:
    """Save what was found, and put the table into its page."""
    save("lesser_claims", found)
    lines = [
        "| table | claimed | runs | true by, least | median | claims if shuffled |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for world in WORLDS:
        own = [run for run in found if run["world"] == world.name]
        true = [run for run in own if run["condition"] == "as it is"]
        shuffled = [run for run in own if run["condition"] == "shuffled"]
        null = f"{sum(run['claims'] for run in shuffled)} of {len(shuffled)}"
        for kind in sorted({run.get("kind", "nothing") for run in true}):
            some = [run for run in true if run.get("kind", "nothing") == kind]
            scores = [run["true"] for run in some if "true" in run]
            score = (f"{min(scores):.3f}", f"{np.median(scores):.3f}") if scores else ("–", "–")
            shown = kind.replace("|", r"\|")
            lines.append(f"| {world.name} | {shown} | {len(some)} | {score[0]} | {score[1]} | {null} |")
    text = f"Seeds {spans(run['seed'] for run in found)}, {N_ROWS} rows.\n\n" + "\n".join(lines)
    put_into(PAGE, text, "lesser claims")
    print(text)


def main() -> None:
    wanted = asked(__doc__)
    seeds = range(*wanted.seeds or REPORT)
    here = [k for k, world in enumerate(WORLDS) if wanted.only in world.name]
    found = runs(audited, [(k, seed) for seed in seeds for k in here], wanted)
    if wanted.to is None:
        report(found)


if __name__ == "__main__":
    main()
