"""Contact sheets, images along latents, and swaps take arrays and tensors."""

import numpy as np
import pytest
import torch

from pindown.simulate.images import along_latents, contact_sheet, nearest_traversals, save_png, swaps

IMAGES = torch.rand(5, 3, 8, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [np.asarray, lambda x: x.clone().requires_grad_(), lambda x: x.double()])
def test_sheets_take_arrays_and_tensors_of_any_kind(kind):
    images = kind(IMAGES)
    for lay in (contact_sheet, contact_sheet):
        np.testing.assert_array_equal(lay(images, columns=2), lay(IMAGES, columns=2))
    latents = kind(IMAGES[:, :2, 0, 0])
    assert nearest_traversals(latents, images, steps=2).shape == (18, 14, 3)


def test_no_image_comes_twice_along_a_latent_unless_there_are_too_few():
    lonely = np.array(
        [[-2.0, 3.0], [-1.0, -3.0], [0.0, 0.0], [1.0, 3.0], [2.0, -3.0]]
    )  # all but one are far off the line
    assert sorted(along_latents(lonely, [0], 5)) == [0, 1, 2, 3, 4]
    assert set(along_latents(lonely, [0], 6)) <= {0, 1, 2, 3, 4}


def test_a_swap_changes_what_the_latent_represents():
    latents = torch.rand(2_000, 2, generator=torch.Generator().manual_seed(0))
    grey = latents[:, :1, None, None].expand(-1, 1, 4, 4)  # the first latent is the brightness
    sheet = swaps(latents, grey, n_pairs=3, random_state=0)
    assert sheet.shape == (3 * 6 - 2, 4 * 6 - 2, 3)
    one, first, second, other = (sheet[::6, column * 6, 0].astype(int) for column in range(4))
    assert abs(first - other).max() <= 15
    assert abs(second - one).max() <= 15
    assert abs(one - other).max() > 15


def test_a_sheet_holds_every_image(tmp_path):
    images = torch.rand(5, 3, 8, 6, generator=torch.Generator().manual_seed(0))
    sheet = contact_sheet(images, columns=3)
    assert sheet.shape == (18, 22, 3)
    np.testing.assert_allclose(sheet[10:18, 8:14] / 255, images[4].permute(1, 2, 0), atol=0.003)
    save_png(tmp_path / "sheet.png", sheet)
    image = pytest.importorskip("PIL.Image")
    with image.open(tmp_path / "sheet.png") as back:
        np.testing.assert_array_equal(np.asarray(back), sheet)


def test_thumbnails_are_brought_between_black_and_white():
    sheet = contact_sheet(np.linspace(-1, 3, 12).reshape(3, 1, 2, 2), columns=3)
    assert (sheet[0, 0, 0], sheet[1, -1, 0]) == (0, 255)
    assert contact_sheet(np.full((1, 4, 2, 2), 0.5)).shape == (2, 2, 3)  # of four channels the first
