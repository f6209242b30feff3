"""Record six arms of robosuite that follow the same end-effector commands: one file per robot, and a manifest.

``make robots-env`` makes the environment that this runs in, for robosuite asks for versions of numpy and mujoco of its
own; nothing here imports pindown. Then, for example,

    .venv-robots/bin/python benchmarks/robots/record.py recordings/ --episodes 150 --paired 30 --seed 0

In each episode an arm starts in a posture near rest and follows commands, each held for two steps at 20 Hz: *random*
ones (a new direction each time, drawn back a little to where the episode began), or *scripted* ones (straight to one
random target after the other). The commands of *paired* episodes are the same for all robots; others are each robot's
own.

Of each robot are kept: ``joints`` (episodes, steps + 1, joints) in radians, ``position`` (…, 3) in metres and
``rotation`` (…, 4), a quaternion (x, y, z, w), of the end effector, ``gripper`` (…, fingers), ``cube`` (…, 7), where
the object is, ``command`` (episodes, steps, 7) in the units of the controller, ``paired`` and ``scripted`` (episodes,).
What cameras see of such a recording ``render.py`` draws afterwards.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROBOTS = ("Panda", "Sawyer", "IIWA", "Kinova3", "Jaco", "UR5e")
HOLD = 2
"""Steps that a command is held for."""

FAR, BACK = 5.0, 0.05
"""How far targets are from the start, in commands (of 1 to 2 cm), and which share of the way random ones go back."""

POSTURES = 0.06
"""Spread of the postures that episodes begin in, in radians of each joint."""


def commands(rng: np.random.Generator, n_steps: int, *, rotation: bool, scripted: bool) -> np.ndarray:
    """Return what an episode's controller is told, (n_steps, 7): translation, rotation, gripper, each within ±1."""
    n_axes, n_held = (6 if rotation else 3), -(-n_steps // HOLD)
    told, reached = np.zeros((n_held, 7)), np.zeros(n_axes)
    target = rng.uniform(-FAR, FAR, size=n_axes)
    for step in range(n_held):
        if scripted:
            if np.abs(target - reached).max() < 0.5:
                target = rng.uniform(-FAR, FAR, size=n_axes)
            wanted = target - reached
            wanted = wanted / max(1.0, np.abs(wanted).max())
        else:
            wanted = rng.uniform(-1, 1, size=n_axes) - BACK * reached
        told[step, :n_axes] = np.clip(wanted, -1, 1)
        reached += told[step, :n_axes]
    told[:, 6] = np.sign(rng.normal(size=n_held)) if rotation else -1
    return np.repeat(told, HOLD, axis=0)[:n_steps]


def environment(robot: str, seed: int) -> Any:
    """Return a table with a cube and this arm, with the same gripper and controller as all others."""
    import robosuite
    from robosuite.controllers import load_composite_controller_config

    return robosuite.make(
        "Lift",
        robots=robot,
        gripper_types="PandaGripper",
        controller_configs=load_composite_controller_config(controller="BASIC", robot=robot),
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
        ignore_done=True,
        control_freq=20,
        hard_reset=False,
        initialization_noise={"magnitude": POSTURES, "type": "gaussian"},
        seed=seed,
    )


def seen(observed: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return what is kept of a moment."""
    angles = np.arctan2(observed["robot0_joint_pos_sin"], observed["robot0_joint_pos_cos"])
    kept = {
        "joints": observed.get("robot0_joint_pos", angles),
        "position": observed["robot0_eef_pos"],
        "rotation": observed["robot0_eef_quat"],
        "gripper": observed["robot0_gripper_qpos"],
        "cube": np.concatenate([observed["cube_pos"], observed["cube_quat"]]),
    }
    return {name: np.asarray(part, dtype=np.float32) for name, part in kept.items()}


def record(robot: str, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Run all episodes of a robot."""
    number = ROBOTS.index(robot)
    env = environment(robot, options.seed * len(ROBOTS) + number)
    episodes, told = [], []
    paired = np.arange(options.episodes) < options.paired
    scripted = np.arange(options.episodes) % options.scripted_every == options.scripted_every - 1
    for episode in range(options.episodes):
        whose = 0 if paired[episode] else 1 + number
        rng = np.random.default_rng([options.seed, episode, whose])
        told.append(commands(rng, options.steps, rotation=options.rotation, scripted=bool(scripted[episode])))
        moments = [seen(env.reset())]
        moments += [seen(env.step(command[: env.action_dim])[0]) for command in told[-1]]
        episodes.append({name: np.stack([moment[name] for moment in moments]) for name in moments[0]})
    env.close()
    kept = {name: np.stack([each[name] for each in episodes]) for name in episodes[0]}
    kept["joints"] = np.unwrap(kept["joints"], axis=1)  # where angles pass π they go on
    return {**kept, "command": np.asarray(told, dtype=np.float32), "paired": paired, "scripted": scripted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--robots", nargs="+", default=ROBOTS, choices=ROBOTS)
    parser.add_argument("--episodes", type=int, default=150)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--paired", type=int, default=30, help="how many of the episodes all robots share")
    parser.add_argument("--scripted-every", type=int, default=2, help="every so manieth episode is scripted")
    parser.add_argument("--rotation", action="store_true", help="command rotations and the gripper, too")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not 0 <= options.paired <= options.episodes or min(options.steps, options.scripted_every) < 1:
        parser.error("--paired must be from 0 to --episodes, and --steps and --scripted-every at least 1.")
    options.folder.mkdir(parents=True, exist_ok=True)
    took = {}
    for robot in options.robots:
        start = time.perf_counter()
        np.savez_compressed(options.folder / f"{robot}.npz", **record(robot, options))
        took[robot] = round(time.perf_counter() - start, 1)
        print(f"{robot}: {options.episodes} episodes in {took[robot]} s", flush=True)
    manifest = {name: value for name, value in vars(options).items() if name != "folder"}
    versions = {name: version(name) for name in ("robosuite", "mujoco", "numpy")}
    manifest |= {"control_hz": 20, "hold": HOLD, "seconds": took, "python": platform.python_version(), **versions}
    (options.folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
