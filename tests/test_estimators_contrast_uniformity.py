"""Contrast by alignment and uniformity, two parts whose weight moves the temperature."""

import warnings
from functools import cache

import numpy as np
import pytest
import torch
from contrasting import pairs, quick, thorough, trained

from pindown.errors import IdentifiabilityWarning
from pindown.methods import PairLoss
from pindown.methods.contrast.objective import best_temperature
from pindown.metrics import linear_r2
from pindown.simulate import Pairs
from pindown.simulate.distributions import Around, VonMisesFisher
from pindown.simulate.mixing import leaky_relu_mlp
from pindown.training import Trainer


@cache
def aligned(alpha=0.5):
    return thorough(loss=PairLoss(alpha)).fit(pairs(3_000).x, pairs(3_000).x_pos)


@pytest.mark.parametrize("alpha", [0.3, 0.5])
@pytest.mark.slow
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
        best = best_temperature(aligned(0.3).objective_, x, x_pos)
        losses = [aligned(0.3).objective_.infonce(x, x_pos, temperature=best * factor) for factor in (0.9, 1, 1.1)]
    assert min(losses) == losses[1]
    assert 1 / best == pytest.approx(10, rel=0.1)  # not the 4.283 of the fit


def fitted_to_near_partners(**parameters):
    data = Pairs.on_sphere(3, 1_000.0, random_state=0).sample(400, random_state=1)
    return quick(batch_size=32, max_iter=100, learning_rate=1e-2, **parameters).fit(data.x, data.x_pos)


@pytest.mark.slow
def test_a_temperature_that_nothing_holds_is_warned_of():
    with pytest.warns(IdentifiabilityWarning, match=r"alpha=0\.7"):
        fitted_to_near_partners(loss=PairLoss(0.7))


@pytest.mark.parametrize(
    "parameters",
    [
        {"loss": PairLoss(0.7), "temperature": 0.01},
        {"loss": PairLoss()},
        {"loss": PairLoss(0.7, any_marginal=False, self_negatives=True)},
    ],
)
@pytest.mark.slow
def test_a_temperature_that_is_given_or_infonces_own_cannot_run_away(parameters):
    assert 1 / fitted_to_near_partners(**parameters).temperature_ < 1e4  # and a warning would be an error


@pytest.mark.slow
def test_latents_that_are_not_uniform_need_a_learned_density_whatever_the_loss():
    marginal = Around((1.0, 0.0, 0.0), VonMisesFisher(4.0))
    cap = Pairs(marginal, VonMisesFisher(10.0), leaky_relu_mlp(3, random_state=0))
    test = cap.sample(2_000, random_state=1)

    def recovered(any_marginal):
        options = {"max_iter": 150, "batch_size": 256, "learning_rate": 1e-2, "trainer": Trainer(weight_decay=0.0)}
        fitted = quick(loss=PairLoss(0.5, any_marginal=any_marginal), **options).fit_process(cap)
        return linear_r2(fitted.transform(test.x), test.z)

    assert recovered(True) > 0.99 > 0.975 > recovered(False)


@pytest.mark.parametrize("related", [False, True])
@pytest.mark.slow
def test_latents_that_predict_nothing_of_held_out_samples_have_collapsed(related):
    x, x_pos = pairs(1_500).x, pairs(1_500).x_pos
    partners = x_pos if related else np.random.default_rng(0).permutation(x_pos)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quick(loss=PairLoss(0.5), max_iter=200).fit(x, partners)
    said = [w for w in caught if "latents have collapsed, or positives share nothing: on 150" in str(w.message)]
    assert len(said) == (not related)
