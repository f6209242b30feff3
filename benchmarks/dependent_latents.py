"""Latents that depend on each other, from observations alone: recovery, and claims where nothing may be claimed.

Run ``python benchmarks/dependent_latents.py`` (all cores; about 20 seconds a run on one), or in parts, as in `_parts`.
Sparse simulations in which no latent reaches all that another reaches; 4,000 samples to fit, 4,000 to score. *Rotation*
is `Dictionary` without the oblique search. FastICA and PCA see the observations. The tables are written to
docs/results/dependent-latents.md and saved in results/. Settings were chosen on seeds from 1,000 on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from _measure import save
from _parts import asked, put_into, runs, spans
from pindown_papers.simulations import well_separated
from scipy.stats import spearmanr
from sklearn.decomposition import PCA, FastICA
from torch import Tensor

from pindown import Dictionary, audit
from pindown.errors import InputError
from pindown.methods.dictionary import estimator, rotation
from pindown.metrics import chance_mcc, linear_r2, mcc
from pindown.theory.structure import identified_blocks

PAGE = Path(__file__).parents[1] / "docs" / "results" / "dependent-latents.md"
TABLE_SEEDS, CLAIM_SEEDS = 10, 20
N_SAMPLES, N_OUTPUTS = 4_000, {3: 8, 4: 10, 5: 15}
SETTINGS: dict[str, Any] = {"n_restarts": 2, "max_iter": 600, "verbose": False, "device": "cpu"}
RECOVERED = 0.9  # rank correlation of a claimed latent with a true one, below which the claim is false

Draw = Callable[[int, int, torch.Generator], Tensor]


def correlated(correlation: float) -> Draw:
    """Return a normal distribution with equal correlations."""

    def draw(n: int, d: int, rng: torch.Generator) -> Tensor:
        covariance = torch.full((d, d), correlation) + (1 - correlation) * torch.eye(d)
        return torch.randn(n, d, generator=rng) @ torch.linalg.cholesky(covariance).T

    return draw


def nonlinear(n: int, d: int, rng: torch.Generator) -> Tensor:
    """Draw latents of which each is a curve of the one before, and noise."""
    z = torch.randn(n, d, generator=rng)
    for j in range(1, d):
        z[:, j] = 0.8 * (torch.tanh(1.5 * z[:, j - 1]) / 0.72) + 0.6 * z[:, j]
    return z


def chain(n: int, d: int, rng: torch.Generator) -> Tensor:
    """Draw latents of which each is linear in the one before, and noise."""
    z = torch.randn(n, d, generator=rng)
    for j in range(1, d):
        z[:, j] = 0.7 * z[:, j - 1] + 0.51**0.5 * z[:, j]
    return z


def common_cause(n: int, d: int, rng: torch.Generator) -> Tensor:
    """Draw latents that all depend on a cause that is not among them."""
    return 0.7 * torch.randn(n, 1, generator=rng) + 0.51**0.5 * torch.randn(n, d, generator=rng)


@dataclass(frozen=True)
class World:
    """Latents, the structure behind them, and how many are asked for."""

    name: str
    draw: Draw
    d: int
    structure: str = "diverse"
    asked: int | None = None
    is_audited: bool = False


RECOVERY = tuple(World(f"correlation {rho:g}", correlated(rho), d) for rho in (0.0, 0.3, 0.5, 0.7) for d in (3, 4, 5))
KINDS = (World("nonlinear", nonlinear, 4), World("chain", chain, 4), World("common cause", common_cause, 4))
CLAIMS = (
    World("all assumptions hold", correlated(0.5), 3, is_audited=True),
    World("dense", correlated(0.5), 3, "dense", is_audited=True),
    World("linear", correlated(0.5), 3, "linear", is_audited=True),
    World("nested", correlated(0.5), 3, "nested", is_audited=True),
    World("too few", correlated(0.5), 4, asked=3, is_audited=True),
    World("too many", correlated(0.5), 3, asked=4, is_audited=True),
)
WORLDS = (*RECOVERY, *KINDS, *CLAIMS)


def support(d: int, m: int, structure: str, rng: np.random.Generator) -> np.ndarray:
    """Draw a support whose latents are told apart without independence; or a nested one, where some are not."""
    if structure == "dense":
        return np.ones((m, d), dtype=int)
    while True:
        drawn = (rng.random((m, d)) < 0.5).astype(int)
        if not (drawn.any(0).all() and drawn.any(1).all()):
            continue
        blocks = identified_blocks(drawn)
        is_nested = any(block.needs_independence for block in blocks)
        if len(blocks) == d and is_nested == (structure == "nested"):
            return drawn


def mixing_of(world: World, rng: np.random.Generator) -> Callable[[Tensor], Tensor]:
    """Return the map from latents to observations."""
    while True:
        drawn = support(world.d, N_OUTPUTS[world.d], world.structure, rng)
        if world.structure == "linear":
            weights = torch.as_tensor(rng.normal(size=drawn.shape) * drawn, dtype=torch.float32)
            noise = torch.Generator().manual_seed(int(rng.integers(2**31)))
            return lambda z: z @ weights.T + 0.05 * torch.randn(len(z), len(weights), generator=noise)
        try:
            seed = int(rng.integers(2**31))
            return well_separated(drawn, random_state=seed).mixing
        except InputError:  # this support has none: another one
            continue


def measured(number: int, seed: int) -> list[dict[str, Any]]:
    """Return how well latents are recovered in one simulation, and what is claimed."""
    world, rng = WORLDS[number], np.random.default_rng([number, seed])
    mixing, generator = mixing_of(world, rng), torch.Generator().manual_seed(seed)
    z, truth = (world.draw(N_SAMPLES, world.d, generator) for _ in range(2))
    x, fresh = mixing(z), mixing(truth)
    start, d = time.perf_counter(), world.asked or world.d
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = Dictionary(d, random_state=seed, **SETTINGS).fit(x)
    z_hat = est.transform(fresh)
    found: dict[str, Any] = {"world": world.name, "condition": f"d = {world.d}", "seed": seed}
    found |= {"mcc": mcc(z_hat, truth), "r2": linear_r2(z_hat, truth), "chance": chance_mcc(world.d)}
    found |= {"gain": est.oblique_gain_, "blocks": [sorted(block.latents) for block in est.blocks_]}
    found |= {"seconds": time.perf_counter() - start}
    ranks = np.abs(spearmanr(z_hat.numpy(), truth.numpy())[0][:d, d:])
    found["of_each"] = ranks.max(1).round(3).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if world.is_audited:
            said = audit(est, x, n_fits=2, random_state=seed)
            singles = [next(iter(block.latents)) for block in est.blocks_ if block.is_single]
            wrong = said.claims and (not singles or min(ranks[singles].max(1)) < RECOVERED)
            return [found | {"claims": bool(said.claims), "is_false": bool(wrong)}]
        with patch.object(estimator, "TRAINED", rotation.Resolution(0.1, np.inf)):
            rotated = Dictionary(d, random_state=seed, **SETTINGS).fit(x)
        found["rotation"] = mcc(rotated.transform(fresh), truth)
        for name, baseline in (("ica", FastICA(d, max_iter=1_000, random_state=seed)), ("pca", PCA(d))):
            found[name] = mcc(baseline.fit(x.numpy()).transform(fresh.numpy()), truth)
    return [found]


def report(found: list[dict[str, Any]]) -> None:
    """Save what was found, and put the tables into their page."""
    save("dependent_latents", found)
    columns = ("mcc", "rotation", "ica", "pca", "chance", "r2")
    lines = [
        "| latents | | `Dictionary` | least | rotation | FastICA | PCA | chance | R² | single blocks | of these right |"
    ]
    lines += ["|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for world in (*RECOVERY, *KINDS):
        own = [run for run in found if (run["world"], run["condition"]) == (world.name, f"d = {world.d}")]
        if own:
            shown = [f"{np.median([run[name] for run in own]):.3f}" for name in columns]
            shown.insert(1, f"{min(run['mcc'] for run in own):.3f}")
            singles = [run["of_each"][block[0]] for run in own for block in run["blocks"] if len(block) == 1]
            right = sum(rank >= RECOVERED for rank in singles)
            cells = [world.name, f"d = {world.d}", *shown, f"{len(singles)} of {world.d * len(own)}", str(right)]
            lines.append("| " + " | ".join(cells) + " |")
    seeds = spans(run["seed"] for run in found)
    put_into(PAGE, f"Medians, seeds {seeds}.\n\n" + "\n".join(lines), "recovery")
    lines = ["| simulation | runs | claims | false claims |", "|---|---:|---:|---:|"]
    for world in CLAIMS:
        own = [run for run in found if run["world"] == world.name]
        claims, wrong = (sum(run[name] for run in own) for name in ("claims", "is_false"))
        lines.append(f"| {world.name} | {len(own)} | {claims} | {wrong} |")
    put_into(PAGE, "\n".join(lines), "claims")


def main() -> None:
    wanted = asked(__doc__)
    jobs = [
        (k, seed)
        for seed in range(*wanted.seeds or (0, CLAIM_SEEDS))
        for k, world in enumerate(WORLDS)
        if wanted.only in world.name and (world.is_audited or wanted.seeds or seed < TABLE_SEEDS)
    ]
    found = runs(measured, jobs, wanted)
    if wanted.to is None:
        report(found)


if __name__ == "__main__":
    main()
