"""A folder of images on the command line: fitted, looked at, audited, encoded; and what is wrong with one."""

import csv
import json
import shutil

import numpy as np
import pytest
from commandline import call, edit_record

from pindown import load
from pindown.simulate.images import save_png

N = 240


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of discs, which a scanner makes brighter, next to its labels."""
    there = tmp_path_factory.mktemp("study")
    rng, axis = np.random.default_rng(0), np.linspace(-1, 1, 8)
    (there / "pictures").mkdir()
    rows = []
    for number in range(N):
        x, y, scanner, kind = *rng.uniform(-0.6, 0.6, size=2), number % 2, int(rng.integers(3))
        disc = np.exp(-((axis - x) ** 2 + (axis[:, None] - y) ** 2) / 0.1) * (0.6 + 0.3 * scanner)
        save_png(there / "pictures" / f"{number:03}.png", np.repeat((255 * disc)[..., None], 3, 2).astype(np.uint8))
        rows.append([f"{number:03}.png", "north" if scanner else "south", f"kind {kind}", x])
    with (there / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["file", "scanner", "kind", "x"], *rows])
    return there


def labelled(folder, *more):
    return (folder / "pictures", "--labels", folder / "labels.csv", *more)


@pytest.fixture(scope="module")
def run(folder):
    options = ("-d", 2, "--steps", 20, "--device", "cpu", "-o", folder / "run")
    done = call("fit", *labelled(folder, "--nuisance", "scanner", *options))
    assert done.exit_code == 0, done.output
    return folder / "run", done.output


def test_a_folder_is_fitted_and_its_latents_have_the_names_of_files(folder, run):
    path, output = run
    assert "Forget: 2 latents of images of 3 × 8 × 8" in output
    with (path / "latents.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == [f"{number:03}.png" for number in range(N)]
    record = json.loads((path / "run.json").read_text())
    assert record["pictures"] == {"labels": str(folder / "labels.csv")}
    assert load(path / "estimator.pindown").shape_in_ == (3, 8, 8)


def test_new_images_are_encoded_without_labels(folder, run, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.png").write_bytes((folder / "pictures" / "007.png").read_bytes())
    done = call("transform", run[0], tmp_path / "new", "-o", tmp_path / "latents.csv")
    assert done.exit_code == 0, done.output
    with (tmp_path / "latents.csv").open() as file, (run[0] / "latents.csv").open() as known:
        (new,), old = list(csv.DictReader(file)), list(csv.DictReader(known))[7]
    assert new["file"] == "a.png"
    assert float(new["forget0"]) == pytest.approx(float(old["forget0"]), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "content", "fix", "said", "noted"),
    [
        ("zz.png", b"half a pict", ("--skip-corrupt",), "--skip-corrupt", "zz.png"),
        ("zz.npy", np.zeros((9, 8, 3), np.uint8), ("--size", 8), "--size 64x64", ""),
        ("zz.npy", np.zeros((8, 8), np.uint8), ("--channels", 3), "--channels 3", ""),
    ],
)
def test_new_images_are_converted_like_those_of_a_fit(folder, run, tmp_path, name, content, fix, said, noted):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.png").write_bytes((folder / "pictures" / "007.png").read_bytes())
    if isinstance(content, bytes):
        (tmp_path / "new" / name).write_bytes(content)
    else:
        np.save(tmp_path / "new" / name, content)
    words = ("transform", run[0], tmp_path / "new", "-o", tmp_path / "latents.csv")
    refused = call(*words)
    assert refused.exit_code == 2, refused.output
    assert said in refused.output
    assert not (tmp_path / "latents.csv").exists()
    fixed = call(*words, *fix, "--json")
    assert fixed.exit_code == 0, fixed.output
    assert json.loads(fixed.stdout)["n_samples"] == (1 if noted else 2)
    assert noted in fixed.stderr


def test_a_run_without_corrupt_images_names_new_ones_that_are_left_out(folder, run, tmp_path):
    shutil.copytree(run[0], tmp_path / "run")
    edit_record(tmp_path / "run", pictures={"skip_corrupt": True})
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.png").write_bytes((folder / "pictures" / "007.png").read_bytes())
    (tmp_path / "new" / "b.png").write_bytes(b"half a pict")
    done = call("transform", tmp_path / "run", tmp_path / "new", "-o", tmp_path / "latents.csv")
    assert done.exit_code == 0, done.output
    assert "b.png" in done.stderr


def test_images_of_another_size_than_those_of_the_fit_raise_with_the_options_that_convert_them(run, tmp_path):
    (tmp_path / "new").mkdir()
    np.save(tmp_path / "new" / "a.npy", np.zeros((9, 7), np.uint8))
    words = ("transform", run[0], tmp_path / "new", "-o", tmp_path / "latents.csv")
    refused = call(*words)
    assert refused.exit_code == 2
    assert "images are 1 × 9 × 7, but this run was fitted to those of 3 × 8 × 8" in refused.output
    assert call(*words, *refused.output.rstrip(".\n").split()[-4:]).exit_code == 0  # --size 8x8 --channels 3


def test_check_and_plan_describe_images(folder):
    seen = call("check", *labelled(folder, "--nuisance", "scanner", "-d", 2))
    assert seen.exit_code == 0, seen.output
    assert f"{N} samples, images of 3 × 8 × 8" in seen.output
    planned = call("plan", *labelled(folder, "--signal", "kind", "--size", "4x6", "-d", 2))
    assert planned.exit_code == 0, planned.output
    assert "images of 3 × 4 × 6" in planned.output
    assert "--size 4x6" in planned.output
    assert "-d 2" in planned.output


@pytest.mark.slow
def test_a_run_is_audited_and_a_folder_that_has_changed_is_not(folder, run):
    done = call("audit", run[0], "--fits", 2, "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert (run[0] / "audit.html").exists()
    there = folder / "pictures" / "extra.png"
    save_png(there, np.zeros((8, 8, 3), np.uint8))
    changed = call("audit", run[0])
    there.unlink()
    assert changed.exit_code == 2
    assert "pictures has changed since the fit" in changed.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--nuisance", "scanner"), "-d must be given for images, such as -d 5"),
        (("--nuisance", "scaner", "-d", 2), "'scanner'"),
        (("--nuisance", "scanner", "-d", 2, "--size", "big"), "--size must be a number of pixels such as 64, or 48x64"),
        (("--nuisance", "scanner", "-d", 2, "--impute", "median"), "--impute is about columns of a table"),
        (("--nuisance", "scanner", "-d", 2, "--channels", 2), "channels"),
        (("--signal", "x", "-d", 2), "column 'x' has fractions such as"),
    ],
)
def test_mistakes_with_images_raise_and_nothing_is_written(folder, tmp_path, options, said):
    refused = call("fit", *labelled(folder, *options, "-o", tmp_path / "run"))
    assert refused.exit_code == 2, refused.output
    assert said in refused.output.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_options_of_images_raise_for_a_file(folder, run):
    refused = call("check", folder / "labels.csv", "--size", 8)
    assert refused.exit_code == 2
    assert "--size is for a folder of images" in refused.output
    refused = call("transform", run[0], folder / "labels.csv", "--skip-corrupt", "-o", folder / "latents.csv")
    assert refused.exit_code == 2
    assert "--skip-corrupt is for a folder of images" in refused.output


@pytest.mark.parametrize(
    ("name", "content", "fix", "said"),
    [
        ("zz.png", b"half a pict", "--skip-corrupt", "zz.png"),
        ("zz.npy", np.zeros((9, 8, 3), np.uint8), "--size=8", "zz.npy"),
        ("zz.npy", np.zeros((8, 8), np.uint8), "--channels=3", "zz.npy"),
        ("sub/zz.png", None, "--skip-unlabelled", "sub/zz.png"),
    ],
)
def test_an_image_unlike_the_others_is_named_with_the_option_that_fixes_it(folder, tmp_path, name, content, fix, said):
    there = tmp_path / "pictures"
    there.mkdir()
    for number in range(40):
        (there / f"{number:03}.png").write_bytes((folder / "pictures" / f"{number:03}.png").read_bytes())
    (there / name).parent.mkdir(exist_ok=True)
    if isinstance(content, np.ndarray):
        np.save(there / name, content)
    else:
        (there / name).write_bytes(content or (there / "000.png").read_bytes())
    labels = (folder / "labels.csv").read_text()
    (tmp_path / "labels.csv").write_text(labels if content is None else f"{labels}{name},north,kind 1,0.5\n")
    words = ("check", there, "--labels", tmp_path / "labels.csv", "--nuisance", "scanner", "-d", 2)
    refused = call(*words)
    assert refused.exit_code == 2, refused.output
    assert said in refused.output
    assert fix.partition("=")[0] in refused.output
    fixed = call(*words, fix)
    assert fixed.exit_code == 0, fixed.output
