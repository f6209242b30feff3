import math
import warnings
from functools import partial

import classifying
import numpy as np
import pytest
from classifying import data, trained

from pindown.errors import IdentifiabilityWarning
from pindown.methods import Classify
from pindown.networks import preprocessing
from pindown.networks.spaces import Box
from pindown.training import Trainer

# Ten rows would not support three directions beyond noise, which is refused first.
quick = partial(classifying.quick, preprocess=preprocessing.whiten)

# warnings: the theorem cannot apply


@pytest.mark.slow
def test_too_few_classes_are_warned_of_and_enough_are_not():
    with pytest.warns(IdentifiabilityWarning, match="identify"):
        quick().fit(data().x, data().u % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(max_iter=100).fit(data().x, data().u)


def test_a_class_of_one_row_is_warned_of_by_name():
    y = np.array(list("abcd" * 15))
    y[:2] = "y", "z"
    with pytest.warns(IdentifiabilityWarning, match="classes"):
        quick(trainer=Trainer(validation_fraction=0)).fit(data(60).x, y)


@pytest.mark.parametrize("fraction", [0.5, np.nan])
def test_labels_that_cannot_be_learned_from_are_refused_before_anything_is_computed_of_x(fraction, monkeypatch):
    monkeypatch.setattr(Classify, "fitted_preprocessing", lambda *_: pytest.fail("the rank of X was computed"))
    with pytest.raises(ValueError, match="y"):
        quick().fit(data().x, np.where(np.arange(400) == 7, fraction, data().u))


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
        ({}, X, None, "requires y to be passed, but the target y is None.*labels, or augment="),
        ({}, X, Y[:9], "X has 10 rows but y has 9. Row i of y must belong to row i of X"),
        ({}, X, np.zeros(10), "at least two classes"),
        ({}, X, np.arange(10), "no class of y has two samples: there are as many classes as samples, 10"),
        ({}, X, np.where(Y == 1, np.nan, Y), "y is missing for"),
        ({}, X, [None, *"abc" * 3], "y is missing for"),
        ({}, X, [math.nan, *"abc" * 3], "y is missing for"),
        ({}, X, np.where(Y == 1, np.inf, Y), r"Input y \(the labels\) contains infinity"),
        ({}, X, [0, "a"] * 5, r"y \(the labels\) mixes types that cannot be compared.*all text or all numbers"),
        ({}, X, np.array([0, "a"] * 5, dtype=object), "mixes types that cannot be compared"),
        ({}, X, X[:, 0], "Unknown label type: continuous"),
        ({}, X, X[:, :2], r"y should be a 1d array, got an array of shape \(10, 2\)"),
        ({}, NAN, Y, "of X has NaN"),
        ({}, X[:1], Y[:1], r"Found array with 1 sample\(s\).*minimum of 2 is required by Classify"),
        ({"n_components": 4}, X, Y, "n_components=4 is more than n_features=3"),
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
    with pytest.raises(ValueError, match="expecting"):
        trained().predict(X[:, :2])
    with pytest.raises(ValueError, match="inconsistent"):
        trained().score(X, Y[:9])
    with pytest.raises(ValueError, match="Classify"):
        trained().score(X)


def test_without_labels_latents_are_not_counted():
    with pytest.raises(ValueError, match="n_components=None"):
        Classify(augment=classifying.jitter).fit(data().x)
