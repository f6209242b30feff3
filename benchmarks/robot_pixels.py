"""Latent actions of arms from frames: how well they predict the motion of the hand, the robot, and later frames.

Record with ``benchmarks/robots/record.py rec/S --seed S --episodes 120 --paired 48``, draw frames with
``benchmarks/robots/render.py rec/S`` (five minutes a robot), then for each recording S, and both cameras or one,

    python benchmarks/robot_pixels.py rec/ S --to one-S.json
    python benchmarks/robot_pixels.py rec/ S --cameras sideview frontview --to two-S.json --only pair hand sup
    python benchmarks/robot_pixels.py rec/ --parts one-*.json two-*.json

(ten minutes a recording on one core; ``--device cuda`` trains convolutions on a GPU). ``--robots`` takes other arms,
``--strip docs/figures/robot-rollout.png`` draws rollouts of the first two. All settings were chosen on recording 10.
Rows are saved in results/, and means over recordings are written to docs/results/antidiversity.md.

Latents describe three steps, 150 ms. Those of `LatentAction` describe one step: three are added, and then whitened in
each arm by the statistics of its training samples, or matched by `DistributionMatcher`. All other latents are
differences of an encoder, which add up. Episodes are held out: the second half of the paired ones, 24 of 120. *within*:
R² of the hand's displacement, predicted from latents by a ridge regression fitted to the other episodes, for each robot
and along each axis. *leakage*: balanced accuracy of the worst probe that predicts the robot from latents, and from the
true displacement, the floor. *transfer*: R² of latents of a robot, predicted from those of another without a map and by
an affine map fitted to 50 pairs. *rollout*: squared error of the frames of ten steps, as a fraction of that of standing
still: by latents of the robot's own transitions, by those of the next robot in the same motions, and, as a control, by
those of other episodes.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _measure import record, write
from _parts import put_into
from _robot_table import FITS, FLOOR, PAIRS, SUPERVISED, as_table
from pindown_papers.matching import DistributionMatcher
from pindown_papers.simulations import save_animation
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from torch import nn

from pindown import Forget, LatentAction
from pindown.errors import IdentifiabilityWarning
from pindown.methods import InverseDynamics
from pindown.methods.alignment import PolynomialRidge
from pindown.metrics import Effort, leakage
from pindown.networks import convolutional
from pindown.simulate.images import contact_sheet, save_png

STEP, ROLLED = 3, 10
PENALTIES = np.logspace(-6, 4, 21)
PAGE = Path(__file__).parents[1] / "docs" / "results" / "antidiversity.md"
ARMS = ["Panda", "UR5e", "Sawyer", "Jaco", "IIWA", "Kinova3"]
Codes = dict[str, np.ndarray]


class Film(NamedTuple):
    """A robot's episodes: frames between 0 and 1, (n, t, c, h, w), and places of the hand, (n, t, 3)."""

    frames: np.ndarray
    hand: np.ndarray

    def of(self, episodes: np.ndarray) -> Film:
        """Return some of them."""
        return Film(self.frames[episodes], self.hand[episodes])

    def transitions(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return frames so many steps apart; (n (t − step), c, h, w) twice."""
        before, after = self.frames[:, :-step], self.frames[:, step:]
        return before.reshape(-1, *before.shape[2:]), after.reshape(-1, *after.shape[2:])

    def moved(self, step: int) -> np.ndarray:
        """Return displacements of the hand; (n (t − step), 3)."""
        return (self.hand[:, step:] - self.hand[:, :-step]).reshape(-1, 3)

    def episode(self, step: int) -> np.ndarray:
        """Return the episode of each transition."""
        return np.repeat(np.arange(len(self.frames)), self.frames.shape[1] - step)


Films = dict[str, Film]


def read(folder: Path, cameras: list[str], robots: list[str]) -> tuple[Films, Films, int]:
    """Return films to learn from and held-out ones; how many of the first are paired, as all of the second are."""
    learned, held = {}, {}
    for robot in robots:
        with np.load(folder / f"{robot}-frames.npz") as drawn, np.load(folder / f"{robot}.npz") as recorded:
            chosen = [drawn["cameras"].tolist().index(camera) for camera in cameras]
            frames = np.concatenate([drawn["frames"][:, :, camera] for camera in chosen], -2)  # side by side
            hand, n_paired = recorded["position"][: len(frames)].astype(np.float64), int(recorded["paired"].sum())
        film = Film(np.moveaxis(frames, -1, 2).astype(np.float32) / 255, hand)
        out = np.isin(np.arange(len(frames)), np.arange(n_paired // 2, n_paired))
        learned[robot], held[robot] = film.of(~out), film.of(out)
    return learned, held, n_paired // 2


def r2(truth: np.ndarray, made: np.ndarray) -> float:
    return float(r2_score(truth, made, multioutput="variance_weighted"))


def rows(films: Films, step: int) -> tuple[dict, dict]:
    before, after = ({robot: film.transitions(step)[i] for robot, film in films.items()} for i in (0, 1))
    return before, after


def scored(data: tuple[Films, Films, int], codes: tuple[Codes, Codes], seed: int) -> dict[str, Any]:
    """Return scores of latents of training and of held-out transitions."""
    (learned, held, n_paired), (known, new) = data, codes
    found: dict[str, Any] = {"n_codes": next(iter(new.values())).shape[1]}
    for robot, film in held.items():
        told = RidgeCV(PENALTIES).fit(known[robot], learned[robot].moved(STEP)).predict(new[robot])
        truth = film.moved(STEP)
        found[f"within {robot}"] = r2(truth, told)
        found |= {f"within {robot} {axis}": r2(truth[:, i], told[:, i]) for i, axis in enumerate("xyz")}
    found["leakage"] = leak(new, held, seed)
    rng = np.random.default_rng(seed)
    n_pairs = n_paired * (next(iter(held.values())).frames.shape[1] - STEP)
    some = rng.permutation(n_pairs)[:PAIRS]
    ways = list(permutations(held, 2))
    found["transfer 0"] = float(np.mean([r2(new[b], new[a]) for a, b in ways]))
    carried = [r2(new[b], PolynomialRidge().fit(known[a][some], known[b][some]).predict(new[a])) for a, b in ways]
    return found | {f"transfer {PAIRS}": float(np.mean(carried))}


def leak(codes: Codes, films: Films, seed: int) -> float:
    robot = np.repeat(list(codes), [len(part) for part in codes.values()])
    episode = np.concatenate([1000 * i + films[r].episode(STEP) for i, r in enumerate(codes)])
    values = np.concatenate(list(codes.values()))
    return leakage(values, robot, groups=episode, effort=Effort(n_seeds=1, n_permutations=99), random_state=seed).worst


def supervised(film: Film, device: str, n_steps: int, seed: int) -> Any:
    """Return a convolutional encoder c whose c(x′) − c(x) was trained to be the true displacement."""
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        chart: nn.Module = convolutional(film.frames.shape[2:], 3, widths=(16, 32, 64, 64)).to(device)
    rng = np.random.default_rng(seed)
    before, after = film.transitions(STEP)
    moved = film.moved(STEP)
    unit = moved.std()
    optimizer = torch.optim.AdamW(chart.parameters(), lr=1e-3, weight_decay=1e-2)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=n_steps)
    for _ in range(n_steps):
        batch = rng.integers(len(before), size=64)
        x, y, z = (torch.as_tensor(part[batch], device=device).float() for part in (before, after, moved / unit))
        loss = (chart(y - 0.5) - chart(x - 0.5) - z).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    return _differences(chart, device, float(unit))


def contrasted(film: Film, device: str, n_steps: int, seed: int) -> Any:
    """Return six latents c(x′) − c(x) of convolutions that find the frame three steps on among those of eight episodes.

    Frames are shifted, brightened and made noisy; shift and brightness are the same within an episode. Otherwise fine
    detail identifies the episode, and the latents do not generalise to other episodes.
    """
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        chart: nn.Module = convolutional(film.frames.shape[2:], 6, widths=(16, 32, 64, 64)).to(device)
    rng, draws = np.random.default_rng(seed), torch.Generator(device).manual_seed(seed)
    frames, n_moments = torch.as_tensor(film.frames, device=device) - 0.5, film.frames.shape[1]
    optimizer = torch.optim.AdamW(chart.parameters(), lr=1e-3, weight_decay=1e-2)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=n_steps)
    for _ in range(n_steps):
        some = frames[rng.permutation(len(frames))[:8]]
        shown = torch.stack([torch.roll(each, tuple(rng.integers(-4, 5, 2)), (-2, -1)) for each in some])
        shown = shown * (1 + 0.1 * torch.randn(len(some), 1, 1, 1, 1, device=device, generator=draws))
        shown = shown + 0.05 * torch.randn(shown.shape, device=device, generator=draws)
        codes = chart(shown.flatten(0, 1)).unflatten(0, (len(some), n_moments))
        logits = -torch.cdist(codes[:, :-STEP].flatten(0, 1), codes.flatten(0, 1)).square()
        own, later = (
            torch.arange(len(some) * n_moments, device=device).reshape(len(some), -1)[:, part].flatten()
            for part in (slice(-STEP), slice(STEP, None))
        )
        loss = nn.functional.cross_entropy(logits.scatter(1, own[:, None], -torch.inf), later)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    return _differences(chart, device, 1.0)


def _differences(chart: nn.Module, device: str, unit: float) -> Any:
    def code(other: Film) -> np.ndarray:
        with torch.no_grad():
            seen = [chart(torch.as_tensor(frames, device=device) - 0.5).cpu() for frames in other.frames]
        made = torch.stack(seen).double().numpy() * unit
        return (made[:, STEP:] - made[:, :-STEP]).reshape(-1, made.shape[-1])

    return code


def components(film: Film) -> Any:
    """Return the 48 leading components of frames' differences over three steps, whitened: what a user does first."""
    before, after = film.transitions(STEP)
    change = (after - before).reshape(len(before), -1)
    _, sizes, axes = torch.svd_lowrank(torch.as_tensor(change), q=56, niter=2)
    white = (axes[:, :48] / sizes[:48] * len(change) ** 0.5).numpy()

    def code(other: Film) -> np.ndarray:
        x, y = other.transitions(STEP)
        return (y.reshape(len(y), -1) - x.reshape(len(x), -1)).astype(np.float32) @ white

    return code


def behind(film: Film, seed: int) -> Any:
    """Return `InverseDynamics` of the leading 32 components of frames."""
    frames = film.frames.reshape(-1, int(np.prod(film.frames.shape[2:])))
    mean = frames.mean(0)
    axes = torch.svd_lowrank(torch.as_tensor(frames - mean), q=40, niter=3)[2][:, :32].numpy()

    def seen(other: Film) -> tuple[np.ndarray, np.ndarray]:
        x, y = ((part.reshape(len(part), -1) - mean) @ axes for part in other.transitions(STEP))
        return x, y

    model = InverseDynamics(3, max_iter=500, random_state=seed, verbose=False, device="cpu")
    model.fit(*seen(film), groups=film.episode(STEP))
    return lambda other: model.transform(*seen(other))


def fitted(data: tuple[Films, Films, int], n_codes: int | None, n_pairs: int, seed: int) -> tuple[Any, Codes, Codes]:
    """Fit to transitions of one step, and return their latents."""
    learned, held, n_paired = data
    first, *others = learned
    n_samples = n_paired * (learned[first].frames.shape[1] - 1)
    ties = None
    if n_pairs:
        chosen = np.random.default_rng(seed).permutation(n_samples)[:n_pairs]
        ties = {(first, other): np.stack([chosen, chosen], 1) for other in others}
    act = LatentAction(n_codes, forget=Forget(max_iter=300, verbose=False, device="cpu"), random_state=seed)
    act.fit(*rows(learned, 1), groups={robot: film.episode(1) for robot, film in learned.items()}, pairs=ties)
    known, new = (act.transform(*rows(part, 1)) for part in (learned, held))
    return act, known, new


def added(codes: Codes, films: Films) -> Codes:
    """Return latents of three steps each: the sums of those of one."""
    steps = {
        robot: codes[robot].reshape(len(film.frames), film.frames.shape[1] - 1, -1) for robot, film in films.items()
    }
    sums = {
        robot: np.lib.stride_tricks.sliding_window_view(part, STEP, axis=1).sum(-1) for robot, part in steps.items()
    }
    return {robot: part.reshape(-1, part.shape[-1]) for robot, part in sums.items()}


def rolled(act: Any, held: Films, codes: Codes) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Return errors of ten steps by a robot's own latents, another robot's, and another episode's; and the films."""
    starts = {robot: film.frames[:, 0] for robot, film in held.items()}
    n_steps = next(iter(held.values())).frames.shape[1] - 1
    own = {robot: z.reshape(len(starts[robot]), n_steps, -1)[:, :ROLLED] for robot, z in codes.items()}
    turned = dict(zip(own, [*list(own.values())[1:], next(iter(own.values()))], strict=True))
    strange = {robot: np.roll(codes, 1, axis=0) for robot, codes in own.items()}
    true = {robot: film.frames[:, : ROLLED + 1] for robot, film in held.items()}
    films = {"true": true}
    errors: dict[str, Any] = {}
    for name, by in (("own", own), ("swapped", turned), ("strange", strange)):
        films[name] = act.roll_out(starts, by)
        for robot in held:
            missed, still = (((part - true[robot]) ** 2).sum() for part in (films[name][robot], true[robot][:, :1]))
            errors[f"rollout {robot} {name}"] = float(missed / still)
    return errors, films


def strip(path: Path, films: dict[str, dict[str, np.ndarray]], episode: int) -> None:
    """Draw one row of frames for each of two robots and each film, every second step, and an animation."""
    robots = list(films["true"])[:2]
    shown = [films[name][robot][episode][:, :3] for robot in robots for name in ("true", "own", "swapped")]
    save_png(path, contact_sheet(np.concatenate([part[::2] for part in shown]).clip(0, 1), columns=ROLLED // 2 + 1))
    moments = [contact_sheet(np.stack([part[t] for part in shown]).clip(0, 1), columns=3) for t in range(ROLLED + 1)]
    save_animation(path.with_name(f"{path.stem}-moving.png"), np.repeat(np.repeat(moments, 2, 1), 2, 2))


def measured(data: tuple[Films, Films, int], seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each requested kind of latents."""
    learned, held, _ = data

    def each(make: Callable[[Film], Any]) -> tuple[Codes, Codes]:
        maps = {robot: make(film) for robot, film in learned.items()}
        known, new = ({robot: maps[robot](film) for robot, film in part.items()} for part in (learned, held))
        return known, new

    def first(k: int) -> tuple[Codes, Codes]:
        known, new = ({r: codes[:, :k] for r, codes in part.items()} for part in each(components))
        return known, new

    def truth() -> tuple[Codes, Codes]:
        known, new = ({robot: film.moved(STEP) for robot, film in part.items()} for part in (learned, held))
        return known, new

    made: dict[str, Callable[[], tuple[Codes, Codes]]] = {
        FLOOR: truth,
        **{f"{k} components of differences, whitened": lambda k=k: first(k) for k in (3, 6, 48)},
        "InverseDynamics(3) of 32 components": lambda: each(lambda film: behind(film, seed)),
        "convolutions, contrast in time": lambda: each(lambda film: contrasted(film, options.device, 1_500, seed)),
        SUPERVISED: lambda: each(lambda film: supervised(film, options.device, options.conv_steps, seed)),
    }
    last: tuple[int | None, int] | None = None
    for name in (*FITS, *made):
        if (options.only and not any(text in name for text in options.only)) or (
            "in time" in name and options.device == "cpu"
        ):
            continue
        start, more = time.process_time(), {}
        if name in FITS:
            n_codes, n_pairs, n_rounds = FITS[name]
            if (n_codes, n_pairs) != last:
                last, (act, *one) = (n_codes, n_pairs), fitted(data, n_codes, n_pairs, seed)
                errors, films = rolled(act, held, one[1])
                if options.strip and last == (3, PAIRS) and seed == options.seeds[0]:
                    strip(options.strip, films, 0)
            more = {"played": act.removal_.applied, **errors}
            known, new = (added(part, films_of) for part, films_of in zip(one, (learned, held), strict=True))
            law = DistributionMatcher(n_rounds, random_state=seed).fit(known)
            codes = law.transform(known), law.transform(new)
        else:
            codes = made[name]()
        row = {"seed": seed, "robots": " ".join(options.robots), "cameras": " ".join(options.cameras), "code": name}
        yield {**row, **scored(data, codes, seed), **more, "seconds": round(time.process_time() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", type=int, nargs="*")
    parser.add_argument("--robots", nargs="+", default=ARMS)
    parser.add_argument("--cameras", nargs="+", default=["sideview"])
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="codes whose name has one of these")
    parser.add_argument("--device", default="cpu", help="where convolutions are trained")
    parser.add_argument("--conv-steps", type=int, default=300, help="steps of the supervised convolutions")
    parser.add_argument(
        "--strip", type=Path, help="a PNG of the first recording's rollouts, with an animation beside it"
    )
    parser.add_argument("--to", type=Path, help="write what is measured to this file, and make no table")
    parser.add_argument("--parts", type=Path, nargs="+", default=[], help="make record and table of these files, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", IdentifiabilityWarning)  # what leaks is what the table says
    table: list[dict[str, Any]] = [row for path in options.parts for row in json.loads(path.read_text())["rows"]]
    for seed in options.seeds:
        for row in measured(read(options.folder / str(seed), options.cameras, options.robots), seed, options):
            table.append(row)
            print("  ".join(f"{k}={v:.3f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)
            if options.to is not None:
                write(options.to, table)
    if options.to is None:
        write(record("robot_pixels"), table)
        put_into(PAGE, as_table(table), "frames")


if __name__ == "__main__":
    main()
