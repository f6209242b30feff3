"""Cut-outs of a folder: in the middle of a square, whatever their shape; what is none is passed over, or named."""

import numpy as np
import pytest
from PIL import Image
from pindown_papers.cutouts import cutouts_in
from pindown_papers.simulations import Composed


def stamp(height, width, colour=(10, 200, 30)):
    layers = np.zeros((height, width, 4), dtype=np.uint8)
    layers[2:-2, 2:-2] = [*colour, 255]
    return Image.fromarray(layers)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "animals").mkdir()
    stamp(20, 60).save(tmp_path / "animals" / "wide.png")
    stamp(60, 20).save(tmp_path / "tall.png")
    Image.new("RGB", (20, 20), (9, 9, 9)).save(tmp_path / "photograph.png")
    Image.new("RGBA", (20, 20)).save(tmp_path / "empty.png")
    return tmp_path


def test_each_fills_the_middle_of_its_square_as_far_as_its_shape_allows(folder):
    cuts = cutouts_in(folder, 2, size=28)
    assert cuts.shape == (2, 4, 28, 28)
    shapes = sorted((int(cut[3].any(1).sum()), int(cut[3].any(0).sum())) for cut in cuts)
    assert shapes == [(8, 28), (28, 8)]  # 16 × 56 without its margin
    assert np.allclose(cuts[:, :3, 14, 14] * 255, [10, 200, 30])
    assert Composed(cuts, size=16).sample(3, random_state=0).x.shape == (3, 3, 16, 16)
    assert np.array_equal(cuts, cutouts_in(folder, 2, size=28))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 3}, r"has 2 pictures with a transparent ground, but n=3\. Ask for fewer"),
        ({"n": 0}, "n must be at least 1 and size at least 8, got 0 and 64"),
        ({"size": 4}, "n must be at least 1 and size at least 8, got 160 and 4"),
    ],
)
def test_what_cannot_be_is_named(folder, options, message):
    with pytest.raises(ValueError, match=message):
        cutouts_in(folder, **options)


def test_a_broken_file_and_a_folder_that_is_not_there_are_named(folder):
    (folder / "broken.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"broken\.png"):
        cutouts_in(folder, 3)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        cutouts_in(folder / "nowhere", 1)
