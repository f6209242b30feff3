"""Files that were written by earlier versions, and must load for ever: see saved_files.py."""

import zipfile

import numpy as np
import pytest
from own_method.regress import Regress
from saved import answers
from saved_files import FOLDER

import pindown
from pindown.saving import FORMAT


def kept():
    """Return archive and name of every file."""
    for path in sorted(FOLDER.glob("format*.zip")):
        with zipfile.ZipFile(path) as archive:
            yield from ((path, name) for name in archive.namelist() if name.endswith(".pindown"))


def test_files_of_every_format_are_kept_and_are_small():
    archives = sorted(FOLDER.iterdir())
    assert {f"format{number}.zip" for number in range(1, FORMAT)} <= {path.name for path in archives}
    assert all(path.stat().st_size < 100_000 for path in archives)


@pytest.mark.parametrize(("archive", "name"), list(kept()), ids=lambda part: getattr(part, "stem", part))
def test_a_file_of_an_earlier_version_loads_and_gives_the_same_latents(tmp_path, archive, name):
    with zipfile.ZipFile(archive) as files:
        files.extract(name, tmp_path)
        files.extract("expected.npz", tmp_path)
    with np.load(tmp_path / "expected.npz") as arrays:
        expected = {what: arrays[what] for what in arrays.files}
    estimator, stem = pindown.load(tmp_path / name, trust=[Regress]), name.removesuffix(".pindown")
    said = answers(estimator, expected["x"], expected["x_next"])
    assert {f"{stem}/{what}" for what in said} == {what for what in expected if what.startswith(f"{stem}/")}
    for what, value in said.items():
        wanted = expected[f"{stem}/{what}"]
        if wanted.dtype.kind == "f":  # to rounding: another CPU sums in another order
            np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-6, err_msg=what)
        else:
            np.testing.assert_array_equal(value, wanted, err_msg=what)
