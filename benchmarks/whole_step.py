"""A whole training step on a GPU: pindown's against the same step compiled by PyTorch with the n × n matrix in memory.

Both sample new pairs, encode them with the paper's encoder, compute the loss and take a step of AdamW, all captured in
one CUDA graph, with products in TF32. Run ``python benchmarks/whole_step.py`` on a machine with a GPU.
"""

from __future__ import annotations

import time
from functools import partial

import torch
from _measure import replay_seconds, save
from torch import nn

from pindown import Contrast, networks
from pindown.methods import PairLoss
from pindown.simulate import Pairs

D, BATCH, STEPS = 10, 6_144, 2_000
ENCODERS = {"paper": (100, 500, 500, 500, 500, 100), "ours": (256, 256, 256)}


def ours(world: Pairs, hidden: tuple[int, ...]) -> float:
    """Return the time of a step, from two fits that differ in their number of steps alone."""

    def fit(steps: int) -> float:
        encoder = partial(networks.skip_mlp, hidden=hidden)
        contrast = Contrast(
            D, encoder=encoder, batch_size=BATCH, max_iter=steps, loss=PairLoss(any_marginal=False), random_state=0
        )
        start = time.perf_counter()
        contrast.fit_process(world)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    fit(50)
    return (fit(STEPS + 500) - fit(500)) / STEPS


def compiled(world: Pairs, hidden: tuple[int, ...]) -> float:
    encoder = networks.skip_mlp(D, D, hidden=hidden).cuda()
    optimizer = torch.optim.AdamW(encoder.parameters(), fused=True, capturable=True)
    target = torch.arange(BATCH, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)

    @torch.compile
    def loss(x, x_pos):
        z, z_pos = nn.functional.normalize(encoder(torch.cat([x, x_pos])), dim=1).chunk(2)
        return nn.functional.cross_entropy(z @ z_pos.T, target)

    def step():
        sample = world.sample(BATCH, random_state=generator, device="cuda")
        optimizer.zero_grad()
        loss(sample.x, sample.x_pos).backward()
        optimizer.step()

    return replay_seconds(step, generator=generator)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    world = Pairs.on_sphere(D, 1.0, random_state=0)
    rows = []
    for name, hidden in ENCODERS.items():
        mine, theirs = ours(world, hidden), compiled(world, hidden)
        rows.append(
            {
                "encoder": name,
                "batch": BATCH,
                "steps_per_second": 1 / mine,
                "compiled_steps_per_second": 1 / theirs,
                "times_faster": theirs / mine,
            }
        )
    save("whole_step", rows)
