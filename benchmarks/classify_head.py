"""Cross-entropy over very many ids, forward and backward, against PyTorch's on the batch × ids matrix.

Run ``python benchmarks/classify_head.py``; with a GPU it measures there. Memory is the peak beyond the parameters and
their gradients, which both versions need. ``total_GB`` is the peak of the whole process in a training step: imports,
parameters, gradients and the state of Adam.
"""

from __future__ import annotations

import multiprocessing
from functools import partial
from typing import Any

import torch
from _measure import _peak_bytes, cpu_peak_bytes, gpu_peak_bytes, replay_seconds, save, seconds
from torch import Tensor, nn

from pindown.losses import cross_entropy

BATCH, D = 1_024, 64


def plain(z: Tensor, vectors: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(z @ vectors.T, labels)


def inputs(n_ids: int, device: str = "cpu", batch: int = BATCH) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    z, vectors = (torch.randn(n, D, device=device, generator=generator) / D**0.25 for n in (batch, n_ids))
    labels = torch.randint(n_ids, (batch,), device=device, generator=generator)
    return z.requires_grad_(), vectors.requires_grad_(), labels


def once(loss: Any, n_ids: int, warm_up: bool = False) -> None:
    z, vectors, labels = inputs(64 if warm_up else n_ids, batch=8 if warm_up else BATCH)
    loss(z, vectors, labels).backward()


def parameters_and_gradients(n_ids: int) -> int:
    return 2 * 4 * D * (BATCH + n_ids)


def step_of_training(n_ids: int, queue: Any) -> None:
    z, vectors, labels = inputs(n_ids)
    adam = torch.optim.AdamW([z, vectors], fused=True)
    for _ in range(2):  # the second has the state of Adam beside it from the start
        adam.zero_grad()
        cross_entropy(z, vectors, labels).backward()
        adam.step()
    queue.put(_peak_bytes())


def total_peak_bytes(n_ids: int) -> int:
    """Return the most memory a process of its own holds in steps of training."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=step_of_training, args=(n_ids, queue))
    process.start()
    peak = queue.get()
    process.join()
    return peak


def on_cpu(n_ids: int, *, against_plain: bool, repeat: int) -> dict:
    z, vectors, labels = inputs(n_ids)
    losses = (cross_entropy, plain) if against_plain else (cross_entropy,)
    times = [
        seconds(lambda f=f: torch.autograd.grad(f(z, vectors, labels), (z, vectors)), repeat=repeat) for f in losses
    ]
    peaks = [cpu_peak_bytes(partial(once, f), n_ids) - parameters_and_gradients(n_ids) for f in losses]
    return row(n_ids, times, peaks) | {"total_GB": total_peak_bytes(n_ids) / 2**30}


def on_gpu(n_ids: int) -> dict:
    z, vectors, labels = inputs(n_ids, "cuda")
    works = [lambda f=f: torch.autograd.grad(f(z, vectors, labels), (z, vectors)) for f in (cross_entropy, plain)]
    gradients = parameters_and_gradients(n_ids) / 2  # the parameters are held before
    return row(
        n_ids, [replay_seconds(work, repeat=5) for work in works], [gpu_peak_bytes(w) - gradients for w in works]
    )


def row(n_ids: int, times: list[float], peaks: list[float]) -> dict:
    result = {"ids": n_ids, "batch": BATCH, "d": D, "ms": times[0] * 1e3, "MB": peaks[0] / 2**20}
    if len(times) == 1:
        return result
    return result | {
        "plain_ms": times[1] * 1e3,
        "times_faster": times[1] / times[0],
        "plain_MB": peaks[1] / 2**20,
        "memory_ratio": peaks[0] / peaks[1],
    }


if __name__ == "__main__":
    if torch.cuda.is_available():
        save("classify_head", [on_gpu(100_000), on_gpu(1_000_000)])
    else:
        save(
            "classify_head",
            [on_cpu(100_000, against_plain=True, repeat=5), on_cpu(1_000_000, against_plain=False, repeat=1)],
        )
