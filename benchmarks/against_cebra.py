"""`Contrast` against CEBRA on the same sequence, with equal batch, width, depth and steps.

Run ``make bench``, which installs CEBRA. The world is a walk on the sphere, z' ~ vMF(z, κ), seen through a mixing;
both learn from consecutive samples.
"""

from __future__ import annotations

import time
from functools import partial

import cebra
import torch
from _measure import save
from torch import Tensor

from pindown import Contrast, networks
from pindown.distributions import VonMisesFisher
from pindown.metrics import linear_r2
from pindown.mixing import leaky_relu_mlp
from pindown.spaces import Sphere

D, CONCENTRATION, WIDTH, STEPS = 4, 4.0, 128, 1_000


def walk(n_walks: int, length: int, seed: int) -> Tensor:
    """Return latents (n_walks · length, d), walk after walk."""
    generator = torch.Generator().manual_seed(seed)
    z = [Sphere().uniform(n_walks, D, random_state=generator)]
    for _ in range(length - 1):
        z.append(VonMisesFisher(CONCENTRATION).sample(z[-1], random_state=generator))
    return torch.stack(z, 1).reshape(-1, D)


def compare(batch_size: int, seed: int) -> dict:
    mixing = leaky_relu_mlp(D, random_state=seed)
    z, z_test = walk(100, 200, seed + 1), walk(100, 100, seed + 2)
    x, x_test = mixing(z).numpy(), mixing(z_test).numpy()

    start = time.perf_counter()
    ours = Contrast(
        D,
        encoder=partial(networks.unfolded, hidden=(WIDTH,) * 3),
        batch_size=batch_size,
        max_iter=STEPS,
        random_state=seed,
    ).fit(x)
    ours_seconds = time.perf_counter() - start

    start = time.perf_counter()
    theirs = cebra.CEBRA(
        model_architecture="offset1-model",
        output_dimension=D,
        num_hidden_units=WIDTH,
        batch_size=batch_size,
        max_iterations=STEPS,
        time_offsets=1,
        temperature_mode="auto",
        device="cpu",
        verbose=False,
    ).fit(x)
    theirs_seconds = time.perf_counter() - start
    return {
        "batch": batch_size,
        "seed": seed,
        "ms_per_step": ours_seconds / STEPS * 1e3,
        "cebra_ms_per_step": theirs_seconds / STEPS * 1e3,
        "times_faster": theirs_seconds / ours_seconds,
        "linear_r2": linear_r2(x_test, z_test),
        "r2": linear_r2(ours.transform(x_test), z_test),
        "cebra_r2": linear_r2(theirs.transform(x_test), z_test),
    }


if __name__ == "__main__":
    save("against_cebra", [compare(batch_size, seed) for batch_size in (512, 2_048) for seed in (0, 1)])
