"""Arms of a simulator: their transitions, and what latents of these tell of the hand, of the robot, and across robots.

`benchmarks/robots/record.py` records them, in an environment of its own (``make robots-env``). A small recording comes
with the package, of 80 episodes of each of six arms; others are found in the folder that ``PINDOWN_ROBOTS`` names, a
recording in each of its folders 0, 1, 2 …
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = "PINDOWN_ROBOTS"
SMALL = Path(__file__).parent / "recordings" / "robots.npz"

PAIRS, LABELS, DRAWS = 50, (5, 10, 20, 50, 200), 5
"""Pairs that maps from robot to robot are fitted to, labels of a robot, and how often either are drawn."""

PENALTIES = np.logspace(-6, 4, 21)
"""Of regressions from few labels, which choose one by leaving one out."""

Codes = Mapping[str, np.ndarray]


class Moves(NamedTuple):
    """Transitions of a robot: joints before and after, displacement of the hand, episode."""

    before: np.ndarray
    after: np.ndarray
    hand: np.ndarray
    episode: np.ndarray

    @property
    def change(self) -> np.ndarray:
        """By how much joints turned."""
        return self.after - self.before

    def take(self, rows: np.ndarray) -> Moves:
        """Return some of them."""
        return Moves(*(part[rows] for part in self))


Robots = dict[str, Moves]


@dataclass(frozen=True, eq=False)
class Arms:
    """Transitions to learn from, and those of whole episodes that are held out.

    The first ``n_pairs`` of each robot to learn from, and all that are held out, are paired: row i of one robot is the
    same command as row i of another.
    """

    learned: Robots
    held: Robots
    n_pairs: int


@lru_cache(maxsize=2)
def small(seed: int) -> Arms:
    """Divide the recording that comes with the package: half of the paired episodes, drawn again, are held out."""
    with np.load(SMALL) as recorded:
        robots = [name.removesuffix("/joints") for name in recorded if name.endswith("/joints")]
        parts = {r: (recorded[f"{r}/joints"], recorded[f"{r}/position"]) for r in robots}
        n_paired = int(recorded["paired"].sum())
    return _divided(parts, np.random.default_rng(seed).permutation(n_paired))


@lru_cache(maxsize=1)
def recording(seed: int) -> Arms:
    """Read the recording of this number, in the folder that was named; the second half of its pairs is held out."""
    named = os.environ.get(FOLDER)
    folder = Path(named or "recordings") / str(seed)
    if not (folder / "manifest.json").is_file():
        raise FileNotFoundError(
            f"There is no recording of robots in {folder}. Make one by benchmarks/robots/record.py {folder} --seed "
            f"{seed} --episodes 120 --paired 48 (make robots-env sets up what it needs), and let {FOLDER} name the "
            "folder above it."
        )
    parts = {}
    for robot in json.loads((folder / "manifest.json").read_text())["robots"]:
        with np.load(folder / f"{robot}.npz") as recorded:
            parts[robot] = recorded["joints"], recorded["position"]
            n_paired = int(recorded["paired"].sum())
    return _divided(parts, np.arange(n_paired))


def _divided(parts: Mapping[str, tuple[np.ndarray, np.ndarray]], paired: np.ndarray) -> Arms:
    """Hold out the second half of paired episodes, which are given in some order; the first half comes first."""
    n_kept, learned, held = len(paired) // 2, {}, {}
    for robot, (joints, hand) in parts.items():
        own = np.arange(len(paired), len(joints))
        learned[robot] = _moves(joints, hand, np.concatenate([paired[:n_kept], own]))
        held[robot] = _moves(joints, hand, paired[n_kept:])
    return Arms(learned, held, n_kept * (joints.shape[1] - 1))


def _moves(joints: np.ndarray, hand: np.ndarray, episodes: np.ndarray) -> Moves:
    joints, hand = joints[episodes].astype(np.float64), hand[episodes].astype(np.float64)
    numbers = np.repeat(np.arange(len(episodes)), joints.shape[1] - 1)
    parts = joints[:, :-1], joints[:, 1:], np.diff(hand, axis=1)
    before, after, moved = (part.reshape(len(numbers), -1) for part in parts)
    return Moves(before, after, moved, numbers)


# ---- what latents show -----------------------------------------------------------------------------------------------


def scores(arms: Arms, known: Codes, new: Codes, seed: int, *, tied: bool) -> dict[str, float]:
    """Return all figures of latents, to learn from and held out; ``tied``: one latent is one action in all robots."""
    rng = np.random.default_rng(seed)
    return {
        **_within(arms, known, new),
        "leakage": told(new, arms.held, seed),
        **_transfers(arms, known, new, rng),
        "left out": _left_out(arms, known, new, rng),
        **_labels(arms, known, new, rng, tied=tied),
    }


def _within(arms: Arms, known: Codes, new: Codes) -> dict[str, float]:
    """Read displacements by a ridge regression with squares: of each robot, and one for all."""
    from pindown.methods.alignment import PolynomialRidge

    found = {
        r: r2(moves.hand, PolynomialRidge(2).fit(known[r], arms.learned[r].hand).predict(new[r]))
        for r, moves in arms.held.items()
    }
    one = PolynomialRidge(2).fit(stacked(known), stacked({r: moves.hand for r, moves in arms.learned.items()}))
    hands = {r: moves.hand for r, moves in arms.held.items()}
    pooled = r2(stacked(hands), one.predict(stacked(new)))
    return {"within": min(found.values()), "within, mean": float(np.mean(list(found.values()))), "pooled": pooled}


def told(codes: Codes, held: Robots, seed: int) -> float:
    """Return how well the best probe predicts the robot from latents: balanced accuracy, whole episodes held out."""
    from pindown.metrics import Effort, leakage

    robot = np.repeat(list(codes), [len(part) for part in codes.values()])
    episode = np.concatenate([1000 * i + held[r].episode for i, r in enumerate(codes)])
    return leakage(
        stacked(codes), robot, groups=episode, effort=Effort(n_seeds=1, n_permutations=99), random_state=seed
    ).worst


def _transfers(arms: Arms, known: Codes, new: Codes, rng: np.random.Generator) -> dict[str, float]:
    """Predict a robot's held-out latents from another's: as they are, and by an affine map fitted to pairs."""
    from pindown.methods.alignment import PolynomialRidge

    as_they_are, carried = [], []
    for a, b in permutations(new, 2):
        if new[a].shape == new[b].shape:
            as_they_are.append(r2(new[b], new[a]))
        for _ in range(DRAWS):
            rows = rng.permutation(arms.n_pairs)[:PAIRS]
            carried.append(r2(new[b], PolynomialRidge().fit(known[a][rows], known[b][rows]).predict(new[a])))
    return {"transfer 0": float(np.mean(as_they_are)), f"transfer {PAIRS}": float(np.mean(carried))}


def _left_out(arms: Arms, known: Codes, new: Codes, rng: np.random.Generator) -> float:
    """Carry latents of all robots to one, by 50 pairs each; learn there without labels of one robot, and read it."""
    from pindown.methods.alignment import PolynomialRidge

    found = []
    for robot in new:
        first, *others = (r for r in new if r != robot)
        rows = rng.permutation(arms.n_pairs)[:PAIRS]
        carry = {r: PolynomialRidge().fit(known[r][rows], known[first][rows]) for r in (*others, robot)}
        inputs = [known[first], *(carry[r].predict(known[r]) for r in others)]
        reader = _line(np.concatenate(inputs), np.concatenate([arms.learned[r].hand for r in (first, *others)]))
        found.append(r2(arms.held[robot].hand, reader.predict(carry[robot].predict(new[robot]))))
    return float(np.mean(found))


def _labels(arms: Arms, known: Codes, new: Codes, rng: np.random.Generator, *, tied: bool) -> dict[str, float]:
    """Read displacements by a line that a few labels of each robot have taught; and one line for all robots."""
    found: dict[str, list[float]] = {}
    for k in LABELS:
        for _ in range(DRAWS):
            rows = {r: rng.permutation(len(known[r]))[:k] for r in new}
            inputs, hands = ({r: part[rows[r]] for r, part in all_.items()} for all_ in (known, _hands(arms.learned)))
            for r, moves in arms.held.items():
                found.setdefault(f"labels {k}", []).append(r2(moves.hand, _line(inputs[r], hands[r]).predict(new[r])))
            if tied:
                one = _line(stacked(inputs), stacked(hands))
                of_all = [r2(moves.hand, one.predict(new[r])) for r, moves in arms.held.items()]
                found.setdefault(f"labels {k}, one line", []).extend(of_all)
    return {name: float(np.mean(values)) for name, values in found.items()}


def adopted(arms: Arms, fit: Callable[[Arms, int], tuple[Any, Codes]], seed: int) -> float:
    """Fit to five robots, let the sixth join by 50 pairs with one of them, and read it by what the others' labels say.

    ``fit`` returns an estimator with the latents of transitions to learn from.
    """
    rng, found = np.random.default_rng(seed), []
    for robot, own in arms.learned.items():
        others = {r: moves for r, moves in arms.learned.items() if r != robot}
        act, known = fit(Arms(others, {}, arms.n_pairs), seed)
        rows = rng.permutation(arms.n_pairs)[:PAIRS]
        latents = known[next(iter(others))][rows]
        act.adopt(robot, own.before, own.after, samples=rows, latents=latents, groups=own.episode)
        reader = _line(stacked(known), stacked(_hands(others)))
        held = arms.held[robot]
        new = act.transform({robot: held.before}, {robot: held.after})[robot]
        found.append(r2(held.hand, reader.predict(new)))
    return float(np.mean(found))


def _hands(robots: Robots) -> dict[str, np.ndarray]:
    return {r: moves.hand for r, moves in robots.items()}


def stacked(parts: Codes) -> np.ndarray:
    """Return rows of all robots, the narrower ones with zeros to their right."""
    width = max(part.shape[1] for part in parts.values())
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts.values()])


def r2(truth: np.ndarray, made: np.ndarray) -> float:
    """Return the fraction of variance, over all columns, that is explained."""
    from sklearn.metrics import r2_score

    return float(r2_score(truth, np.reshape(made, truth.shape), multioutput="variance_weighted"))


def _line(codes: np.ndarray, hand: np.ndarray) -> Any:
    from sklearn.linear_model import RidgeCV

    return RidgeCV(PENALTIES).fit(codes, hand)
