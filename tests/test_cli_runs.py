"""From a data file to a page: check, plan, fit, audit and transform, and what a run folder holds."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commandline import N_ROWS, call, columns, contents, write_table
from pindown_papers.simulations import Expression

from pindown import Classify, Contrast, Dictionary, Forget, load
from pindown._files import pack_tensors, unpack_tensors
from pindown.runs import Run
from pindown.training import Trainer
from pindown.training.divergence import TrainingDivergedError

FEATURES = [f"x{j}" for j in range(5)]
X = np.column_stack([columns()[name] for name in FEATURES])
OBSERVED = ("--features", "x*")


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_table(tmp_path / "data.csv")


def fit(data, *arguments, output="run", steps=6):
    result = call("fit", data, *OBSERVED, "--steps", steps, "-o", output, *arguments)
    assert result.exit_code == 0, result.output
    return result


def latents(path):
    """Return the latents in a file, without its other columns."""
    names = Path(path).read_text().split("\n", 1)[0].split(",")
    beside = sum(name in ("id", "seen", "fold") for name in names)
    return np.loadtxt(path, delimiter=",", skiprows=1, usecols=range(beside, len(names)))


# Two commands


def test_two_commands_lead_from_a_table_to_a_page(data, tmp_path):
    """As a new user would: nothing chosen but the nuisance and what is no observation."""
    result = call("fit", data, "--nuisance", "batch", "--drop", "[laz]*", "--steps", 20, "-o", "run/")
    assert result.exit_code == 0, result.output
    assert "Forget: 5 latents of x0, x1, x2, x3, x4" in result.output
    assert "left out, since it holds text: subject." in result.stderr
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "run.json", "estimator.pindown", "latents.csv", "scores.json", "log.txt",
    }  # fmt: skip
    result = call("audit", "run/", "--fits", 2)
    assert result.exit_code == 0, result.output
    assert "claim" in result.output
    assert "The page: run/audit.html" in result.output
    page = (tmp_path / "run" / "audit.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<h1>data.csv: " in page
    assert '"name": "x0"' in page  # by its name, not by its number
    assert json.loads((tmp_path / "run" / "audit.json").read_text())["n_samples"] == N_ROWS
    assert "audited: " in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "by_hand"),
    [
        (
            ["--signal", "label", "-d", 2],
            lambda: Classify(2, max_iter=6, random_state=0, device="cpu").fit(X, columns()["label"]).transform(X),
        ),
        (
            ["--pairs", "subject", "-d", 2, "--seed", 3, "--option", "space=Reals()"],
            lambda: (
                Contrast(2, space=_reals(), max_iter=6, random_state=3, device="cpu")
                .fit(X, np.array(columns()["subject"]))
                .transform(X)
            ),
        ),
        (
            ["--pairs", "next", "-d", 2],
            lambda: Contrast(2, max_iter=6, random_state=0, device="cpu").fit(X).transform(X),
        ),
        (
            ["--nuisance", "batch", "--nuisance", "label", "--given", "subject", "-d", 2, "--option", "encoder=smooth"],
            lambda: (
                Forget(2, encoder=_smooth(), max_iter=6, random_state=0, device="cpu")
                .fit(X, _nuisances(), np.array(columns()["subject"]))
                .transform(X, _nuisances())
            ),
        ),
        (
            ["-d", 2, "--option", "n_restarts=1"],
            lambda: Dictionary(2, n_restarts=1, max_iter=6, random_state=0, device="cpu").fit(X).transform(X),
        ),
    ],
    ids=["signal", "pairs", "next", "two nuisances given a label", "nothing"],
)
@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_a_fit_equals_that_in_python_and_its_encoder_is_saved(data, tmp_path, arguments, by_hand):
    fit(data, *arguments, "--device", "cpu", "--folds", 0)
    expected = by_hand()
    np.testing.assert_allclose(latents(tmp_path / "run" / "latents.csv"), expected, rtol=1e-12)
    shuffled = dict(sorted(columns().items(), reverse=True))  # columns are found by name, whatever their order
    write_table(tmp_path / "new.csv", {name: column[:30] for name, column in shuffled.items()})
    result = call("transform", "run", tmp_path / "new.csv", "-o", tmp_path / "new_latents.csv")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(latents(tmp_path / "new_latents.csv"), expected[:30], rtol=1e-12)


def _nuisances():
    return np.array(list(zip(columns()["batch"], columns()["label"], strict=True)), dtype=object)


def _reals():
    from pindown.networks.spaces import Reals

    return Reals()


def _smooth():
    from pindown.networks import smooth

    return smooth


def test_new_samples_are_encoded_by_the_map_of_their_batch_and_without_a_batch_by_one_map(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sample = Expression.of_cells(20, random_state=0).sample(240, random_state=1)
    x, lab = sample.x.double().numpy(), np.array(["lab a", "lab b", "lab c"])[sample.u]
    table = {f"gene{j}": column.tolist() for j, column in enumerate(x.T)}
    write_table(tmp_path / "cells.csv", {**table, "lab": lab.tolist()})
    write_table(tmp_path / "unknown.csv", table)
    options = ("--nuisance", "lab", "-o", "run", "--device", "cpu")
    assert call("fit", tmp_path / "cells.csv", *options).exit_code == 0
    forget = Forget(random_state=0, device="cpu").fit(x, lab)
    assert forget.batch_maps_ is not None
    np.testing.assert_allclose(latents(tmp_path / "run" / "latents.csv"), forget.transform(x, lab), rtol=1e-9)
    call("transform", "run", tmp_path / "cells.csv", "-o", tmp_path / "new_latents.csv")
    np.testing.assert_allclose(latents(tmp_path / "new_latents.csv"), forget.transform(x, lab), rtol=1e-9)
    result = call("transform", "run", tmp_path / "unknown.csv", "-o", tmp_path / "new_latents.csv")
    assert "unknown.csv has no column lab" in " ".join(result.stderr.split())
    np.testing.assert_allclose(latents(tmp_path / "new_latents.csv"), forget.transform(x), rtol=1e-6)
    write_table(tmp_path / "new.csv", {**table, "lab": ["lab a"] * len(x)})
    call("transform", "run", tmp_path / "new.csv", "-o", tmp_path / "new_latents.csv")
    expected = forget.transform(x, ["lab a"] * len(x))
    np.testing.assert_allclose(latents(tmp_path / "new_latents.csv"), expected, rtol=1e-9)
    write_table(tmp_path / "new.csv", {**table, "lab": ["lab d"] * len(x)})
    result = call("transform", "run", tmp_path / "new.csv", "-o", tmp_path / "none.csv")
    assert result.exit_code == 2
    assert "that were not there in fit: lab d" in " ".join(result.stderr.split())
    assert not (tmp_path / "none.csv").exists()


def test_parameters_left_open_are_planned_and_printed(data):
    result = fit(data, "--signal", "label")
    assert "3 latents: the means of 6 classes span 3 dimensions" in result.stderr
    run = Run.open(data.parent / "run")
    assert run.recipe.n_components == 3
    assert run.columns.features == tuple(FEATURES)
    fit(data, "--nuisance", "age", output="other")
    assert Run.open(data.parent / "other").recipe.options["n_bins"] == "8"


def test_data_too_small_to_audit_are_reported_before_the_fit(data):
    write_table(data, columns() | {"subject": ["a", "b"] * (N_ROWS // 2)})
    message = "needs 8 groups, and there are 2. Give more groups"
    assert message in fit(data, "--signal", "label", "-d", 2, "--group", "subject").stderr
    for command in ("check", "plan"):
        printed = call(command, data, *OBSERVED, "--signal", "label", "-d", 2, "--group", "subject").stdout
        assert message in " ".join(printed.split())


def test_a_check_without_groups_reports_data_too_small_to_audit(data):
    for n_samples, message in ((50, "needs 60 samples, and there are 50."), (70, "and there are 70.")):
        write_table(data, {name: column[:n_samples] for name, column in columns().items()})
        printed = call("check", data, *OBSERVED, "-d", 2).stdout
        assert message in " ".join(printed.split())


def test_samples_to_audit_are_counted_in_the_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr("pindown.runs.fitting.PLANNED_SAMPLES", 300)
    rng, n_samples = np.random.default_rng(0), 1_000
    batch, subject = (
        np.arange(n_samples) % 10,
        np.maximum(np.arange(n_samples), n_samples - 8),
    )  # 100 rows each; 7 of 8 are rare
    np.savez(tmp_path / "many.npz", X=rng.normal(size=(n_samples, 4)), batch=batch, subject=subject)
    chosen = (tmp_path / "many.npz", "--features", "X*", "--nuisance", "batch", "--group", "subject", "-d", 2, "--json")
    answers = {command: json.loads(call(command, *chosen).stdout) for command in ("check", "plan")}
    assert answers["check"]["n_samples"] == 300
    last = answers["check"]["verdicts"][-1]
    assert (last["condition"], last["outcome"], last["statistic"]) == ("enough samples to audit", "holds", 8)
    assert not any("an audit" in need for need in answers["plan"]["needs"])
    np.savez(tmp_path / "many.npz", X=rng.normal(size=(n_samples, 4)), batch=np.arange(n_samples) % 20, subject=subject)
    needs = json.loads(call("plan", *chosen).stdout)["needs"]
    (need,) = [need for need in needs if "an audit" in need]  # once, and not that of the sample
    assert "needs 80 samples of the commonest level of the nuisance, and there are 50." in need


def test_errors_of_an_estimator_name_options_of_the_command_line(data, monkeypatch):
    def refuse(*arguments):
        raise ValueError("Forget: n_components must be smaller, or max_iter=9 larger; n_components=None counts.")

    monkeypatch.setattr("pindown.methods.base.BaseEncoder._fit", refuse)
    result = call("fit", data, *OBSERVED, "--nuisance", "batch", "-o", "run")
    assert result.exit_code == 2
    assert result.stderr.endswith("pindown: Forget: -d must be smaller, or --steps 9 larger; no -d counts.\n")
    result = call("fit", data, *OBSERVED, "--signal", "label", "--option", "batch_size=1", "-o", "run")
    assert "pindown: --option batch_size == 1, must be >= 2." in result.stderr
    result = call("fit", data, *OBSERVED, "--signal", "n_bins", "-o", "run")
    assert "n_bins" in result.stderr  # the name of a column stays as it is
    assert "--option n_bins" not in result.stderr


def test_a_plan_on_the_command_line_names_its_options(data):
    printed = call("plan", data, *OBSERVED, "--nuisance", "batch").stdout
    assert "Forget, 5 latents: forget-nonlinear (" in printed
    assert "networks." not in printed
    assert "n_components" not in printed


def test_known_latents_are_not_observed_and_the_audit_compares_with_them(data):
    fit(data, "--signal", "label", "-d", 3, "--truth", "z*")
    result = call("audit", "run", "--fits", 2, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["recovery"]
    assert answer["page"] == "run/audit.html"


def test_an_audit_that_is_stopped_leaves_the_run_unchanged(data, monkeypatch):
    fit(data, "--signal", "label", "-d", 2, "--folds", 0)
    restored = []

    def instead(estimator, data, **options):
        restored.append(estimator.transform(data.X))
        raise KeyboardInterrupt  # an audit that is stopped leaves the run as it was

    monkeypatch.setattr("pindown.auditing.audit.audit", instead)
    monkeypatch.setattr("pindown.training.steps.PlainStep.__call__", lambda *arguments: pytest.fail("trained"))
    before = contents(data.parent)
    for _ in range(2):
        result = call("audit", "run")
        assert result.exit_code == 130
        assert "run is unchanged" in result.stderr
    assert contents(data.parent) == before
    np.testing.assert_allclose(restored[1], latents("run/latents.csv"), rtol=1e-12)


def test_an_audit_finds_data_that_were_moved(data, monkeypatch):
    fit(data, "--signal", "label", "-d", 2)
    data.rename("elsewhere.csv")
    monkeypatch.setattr("pindown.auditing.audit.audit", lambda *arguments, **options: pytest.fail("found"))
    assert call("audit", "run").exit_code == 2
    with pytest.raises(pytest.fail.Exception, match="found"):
        raise call("audit", "run", "--data", "elsewhere.csv").exception


# For machines, and for people


def test_every_command_that_prints_results_prints_json(data):
    answers = {}
    for command, *arguments in (
        ["check", data, *OBSERVED, "--signal", "label"],
        ["plan", data, *OBSERVED, "--nuisance", "batch"],
        ["fit", data, *OBSERVED, "--signal", "label", "-d", 2, "--steps", 3, "-o", "run"],
        ["transform", "run", data, "-o", "new_latents.npy"],
    ):
        result = call(command, *arguments, "--json")
        assert result.exit_code == 0, result.output
        answers[command] = json.loads(result.stdout)
    assert {verdict["outcome"] for verdict in answers["check"]["verdicts"]} <= {"holds", "fails", "undecided"}
    assert answers["plan"]["estimator"].startswith("Forget(")
    assert answers["fit"]["score"]["chance"] < 1
    assert answers["transform"] == {
        "run": "run", "output": "new_latents.npy", "n_samples": N_ROWS, "latents": ["classify0", "classify1"],
    }  # fmt: skip
    assert np.load("new_latents.npy").shape == (N_ROWS, 2)


def test_check_and_plan_use_all_side_variables_and_write_nothing(data):
    before = contents(data.parent)
    result = call("check", data, *OBSERVED, "--signal", "label", "--nuisance", "batch", "-d", 2)
    assert "latent independent of the nuisance" in result.output
    result = call("plan", data, *OBSERVED, "--nuisance", "batch")
    assert "To fit it: pindown fit" in result.output
    assert "--nuisance batch -d 5 -o run" in result.output
    assert contents(data.parent) == before


@pytest.mark.parametrize(
    "command", ["check", "plan", "fit", "transform", "audit", "demo", "list", "reproduce", "theory"]
)
def test_every_help_has_an_example(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert f"Example: pindown {command}" in result.output


def test_shells_complete_commands_and_columns_of_the_data(data):
    environment = {
        "_PINDOWN_COMPLETE": "complete_bash",
        "COMP_CWORD": "4",
        "COMP_WORDS": f"pindown fit {data} --nuisance b",
    }
    code = "from pindown.cli import app; app(prog_name='pindown')"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True)
    assert done.stdout.split() == ["batch"]


# The folder


def test_a_run_records_what_it_was_made_from(data):
    fit(data, "--signal", "label", "-d", 2, "--option", "batch_size=32")
    record = json.loads((data.parent / "run" / "run.json").read_text())
    assert record["data"]["path"] == str(data)
    assert len(record["data"]["sha256"]) == 64
    assert record["columns"]["signal"] == "label"
    assert record["recipe"] == {
        "estimator": "Classify", "n_components": 2, "max_iter": 6, "seed": 0, "options": {"batch_size": "32"},
    }  # fmt: skip
    assert set(record["versions"]) == {"pindown", "torch", "numpy", "scikit-learn", "python"}


def test_warnings_are_printed_and_recorded(data):
    result = fit(data, "--signal", "batch", "-d", 3)
    assert "3 classes cannot identify 3 latents" in result.stderr
    scores = json.loads((data.parent / "run" / "scores.json").read_text())
    assert any("3 classes cannot identify 3 latents" in warning for warning in scores["warnings"])
    assert "warned: Classify: 3 classes" in (data.parent / "run" / "log.txt").read_text()


def test_force_replaces_a_run_and_leaves_nothing_else(data):
    fit(data, "--signal", "label", "-d", 2)
    fit(data, "--signal", "label", "-d", 3, "--force")
    assert Run.open(data.parent / "run").recipe.n_components == 3
    assert {path.name for path in data.parent.iterdir()} == {"data.csv", "run"}


def test_a_fit_that_diverges_fails_and_leaves_the_old_run(data, monkeypatch):
    fit(data, "--signal", "label", "-d", 2)
    before = contents(data.parent)

    def diverged(*arguments, **options):
        raise TrainingDivergedError("training: the loss is nan.")

    monkeypatch.setattr("pindown.methods.base.BaseEncoder._fit", diverged)
    result = call("fit", data, *OBSERVED, "--signal", "label", "-d", 3, "-o", "run", "--force")
    assert result.exit_code == 1
    assert "the loss is nan" in result.stderr
    assert contents(data.parent) == before


def test_an_absurd_learning_rate_fails_and_leaves_nothing(data):
    command = ("fit", data, *OBSERVED, "--signal", "label", "-d", 2, "--steps", 30, "-o", "run")
    result = call(*command, "--option", "learning_rate=1e30")
    assert result.exit_code == 1
    assert "Try a smaller --option learning_rate (now 1e+30)" in result.stderr
    assert result.stderr.endswith("Nothing was kept of this fit.\n")
    assert [path.name for path in data.parent.iterdir()] == ["data.csv"]


def test_a_file_that_is_no_estimator_raises(data):
    fit(data, "--signal", "label", "-d", 2)
    (data.parent / "run" / "estimator.pindown").write_bytes(b"something else")
    for command in (("transform", "run", data, "-o", "new_latents.csv"), ("audit", "run")):
        result = call(*command)
        assert result.exit_code == 2
        assert "run/estimator.pindown is damaged, or belongs to another run" in result.stderr
    (data.parent / "run" / "estimator.pindown").unlink()
    assert "run has no estimator.pindown: fit again" in call("transform", "run", data, "-o", "new_latents.csv").stderr


def test_the_estimator_of_a_run_can_be_loaded(data):
    fit(data, "--signal", "label", "-d", 2, "--folds", 0)
    estimator = load("run/estimator.pindown")
    assert estimator.trainer.checkpoint is None
    np.testing.assert_allclose(estimator.transform(X), latents("run/latents.csv"), rtol=1e-12)


def test_a_run_loads_its_estimator_without_training(data, monkeypatch):
    fit(data, "-d", 2, "--option", "n_restarts=2")

    def trained(*arguments, **options):
        raise AssertionError("nothing is to be trained")

    monkeypatch.setattr(Trainer, "train", trained)
    estimator = Run.open(data.parent / "run").load()
    assert estimator.bounds_.shape == (2,)
    assert estimator.inverse_transform(estimator.transform(X)).shape == X.shape
    np.testing.assert_array_equal(estimator.transform(X), latents("run/latents.csv"))


def test_columns_survive_json():
    from pindown.data.tables import Columns

    chosen = Columns(features=("a", "b"), nuisance=("c",), pairs="next", truth=("z*",))
    assert Columns.from_dict(chosen.as_dict()) == chosen
    assert Columns.from_dict(replace(chosen, nuisance=()).as_dict()) != chosen


def test_a_plan_prints_the_fit_with_its_options(data):
    result = call("plan", data, "--features", "x*", "--signal", "label", "--option", "space=Reals()")
    assert "--option 'space=Reals()'" in result.stdout


def test_a_fit_from_another_kind_of_device_is_restored_without_its_random_numbers(tmp_path):
    checkpoint, label = tmp_path / "fit.safetensors", np.array(columns()["label"])
    estimator = Classify(
        2, max_iter=20, trainer=Trainer(checkpoint=checkpoint), device="cpu", verbose=False, random_state=0
    )
    codes = estimator.fit(X, label).transform(X)
    named, entry = unpack_tensors(checkpoint.read_bytes())
    # The state of a GPU's generator has 16 bytes.
    elsewhere = named | {"generators": torch.zeros(1, 16, dtype=torch.uint8)}
    checkpoint.write_bytes(pack_tensors(elsewhere, entry))
    np.testing.assert_array_equal(estimator.fit(X, label).transform(X), codes)


def test_pairs_and_a_nuisance_lead_to_contrast_within_levels(data):
    assert "Contrast, 2 latents" in call("plan", data, "--pairs", "subject", "--nuisance", "batch", "-d", 2).stdout
    fit(data, "--pairs", "subject", "--nuisance", "batch", "-d", 2)
    estimator = load("run/estimator.pindown")
    assert type(estimator) is Contrast
    result = call("audit", "run", "--fits", 2)
    assert result.exit_code == 0, result.output
    assert "common levels" in result.stdout


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        (("--pairs", "subject", "--signal", "label"), "no method learns from --signal and --pairs at once: choose one"),
        (("--signal", "label", "--estimator", "Contrast"), "Contrast: cannot use --signal; it takes --pairs and"),
        (
            ("--nuisance", "batch", "--signal", "label"),
            "learns nothing from --signal. If it must survive, take",
        ),
    ],
)
def test_side_variables_that_exclude_each_other_raise(data, sides, message):
    result = call("fit", data, *sides, "-o", "run")
    assert result.exit_code == 2
    assert message in result.stderr
