"""A folder of activations in the shell: fitted, encoded to a sparse matrix, audited; and what is refused."""

import json

import numpy as np
import pytest
import torch
from scipy.sparse import load_npz
from torch import nn
from typer.testing import CliRunner

import pindown
from pindown import activations
from pindown.cli import app
from pindown.data import as_source
from pindown.data.tables import write_latents


def ran(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("activations")
    tokens = torch.randint(50, (60, 10), generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Embedding(50, 8), nn.Tanh())
    activations(model, tokens.split(20), "1", place, shard_size=250)
    return place


@pytest.fixture(scope="module")
def run(folder):
    place = folder.parent / "run-of-activations"
    said = ran("fit", folder, "--sparse", 16, "--option", "gate=TopK(2)", "--steps", 20, "-o", place)
    assert said.exit_code == 0, said.output
    assert "16 latents of 8 activations" in said.output
    return place


def test_the_option_sparse_names_the_method_in_a_run_and_in_a_plan(run, folder):
    recipe = json.loads((run / "run.json").read_text("utf-8"))["recipe"]
    assert (recipe["estimator"], recipe["n_components"], recipe["options"]["gate"]) == ("Sparse", 16, "TopK(2)")
    said = ran("plan", folder, "--sparse", 16, "--option", "gate=TopK(2)", "--json")
    assert said.exit_code == 0, said.output
    assert "--estimator Sparse --option 'gate=TopK(2)' -d 16" in json.loads(said.stdout)["command"]
    assert ran("check", folder, "--sparse", 16, "-d", 16).exit_code == 2


def test_feature_activations_are_written_as_a_sparse_matrix_that_scipy_reads(run, folder):
    codes = load_npz(run / "latents.npz")
    assert codes.shape == (600, 16)
    assert codes.nnz <= 2 * 600
    fitted = pindown.load(run / "estimator.pindown")
    assert np.allclose(codes.toarray(), fitted.transform_sparse(as_source(str(folder))).toarray())
    assert not (run / "latents.csv").exists()
    with np.load(run / "latents.npz") as file:
        assert file["seen"].sum() == 600
        assert file["names"][:2].tolist() == ["sparse0", "sparse1"]


def test_other_activations_are_encoded(run, folder, tmp_path):
    said = ran("transform", run, folder, "-o", tmp_path / "codes.npz", "--json")
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["n_samples"] == 600
    assert np.allclose(load_npz(tmp_path / "codes.npz").toarray(), load_npz(run / "latents.npz").toarray())
    with np.load(tmp_path / "codes.npz") as file:
        assert file["input"].tolist() == [row // 10 for row in range(600)]
    assert "Give a name in .npz" in " ".join(ran("transform", run, folder, "-o", tmp_path / "c.csv").output.split())
    assert not (tmp_path / "c.csv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--nuisance", "batch"), "but the data are activations"),
        (("--size", "8"), "--size is for a folder of images"),
        (("--estimator", "Sparse", "--option", "gate=TopK(40)", "-d", 16), "`k=40`"),
        (("--estimator", "Sparse", "-d", 700), "X has n_samples=600"),
        (("--sparse", 16, "--option", "gate=TopK(40)"), "`k=40`"),
        (("--sparse", 700), "X has n_samples=600, but -d 700"),
        (("--sparse", 0), "Invalid value for '--sparse'"),
        (("--sparse", "many"), "Invalid value for '--sparse'"),
        (("--sparse", 16, "-d", 8), "--sparse 16 stands for --estimator Sparse -d 16: leave out -d, or --sparse."),
        (("--sparse", 16, "--estimator", "Forget"), "leave out --estimator, or --sparse."),
        (("--sparse", 16, "--option", "gate=TopQ(4)"), "there is no value 'TopQ': did you mean 'TopK'?"),
        (
            ("--sparse", 16, "--option", "gate=4"),
            "gate must be one of pindown.networks.gates, such as TopK(32), got 4",
        ),
        (("--sparse", 16, "--signal", "batch"), "Sparse: cannot use --signal"),
    ],
)
def test_options_that_do_not_apply_to_activations_raise_and_nothing_is_written(folder, options, message, tmp_path):
    said = ran("fit", folder, *options, "-o", tmp_path / "run")
    assert said.exit_code != 0
    assert message in " ".join(said.output.split())
    assert not (tmp_path / "run").exists()


def test_activations_that_changed_since_the_fit_are_not_audited(run, folder, tmp_path):
    other = tmp_path / "other"
    activations(nn.Sequential(nn.Embedding(50, 8)), [torch.zeros(20, 10).long()], "0", other)
    said = ran("audit", run, "--data", other)
    assert said.exit_code != 0
    assert "has changed since the fit" in " ".join(said.output.split())


def test_a_sparse_matrix_is_written_with_its_other_columns(tmp_path):
    from scipy.sparse import csr_array

    codes = csr_array(np.array([[0, 2.0], [1.0, 0]]))
    write_latents(tmp_path / "z.npz", codes, ["a", "b"], {"input": np.array([4, 5])})
    assert np.array_equal(load_npz(tmp_path / "z.npz").toarray(), codes.toarray())
    with np.load(tmp_path / "z.npz") as file:
        assert file["input"].tolist() == [4, 5]
