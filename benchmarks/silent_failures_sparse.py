"""A search for fits of `Sparse`, `SparsePair` and `LatentAction` that fail without a warning, as in `silent_failures`.

Run ``nice python benchmarks/silent_failures_sparse.py`` (one core, ten minutes); ``--case "sparse 7"`` runs one case
and prints it, ``--seconds 480`` stops in time. The number of active features, or of latents, is the true one.

- ``sparse``, ``pair``: activations of a simulation, changed as tables are in `silent_failures`, or with a few massive
  samples; the score is the explained variance of new samples (for `SparsePair` the mean of both sides), the baseline as
  many principal components as there are active features.
- ``bodies``, ``joints``: transitions of several bodies in arrays of one width, or in mappings; the score is the mean R²
  of the true action from the latents by ridge regression in each body, for new samples, less the balanced accuracy of
  the body beyond chance. The baselines are displacements, and their principal components, standardised in each body.

A case in which a baseline is better by .05 and nothing is said is a *silent failure*.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _measure import RESULTS, where, write
from numpy.typing import NDArray
from pindown_papers.simulations import Bodies
from silent_failures import CHANGES, MARGIN, probed
from sklearn.decomposition import PCA
from torch import nn

from pindown import Forget, LatentAction, Sparse, SparsePair
from pindown.methods import InverseDynamics
from pindown.metrics import fvu
from pindown.networks.gates import BatchTopK, Gate, JumpReLU, Matryoshka, TopK
from pindown.simulate import Superposed

Matrix = NDArray[Any]
Scores = tuple[float, float, str]
"""The score of a fit, that of the best baseline, and what was changed."""

GATES = (TopK, BatchTopK, Matryoshka, JumpReLU)
N_TEST = 1_000
RECORD = RESULTS / "silent_failures_sparse_cpu.json"


def massive(x: Matrix, rng: np.random.Generator) -> Callable[[Matrix], Matrix]:
    """Let half a percent of the samples be huge in two features, as the first token of a text is."""
    place, spread = rng.permutation(x.shape[1])[:2], 60 * float(np.median(x.std(0)))

    def change(a: Matrix) -> Matrix:
        a = a.copy()
        some = np.flatnonzero(rng.random(len(a)) < 0.005)
        a[some[:, None], place] += spread
        return a

    return change


def spectrum(x: Matrix, rng: np.random.Generator) -> Callable[[Matrix], Matrix]:
    """Let the variance along random directions decay by a power."""
    frame, power = np.linalg.qr(rng.normal(size=(x.shape[1],) * 2))[0], rng.choice([0.5, 0.75, 1, 1.5])
    return lambda a: (a @ frame) * np.arange(1, x.shape[1] + 1.0) ** -power @ frame.T


def samples(rng: np.random.Generator, seed: int, n_features: int) -> tuple[Matrix, Matrix, int, int, str]:
    """Return changed activations to learn from and new ones, the numbers of features and of active ones, the change."""
    n, k = int(rng.choice([1_000, 3_000])), int(n_features * rng.choice([1, 2, 4]))
    active = int(rng.integers(1, 5))
    world = Superposed.overcomplete(k, n_features, n_active=active, random_state=seed)
    x = world.sample(n + N_TEST, random_state=seed + 1).x.double().numpy()
    x += rng.choice([0, 0.1, 0.3]) * x.std() * rng.normal(size=x.shape)
    changes = (*CHANGES, massive, spectrum)
    change = changes[seed % len(changes)]
    changed = change(x[:n], rng)
    train, test = changed(x[:n]), changed(x[n:])
    return train.astype(np.float32), test.astype(np.float32), k, active, change.__name__


def plain(train: Matrix, test: Matrix, k: int) -> float:
    found = PCA(k, random_state=0).fit(train)
    return 1 - fvu(test, found.inverse_transform(found.transform(test)))


def sparse(rng: np.random.Generator, seed: int) -> Scores:
    train, test, k, active, change = samples(rng, seed, int(rng.choice([12, 32, 64])))
    gate: Gate = GATES[int(rng.integers(len(GATES)))](active)
    fit = Sparse(k, gate=gate, batch_size=256, max_iter=400, verbose=False, random_state=seed).fit(train)
    return fit.score(test), plain(train, test, active), f"{change}, {gate}"


def pair(rng: np.random.Generator, seed: int) -> Scores:
    train, test, k, active, change = samples(rng, seed, int(rng.choice([12, 32])))
    d, generator = train.shape[1], torch.Generator().manual_seed(seed)
    mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
    for weight in mlp.parameters():
        nn.init.normal_(weight, std=d**-0.5, generator=generator)
    gate = (TopK, BatchTopK)[seed % 2](active)
    fit = SparsePair(mlp, k, gate=gate, batch_size=256, max_iter=300, verbose=False, random_state=seed).fit(train)
    after = fit.apply_map(train), fit.apply_map(test)
    return fit.score(test), (plain(train, test, active) + plain(*after, active)) / 2, f"{change}, {gate}"


# ---- latent actions -------------------------------------------------------------------------------------------------


def judged(known: list[Matrix], new: list[Matrix], actions: tuple[list[Matrix], list[Matrix]]) -> float:
    """Return the mean R² of actions within bodies, less what is decodable of the body."""
    kept = np.mean([probed(*each) for each in zip(known, new, *actions, strict=True)])
    both = [(np.concatenate(part), np.repeat(np.arange(len(part)), [*map(len, part)])) for part in (known, new)]
    leak = probed(both[0][0], both[1][0], both[0][1], both[1][1])
    return float(kept - max(0, leak - 1 / len(known)) / (1 - 1 / len(known)))


def of_displacements(known: list[Matrix], new: list[Matrix], actions: tuple[list[Matrix], list[Matrix]]) -> float:
    """Return the score of displacements of each body, standardised, and of their principal components."""
    d, width = actions[0][0].shape[1], min(part.shape[1] for part in known)
    scores = []
    for k in (d, width):
        parts = [PCA(k, whiten=True, random_state=0).fit(own) for own in known]
        found = [[fit.transform(own) for fit, own in zip(parts, part, strict=True)] for part in (known, new)]
        scores.append(judged(*found, actions))
    return max(scores)


def bodies(rng: np.random.Generator, seed: int) -> Scores:
    n_bodies, n = int(rng.integers(2, 4)), int(rng.choice([1_500, 4_000]))
    simulation = Bodies.different(n_bodies, strength=float(rng.choice([0.2, 0.4, 0.8])), random_state=seed)
    parts = [simulation.sample(m, random_state=seed + k) for k, m in enumerate((n, N_TEST))]
    quick = {"verbose": False, "device": "cpu"}
    stages = {"dynamics": InverseDynamics(**quick), "forget": Forget(max_iter=200, **quick)}
    act = LatentAction(2, random_state=seed, **stages).fit(parts[0].x, parts[0].x_pos, parts[0].u)

    def by_body(values: list[Any]) -> list[list[Matrix]]:
        both = zip(values, parts, strict=True)
        return [[np.asarray(each[part.u == e], dtype=np.float64) for e in range(n_bodies)] for each, part in both]

    actions = by_body([part.z for part in parts])
    latents = by_body([act.transform(part.x, part.x_pos) for part in parts])
    moved = by_body([part.x_pos - part.x for part in parts])
    return judged(*latents, actions), of_displacements(*moved, actions), f"{n_bodies} bodies, {n} transitions"


def joints(rng: np.random.Generator, seed: int) -> Scores:
    """Arms with more joints than the action has dimensions: joints follow commands, and then swing."""
    d, n_bodies, n = int(rng.integers(1, 4)), int(rng.integers(2, 5)), int(rng.choice([400, 1_500]))
    swing, jerky, noise = float(rng.choice([0, 0.5, 2])), rng.random() < 0.3, float(rng.choice([0, 0.05, 0.3]))
    path, commands = {}, {}
    for body in range(n_bodies):
        width = int(rng.integers(d + 1, d + 5))
        command = rng.normal(size=(2 * n, d)) if not (jerky and body) else rng.laplace(size=(2 * n, d)) ** 3
        at_once, later = rng.normal(size=(2, d, width))
        moved = (
            command @ at_once + swing * np.roll(command, 1, axis=0) @ later + noise * rng.normal(size=(2 * n, width))
        )
        path[body], commands[body] = np.concatenate([np.zeros((1, width)), moved.cumsum(0)]), command
    ends = [(slice(0, n), slice(1, n + 1)), (slice(n, 2 * n), slice(n + 1, 2 * n + 1))]
    halves = [tuple({b: p[part] for b, p in path.items()} for part in half) for half in ends]
    episode = {body: np.arange(n) // 20 for body in path}
    shared = np.arange(min(n, 100))
    paired = rng.random() < 0.5
    if paired:
        for body in range(1, n_bodies):  # the same commands at first, if commands have one distribution
            width = path[body].shape[1]
            at_once = rng.normal(size=(d, width))
            commands[body][:100] = commands[0][:100]
            moved = commands[body] @ at_once + noise * rng.normal(size=(2 * n, width))
            path[body] = np.concatenate([np.zeros((1, width)), moved.cumsum(0)])
        halves = [tuple({b: p[part] for b, p in path.items()} for part in half) for half in ends]
    pairs = {(0, body): np.stack([shared, shared], 1) for body in range(1, n_bodies)} if paired else None
    forget = Forget(max_iter=200, verbose=False, device="cpu")
    act = LatentAction(d, forget=forget, random_state=seed).fit(*halves[0], groups=episode, pairs=pairs)
    known, new = ([*act.transform(*half).values()] for half in halves)
    actions = [c[:n] for c in commands.values()], [c[n:] for c in commands.values()]
    moved_parts = [[b - a for a, b in zip(*map(dict.values, half), strict=True)] for half in halves]
    what = f"d={d}, {n_bodies} bodies, swing {swing}, noise {noise}" + ", jerky" * jerky + ", pairs" * paired
    return judged(known, new, actions), of_displacements(*moved_parts, actions), what


KINDS: dict[str, tuple[Callable[[np.random.Generator, int], Scores], int]] = {
    "sparse": (sparse, 50),
    "pair": (pair, 12),
    "joints": (joints, 60),
    "bodies": (bodies, 4),
}


def run(kind: str, seed: int) -> dict[str, Any]:
    """Fit one case and its baseline."""
    start, row = time.perf_counter(), {"kind": kind, "seed": seed}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            score, best, what = KINDS[kind][0](np.random.default_rng([seed, len(kind)]), seed)
        except ValueError as error:
            return row | {"error": f"{type(error).__name__}: {error}"[:300], "silent": False}
    words = sorted(
        {str(each.message)[:200] for each in caught if each.category.__module__.startswith(("pindown", "sk"))}
    )
    found = {"what": what, "score": round(score, 3), "baseline": round(best, 3), "words": words}
    silent = best > score + MARGIN and not words
    return row | found | {"silent": silent, "seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", help="one case, such as 'sparse 7'")
    parser.add_argument("--only", default="", help="kinds whose name has this text")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.case:
        kind, _, seed = given.case.partition(" ")
        print(json.dumps(run(kind, int(seed)), indent=1, ensure_ascii=False))
        return
    start, rows = time.perf_counter(), []
    jobs = sorted((k / n, kind, k) for kind, (_, n) in KINDS.items() if given.only in kind for k in range(n))
    for _, kind, seed in jobs:
        if time.perf_counter() - start > given.seconds:
            break
        rows.append(run(kind, seed))
        if rows[-1]["silent"] or "error" in rows[-1]:
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        worse = sum(row.get("baseline", 0) > row.get("score", 0) + MARGIN for row in own)
        print(f"{kind:8} {len(own):4} cases {worse:4} worse {sum(row['silent'] for row in own):4} silently")
    if not given.only:
        write(RECORD, rows, {**where(), "seconds": f"{time.perf_counter() - start:.0f}"})


if __name__ == "__main__":
    main()
