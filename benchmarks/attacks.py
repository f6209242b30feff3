"""Attacks on audits: simulations and tables where nothing, or less than everything, may be claimed; and fair ones.

Run ``python benchmarks/attacks.py`` (all cores), or in parts, with ``--seeds``, ``--only``, ``--to`` and ``--parts`` as
in `_parts`. Every case is fitted with few steps and audited with two refits. A claim is *false* where no claim may be
made; where it is about all latents and the true latents are recovered, up to what the claim leaves open, with less
than ``RECOVERED``; and where the number of latents is wrong. It is *empty* if one block holds all latents. In fair
cases the latents are identified, and a missing claim is counted. The table is written to docs/results/audits.md and
saved in results/.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import save
from _parts import asked, put_into, runs, spans
from numpy.typing import NDArray
from sklearn import datasets

from pindown import Classify, Contrast, Dictionary, Forget, LatentAction, Sparse, SparseBasis, metrics, networks, theory
from pindown.auditing.agreement import matched_order, measure_for
from pindown.auditing.audit import audit
from pindown.auditing.result import Audit
from pindown.data.data import Data
from pindown.networks.spaces import Reals
from pindown.simulate import Clusters, Nuisance, Pairs, Structured
from pindown.simulate.distributions import laplace
from pindown.simulate.mixing import leaky_relu_mlp, sparse

PAGE = Path(__file__).parents[1] / "docs" / "results" / "audits.md"
SEEDS = 0, 6
N, QUICK = 2_000, 250  # samples, and steps of a fit
RECOVERED = 0.7  # least score of the true latents that a claim about all of them may have
NOTHING, LATENTS, FAIR = "nothing", "latents", "fair"  # what may be claimed: no more than the truth bears out; all

Array = NDArray[Any]


@dataclass(frozen=True)
class World:
    """An unfitted estimator, the data, and the true latents; None if there are none."""

    est: Any
    data: Any
    z: Array | None = None
    y: Any = None


@dataclass(frozen=True)
class Case:
    """A case: how it is made from a seed, and what may be claimed of it."""

    name: str
    make: Callable[[int], World]
    may: str = NOTHING


def options(seed: int, steps: int = QUICK, n: int = N) -> dict[str, Any]:
    """Return what all estimators are given."""
    return {"max_iter": steps, "batch_size": min(256, n // 4), "device": "cpu", "verbose": False, "random_state": seed}


def wider(x: Array, d: int, seed: int) -> Array:
    """Return features mixed into more than there are, if that many latents are asked for; with a little noise."""
    if d <= x.shape[1]:
        return x
    rng = np.random.default_rng(seed)
    mixed = x @ rng.normal(size=(x.shape[1], 3 * d))
    return mixed + 0.1 * mixed.std() * rng.normal(size=mixed.shape)


def numpied(*parts: torch.Tensor | None) -> list[Array]:
    """Return tensors as arrays."""
    return [part.numpy() for part in parts if part is not None]


# ---- Contrast -------------------------------------------------------------------------------------------------------


def pairs(seed: int, change: str = "", d: int = 3, n: int = N) -> World:
    """Return positives on a sphere, changed in one way."""
    rng = np.random.default_rng(seed)
    sample = Pairs.on_sphere(3, 10.0, random_state=seed).sample(n, random_state=seed + 1)
    x, x_pos, z = numpied(sample.x, sample.x_pos, sample.z)
    if change == "shuffled":
        x_pos = rng.permutation(x_pos)
    elif change == "noise":
        x, x_pos = rng.normal(size=(2, *x.shape))
    elif change == "same":
        x_pos = x.copy()
    elif change == "duplicated":
        some = rng.integers(n // 40, size=n)
        x, x_pos, z = x[some], rng.permutation(x_pos)[some], z[some]
    elif change == "constant":
        x, x_pos = np.ones_like(x) + 1e-9 * x, np.ones_like(x) + 1e-9 * rng.permutation(x_pos)
    x, x_pos = np.split(wider(np.vstack([x, x_pos]), d, seed), 2)
    return World(Contrast(d, **options(seed, n=n)), Data(x, pairs=x_pos), z)


def uneven_pairs(seed: int) -> World:
    """Return positives that are near each other on one side of a box, and far on the other."""
    rng = np.random.default_rng(seed)
    z = rng.uniform(-1, 1, size=(N, 3))
    z_pos = z + 0.4 * (0.02 + (z[:, :1] + 1) ** 2) * rng.normal(size=z.shape)
    mixing = leaky_relu_mlp(3, random_state=seed)
    x, x_pos = (mixing(torch.as_tensor(part)).numpy() for part in (z, z_pos))
    return World(Contrast(3, space=Reals(), **options(seed)), Data(x, pairs=x_pos), z)


# ---- Classify -------------------------------------------------------------------------------------------------------


def classes(seed: int, change: str = "", d: int = 3, n: int = N, n_classes: int = 12) -> World:
    """Return clusters on a sphere, changed in one way."""
    rng = np.random.default_rng(seed)
    simulation = Clusters.on_sphere(3, n_classes, 10.0, random_state=seed)
    if change == "hyperplane":
        flat = simulation.vectors * torch.tensor([1.0, 1.0, 0.0])
        flat = flat / flat.norm(dim=1, keepdim=True)
        simulation = Clusters(flat, simulation.conditional, simulation.mixing)
    elif change == "heavy tails":
        simulation = Clusters(simulation.vectors, laplace(0.2), simulation.mixing)
    sample = simulation.sample(n, random_state=seed + 1)
    x, y, z = numpied(sample.x, sample.u, sample.z)
    if change == "shuffled":
        y = rng.permutation(y)
    elif change == "noise":
        x = rng.normal(size=(n, 6))
    elif change == "duplicated":
        some = rng.integers(n // 20, size=n)
        x, y, z = rng.normal(size=(n, 6))[some], y[some], z[some]
    elif change == "wide":
        x = rng.normal(size=(n, 3 * n))
    return World(Classify(d, **options(seed, n=n)), Data(wider(x, d, seed), signal=y), z)


def digits(seed: int) -> World:
    """Return the digits of scikit-learn with labels of others."""
    table = datasets.load_digits()
    return World(
        Classify(5, **options(seed)), Data(table.data, signal=np.random.default_rng(seed).permutation(table.target))
    )


# ---- Forget ---------------------------------------------------------------------------------------------------------


def levels(seed: int, change: str = "", d: int = 4, n: int = N, encoder: Any = networks.linear) -> World:
    """Return a nuisance that moves two of six directions, changed in one way."""
    rng = np.random.default_rng(seed)
    sample = Nuisance.on_sphere(6, 3, 10.0, n_layers=1, random_state=seed).sample(n, random_state=seed + 1)
    x, e, z = numpied(sample.x, sample.u, sample.z)
    if change == "shuffled":
        e = rng.permutation(e)
    elif change == "noise":
        x = rng.normal(size=(n, 6))
    elif change == "spreads":
        x = rng.normal(size=(n, 6)) * np.array([1.0, 1.5, 2.5])[e][:, None]
    elif change == "confounded":
        keep = rng.random(n) < np.where((z[:, 0] > np.median(z[:, 0])) == (e == 0), 1.0, 0.1)
        x, e, z = x[keep], e[keep], z[keep]
    elif change == "apart":
        x = x + 50 * np.eye(6)[e]
    elif change == "duplicated":
        some = rng.integers(n // 20, size=n)
        x, e, z = x[some], e[some], z[some]
    return World(Forget(d, encoder=encoder, **options(seed, n=n)), Data(x, nuisance=e), z)


# ---- Dictionary -----------------------------------------------------------------------------------------------------

DIVERSE = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 1], [1, 0, 1]])
FOUR = np.vstack([np.hstack([DIVERSE, np.zeros((9, 1), dtype=int)]), [[0, 0, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1]]])


def columns(
    seed: int, change: str = "", d: int = 3, n: int = 3_000, support: Array = DIVERSE, rho: float = 0.0
) -> World:
    """Return features that each depend on some of three or four latents, perhaps correlated, changed in one way."""
    rng = np.random.default_rng(seed)
    k = support.shape[1]
    z = rng.normal(size=(n, k)) @ np.linalg.cholesky((1 - rho) * np.eye(k) + rho).T
    x = sparse(support, n_candidates=4, random_state=seed)(torch.as_tensor(z)).numpy()
    if change == "permuted":
        x = rng.permuted(x, axis=0)
    elif change == "linear":
        x = z @ rng.normal(size=(k, 9))
    elif change == "duplicated":
        some = rng.integers(n // 40, size=n)
        x, z = x[some], z[some]
    elif change == "noise":
        x = rng.normal(size=x.shape)
    return World(Dictionary(d, n_restarts=1, **options(seed, n=n)), Data(x), z)


def identified_columns(seed: int) -> World:
    """Return a simulation that meets the assumptions with a margin."""
    sample = Structured.well_posed(DIVERSE, random_state=seed).sample(4_000, random_state=seed + 1)
    x, z = numpied(sample.x, sample.z)
    return World(Dictionary(3, n_restarts=2, **options(seed, 600)), Data(x), z)


# ---- sparse features, transitions -----------------------------------------------------------------------------------


def activations(seed: int, change: str = "", n: int = 4_000, d: int = 32, m: int = 16) -> World:
    """Return sparse combinations of atoms, changed in one way."""
    rng = np.random.default_rng(seed)
    atoms = rng.normal(size=(d, m))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    fires = rng.random((n, d)) < (0.6 if change == "dense" else 0.08)
    if change == "hierarchy":
        fires[:, d // 2 :] &= fires[:, : d // 2]
    z = fires * rng.exponential(size=(n, d))
    x = z @ atoms
    if change == "normal":
        x = rng.normal(size=(n, m)) @ rng.normal(size=(m, m))
    elif change == "permuted":
        x = rng.permuted(x, axis=0)
    est = SparseBasis(m, **options(seed)) if change.startswith("basis") else Sparse(d, **options(seed))
    if change == "basis of normal":
        x = rng.normal(size=(n, m)) @ rng.normal(size=(m, m))
    elif change == "basis of dense":
        x = rng.uniform(-1, 1, size=(n, m)) @ rng.normal(size=(m, m))
    return World(est, Data(x.astype(np.float32)), z)


def transitions(seed: int) -> World:
    """Return motions of two bodies that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    x_t = {body: rng.normal(size=(400, 4)) for body in ("a", "b")}
    x_next = {body: each + rng.normal(size=each.shape) for body, each in x_t.items()}
    groups = {body: np.arange(400) // 20 for body in x_t}
    data = {body: Data(x_t[body], pairs=x_next[body], groups=groups[body]) for body in x_t}
    return World(LatentAction(2, random_state=seed), data, y=(x_t, x_next, groups))


def several(kind: str, make: Callable[..., World], *changes: str, prefix: str = "") -> list[Case]:
    """Return a case for each change."""
    return [Case(f"{kind}, {change}", partial(make, change=prefix + change)) for change in changes]


CASES = (
    *several("Contrast", pairs, "shuffled", "noise", "same", "constant", "duplicated"),
    Case("Contrast, 80 samples", partial(pairs, n=80), LATENTS),
    Case("Contrast, too few latents", partial(pairs, d=2), LATENTS),
    Case("Contrast, too many latents", partial(pairs, d=6), LATENTS),
    Case("Contrast, uneven distances", uneven_pairs, LATENTS),
    *several("Classify", classes, "shuffled", "noise", "duplicated"),
    Case("Classify, more features than samples", partial(classes, change="wide", n=400)),
    Case("Classify, shuffled digits", digits),
    Case("Classify, hyperplane", partial(classes, change="hyperplane"), LATENTS),
    Case("Classify, heavy tails", partial(classes, change="heavy tails"), LATENTS),
    Case("Classify, too few classes", partial(classes, n_classes=3), LATENTS),
    Case("Classify, too few latents", partial(classes, d=2), LATENTS),
    Case("Classify, too many latents", partial(classes, d=6), LATENTS),
    Case("Classify, 80 samples", partial(classes, n=80, n_classes=4), LATENTS),
    *several("Forget", levels, "shuffled", "noise"),
    Case("Forget, spreads differ", partial(levels, change="spreads", d=6)),
    Case("Forget, confounded", partial(levels, change="confounded"), LATENTS),
    Case("Forget, levels apart", partial(levels, change="apart"), LATENTS),
    Case("Forget, too many latents", partial(levels, d=6)),
    Case("Forget, too few latents", partial(levels, d=2), LATENTS),
    Case("Forget, duplicated", partial(levels, change="duplicated"), LATENTS),
    Case("Forget, 150 samples", partial(levels, n=150), LATENTS),
    Case("Forget, nonlinear and shuffled", partial(levels, change="shuffled", encoder=networks.skip_mlp)),
    *several("Dictionary", columns, "permuted", "noise"),
    Case("Dictionary, correlation .7", partial(columns, rho=0.7), LATENTS),
    Case("Dictionary, correlation .4", partial(columns, rho=0.4), LATENTS),
    Case("Dictionary, dense", partial(columns, support=np.ones((9, 3), dtype=int)), LATENTS),
    Case("Dictionary, too few latents", partial(columns, support=FOUR), LATENTS),
    Case("Dictionary, too many latents", partial(columns, d=5), LATENTS),
    Case("Dictionary, linear", partial(columns, change="linear"), LATENTS),
    Case("Dictionary, duplicated", partial(columns, change="duplicated"), LATENTS),
    Case("Dictionary, 100 samples", partial(columns, n=100), LATENTS),
    *several("Sparse", activations, "normal", "permuted", "dense"),
    Case("Sparse, hierarchy", partial(activations, change="hierarchy"), LATENTS),
    Case("Sparse, 300 samples", partial(activations, n=300), LATENTS),
    *several("SparseBasis", activations, "normal", "dense", prefix="basis of "),
    Case("LatentAction, unrelated bodies", transitions),
    Case("fair: Contrast", partial(pairs, n=4_000), FAIR),
    Case("fair: Classify", partial(classes, n=4_000), FAIR),
    Case("fair: Forget", partial(levels, n=4_000), FAIR),
    Case("fair: Dictionary", identified_columns, FAIR),
)


def recovered(found: Audit, world: World, est: Any) -> float | None:
    """Return the score of the true latents up to what a claim leaves open; None if it is not about all latents."""
    if found.theorem is None or found.rest or world.z is None:
        return None
    if isinstance(est, (Sparse, SparseBasis)):
        return float(metrics.dictionaries.feature_mcc(est.transform(world.data.X), world.z))
    sides = () if world.data.nuisance is None else (world.data.nuisance,)
    latents = np.asarray(est.transform(world.data.X, *sides), dtype=np.float64)
    if latents.shape[1] != world.z.shape[1]:
        return 0.0
    free = found.theorem.indeterminacy
    blocks = getattr(est, "blocks_", None) if free == theory.BLOCKWISE else None
    ordered = matched_order(latents, world.z.astype(np.float64))
    return measure_for(free, world.data.nuisance, blocks)(latents, ordered)


def attacked(number: int, seed: int) -> list[dict[str, Any]]:
    """Fit and audit one case; return the result."""
    case, start = CASES[number], time.perf_counter()
    world = case.make(seed)
    about = {"world": case.name, "condition": case.may, "seed": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            est = world.est
            if world.y is not None:
                x_t, x_next, groups = world.y
                est.fit(x_t, x_next, groups=groups)
            else:
                est.fit(world.data)
            found = audit(est, world.data, n_fits=2, random_state=seed)
        except (ValueError, FloatingPointError) as error:  # the data are refused, in words
            return [about | {"claims": False, "refused": str(error)[:300], "seconds": time.perf_counter() - start}]
        true = recovered(found, world, est) if found.claims else None
    false = found.claims and (case.may == NOTHING or (true is not None and true < RECOVERED))
    advice = " ".join(each.change for each in found.objections)
    return [
        about
        | {
            "claims": found.claims,
            "false": bool(false),
            "empty": bool(found.claims and len(found.blocks) == 1 and not found.blocks[0].is_single),
            "missing": case.may == FAIR and not found.claims,
            "contradiction": "more latents" in advice and ("fewer latents" in advice or "n_components" in advice),
            "without_change": sum(not each.change for each in found.objections),
            "true": true,
            "claim": found.claim,
            "seconds": time.perf_counter() - start,
        }
    ]


def table(found: list[dict[str, Any]]) -> str:
    """Return a row of counts for each estimator."""
    lines = [
        "| estimator | attacks | refused | nothing claimed | true claims | false | empty | fair cases | claimed |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for kind in dict.fromkeys(case.name.removeprefix("fair: ").split(",")[0] for case in CASES):
        own = [run for run in found if run["world"].removeprefix("fair: ").split(",")[0] == kind]
        fair, attacks = ([run for run in own if (run["condition"] == FAIR) == which] for which in (True, False))
        refused, claims, false, empty = (sum(bool(run.get(name)) for run in attacks) for name in COUNTED)
        nothing = len(attacks) - claims - refused
        cells = (kind, len(attacks), refused, nothing, claims - false, false, empty, len(fair))
        lines.append(f"| {' | '.join(map(str, cells))} | {sum(run['claims'] for run in fair)} |")
    return "\n".join(lines)


COUNTED = ("refused", "claims", "false", "empty")


def main() -> None:
    """Make the runs, and print what was claimed falsely, emptily, or not at all."""
    wanted = asked(__doc__)
    which = [k for k, case in enumerate(CASES) if wanted.only in case.name]
    found = runs(attacked, [(k, seed) for seed in range(*(wanted.seeds or SEEDS)) for k in which], wanted)
    for run in found:
        if run.get("false") or run.get("empty") or run.get("missing"):
            kind = "FALSE" if run["false"] else "EMPTY" if run["empty"] else "missing"
            print(f"{kind}: {run['world']}, seed {run['seed']}, truth {run['true']}: {run['claim'][:400]}")
    if wanted.to:
        return
    save("attacks", sorted(found, key=lambda run: (run["world"], run["seed"])))
    seeds = spans(run["seed"] for run in found)
    text = f"{len(found)} runs of {len(CASES)} cases, seeds {seeds}.\n\n{table(found)}"
    put_into(PAGE, text, "attacks")


if __name__ == "__main__":
    main()
