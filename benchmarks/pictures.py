"""What is recovered from images: rooms rendered in every step, sprites in arrays; and what must not be claimed.

Run ``python benchmarks/pictures.py`` on a GPU (about ten minutes), or some rows by the beginning of their names,
``python benchmarks/pictures.py "Laplace" "Forget" --seeds 0 1``. Each row is written when it is finished, and replaces
the row of the same name and seed on record, so that a stopped run loses nothing. With ``--cpu`` images have 16 × 16
pixels, and there are fewer of them and fewer steps: minutes for each row on one core. ``--small`` only tests the
script. Parameters that a row does not name have their defaults. These simulations are our own; do not compare the
scores with those of other data sets.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import record, replay_seconds, seconds, where, write
from pindown_papers.scores import recovery_across_levels
from pindown_papers.simulations import Redrawn, Room, Sprites
from scipy.optimize import linear_sum_assignment
from sklearn.neighbors import KNeighborsClassifier

from pindown import Classify, Contrast, Forget, __version__, audit
from pindown.data.data import Data
from pindown.metrics import chance_mcc, leakage, linear_r2, mcc, recovery_by_level
from pindown.networks.spaces import Box, Reals, Sphere
from pindown.simulate import Clusters, Pairs
from pindown.simulate.distributions import Conditional, Truncated, Uniform, VonMisesFisher, laplace, normal
from pindown.training import Trainer
from pindown.training.callbacks import Callback, Report

FIVE = ("floor_hue", "wall_hue", "object_hue", "size", "azimuth")
N_TEST = 5_000
REGRESSED = 3  # times as many rows as readers of a nuisance have, for regressions
LAPLACE, NORMAL = Truncated(laplace(0.1)), Truncated(normal(0.1))


@dataclass(frozen=True)
class Scale:
    """The size of a run: pixels, steps (None: as many as help), samples of arrays, samples to score on."""

    size: int = 64
    max_iter: int | None = None
    n_samples: int = 20_000
    n_test: int = N_TEST

    def options(self, seed: int) -> dict[str, Any]:
        """Return the parameters of an estimator that its row does not name."""
        return {"random_state": seed, "verbose": False} | ({} if self.max_iter is None else {"max_iter": self.max_iter})


ON_CPU = Scale(size=16, max_iter=300, n_samples=4_000, n_test=4_000)
SMALL = Scale(size=16, max_iter=20, n_samples=600, n_test=400)


def cubes(scale: Scale, **more: Any) -> Room:
    return Room(scale.size, factors=FIVE, fixed={"shape": 0}, samples=1, **more)


def sampled(world: Any, n: int, seed: int) -> tuple[np.ndarray, ...]:
    """Draw images, positives and latents in parts, on the fastest device, and move them to memory."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parts = [world.sample(min(1_000, n), random_state=1_000 * seed + k, device=device) for k in range(-(-n // 1_000))]
    fields = zip(*((part.x, part.x_pos, part.z, part.u) for part in parts), strict=True)
    return tuple(None if field[0] is None else torch.cat(field).cpu().numpy() for field in fields)


def by_factor(z_hat: Any, z: np.ndarray) -> list[float]:
    return [round(float(linear_r2(z_hat, z[:, [j]])), 4) for j in range(z.shape[1])]


def contrast(scale: Scale, seed: int, law: Conditional, *, p: float) -> dict[str, Any]:
    """Recover five factors: with Laplace positives and p = 1 each alone, with normal ones up to a rotation."""
    world = Pairs(Uniform(5, Box()), law, cubes(scale))
    est = Contrast(5, space=Reals(), p=p, **scale.options(seed)).fit_process(world)
    x, _, z, _ = sampled(world, scale.n_test, 10_000 + seed)
    z_hat = est.transform(x)
    found = {"mcc": float(mcc(z_hat, z)), "r2": float(linear_r2(z_hat, z)), "chance_mcc": float(chance_mcc(5))}
    return {**found, "r2_of_each": by_factor(z_hat, z), "steps": est.n_iter_}


def six_factors(scale: Scale, seed: int, n_codes: int = 7) -> dict[str, Any]:
    """Recover the same and the shape of the object, which positives share seven times in ten or more.

    The values of a category are at equal distances. With the L1 norm four such points fit into two latents (a square
    on its corner) and not into one, so there are seven latents. If the shape were always shared, nothing would relate
    latents of one shape to those of another.
    """
    room = Room(scale.size, factors=(*FIVE, "shape"), samples=1)
    world = Pairs(Uniform(6, Box()), Redrawn(LAPLACE, factors=(5,), probability=0.3), room)
    est = Contrast(n_codes, space=Reals(), p=1, **scale.options(seed)).fit_process(world)
    x, _, z, _ = sampled(world, scale.n_test, 10_000 + seed)
    z_hat, shape = np.asarray(est.transform(x)), (4 * z[:, 5]).astype(int)
    found = np.abs(np.corrcoef(z_hat.T, z[:, :5].T)[:n_codes, n_codes:])  # (codes, factors)
    codes, factors = linear_sum_assignment(-found)
    rest, half = np.setdiff1d(np.arange(n_codes), codes), len(x) // 2
    told = KNeighborsClassifier(10).fit(z_hat[:half][:, rest], shape[:half])
    return {
        "mcc": float(found[codes, factors].mean()),
        "of_each": found[codes, factors].round(4).tolist(),
        "shape_told_by_the_rest": float(told.score(z_hat[half:][:, rest], shape[half:])),
        "shape_told_by_each": [round(float(linear_r2(np.eye(4)[shape], z_hat[:, [j]])), 3) for j in codes],
        "steps": est.n_iter_,
    }


def audited(scale: Scale, seed: int, law: Conditional, *, p: float = 1) -> dict[str, Any]:
    """Audit arrays of small images: what may be claimed if positives share all latents, some, or none."""
    scale = replace(scale, size=min(16, scale.size))
    world = Pairs(Uniform(5, Box()), law, cubes(scale))
    x, x_pos, z, _ = sampled(world, scale.n_samples, seed)
    est = Contrast(5, space=Reals(), p=p, **scale.options(seed)).fit(x, x_pos)
    found = audit(est, Data(x, pairs=x_pos, truth=z), n_fits=2, random_state=seed)
    shared = None if found.block is None else found.block.n_shared
    return {
        "pixels": scale.size,
        "claims": found.claims,
        "shared": shared,
        "claim": found.claim,
        "r2_of_each": by_factor(est.transform(x), z),
    }


def classify(scale: Scale, seed: int, spanned: int) -> dict[str, Any]:
    """Classify by twenty vectors that span five latents, or three of them: the theorem covers what they span."""
    rng = torch.Generator().manual_seed(seed)
    vectors = torch.zeros(20, 5)
    vectors[:, :spanned] = torch.randn(20, spanned, generator=rng)
    world = Clusters(Sphere()(vectors), VonMisesFisher(10.0), cubes(scale, domain=Sphere()))
    est = Classify(5, **scale.options(seed)).fit_process(world)
    x, _, z, _ = sampled(world, scale.n_test, 10_000 + seed)
    r = {name: round(max(0.0, r2) ** 0.5, 4) for name, r2 in zip(FIVE, by_factor(est.transform(x), z), strict=True)}
    return {"pearson_r": r, "covered": list(FIVE[:spanned]), "not_covered": list(FIVE[spanned:]), "steps": est.n_iter_}


def forget(scale: Scale, seed: int, n_components: int, times: int = 1, **asked: Any) -> dict[str, Any]:
    """Forget one of four places, visible in light, wall and floor; keep size, azimuth and hue of the object.

    Latents are conditioned on the place, as `Forget` does if the nuisance of samples is known; latents without it are
    scored, too. Latents may mean something else in each place, so recovery is measured within places, as the theorem
    says, and also over all of them. A nonlinear regression is fitted in each place, which takes more samples. ``times``
    multiplies the number of training images.
    """
    scale = replace(scale, size=min(32, scale.size))
    kept = ("object_hue", "size", "azimuth")
    room = Room(scale.size, factors=(*kept, "light", "wall_hue", "floor_hue"), fixed={"shape": 0}, samples=1)
    looks = torch.tensor([[0.1, 0.1, 0.6], [0.4, 0.6, 0.1], [0.6, 0.35, 0.9], [0.9, 0.85, 0.35]])

    def pictures(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng, device = torch.Generator().manual_seed(seed), "cuda" if torch.cuda.is_available() else "cpu"
        z, place = torch.rand(n, 3, generator=rng), torch.randint(4, (n,), generator=rng)
        seen = torch.cat([z, looks[place]], 1).to(device)
        return torch.cat([room(part).cpu() for part in seen.split(1_000)]).numpy(), place.numpy(), z.numpy()

    x, place, _ = pictures(times * scale.n_samples, seed)
    steps = {"max_iter": 4_000 if scale.max_iter is None else 5 * scale.max_iter}  # a game takes longer
    est = Forget(n_components, **scale.options(seed) | steps | asked).fit(x, place)
    x, place, z = pictures(REGRESSED * scale.n_test, 10_000 + seed)
    codes, some = np.asarray(est.transform(x, place)), slice(scale.n_test)
    told = leakage(codes[some], place[some], random_state=seed)
    of_one_map = leakage(est.transform(x[some]), place[some], random_state=seed)
    pixels = x[some].reshape(scale.n_test, -1)[:, :: max(1, x[0].size // 256)]
    before = leakage(pixels, place[some], probes=["linear"], random_state=seed)
    own = {name: z[:, [j]] for j, name in enumerate(kept)}
    return {
        "pixels": scale.size,
        "codes": n_components,
        "n_samples": times * scale.n_samples,
        "worst_probe": told.worst,
        "probe": told.worst_probe,
        "floor": told.chance_of_worst,
        "of_one_map": of_one_map.worst,
        "of_pixels": before.worst,
        "transported": est.transport_ is not None,
        "linear_r2": dict(zip(kept, by_factor(codes, z), strict=True)),
        "r2_within_places": {name: min(recovery_by_level(codes, truth, place).values()) for name, truth in own.items()},
        "r2_over_places": {name: recovery_across_levels(codes, truth, place).pooled for name, truth in own.items()},
        "steps": est.n_iter_,
    }


def sprites(scale: Scale, seed: int) -> dict[str, Any]:
    """Recover squares in an array of 32 × 32 pixels: position, size and rotation below 90°."""
    drawn = Sprites(min(32, scale.size), factors=("x", "y", "size", "rotation"), fixed={"shape": 0})
    world = Pairs(Uniform(4, Box()), Truncated(laplace(0.1)), drawn)
    x, x_pos, _, _ = sampled(world, scale.n_samples, seed)
    est = Contrast(4, space=Reals(), p=1, **scale.options(seed)).fit(x, x_pos)
    x, _, z, _ = sampled(world, scale.n_test, 10_000 + seed)
    z_hat = est.transform(x)
    return {"mcc": float(mcc(z_hat, z)), "r2_of_each": by_factor(z_hat, z), "steps": est.n_iter_}


def rendering(scale: Scale, seed: int) -> dict[str, Any]:
    """Return images per second, and the seconds of a whole step: latents, rendering, encoder, loss, captured."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    room, n = cubes(scale), 4_096 if device.type == "cuda" else 64
    z = torch.rand(n, 5, generator=torch.Generator(device).manual_seed(seed), device=device)
    with torch.no_grad():
        rates = {"eager": n / seconds(lambda: room(z))}
        if device.type == "cuda":  # as a training has it, and as torch.compile would
            compiled = torch.compile(room._pixels)
            rates |= {"captured": n / replay_seconds(lambda: room(z)), "compiled": n / seconds(lambda: compiled(z))}
    clock, world = Clock(), Pairs(Uniform(5, Box()), LAPLACE, room)
    options = {"max_iter": 500 if scale.max_iter is None else 50, "trainer": Trainer(callbacks=(clock,))}
    Contrast(5, space=Reals(), p=1, verbose=False, random_state=seed, **options).fit_process(world)
    (first, start), (last, end) = clock.times[0], clock.times[-1]  # the first steps compile and capture
    return {
        "pictures_per_second": {how: round(rate) for how, rate in rates.items()},
        "seconds_of_a_step": (end - start) / (last - first),
        "step_captured": device.type == "cuda",
    }


@dataclass
class Clock(Callback):
    """Records the time of each report: losses have been read back by then, so all steps before are finished."""

    times: list[tuple[int, float]] = field(default_factory=list)

    def report(self, report: Report) -> None:
        """Record step and time of the fit itself; the search for folds comes after it, and counts from 0 again."""
        if not self.times or report.step > self.times[-1][0]:
            self.times.append((report.step, time.perf_counter()))


UNRELATED, PARTLY = Redrawn(LAPLACE, tuple(range(5)), 1.0), Redrawn(LAPLACE, (0, 3), 1.0)
Row = Callable[[Scale, int], dict[str, Any]]
ROWS: dict[str, tuple[Row, int]] = {
    "Rendering": (rendering, 1),
    "Laplace, p = 1": (lambda scale, seed: contrast(scale, seed, LAPLACE, p=1), 5),
    "Six factors, shape as category": (six_factors, 2),
    "Normal, p = 2": (lambda scale, seed: contrast(scale, seed, NORMAL, p=2), 1),
    "Classify, classes span all": (lambda scale, seed: classify(scale, seed, 5), 1),
    "Classify, classes span three": (lambda scale, seed: classify(scale, seed, 3), 1),
    "Forget light and background, four codes": (lambda scale, seed: forget(scale, seed, 4), 3),
    "Forget light and background, four codes, strength .1": (
        lambda scale, seed: forget(scale, seed, 4, strength=0.1, learning_rate=3e-4),
        3,
    ),
    "Forget light and background, four codes, thrice the pictures": (
        lambda scale, seed: forget(scale, seed, 4, times=3),
        3,
    ),
    "Forget light and background, three codes": (lambda scale, seed: forget(scale, seed, 3), 3),
    "Sprites in an array": (sprites, 3),
    "Audit, Laplace": (lambda scale, seed: audited(scale, seed, LAPLACE), 1),
    "Audit, normal, p = 2": (lambda scale, seed: audited(scale, seed, NORMAL, p=2), 1),
    "Audit, partners shuffled": (lambda scale, seed: audited(scale, seed, UNRELATED), 1),
    "Audit, two of five drawn anew": (lambda scale, seed: audited(scale, seed, PARTLY), 1),
}
"""By name: what is done, and with how many seeds."""


def measured(name: str, scale: Scale, seed: int) -> dict[str, Any]:
    """Return a row, with its seed, its seconds, its warnings, and the machine."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = ROWS[name][0](scale, seed)
    said = sorted({str(warning.message)[:200] for warning in warned if "pindown" in str(warning.category)})
    row = {"name": name, "seed": seed, "pixels": scale.size, "seconds": round(time.perf_counter() - start, 1), **found}
    return row | ({"warned": said} if said else {}) | {"pindown": __version__} | where()


def on_record(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the rows of a record, by name and seed; none if there is no record."""
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return {(row["name"], row["seed"]): row for row in rows if row["name"] in ROWS}


def in_order(rows: dict[tuple[str, int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in the order of the names, then of the seeds."""
    return [rows[key] for key in sorted(rows, key=lambda key: ([*ROWS].index(key[0]), key[1]))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of names of rows")
    parser.add_argument("--seeds", nargs="*", type=int, help="by default as many as a row has")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, help="the record; by default in results/")
    parser.add_argument("--take", nargs="*", type=Path, default=[], help="records to take rows over from, and run none")
    asked = parser.parse_args()
    path = asked.out or record("pictures_small" if asked.small else "pictures")
    for other in asked.take:
        write(path, in_order(on_record(path) | on_record(other)), json.loads(other.read_text())["where"])
    for name, (_, n_seeds) in [] if asked.take else ROWS.items():
        if asked.names and not any(name.startswith(start) for start in asked.names):
            continue
        for seed in asked.seeds or range(n_seeds):
            row = measured(name, SMALL if asked.small else ON_CPU if asked.cpu else Scale(), seed)
            print(row, flush=True)
            write(path, in_order(on_record(path) | {(name, seed): row}))
