"""MIG and DCI know perfect, rotated, duplicated and random latents; their estimators are those of scikit-learn."""

import numpy as np
import pytest
from pindown_papers import disentanglement
from pindown_papers.disentanglement import Nearest, dci, mig, read
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

from pindown.errors import InputError


@pytest.fixture(scope="module")
def factors():
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, size, 1_500) for size in (10, 8, 4)], axis=1)


def test_mig_and_dci_see_rotations_and_duplicates(factors):
    z = (factors - factors.mean(axis=0)) / factors.std(axis=0)
    rotated = z @ (np.eye(3) - 2 / 3)  # a reflection that mixes all axes
    assert mig(z, factors).value > 0.95
    assert mig(rotated, factors).value < 0.4
    assert mig(np.c_[z, z], factors).value < 0.02
    assert dci(z[:500], factors[:500]).disentanglement.value > 0.95
    assert dci(rotated[:500], factors[:500]).disentanglement.value < 0.5
    assert dci(np.c_[z, z][:500], factors[:500]).completeness.value < 0.8


@pytest.mark.parametrize("metric", [mig, dci])
def test_bad_input_raises_and_names_the_argument(metric, factors):
    for argument, z, truth in [
        ("z_hat", np.where(factors == 3, np.nan, factors), factors),
        ("z_hat", np.ones_like(factors), factors),
        ("z_hat", factors, factors[:20]),
        ("factors", factors, factors * [1, 1, 0]),
        ("factors", factors, factors[:, 0]),
    ]:
        with pytest.raises(InputError) as raised:
            metric(z, truth)
        assert raised.value.argument == argument


def test_information_is_that_of_scikit_learn(factors):
    z = factors + np.random.default_rng(0).normal(0, 1, size=factors.shape)
    found = Nearest(10).nats(read(z, factors, None), np.random.default_rng(0))
    theirs = np.stack([mutual_info_classif(z, column, n_neighbors=10, random_state=0) for column in factors.T], axis=1)
    np.testing.assert_allclose(found, theirs, atol=0.03)


def test_information_of_quantities_is_that_of_gaussians():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3_000))
    factor = np.stack([a, 0.8 * a + 0.6 * b], axis=1)
    found = Nearest(10).nats(read(a[:, None], factor, None), rng)
    assert found[0, 0] > 4
    assert found[0, 1] == pytest.approx(-0.5 * np.log(1 - 0.64), abs=0.06)
    theirs = mutual_info_regression(a[:, None], factor[:, 1], n_neighbors=10, random_state=0)
    assert found[0, 1] == pytest.approx(theirs[0], abs=0.03)


@pytest.mark.parametrize("continuous", [False, True])
def test_boosted_importances_are_those_of_scikit_learn(continuous, monkeypatch):
    monkeypatch.setattr(disentanglement, "RATE", 0.1)
    monkeypatch.setattr(disentanglement, "STAGES", 20)
    rng = np.random.default_rng(0)
    z = rng.integers(0, 40, size=(400, 3)) * 1.0
    target = z[:, 0] + 0.5 * z[:, 1] + 0.01 * rng.normal(size=400)
    factor = target[:, None] if continuous else (target // 20)[:, None]
    samples = read(z, factor, continuous)
    found = disentanglement.boost(samples, samples)[0]
    known = samples.factors[0]
    booster = GradientBoostingRegressor if continuous else GradientBoostingClassifier
    theirs = booster(n_estimators=20).fit(z, known.values if continuous else known.labels)
    np.testing.assert_allclose(found.importance, theirs.feature_importances_, atol=0.005)
    assert found.score == pytest.approx(theirs.score(z, known.values if continuous else known.labels), abs=0.01)
