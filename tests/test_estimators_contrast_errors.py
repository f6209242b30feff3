import math
from functools import partial

import contrasting
import numpy as np
import pytest
from contrasting import trained
from raising import input_error
from torch import nn

from pindown import theory
from pindown.methods import PairLoss
from pindown.networks import preprocessing
from pindown.networks.spaces import Box, Reals
from pindown.simulate import Pairs
from pindown.training import Trainer

# Ten rows would not support three directions beyond noise, which is refused first.
quick = partial(contrasting.quick, preprocess=preprocessing.whiten)

X = np.random.default_rng(0).normal(size=(10, 3))
NAN = np.where(np.arange(30).reshape(10, 3) == 4, np.nan, X)


@pytest.mark.parametrize(
    ("parameters", "X", "y", "message"),
    [
        ({}, X, X[:9], "X has 10 rows but y has 9. Row i of y must belong to row i of X"),
        ({}, X, np.arange(9), "X has 10 rows but y has 9"),
        ({}, X, 5, "X has 10 rows but y has none"),
        ({}, NAN, X, "of X has NaN"),
        ({}, X, NAN, r"of y \(the positives\) has NaN"),
        ({}, X, np.where(X > 2, np.inf, X * 1e3) * 1e3 + np.inf, r"Sample 0 of y \(the positives\) has NaN"),
        ({}, X, np.zeros(10), "two such groups"),
        ({}, X, np.arange(10), "two such groups"),
        ({}, X, np.array([np.nan, *[0, 1, 2] * 3]), "y is missing for"),
        ({}, X, np.array([None, *"abc" * 3]), "y is missing for"),
        ({}, X, np.array([math.nan, *"abc" * 3], dtype=object), "y is missing for"),
        ({}, X, X[:, :2], r"y must be an array of positives .* got shape \(10, 2\)"),
        ({}, X, X[:, None], r"got shape \(10, 1, 3\)"),
        ({}, X[:1], None, r"Found array with 1 sample\(s\).*minimum of 2 is required by Contrast"),
        ({}, X[:2], None, r"There is 1 pair in n_samples=2.*at least 2"),
        ({}, X[:, 0], None, r"^Contrast: .* got shape \(10,\)\. Reshape your data: [^\n]*$"),
        ({}, X + 1j, None, r"^Contrast: Complex data not supported: X is complex128\. Give real [^\n]*$"),
        ({"n_components": 4}, X, X, "n_components=4 is more than n_features=3"),
        ({"n_components": 0}, X, X, "n_components == 0, must be >= 1"),
        ({"batch_size": 11}, X, X, "batch_size=11 is larger than the 10 pairs in the data. Leave it at None"),
        ({"batch_size": 10}, X, None, "batch_size=10 is larger than the 9 pairs in the data"),
        ({"batch_size": 1}, X, X, "batch_size == 1, must be >= 2"),
        ({"p": 0.5}, X, X, "p == 0.5, must be >= 1"),
        ({"p": math.inf, "space": Reals()}, X, X, "p must be finite, got inf"),
        ({"temperature": 0}, X, X, "temperature == 0, must be > 0"),
        ({"temperature": -1.0}, X, X, "temperature == -1.0, must be > 0"),
        ({"max_iter": 0}, X, X, "max_iter == 0, must be >= 1"),
        ({"learning_rate": 0}, X, X, "learning_rate == 0, must be > 0"),
        ({"trainer": Trainer(weight_decay=-1)}, X, X, "weight_decay == -1, must be >= 0"),
        ({"trainer": Trainer(patience=0)}, X, X, "patience == 0, must be >= 1"),
        ({"loss": PairLoss(self_negatives=True)}, X, X, "self_negatives"),
        ({"loss": PairLoss(0)}, X, X, "alpha == 0, must be > 0"),
        ({"loss": PairLoss(1.0)}, X, X, "alpha == 1.0, must be < 1"),
        ({"space": Box()}, X, X, r"space must be Sphere\(\) or Reals\(\), got Box"),
        ({"random_state": None, "trainer": Trainer(checkpoint="x")}, X, X, "random_state must be an integer"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_cause_and_remedy(tmp_path, monkeypatch, parameters, X, y, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(X, y)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": "two"}, "n_components must be an instance of int"),
        ({"max_iter": 2.5}, "max_iter must be an instance of int"),
        ({"temperature": "cold"}, "temperature must be an instance of float"),
        ({"loss": PairLoss("half")}, "alpha must be an instance of float"),
    ],
)
def test_a_parameter_of_the_wrong_type_is_refused(parameters, message):
    with pytest.raises(TypeError, match=message):
        quick(**parameters).fit(X, X)


def test_a_checkpoint_that_cannot_be_written_is_found_out_before_training(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot be written"):
        quick(trainer=Trainer(checkpoint=tmp_path / "file" / "fit")).fit(X, X)


def test_a_simulation_with_fewer_observed_variables_than_components_is_refused():
    with pytest.raises(ValueError, match="n_components=4"):
        quick(4).fit_process(Pairs.on_sphere(3, 10.0, random_state=0))


def test_other_data_than_those_fitted_are_refused():
    with pytest.raises(ValueError, match="expecting"):
        trained().transform(X[:, :2])
    with input_error("X"):
        trained().transform(NAN)
    with input_error("y"):
        trained().score(X, X[:9])


def test_an_unfitted_estimator_says_so():
    for use in (quick().transform, quick().score):
        with pytest.raises(ValueError, match="Contrast"):
            use(X)


def test_the_space_of_a_single_latent_is_the_real_line():
    est = quick(n_components=1).fit(X, X)
    assert est.encoder_.space == Reals()
    assert est.guarantee is theory.CONTRAST_METRIC


@pytest.mark.parametrize(
    ("parameters", "y", "error", "message"),
    [
        ({"encoder": "mlp"}, X, TypeError, "`encoder` must be a function"),
        ({"encoder": lambda n_in, n_out: nn.Linear(n_in, 5)}, X, ValueError, r"to \(2, 5\), not to \(2, 3\). Let"),
        ({"learning_rate": math.nan}, X, ValueError, "learning_rate must be finite, got nan"),
        ({"temperature": math.inf}, X, ValueError, "temperature must be finite, got inf"),
        ({"random_state": "a"}, X, TypeError, "random_state must be an integer, .* got 'a'"),
        ({"device": "cuda:99"}, X, ValueError, "cannot be used here"),
        ({}, [0, 0, *range(1, 9)], ValueError, "two such groups"),
        ({}, np.array([0, "a"] * 5, dtype=object), ValueError, "mixes types that cannot be compared"),
    ],
)  # fmt: skip
def test_odd_parameters_and_groups_are_refused_with_cause_and_remedy(parameters, y, error, message):
    with pytest.raises(error, match=message):
        quick(**parameters).fit(X, y)


def test_an_array_is_no_simulation():
    with pytest.raises(TypeError, match="process"):
        quick().fit_process(X)
