"""Classify without labels, or with several views of each row: instances."""

import warnings
from functools import cache

import numpy as np
import pytest
import torch
from classifying import KAPPA, codes, data, jitter, quick, thorough

from pindown.data.batches import IndexedSamples, ShuffledBatches, augmented
from pindown.metrics import linear_r2
from pindown.networks.spaces import Sphere
from pindown.simulate.distributions import VonMisesFisher
from pindown.simulate.mixing import leaky_relu_mlp
from pindown.training import Trainer


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


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # it may know its own rows better
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
        fitted = quick(augment=jitter, trainer=Trainer(validation_fraction=0)).fit(data(60).x, np.arange(60) // 2 * 2)
        quick(augment=jitter, max_iter=2).fit(data(60).x, np.arange(60))
    assert len(fitted.classes_) == 30


@pytest.mark.slow
def test_the_function_that_makes_views_gets_the_generator_and_chance_comes_from_it_alone():
    fits = [quick(augment=jitter).fit(data().x, data().u) for _ in range(2)]
    assert np.array_equal(codes(fits[0]), codes(fits[1]))
    assert not np.array_equal(codes(fits[0]), codes(quick().fit(data().x, data().u)))


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (lambda x, generator: x[:, :2], r"\(128, 3\).*got \(128, 2\)"),
        (lambda x, generator: x.numpy(), r"\(128, 3\).*got ndarray"),
    ],
)
def test_views_of_another_shape_are_refused(augment, message):
    with pytest.raises(ValueError, match=message):
        quick(augment=augment, batch_size=128).fit(data().x)


def test_epochs_of_labelled_rows_keep_row_and_label_together():
    batches = ShuffledBatches(IndexedSamples(torch.arange(10.0)[:, None], torch.arange(10) % 3), 4)
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        x, labels = batches(step, generator)
        assert torch.equal(x[:, 0].long() % 3, labels)
    x, labels = augmented(batches, lambda x, generator: -x)(5, generator)
    assert torch.equal(-x[:, 0].long() % 3, labels)
