"""What renderers and sheets are given: tensors, arrays, and what is neither."""

import numpy as np
import pytest
import torch

from pindown.simulate.images import contact_sheet, nearest_traversals
from pindown.simulate.renderers import Room

IMAGES = torch.rand(5, 3, 8, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [np.asarray, lambda x: x.clone().requires_grad_(), lambda x: x.double()])
def test_sheets_take_arrays_and_tensors_of_any_kind(kind):
    images = kind(IMAGES)
    for lay in (contact_sheet, contact_sheet):
        np.testing.assert_array_equal(lay(images, columns=2), lay(IMAGES, columns=2))
    latents = kind(IMAGES[:, :2, 0, 0])
    assert nearest_traversals(latents, images, steps=2).shape == (18, 14, 3)


def test_what_is_fixed_may_be_any_number():
    room = Room(8, factors=("size",), fixed={"shape": np.int64(1), "wall_hue": torch.tensor(0.25), "azimuth": 90})
    values = room.values(torch.rand(2, 1))
    assert [values[name][0].item() for name in ("shape", "wall_hue", "azimuth")] == [1.0, 0.25, 90.0]
