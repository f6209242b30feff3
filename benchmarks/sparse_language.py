"""A world like language, 16,384 features in 768 dimensions: how much of it each gate recovers.

Run ``python benchmarks/sparse_language.py`` on a GPU (minutes; ``--steps 4000`` is the default), or with ``--small`` on
a CPU: 1,024 features in 128 dimensions. Frequencies follow Zipf's law, some features fire only with others, and rows
are not centred: `processes.Superposed.like_language`, after the recipe of SynthSAEBench. In its own world, where
siblings exclude each other, Matryoshka is published with a cosine of .793 and an F1 of .879, BatchTopK with .757 and
.732. k is L0.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from _measure import save

from pindown import Sparse
from pindown.gates import BatchTopK, Gate, Matryoshka, TopK
from pindown.metrics import by_frequency, dead_share, firing_f1, fvu, match_atoms
from pindown.processes import Superposed

N_TEST = 8_000
GATES = (Matryoshka, BatchTopK, TopK)


def scored(gate: Gate, world: Superposed, n_steps: int, batch_size: int, seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    options: dict[str, Any] = {"max_iter": n_steps, "batch_size": batch_size, "verbose": False, "random_state": seed}
    sparse = Sparse(world.d, gate=gate, **options).fit_process(world)
    took = time.perf_counter() - start
    print(f"{gate}: fitted in {took:.0f} s", flush=True)
    test = world.sample(N_TEST, random_state=seed + 1_000)
    codes, found = sparse.sparse_codes(test.x.numpy()), match_atoms(sparse.components_, world.truth)
    bands = by_frequency(found.cosine, world.law.frequency.numpy(), n_bands=4)
    return {
        "gate": repr(gate),
        "features": world.d,
        "seed": seed,
        "L0": world.law.n_active,
        "steps": n_steps,
        "cosine": float(found.cosine.mean()),
        "f1": firing_f1(codes, test.z.numpy(), found.partner),
        "rebuilt": 1 - fvu(test.x.numpy(), sparse.inverse_transform(codes)),
        "dead": dead_share(codes).share,
        **{f"cosine, fires at {band.low:.2%} to {band.high:.2%}": band.mean for band in bands},
        "seconds": took,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--gates", type=int, default=len(GATES), help="how many of them, in their order")
    given = parser.parse_args()
    d, m, batch_size = (1_024, 128, 1_024) if given.small else (16_384, 768, 4_096)
    world = Superposed.like_language(d, m, random_state=0)
    k = max(1, round(world.law.n_active))
    rows: list[dict[str, Any]] = []
    for gate in GATES[: given.gates]:
        rows.append(scored(gate(k), world, given.steps, batch_size, seed=0))
        save("sparse_language_small" if given.small else "sparse_language", rows)  # what is there is not lost


if __name__ == "__main__":
    main()
