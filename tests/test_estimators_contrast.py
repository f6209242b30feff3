import math
import pickle
from functools import cache

import numpy as np
import pressing
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from pindown import theory
from pindown.distributions import Around, VonMisesFisher, laplace
from pindown.estimators import Contrast, IdentifiabilityWarning, _base, contrast
from pindown.metrics import linear_r2
from pindown.mixing import leaky_relu_mlp
from pindown.processes import Clusters, Pairs, Sample
from pindown.spaces import Reals, Sphere


def quick(n_components=3, **parameters):
    return Contrast(n_components, **{"max_iter": 30, "random_state": 0, "device": "cpu"} | parameters)


def thorough(n_components=3, **parameters):
    return quick(n_components, **{"max_iter": 300, "batch_size": 128} | parameters)


@cache
def world(random_state=0):
    return Pairs.on_sphere(3, 10.0, random_state=random_state)


@cache
def pairs(n=400, seed=1):
    return Sample(*(t if t is None else t.numpy() for t in world().sample(n, random_state=seed)))


@cache
def trained():
    return thorough().fit(pairs(3_000).x, pairs(3_000).x_pos)


def codes(estimator, x=None):
    return estimator.transform(pairs().x if x is None else x)


# what y may be


def test_partners_recover_the_latents():
    test = pairs(2_000, seed=2)
    assert linear_r2(test.x, test.z) < 0.95
    assert linear_r2(codes(trained(), test.x), test.z) > 0.98


@pytest.mark.filterwarnings("ignore::pindown.estimators.IdentifiabilityWarning")
def test_groups_recover_the_latents_when_rows_of_a_group_are_partners():
    data, test = pairs(3_000), pairs(2_000, seed=2)
    X, groups = np.concatenate([data.x, data.x_pos]), np.tile(np.arange(3_000), 2)
    fitted = thorough().fit(X, groups)
    assert linear_r2(codes(fitted, test.x), test.z) > 0.98
    strangers = thorough().fit(X, np.random.default_rng(0).permutation(groups))
    assert linear_r2(codes(strangers, test.x), test.z) < 0.95


@pytest.mark.filterwarnings("ignore::pindown.estimators.IdentifiabilityWarning")
def test_a_time_series_recovers_its_latents_and_shuffled_in_time_it_does_not():
    z = [Sphere().uniform(1, 3, random_state=0)]
    chance = torch.Generator().manual_seed(0)
    for _ in range(3_000):
        z.append(VonMisesFisher(10.0).sample(z[-1], random_state=chance))
    z = torch.cat(z)
    x = leaky_relu_mlp(3, random_state=0)(z)
    fitted = thorough().fit(x)
    assert linear_r2(codes(fitted, x), z) > 0.98
    shuffled = x[torch.randperm(len(x), generator=chance)]
    assert thorough().fit(shuffled).score(shuffled) < 0.1 < 1 < fitted.score(x)


def test_groups_may_be_strings_integers_or_a_column():
    X = pairs(40).x
    numbers = np.arange(40) // 4
    letters = np.array(list("abcdefghij"))[numbers]
    reference = codes(quick(max_iter=3).fit(X, numbers))
    for y in (letters, letters.tolist(), letters.astype(object), numbers[:, None], torch.tensor(numbers)):
        assert np.array_equal(codes(quick(max_iter=3).fit(X, y)), reference)


# arrays in, arrays out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_in_numpy_out_in_the_same_precision(dtype):
    out = codes(trained(), pairs().x.astype(dtype))
    assert isinstance(out, np.ndarray)
    assert (out.dtype, out.shape) == (dtype, (400, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_in_torch_out_in_the_same_precision_on_the_same_device(dtype):
    x = torch.tensor(pairs().x, dtype=dtype, requires_grad=True)
    out = codes(trained(), x)
    assert isinstance(out, torch.Tensor)
    assert (out.dtype, out.device, out.shape) == (dtype, x.device, (400, 3))
    np.testing.assert_allclose(out.numpy(), codes(trained()), atol=1e-6)


def test_bfloat16_which_numpy_does_not_know_is_read_and_answered_in_float32():
    x, x_pos = (torch.tensor(a).bfloat16() for a in (pairs().x, pairs().x_pos))
    out = quick(max_iter=2).fit(x, x_pos).transform(x)
    assert out.dtype == torch.float32


def test_fitting_tensors_equals_fitting_arrays():
    arrays, tensors = ((f(pairs().x), f(pairs().x_pos)) for f in (np.asarray, torch.tensor))
    assert np.array_equal(codes(quick().fit(*arrays)), codes(quick().fit(*tensors)))


def backwards(a):
    return np.ascontiguousarray(a[::-1])[::-1]  # the same values, with negative strides


def column_major(a):
    return np.asfortranarray(a)


def read_only(a):
    a = a.copy()
    a.setflags(write=False)
    return a


def big_endian(a):
    return a.astype(">f8")


@pytest.mark.parametrize("layout", [backwards, column_major, read_only, big_endian, np.ndarray.tolist])
def test_the_layout_of_an_array_in_memory_does_not_matter(layout):
    x, x_pos = pairs().x.astype(np.float64), pairs().x_pos.astype(np.float64)
    reference = quick(max_iter=3).fit(x, x_pos)
    fitted = quick(max_iter=3).fit(layout(x), layout(x_pos))
    assert np.array_equal(fitted.transform(layout(x)), reference.transform(x))
    assert fitted.score(layout(x), layout(x_pos)) == reference.score(x, x_pos)


def test_the_codes_lie_in_their_space():
    assert np.linalg.norm(codes(trained()), axis=1) == pytest.approx(1, abs=1e-6)
    free = codes(quick(space=Reals()).fit(pairs().x, pairs().x_pos))
    assert np.ptp(np.linalg.norm(free, axis=1)) > 0.1


def test_the_code_of_a_row_does_not_depend_on_the_rows_beside_it(monkeypatch):
    x = pairs().x.astype(np.float64)
    together = codes(trained(), x)
    np.testing.assert_allclose(codes(trained(), x[7:8]), together[7:8], atol=1e-12)
    monkeypatch.setattr(_base, "ENCODE_ROWS", 33)
    np.testing.assert_allclose(codes(trained(), x), together, atol=1e-12)


def test_neither_data_nor_global_generators_are_touched():
    x, x_pos = pairs().x.copy(), pairs().x_pos.copy()
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    quick().fit(x, x_pos).score(x, x_pos)
    assert np.array_equal(x, pairs().x)
    assert np.array_equal(x_pos, pairs().x_pos)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


# scikit-learn's tools


def test_a_clone_has_the_parameters_and_nothing_learned():
    copy = clone(trained())
    assert copy.get_params() == trained().get_params()
    assert not hasattr(copy, "encoder_")


def test_in_a_pipeline_with_groups_it_does_what_it_does_alone():
    X, groups = pairs().x, np.arange(400) // 4
    pipeline = make_pipeline(StandardScaler(), quick()).fit(X, groups)
    alone = quick().fit(StandardScaler().fit_transform(X), groups)
    assert np.array_equal(pipeline.transform(X), codes(alone, StandardScaler().fit_transform(X)))
    assert list(pipeline.get_feature_names_out()) == ["contrast0", "contrast1", "contrast2"]


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


def test_a_pickled_estimator_gives_the_same_codes():
    again = pickle.loads(pickle.dumps(trained()))
    assert np.array_equal(codes(again), codes(trained()))
    assert again.score(pairs().x, pairs().x_pos) == trained().score(pairs().x, pairs().x_pos)


# chance


def test_the_same_random_state_gives_the_same_codes_and_another_gives_others():
    def fitted(random_state):
        return codes(quick(random_state=random_state).fit(pairs().x, pairs().x_pos))

    assert np.array_equal(fitted(0), fitted(0))
    assert np.array_equal(fitted(0), fitted(np.int64(0)))
    assert not np.array_equal(fitted(0), fitted(1))
    assert not np.array_equal(fitted(None), fitted(None))
    assert np.array_equal(fitted(np.random.RandomState(0)), fitted(np.random.RandomState(0)))


# attributes


def test_the_loss_of_every_step_is_kept():
    fitted = quick(batch_size=64).fit(pairs().x, pairs().x_pos)
    assert (fitted.n_iter_, fitted.loss_curve_.shape) == (30, (30,))
    assert 0 < fitted.loss_curve_[-1] < fitted.loss_curve_[0] < math.log(64) + 0.5
    assert fitted.n_features_in_ == 3


def test_patience_stops_a_fit_that_no_longer_improves():
    stubborn = quick(max_iter=500, patience=25, learning_rate=1e-12).fit(pairs().x, pairs().x_pos)
    assert stubborn.n_iter_ == 50


def test_a_given_temperature_stays_and_a_missing_one_is_learned():
    assert quick(temperature=0.3).fit(pairs().x, pairs().x_pos).temperature_ == 0.3
    assert 1 / trained().temperature_ == pytest.approx(10, rel=0.15)  # the concentration of the world


@pytest.mark.filterwarnings("ignore::pindown.estimators.IdentifiabilityWarning")
def test_the_encoder_is_the_one_asked_for():
    def own(n_features, n_components):
        return nn.Sequential(nn.Linear(n_features, 7), nn.Tanh(), nn.Linear(7, n_components))

    fitted = quick(encoder=own).fit(pairs().x, pairs().x_pos)
    assert [type(m) for m in fitted.encoder_.body] == [nn.Linear, nn.Tanh, nn.Linear]


@pytest.mark.parametrize(
    ("parameters", "theorem"),
    [
        ({}, theory.CONTRAST_SPHERE),
        ({"p": 1}, None),  # no theorem for another similarity on the sphere
        ({"space": Reals()}, theory.CONTRAST_METRIC),
        ({"space": Reals(), "p": 1}, theory.CONTRAST_LP),
        ({"space": Reals(), "p": 3}, theory.CONTRAST_LP),
        ({"alpha": 0.5}, theory.CONTRAST_SPHERE),
        ({"alpha": 0.5, "space": Reals(), "p": 1}, theory.CONTRAST_LP),
        ({"alpha": 0.4}, None),  # no theorem for another weight
    ],
)
def test_the_guarantee_follows_from_the_parameters(parameters, theorem):
    assert Contrast(**parameters).guarantee == theorem


# score


def test_the_score_of_unrelated_partners_is_not_above_zero_and_that_of_related_ones_is():
    test = pairs(2_000, seed=2)
    assert trained().score(test.x, test.x_pos) > 1
    assert trained().score(test.x, np.roll(test.x_pos, 1, axis=0)) <= 0


def test_a_code_that_shows_nothing_scores_zero():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.ones_like(x)

    blind = quick(encoder=lambda n, d: Constant(), max_iter=2).fit(pairs().x, pairs().x_pos)
    assert blind.score(pairs().x, pairs().x_pos) == pytest.approx(0, abs=1e-6)


def test_the_score_does_not_depend_on_the_order_of_the_rows_much_nor_on_global_chance():
    test = pairs(2_000, seed=2)
    scores = [trained().score(test.x, test.x_pos) for _ in range(2)]
    assert scores[0] == scores[1]
    assert trained().score(test.x[::-1], test.x_pos[::-1]) == pytest.approx(scores[0], abs=1e-6)


def test_no_score_exceeds_the_log_of_the_rows_compared(monkeypatch):
    test = pairs(2_000, seed=2)
    monkeypatch.setattr(contrast, "SCORE_ROWS", 4)
    assert 0.5 < trained().score(test.x, test.x_pos) < math.log(4)


def test_related_rows_are_not_taken_for_strangers_because_they_stand_together(monkeypatch):
    # 40 groups of 50 rows: compared within its group no row is told from another, compared across groups it is.
    centres = np.repeat(Sphere().uniform(40, 3, random_state=0).numpy(), 50, axis=0)
    X = centres + 0.1 * np.random.default_rng(0).normal(size=centres.shape)
    groups = np.arange(2_000) // 50
    fitted = thorough().fit(X, groups)
    monkeypatch.setattr(contrast, "SCORE_ROWS", 50)
    assert fitted.score(X, groups) > 1


def test_the_trained_modules_stay_in_float32_whatever_is_computed_with_them():
    fitted = quick(max_iter=2).fit(pairs().x, pairs().x_pos)
    fitted.transform(pairs().x)
    fitted.score(pairs().x, pairs().x_pos)
    assert {w.dtype for w in fitted.objective_.parameters()} == {torch.float32}


# worlds


def test_a_world_is_learned_from_fresh_samples():
    test = pairs(2_000, seed=2)
    fitted = thorough().fit_process(world())
    assert linear_r2(codes(fitted, test.x), test.z) > 0.98
    assert fitted.n_features_in_ == 3


def test_a_world_without_partners_is_refused():
    clusters = Clusters.on_sphere(3, 5, 10.0, random_state=0)
    with pytest.raises(ValueError, match="Contrast learns from pairs, but Clusters has no partners"):
        quick().fit_process(clusters)


# checkpoints


def interrupted(fit, monkeypatch, at=12):
    monkeypatch.setattr(pressing, "AT", at)
    with pytest.raises(KeyboardInterrupt, match=rf"stopped at step {at + 1} of 30; the same fit will go on from"):
        fit()
    monkeypatch.setattr(pressing, "AT", None)


@pytest.mark.parametrize("y", ["partners", "groups", None])
def test_after_ctrl_c_a_second_fit_equals_an_unbroken_one(tmp_path, monkeypatch, y):
    y = {"partners": pairs().x_pos, "groups": np.arange(400) // 4, None: None}[y]

    def fit(checkpoint=tmp_path / "fit.safetensors"):
        return quick(encoder=pressing.Pressing, batch_size=64, checkpoint=checkpoint).fit(pairs().x, y)

    interrupted(fit, monkeypatch)
    resumed, unbroken = fit(), fit(None)
    assert np.array_equal(resumed.loss_curve_, unbroken.loss_curve_)
    assert np.array_equal(codes(resumed), codes(unbroken))
    assert resumed.temperature_ == unbroken.temperature_


def test_a_fit_to_a_world_resumes_too(tmp_path, monkeypatch):
    def fit(checkpoint=str(tmp_path / "fit.safetensors")):  # a string will do
        return quick(encoder=pressing.Pressing, batch_size=64, checkpoint=checkpoint).fit_process(world())

    interrupted(fit, monkeypatch)
    assert np.array_equal(codes(fit()), codes(fit(None)))


def test_a_finished_fit_is_loaded(tmp_path, monkeypatch):
    def fit():
        return quick(encoder=pressing.Pressing, checkpoint=tmp_path / "fit").fit(pairs().x, pairs().x_pos)

    first = fit()
    monkeypatch.setattr(pressing, "AT", 0)  # any step would be interrupted
    assert np.array_equal(fit().loss_curve_, first.loss_curve_)
    monkeypatch.setattr(pressing, "AT", None)
    assert np.array_equal(codes(fit()), codes(first))


def test_a_checkpoint_of_other_data_or_parameters_is_refused_by_name(tmp_path):
    options = {"checkpoint": tmp_path / "fit", "max_iter": 3}
    quick(**options).fit(pairs().x, pairs().x_pos)
    with pytest.raises(ValueError, match=r"different fit: data \('[0-9a-f]+' there, '[0-9a-f]+' here\)\. Delete"):
        quick(**options).fit(pairs().x, pairs().x_pos[::-1])
    with pytest.raises(ValueError, match=r"different fit: data \("):
        quick(**options).fit(pairs().x * 2, pairs().x_pos)
    with pytest.raises(
        ValueError, match=r"different fit: learning_rate \('0\.002' there, '0\.1' here\), p \('2' there"
    ):
        quick(**options, learning_rate=0.1, p=1).fit(pairs().x, pairs().x_pos)
    quick(**options, verbose=False).fit(pairs().x, pairs().x_pos)  # how it is shown does not matter


def test_a_checkpoint_of_another_world_is_refused_though_it_looks_the_same(tmp_path):
    assert repr(world(0)) == repr(world(1))
    quick(checkpoint=tmp_path / "fit", max_iter=3).fit_process(world(0))
    with pytest.raises(ValueError, match=r"different fit: data \("):
        quick(checkpoint=tmp_path / "fit", max_iter=3).fit_process(world(1))


# odd data


X = np.random.default_rng(0).normal(size=(10, 3))
NAN = np.where(np.arange(30).reshape(10, 3) == 4, np.nan, X)


def test_other_data_than_those_fitted_are_refused():
    with pytest.raises(ValueError, match="X has 2 features, but Contrast is expecting 3 features as input"):
        trained().transform(X[:, :2])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        trained().transform(NAN)
    with pytest.raises(ValueError, match="X has 10 rows but y has 9"):
        trained().score(X, X[:9])


def test_distances_on_a_box_world_are_learned_in_the_reals():
    box = Pairs.on_box(2, laplace(0.05), random_state=0)
    data, test = box.sample(3_000, random_state=1), box.sample(2_000, random_state=2)
    fitted = thorough(2, space=Reals(), p=1).fit(data.x, data.x_pos)
    assert linear_r2(fitted.transform(test.x), test.z) > 0.99


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_codes_may_enter_ones_own_training(dtype):
    z_hat = trained().transform(torch.as_tensor(X, dtype=dtype))
    weight = torch.ones(z_hat.shape[1], dtype=dtype, requires_grad=True)
    (z_hat * weight).sum().backward()
    assert torch.allclose(weight.grad, z_hat.sum(0))


def test_an_offset_far_above_the_spread_changes_nothing():
    x, x_pos = (np.asarray(a, dtype=np.float64) for a in (pairs().x, pairs().x_pos))
    near, far = (quick().fit(x + by, x_pos + by) for by in (0.0, 1e8))
    np.testing.assert_allclose(near.transform(x), far.transform(x + 1e8), atol=1e-3)


# alignment and uniformity


@cache
def aligned(alpha=0.5):
    return thorough(alpha=alpha).fit(pairs(3_000).x, pairs(3_000).x_pos)


@pytest.mark.parametrize("alpha", [0.3, 0.5])
def test_the_weight_of_uniformity_moves_the_temperature(alpha):
    # Where the loss is least in the temperature, (1 − α) E ‖z − z̃‖² of the world is α times that of the model, and both
    # are 2 − 2 A(κ), with A(κ) = coth κ − 1/κ on the sphere in three dimensions. At κ = 10, A = .9.
    expected = {0.5: 10.0, 0.3: 4.283}[alpha]  # 1 − A(4.283) = .2333 = .1 · .7 / .3
    assert 1 / aligned(alpha).temperature_ == pytest.approx(expected, rel=0.1)


def test_a_score_in_nats_does_not_depend_on_the_weight_of_uniformity():
    test = pairs(2_000, seed=2)
    scores = [fitted.score(test.x, test.x_pos) for fitted in (trained(), aligned(0.5), aligned(0.3))]
    assert scores == pytest.approx([scores[0]] * 3, abs=0.05)
    assert aligned(0.3).score(test.x, np.roll(test.x_pos, 1, axis=0)) == pytest.approx(0, abs=0.01)


def test_a_score_chooses_the_temperature_at_which_infonce_is_least():
    x, x_pos = (torch.tensor(a) for a in (pairs(2_000, seed=2).x, pairs(2_000, seed=2).x_pos))
    with torch.no_grad():
        best = contrast._best_temperature(aligned(0.3).objective_, x, x_pos)
        losses = [aligned(0.3).objective_.infonce(x, x_pos, temperature=best * factor) for factor in (0.9, 1, 1.1)]
    assert min(losses) == losses[1]
    assert 1 / best == pytest.approx(10, rel=0.1)  # not the 4.283 of the fit


def fitted_to_near_partners(**parameters):
    data = Pairs.on_sphere(3, 1_000.0, random_state=0).sample(400, random_state=1)
    return quick(batch_size=32, max_iter=100, learning_rate=1e-2, **parameters).fit(data.x, data.x_pos)


def test_a_temperature_that_nothing_holds_is_warned_of():
    with pytest.warns(IdentifiabilityWarning, match=r"alpha=0\.7 the loss fell to -.*Take a larger batch_size.*=None"):
        fitted_to_near_partners(alpha=0.7)


@pytest.mark.parametrize("parameters", [{"alpha": 0.7, "temperature": 0.01}, {"alpha": None}])
def test_a_temperature_that_is_given_or_infonces_own_cannot_run_away(parameters):
    assert 1 / fitted_to_near_partners(**parameters).temperature_ < 1e4  # and a warning would be an error


def test_latents_that_are_not_uniform_need_a_learned_density_whatever_the_loss():
    marginal = Around((1.0, 0.0, 0.0), VonMisesFisher(4.0))
    cap = Pairs(marginal, VonMisesFisher(10.0), leaky_relu_mlp(3, random_state=0))
    test = cap.sample(2_000, random_state=1)

    def recovered(any_marginal):
        options = {"max_iter": 150, "batch_size": 256, "learning_rate": 1e-2, "weight_decay": 0.0}
        fitted = quick(alpha=0.5, any_marginal=any_marginal, **options).fit_process(cap)
        return linear_r2(fitted.transform(test.x), test.z)

    assert recovered(True) > 0.99 > 0.965 > recovered(False)
