"""Features in superposition with known ground truth: gates of `Sparse` and SAELens in one run.

Run ``python benchmarks/sparse_worlds.py thousand`` with the package ``sae-lens`` (6.54 was used), or without it for
pindown's half; other simulations are ``small``, ``language`` and ``language16k``. Both get the same simulation, the
same number of steps, and as many new samples in each. SAELens has activations scaled as it advises, a cosine schedule,
and the best of the rates below, chosen on a seed that is not reported; `Sparse` has its defaults. Columns: mean cosine
of matched atoms with the truth, F1 of the samples at which features fire, fraction of features that are dead in the
test samples, explained variance, seconds of one core.

``language`` and ``language16k`` (on a GPU) are `processes.like_language`, after the recipe of SynthSAEBench, where
Matryoshka is published with a cosine of .793 and an F1 of .879 at 16,384 features, and BatchTopK with .757 and .732,
after a long training. ``--steps`` and ``--batch`` give both another training.

Runs on record are not repeated, so that a stopped command resumes; ``--only`` and ``--seeds`` choose runs. At the end
the table of `docs/results/sparse.md` is written from the record. ``--take`` adds the rows of other records, and runs
nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from _measure import RESULTS, record, where, write
from _parts import put_into, spans
from pindown_papers.firing import firing_f1
from pindown_papers.simulations import like_language
from scipy.sparse import csr_array, vstack

from pindown import Sparse
from pindown.metrics import by_frequency, dead_fraction, fvu, match_atoms
from pindown.networks.gates import BatchTopK, Gate, JumpReLU, Matryoshka, TopK
from pindown.simulate import Superposed

Row = dict[str, Any]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "sparse.md"
TUNED, AT_ONCE = 100, 1_000
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Case:
    """A simulation, how long both are trained on it, and the gates in its table."""

    name: str
    world: Callable[[int], Superposed]
    steps: int
    batch: int
    ours: tuple[type, ...]
    theirs: tuple[type, ...]
    rates: tuple[float, ...]  # of SAELens
    seeds: tuple[int, ...] = (0, 1, 2)
    n_test: int = 4_000
    shorter: int = 1  # how many times fewer steps a rate of SAELens is chosen by
    revive: tuple[bool, ...] = (True,)  # whether `Sparse` revives dead features; the first is the default

    @property
    def record(self) -> Path:
        """Where its runs are kept."""
        return record(f"sparse_worlds_{self.name}")


CASES = (
    Case(
        "small",
        lambda seed: Superposed.overcomplete(256, 64, n_active=4, random_state=seed),
        *(500, 512, (TopK, BatchTopK, JumpReLU, Matryoshka), (TopK, BatchTopK), (6e-3, 1.2e-2, 2.4e-2, 4.8e-2)),
    ),
    Case(
        "thousand",
        lambda seed: Superposed.overcomplete(1_024, 256, n_active=10, random_state=seed),
        *(1_000, 1_024, (TopK, BatchTopK), (TopK, BatchTopK), (6e-3,)),  # half of it, and twice, were worse for TopK
    ),
    Case(
        "language",
        lambda seed: like_language(512, 64, random_state=seed),
        *(600, 512, (Matryoshka, BatchTopK), (Matryoshka, BatchTopK), (6e-3, 1.2e-2, 2.4e-2)),
        revive=(True, False),
    ),
    Case(
        "language16k",
        lambda seed: like_language(16_384, 768, random_state=seed),
        *(4_000, 4_096, (BatchTopK, Matryoshka), (BatchTopK, Matryoshka), (3e-4, 1e-3, 3e-3)),
        seeds=(0,),
        n_test=2_000,
        shorter=4,
        revive=(True, False),
    ),
)


# ---- training -------------------------------------------------------------------------------------------------------


def ours(case: Case, gate: type, seed: int, revive: bool) -> Row:
    world = case.world(seed)
    start = time.process_time()
    options: dict[str, Any] = {"max_iter": case.steps, "batch_size": case.batch, "revive": revive, "verbose": False}
    sparse = Sparse(world.d, gate=made(gate, world), **options, random_state=seed).fit_process(world)
    took = time.process_time() - start
    return scored(case, world, seed, sparse.components_, sparse.transform_sparse, sparse.inverse_transform) | {
        "core seconds": took
    }


def theirs(case: Case, gate: type, seed: int, rate: float) -> Row:
    from sae_lens import SAETrainer
    from sae_lens.config import LoggingConfig, SAETrainerConfig

    world = case.world(seed)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(seed)
        sae = saelens_model(gate, world)

    def rows() -> Iterator[torch.Tensor]:
        generator = torch.Generator(DEVICE).manual_seed(seed)
        while True:
            yield world.sample(case.batch, random_state=generator, device=DEVICE).x

    schedule = {"lr_scheduler_name": "cosineannealing", "lr_end": rate / 100, "lr_warm_up_steps": case.steps // 20}
    config = SAETrainerConfig(
        total_training_samples=case.steps * case.batch,
        train_batch_size_samples=case.batch,
        lr=rate,
        dead_feature_window=50,
        n_batches_for_norm_estimate=min(20, case.steps // 4),
        device=DEVICE,
        logger=LoggingConfig(log_to_wandb=False),
        **schedule,
    )
    trainer = SAETrainer(cfg=config, sae=sae, data_provider=rows())
    start = time.process_time()
    trainer.fit()
    took = time.process_time() - start
    scale = trainer.activation_scaler.scaling_factor or 1.0
    sae.eval()

    @torch.no_grad()
    def encode(x: np.ndarray) -> csr_array:
        codes = sae.encode(torch.as_tensor(x, device=DEVICE) * scale)
        return csr_array((codes.to_dense() if codes.is_sparse else codes).cpu().numpy())

    @torch.no_grad()
    def decode(codes: csr_array) -> np.ndarray:
        return (sae.decode(torch.as_tensor(codes.toarray(), device=DEVICE)) / scale).cpu().numpy()

    found = scored(case, world, seed, sae.W_dec.detach().cpu().numpy(), encode, decode)
    return found | {"core seconds": took, "rate": rate}


def made(gate: type, world: Superposed) -> Gate:
    """Return a gate for as many features per sample as truly fire."""
    return gate(max(1, round(world.distribution.n_active)))


def saelens_model(gate: type, world: Superposed) -> Any:
    """Return SAELens' untrained dictionary that corresponds to a gate, with the same levels, if it has one."""
    import sae_lens

    opening = made(gate, world)(world.d)
    name = "MatryoshkaBatchTopK" if gate is Matryoshka else gate.__name__
    levels = {"matryoshka_widths": list(opening.levels(world.d))} if gate is Matryoshka else {}
    config = getattr(sae_lens, f"{name}TrainingSAEConfig")(
        d_in=world.dictionary.shape[1],
        d_sae=world.d,
        k=opening.n_expected,
        normalize_activations="expected_average_only_in",
        device=DEVICE,
        **levels,
    )
    return getattr(sae_lens, f"{name}TrainingSAE")(config)


def scored(
    case: Case,
    world: Superposed,
    seed: int,
    atoms: np.ndarray,
    encode: Callable[[np.ndarray], csr_array],
    decode: Callable[[csr_array], np.ndarray],
) -> Row:
    test = world.sample(case.n_test, random_state=seed + 1_000)
    x, parts = test.x.numpy(), range(0, case.n_test, AT_ONCE)
    blocks = [encode(x[k : k + AT_ONCE]) for k in parts]
    rebuilt = np.concatenate([decode(block) for block in blocks])
    codes, found = csr_array(vstack(blocks)), match_atoms(atoms, world.truth)
    return {
        "cosine": float(found.cosine.mean()),
        "cosine, commonest quarter": by_frequency(found.cosine, world.distribution.frequency.numpy(), n_bands=4)[
            -1
        ].mean,
        "f1": firing_f1(codes, csr_array(test.z.numpy()), found.matching),
        "dead": dead_fraction(codes).fraction,
        "rebuilt": 1 - fvu(x, rebuilt),
    }


# ---- runs -----------------------------------------------------------------------------------------------------------


def runs(case: Case, kept: list[Row]) -> Iterator[Row]:
    """Yield the runs that are not on record yet, those of `Sparse` first; learning rates are chosen before."""
    here = importlib.util.find_spec("sae_lens") is not None
    if not here:
        print("sae-lens is not installed: our half alone.")

    def new(
        who: str, gate: type, seed: int, *, rate: float | None = None, revive: bool = True, case: Case = case
    ) -> Iterator[Row]:
        method = f"{who} {gate.__name__}{'' if revive else ', revive=False'}"
        run = {"method": method, "seed": seed, "steps": case.steps, "batch": case.batch}
        if not any(run.items() <= row.items() and row.get("rate") == rate for row in kept):
            found = ours(case, gate, seed, revive) if rate is None else theirs(case, gate, seed, rate)
            yield run | found

    for gate in case.ours:
        for revive, seed in product(case.revive, case.seeds):
            yield from new("pindown", gate, seed, revive=revive)
    trial = replace(case, steps=case.steps // case.shorter)
    for gate in case.theirs if here else ():
        for rate in case.rates if len(case.rates) > 1 else ():
            yield from new("SAELens", gate, TUNED, rate=rate, case=trial)
        for seed in case.seeds:
            yield from new("SAELens", gate, seed, rate=best_rate(trial, f"SAELens {gate.__name__}", kept))


def best_rate(case: Case, method: str, kept: list[Row]) -> float:
    """Return the learning rate with the largest cosine on the seed on which rates are chosen."""
    tried = [row for row in kept if row["method"] == method and row["seed"] == TUNED and row["steps"] == case.steps]
    return max(tried, key=lambda row: row["cosine"])["rate"] if tried else case.rates[0]


def table(case: Case, kept: list[Row]) -> str:
    """Return what is reported, mean over seeds."""
    world = case.world(0)
    reported = [row for row in kept if row["seed"] != TUNED and row["steps"] == case.steps]
    keys = {key: shown for key, shown in KEYS.items() if all(key in row for row in reported)}
    lines = [
        f"{world.d:,} features in {world.dictionary.shape[1]} dimensions, {world.distribution.n_active:.0f} at a time, "
        f"{case.steps:,} steps of {case.batch:,} fresh rows (`python benchmarks/sparse_worlds.py {case.name}`):",
        "",
        f"| | {' | '.join(heading for heading, _ in keys.values())} | seeds |",
        "|---" * (len(keys) + 2) + "|",
    ]
    for method in dict.fromkeys(row["method"] for row in reported):
        rows = [row for row in reported if row["method"] == method]
        who, gate = method.split(maxsplit=1)
        cells = [style.format(mean(row[key] for row in rows)) for key, (_, style) in keys.items()]
        name = f"`Sparse`, {gate}" if who == "pindown" else f"SAELens, {gate}"
        lines.append(f"| {name} | {' | '.join(cells)} | {spans(row['seed'] for row in rows)} |")
    return "\n".join(lines)


KEYS = {
    "cosine": ("cosine with the truth", "{:.3f}"),
    "cosine, commonest quarter": ("of the commonest quarter", "{:.3f}"),
    "f1": ("F1 of features", "{:.3f}"),
    "dead": ("dead features", "{:.1%}"),
    "rebuilt": ("explained variance", "{:.3f}"),
}
"""Columns of the table."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("world", choices=[case.name for case in CASES])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--only", choices=("pindown", "SAELens"), help="one half")
    parser.add_argument("--gate", help="one gate, such as BatchTopK")
    parser.add_argument("--take", type=Path, nargs="+", metavar="FILE", help="records of a GPU to add, running nothing")
    given = parser.parse_args()
    case = next(case for case in CASES if case.name == given.world)
    if given.take:
        return take(case, given.take)
    case = replace(
        case,
        steps=given.steps or case.steps,
        batch=given.batch or case.batch,
        seeds=tuple(given.seeds or case.seeds),
        ours=tuple(gate for gate in case.ours if given.only != "SAELens" and given.gate in (None, gate.__name__)),
        theirs=tuple(gate for gate in case.theirs if given.only != "pindown" and given.gate in (None, gate.__name__)),
    )
    for row in runs(case, kept := on_record(case)):
        print(row, flush=True)
        kept[:] = [*on_record(case), row]  # two halves may be run at once
        write(case.record, kept, where())
    print(table(case, kept))
    if given.steps is None and given.batch is None:
        put_into(PAGE, table(case, kept), case.name)


def take(case: Case, paths: Sequence[Path]) -> None:
    """Add rows of other records to the record of a GPU, the last one of each run; and write the table."""
    path = RESULTS / f"sparse_worlds_{case.name}_gpu.json"
    told = [json.loads(each.read_text("utf-8")) for each in (path, *paths)]
    which = ("method", "seed", "steps", "batch", "rate")
    kept = {tuple(row.get(key) for key in which): row for each in told for row in each["rows"]}
    write(path, list(kept.values()), told[-1]["where"])
    put_into(PAGE, table(case, list(kept.values())), case.name)


def on_record(case: Case) -> list[Row]:
    return json.loads(case.record.read_text("utf-8"))["rows"] if case.record.exists() else []


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
