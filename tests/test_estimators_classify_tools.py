"""Classify with the tools of scikit-learn, with chance under control, and with checkpoints."""

import pickle

import numpy as np
import pressing
import pytest
import torch
from classifying import codes, data, jitter, quick, thorough, trained, world
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from pindown.training import Trainer

# scikit-learn's tools


def test_it_is_a_classifier_and_a_transformer():
    assert is_classifier(quick())
    assert get_tags(quick()).target_tags.required
    assert not get_tags(quick(augment=lambda x, generator: x)).target_tags.required
    names = list(trained().get_feature_names_out())
    assert names == ["classify0", "classify1", "classify2"]


@pytest.mark.slow
def test_cross_validation_stratifies_by_class_and_scores_by_accuracy():
    sample = data(1_000)
    scores = cross_val_score(thorough(max_iter=100), sample.x, sample.u, cv=2)
    assert scores.min() > 0.4  # of twelve classes


def test_in_a_pipeline_it_does_what_it_does_alone():
    X, y = data().x, data().u
    pipeline = make_pipeline(StandardScaler(), quick()).fit(X, y)
    scaled = StandardScaler().fit_transform(X)
    alone = quick().fit(scaled, y)
    assert np.array_equal(pipeline.transform(X), codes(alone, scaled))
    assert np.array_equal(pipeline.predict(X), alone.predict(scaled))


def test_a_clone_has_the_parameters_and_nothing_learned():
    copy = clone(trained())
    assert copy.get_params() == trained().get_params()
    assert not hasattr(copy, "encoder_")


def test_a_pickled_estimator_predicts_the_same():
    again = pickle.loads(pickle.dumps(trained()))
    assert np.array_equal(again.predict_proba(data().x), trained().predict_proba(data().x))


def test_the_same_random_state_gives_the_same_fit_and_another_gives_another():
    def fitted(random_state):
        return codes(quick(random_state=random_state).fit(data().x, data().u))

    assert np.array_equal(fitted(0), fitted(0))
    assert not np.array_equal(fitted(0), fitted(1))


def test_neither_data_nor_global_generators_are_touched():
    x, u = data().x.copy(), data().u.copy()
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    quick(augment=jitter).fit(x, u).score(x, u)
    assert np.array_equal(x, data().x)
    assert np.array_equal(u, data().u)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


# checkpoints


@pytest.mark.parametrize("case", ["labels", "views", "world"])
def test_after_ctrl_c_a_second_fit_equals_an_unbroken_one(tmp_path, monkeypatch, case):
    def fit(checkpoint=tmp_path / "fit.safetensors"):
        estimator = quick(encoder=pressing.Pressing, batch_size=64, trainer=Trainer(checkpoint=checkpoint))
        if case == "world":
            return estimator.fit_process(world())
        if case == "views":
            return estimator.set_params(augment=jitter).fit(data().x)
        return estimator.fit(data().x, data().u)

    pressing.broken_off(fit, monkeypatch)
    resumed, unbroken = fit(), fit(None)
    assert np.array_equal(resumed.loss_curve_, unbroken.loss_curve_)
    assert np.array_equal(codes(resumed), codes(unbroken))
    assert np.array_equal(resumed.class_vectors_, unbroken.class_vectors_)
    assert resumed.scale_ == unbroken.scale_


def test_a_checkpoint_of_other_labels_is_refused_by_name(tmp_path):
    options = {"trainer": Trainer(checkpoint=tmp_path / "fit"), "max_iter": 3}
    quick(**options).fit(data().x, data().u)
    with pytest.raises(ValueError, match="different fit"):
        quick(**options).fit(data().x, data().u[::-1])


def test_a_fit_that_was_broken_off_is_not_fitted(monkeypatch):
    estimator = quick(encoder=pressing.Pressing)
    monkeypatch.setattr(pressing, "AT", 3)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(data().x, data().u)
    for use in (estimator.transform, estimator.predict, estimator.predict_proba, estimator.score):
        with pytest.raises(ValueError, match="Classify"):
            use(data().x)
