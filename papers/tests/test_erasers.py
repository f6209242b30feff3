"""Closed-form erasers: what each removes, what each leaves, and the contract that all of them keep."""

import sys

import numpy as np
import pytest
import torch
from pindown_papers.erasers import ComponentRemoval, Leace, PerValueStandardiser, Untouched
from pindown_papers.simulations import ShapeNuisance
from scipy.linalg import subspace_angles
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from pindown.methods.forget import LinearErasure
from pindown.metrics import PROBES, Effort, leakage
from pindown.simulate import Nuisance
from pindown.simulate.mixing import leaky_relu_mlp


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@parametrize_with_checks([LinearErasure(), ComponentRemoval(), Untouched()])
def test_scikit_learns_contract_is_kept(estimator, check):
    check(estimator)


def moved(seed=0, n=3_000):
    """Two values that differ in the mean of the first column, and spread most along the second."""
    rng = np.random.default_rng(seed)
    e = rng.integers(2, size=n)
    return rng.normal(size=(n, 4)) * [1, 5, 1, 1] + np.outer(e, [3, 0, 0, 0]), e


def worst(Z, e):
    return leakage(Z, e, probes=PROBES[:2], effort=Effort(n_permutations=19), random_state=0).worst


@pytest.mark.parametrize("eraser", [LinearErasure(), ComponentRemoval()])
def test_what_moves_with_the_nuisance_is_removed_and_the_rest_stays(eraser):
    X, e = moved()
    Z = eraser.fit_transform(X, e)
    assert worst(X, e) > 0.88
    assert worst(Z, e) < 0.56
    assert Z.shape == (3_000, 3)
    assert Z.std(0).max() == pytest.approx(5, rel=0.1)
    assert np.abs(eraser.components_ @ eraser.components_.T - np.eye(3)).max() < 1e-12


def test_nothing_is_removed_by_no_eraser():
    X, e = moved()
    assert worst(Untouched().fit_transform(X, e), e) > 0.9


@pytest.mark.parametrize("seed", range(5))
def test_the_closed_form_is_near_the_complement_of_v(seed):
    world = Nuisance.on_sphere(8, 4, 10.0, n_layers=1, random_state=seed)
    sample = world.sample(20_000, random_state=100 + seed)
    rows = LinearErasure().fit(sample.x, sample.u).components_
    assert np.degrees(subspace_angles(rows.T, world.invariant_space.numpy()).max()) < 5
    assert (
        np.degrees(subspace_angles(np.eye(8)[:, :5], world.invariant_space.numpy()).max()) > 30
    )  # what chance would give


def test_spreads_are_out_of_reach_of_means():
    spreads = torch.tensor([[1.0] * 3, [2.0] * 3, [4.0] * 3])
    sample = ShapeNuisance(spreads, leaky_relu_mlp(8, n_layers=1, random_state=0)).sample(3_000, random_state=1)
    e = sample.u.numpy()
    Z = LinearErasure().fit_transform(sample.x.numpy(), e)
    assert worst(Z, e) > 1 / 3 + 0.15
    reader = LogisticRegression().fit(Z[:1500], e[:1500])
    assert reader.score(Z[1500:], e[1500:]) < 0.43  # a linear reader is deceived


def test_a_row_is_standardised_by_its_own_value():
    X, e = moved()
    names = np.array(["left", "right"])[e]
    eraser = PerValueStandardiser()
    Z = eraser.fit_transform(X, names)
    for value in ("left", "right"):
        assert np.abs(Z[names == value].mean(0)).max() < 1e-10
        assert np.abs(Z[names == value].std(0) - 1).max() < 1e-10
    assert np.allclose(eraser.transform(X[:1], ["left"]), (X[:1] - eraser.means_[0]) / eraser.scales_[0])


def test_an_unknown_value_cannot_be_standardised():
    X, e = moved()
    with pytest.raises(ValueError, match="Levels"):
        PerValueStandardiser().fit(X, e).transform(X[:1], [2])


def test_several_columns_are_not_standardised_apart():
    X, e = moved()
    with pytest.raises(ValueError, match="columns"):
        PerValueStandardiser().fit(X, np.stack([e, e], 1))


def test_leace_says_how_to_get_it_if_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "concept_erasure", None)
    with pytest.raises(ImportError, match="install"):
        Leace().fit(*moved())


def test_leace_hands_the_one_hot_nuisance_to_the_package_and_applies_what_it_returns(monkeypatch):
    class Stand:
        """A stand-in with the package's interface: takes off the first column."""

        @classmethod
        def fit(cls, x, z):
            assert z.shape == (3_000, 2)
            assert torch.equal(z.sum(1), torch.ones(3_000, dtype=torch.float64))
            return lambda rows: rows * torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=rows.dtype)

    monkeypatch.setitem(sys.modules, "concept_erasure", type(sys)("concept_erasure"))
    monkeypatch.setattr("concept_erasure.LeaceEraser", Stand, raising=False)
    X, e = moved()
    Z = Leace().fit_transform(X, e)
    assert Z.shape == X.shape
    assert np.array_equal(Z[:, 1:], X[:, 1:])
    assert not Z[:, 0].any()
