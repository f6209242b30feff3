"""How often `find_folding` is wrong, on simulations in which it is known what is folded.

Run ``python benchmarks/folding.py`` (about half an hour on one core, less on more). The thresholds of
`pindown.networks.folding` were chosen on the seeds CHOICE; quote the rates of the seeds REPORT. The baselines are two
other statistics of the same encoders: the fraction of neighbours whose orientations differ, and how far apart samples
are whose latents are neighbours.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from _measure import save
from joblib import Parallel, delayed
from sklearn.manifold import trustworthiness
from sklearn.metrics import roc_auc_score
from torch import Tensor

from pindown import Contrast, networks
from pindown.methods import PairLoss
from pindown.metrics import linear_r2
from pindown.networks import folding
from pindown.networks.folding import Folding, find_folding
from pindown.networks.spaces import Reals, Space, Sphere
from pindown.simulate import Pairs
from pindown.simulate.distributions import normal

CHOICE, REPORT = (0, 1), (10, 11, 12)
KAPPA = {3: 10.0, 5: 10.0, 10: 20.0}
VIEWS = {"two layers": 2, "three layers": 3, "curved, twice as many features": 2}
SHALLOW, DEEP = (64, 64), (64,) * 6
STARTS: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "default": (networks.skip_mlp, (400, 800)),  # steps below and at ten dimensions
    "perceptron untrained": (partial(networks.mlp, hidden=SHALLOW), (1, 1)),
    "perceptron stopped early": (partial(networks.mlp, hidden=SHALLOW), (50, 50)),
    "deep perceptron stopped early": (partial(networks.mlp, hidden=DEEP), (100, 100)),
    "deep perceptron": (partial(networks.mlp, hidden=DEEP), (400, 400)),
}


@dataclass(frozen=True)
class Case:
    """One encoder: what is true of it, and what the statistics say."""

    world: tuple[str, int, str]
    r2: float
    truth: float  # fraction of samples with reversed orientation
    folding: Folding
    flips: float
    collisions: float

    @property
    def good(self) -> bool:
        """Return whether the encoder is not folded."""
        return self.r2 > 0.95 and self.truth < 0.02

    @property
    def folded(self) -> bool:
        """Return whether the encoder is folded."""
        return self.truth > 0.1

    @property
    def warned(self) -> bool:
        """Say whether a fit would warn."""
        return self.folding.verdict in ("folded", "flat")


def view(name: str, d: int) -> Callable[[Tensor], Tensor]:
    """Return the observations of mixed latents: these themselves, or a curved sheet in 2d + 1 dimensions."""
    if not name.startswith("curved"):
        return lambda x: x
    chance = torch.Generator().manual_seed(99)
    flat = torch.linalg.qr(torch.randn(2 * d + 1, d, generator=chance, dtype=torch.float64)).Q
    waves = 2 * torch.randn(2 * d + 1, d, generator=chance, dtype=torch.float64) / d**0.5
    return lambda x: x @ flat.T.to(x.dtype) + 0.3 * torch.sin(x @ waves.T.to(x.dtype))


def true_share(encode: Callable[[Tensor], Tensor], z: Tensor, space: Space) -> float:
    """Return the fraction of samples at which the map from true to recovered latents reverses orientation."""
    h = 1e-5
    steps = h * torch.eye(z.shape[1], dtype=z.dtype)
    with torch.no_grad():
        jacobian = torch.stack([(encode(z + step) - encode(z - step)) / (2 * h) for step in steps], 2)
        if isinstance(space, Sphere):  # along the sphere, and outside to outside
            jacobian = jacobian - jacobian @ z[:, :, None] * z[:, None] + encode(z)[:, :, None] * z[:, None]
    positive = float((torch.linalg.det(jacobian) > 0).double().mean())
    return min(positive, 1 - positive)


def flips(encode: Callable[[Tensor], Tensor], x: Tensor, space: Space) -> float:
    """Return the fraction of pairs of neighbours whose orientations differ, without propagation along the graph."""
    u, axes = folding._principal_coordinates(x)
    with torch.no_grad():
        z = encode(x)
        slopes = [(encode(x + 1e-4 * axis) - encode(x - 1e-4 * axis)) / 2e-4 for axis in axes.T]
    outside = z[:, :, None][:, :, : isinstance(space, Sphere)]
    dimension = z.shape[1] - outside.shape[2]
    n_near = folding.NEIGHBOURS_PER_DIMENSION * dimension
    near = torch.cdist(u, u).fill_diagonal_(torch.inf).topk(n_near, largest=False).indices
    tangents = folding._tangents(u, near, dimension)
    sign = folding._sign(torch.cat([torch.stack(slopes, 2) @ tangents, outside], 2))
    i, j = torch.arange(len(x)).repeat_interleave(folding.EDGES), near[:, : folding.EDGES].reshape(-1)
    return float((sign[i] * sign[j] * folding._sign(tangents[i].mT @ tangents[j]) < 0).double().mean())


def collisions(encode: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Return how far apart in x neighbours in the latents are: one minus the trustworthiness."""
    with torch.no_grad():
        return 1 - float(trustworthiness(folding._principal_coordinates(x)[0], encode(x), n_neighbors=8))


def examine(seed: int, space_name: str, d: int, look: str, start: str) -> Case:
    """Train an encoder, and measure its folding."""
    torch.set_num_threads(1)  # one case per core
    if space_name == "sphere":
        world, space = Pairs.on_sphere(d, KAPPA[d], n_layers=VIEWS[look], random_state=seed), Sphere()
    else:
        world, space = Pairs.on_box(d, normal(0.1), n_layers=VIEWS[look], random_state=seed), Reals()
    see, (encoder, steps) = view(look, d), STARTS[start]
    train, test = world.sample(20_000, random_state=100 + seed), world.sample(5_000, random_state=200 + seed)
    estimator = Contrast(
        d,
        space=space,
        loss=PairLoss(any_marginal=False),  # these are uniform
        encoder=encoder,
        batch_size=256,
        max_iter=steps[d == 10],
        random_state=seed,
        device="cpu",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        estimator.fit(see(train.x), see(train.x_pos))
    r2 = float(linear_r2(estimator.transform(see(test.x)), test.z))
    encode = estimator.encoder_.double()
    x = see(train.x[: folding.MAX_SAMPLES].double())
    truth = true_share(lambda z: encode(see(world.mixing(z))), test.z[:2_000].double(), space)
    seen = find_folding(encode, x, space)
    print(seed, space_name, d, look, start, f"R²={r2:.3f} truth={truth:.3f} {seen}", flush=True)
    return Case((space_name, d, look), r2, truth, seen, flips(encode, x, space), collisions(encode, x))


def summary(seeds: str, world: str, some: list[Case]) -> dict[str, Any]:
    good, folded = [c for c in some if c.good], [c for c in some if c.folded]
    row: dict[str, Any] = {"seeds": seeds, "world": world, "good": len(good)}
    row["good_warned"] = sum(c.warned for c in good)
    row["good_undecided"] = sum(c.folding.verdict == "undecided" for c in good)
    row["folded"] = len(folded)
    row["folded_warned"] = sum(c.warned for c in folded)
    row["folded_undecided"] = sum(c.folding.verdict == "undecided" for c in folded)
    if good and folded:
        truth = [c.folded for c in good + folded]
        scores: dict[str, Callable[[Case], float]] = {
            "auc": lambda c: c.folding.fraction - 2 * c.folding.uncertainty,
            "auc_flips": lambda c: c.flips,
            "auc_collisions": lambda c: c.collisions,
        }
        row |= {name: float(roc_auc_score(truth, [score(c) for c in good + folded])) for name, score in scores.items()}
    rest = [c for c in some if not (c.good or c.folded)]
    return row | {"between": len(rest), "between_warned": sum(c.warned for c in rest)}


if __name__ == "__main__":
    rows = []
    for name, seeds in (("choice", CHOICE), ("report", REPORT)):
        cases = itertools.product(seeds, ("sphere", "box"), KAPPA, VIEWS, STARTS)
        found = Parallel(n_jobs=-1)(delayed(examine)(*what) for what in cases)
        label = f"{name} {seeds[0]}–{seeds[-1]}"
        for world in dict.fromkeys(case.world for case in found):
            rows.append(summary(label, f"{world[0]}, d={world[1]}, {world[2]}", [c for c in found if c.world == world]))
        rows.append(summary(label, "all", found))
    save("folding", rows)
