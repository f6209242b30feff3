"""Initialisations of image encoders compared: soft discs whose position, radius and hue are to be recovered.

Run ``python benchmarks/discs.py`` (minutes on a GPU, an hour on two cores), or with some of the names of STARTS,
``python benchmarks/discs.py "convolutions alone" --seeds 10 11 --steps 500``. Positives differ by a Laplace step of .08
in a box, images are drawn again at every step, and InfoNCE with p = 1 is minimised, so each latent should be recovered
alone. The baseline is the same network without a linear path. ``folded`` counts seeds with an R² below .9: one folded
latent of four leaves .75. The record joins several such commands; each row has its settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from _measure import save
from torch import Tensor, nn

from pindown import networks
from pindown._random import forked, generator
from pindown.data import ArraySource
from pindown.losses import infonce
from pindown.metrics import chance_mcc, linear_r2, mcc
from pindown.networks.preprocessing import standardise
from pindown.simulate.distributions import Truncated, laplace

BASELINE = "convolutions alone"
SEEDS = range(10, 16)
N_LATENTS = 4


def discs(z: Tensor, size: int, least: float) -> Tensor:
    """Return images (n, 3, size, size) of latents (n, 4) between 0 and 1: place, radius and hue of a soft disc."""
    x, y, radius = 0.2 + 0.6 * z[:, 0], 0.2 + 0.6 * z[:, 1], least * (1 + 1.5 * z[:, 2])
    places = (torch.arange(size, device=z.device) + 0.5) / size
    distance = ((places - x[:, None, None]) ** 2 + (places[:, None] - y[:, None, None]) ** 2).sqrt()
    disc = torch.sigmoid((radius[:, None, None] - distance) * 1.5 * size)  # an edge of about a pixel
    turns = torch.tensor([0.0, 4.0, 2.0], device=z.device)
    colour = ((6 * 0.8 * z[:, 3, None] + turns).remainder(6) - 3).abs().sub(1).clamp(0, 1)  # (n, 3), of full saturation
    return disc[:, None] * colour[:, :, None, None]


def alone(shape: tuple[int, ...], n_out: int, widths: Sequence[int]) -> nn.Module:
    """Return the convolutions of the default network, with PyTorch's own weights."""
    network = networks.convolutional(shape, n_out, widths=widths).nonlinear
    network[-1].reset_parameters()
    return network


def beside_any_pixels(shape: tuple[int, ...], n_out: int, widths: Sequence[int]) -> nn.Module:
    """Return the convolutions plus a random orthonormal map of all pixels."""
    flat = nn.Sequential(nn.Flatten(), networks.linear(shape[0] * shape[1] * shape[2], n_out))
    return networks.SkipMLP(flat, networks.convolutional(shape, n_out, widths=widths).nonlinear)


STARTS: dict[str, Callable[..., nn.Module]] = {
    BASELINE: alone,
    "beside a random map of pixels": beside_any_pixels,
    "networks.convolutional": networks.convolutional,
}


def trained(
    start: str,
    seed: int,
    device: torch.device,
    *,
    size: int,
    radius: float,
    steps: int,
    batch: int,
    rate: float,
    widths: Sequence[int],
) -> dict[str, Any]:
    """Train an encoder, and return how well the latents are recovered."""
    chance, law = generator(seed, device), Truncated(laplace(0.08))
    draw = partial(torch.rand, generator=chance, device=device)
    render = partial(discs, size=size, least=radius)
    see = standardise(ArraySource(render(draw(5_000, N_LATENTS)))).to(device)
    with forked(seed):
        encoder = STARTS[start]((3, size, size), N_LATENTS, widths=widths).to(device)
    log_temperature = nn.Parameter(torch.zeros((), device=device))
    descent = torch.optim.AdamW([{"params": encoder.parameters()}, {"params": [log_temperature]}], lr=rate)
    rates = torch.optim.lr_scheduler.OneCycleLR(descent, [rate, 10 * rate], total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        z = draw(batch, N_LATENTS)
        codes = encoder(see(render(torch.cat([z, law.sample(z, random_state=chance)]))))
        loss = infonce(*codes.chunk(2), temperature=log_temperature.exp(), p=1)
        descent.zero_grad()
        loss.backward()
        descent.step()
        rates.step()
    z = draw(5_000, N_LATENTS)
    with torch.no_grad():
        z_hat = torch.cat([encoder(see(render(part))) for part in z.split(1_000)]).cpu()
    found = {"r2": float(linear_r2(z_hat, z.cpu())), "mcc": float(mcc(z_hat, z.cpu())), "loss": loss.item()}
    print(start, size, seed, {name: round(value, 4) for name, value in found.items()}, flush=True)
    return found


def summary(start: str, found: list[dict[str, float]]) -> dict[str, Any]:
    r2 = [run["r2"] for run in found]
    return {
        "start": start,
        "seeds": len(found),
        "folded": sum(value < 0.9 for value in r2),
        "r2": [round(value, 4) for value in r2],
        "mcc": [round(run["mcc"], 4) for run in found],
        "worst_r2": min(r2),
        "worst_mcc": min(run["mcc"] for run in found),
        "chance_mcc": float(chance_mcc(N_LATENTS)),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("starts", nargs="*", default=list(STARTS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--sizes", nargs="*", type=int, default=[16, 32])
    parser.add_argument("--radius", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--widths", nargs="*", type=int, default=[16, 32, 64])
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = []
    for size in asked.sizes:
        settings = {name: getattr(asked, name) for name in ("radius", "steps", "batch", "rate", "widths")} | {
            "size": size
        }
        for start in asked.starts:
            runs = [trained(start, seed, device, **settings) for seed in asked.seeds]
            rows.append({**settings, "baseline": BASELINE, **summary(start, runs)})
    save("discs", rows)
