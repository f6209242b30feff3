"""ImageNet-X for people who have the images: on images and annotations made here."""

import json
import sys

import numpy as np
import pytest
from PIL import Image
from pindown_papers.imagenet_x import FACTORS, imagenet_x

from pindown.auditing.probing import probe


@pytest.fixture
def made(tmp_path):
    """Images of which the darker ones are dark, in folders of classes, and their annotations; one is missing."""
    rng, lines = np.random.default_rng(0), []
    for k in range(81):
        name, darker, label = f"ILSVRC2012_val_{k:08d}.JPEG", k % 2, k // 8
        place = tmp_path / "val" / f"class{label}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 100 if darker else 255, size=(20, 30, 3), dtype=np.uint8)
        if k < 80:
            Image.fromarray(pixels).save(place / name)
        lines.append({"file_name": name, "class": label, **dict.fromkeys(FACTORS, 0), "darker": darker})
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def test_images_are_found_with_their_annotations(made):
    found = imagenet_x(made / "val", made / "x.jsonl")
    assert len(found) == 80
    assert found.files[3].name == "ILSVRC2012_val_00000003.JPEG"
    assert found.classes.tolist() == [k // 8 for k in range(80)]
    assert found.factors["darker"].sum() == 40
    batches = list(found.batches(size=16, batch_size=50))
    assert [tuple(batch.shape) for batch in batches] == [(50, 3, 16, 16), (30, 3, 16, 16)]
    raw = np.concatenate([batch.flatten(1).numpy() for batch in batches])
    assert 0 <= raw.min() < raw.max() <= 1
    read = probe(raw, {"darker": found.factors["darker"]}, groups=found.classes, n_resamples=3, n_permutations=19)
    assert read.probed[0].score > 0.95


def test_what_is_missing_is_named(made, monkeypatch):
    (made / "empty").mkdir()
    with pytest.raises(ValueError, match="ILSVRC2012_val_0000"):
        imagenet_x(made / "empty", made / "x.jsonl")
    (made / "bad.jsonl").write_text('{"file_name": "a"}')
    with pytest.raises(ValueError, match="annotations"):
        imagenet_x(made / "val", made / "bad.jsonl")
    (made / "bad.jsonl").write_text("not json")
    with pytest.raises(ValueError, match="annotations"):
        imagenet_x(made / "val", made / "bad.jsonl")
    monkeypatch.setattr(sys.modules["pindown_papers.imagenet_x"], "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="imagenet-x"):
        imagenet_x(made / "val")
