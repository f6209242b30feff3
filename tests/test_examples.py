"""Every example runs with smaller constants, without a warning, draws one image, and shows what its page is about."""

import gzip
import importlib.util
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parents[1] / "examples"
WITH_DATA = ("confounded_batches", "digits", "emg_sessions", "stamps", "table_alone", "two_bodies")
CONSTANTS = re.compile(r"^([A-Z_]+), ([A-Z_]+) = ([\d_]+), ([\d_]+)$", re.MULTILINE)


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs an example with other values of the two constants at its top."""
    monkeypatch.setattr(plt, "show", lambda: None)

    def run_with(name: str, **values: int) -> dict[str, Any]:
        source = (FOLDER / f"plot_{name}.py").read_text(encoding="utf-8")
        found = CONSTANTS.search(source)
        assert found is not None
        assert set(found.groups()[:2]) == values.keys()
        made: dict[str, Any] = {}
        changed = CONSTANTS.sub("\n".join(f"{constant} = {value}" for constant, value in values.items()), source)
        exec(compile(changed, name, "exec"), made)
        return made

    yield run_with
    plt.close("all")


def test_every_example_has_a_title_constants_and_a_last_word():
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names == {f"plot_{n}" for n in (*WITH_DATA, "fashion")}
    for path in FOLDER.glob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0] == '"""'
        assert lines[2] == "=" * len(lines[1])
        assert len(lines) <= 115
        last_cell = lines[len(lines) - lines[::-1].index("# %%") :]
        assert last_cell[0].startswith("# Supported")
        assert all(line.startswith("# ") for line in last_cell)


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # after so few steps it may leak
@pytest.mark.slow
def test_a_confounded_batch_is_reported_and_given_saves_the_condition(run, capsys):
    made = run("confounded_batches", N_ROWS=1_500, STEPS=40)
    assert "cannot apply as things are" in capsys.readouterr().out
    assert [v.name for v in made["report"].verdicts if v.outcome == "fails"] == ["latent independent of the nuisance"]
    (without, _, _), (within, told, chance) = list(made["found"].values())[1:]
    assert within > without + 0.1
    assert told < chance + 0.2
    assert len(plt.get_fignums()) == 1


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # after so few steps it may
@pytest.mark.slow
def test_digits_are_recognised_and_shifted_ones_are_positives(run):
    made = run("digits", N_TRAIN=1_000, STEPS=60)
    assert made["accuracy"] > 0.55
    assert made["contrast"].score(made["one"], made["other"]) > 0.5
    assert made["recognised"] > 0.3
    assert len(plt.get_fignums()) == 1


@pytest.mark.filterwarnings("ignore::UserWarning")  # after so few steps a fit has things to say
@pytest.mark.slow
def test_clothes_are_read_from_files_of_the_system_or_the_page_says_that_there_are_none(
    run, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("FASHION_MNIST", str(tmp_path / "none"))
    run("fashion", N_TRAIN=300, STEPS=5)
    assert "install dataset-fashion-mnist" in capsys.readouterr().out
    assert not plt.get_fignums()
    rng, kinds = np.random.default_rng(0), np.arange(1_600) % 10  # a bar for each kind, and noise
    images = rng.integers(0, 60, size=(1_600, 28, 28), dtype=np.uint8)
    for image, kind in zip(images, kinds, strict=True):
        image[4 + 2 * kind : 7 + 2 * kind, 4:24] = 255
    for name, header, content in ("images-idx3", 16, images), ("labels-idx1", 8, kinds.astype(np.uint8)):
        (tmp_path / f"train-{name}-ubyte.gz").write_bytes(gzip.compress(bytes(header) + content.tobytes()))
    monkeypatch.setenv("FASHION_MNIST", str(tmp_path))
    accuracy = run("fashion", N_TRAIN=1_200, STEPS=10)["accuracy"]
    assert accuracy["pixels"] > 0.9
    assert accuracy["latents"] > 0.25  # chance is .1
    assert len(plt.get_fignums()) == 1


@pytest.mark.skipif(not importlib.util.find_spec("geomstats"), reason="the recordings come with geomstats")
@pytest.mark.slow
def test_emg_latents_predict_the_session_worse_and_the_gesture_better(run):
    found = run("emg_sessions", WINDOW=250, STEPS=200)["found"]
    *_, (_, told, kept) = found.values()
    assert told < found["standardised per session"][1] - 0.1
    assert kept > found["as recorded"][2]
    assert len(plt.get_fignums()) == 1


def test_without_the_recordings_the_emg_example_says_how_to_get_them(run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=re.escape('pip install "pindown[examples]"')):
        run("emg_sessions", WINDOW=250, STEPS=10)


def test_a_random_network_predicts_darkness_and_control_tasks_are_at_chance(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # the small version, whatever is installed
    monkeypatch.setenv("TUXPAINT_STAMPS", str(tmp_path / "none"))
    made = run("stamps", N_PICTURES=200, N_OBJECTS=50)
    said = capsys.readouterr().out
    assert "Install tuxpaint-stamps-default" in said
    assert "EfficientNet-lite0 is not installed" in said
    score = {(each.model, each.factor): each.score for each in made["found"].probed}
    assert min(score["random", "darkness"], score["pixels", "darkness"]) > 0.9
    assert abs(made["control"] - 0.5) < 0.1
    assert len(plt.get_fignums()) == 1


def test_stamps_of_a_folder_are_read(run, monkeypatch, tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for k in range(20):
        stamp = np.zeros((24, 40, 4), dtype=np.uint8)
        stamp[4:20, 4 + k : 20 + k] = [*rng.integers(256, size=3), 255]
        Image.fromarray(stamp).save(tmp_path / f"{k}.png")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("TUXPAINT_STAMPS", str(tmp_path))
    assert tuple(run("stamps", N_PICTURES=120, N_OBJECTS=20)["simulation"].objects.shape) == (20, 4, 32, 32)


@pytest.mark.slow
def test_a_table_alone_has_a_graph_in_which_sizes_go_together(run):
    made = run("table_alone", N_LATENTS=3, STEPS=30)
    reached = made["dictionary"].support_[[list(made["table"].columns).index(n) for n in ("radius", "area")]]
    assert (reached[0] & reached[1]).any()
    assert made["found"].claim
    assert len(plt.get_fignums()) == 1


@pytest.mark.slow
def test_two_bodies_share_latents_only_after_pairs(run):
    alignment = run("two_bodies", N_ROWS=4_000, STEPS=200)["alignment"]
    assert alignment.at(50).r2 > 0.5  # without pairs it is anyone's guess: two bodies may use latents alike by chance
    assert len(plt.get_fignums()) == 1
