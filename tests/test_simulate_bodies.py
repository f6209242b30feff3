"""Bodies: arms are what geometry says, and the same motions are made by all of them."""

import math

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Arm, Bodies
from pindown_papers.simulations.bodies import CENTRE, FARTHEST, HALF_WIDTH, STEP
from sklearn.linear_model import LogisticRegression

from pindown import theory
from pindown.metrics import PROBES, leakage

PROCESS = Bodies.different(3, random_state=0)


def hand_seen(process, x, body):
    """Return where the hand is in an image: the camera undone, the last marker."""
    markers = process.cameras[body].inverse(x.double()) / 2
    return markers[:, -2:] + torch.tensor(CENTRE, dtype=torch.float64)


@pytest.mark.parametrize("n_elbows", [1, 2, 3, 5])
def test_joints_put_the_hand_where_it_should_be(n_elbows):
    arm = Arm(2.4, n_elbows)
    places = torch.tensor([[1.3, 0.0], [0.7, -0.6], [1.9, 0.6]], dtype=torch.float64)
    angles = arm.joints(places)
    assert angles.shape == (3, n_elbows + 1)
    assert torch.allclose(arm.hand(angles), places, atol=1e-9)
    assert torch.allclose(angles[:, 1:], angles[:, 1:2].expand(-1, n_elbows))  # all elbows bend alike


def test_three_links_of_a_hexagon_put_the_hand_a_diameter_away():
    angles = Arm(3.0, 2).joints(torch.tensor([[0.0, 2.0]], dtype=torch.float64))
    assert angles.rad2deg().round().tolist() == [[150.0, -60.0, -60.0]]


def test_markers_lie_on_the_links():
    arm = Arm(2.0, 1)
    straight = torch.tensor([[math.pi / 2, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0, 2 / 3, 0, 4 / 3, 0, 2]], dtype=torch.float64)
    assert torch.allclose(arm.markers(straight), expected, atol=1e-12)


def test_the_true_action_is_what_the_hand_moved_by():
    sample = PROCESS.sample(300, random_state=1, dtype=torch.float64)
    for body in range(3):
        own = sample.u == body
        before, after = (hand_seen(PROCESS, x[own], body) for x in (sample.x, sample.x_pos))
        assert torch.allclose(after - before, sample.z[own], atol=1e-8)
        assert ((before - torch.tensor(CENTRE)).abs() <= HALF_WIDTH + 1e-8).all()


def test_actions_fill_a_disc_and_are_independent_of_the_body_though_observations_are_not():
    sample = PROCESS.sample(6_000, random_state=2)
    squares = sample.z.square().sum(1)
    assert squares.max() <= STEP**2 * 1.0001
    assert squares.mean().item() == pytest.approx(STEP**2 / 2, rel=0.03)  # uniform on a disc
    assert not leakage(sample.z, sample.u, probes=PROBES[:3], random_state=0).leaks
    x, u = sample.x.numpy(), sample.u.numpy()
    assert LogisticRegression(max_iter=500).fit(x[:3_000], u[:3_000]).score(x[3_000:], u[3_000:]) > 0.99


def test_bodies_make_the_same_motions_each_from_its_own_place():
    first, second, third = PROCESS.same_motions(50, random_state=3, dtype=torch.float64)
    assert torch.equal(first.z, second.z)
    assert torch.equal(first.z, third.z)
    assert [sample.u.unique().tolist() for sample in (first, second, third)] == [[0], [1], [2]]
    starts = [hand_seen(PROCESS, sample.x, body) for body, sample in enumerate((first, second))]
    assert (starts[0] - starts[1]).abs().max() > 0.1


def test_a_simulation_comes_back_with_its_seed_and_not_with_another():
    again, other = (Bodies.different(3, random_state=seed) for seed in (0, 1))
    x = PROCESS.sample(5, random_state=0).x
    assert torch.equal(again.sample(5, random_state=0).x, x)
    assert not torch.equal(other.sample(5, random_state=0).x, x)
    assert len({arm.reach for arm in PROCESS.arms}) == 3


def test_cameras_without_strength_keep_distances():
    sample = Bodies.different(2, strength=0.0, random_state=0).sample(100, random_state=0, dtype=torch.float64)
    curved = Bodies.different(2, random_state=0).sample(100, random_state=0, dtype=torch.float64)
    assert torch.equal(sample.z, curved.z)
    size, other = ((s.x_pos - s.x).norm(dim=1) for s in (sample, curved))
    assert not torch.allclose(size, other, rtol=0.05)


def test_the_simulation_promises_that_actions_are_independent_of_the_body():
    assert PROCESS.assumptions == {theory.NUISANCE_INDEPENDENT}
    assert PROCESS.d == 2


def test_every_hand_is_within_reach_of_every_arm():
    corner = np.hypot(CENTRE[0] + HALF_WIDTH + STEP, HALF_WIDTH + STEP)
    assert pytest.approx(corner) == FARTHEST
    assert all(arm.reach >= FARTHEST for seed in range(20) for arm in Bodies.different(3, random_state=seed).arms)
