"""Laws on a grid stay on it, and go with no other."""

import pytest
import torch

from pindown.distributions import Uniform
from pindown.grids import Grid, LaplaceSteps, Redrawn, SomeChange
from pindown.mixing import Sprites
from pindown.processes import Pairs
from pindown.spaces import Box

SPRITES = Sprites(8, factors=("x", "y"))


def test_what_is_drawn_anew_of_a_grid_lies_on_it():
    grid = Grid((3, 4))
    z = grid.sample(3_000, random_state=0)
    law = Redrawn(LaplaceSteps(grid.sizes), (0,), 0.5)
    drawn = Pairs(grid, law, SPRITES).conditional.sample(z, random_state=1)
    assert set(drawn[:, 0].tolist()) == set(z[:, 0].tolist())  # three values
    moved = (drawn[:, 0] != z[:, 0]).float().mean().item()
    assert moved == pytest.approx(0.5 * 2 / 3, abs=0.03)  # a third of those drawn anew are what they were


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *(
            (lambda some=some: LaplaceSteps((3, 4), categories=some), r"categories must be numbers .* 0 and below 2")
            for some in ((-1,), (2,), ("shape",), "0", (0.5,))
        ),
        (lambda: Redrawn(SomeChange(), ("x",), 0.5), "factors must be numbers of latents, counted from 0, got"),
        (lambda: Redrawn(LaplaceSteps((3, 4)), (2,), 0.5), "counted from 0 and below 2"),
        (lambda: SomeChange(9).sample(torch.rand(5, 2)), "of 2 factors, 9 cannot change. Ask for a smaller n_changed"),
        (lambda: SomeChange(3, sizes=(3, 4)), "of 2 factors, 3 cannot change"),
        (lambda: LaplaceSteps((3,)).sample(torch.rand(5, 2)), r"sizes \(3,\) has 1 factors, but there are 2 latents"),
        (lambda: Grid((3, 4, 5)).labels(torch.rand(5, 2)), "has 3 factors, but there are 2 latents"),
    ],
)
def test_what_is_no_law_of_a_grid_is_told(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "law",
    [
        LaplaceSteps((4, 3)),
        LaplaceSteps((3,)),
        SomeChange(sizes=(3, 5)),
        Redrawn(LaplaceSteps((4, 3)), (0,), 0.5),
    ],
)
def test_partners_on_another_grid_are_told(law):
    with pytest.raises(ValueError, match=r"marginal lies on a grid of sizes \(3, 4\), but partners on one of .*same"):
        Pairs(Grid((3, 4)), law, SPRITES)


def test_partners_on_a_grid_of_other_latents_are_told():
    with pytest.raises(ValueError, match=r"the marginal has 2 latents, but partners on one of \(3,\)"):
        Pairs(Uniform(2, Box()), LaplaceSteps((3,)), SPRITES)
