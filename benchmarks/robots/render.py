"""Draw what cameras see of arms that were recorded: one file of frames per robot, beside the recording.

The environment is that of ``record.py``. Then, for example,

    .venv-robots/bin/python benchmarks/robots/render.py recordings/0 --robots Panda UR5e --size 64

Nothing is simulated again: joints, gripper and cube are put where they were, and drawn (in software, where there is no
GPU: EGL of Mesa, some 20 to 80 frames a second on one core). Shadows, reflections and the marks by which the simulator
shows where the hand is are left out; the last would tell what a code is to find.

``<robot>-frames.npz`` holds ``frames`` (episodes, steps + 1, cameras, size, size, 3), bytes from 0 to 255, and
``cameras``, their names; where a recording has them, `benchmarks/robot_pixels.py` reads them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import environment

CAMERAS = ("sideview", "frontview")
VISIBLE = 1
"""The group of shapes that are meant to be seen; others are those by which contacts are found."""


def still(env: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return the model without shadows and reflections, its state, and where in the state arm, gripper and cube are."""
    model, data, robot = env.sim.model._model, env.sim.data._data, env.robots[0]
    model.vis.quality.offsamples = model.vis.quality.shadowsize = 0
    model.light_castshadow[:] = 0
    model.mat_reflectance[:] = 0
    places = {
        "joints": robot._ref_joint_pos_indexes,
        "gripper": robot._ref_gripper_joint_pos_indexes["right"],
        "cube": np.arange(*env.sim.model.get_joint_qpos_addr(env.cube.joints[0])),
    }
    return model, data, places


def render(robot: str, recorded: Any, size: int, n_episodes: int) -> np.ndarray:
    """Return frames of episodes; (episodes, steps + 1, cameras, size, size, 3)."""
    import mujoco

    model, data, places = still(environment(robot, 0))
    shown = mujoco.MjvOption()
    shown.geomgroup[:] = [group == VISIBLE for group in range(len(shown.geomgroup))]
    shown.sitegroup[:] = 0
    cube = recorded["cube"]
    poses = {"joints": recorded["joints"], "gripper": recorded["gripper"]}
    poses["cube"] = np.concatenate([cube[..., :3], cube[..., 6:], cube[..., 3:6]], -1)  # MuJoCo's w comes first
    n_episodes, n_moments = min(n_episodes, len(cube)), cube.shape[1]
    frames = np.empty((n_episodes, n_moments, len(CAMERAS), size, size, 3), dtype=np.uint8)
    with mujoco.Renderer(model, size, size) as renderer:
        for episode, moment in np.ndindex(n_episodes, n_moments):
            for name, where in places.items():
                data.qpos[where] = poses[name][episode, moment]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_camlight(model, data)
            for number, camera in enumerate(CAMERAS):
                renderer.update_scene(data, camera=camera, scene_option=shown)
                frames[episode, moment, number] = renderer.render()
    return frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--robots", nargs="+", help="all of the recording by default")
    parser.add_argument("--size", type=int, default=64, help="pixels of an edge")
    parser.add_argument("--episodes", type=int, default=10**6, help="the first so many; all by default")
    options = parser.parse_args()
    os.environ.setdefault("MUJOCO_GL", "egl")
    known = json.loads((options.folder / "manifest.json").read_text())["robots"]
    if missing := [robot for robot in options.robots or () if robot not in known]:
        parser.error(f"{options.folder} has no {missing[0]}: it has {', '.join(known)}.")
    for robot in options.robots or known:
        start = time.perf_counter()
        with np.load(options.folder / f"{robot}.npz") as recorded:
            frames = render(robot, recorded, options.size, options.episodes)
        file = options.folder / f"{robot}-frames.npz"
        np.savez_compressed(file, frames=frames, cameras=np.array(CAMERAS))
        print(f"{robot}: {frames[..., 0, 0, 0].size} frames in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
