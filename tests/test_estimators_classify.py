import math

import numpy as np
import pytest
import torch
from classifying import KAPPA, codes, data, quick, thorough, trained, world
from pindown_papers.simulations import Instances, log_posterior
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.exceptions import DataConversionWarning

from pindown import Data, plan, theory
from pindown.auditing.refits import refitted
from pindown.errors import IdentifiabilityWarning
from pindown.methods import Classify
from pindown.methods.classify import estimator as classify
from pindown.metrics import linear_r2
from pindown.networks.spaces import Reals, Sphere
from pindown.simulate import Clusters, Nuisance, Pairs
from pindown.simulate.distributions import VonMisesFisher
from pindown.simulate.mixing import leaky_relu_mlp
from pindown.training import Trainer

# what is learned


def test_labels_recover_the_latents_and_the_class_vectors():
    test = data(2_000, seed=2)
    before, after = linear_r2(test.x, test.z), linear_r2(codes(trained(), test.x), test.z)
    assert after > 0.96
    assert 1 - after < (1 - before) / 2  # some mixings are nearly linear: .88 to .94 before
    vectors = trained().class_vectors_
    assert vectors.shape == (12, 3)
    assert linear_r2(vectors, world().vectors, held_out=False) > 0.98


def test_class_vectors_are_in_the_coordinates_of_the_latents():
    z_hat, u = codes(trained(), data(4_000).x), data(4_000).u
    means = Sphere()(torch.tensor(np.stack([z_hat[u == c].mean(0) for c in range(12)])))
    cosines = means.numpy() @ trained().class_vectors_.T
    assert np.median(cosines.diagonal()) > 0.9
    assert np.array_equal(cosines.argmax(1), np.arange(12))  # none is nearer to another class's vector


@pytest.mark.slow
def test_a_missing_scale_estimates_the_concentration_and_a_given_one_stays():
    more = data(20_000)
    learned = thorough(max_iter=600, batch_size=512).fit(more.x, more.u)
    assert learned.scale_ == pytest.approx(KAPPA, rel=0.1)  # errors of the latents make it smaller: .95 of it here
    assert quick(scale=3.0).fit(data().x, data().u).scale_ == 3.0


def test_latents_are_counted_by_what_labels_can_pin_down_in_any_units():
    sets = {2: load_wine, 1: load_breast_cancer}
    for n, load in sets.items():
        x, y = load(return_X_y=True)
        for units in (1.0, np.logspace(-3, 3, x.shape[1])):
            assert Classify(random_state=0).prepare(Data(x * units, signal=y)).summary.n_components == n
    assert Classify().prepare(Data(data().x, signal=data().u)).summary.n_components == 3
    deep = Clusters.on_sphere(10, 20, KAPPA, n_layers=4, random_state=0).sample(2_000, random_state=1)
    assert plan(deep.x, signal=deep.u).n_components == 10  # though the mixing brings the means of classes together
    assert Classify().prepare(Data(deep.x.numpy(), signal=deep.u.numpy())).summary.n_components == 10
    assert plan(x, signal=y).n_components == 1


def test_a_single_latent_lives_on_the_line():
    x, y = data().x, data().u % 2
    fitted = quick(None, trainer=Trainer(validation_fraction=0)).fit(x, y)
    again = refitted(fitted, Data(x, signal=y), seed=1)
    for each in (fitted, again):
        assert codes(each).shape == (400, 1)
        assert np.ptp(np.abs(codes(each))) > 0.1
        assert each.guarantee is theory.CLASSIFY_FREE


def test_latents_and_class_vectors_lie_in_their_spaces():
    assert np.linalg.norm(codes(trained()), axis=1) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(trained().class_vectors_, axis=1) == pytest.approx(1, abs=1e-5)
    free = quick(space=Reals(), vector_space=Reals()).fit(data().x, data().u)
    assert np.ptp(np.linalg.norm(codes(free), axis=1)) > 0.1
    assert np.ptp(np.linalg.norm(free.class_vectors_, axis=1)) > 0.01


@pytest.mark.parametrize(
    ("spaces", "theorem"),
    [
        ((Sphere(), Sphere()), theory.CLASSIFY_NORMALISED),
        ((Sphere(), Reals()), theory.CLASSIFY_UNIT_FEATURES),
        ((Reals(), Sphere()), theory.CLASSIFY_FREE),
        ((Reals(), Reals()), theory.CLASSIFY_FREE),
    ],
)
def test_the_guarantee_follows_from_the_spaces(spaces, theorem):
    assert Classify(space=spaces[0], vector_space=spaces[1]).guarantee is theorem


def test_the_loss_of_every_step_is_kept_and_starts_at_chance():
    fitted = quick(batch_size=64).fit(data().x, data().u)
    assert (fitted.n_iter_, fitted.loss_curve_.shape, fitted.n_features_in_) == (30, (30,), 3)
    assert 0 < fitted.loss_curve_[-1] < fitted.loss_curve_[0] < math.log(12) + 1


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
    with pytest.warns(DataConversionWarning, match="column-vector"):
        assert np.array_equal(codes(quick(max_iter=3).fit(X, numbers[:, None])), codes(reference))
    with pytest.warns(IdentifiabilityWarning, match="identify"):
        assert quick(max_iter=3).fit(X, numbers > 5).predict(X).dtype == bool


# prediction


def test_probabilities_are_those_of_bayes_in_a_known_simulation():
    test = world().sample(2_000, random_state=2)
    ours, best = trained().predict_proba(test.x), log_posterior(world(), test.z).exp()
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
    best = (log_posterior(world(), torch.tensor(test.z)).argmax(1).numpy() == test.u).mean()
    assert best - 0.04 < trained().score(test.x, test.u) < best + 0.02
    assert trained().score(test.x, np.roll(test.u, 1)) < 0.2
    assert trained().score(Data(test.x, signal=test.u)) == trained().score(test.x, test.u)
    with pytest.raises(ValueError, match="labels"):
        trained().score(test.x)


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


# simulations


def test_a_simulation_is_learned_from_fresh_samples():
    test = data(2_000, seed=2)
    fitted = thorough(max_iter=600, batch_size=256).fit_process(world())
    assert linear_r2(codes(fitted, test.x), test.z) > 0.97
    assert np.array_equal(fitted.classes_, np.arange(12))
    assert fitted.class_prior_ == pytest.approx(1 / 12)


def test_in_a_simulation_of_instances_those_of_one_class_share_a_vector():
    fitted = thorough().fit_process(Instances(world(), 36))  # three of each class
    cosines = fitted.class_vectors_ @ fitted.class_vectors_.T
    same = np.arange(36)[:, None] % 12 == np.arange(36) % 12
    assert cosines[same].min() > 0.97
    assert cosines[~same].mean() < 0.5


def test_the_weights_of_a_simulation_are_its_frequencies():
    weighted = Clusters(torch.eye(3), VonMisesFisher(5.0), leaky_relu_mlp(3, random_state=0), weights=(3.0, 2.0, 1.0))
    with pytest.warns(IdentifiabilityWarning):
        fitted = quick().fit_process(weighted)
    assert fitted.class_prior_ == pytest.approx(np.array([3, 2, 1]) / 6)


@pytest.mark.parametrize(
    "other", [Pairs.on_sphere(3, 10.0, random_state=0), Nuisance.on_sphere(4, 2, 5.0, random_state=0)]
)
def test_a_simulation_whose_labels_are_no_signal_is_refused(other):
    with pytest.raises(ValueError, match="labels"):
        quick().fit_process(other)


def test_an_encoder_of_more_features_than_latents_does_not_fold_at_the_start():
    rng, noise = np.random.default_rng(1), torch.Generator().manual_seed(1)
    vectors = Sphere().uniform(20, 4, random_state=noise, dtype=torch.float64)
    labels = rng.integers(20, size=5_000)
    z = VonMisesFisher(10.0).sample(vectors[labels], random_state=noise).numpy()
    hidden = z @ rng.normal(size=(4, 8)) / 2
    x = np.where(hidden > 0, hidden, 0.2 * hidden) @ rng.normal(size=(8, 8))
    est = Classify(4, max_iter=200, verbose=False, random_state=4).fit(x[:3_000], labels[:3_000])
    assert linear_r2(est.transform(x[3_000:]), z[3_000:]) > linear_r2(x[3_000:], z[3_000:]) + 0.02
