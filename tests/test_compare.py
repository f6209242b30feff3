"""Comparison of dictionaries: shared atoms next to chance and noise floor, by frequency, and on the command line."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from pindown import Sparse
from pindown.cli import app
from pindown.errors import InputError
from pindown.methods.sparse.comparison import compare_dictionaries
from pindown.metrics import pw_mcc
from pindown.networks.gates import TopK
from pindown.simulate import Superposed

SIMULATION = Superposed.overcomplete(32, 16, n_active=2, random_state=0)
X = SIMULATION.sample(1_500, random_state=1).x.numpy()
OPTIONS = {"gate": TopK(2), "max_iter": 150, "batch_size": 128, "verbose": False}
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def fits():
    return [Sparse(32, random_state=seed, **OPTIONS).fit(X) for seed in (0, 1)]


def call(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_unrelated_dictionaries_of_one_shape_reach_the_noise_floor_and_not_more():
    stretched = np.eye(24) * np.where(np.arange(24) < 3, 6, 1)  # activations are wide in three directions
    draws = [
        compare_dictionaries({"a": RNG.normal(size=(96, 24)) @ stretched, "b": RNG.normal(size=(96, 24)) @ stretched})
        for _ in range(5)
    ]
    found = np.array([[pair.pw_mcc, pair.floor, pair.chance] for draw in draws for pair in draw.pairs])
    assert abs((found[:, 0] - found[:, 1]).mean()) < 0.015
    assert (found[:, 0] > found[:, 2] + 0.1).all()  # chance alone would call them alike


def test_shared_atoms_are_found_whatever_their_order_length_and_number():
    atoms = RNG.normal(size=(60, 20))
    part = 3 * atoms[RNG.permutation(60)[:40]]
    (pair,) = compare_dictionaries({"part": part, "whole": atoms}).pairs
    assert (pair.first, pair.second) == ("whole", "part")
    assert pair.pw_mcc == pytest.approx(1)
    assert pair.found == 1
    assert np.allclose(atoms[pair.match.matching] * 3, part)
    turned = compare_dictionaries({"a": atoms, "b": -atoms}).pairs[0].pw_mcc
    assert turned < 0.7
    assert compare_dictionaries({"a": atoms, "b": -atoms}, signed=False).pairs[0].pw_mcc == pytest.approx(1)


def test_agreement_is_also_given_by_how_often_features_fire():
    atoms, often = RNG.normal(size=(60, 20)), np.repeat([0.2, 0.01], 30)
    rare = np.vstack([atoms[:30], RNG.normal(size=(30, 20))])
    (pair,) = compare_dictionaries({"a": atoms, "b": rare}, {"a": often, "b": often}).pairs
    assert pair.bands[-1].mean == pytest.approx(1)
    assert pair.bands[0].mean < 0.7


def test_the_command_reads_saelens_and_pindown_and_writes_all_matchings(fits, tmp_path):
    fits[0].to_saelens(tmp_path / "first")
    fits[1].save(tmp_path / "second.pindown")
    np.save(tmp_path / "x.npy", X)
    paths = tmp_path / "first", tmp_path / "second.pindown"
    done = call(*paths, "--activations", tmp_path / "x.npy", "-o", tmp_path / "found.json")
    assert done.exit_code == 0, done.output
    assert "noise floor" in done.output
    assert "of samples" in done.output
    written = json.loads((tmp_path / "found.json").read_text())
    assert (written["format"], written["version"]) == ("pindown.compare", 1)
    (pair,) = written["pairs"]
    atoms = [fit.components_.astype(float) for fit in fits]
    assert pair["pw_mcc"] == pytest.approx(pw_mcc(*atoms), abs=1e-6)
    assert pair["pw_mcc"] > pair["floor"] + 0.1 > pair["chance"]
    assert sorted(pair["matching"]) == list(range(32))
    assert sum(band["n"] for band in pair["bands"]) == 32
    assert [known["architecture"] for known in written["dictionaries"].values()] == ["topk", "Sparse"]
    assert all(len(known["sha256"]) == 64 for known in written["dictionaries"].values())
    assert json.loads(call(*paths, "--json").output)["pairs"][0]["matching"] == pair["matching"]


def test_what_cannot_be_compared_ends_with_code_2_and_names_the_cause(fits, tmp_path):
    fits[0].to_saelens(tmp_path / "a")
    small = Sparse(8, gate=TopK(1), max_iter=1, verbose=False, random_state=0).fit(X[:, :8])
    small.save(tmp_path / "small.pindown")
    for arguments, word in (
        ((tmp_path / "a",), "two"),
        ((tmp_path / "a", tmp_path / "none"), "none"),
        ((tmp_path / "a", tmp_path / "small.pindown"), "16"),
        ((tmp_path / "a", tmp_path / "a", "-o", "found.csv"), "json"),
    ):
        done = call(*arguments)
        assert done.exit_code == 2
        assert word in done.output + done.stderr
    with pytest.raises(InputError) as error:
        compare_dictionaries({"a": np.eye(3)})
    assert error.value.argument == "dictionaries"
