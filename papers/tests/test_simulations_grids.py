"""Distributions on a grid stay on it, and go with no other."""

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Grid, LaplaceSteps, Redrawn, Sensors, SomeChange, Sprites

from pindown import theory
from pindown.errors import InputError
from pindown.networks.spaces import Box
from pindown.simulate import Pairs
from pindown.simulate.distributions import Truncated, Uniform, laplace, normal

SPRITES = Sprites(8, factors=("x", "y"))


def test_what_is_drawn_again_of_a_grid_lies_on_it():
    grid = Grid((3, 4))
    z = grid.sample(3_000, random_state=0)
    distribution = Redrawn(LaplaceSteps(grid.sizes), (0,), 0.5)
    drawn = Pairs(grid, distribution, SPRITES).conditional.sample(z, random_state=1)
    assert set(drawn[:, 0].tolist()) == set(z[:, 0].tolist())  # three values
    moved = (drawn[:, 0] != z[:, 0]).float().mean().item()
    assert moved == pytest.approx(0.5 * 2 / 3, abs=0.03)  # a third of those drawn again are what they were


@pytest.mark.parametrize(
    ("argument", "make"),
    [
        *(
            ("categories", lambda some=some: LaplaceSteps((3, 4), categories=some))
            for some in ((-1,), (2,), ("shape",), "0", (0.5,))
        ),
        ("factors", lambda: Redrawn(SomeChange(), ("x",), 0.5)),
        ("factors", lambda: Redrawn(SomeChange(), (), 0.5)),
        ("factors", lambda: Redrawn(LaplaceSteps((3, 4)), (2,), 0.5)),
        ("factors", lambda: Redrawn(SomeChange(), (3,), 0.5).sample(torch.rand(2, 3))),
        ("probability", lambda: Redrawn(SomeChange(), (0,), 1.5)),
        ("n_changed", lambda: SomeChange(0)),
        ("n_changed", lambda: SomeChange(9).sample(torch.rand(5, 2))),
        ("n_changed", lambda: SomeChange(3, sizes=(3, 4))),
        ("sizes", lambda: Grid((0,))),
        ("sizes", lambda: LaplaceSteps((3, 1), categories=(0,))),
        ("loc", lambda: LaplaceSteps((3,)).sample(torch.rand(5, 2))),
        ("loc", lambda: Grid((3, 4, 5)).labels(torch.rand(5, 2))),
    ],
)
def test_bad_grids_name_the_argument(argument, make):
    with pytest.raises(InputError) as error:
        make()
    assert error.value.argument == argument


@pytest.mark.parametrize(
    "distribution",
    [
        LaplaceSteps((4, 3)),
        LaplaceSteps((3,)),
        SomeChange(sizes=(3, 5)),
        Redrawn(LaplaceSteps((4, 3)), (0,), 0.5),
    ],
)
def test_positives_on_another_grid_raise(distribution):
    with pytest.raises(InputError):
        Pairs(Grid((3, 4)), distribution, SPRITES)


def test_positives_on_a_grid_of_other_latents_are_refused():
    with pytest.raises(InputError):
        Pairs(Uniform(2, Box()), LaplaceSteps((3,)), SPRITES)


def test_sensors_change_what_is_seen_and_not_what_is_there():
    scenes = Pairs(Uniform(2, Box()), Truncated(normal(0.1)), Sprites(16, factors=("x", "y")))
    noisy = Sensors(scenes, (1.0, 0.5), (0.0, 0.3), (0.0, 0.2))
    sample = noisy.sample(400, random_state=0)
    clean = scenes.mixing(sample.z)
    assert torch.equal(sample.x[sample.u == 0], clean[sample.u == 0])
    left = sample.x[sample.u == 1] - 0.5 * clean[sample.u == 1] - 0.3
    assert left.std().item() == pytest.approx(0.2, rel=0.02)
    assert theory.INJECTIVE_MIXING not in noisy.assumptions
    assert theory.INJECTIVE_MIXING in Sensors(scenes, (1.0, 0.5), (0.0, 0.3), (0.0, 0.0)).assumptions
    with pytest.raises(InputError):
        Sensors(scenes, (1.0,), (0.0,), (0.0, 1.0))
    with pytest.raises(InputError):
        Sensors(scenes, (1.0, 0.0), (0.0, 0.0), (0.0, 1.0))


def test_a_grid_has_its_values_equally_often_and_positives_stay_on_it():
    sizes = (3, 6, 40)
    process = Pairs(Grid(sizes), LaplaceSteps(sizes, categories=(0,)), Sprites(16, factors=("shape", "size", "x")))
    sample = process.sample(3_000, random_state=0)
    labels, positives = (Grid(sizes).labels(z) for z in (sample.z, sample.z_pos))
    for j, size in enumerate(sizes):
        counts = torch.bincount(labels[:, j], minlength=size)
        assert (counts - 3_000 / size).abs().max() < 5 * (3_000 / size) ** 0.5
        assert torch.bincount(positives[:, j]).shape == (size,)
    moved = (labels - positives).abs()
    assert not moved[:, 0].any()
    assert moved.any(1).all()
    assert 1.5 < moved[:, 2].float().mean() < np.log(40) + 0.5
    assert theory.INJECTIVE_MIXING not in process.assumptions  # a category is no latent of the theorems


@pytest.mark.parametrize("sizes", [None, (4, 5, 6, 7)])
def test_uni_positives_change_some_factors(sizes):
    z = Grid((4, 5, 6, 7)).sample(4_000, random_state=0)
    changed = SomeChange(sizes=sizes).sample(z, random_state=1) != z
    if sizes is None:
        counts = torch.bincount(changed.sum(1), minlength=5)
        assert counts[0] == counts[4] == 0
        assert (counts[1:4] - 4_000 / 3).abs().max() < 200
    assert (changed.float().mean(0) > 0.3).all()


def test_factors_stay_are_drawn_again_or_do_so_sometimes():
    z, distribution = torch.full((4_000, 3), 0.5), Truncated(laplace(0.05))
    for probability in (0.0, 0.3, 1.0):
        moved = Redrawn(distribution, (0, 2), probability).sample(z, random_state=0)
        assert 0.04 < moved[:, 1].std() < 0.1
        for column in moved[:, 0], moved[:, 2]:
            assert (column != 0.5).float().mean().item() == pytest.approx(probability, abs=0.03)
            assert column.std().item() == pytest.approx((probability / 12) ** 0.5, abs=0.02)  # uniform


def test_laplace_steps_always_reach_another_value():
    sizes = (2, 3)
    z = Grid(sizes).sample(500, random_state=0)
    for rate in (1.0, 100.0):
        z_pos = LaplaceSteps(sizes, rate=rate).sample(z, random_state=1)
        assert (z_pos != z).any(1).all()
        assert Box().contains(z_pos)
