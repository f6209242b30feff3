"""The recorder of arms in a simulator, without the simulator: what it tells them, and the recording that tests use."""

import importlib.util
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / "robots" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("scripted", [True, False])
@pytest.mark.parametrize("rotation", [True, False])
def test_commands_are_held_for_two_steps_and_stay_within_their_units(scripted, rotation):
    told = script("record").commands(np.random.default_rng(0), 21, rotation=rotation, scripted=scripted)
    assert told.shape == (21, 7)
    assert np.abs(told).max() <= 1
    assert np.array_equal(told[0:20:2], told[1:20:2])
    assert told[:, 3:6].any() == rotation
    assert len(np.unique(told, axis=0)) > 2


def test_scripted_commands_go_to_the_target():
    told = script("record").commands(np.random.default_rng(0), 40, rotation=False, scripted=True)[::2, :3]
    turns = [np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairwise(told)]
    assert np.median(turns) > 0.9  # a random direction is as often against the one before as with it
    wandering = script("record").commands(np.random.default_rng(0), 400, rotation=False, scripted=False)[::2, :3]
    assert abs(np.mean(np.sum(wandering[1:] * wandering[:-1], axis=1))) < 0.3


def test_the_recording_has_six_robots_whose_joints_determine_where_their_hands_are():
    with np.load(ROOT / "tests" / "recordings" / "robots.npz") as recorded:
        widths = {name.split("/")[0]: recorded[name].shape[-1] for name in recorded if name.endswith("joints")}
        assert widths == {"Panda": 7, "Sawyer": 7, "IIWA": 7, "Kinova3": 7, "Jaco": 7, "UR5e": 6}
        assert recorded["paired"].tolist() == [True] * 24 + [False] * 24
        for robot in widths:
            joints, hand = recorded[f"{robot}/joints"], recorded[f"{robot}/position"]
            assert joints.shape[:2] == hand.shape[:2] == (48, 21)
            moved, turned = (np.diff(part.astype(float), axis=1).reshape(48 * 20, -1) for part in (hand, joints))
            missed = moved - turned @ np.linalg.lstsq(turned, moved, rcond=None)[0]
            assert 1 - missed.var() / moved.var() > 0.9
