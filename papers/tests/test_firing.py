"""At which samples features fire: numbers derived by hand, and input that cannot be used."""

import numpy as np
import pytest
from pindown_papers.firing import firing_f1
from scipy.sparse import csr_array

from pindown.errors import InputError

RNG = np.random.default_rng(0)
ACTIVATIONS = RNG.normal(size=(400, 20)) * (RNG.random((400, 20)) < 0.2)


def test_f1_sees_samples_that_are_missed_and_samples_too_many_but_not_strength():
    true, order = (ACTIVATIONS != 0).astype(float), np.arange(20)
    assert firing_f1(7 * true, true, order) == 1
    half = true * (np.arange(400) < 200)[:, None]
    hits, all_ = half.sum(0), true.sum(0)
    assert firing_f1(half, true, order) == pytest.approx((2 * hits / (hits + all_)).mean())
    assert firing_f1(half, true, order) == pytest.approx(firing_f1(true, half, order), abs=1e-9)


def test_a_feature_without_a_match_counts_as_zero_and_one_that_never_fires_not_at_all():
    true = np.array([[1, 0, 1], [1, 0, 0]])
    assert firing_f1(true, true, [0, 1, -1]) == 0.5


@pytest.mark.parametrize("as_read", [np.asarray, csr_array])
def test_activations_may_be_dense_or_sparse(as_read):
    assert firing_f1(as_read(ACTIVATIONS), as_read(ACTIVATIONS), np.arange(20)) == 1


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("activations_hat", lambda: firing_f1(ACTIVATIONS[:5], ACTIVATIONS, np.arange(20))),
        ("matching", lambda: firing_f1(ACTIVATIONS, ACTIVATIONS, np.arange(19))),
        ("activations", lambda: firing_f1(ACTIVATIONS, 0 * ACTIVATIONS, np.arange(20))),
    ],
)
def test_bad_input_raises_and_names_the_argument(argument, call):
    with pytest.raises(InputError) as raised:
        call()
    assert raised.value.argument == argument
