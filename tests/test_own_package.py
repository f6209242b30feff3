"""A method of another package is a full citizen: registered, checked, planned, fitted, resumed, audited, saved."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from commandline import call

from pindown import audit, load, plan
from pindown.data import tables
from pindown.data.data import Data
from pindown.methods.registry import find, registered

OWN_METHOD = Path(__file__).parents[1] / "docs" / "own_method"
POINTS = """[pindown.methods]
Regress = measuring.regress:Regress
Broken = measuring.broken:Broken
"""
N, D, K = 400, 3, 5


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Build a package on the fly, installed as pip would: its modules, and next to them what it registers."""
    site = tmp_path / "site"
    (site / "measuring").mkdir(parents=True)
    for name in ("__init__.py", "losses.py", "theory.py", "regress.py"):
        text = (OWN_METHOD / name).read_text(encoding="utf-8").replace("own_method", "measuring")
        (site / "measuring" / name).write_text(text, encoding="utf-8")
    (site / "measuring" / "broken.py").write_text("import a_package_that_is_not_there\n")
    info = site / "measuring-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: measuring\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(site)
    yield "measuring"
    for name in [name for name in sys.modules if name.partition(".")[0] == "measuring"]:
        del sys.modules[name]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Three latents, five measurements that are linear in them up to noise, and three observed variables that bend."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(N, D))
    x = np.tanh(z @ np.linalg.qr(rng.normal(size=(D, D)))[0] / 2) + 0.02 * rng.normal(size=(N, D))
    y = z @ rng.normal(size=(D, K)) + 0.1 * rng.normal(size=(N, K))
    with (tmp_path / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{j}" for j in range(D)), *(f"y{j}" for j in range(K))])
        writer.writerows(np.hstack([x, y]).tolist())
    monkeypatch.chdir(tmp_path)
    return x, y


MEASURED = [word for j in range(K) for word in ("--signal", f"y{j}")]
FIT = ("fit", "data.csv", "--estimator", "Regress", *MEASURED, "--steps", "60", "--device", "cpu")


def test_what_others_registered_is_found_and_not_imported_before(package):
    assert registered()["Regress"] == "measuring.regress:Regress"
    assert "measuring" not in sys.modules
    assert find("Regress") is find("measuring.regress:Regress")


def test_one_that_cannot_be_imported_is_a_sentence_and_breaks_no_other(package, data):
    result = call("fit", "data.csv", "--estimator", "Broken", *MEASURED, "-o", "run")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "--estimator: Broken cannot be imported from measuring.broken:Broken (ModuleNotFoundError" in result.stderr
    assert not Path("run").exists()
    assert call("plan", "data.csv", "--estimator", "Regress", *MEASURED).exit_code == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Regres", "--estimator: there is no 'Regres': did you mean 'Regress'?"),
        ("json:loads", "--estimator: json:loads must be a subclass of pindown's BaseEncoder."),
        ("measuring.regress:Gone", "--estimator: measuring.regress:Gone cannot be imported"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(package, data, name, message):
    result = call("check", "data.csv", "--estimator", name, *MEASURED)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_it_is_checked_and_planned_before_training(package, data):
    result = call("check", "data.csv", "--estimator", "Regress", *MEASURED, "-d", 3)
    assert "at least d linearly independent targets" in result.stdout
    result = call("plan", "data.csv", "--estimator", "Regress", *MEASURED)
    assert "Regress, 3 latents: regress (least squares, argued here) can apply." in result.stdout
    assert "pindown fit data.csv --estimator Regress --signal y0 --signal y1" in result.stdout
    few = plan(data[0], signal=data[1][:, :2], estimator=find("Regress"), n_components=3)
    assert (few.outcome, few.needs) == ("fails", ("one more linearly independent target",))


@pytest.mark.slow
def test_it_is_fitted_audited_and_applied_from_the_shell(package, data):
    result = call(*FIT, "-o", "run", "--folds", 0)
    assert result.exit_code == 0, result.output
    assert "Regress: 3 latents of x0, x1, x2" in result.stdout
    assert "y explained by a linear map of the latents (R²), on rows held out in 5 folds (400): .9" in result.stdout
    record = json.loads(Path("run/run.json").read_text())
    assert record["recipe"]["estimator"] == "Regress"
    result = call("audit", "run", "--fits", 2)
    assert result.exit_code == 0, result.output
    assert "the latents are recovered up to an invertible affine map" in result.stdout
    assert Path("run/audit.html").read_text().startswith("<!doctype html>")
    assert call("transform", "run", "data.csv", "-o", "codes.csv").exit_code == 0
    seen = "".join(f"1,{line}\n" for line in Path("codes.csv").read_text().splitlines()[1:])
    assert Path("run/latents.csv").read_text() == "seen,regress0,regress1,regress2\n" + seen
    assert Path("codes.csv").read_text().startswith("regress0,regress1,regress2")


@pytest.mark.slow
def test_a_fit_that_was_stopped_goes_on(package, data, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    fit = (*FIT, "--folds", 0)
    assert call(*fit, "-o", "whole").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(tables, "write_latents", stop)
        assert call(*fit, "-o", "run").exit_code == 130
    with monkeypatch.context() as patch:
        patch.setattr("pindown.training.steps.PlainStep.__call__", lambda *arguments: pytest.fail("trained again"))
        result = call(*fit, "-o", "run")
    assert result.exit_code == 0, result.output
    assert "resuming run.unfinished" in result.stderr
    assert Path("run/estimator.pindown").read_bytes() == Path("whole/estimator.pindown").read_bytes()


@pytest.mark.slow
def test_it_is_audited_and_saved_in_python(package, data):
    x, y = data
    regress = find("Regress")(3, max_iter=60, verbose=False, device="cpu", random_state=0).fit(x, y)
    found = audit(regress, Data(x, signal=y), n_fits=2, random_state=0)
    assert found.claims
    assert [control.passed for control in found.controls] == [True, True]
    regress.save("regress.pindown")
    np.testing.assert_array_equal(load("regress.pindown", trust=["Regress"]).transform(x), regress.transform(x))


@pytest.mark.filterwarnings("ignore:Regress. the fit overfits")  # as it does
def test_where_y_says_nothing_nothing_is_claimed(package, data):
    x, y = data[0], np.random.default_rng(1).normal(size=(N, K))
    regress = find("Regress")(3, max_iter=60, verbose=False, device="cpu", random_state=0).fit(x, y)
    found = audit(regress, x, y, n_fits=2, random_state=0)
    assert not found.claims
    assert "learned nothing that shows on held-out samples" in found.claim


def test_measurements_are_no_label(data):
    result = call("fit", "data.csv", *MEASURED, "-o", "run")
    assert result.exit_code == 2
    assert "--signal: a label is one column, but y0, y1, y2, y3, y4 were named." in result.stderr
    assert "--estimator" in result.stderr
