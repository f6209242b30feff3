"""Files that are not whole, not ours, not of today, or cannot be written: one sentence, and nothing half written."""

import errno
import json
import os
import struct
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from saved import X, answers, edited, fitted

import pindown
from pindown.saving import files

NAME = "contrast in the reals"


@pytest.fixture
def path(tmp_path):
    fitted(NAME).save(tmp_path / "estimator.pindown")
    return tmp_path / "estimator.pindown"


def refused(path, said):
    with pytest.raises(ValueError, match=said) as told:
        pindown.load(path)
    assert str(told.value).startswith(str(path))
    return str(told.value)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_file_that_is_not_whole_says_so(path, share):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    refused(path, r"cannot be read \(.*\)\. It is damaged or not whole.*copy it anew")


def test_a_number_that_has_changed_is_seen(path):
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    refused(path, "its contents do not agree with its checksum.*written by pindown .*python .*Copy it anew")


def test_a_parameter_that_has_changed_is_seen(path):
    path.write_bytes(path.read_bytes().replace(b'\\"max_iter\\":12', b'\\"max_iter\\":13'))
    refused(path, "do not agree with its checksum")


def test_a_file_of_the_future_asks_for_an_update(path):
    future = path.read_bytes().replace(b'{\\"format\\":1', b'{\\"format\\":2')
    path.write_bytes(future)
    refused(
        path, rf"is of format 2, written by pindown .*; pindown {pindown.__version__} reads formats up to 1. Update"
    )


def test_files_of_other_programs_are_told_apart(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "other", metadata={"made": "elsewhere"})
    refused(tmp_path / "other", "holds tensors, but no estimator of pindown. Give the file that save wrote")
    np.save(tmp_path / "array.npy", X)
    refused(tmp_path / "array.npy", "cannot be read .*another program wrote it")
    for entry in ("null", "[1]", '{"format":"1"}', '{"format":1.0}'):
        save_file({}, tmp_path / "odd", metadata={"pindown": entry})
        refused(tmp_path / "odd", "no estimator of pindown")
    for entry in ('{"format":1}', '{"format":1,"sha256":3,"content":[]}', '{"format":1,"content":{}}'):
        save_file({}, tmp_path / "odd", metadata={"pindown": entry})
        refused(tmp_path / "odd", "cannot be loaded")
    save_file({}, tmp_path / "deep", metadata={"pindown": "[" * 10**5})
    refused(tmp_path / "deep", "cannot be read")


def test_a_folder_and_a_file_that_is_not_there_are_said(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"is a folder\. Give the file that save wrote"):
        pindown.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere cannot be read: No such file.*Give the file that save wrote"):
        pindown.load(tmp_path / "nowhere")


def unknown_class(content, tensors):
    content["names"] = [name.replace(":Contrast", ":Contrast2") for name in content["names"]]


def missing_tensor(content, tensors):
    del tensors["encoder_.preprocess.matrix"]


def other_shape(content, tensors):
    tensors["encoder_.preprocess.matrix"] = tensors["encoder_.preprocess.matrix"][:, :2].contiguous()


def other_type(content, tensors):
    tensors["encoder_.preprocess.matrix"] = tensors["encoder_.preprocess.matrix"].double()


def other_width(content, tensors):
    layer = next(part for part in content["modules"] if part.get("layer") == "Linear")
    layer["arguments"]["in_features"] += 1


def missing_bias(content, tensors):
    layer = next(part for part in content["modules"] if part.get("layer") == "Linear")
    del layer["parameters"]["bias"]


def unknown_layer(content, tensors):
    next(part for part in content["modules"] if "layer" in part)["layer"] = "Bomb"


def unknown_kind(content, tensors):
    content["estimator"]["estimator"]["learned"]["n_iter_"] = {"pickle": "gASVBQ=="}


def odd_parameter(content, tensors):
    content["estimator"]["estimator"]["parameters"]["speed"] = 3


def module_too_early(content, tensors):
    content["modules"].reverse()


def number_for_a_module(content, tensors):
    part = next(part for part in content["modules"] if part.get("parts"))
    part["parts"] = dict.fromkeys(part["parts"], 3)


def far_apart(content, tensors):
    array = content["estimator"]["estimator"]["learned"]["loss_curve_"]["array"]
    array["strides"] = [2**50]


def addresses(content, tensors):
    content["estimator"]["estimator"]["learned"]["loss_curve_"]["array"]["dtype"] = "|O"


def no_estimator(content, tensors):
    del content["estimator"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (unknown_class, "names .*:Contrast2, which is not there: it was written by another version"),
        (missing_tensor, "its tensor encoder_.preprocess.matrix is missing"),
        (other_shape, r"encoder_.preprocess.matrix is float32 of shape \(4, 2\), not float32 of shape \(4, 4\)"),
        (other_type, r"encoder_.preprocess.matrix is float64 of shape \(4, 4\), not float32"),
        (other_width, r"its tensor weight is float32 of shape .*, where the network has float32 of shape"),
        (missing_bias, "its tensor bias is none, where the network has"),
        (unknown_layer, "it has a layer Bomb, which is not known here"),
        (unknown_kind, "it has a pickle, which is not known here"),
        (odd_parameter, "unexpected keyword argument 'speed'"),
        (module_too_early, "IndexError"),
        (number_for_a_module, "it has a int where a Module must be"),
        (far_apart, r"loss_curve_ cannot lie in memory by strides \[1125899906842624\]"),
        (addresses, r"an array of \|O, which is not known here"),
        (no_estimator, "KeyError, 'estimator'"),
    ],
)
def test_a_file_that_was_changed_and_signed_again_is_refused_by_its_contents(path, change, said):
    edited(path, change)
    refused(path, said)


def test_flipped_bytes_load_equal_or_are_refused_in_our_words(path):
    """Of a header that is mostly JSON nearly every flip shows; where one does not, nothing may have changed."""
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    expected, loaded = answers(fitted(NAME)), 0
    places = [*range(24), *rng.integers(8, header, size=250), *rng.integers(header, len(whole), size=50)]
    before = set(sys.modules)
    for place in places:
        content = bytearray(whole)
        content[place] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        try:
            found = pindown.load(path)
        except ValueError as error:
            assert str(error).startswith(str(path))  # noqa: PT017 (most flips raise, some need not)
            assert str(error).endswith(".")  # noqa: PT017
        else:
            loaded += 1
            for name, said in answers(found).items():
                np.testing.assert_array_equal(said, expected[name])
    assert loaded < 30
    assert not set(sys.modules) - before


def test_an_unwritable_place_is_said_and_nothing_is_left(tmp_path):
    estimator = fitted(NAME)
    with pytest.raises(IsADirectoryError, match=r"is a folder. Give a file in it, such as .*estimator.pindown"):
        estimator.save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"file cannot be written: No such file or directory. Give a file in a"):
        estimator.save(tmp_path / "nowhere" / "file")
    (tmp_path / "plain").write_text("no folder")
    with pytest.raises(NotADirectoryError, match="cannot be written: Not a directory"):
        estimator.save(tmp_path / "plain" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="cannot be written: Permission denied"):
        fitted(NAME).save(tmp_path / "file")


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_a_full_or_closed_disk_leaves_the_old_file_as_it_was(path, monkeypatch, kind):
    old = path.read_bytes()
    written = type(path).write_bytes

    def half(self, content):
        written(self, content[: len(content) // 2])
        raise OSError(kind, os.strerror(kind))

    monkeypatch.setattr(type(path), "write_bytes", half)
    with pytest.raises(OSError, match=rf"cannot be written: {os.strerror(kind)}.*with room for [\d,]+ bytes"):
        fitted("dictionary").save(path)
    assert path.read_bytes() == old
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_may_be_read_by_whom_its_folder_lets(path):
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_the_entry_is_one_and_plain_text(path):
    with safe_open(path, framework="pt") as file:
        (entry,) = file.metadata().items()
    assert entry[0] == files.ENTRY
    assert list(json.loads(entry[1])) == ["format", "versions", "sha256", "content"]
