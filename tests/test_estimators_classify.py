import math
import pickle
import warnings
from functools import cache

import numpy as np
import pressing
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from pindown import theory
from pindown.distributions import VonMisesFisher
from pindown.estimators import Classify, IdentifiabilityWarning, classify
from pindown.estimators._drawing import Augmented, Epochs, Labelled
from pindown.metrics import linear_r2
from pindown.mixing import leaky_relu_mlp
from pindown.processes import Clusters, Instances, Nuisance, Pairs, Sample
from pindown.spaces import Box, Reals, Sphere

KAPPA = 10.0


def quick(n_components=3, **parameters):
    return Classify(n_components, **{"max_iter": 30, "random_state": 0, "device": "cpu"} | parameters)


def thorough(n_components=3, **parameters):
    return quick(n_components, **{"max_iter": 300, "batch_size": 128} | parameters)


@cache
def world(n_classes=12, random_state=0):
    return Clusters.on_sphere(3, n_classes, KAPPA, random_state=random_state)


@cache
def data(n=400, seed=1):
    return Sample(*(t if t is None else t.numpy() for t in world().sample(n, random_state=seed)))


@cache
def trained():
    return thorough().fit(data(4_000).x, data(4_000).u)


def codes(estimator, x=None):
    return estimator.transform(data().x if x is None else x)


# what is learned


def test_labels_recover_the_latents_and_the_class_vectors():
    test = data(2_000, seed=2)
    assert linear_r2(test.x, test.z) < 0.95
    assert linear_r2(codes(trained(), test.x), test.z) > 0.98
    vectors = trained().class_vectors_
    assert vectors.shape == (12, 3)
    assert linear_r2(vectors, world().vectors, held_out=False) > 0.98


def test_class_vectors_are_in_the_coordinates_of_the_codes():
    z_hat, u = codes(trained(), data(4_000).x), data(4_000).u
    means = Sphere()(torch.tensor(np.stack([z_hat[u == c].mean(0) for c in range(12)])))
    cosines = means.numpy() @ trained().class_vectors_.T
    assert cosines.diagonal().min() > 0.95
    assert np.array_equal(cosines.argmax(1), np.arange(12))  # none is nearer to another class's vector


def test_a_missing_scale_estimates_the_concentration_and_a_given_one_stays():
    more = data(20_000)
    learned = thorough(max_iter=600, batch_size=512).fit(more.x, more.u)
    assert learned.scale_ == pytest.approx(KAPPA, rel=0.1)  # errors of the codes make it smaller: .95 of it here
    assert quick(scale=3.0).fit(data().x, data().u).scale_ == 3.0


def test_codes_and_class_vectors_lie_in_their_spaces():
    assert np.linalg.norm(codes(trained()), axis=1) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(trained().class_vectors_, axis=1) == pytest.approx(1, abs=1e-5)
    free = quick(space=Reals(), vector_space=Reals()).fit(data().x, data().u)
    assert np.ptp(np.linalg.norm(codes(free), axis=1)) > 0.1
    assert np.ptp(np.linalg.norm(free.class_vectors_, axis=1)) > 0.01


@pytest.mark.parametrize(
    ("spaces", "theorem"),
    [
        ((Sphere(), Sphere()), theory.CLASSIFY_NORMALISED),
        ((Sphere(), Reals()), theory.CLASSIFY_UNIT_CODES),
        ((Reals(), Sphere()), theory.CLASSIFY_FREE),
        ((Reals(), Reals()), theory.CLASSIFY_FREE),
    ],
)
def test_the_guarantee_follows_from_the_spaces(spaces, theorem):
    assert Classify(space=spaces[0], vector_space=spaces[1]).guarantee is theorem


def test_the_loss_of_every_step_is_kept_and_starts_at_chance():
    fitted = quick(batch_size=64).fit(data().x, data().u)
    assert (fitted.n_iter_, fitted.loss_curve_.shape, fitted.n_features_in_) == (30, (30,), 3)
    assert 0 < fitted.loss_curve_[-1] < fitted.loss_curve_[0] < math.log(12) + 0.5


# what y may be


def test_labels_may_be_text_integers_lists_tensors_or_truth_values():
    X, numbers = data().x, data().u
    letters = np.array(list("abcdefghijkl"))[numbers]
    reference = quick(max_iter=3).fit(X, numbers)
    assert np.array_equal(reference.classes_, np.arange(12))
    for y in (letters, letters.tolist(), letters.astype(object), numbers + 7, torch.tensor(numbers), numbers * 1.0):
        fitted = quick(max_iter=3).fit(X, y)
        assert np.array_equal(codes(fitted), codes(reference))
        assert set(fitted.predict(X).tolist()) <= set(np.asarray(y).tolist())
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        assert np.array_equal(codes(quick(max_iter=3).fit(X, numbers[:, None])), codes(reference))
    with pytest.warns(IdentifiabilityWarning, match="2 classes cannot pin down 3 latents"):
        assert quick(max_iter=3).fit(X, numbers > 5).predict(X).dtype == bool


# prediction


def test_probabilities_are_those_of_bayes_in_a_known_world():
    test = world().sample(2_000, random_state=2)
    ours, best = trained().predict_proba(test.x), world().log_posterior(test.z).exp()
    assert ours.sum(1).numpy() == pytest.approx(1)
    assert (ours - best).abs().mean() < 0.01  # in the mean over classes, of which there are 12
    assert (ours.flip(0) - best).abs().mean() > 0.1


def test_the_prediction_is_the_most_probable_class():
    fitted = thorough(max_iter=50).fit(data().x, np.array(list("abcdefghijkl"))[data().u])
    x = data(300, seed=3).x
    assert np.array_equal(fitted.predict(x), fitted.classes_[fitted.predict_proba(x).argmax(1)])


def test_prediction_in_blocks_of_rows_is_the_same(monkeypatch):
    x = data(300, seed=3).x
    whole = trained().predict(x)
    monkeypatch.setattr(classify, "PREDICT_ENTRIES", 40)  # three rows of twelve classes
    assert np.array_equal(trained().predict(x), whole)


def test_a_tensor_is_answered_by_a_tensor_of_probabilities_and_an_array_of_labels():
    x = torch.tensor(data().x)
    probabilities = trained().predict_proba(x)
    assert isinstance(probabilities, torch.Tensor)
    assert (probabilities.dtype, probabilities.shape) == (torch.float32, (400, 12))
    np.testing.assert_array_equal(trained().predict(x), trained().predict(data().x))
    assert trained().score(x, torch.tensor(data().u)) == trained().score(data().x, data().u)


def test_the_score_is_the_accuracy_and_near_that_of_the_best_classifier():
    test = data(2_000, seed=2)
    best = (world().log_posterior(torch.tensor(test.z)).argmax(1).numpy() == test.u).mean()
    assert best - 0.02 < trained().score(test.x, test.u) < best + 0.02
    assert trained().score(test.x, np.roll(test.u, 1)) < 0.2


def test_the_score_weighs_samples():
    test = data(2_000, seed=2)
    right = trained().predict(test.x) == test.u
    assert trained().score(test.x, test.u, sample_weight=right) == 1
    assert trained().score(test.x, test.u, sample_weight=1.0 * ~right) == 0


def test_an_unseen_label_counts_as_an_error():
    test = data(2_000, seed=2)
    half_unseen = np.where(np.arange(2_000) % 2, test.u, 99)
    right = trained().predict(test.x) == test.u
    assert trained().score(test.x, half_unseen) == pytest.approx(right[1::2].mean() / 2)


def test_the_frequencies_of_the_classes_are_known_and_enter_the_probabilities():
    sample = data(4_000)
    kept = (sample.u < 6) | (np.arange(4_000) % 10 == 0)  # the other six classes are ten times rarer
    X, y = sample.x[kept], sample.u[kept]
    fitted = thorough(max_iter=150).fit(X, y)
    assert fitted.class_prior_ == pytest.approx(np.bincount(y) / len(y))
    assert fitted.class_prior_[6:].max() < 0.03 < 0.1 < fitted.class_prior_[:6].min()
    assert fitted.predict_proba(X).mean(0) == pytest.approx(fitted.class_prior_, abs=0.02)


# scikit-learn's tools


def test_it_is_a_classifier_and_a_transformer():
    assert is_classifier(quick())
    assert get_tags(quick()).target_tags.required
    assert not get_tags(quick(augment=lambda x, generator: x)).target_tags.required
    names = list(trained().get_feature_names_out())
    assert names == ["classify0", "classify1", "classify2"]


def test_cross_validation_stratifies_by_class_and_scores_by_accuracy():
    sample = data(1_000)
    scores = cross_val_score(thorough(max_iter=100), sample.x, sample.u, cv=2)
    assert scores.min() > 0.5


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


# instances


def jitter(x, generator):
    return x + 0.01 * torch.randn(x.shape, generator=generator)


@cache
def instances(n=300):
    z = Sphere().uniform(n, 3, random_state=0)
    mixing = leaky_relu_mlp(3, random_state=0)
    return z, mixing(z), mixing


def another_view(x, generator):
    _, _, mixing = instances()
    with torch.no_grad():
        return mixing(VonMisesFisher(KAPPA).sample(Sphere()(mixing.inverse(x)), random_state=generator))


@cache
def trained_on_views():
    return thorough(augment=another_view).fit(instances()[1])


def test_views_of_instances_recover_the_latents_without_labels():
    z, _, mixing = instances()
    fitted = trained_on_views()
    test = Sphere().uniform(2_000, 3, random_state=1)
    assert linear_r2(mixing(test), test) < 0.95
    assert linear_r2(fitted.transform(mixing(test)), test) > 0.98
    assert linear_r2(fitted.class_vectors_, z) > 0.98  # each instance is its own centre
    assert np.array_equal(fitted.classes_, np.arange(300))


def test_after_a_fit_without_labels_rows_are_taken_for_rows():
    _, x, _ = instances()
    fitted = trained_on_views()
    predicted = fitted.predict(x)
    assert (predicted.min() >= 0) & (predicted.max() < 300)
    assert fitted.score(x) == np.mean(predicted == np.arange(300))
    assert fitted.score(x) > 20 / 300  # twenty times chance: of 300 on a sphere, many are near each other
    assert fitted.score(x[:10]) == np.mean(predicted[:10] == np.arange(10))


def test_views_given_as_rows_with_one_id_are_instances_too():
    _, x, _ = instances()
    chance = torch.Generator().manual_seed(0)
    views = torch.cat([another_view(x, chance) for _ in range(20)])
    fitted = thorough().fit(views, torch.arange(300).repeat(20))
    test = Sphere().uniform(2_000, 3, random_state=1)
    assert linear_r2(fitted.transform(instances()[2](test)), test) > 0.98


def test_labels_and_views_go_together_and_a_class_of_one_row_is_then_no_matter():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = quick(augment=jitter).fit(data(60).x, np.arange(60) // 2 * 2)
        quick(augment=jitter, max_iter=2).fit(data(60).x, np.arange(60))
    assert len(fitted.classes_) == 30


def test_the_function_that_makes_views_gets_the_generator_and_chance_comes_from_it_alone():
    fits = [quick(augment=jitter).fit(data().x, data().u) for _ in range(2)]
    assert np.array_equal(codes(fits[0]), codes(fits[1]))
    assert not np.array_equal(codes(fits[0]), codes(quick().fit(data().x, data().u)))


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (lambda x, generator: x[:, :2], r"same shape, \(128, 3\); got \(128, 2\)"),
        (lambda x, generator: x.numpy(), r"same shape, \(128, 3\); got ndarray"),
    ],
)
def test_views_of_another_shape_are_refused(augment, message):
    with pytest.raises(ValueError, match=message):
        quick(augment=augment, batch_size=128).fit(data().x)


def test_epochs_of_labelled_rows_keep_row_and_label_together():
    rows = Labelled(torch.arange(10.0)[:, None], torch.arange(10) % 3)
    draw = Epochs(rows, 4)
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        x, labels = draw(step, generator)
        assert torch.equal(x[:, 0].long() % 3, labels)
    x, labels = Augmented(draw, lambda x, generator: -x)(5, generator)
    assert torch.equal(-x[:, 0].long() % 3, labels)


# worlds


def test_a_world_is_learned_from_fresh_samples():
    test = data(2_000, seed=2)
    fitted = thorough().fit_process(world())
    assert linear_r2(codes(fitted, test.x), test.z) > 0.98
    assert np.array_equal(fitted.classes_, np.arange(12))
    assert fitted.class_prior_ == pytest.approx(1 / 12)


def test_in_a_world_of_instances_those_of_one_class_share_a_vector():
    fitted = thorough().fit_process(Instances(world(), 36))  # three of each class
    cosines = fitted.class_vectors_ @ fitted.class_vectors_.T
    same = np.arange(36)[:, None] % 12 == np.arange(36) % 12
    assert cosines[same].min() > 0.97
    assert cosines[~same].mean() < 0.5


def test_the_weights_of_a_world_are_its_frequencies():
    weighted = Clusters(torch.eye(3), VonMisesFisher(5.0), leaky_relu_mlp(3, random_state=0), weights=(3.0, 2.0, 1.0))
    with pytest.warns(IdentifiabilityWarning):
        fitted = quick().fit_process(weighted)
    assert fitted.class_prior_ == pytest.approx(np.array([3, 2, 1]) / 6)


@pytest.mark.parametrize(
    "other", [Pairs.on_sphere(3, 10.0, random_state=0), Nuisance.on_sphere(4, 2, 5.0, random_state=0)]
)
def test_a_world_whose_labels_are_no_signal_is_refused(other):
    with pytest.raises(ValueError, match=f"labels that are signal, but those of {type(other).__name__} are not, or"):
        quick().fit_process(other)


# checkpoints


@pytest.mark.parametrize("case", ["labels", "views", "world"])
def test_after_ctrl_c_a_second_fit_equals_an_unbroken_one(tmp_path, monkeypatch, case):
    def fit(checkpoint=tmp_path / "fit.safetensors"):
        estimator = quick(encoder=pressing.Pressing, batch_size=64, checkpoint=checkpoint)
        if case == "world":
            return estimator.fit_process(world())
        if case == "views":
            return estimator.set_params(augment=jitter).fit(data().x)
        return estimator.fit(data().x, data().u)

    monkeypatch.setattr(pressing, "AT", 12)
    with pytest.raises(KeyboardInterrupt, match=r"stopped at step 13 of 30; the same fit will go on from"):
        fit()
    monkeypatch.setattr(pressing, "AT", None)
    resumed, unbroken = fit(), fit(None)
    assert np.array_equal(resumed.loss_curve_, unbroken.loss_curve_)
    assert np.array_equal(codes(resumed), codes(unbroken))
    assert np.array_equal(resumed.class_vectors_, unbroken.class_vectors_)
    assert resumed.scale_ == unbroken.scale_


def test_a_checkpoint_of_other_labels_is_refused_by_name(tmp_path):
    options = {"checkpoint": tmp_path / "fit", "max_iter": 3}
    quick(**options).fit(data().x, data().u)
    with pytest.raises(ValueError, match=r"different fit: data \('[0-9a-f]+' there, '[0-9a-f]+' here\)\. Delete"):
        quick(**options).fit(data().x, data().u[::-1])


def test_a_fit_that_was_broken_off_is_not_fitted(monkeypatch):
    estimator = quick(encoder=pressing.Pressing)
    monkeypatch.setattr(pressing, "AT", 3)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(data().x, data().u)
    for use in (estimator.transform, estimator.predict, estimator.predict_proba, estimator.score):
        with pytest.raises(ValueError, match="This Classify instance is not fitted yet"):
            use(data().x)


# warnings: the theorem cannot apply


def test_too_few_classes_are_warned_of_and_enough_are_not():
    with pytest.warns(IdentifiabilityWarning, match="3 classes cannot pin down 3 latents.*at least 4, in general pos"):
        quick().fit(data().x, data().u % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(max_iter=100).fit(data().x, data().u)


def test_a_class_of_one_row_is_warned_of_by_name():
    y = np.array(list("abcd" * 15))
    y[:2] = "y", "z"
    with pytest.warns(IdentifiabilityWarning, match=r"2 of 6 classes have a single row.*: y, z\. Their class vectors"):
        quick().fit(data(60).x, y)


def test_one_component_on_the_sphere_is_warned_of():
    with pytest.warns(IdentifiabilityWarning, match="n_components=1 on the sphere leaves only the two points"):
        quick(1).fit(data().x, data().u)


def test_a_warning_points_to_the_line_that_fits():
    for y in (data().u % 3, np.where(np.arange(400) == 7, 99, data().u)):
        with pytest.warns(IdentifiabilityWarning) as caught:
            quick(max_iter=2).fit(data().x, y)
        assert caught[0].filename == __file__


# errors: cause and remedy


X = np.random.default_rng(0).normal(size=(10, 3))
Y = np.arange(10) % 5
NAN = np.where(np.arange(30).reshape(10, 3) == 4, np.nan, X)


@pytest.mark.parametrize(
    ("parameters", "X", "y", "message"),
    [
        ({}, X, None, "requires y to be passed, but the target y is None.*seen in a single view.*labels, or augment="),
        ({}, X, Y[:9], "X has 10 rows but y has 9. Row i of y must be the class of row i of X"),
        ({}, X, np.zeros(10), "all 10 rows into a single class, so there is nothing to tell apart.*at least two"),
        ({}, X, np.arange(10), "no class of y has two rows: there are as many classes as samples, 10.*by heart. Give"),
        ({}, X, np.where(Y == 1, np.nan, Y), r"y \(the labels\) contains NaN or None. Give each row a label, or leave"),
        ({}, X, [None, *"abc" * 3], r"y \(the labels\) contains NaN or None"),
        ({}, X, [math.nan, *"abc" * 3], r"y \(the labels\) contains NaN or None"),
        ({}, X, np.where(Y == 1, np.inf, Y), r"Input y \(the labels\) contains infinity"),
        ({}, X, [0, "a"] * 5, r"y \(the labels\) mixes types that cannot be compared.*all text or all numbers"),
        ({}, X, np.array([0, "a"] * 5, dtype=object), "mixes types that cannot be compared"),
        ({}, X, X[:, 0], "Unknown label type: continuous"),
        ({}, X, X[:, :2], r"y should be a 1d array, got an array of shape \(10, 2\)"),
        ({}, NAN, Y, "Input X contains NaN"),
        ({}, X[:1], Y[:1], r"Found array with 1 sample\(s\).*minimum of 2 is required by Classify"),
        ({"n_components": 4}, X, Y, "n_components=4 is more than n_features=3.*ask for at most as many"),
        ({"batch_size": 11}, X, Y, "batch_size=11 is larger than the 10 rows in the data. Leave it at None"),
        ({"scale": 0}, X, Y, "scale == 0, must be > 0"),
        ({"scale": math.inf}, X, Y, "scale must be finite, got inf"),
        ({"space": Box()}, X, Y, r"space must be Sphere\(\) or Reals\(\), got Box"),
        ({"vector_space": Box()}, X, Y, r"vector_space must be Sphere\(\) or Reals\(\), got Box"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_cause_and_remedy(parameters, X, y, message):
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"scale": "large"}, "scale must be an instance of float"),
        ({"augment": "flip"}, r"augment must be a function \(x, generator\) -> another view of x, got 'flip'"),
    ],
)
def test_a_parameter_of_the_wrong_type_is_refused(parameters, message):
    with pytest.raises(TypeError, match=message):
        quick(**parameters).fit(X, Y)


def test_other_data_than_those_fitted_are_refused():
    with pytest.raises(ValueError, match="X has 2 features, but Classify is expecting 3 features as input"):
        trained().predict(X[:, :2])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[9, 10\]"):
        trained().score(X, Y[:9])
    with pytest.raises(ValueError, match="Mix of label input types"):
        trained().score(X, np.array(list("abcdefghij")))
    with pytest.raises(ValueError, match=r"'y_true' parameter .* must be an array-like.* Got None instead"):
        trained().score(X)
