"""What renderers and sheets are given: tensors, arrays, and what is neither."""

import numpy as np
import pytest
import torch

from pindown.distributions import Truncated, Uniform, laplace
from pindown.mixing import Arm, Room, Sprites, contact_sheet, nearest_traversals, thumbnails, traversals
from pindown.processes import Pairs
from pindown.spaces import Box

PICTURES = torch.rand(5, 3, 8, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [np.asarray, lambda x: x.clone().requires_grad_(), lambda x: x.double()])
def test_sheets_take_arrays_and_tensors_of_any_kind(kind):
    pictures = kind(PICTURES)
    for lay in (contact_sheet, thumbnails):
        np.testing.assert_array_equal(lay(pictures, columns=2), lay(PICTURES, columns=2))
    codes = kind(PICTURES[:, :2, 0, 0])
    assert nearest_traversals(codes, pictures, steps=2).shape == (18, 14, 3)


@pytest.mark.parametrize("lay", [contact_sheet, thumbnails])
@pytest.mark.parametrize(
    ("pictures", "columns", "message"),
    [
        (PICTURES[:0], 8, r"pictures must have shape \(n, ., h, w\), n at least 1, got \(0, 3, 8, 6\)"),
        (PICTURES[0], 8, r"n at least 1, got \(3, 8, 6\)"),
        (PICTURES, 0, "columns must be at least 1, got 0"),
    ],
)
def test_a_sheet_of_nothing_is_told(lay, pictures, columns, message):
    with pytest.raises(ValueError, match=message):
        lay(pictures, columns=columns)


def test_bytes_are_told_where_numbers_between_0_and_1_are_laid_out():
    with pytest.raises(ValueError, match=r"floats between 0 and 1, got torch.uint8. Divide them by what is white"):
        contact_sheet(np.full((2, 3, 4, 4), 255, dtype=np.uint8))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *(
            (lambda value=value: Room(8, factors=("size",), fixed={"shape": value}), r"Room: fixed: 'shape' must be 0")
            for value in (7, "cube", -1, 1.5, float("nan"), None)
        ),
        (lambda: Sprites(8, n_sprites=2, factors=("x",), fixed={"shape_2": 3}), r"'shape_2' must be 0 \(square\) or 1"),
        *(
            (lambda value=value: Room(8, factors=("size",), fixed={"wall_hue": value}), "'wall_hue' must be a number")
            for value in (float("nan"), float("inf"), "red", [0.1])
        ),
        (
            lambda: Arm(8, factors=("yaw",), fixed={"elbow": "bent"}),
            "Arm: fixed: 'elbow' must be a number, such as 57.5",
        ),
    ],
)
def test_what_a_factor_cannot_be_is_told_when_the_renderer_is_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_fixed_may_be_any_number():
    room = Room(8, factors=("size",), fixed={"shape": np.int64(1), "wall_hue": torch.tensor(0.25), "azimuth": 90})
    values = room.values(torch.rand(2, 1))
    assert [values[name][0].item() for name in ("shape", "wall_hue", "azimuth")] == [1.0, 0.25, 90.0]


def test_latents_that_are_no_tensor_and_a_world_that_is_no_renderer_are_told():
    with pytest.raises(TypeError, match=r"Room: z must be a tensor, got ndarray. Pass torch.as_tensor\(z\)"):
        Room(8)(np.zeros((2, 6)))
    world = Pairs(Uniform(5, Box()), Truncated(laplace(0.1)), Sprites(8))
    with pytest.raises(
        TypeError, match=r"renderer must be one, such as Room\(\), got Pairs. Of a world, pass its mixing"
    ):
        traversals(world)
