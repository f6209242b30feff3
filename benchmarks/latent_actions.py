"""Latent actions of six arms in a simulator: what codes tell of the displacement, of the robot, and across robots.

Record with ``benchmarks/robots/record.py recordings/S --seed S --episodes 120 --paired 48`` for some seeds S (ten
minutes each, see ``make robots-env``), then

    python benchmarks/latent_actions.py recordings/ 0 1 2

(about five minutes a seed on one core). All settings were chosen on seed 10, of which nothing is reported. Saved in
results/; with ``--to FILE`` there instead, and ``--join FILES`` joins such files. A second stage of `LatentAction`,
where it is tried, is trained for 300 steps.

Episodes are held out, not rows: the second half of the paired ones of each robot, 24 of 120. *within*: R² of the hand's
displacement from codes, by a ridge regression with squares that is fitted to the other episodes, in the worst robot
and on average. *leakage*: balanced accuracy of the worst probe that reads the robot. *transfer k*: R² of codes of a
robot from those of another, by an affine map fitted to k pairs of the other episodes, over 30 pairs of robots; 0 takes
codes as they are. *left out*: R² of the displacement of a robot of which no label was seen, read by a regression that
five others learned, with 50 pairs between it and one other; *adopted*: the same by ``adopt``. *labels k*: a linear
regression from codes, fitted to k labels of a robot; and *together*, one for all robots.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _measure import RESULTS, save
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score

from pindown import Forget, LatentAction
from pindown.alignment import PolynomialRidge
from pindown.estimators import IdentifiabilityWarning, InverseDynamics
from pindown.metrics import leakage

PAIRS, LABELS, DRAWS = 50, (5, 10, 20, 50, 200), 5
PENALTIES = np.logspace(-6, 4, 21)
Codes = dict[str, np.ndarray]


class Moves(NamedTuple):
    """Transitions of a robot: joints before and after, displacement of the hand, episode."""

    before: np.ndarray
    after: np.ndarray
    hand: np.ndarray
    episode: np.ndarray

    def of(self, rows: np.ndarray) -> Moves:
        """Return some of them."""
        return Moves(*(part[rows] for part in self))


Robots = dict[str, Moves]


def read(folder: Path) -> tuple[Robots, Robots, int]:
    """Return transitions to learn from and held-out ones; of both, paired ones come first, and of the first so many."""
    learned, held = {}, {}
    for robot in json.loads((folder / "manifest.json").read_text())["robots"]:
        with np.load(folder / f"{robot}.npz") as recorded:
            joints, hand = (recorded[name].astype(np.float64) for name in ("joints", "position"))
            n_paired = int(recorded["paired"].sum())
        n_steps = joints.shape[1] - 1
        episode = np.repeat(np.arange(len(joints)), n_steps)
        parts = joints[:, :-1], joints[:, 1:], np.diff(hand, axis=1)
        moves = Moves(*(part.reshape(len(episode), -1) for part in parts), episode)
        out = (episode >= n_paired // 2) & (episode < n_paired)
        learned[robot], held[robot] = moves.of(~out), moves.of(out)
    return learned, held, n_paired // 2 * n_steps


def each(robots: Robots, code: Callable[[Moves], np.ndarray]) -> Codes:
    return {robot: code(moves) for robot, moves in robots.items()}


def own_maps(
    learned: Robots, held: Robots, fit: Callable[[Moves], Callable[[Moves], np.ndarray]]
) -> tuple[Codes, Codes]:
    """Return codes by a map per robot, of both parts."""
    maps = {robot: fit(moves) for robot, moves in learned.items()}
    first, second = ({robot: maps[robot](moves) for robot, moves in part.items()} for part in (learned, held))
    return first, second


def raw(moves: Moves) -> np.ndarray:
    return np.hstack([moves.before, moves.after - moves.before])


def z_score(moves: Moves) -> Callable[[Moves], np.ndarray]:
    mean, spread = raw(moves).mean(0), raw(moves).std(0)
    return lambda other: (raw(other) - mean) / spread


def principal(moves: Moves) -> Callable[[Moves], np.ndarray]:
    change = moves.after - moves.before
    mean = change.mean(0)
    sizes, axes = np.linalg.eigh(np.cov(change.T))
    white = axes[:, ::-1][:, :3] / np.sqrt(sizes[::-1][:3])
    return lambda other: (other.after - other.before - mean) @ white


def inverse_model(seed: int) -> Callable[[Moves], Callable[[Moves], np.ndarray]]:
    def fit(moves: Moves) -> Callable[[Moves], np.ndarray]:
        model = InverseDynamics(3, random_state=seed, verbose=False, device="cpu")
        model.fit(moves.before, moves.after, groups=moves.episode)
        codes = model.transform(moves.before, moves.after)
        mean, root = codes.mean(0), np.linalg.cholesky(np.linalg.inv(np.cov(codes.T)))
        return lambda other: (model.transform(other.before, other.after) - mean) @ root

    return fit


def jacobian(moves: Moves) -> Callable[[Moves], np.ndarray]:
    """Return a regression of the displacement, which is told: changes of joints, and their products with joints."""
    mean, spread = moves.before.mean(0), moves.before.std(0)

    def inputs(other: Moves) -> np.ndarray:
        place = np.hstack([np.ones((len(other.before), 1)), (other.before - mean) / spread])
        return ((other.after - other.before)[:, :, None] * place[:, None, :]).reshape(len(place), -1)

    told = RidgeCV(np.logspace(-9, 1, 11), fit_intercept=False).fit(inputs(moves), moves.hand)
    return lambda other: told.predict(inputs(other))


def latent(learned: Robots, held: Robots, rows: dict[str, np.ndarray] | None, seed: int) -> tuple[Any, Codes, Codes]:
    first = next(iter(learned))
    ties = (
        None if rows is None else {(first, robot): np.stack([k, k], 1) for robot, k in rows.items() if robot != first}
    )
    act = LatentAction(forget=Forget(max_iter=300, verbose=False, device="cpu"), random_state=seed)
    act.fit(
        *(each(learned, lambda m, i=i: m[i]) for i in (0, 1)), groups=each(learned, lambda m: m.episode), pairs=ties
    )
    return act, *(act.transform(*(each(part, lambda m, i=i: m[i]) for i in (0, 1))) for part in (learned, held))


def r2(truth: np.ndarray, made: np.ndarray) -> float:
    return float(r2_score(truth, np.reshape(made, truth.shape), multioutput="variance_weighted"))


def linear(codes: np.ndarray, hand: np.ndarray) -> Any:
    return RidgeCV(PENALTIES).fit(codes, hand)


def scored(data: tuple[Robots, Robots, int], codes: tuple[Codes, Codes], seed: int, *, tied: bool) -> dict[str, float]:
    """Return all figures of codes but what is learned without a robot."""
    (learned, held, n_pairs), (known, new) = data, codes
    rng = np.random.default_rng(seed)
    within = [r2(held[r].hand, PolynomialRidge(2).fit(known[r], learned[r].hand).predict(new[r])) for r in held]
    carried: dict[int, list[float]] = {0: [], PAIRS: []}
    for a, b in permutations(held, 2):
        if new[a].shape == new[b].shape:
            carried[0].append(r2(new[b], new[a]))
        for _ in range(DRAWS):
            rows = rng.permutation(n_pairs)[:PAIRS]
            carry = PolynomialRidge().fit(known[a][rows], known[b][rows])
            carried[PAIRS].append(r2(new[b], carry.predict(new[a])))
    found = {"within worst": min(within), "within mean": float(np.mean(within)), "leakage": told(new, held, seed)}
    found |= {f"transfer {k}": float(np.mean(values)) for k, values in carried.items()}
    for k in LABELS:
        alone, together = [], []
        for _ in range(DRAWS):
            rows = {r: rng.permutation(len(known[r]))[:k] for r in held}
            alone += [
                r2(held[r].hand, linear(known[r][rows[r]], learned[r].hand[rows[r]]).predict(new[r])) for r in held
            ]
            if tied:
                parts = [(known[r][rows[r]], learned[r].hand[rows[r]]) for r in held]
                one = linear(*(np.concatenate(part) for part in zip(*parts, strict=True)))
                together += [r2(held[r].hand, one.predict(new[r])) for r in held]
        found[f"labels {k}"] = float(np.mean(alone))
        if tied:
            found[f"labels {k} together"] = float(np.mean(together))
    return found


def told(codes: Codes, held: Robots, seed: int) -> float:
    width = max(part.shape[1] for part in codes.values())
    rows = np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in codes.values()])
    robot = np.repeat(list(codes), [len(part) for part in codes.values()])
    episode = np.concatenate([1000 * i + held[r].episode for i, r in enumerate(codes)])
    return leakage(rows, robot, groups=episode, n_seeds=1, n_permutations=99, random_state=seed).worst


def left_out(data: tuple[Robots, Robots, int], codes: tuple[Codes, Codes], seed: int) -> float:
    """Carry codes of all robots to one, by 50 pairs each; learn there without the labels of one robot, and read it."""
    (learned, held, n_pairs), (known, new) = data, codes
    rng, scores = np.random.default_rng(seed), []
    for robot in held:
        others = [r for r in held if r != robot]
        rows = rng.permutation(n_pairs)[:PAIRS]
        carry = {r: PolynomialRidge().fit(known[r][rows], known[others[0]][rows]) for r in (*others[1:], robot)}
        inputs = [known[others[0]], *(carry[r].predict(known[r]) for r in others[1:])]
        reader = linear(np.concatenate(inputs), np.concatenate([learned[r].hand for r in others]))
        scores.append(r2(held[robot].hand, reader.predict(carry[robot].predict(new[robot]))))
    return float(np.mean(scores))


def adopted(data: tuple[Robots, Robots, int], seed: int) -> float:
    """Fit `LatentAction` to five robots with pairs, let the sixth join by 50 with one of them, and read it."""
    learned, held, n_pairs = data
    rng, scores = np.random.default_rng(seed), []
    for robot in held:
        others = {r: moves for r, moves in learned.items() if r != robot}
        act, known, _ = latent(others, others, {r: rng.permutation(n_pairs)[:PAIRS] for r in others}, seed)
        rows, own = rng.permutation(n_pairs)[:PAIRS], learned[robot]
        first = next(iter(others))
        act.adopt(robot, own.before, own.after, rows=rows, codes=known[first][rows], groups=own.episode)
        reader = linear(np.concatenate(list(known.values())), np.concatenate([m.hand for m in others.values()]))
        new = act.transform({robot: held[robot].before}, {robot: held[robot].after})[robot]
        scores.append(r2(held[robot].hand, reader.predict(new)))
    return float(np.mean(scores))


def measured(folder: Path, seed: int) -> list[dict[str, Any]]:
    data = learned, held, n_pairs = read(folder / str(seed))
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []

    def add(name: str, codes: tuple[Codes, Codes], *, tied: bool = False, **more: Any) -> None:
        start = time.perf_counter()
        row = {"seed": seed, "code": name, **scored(data, codes, seed, tied=tied)}
        row |= {"left out": left_out(data, codes, seed), **more, "seconds": round(time.perf_counter() - start, 1)}
        rows.append(row)
        print("  ".join(f"{k}={v:.3f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)

    add("displacement of the hand (floor, ceiling)", (each(learned, lambda m: m.hand), each(held, lambda m: m.hand)))
    add("Jacobian, supervised", own_maps(learned, held, jacobian))
    add("joints and their changes", (each(learned, raw), each(held, raw)))
    changes = (each(part, lambda m: m.after - m.before) for part in (learned, held))
    add("changes of joints", tuple(changes))
    add("z-score per robot", own_maps(learned, held, z_score))
    add("three components per robot, whitened", own_maps(learned, held, principal))
    add("InverseDynamics(3) per robot, whitened", own_maps(learned, held, inverse_model(seed)))
    act, *codes = latent(learned, held, None, seed)
    add("LatentAction", tuple(codes), counted=act.n_components_, played=act.second_stage_.played)
    for k in (10, PAIRS, 200):
        act, *codes = latent(learned, held, {r: rng.permutation(n_pairs)[:k] for r in learned}, seed)
        more = {"counted": act.n_components_, "played": act.second_stage_.played}
        if k == PAIRS:
            more["adopted"] = adopted(data, seed)
        add(f"LatentAction, {k} pairs", tuple(codes), tied=True, **more)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("recordings"))
    parser.add_argument("seeds", type=int, nargs="*")
    parser.add_argument("--to", type=Path)
    parser.add_argument("--join", type=Path, nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", IdentifiabilityWarning)  # what leaks is what the table says
    if options.join:
        parts = [json.loads(path.read_text()) for path in options.join]
        joined = {"where": parts[0]["where"], "rows": [row for part in parts for row in part["rows"]]}
        (RESULTS / "latent_actions_cpu.json").write_text(json.dumps(joined, indent=1) + "\n")
    rows: list[dict[str, Any]] = []
    for seed in options.seeds:
        rows += measured(options.folder, seed)
        if options.to is not None:
            options.to.write_text(json.dumps({"where": where(), "rows": rows}))
    if rows and options.to is None:
        save("latent_actions", rows)


def where() -> dict[str, str]:
    device = f"CPU, {torch.get_num_threads()} threads"
    return {"device": device, "torch": torch.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    main()
