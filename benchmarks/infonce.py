"""InfoNCE forward and backward against the plain version that holds the n × n matrix.

Run ``make bench``, or ``python benchmarks/infonce.py``; with a GPU it measures there.
"""

from __future__ import annotations

from functools import partial

import torch
from _measure import cpu_peak_bytes, gpu_peak_bytes, replay_seconds, save, seconds
from torch import Tensor, nn

from pindown.losses import infonce


def plain(z: Tensor, z_pos: Tensor) -> Tensor:
    return nn.functional.cross_entropy(z @ z_pos.T, torch.arange(len(z), device=z.device))


def codes(n: int, d: int, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    z = nn.functional.normalize(torch.randn(2, n, d, device=device, generator=generator), dim=-1)
    return z[0].clone().requires_grad_(), z[1].clone().requires_grad_()


def once(loss, n: int, d: int, warm_up: bool = False) -> None:
    z, z_pos = codes(64 if warm_up else n, d, "cpu")
    loss(z, z_pos).backward()


def on_cpu(n: int, d: int) -> dict:
    z, z_pos = codes(n, d, "cpu")
    ours, theirs = (seconds(lambda f=f: torch.autograd.grad(f(z, z_pos), (z, z_pos))) for f in (infonce, plain))
    ours_bytes, theirs_bytes = (cpu_peak_bytes(partial(once, f), n, d) for f in (infonce, plain))
    return row(n, d, ours, theirs, ours_bytes, theirs_bytes)


def on_gpu(n: int, d: int) -> dict:
    z, z_pos = codes(n, d, "cuda")
    works = [lambda f=f: torch.autograd.grad(f(z, z_pos), (z, z_pos)) for f in (infonce, plain)]
    launched = [seconds(work) for work in works]
    return row(n, d, *map(replay_seconds, works), *map(gpu_peak_bytes, works)) | {
        "launched_ms": launched[0] * 1e3,
        "launched_plain_ms": launched[1] * 1e3,
    }


def row(n: int, d: int, ours: float, theirs: float, ours_bytes: int, theirs_bytes: int) -> dict:
    return {
        "n": n,
        "d": d,
        "ms": ours * 1e3,
        "plain_ms": theirs * 1e3,
        "times_faster": theirs / ours,
        "MB": ours_bytes / 2**20,
        "plain_MB": theirs_bytes / 2**20,
        "memory_ratio": ours_bytes / theirs_bytes,
    }


def large(n: int, d: int) -> dict:
    """Measure ours alone, where the matrix would not fit."""
    z, z_pos = codes(n, d, "cuda")

    def work():
        return torch.autograd.grad(infonce(z, z_pos), (z, z_pos))

    return {"n": n, "d": d, "ms": seconds(work, repeat=3) * 1e3, "MB": gpu_peak_bytes(work) / 2**20}


if __name__ == "__main__":
    if torch.cuda.is_available():
        save("infonce", [on_gpu(6_144, 10), on_gpu(8_192, 16), on_gpu(32_768, 16), large(262_144, 16)])
    else:
        save("infonce", [on_cpu(4_096, 16), on_cpu(16_384, 16)])
