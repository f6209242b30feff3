"""What files hold next to numbers, from the shell: names of rows, missing cells, counts, runs of other versions."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from commandline import call, edit_record, write_cells
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from pindown import load
from pindown.runs import Run

N = 120


def write(path, **columns):
    with Path(path).open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))


def columns(seed=0, **more):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 2)) @ rng.normal(size=(2, 4)) + 0.1 * rng.normal(size=(N, 4))
    names = {"sample": [f"s{k:03d}" for k in rng.permutation(N)]}
    return names | {f"x{j}": x[:, j].round(4).tolist() for j in range(4)} | {"batch": ["a", "b"] * (N // 2)} | more


def rows(path):
    with Path(path).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fit(*words):
    result = call("fit", "data.csv", *words, "-o", "run", "--steps", 5, "--device", "cpu")
    assert result.exit_code == 0, result.output
    return result


def test_names_of_samples_are_written_next_to_their_latents(here):
    write("data.csv", **columns())
    result = fit("--nuisance", "batch")
    assert "samples are named by sample" in result.stderr
    found = rows("run/latents.csv")
    assert [row["sample"] for row in found] == columns()["sample"]
    assert {row["seen"] for row in found} == {"1"}
    assert call("transform", "run", "data.csv", "-o", "new.csv").exit_code == 0
    assert [row["sample"] for row in rows("new.csv")] == columns()["sample"]
    assert "seen" not in rows("new.csv")[0]


def test_numbers_that_name_samples_are_not_observed_and_can_be_the_id(here):
    numbers = np.random.default_rng(1).permutation(10**6)[:N].tolist()
    write("data.csv", **columns(patient_id=numbers))
    assert "names samples" in fit("--nuisance", "batch").stderr
    assert "patient_id" not in json.loads(Path("run/run.json").read_text())["columns"]["features"]
    fit("--nuisance", "batch", "--id", "patient_id", "--force")
    assert [int(row["patient_id"]) for row in rows("run/latents.csv")] == numbers
    result = call("plan", "data.csv", "--signal", "sample")
    assert result.exit_code == 2
    assert "it names samples, and is no label" in result.stderr


def test_missing_cells_raise_or_are_filled_or_left_out_on_request(here):
    data = columns()
    data["x1"][3] = data["x2"][5] = ""
    write("data.csv", **data)
    refused = call("fit", "data.csv", "--nuisance", "batch", "-o", "run")
    assert refused.exit_code == 2
    assert "--impute median or --impute drop-rows" in refused.stderr
    assert not Path("run").exists()
    assert "2 cells of 2 columns filled" in fit("--nuisance", "batch", "--impute", "median").stderr
    assert len(rows("run/latents.csv")) == N
    median = float(np.median([x for x in data["x1"] if x != ""]))
    assert json.loads(Path("run/run.json").read_text())["medians"]["x1"] == pytest.approx(median)
    write("new.csv", **{name: [part[0], "" if name == "x1" else part[0]] for name, part in data.items()})
    write("filled.csv", **{name: [part[0], median if name == "x1" else part[0]] for name, part in data.items()})
    for name in ("new", "filled"):
        assert call("transform", "run", f"{name}.csv", "-o", f"{name}_latents.csv").exit_code == 0
    assert Path("new_latents.csv").read_text() == Path("filled_latents.csv").read_text()
    fit("--nuisance", "batch", "--impute", "drop-rows", "--force")
    left = [name for k, name in enumerate(data["sample"]) if k not in (3, 5)]
    assert [row["sample"] for row in rows("run/latents.csv")] == left


def test_counts_are_normalised_on_request_and_other_numbers_raise(here):
    rng = np.random.default_rng(0)
    depth = rng.integers(1, 30, size=N)[:, None]
    counts = rng.poisson(depth * np.exp(rng.normal(size=(N, 1)) * [1, -1, 0.5, 0]))
    counts[:, 0] += 1
    write("data.csv", batch=["a", "b"] * (N // 2), **{f"g{j}": counts[:, j].tolist() for j in range(4)})
    fit("--nuisance", "batch", "--counts")
    write("deeper.csv", batch=["a", "b"] * (N // 2), **{f"g{j}": (7 * counts[:, j]).tolist() for j in range(4)})
    for name in ("data", "deeper"):
        assert call("transform", "run", f"{name}.csv", "-o", f"{name}_latents.csv").exit_code == 0
    first, second = (np.loadtxt(f"{name}_latents.csv", delimiter=",", skiprows=1) for name in ("data", "deeper"))
    np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-9)  # the size of a library does not matter
    write("data.csv", **columns())
    refused = call("fit", "data.csv", "--nuisance", "batch", "--counts", "-o", "other")
    assert refused.exit_code == 2
    assert "--counts: column 'x0' has" in refused.stderr
    assert "which is no count" in refused.stderr
    assert not Path("other").exists()


def test_numbers_too_large_to_compute_with_are_named(here):
    data = columns()
    data["x2"][6] = "1e300"
    write("data.csv", **data)
    for command in (("fit", "-o", "run"), ("check",), ("plan",)):
        refused = call(command[0], "data.csv", "--nuisance", "batch", *command[1:])
        assert refused.exit_code == 2
        assert "data.csv: column 'x2' has 1e+300 in row 7" in refused.stderr
    assert not Path("run").exists()


def test_a_run_of_another_version_says_so(here):
    write("data.csv", **columns())
    fit("--nuisance", "batch")
    assert "was made by" not in call("transform", "run", "data.csv", "-o", "new.csv").stderr
    edit_record(Path("run"), versions={"pindown": "0.0.9"})
    result = call("transform", "run", "data.csv", "-o", "new.csv")
    assert result.exit_code == 0
    assert "run was made by pindown 0.0.9, and this is" in result.stderr


def test_principal_components_are_kept_on_request_and_printed_by_plan_and_check(here):
    write("data.csv", **columns())
    fit("--nuisance", "batch", "--pca", 2)
    assert json.loads(Path("run/run.json").read_text())["recipe"]["options"]["preprocess"] == (
        "whiten_signal(n_components=2)"
    )
    for command in ("plan", "check"):
        result = call(command, "data.csv", "--nuisance", "batch", "--pca", 2)
        assert "2 leading directions" in " ".join(result.stdout.split())
        result = call(command, "data.csv", "--nuisance", "batch")
        assert "all 4 directions" in " ".join(result.stdout.split())


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.slow
def test_a_random_label_cannot_be_decoded_from_the_latents_written(here):
    read, n = {"run/latents.csv": [], "plain/latents.csv": []}, 400  # 1,200 tosses: a reader errs by .014
    for seed in range(3):
        rng = np.random.default_rng(seed)
        coin = rng.integers(2, size=n)
        write("data.csv", coin=[f"c{c}" for c in coin], **{f"x{j}": rng.normal(size=n).tolist() for j in range(12)})
        words = ("fit", "data.csv", "--signal", "coin", "-d", 1, "--steps", 150, "--seed", seed, "--force")
        words += (
            "--option",
            "validation_fraction=0",
        )  # or held-out samples would stop it before it knows the others from memory
        assert call(*words, "-o", "run").exit_code == 0
        assert call(*words, "-o", "plain", "--folds", 0).exit_code == 0
        for path, found in read.items():
            codes = np.array([[float(row["classify0"])] for row in rows(path)])
            found.append(cross_val_score(LogisticRegression(), codes, coin, cv=5).mean())
    assert {row["fold"] for row in rows("run/latents.csv")} == {"0", "1", "2", "3"}
    assert np.mean(read["plain/latents.csv"]) > 0.62
    assert np.mean(read["run/latents.csv"]) == pytest.approx(0.5, abs=0.08)


def test_a_fit_of_cells_writes_an_h5ad_with_the_latents(tmp_path, monkeypatch):
    anndata = pytest.importorskip("anndata")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    donor, cell_id = np.array(["a", "b"])[np.arange(300) % 2], np.arange(300)[::-1]
    x = rng.normal(size=(300, 4)) + 2 * (donor == "b")[:, None]
    x[7, 0] = np.nan
    write_cells(tmp_path / "study.h5ad", x, donor=donor, cell_id=cell_id)
    result = call("fit", "study.h5ad", "--nuisance", "donor", "--impute", "drop-rows", "-o", "run")
    assert result.exit_code == 0, result.output
    fitted = load(tmp_path / "run" / "estimator.pindown")
    assert fitted.n_features_in_ == 4  # ids are not genes
    assert "latents.h5ad" in Run.open(Path("run")).record["parts"]
    found = anndata.read_h5ad(tmp_path / "run" / "latents.h5ad")
    assert list(found.obs_names) == [f"cell{i}" for i in range(300)]
    np.testing.assert_array_equal(found.X, x)
    kept = np.arange(300) != 7
    assert np.isnan(found.obsm["X_pindown"][7]).all()
    np.testing.assert_allclose(found.obsm["X_pindown"][kept], fitted.transform(x[kept], donor[kept]))
    assert json.loads(found.uns["pindown"])["columns"]["nuisance"] == ["donor"]
