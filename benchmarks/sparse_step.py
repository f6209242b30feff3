"""A step of one sparse autoencoder: milliseconds and megabytes, against eager PyTorch with dense activations.

Run ``python benchmarks/sparse_step.py`` on a GPU (a minute), or on a CPU at a small size. All have the same sizes,
batch, gate (the 32 largest activations of a sample) and Adam; pindown and the baseline have the same weights. The
baseline forms the matrix of samples × features in the forward pass and in its gradient, as most code does. ``captured``
is the step as the training loop runs it on a GPU, as a CUDA graph. The gradients of both are compared first. SAELens
(``sae-lens``, with dense activations, the default, and sparse) and sparsify (``eai-sparsify``) are measured, too, if
they are installed: their own modules and losses, without an auxiliary loss of dead features, with decoders of unit norm
as each implements it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from _measure import cpu_peak_bytes, gpu_peak_bytes, replay_seconds, save, seconds
from torch import nn

from pindown.methods.sparse.autoencoder import SparseAutoencoder
from pindown.networks.gates import TopK

K = 32
SIZES = {"cuda": ((4_096, 768, 24_576), (4_096, 768, 65_536)), "cpu": ((512, 256, 4_096),)}


class Dense(nn.Module):
    """The same autoencoder, all activations in one matrix."""

    def __init__(self, like: SparseAutoencoder) -> None:
        super().__init__()
        self.weight, self.bias, self.atoms = (
            nn.Parameter(w.detach().clone()) for w in (like.weight, like.bias, like.atoms)
        )

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error."""
        with torch.no_grad():
            self.atoms.div_(torch.linalg.vector_norm(self.atoms, dim=1, keepdim=True))
        scores = x @ self.weight.T + self.bias
        values, indices = scores.topk(K, dim=1)
        codes = torch.zeros_like(scores).scatter(1, indices, values.relu())
        return (x - codes @ self.atoms).square().mean()


class SAELens(nn.Module):
    """SAELens' own module for training, and its loss."""

    def __init__(self, m: int, d: int, *, sparse: bool) -> None:
        super().__init__()
        from sae_lens import TopKTrainingSAE, TopKTrainingSAEConfig

        self.sae = TopKTrainingSAE(TopKTrainingSAEConfig(d_in=m, d_sae=d, k=K, use_sparse_activations=sparse))

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Return what SAELens minimises while no feature is dead."""
        from sae_lens.saes.sae import TrainStepInput

        return self.sae.training_forward_pass(TrainStepInput(x, {}, None, 0, False)).loss


class Sparsify(nn.Module):
    """sparsify's own module, and its loss."""

    def __init__(self, m: int, d: int) -> None:
        super().__init__()
        from sparsify import SparseCoder, SparseCoderConfig

        self.coder = SparseCoder(m, SparseCoderConfig(num_latents=d, k=K), device="cpu")

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Return the fraction of variance unexplained, as its trainer computes it, with the decoder normalised."""
        self.coder.set_decoder_norm_to_unit_norm()
        return self.coder(x).fvu


OTHERS: dict[str, tuple[str, Callable[[int, int], nn.Module]]] = {
    "SAELens": ("sae_lens", lambda m, d: SAELens(m, d, sparse=False)),
    "SAELens, sparse codes": ("sae_lens", lambda m, d: SAELens(m, d, sparse=True)),
    "sparsify": ("sparsify", Sparsify),
}
"""Name → package, and what makes its module of m columns and d codes."""


def stepping(model: Any, x: torch.Tensor) -> Callable[[], None]:
    steps = torch.optim.AdamW(
        model.parameters(), lr=torch.tensor(1e-4, device=x.device), fused=True, capturable=x.is_cuda
    )

    def step() -> None:
        steps.zero_grad()
        model.loss(x).backward()
        steps.step()

    return step


def worked(kind: str, n: int, m: int, d: int, device: str, warm_up: bool = False) -> None:
    """Take three steps, in a separate process where memory is measured on a CPU."""
    model, x = made(kind, *((16, 8, 64) if warm_up else (n, m, d)), device)
    step = stepping(model, x)
    for _ in range(3):
        step()


def made(kind: str, n: int, m: int, d: int, device: str) -> tuple[Any, torch.Tensor]:
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        ours = SparseAutoencoder(m, d).configure(TopK(K), torch.ones(())).train()
        x = torch.randn(n, m)
        model = OTHERS[kind][1](m, d) if kind in OTHERS else ours if kind == "pindown" else Dense(ours)
    return model.to(device), x.to(device)


def agree(n: int, m: int, d: int, device: str) -> float:
    """Return the largest difference of gradients, relative to the largest gradient."""
    gradients = []
    for kind in ("pindown", "eager PyTorch"):
        model, x = made(kind, n, m, d, device)
        model.loss(x).backward()
        gradients.append([model.weight.grad, model.atoms.grad, model.bias.grad])
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(*gradients, strict=True))


def main() -> None:
    device, rows = "cuda" if torch.cuda.is_available() else "cpu", []
    others = [kind for kind, (package, _) in OTHERS.items() if importlib.util.find_spec(package)]
    if device == "cpu":  # sparse codes of SAELens and kernels of sparsify are made for a GPU
        others = [kind for kind in others if kind == "SAELens"]
    for n, m, d in SIZES[device]:
        size = {"rows": n, "columns": m, "codes": d, "difference of gradients": agree(n, m, d, device)}
        found = []
        for kind in ("eager PyTorch", "pindown", *others):
            model, x = made(kind, n, m, d, device)
            step = stepping(model, x)
            took = seconds(step, repeat=15)
            if device == "cuda":
                peak = gpu_peak_bytes(lambda: worked(kind, n, m, d, device))  # noqa: B023 (called at once)
            else:
                peak = cpu_peak_bytes(worked, kind, n, m, d, device)
            found.append({**size, "method": kind, "milliseconds": 1e3 * took, "megabytes": peak / 2**20})
            if device == "cuda" and kind == "pindown":
                found.append({**found[-1], "method": "pindown, captured", "milliseconds": 1e3 * replay_seconds(step)})
            del model, step
        for row in found:
            ratios = {
                "time_ratio": row["milliseconds"] / found[0]["milliseconds"],
                "memory_ratio": row["megabytes"] / found[0]["megabytes"],
            }
            rows.append(row | ratios)
    save("sparse_step", rows)


if __name__ == "__main__":
    main()
