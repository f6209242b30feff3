"""Features in superposition, of which the truth is known: gates of `Sparse` beside SAELens, in one run.

Run ``python benchmarks/sparse_worlds.py`` with the package ``sae-lens`` (6.54 was used), or without it for our half.
For each seed there is a world of 1,024 features in 256 dimensions, ten at a time, and every method takes 1,000 steps of
1,024 fresh rows; with ``--small``, in minutes, 256 features in 64 dimensions, four at a time, 500 steps of 512 rows.
SAELens has its activations scaled as it advises, a cosine schedule, and the best of four rates, chosen on seed 100;
ours has its defaults. Columns: mean cosine of matched atoms with the truth, F1 of the rows at which codes fire, dead
share of codes in 4,000 rows, share of variance that is rebuilt, seconds on one core.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from _measure import save

from pindown import Sparse
from pindown.gates import BatchTopK, JumpReLU, Matryoshka, TopK
from pindown.metrics import dead_share, firing_f1, fvu, match_atoms
from pindown.processes import Superposed

SMALL = "--small" in sys.argv
D, M, K, N_STEPS, BATCH = (256, 64, 4, 500, 512) if SMALL else (1_024, 256, 10, 1_000, 1_024)
SEEDS, TUNED = (0, 1, 2), 100
RATES = (6e-3, 1.2e-2, 2.4e-2, 4.8e-2)
OURS = {"TopK": TopK(K), "BatchTopK": BatchTopK(K), "JumpReLU": JumpReLU(K), "Matryoshka": Matryoshka(K)}
THEIRS = ("TopK", "BatchTopK")


def world(seed: int) -> Superposed:
    return Superposed.overcomplete(D, M, n_active=K, random_state=seed)


def scored(
    name: str, seed: int, atoms: np.ndarray, codes: np.ndarray, rebuilt: np.ndarray, took: float
) -> dict[str, Any]:
    test = world(seed).sample(4_000, random_state=seed + 1_000)
    found = match_atoms(atoms, world(seed).truth)
    return {
        "features": D,
        "method": name,
        "seed": seed,
        "cosine": float(found.cosine.mean()),
        "f1": firing_f1(codes, test.z.numpy(), found.partner),
        "dead": dead_share(codes).share,
        "rebuilt": 1 - fvu(test.x.numpy(), rebuilt),
        "seconds": took,
    }


def ours(name: str, seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    options = {"max_iter": N_STEPS, "batch_size": BATCH, "verbose": False, "random_state": seed}
    sparse = Sparse(D, gate=OURS[name], **options).fit_process(world(seed))
    took = time.perf_counter() - start
    codes = sparse.transform(world(seed).sample(4_000, random_state=seed + 1_000).x.numpy())
    return scored(f"pindown {name}", seed, sparse.components_, codes, sparse.inverse_transform(codes), took)


def theirs(name: str, seed: int, rate: float) -> dict[str, Any]:
    import sae_lens
    from sae_lens.config import LoggingConfig, SAETrainerConfig

    config = getattr(sae_lens, f"{name}TrainingSAEConfig")
    common = {"d_in": M, "d_sae": D, "k": K, "normalize_activations": "expected_average_only_in"}
    made = config(**common)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(seed)
        sae = getattr(sae_lens, f"{name}TrainingSAE")(made)

    def rows() -> Iterator[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            yield world_.sample(BATCH, random_state=generator).x

    world_ = world(seed)
    schedule = {"lr_scheduler_name": "cosineannealing", "lr_end": rate / 100, "lr_warm_up_steps": N_STEPS // 20}
    trainer_config = SAETrainerConfig(
        total_training_samples=N_STEPS * BATCH,
        train_batch_size_samples=BATCH,
        lr=rate,
        dead_feature_window=50,
        n_batches_for_norm_estimate=20,
        logger=LoggingConfig(log_to_wandb=False),
        **schedule,
    )
    trainer = sae_lens.SAETrainer(cfg=trainer_config, sae=sae, data_provider=rows())
    start = time.perf_counter()
    trainer.fit()
    took = time.perf_counter() - start
    x = world_.sample(4_000, random_state=seed + 1_000).x
    scale = trainer.activation_scaler.scaling_factor or 1.0
    with torch.no_grad():
        sae.eval()
        codes = sae.encode(x * scale)
        rebuilt = sae.decode(codes) / scale
    return scored(f"SAELens {name}", seed, sae.W_dec.detach().numpy(), codes.numpy(), rebuilt.numpy(), took) | {
        "rate": rate
    }


def runs() -> Iterator[dict[str, Any]]:
    """Yield what every method found: those beside SAELens first."""
    has_saelens = importlib.util.find_spec("sae_lens") is not None
    if not has_saelens:
        print("sae-lens is not installed: our half alone.")
    for name in OURS:
        for seed in SEEDS:
            yield ours(name, seed)
        if has_saelens and name in THEIRS:
            best = max((theirs(name, TUNED, rate) for rate in RATES), key=lambda row: row["cosine"])["rate"]
            for seed in SEEDS:
                yield theirs(name, seed, best)


def main() -> None:
    rows: list[dict[str, Any]] = []
    for row in runs():
        rows.append(row)
        print(row, flush=True)
    save("sparse_worlds_small" if SMALL else "sparse_worlds", rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
