"""Factors recovered from images alone, generators disentangled after training, and simulations with a dense mixing.

Run ``python benchmarks/generators.py`` on a GPU, or some rows by the beginning of their names, ``… "Dictionary"
--seeds 0 1 --pixels 64``: all seeds of the first name, then of the next, some ``--jobs`` at a time. With ``--small``
images are small and steps are few: a test of the script that takes some minutes on a CPU. Every row is written when it
is finished, and replaces the row of the same simulation, seed, pixels, steps and restarts. ``--output`` names another
record, and ``--take`` copies the rows of other records. Settings were chosen on seeds from 10 on. These simulations are
our own; do not compare the scores with those of other data sets.

Baselines are rotated after training, and scored before and after. `Dictionary` with 700 steps takes 1,400 in all;
baselines take the number of ``--steps``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import record, write
from pindown_papers import disentanglement
from pindown_papers.baselines import BetaVAE, DisCo, FactorVAE
from pindown_papers.simulations import Room
from scipy.stats import norm

from pindown import Dictionary, __version__, disentangle
from pindown.metrics import chance_mcc, linear_r2, mcc

FIVE = ("floor_hue", "wall_hue", "object_hue", "size", "azimuth")
GRADED = ("brightness", "contrast", "warmth")  # of one picture: each changes every pixel


@dataclass(frozen=True)
class Scale:
    """The size of a run: pixels, images, steps, images to score on."""

    pixels: int = 64
    n_samples: int = 15_000
    max_iter: int = 1_500
    n_test: int = 2_000
    n_restarts: int = 2


@dataclass(frozen=True)
class World:
    """The factors of images, the correlation of neighbouring factors, and the noise of pixels."""

    factors: tuple[str, ...] = FIVE
    correlation: float = 0.0
    noise: float = 0.0

    def latents(self, n: int, seed: int) -> torch.Tensor:
        """Draw latents, each uniform in [0, 1]: of a Gaussian chain, so that neighbours are correlated."""
        rng = torch.Generator().manual_seed(seed)
        if not self.correlation:
            return torch.rand(n, len(self.factors), generator=rng)
        white = torch.randn(n, len(self.factors), generator=rng)
        chain = [white[:, 0]]
        for own in white[:, 1:].T:
            chain.append(self.correlation * chain[-1] + (1 - self.correlation**2) ** 0.5 * own)
        return torch.as_tensor(norm.cdf(torch.stack(chain, 1)), dtype=torch.float32)

    def drawn(self, scale: Scale, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw images and their latents on the fastest device, in parts."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        z = self.latents(n, seed)
        if self.factors == GRADED:
            return graded(Room(scale.pixels)(torch.full((1, 6), 0.4)), z).numpy(), z.numpy()
        fixed = {} if "shape" in self.factors else {"shape": 0}
        room = Room(scale.pixels, factors=self.factors, fixed=fixed, samples=1).to(device)
        x = torch.cat([room(part.to(device)).cpu() for part in z.split(1_000)])
        if self.noise:
            x += self.noise * torch.randn(x.shape, generator=torch.Generator().manual_seed(10_000 + seed))
        return x.numpy(), z.numpy()


SMALL = Scale(pixels=8, n_samples=400, max_iter=5, n_test=200)


def graded(picture: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Return one image with other brightness, contrast and colour temperature."""
    brightness, contrast, warmth = (z[:, j, None, None, None] for j in range(3))
    tint = 1 + 0.4 * (warmth - 0.5) * torch.tensor([1.0, 0.3, -1.0])[:, None, None]
    return (0.5 + 0.5 * brightness) * tint * picture.clamp(0.02, 1) ** (0.5 + contrast)


def scores(codes: np.ndarray, z: np.ndarray, prefix: str = "") -> dict[str, float]:
    """Return how well single factors are recovered; DCI of them as quantities, and in ten bins each.

    The latter falls with every sample near the edge of a bin, even if latents are single factors. So it is compared
    with the score of the factors themselves, each with noise that leaves it the correlation that its latent has.
    """
    bins = (z.argsort(0).argsort(0) * 10 // len(z))[:1_000]

    def by_value(found: np.ndarray) -> float:
        return round(float(disentanglement.dci(found[:1_000], bins).disentanglement), 4)

    return {
        f"{prefix}mcc": round(float(mcc(codes, z)), 4),
        f"{prefix}r2": round(float(linear_r2(codes, z)), 4),
        f"{prefix}dci": round(float(disentanglement.dci(codes, z, continuous=True).disentanglement), 4),
        f"{prefix}dci_by_value": by_value(codes),
        f"{prefix}dci_by_value_of_noisy_factors": by_value(as_noisy(codes, z)),
    }


def as_noisy(codes: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return factors with noise, each correlated with the true one as much as the latent that correlates most."""
    most = np.maximum(each_correlation(codes, z).max(0), 0.05)
    noise = np.random.default_rng(0).normal(size=z.shape) * z.std(0) * np.sqrt(np.maximum(most**-2 - 1, 0))
    return z + noise


def each_correlation(codes: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return the absolute correlation of each latent with each factor."""
    d = codes.shape[1]
    return np.abs(np.corrcoef(np.asarray(codes).T, z.T)[:d, d:])


def dictionary(scale: Scale, seed: int, world: World = World()) -> dict[str, Any]:  # noqa: B008 (a frozen value)
    """Recover factors without any side information."""
    x, _ = world.drawn(scale, scale.n_samples, seed)
    test, z = world.drawn(scale, scale.n_test, 1_000 + seed)
    start, factors = time.monotonic(), world.factors
    options = {"n_restarts": scale.n_restarts, "batch_size": 256, "max_iter": scale.max_iter, "random_state": seed}
    est = Dictionary(len(factors), verbose=False, **options).fit(x)
    fitted = time.monotonic() - start
    codes = est.transform(test)
    return {
        "fit_seconds": round(fitted, 1),
        **scores(codes, z),
        "of_each": each_correlation(codes, z).max(0).round(3).tolist(),
        "chance_mcc": round(float(chance_mcc(len(factors))), 4),
        "bounds": est.bounds_.round(1).tolist(),
        "agreement": est.agreement_.round(3).tolist(),
        "blocks": [sorted(map(int, block.latents)) for block in est.blocks_],
        "noise": round(est.noise_, 4),
    }


def turned(scale: Scale, seed: int, est: Any, world: World = World()) -> dict[str, Any]:  # noqa: B008
    """Train a generator, and rotate its latents afterwards."""
    x, _ = world.drawn(scale, scale.n_samples, seed)
    test, z = world.drawn(scale, scale.n_test, 1_000 + seed)
    est.set_params(batch_size=256, max_iter=scale.max_iter, random_state=seed, verbose=False)
    return before_and_after(est, x, test, z, seed)


def before_and_after(est: Any, x: Any, test: Any, z: np.ndarray, seed: int) -> dict[str, Any]:
    """Train a generator, rotate its latents of held-out samples, and score them before and after."""
    start = time.monotonic()
    est.fit(x)
    fitted = time.monotonic()
    codes = np.asarray(est.transform(test))
    found = disentangle(est.decoder_, codes, random_state=seed)
    turned = time.monotonic()
    return {
        "fit_seconds": round(fitted - start, 1),
        "turn_seconds": round(turned - fitted, 1),
        **scores(codes, z, "before_"),
        **scores(codes @ found.unmixing, z),
        "of_each": each_correlation(codes @ found.unmixing, z).max(0).round(3).tolist(),
        "chance_mcc": round(float(chance_mcc(z.shape[1])), 4),
        "reached": [round(value, 3) for value in (found.before, found.after, found.chance)],
        "lead": round(min(found.lead, 9.0), 4),
        "is_dependent": found.is_dependent,
        "blocks": [sorted(map(int, block.latents)) for block in found.blocks],
        "claim": found.claim,
        "against": list(found.reasons_not_to_claim),
    }


WORLDS = {
    "five factors": World(),
    "six factors": World((*FIVE, "shape")),
    "correlated factors": World(correlation=0.5),
    "noisy pixels": World(noise=0.1),
    "dense world": World(GRADED),
}

BASELINES: dict[str, Callable[[int], Any]] = {
    "FactorVAE": FactorVAE,
    "BetaVAE": lambda d: BetaVAE(d, beta=1.0),
    "DisCo": DisCo,
    "FactorVAE where the networks start": lambda d: FactorVAE(d, unrolled=False),
}


def measures() -> dict[str, Callable[[Scale, int], dict[str, Any]]]:
    """Return the function that measures each row: every method on every simulation."""
    rows: dict[str, Callable[[Scale, int], dict[str, Any]]] = {
        f"Dictionary, {name}": partial(dictionary, world=world) for name, world in WORLDS.items()
    }
    for method, make in BASELINES.items():
        for name, world in WORLDS.items():
            rows[f"{method}, {name}"] = partial(_baseline, make=make, world=world)
    return rows


def _baseline(scale: Scale, seed: int, make: Callable[[int], Any], world: World) -> dict[str, Any]:
    return turned(scale, seed, make(len(world.factors)), world)


def measured(name: str, seed: int, scale: Scale) -> dict[str, Any]:
    """Measure a row."""
    start = time.monotonic()
    with warnings.catch_warnings(action="ignore"):
        told = measures()[name](scale, seed)
    spent = {"seconds": round(time.monotonic() - start, 1), "pindown": __version__}
    return {
        "name": name,
        "seed": seed,
        "pixels": scale.pixels,
        "steps": scale.max_iter,
        "restarts": scale.n_restarts,
        **told,
        **spent,
    }


def add(path: Path, row: dict[str, Any], at: dict[str, str] | None = None) -> None:
    """Write a row into a record, in place of that of the same run; rows of a name are next to each other."""
    told = json.loads(path.read_text()) if path.exists() else {"rows": []}
    same = [all(row[key] == other.get(key) for key in KEYS) for other in told["rows"]]
    kept = [other for other, drop in zip(told["rows"], same, strict=True) if not drop]
    print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    order = {name: place for place, name in enumerate(measures())}
    write(path, sorted([*kept, row], key=lambda each: (order.get(each["name"], -1), each["pixels"], each["seed"])), at)


KEYS = ("name", "seed", "pixels", "steps", "restarts")
"""The fields that identify a run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[""], help="beginnings of names of rows, in this order; none: all")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--pixels", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--take", type=Path, nargs="*", default=[])
    asked = parser.parse_args()
    for path in asked.take:
        told = json.loads(path.read_text())
        for row in told["rows"]:
            add(asked.output or record("generators"), row, told["where"])
    if asked.take:
        return
    scale = SMALL if asked.small else Scale()
    pixels, steps = asked.pixels or scale.pixels, asked.steps or scale.max_iter
    scale = Scale(pixels, scale.n_samples, steps, scale.n_test, asked.restarts)
    names = dict.fromkeys(name for begin in asked.names for name in measures() if name.startswith(begin))
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        runs = [pool.submit(measured, name, seed, scale) for name in names for seed in asked.seeds]
        for run in as_completed(runs):
            add(asked.output or record("generators"), run.result())


if __name__ == "__main__":
    main()
