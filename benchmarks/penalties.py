"""A training step with a penalty on the Jacobian, in multiples of the same step without, against torch.func.

Run ``python benchmarks/penalties.py``. All variants are measured alternately within one run, so that other load on the
machine affects them alike. The multiple is the median over rounds of the ratio to the plain step of the same round. On
a GPU convolutions take 256 images a step.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from _measure import cpu_peak_bytes, gpu_peak_bytes, save
from torch import Tensor, nn
from torch.func import functional_call, jacrev, jvp, vmap

from pindown.losses import DependencySparsity, dependency_sparsity
from pindown.losses.penalties import batch_scale

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH = {"mlp": 512, "conv": 256 if DEVICE.type == "cuda" else 32}


def perceptron(d: int, m: int, hidden: int = 128) -> nn.Module:
    return nn.Sequential(
        nn.Linear(d, hidden), nn.LeakyReLU(0.1), nn.Linear(hidden, hidden), nn.LeakyReLU(0.1), nn.Linear(hidden, m)
    )


def image_decoder(d: int) -> nn.Module:
    """To 64 × 64 × 3, with the layers of the disentanglement papers."""
    layers: list[nn.Module] = [nn.Linear(d, 256), nn.ReLU(), nn.Linear(256, 64 * 4 * 4), nn.Unflatten(1, (64, 4, 4))]
    for n_in, n_out in ((64, 64), (64, 32), (32, 32), (32, 3)):
        layers += [nn.ReLU(), nn.ConvTranspose2d(n_in, n_out, 4, stride=2, padding=1)]
    return nn.Sequential(*layers)


def image_encoder(d: int) -> nn.Module:
    layers: list[nn.Module] = []
    for n_in, n_out in ((3, 32), (32, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(n_in, n_out, 4, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 256), nn.ReLU(), nn.Linear(256, 2 * d))


class Step:
    """One step of a variational autoencoder with Adam; the penalty decodes the latents itself."""

    def __init__(self, kind: str, d: int, batch: int) -> None:
        self.generator = torch.Generator(DEVICE).manual_seed(0)
        self.decoder = (perceptron(d, 2 * d) if kind == "mlp" else image_decoder(d)).to(DEVICE)
        self.encoder = (perceptron(2 * d, 2 * d) if kind == "mlp" else image_encoder(d)).to(DEVICE)
        shape = (batch, 2 * d) if kind == "mlp" else (batch, 3, 64, 64)
        self.x = self.drawn(*shape)
        self.optimizer = torch.optim.AdamW([*self.encoder.parameters(), *self.decoder.parameters()], fused=True)

    def drawn(self, *shape: int) -> Tensor:
        """Return standard normal numbers."""
        return torch.randn(shape, generator=self.generator, device=DEVICE)

    def __call__(self, decode: Callable[[Step, Tensor], tuple[Tensor, Tensor]]) -> None:
        """Take one step."""
        mean, log_scale = self.encoder(self.x).chunk(2, 1)
        z = mean + log_scale.exp() * self.drawn(*mean.shape)
        x_hat, cost = decode(self, z)
        bound = (x_hat - self.x).square().sum() + (mean.square() + (2 * log_scale).exp() - 2 * log_scale).sum()
        self.optimizer.zero_grad()
        (bound / len(z) + cost).backward()
        self.optimizer.step()


def plain(step: Step, z: Tensor) -> tuple[Tensor, Tensor]:
    return step.decoder(z), torch.zeros((), device=DEVICE)


def exact(step: Step, z: Tensor) -> tuple[Tensor, Tensor]:
    return DependencySparsity(weight=1.0)(step.decoder, z, z)


def sampled(step: Step, z: Tensor) -> tuple[Tensor, Tensor]:
    chance = torch.rand(z.shape, generator=step.generator, device=DEVICE)
    return DependencySparsity(weight=1.0, n_columns=1)(step.decoder, z, chance)


def sampled_rows(step: Step, z: Tensor) -> tuple[Tensor, Tensor]:
    chance = torch.rand(z.shape, generator=step.generator, device=DEVICE)
    return DependencySparsity(weight=1.0, n_columns=1, n_samples=max(1, len(z) // 4))(step.decoder, z, chance)


def exact_apart(step: Step, z: Tensor) -> tuple[Tensor, Tensor]:
    """Call the function in addition to a decoding of its own."""
    return step.decoder(z), dependency_sparsity(step.decoder, z)


def from_columns(x: Tensor, columns: Tensor, z: Tensor) -> Tensor:
    return ((columns / batch_scale(x)).abs().flatten(2).sum(2) * batch_scale(z)[:, None]).sum() / len(z)


def loop_of_jvp(step: Step, z: Tensor) -> tuple[Tensor, Tensor]:
    units = torch.eye(z.shape[1], device=DEVICE)[:, None].expand(-1, *z.shape)
    x = step.decoder(z)
    return x, from_columns(x, torch.stack([jvp(step.decoder, (z,), (unit,))[1] for unit in units]), z)


def vmap_of_jvp(step: Step, z: Tensor) -> tuple[Tensor, Tensor]:
    units = torch.eye(z.shape[1], device=DEVICE)[:, None].expand(-1, *z.shape)
    x = step.decoder(z)
    return x, from_columns(x, vmap(lambda unit: jvp(step.decoder, (z,), (unit,))[1])(units), z)


def vmap_of_jacrev(step: Step, z: Tensor) -> tuple[Tensor, Tensor]:
    weights = dict(step.decoder.named_parameters())
    x = step.decoder(z)
    jacobian = vmap(jacrev(lambda row: functional_call(step.decoder, weights, (row[None],))[0].flatten()))(z)
    return x, from_columns(x.flatten(1), jacobian.permute(2, 0, 1), z)


WAYS: dict[str, Callable[[Step, Tensor], tuple[Tensor, Tensor]]] = {
    "plain": plain,
    "one sampled column": sampled,
    "one sampled column, a quarter of the rows": sampled_rows,
    "exact": exact,
    "exact, decoded apart": exact_apart,
    "vmap(jvp)": vmap_of_jvp,
    "loop of jvp": loop_of_jvp,
    "vmap(jacrev)": vmap_of_jacrev,
}


def multiples(kind: str, d: int, ways: list[str], turns: int, calls: int) -> dict[str, float]:
    step = Step(kind, d, BATCH[kind])
    for way in ways:
        step(WAYS[way])
    ratios: dict[str, list[float]] = {way: [] for way in ways}
    gc.disable()
    for _ in range(turns):
        times = {}
        for way in ways:
            start = time.perf_counter()
            for _ in range(calls):
                step(WAYS[way])
            if DEVICE.type == "cuda":
                torch.cuda.synchronize()
            times[way] = (time.perf_counter() - start) / calls
        for way in ways:
            ratios[way].append(times[way] / times["plain"])
    gc.enable()
    return {way: median(values) for way, values in ratios.items()} | {"plain_ms": times["plain"] * 1e3}


def once(way: str, kind: str, d: int, warm_up: bool = False) -> None:
    torch.set_num_threads(1)
    Step(kind, d, 2 if warm_up else BATCH[kind])(WAYS[way])


def peak_bytes(way: str, kind: str, d: int) -> int:
    if DEVICE.type == "cuda":
        step = Step(kind, d, BATCH[kind])
        return gpu_peak_bytes(lambda: step(WAYS[way]))
    return cpu_peak_bytes(partial(once, way), kind, d)


def rows(kind: str, d: int, ways: list[str], *, turns: int, calls: int) -> list[dict]:
    measured = multiples(kind, d, ways, turns, calls)
    return [
        {
            "decoder": "64x64x3 convolutions" if kind == "conv" else "perceptron",
            "d": d,
            "way": way,
            "times_plain_step": measured[way],
            "plain_ms": measured["plain_ms"],
            "MB": peak_bytes(way, kind, d) / 2**20,
        }
        for way in ways
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    every = list(WAYS)
    # The reverse-mode Jacobian of an image takes 12,288 backward passes per row: not measured.
    found = [
        *rows("mlp", 5, every, turns=21, calls=3),
        *rows("mlp", 10, every, turns=21, calls=3),
        *rows("conv", 10, every[:-1], turns=5 if DEVICE.type == "cpu" else 21, calls=1 if DEVICE.type == "cpu" else 5),
    ]
    save("penalties", found)
