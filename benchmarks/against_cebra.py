"""`Contrast` against CEBRA on the same sequence, with equal batch, width, depth and steps.

Run ``make bench``, which installs CEBRA. The simulation is a walk on the sphere, z' ~ vMF(z, κ), observed through a
mixing; both learn from consecutive samples. The defaults of `Contrast` were chosen on seeds 0 and 1 of such
simulations, so other seeds are measured here. CEBRA's default learning rate is 3e-4; it gets the rate that is best for
it *on the test samples*, an advantage over `Contrast`.
"""

from __future__ import annotations

import time
from functools import partial

import cebra
import torch
from _measure import save
from torch import Tensor

from pindown import Contrast, networks
from pindown.methods import PairLoss
from pindown.metrics import linear_r2
from pindown.networks.spaces import Sphere
from pindown.simulate.distributions import VonMisesFisher
from pindown.simulate.mixing import leaky_relu_mlp

D, CONCENTRATION, WIDTH, STEPS = 4, 4.0, 128, 1_000
CEBRA_RATES = (3e-4, 1e-3, 3e-3)


def walk(n_walks: int, length: int, seed: int) -> Tensor:
    """Return latents (n_walks · length, d), walk after walk."""
    generator = torch.Generator().manual_seed(seed)
    z = [Sphere().uniform(n_walks, D, random_state=generator)]
    for _ in range(length - 1):
        z.append(VonMisesFisher(CONCENTRATION).sample(z[-1], random_state=generator))
    return torch.stack(z, 1).reshape(-1, D)


def ours(x, seed: int, batch_size: int, steps: int, any_marginal: bool) -> tuple[Contrast, float]:
    start = time.perf_counter()
    contrast = Contrast(
        D,
        encoder=partial(networks.skip_mlp, hidden=(WIDTH,) * 3),
        loss=PairLoss(any_marginal=any_marginal),
        batch_size=batch_size,
        max_iter=steps,
        random_state=seed,
    ).fit(x)
    return contrast, time.perf_counter() - start


def theirs(x, batch_size: int, rate: float) -> tuple[cebra.CEBRA, float]:
    start = time.perf_counter()
    model = cebra.CEBRA(
        model_architecture="offset1-model",
        output_dimension=D,
        num_hidden_units=WIDTH,
        batch_size=batch_size,
        max_iterations=STEPS,
        learning_rate=rate,
        time_offsets=1,
        temperature_mode="auto",
        device="cpu",
        verbose=False,
    ).fit(x)
    return model, time.perf_counter() - start


def compare(batch_size: int, seed: int) -> dict:
    mixing = leaky_relu_mlp(D, random_state=seed)
    z, z_test = walk(100, 200, seed + 1), walk(100, 100, seed + 2)
    x, x_test = mixing(z).numpy(), mixing(z_test).numpy()
    full, full_seconds = ours(x, seed, batch_size, STEPS, any_marginal=True)
    alike, alike_seconds = ours(x, seed, batch_size, STEPS, any_marginal=False)  # CEBRA has no such correction
    short, _ = ours(x, seed, batch_size, STEPS // 10, any_marginal=True)
    peers = {rate: theirs(x, batch_size, rate) for rate in CEBRA_RATES}
    peer_r2 = {rate: linear_r2(model.transform(x_test), z_test) for rate, (model, _) in peers.items()}
    peer_seconds = min(taken for _, taken in peers.values())
    return {
        "batch": batch_size,
        "seed": seed,
        "ms_per_step": full_seconds / STEPS * 1e3,
        "cebra_ms_per_step": peer_seconds / STEPS * 1e3,
        "times_faster": peer_seconds / full_seconds,
        "times_faster_without_any_marginal": peer_seconds / alike_seconds,
        "linear_r2": linear_r2(x_test, z_test),
        "r2": linear_r2(full.transform(x_test), z_test),
        "r2_without_any_marginal": linear_r2(alike.transform(x_test), z_test),
        "r2_after_a_tenth_of_the_steps": linear_r2(short.transform(x_test), z_test),
        "cebra_r2": max(peer_r2.values()),
        "cebra_r2_by_rate": {f"{rate:g}": round(r2, 4) for rate, r2 in peer_r2.items()},
    }


if __name__ == "__main__":
    save("against_cebra", [compare(512, seed) for seed in (10, 11, 12)])
