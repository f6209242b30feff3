"""Contrast with the tools of scikit-learn, with chance under control, and with checkpoints."""

import pickle
import warnings

import numpy as np
import pressing
import pytest
from contrasting import codes, pairs, quick, thorough, trained, world
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Contrast, plan
from pindown.errors import IdentifiabilityWarning
from pindown.metrics import linear_r2
from pindown.networks.spaces import Reals
from pindown.training import Trainer

# scikit-learn's tools


def test_a_clone_has_the_parameters_and_nothing_learned():
    copy = clone(trained())
    assert copy.get_params() == trained().get_params()
    assert not hasattr(copy, "encoder_")


@pytest.mark.filterwarnings("ignore:Contrast. the encoder is folded")  # by chance: these groups say nothing of X
@pytest.mark.slow
def test_in_a_pipeline_with_groups_it_does_what_it_does_alone():
    X, groups = pairs().x, np.arange(400) // 4
    pipeline = make_pipeline(StandardScaler(), quick()).fit(X, groups)
    alone = quick().fit(StandardScaler().fit_transform(X), groups)
    assert np.array_equal(pipeline.transform(X), codes(alone, StandardScaler().fit_transform(X)))
    assert list(pipeline.get_feature_names_out()) == ["contrast0", "contrast1", "contrast2"]


@pytest.mark.slow
def test_a_grid_search_by_its_own_score_finds_the_number_of_latents():
    data = pairs(2_000)
    search = GridSearchCV(thorough(max_iter=150), {"n_components": [2, 3]}, cv=2).fit(data.x, data.x_pos)
    assert search.best_params_ == {"n_components": 3}
    two, three = search.cv_results_["mean_test_score"]
    assert three > two + 0.3


def test_output_can_be_a_data_frame_with_names():
    frame = quick().set_output(transform="pandas").fit(pairs(40).x, pairs(40).x_pos).transform(pairs(40).x)
    assert list(frame.columns) == ["contrast0", "contrast1", "contrast2"]
    assert list(trained().get_feature_names_out()) == ["contrast0", "contrast1", "contrast2"]


def test_a_pickled_estimator_gives_the_same_latents():
    again = pickle.loads(pickle.dumps(trained()))
    assert np.array_equal(codes(again), codes(trained()))
    assert again.score(pairs().x, pairs().x_pos) == trained().score(pairs().x, pairs().x_pos)


# chance


def test_the_same_random_state_gives_the_same_latents_and_another_gives_others():
    def fitted(random_state):
        return codes(quick(random_state=random_state, max_iter=5).fit(pairs().x, pairs().x_pos))

    assert np.array_equal(fitted(0), fitted(0))
    assert np.array_equal(fitted(0), fitted(np.int64(0)))
    assert not np.array_equal(fitted(0), fitted(1))
    assert not np.array_equal(fitted(None), fitted(None))
    assert np.array_equal(fitted(np.random.RandomState(0)), fitted(np.random.RandomState(0)))


# checkpoints


@pytest.mark.parametrize("y", ["partners", "groups", None])
def test_after_ctrl_c_a_second_fit_equals_an_unbroken_one(tmp_path, monkeypatch, y):
    y = {"partners": pairs().x_pos, "groups": np.arange(400) // 4, None: None}[y]

    def fit(checkpoint=tmp_path / "fit.safetensors"):
        return quick(encoder=pressing.Pressing, batch_size=64, trainer=Trainer(checkpoint=checkpoint)).fit(pairs().x, y)

    pressing.broken_off(fit, monkeypatch)
    resumed, unbroken = fit(), fit(None)
    assert np.array_equal(resumed.loss_curve_, unbroken.loss_curve_)
    assert np.array_equal(codes(resumed), codes(unbroken))
    assert resumed.temperature_ == unbroken.temperature_


def test_a_fit_to_a_simulation_resumes_too(tmp_path, monkeypatch):
    def fit(checkpoint=str(tmp_path / "fit.safetensors")):  # a string will do
        return quick(encoder=pressing.Pressing, batch_size=64, trainer=Trainer(checkpoint=checkpoint)).fit_process(
            world()
        )

    pressing.broken_off(fit, monkeypatch)
    assert np.array_equal(codes(fit()), codes(fit(None)))


def test_a_finished_fit_is_loaded(tmp_path, monkeypatch):
    def fit():
        return quick(encoder=pressing.Pressing, trainer=Trainer(checkpoint=tmp_path / "fit")).fit(
            pairs().x, pairs().x_pos
        )

    first = fit()
    monkeypatch.setattr(pressing, "AT", 0)  # any step would be interrupted
    assert np.array_equal(fit().loss_curve_, first.loss_curve_)
    monkeypatch.setattr(pressing, "AT", None)
    assert np.array_equal(codes(fit()), codes(first))


def test_a_checkpoint_of_other_data_or_parameters_is_refused_by_name(tmp_path):
    options = {"trainer": Trainer(checkpoint=tmp_path / "fit"), "max_iter": 3}
    quick(**options).fit(pairs().x, pairs().x_pos)
    with pytest.raises(ValueError, match="different fit"):
        quick(**options).fit(pairs().x, pairs().x_pos[::-1])
    with pytest.raises(ValueError, match="different fit"):
        quick(**options).fit(pairs().x * 2, pairs().x_pos)
    with pytest.raises(ValueError, match="learning_rate"):
        quick(**options, learning_rate=0.1, p=1).fit(pairs().x, pairs().x_pos)
    quick(**options, verbose=False).fit(pairs().x, pairs().x_pos)  # how it is shown does not matter


def test_a_checkpoint_of_another_simulation_is_refused_though_it_looks_the_same(tmp_path):
    assert repr(world(0)) == repr(world(1))
    quick(trainer=Trainer(checkpoint=tmp_path / "fit"), max_iter=3).fit_process(world(0))
    with pytest.raises(ValueError, match="different fit"):
        quick(trainer=Trainer(checkpoint=tmp_path / "fit"), max_iter=3).fit_process(world(1))


def planar(n, n_bumps=10, width=1.0, seed=0):
    """Positions in a square, seen through bumps, and positions nearby."""
    rng = np.random.default_rng(seed)
    z = rng.uniform(-1, 1, size=(n, 2))
    near = np.clip(z + 0.1 * rng.normal(size=z.shape), -1, 1)
    centres = rng.uniform(-1, 1, size=(n_bumps, 2))
    x, x_pos = (np.exp(-((part[:, None] - centres) ** 2).sum(-1) / width) for part in (z, near))
    return x, x_pos, z


def test_a_circle_for_a_plane_is_warned_of_and_the_plane_is_recovered_in_the_reals():
    x, x_pos, z = planar(1_600)
    options = {"max_iter": 200, "batch_size": 64, "verbose": False, "random_state": 0}
    with pytest.warns(IdentifiabilityWarning, match=r"more than these latents.*space=Reals"):
        circle = Contrast(2, **options).fit(x[:1_200], x_pos[:1_200])
    with warnings.catch_warnings():
        warnings.simplefilter("error", IdentifiabilityWarning)
        plane = Contrast(2, space=Reals(), **options).fit(x[:1_200], x_pos[:1_200])
    r2 = [linear_r2(est.transform(x[1_200:]), z[1_200:]) for est in (circle, plane)]
    assert r2[0] < 0.9 < 0.98 < r2[1]


def test_a_plan_counts_the_dimensions_in_which_neighbours_differ():
    x, x_pos, _ = planar(2_000, n_bumps=40, width=0.3)
    assert plan(x, pairs=x_pos).n_components == 3  # on the sphere: one more than of the plane
    assert plan(x, pairs=x_pos, estimator=Contrast(space=Reals())).n_components == 2


@pytest.mark.parametrize("flat", [True, False])
def test_windows_that_overlap_are_recognised(flat):
    series = np.random.default_rng(0).normal(size=(420, 3)).cumsum(0)
    windows = np.stack([series[k : k + 8] for k in range(412)])
    fit = Contrast(2, max_iter=2, verbose=False, random_state=0).fit
    shaped = windows.reshape(len(windows), -1) if flat else windows
    with pytest.warns(IdentifiabilityWarning, match="has 88% of the sample's values"):
        fit(shaped)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(shaped[::8])
        fit(np.random.default_rng(1).poisson(0.05, size=(300, 24)).astype(float))  # mostly zeros
    assert not any("overlap" in str(warning.message) for warning in caught)


def test_a_score_in_nats_names_the_number_of_pairs_that_bounds_it():
    x, x_pos, _ = planar(2_000)
    held_out = Contrast(2, max_iter=2, verbose=False, random_state=0).fit(x, x_pos).held_out_
    assert held_out.name == f"information about positives among {held_out.n_samples} pairs, in nats"
