"""How often audits make true and false claims, whether agreement shows what is identified, and what an audit costs.

Run ``python benchmarks/audit.py`` (seeds 2 to 35, all cores), or in parts whose runs are written to files,
``python benchmarks/audit.py --seeds 2 10 --to some.jsonl``, and ``--parts *.jsonl`` for the table of all of them.
Bounds were chosen on seeds 0, 1 and from 100 on. The table is printed, written to docs/results/audits.md, and saved in
results/.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _measure import save
from _parts import asked, put_into, runs, spans
from pindown_papers.simulations import in_hyperplane
from sklearn.metrics import roc_auc_score

from pindown import networks
from pindown.auditing import audit as audit_module
from pindown.auditing.audit import audit
from pindown.methods import Classify, Contrast, Dictionary, Forget
from pindown.simulate import Clusters, Nuisance, Pairs, Structured

REPORT = 2, 36
PAGE = Path(__file__).parents[1] / "docs" / "results" / "audits.md"
SUPPORT = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]]

Made = tuple[Any, np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class Case:
    """A simulation: whether it is identified, and whether agreement between fits should show that."""

    world: str
    identified: bool
    make: Callable[[int], Made]
    by_agreement: bool = True


def pairs(seed: int, *, shuffled: bool = False) -> Made:
    sample = Pairs.on_sphere(2, 10.0, random_state=seed).sample(1_000, random_state=seed + 1)
    partners = sample.x_pos.numpy()
    partners = np.random.default_rng(seed).permutation(partners) if shuffled else partners
    return Contrast(2, max_iter=150, batch_size=256), sample.x.numpy(), partners


def labels(seed: int, *, n_classes: int = 12, shuffled: bool = False, flat: bool = False) -> Made:
    world = Clusters.on_sphere(3, n_classes, 10.0, random_state=seed)
    world = replace(world, vectors=in_hyperplane(world.vectors)) if flat else world
    sample = world.sample(2_000, random_state=seed + 1)
    classes = sample.u.numpy()
    classes = np.random.default_rng(seed).permutation(classes) if shuffled else classes
    return Classify(3, max_iter=200), sample.x.numpy(), classes


def nuisance(seed: int, *, shuffled: bool = False) -> Made:
    sample = Nuisance.on_sphere(6, 3, 10.0, n_layers=1, random_state=seed).sample(4_000, random_state=seed + 1)
    values = sample.u.numpy()
    values = np.random.default_rng(seed).permutation(values) if shuffled else values
    return Forget(4, encoder=networks.linear, max_iter=60), sample.x.numpy(), values


def structure(seed: int, *, torn: bool = False) -> Made:
    sample = Structured.well_posed(SUPPORT, n_candidates=5, random_state=seed).sample(6_000, random_state=seed + 1)
    x = np.random.default_rng(seed).permuted(sample.x.numpy(), axis=0) if torn else sample.x.numpy()
    return Dictionary(3, n_restarts=1 if torn else 3, max_iter=60 if torn else 300, batch_size=256), x, None


CASES = (
    Case("pairs", True, pairs),
    Case("pairs, shuffled", False, lambda seed: pairs(seed, shuffled=True)),
    Case("labels", True, labels),
    Case("labels, shuffled", False, lambda seed: labels(seed, shuffled=True)),
    Case("labels, 2 classes for 3 latents", False, lambda seed: labels(seed, n_classes=2)),
    Case("labels, classes in a plane", False, lambda seed: labels(seed, flat=True), by_agreement=False),
    Case("nuisance", True, nuisance, by_agreement=False),
    Case("nuisance, shuffled", False, lambda seed: nuisance(seed, shuffled=True), by_agreement=False),
    Case("structure", True, structure),
    Case("structure, columns permuted", False, lambda seed: structure(seed, torn=True)),
)


def audited(number: int, seed: int) -> list[dict[str, Any]]:
    case = CASES[number]
    est, x, y = case.make(seed)
    est.set_params(random_state=seed, verbose=False, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = audit(est.fit(x, y), x, y, n_fits=2, random_state=seed)
    agreement = min(each.worst for each in found.agreement[:2])
    return [
        {"world": case.world, "seed": seed, "claims": found.claims, "agreement": agreement, "reasons": found.reasons}
    ]


def counted(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per simulation: how often something was claimed, and how well fits agreed."""
    rows = []
    for case in CASES:
        own = [run for run in runs if run["world"] == case.world]
        values = np.array([run["agreement"] for run in own])
        rows.append(
            {
                "world": case.world,
                "identified": case.identified,
                "seeds": spans(run["seed"] for run in own),
                "runs": len(own),
                "claims": sum(run["claims"] for run in own),
                "agreement, least": float(values.min()),
                "agreement, median": float(np.median(values)),
                "agreement, most": float(values.max()),
                "reasons": sorted({reason for run in own for reason in run["reasons"]})[:20] if case.identified else [],
            }
        )
    return rows


def separation(runs: list[dict[str, Any]]) -> float:
    """Return how well agreement alone separates identified simulations from others (area under the ROC curve)."""
    cases = {case.world: case for case in CASES}
    told = [(cases[run["world"]].identified, run["agreement"]) for run in runs if cases[run["world"]].by_agreement]
    identified, agreement = zip(*told, strict=True)
    return float(roc_auc_score(identified, agreement))


def cost(n_samples: int = 20_000, n_features: int = 50, d: int = 8) -> dict[str, Any]:
    """Measure the time of an audit without its fits, and the size of its page."""
    world = Clusters.on_sphere(d, 40, 10.0, random_state=0)
    sample = world.sample(n_samples, random_state=1)
    lift = np.random.default_rng(0).normal(size=(d, n_features))
    x, y = sample.x.numpy() @ lift, sample.u.numpy()
    est = Classify(d, max_iter=100, verbose=False, random_state=0).fit(x, y)
    spent, refit = [], audit_module.refit

    def timed(*args: Any, **settings: Any) -> Any:
        start = time.perf_counter()
        result = refit(*args, **settings)
        spent.append(time.perf_counter() - start)
        return result

    audit_module.refit = timed
    start = time.perf_counter()
    found = audit(est, x, y, random_state=0)
    total = time.perf_counter() - start
    audit_module.refit = refit
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        page = found.save(Path(folder) / "audit.html")
        return {
            "rows": n_samples,
            "features": n_features,
            "latents": d,
            "fits_s": spent[0],
            "beyond_fits_s": total - spent[0],
            "page_s": time.perf_counter() - start,
            "page_MB": page.stat().st_size / 1e6,
        }


def report(runs: list[dict[str, Any]], costs: dict[str, Any]) -> None:
    """Save the counts, and put the table into its page."""
    rows, auc = counted(runs), separation(runs)
    save("audit", [*rows, {"agreement_auc": auc}, costs])
    null, shuffled = (
        [row for row in rows if not row["identified"] and some in row["world"]] for some in ("", "shuffled")
    )
    text = (
        f"Seeds {spans(run['seed'] for run in runs)}. On shuffled side information there are {_claims(shuffled)}, in "
        f"all worlds in which nothing can be claimed {_claims(null)}. Agreement alone tells identified worlds from "
        f"others with an area under the ROC curve of {auc:.3f}. An audit of {costs['rows']:,} × {costs['features']} "
        f"with {costs['latents']} latents takes {costs['beyond_fits_s']:.0f} s beyond its fits, its page has "
        f"{costs['page_MB']:.1f} MB."
    )
    names = ("world", "identified", "runs", "claims", "agreement, least", "agreement, median", "agreement, most")
    lines = [f"| {' | '.join(names)} |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        cells = (f"{row[name]:.3f}" if isinstance(row[name], float) else str(row[name]) for name in names)
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines).replace("True", "yes").replace("False", "no")
    put_into(PAGE, f"{text}\n\n{table}")
    print(text, table, sep="\n\n")


def _claims(rows: list[dict[str, Any]]) -> str:
    return f"{sum(row['claims'] for row in rows)} claims in {sum(row['runs'] for row in rows)} runs"


def main() -> None:
    wanted = asked(__doc__)
    chosen = [k for k, case in enumerate(CASES) if wanted.only in case.world]
    found = runs(audited, [(k, seed) for seed in range(*wanted.seeds or REPORT) for k in chosen], wanted)
    if wanted.to is None:
        report(found, cost())


if __name__ == "__main__":
    main()
