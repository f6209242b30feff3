import math

import numpy as np
import pytest
import torch
from contrasting import codes, pairs, quick, thorough, trained, world
from torch import nn

from pindown import Data, theory
from pindown.methods import Contrast, PairLoss
from pindown.methods.contrast import estimator as contrast
from pindown.metrics import linear_r2
from pindown.networks.spaces import Reals, Sphere
from pindown.simulate import Clusters, Pairs
from pindown.simulate.distributions import VonMisesFisher, laplace
from pindown.simulate.mixing import leaky_relu_mlp
from pindown.training import Trainer

# what y may be


def test_positives_recover_the_latents():
    test = pairs(2_000, seed=2)
    assert linear_r2(test.x, test.z) < 0.95
    assert linear_r2(codes(trained(), test.x), test.z) > 0.98


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.slow
def test_groups_recover_the_latents_when_rows_of_a_group_are_positives():
    data, test = pairs(3_000), pairs(2_000, seed=2)
    X, groups = np.concatenate([data.x, data.x_pos]), np.tile(np.arange(3_000), 2)
    fitted = thorough().fit(X, groups)
    assert linear_r2(codes(fitted, test.x), test.z) > 0.98
    strangers = thorough().fit(X, np.random.default_rng(0).permutation(groups))
    assert linear_r2(codes(strangers, test.x), test.z) < 0.95


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.slow
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


# attributes


def test_the_loss_of_every_step_is_kept():
    fitted = quick(batch_size=64).fit(pairs().x, pairs().x_pos)
    assert (fitted.n_iter_, fitted.loss_curve_.shape) == (30, (30,))
    assert 0 < fitted.loss_curve_[-1] < fitted.loss_curve_[0] < math.log(64) + 0.5
    assert fitted.n_features_in_ == 3


@pytest.mark.slow
def test_patience_stops_a_fit_that_no_longer_improves():
    stubborn = quick(max_iter=500, trainer=Trainer(patience=25), learning_rate=1e-12).fit(pairs().x, pairs().x_pos)
    assert stubborn.n_iter_ == 50


@pytest.mark.slow
def test_a_given_temperature_stays_and_a_missing_one_is_learned():
    assert quick(temperature=0.3).fit(pairs().x, pairs().x_pos).temperature_ == 0.3
    assert 1 / trained().temperature_ == pytest.approx(10, rel=0.15)  # the concentration of the simulation


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_the_encoder_is_the_requested_one():
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
        ({"loss": PairLoss(0.5)}, theory.CONTRAST_SPHERE),
        ({"loss": PairLoss(0.5), "space": Reals(), "p": 1}, theory.CONTRAST_LP),
        ({"loss": PairLoss(0.4)}, None),  # no theorem for another weight
    ],
)
def test_the_guarantee_follows_from_the_parameters(parameters, theorem):
    assert Contrast(**parameters).guarantee == theorem


# score


def test_the_score_of_unrelated_positives_is_not_above_zero_and_that_of_related_ones_is():
    test = pairs(2_000, seed=2)
    assert trained().score(test.x, test.x_pos) > 1
    assert trained().score(test.x, np.roll(test.x_pos, 1, axis=0)) < 0
    assert trained().score(Data(test.x, pairs=test.x_pos)) == trained().score(test.x, test.x_pos)
    assert trained().score(Data(test.x, pairs="next")) == trained().score(test.x)


def test_latents_that_show_nothing_score_zero():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.ones_like(x)

    with pytest.warns(UserWarning, match="collapsed"):
        blind = quick(encoder=lambda n, d: Constant(), max_iter=2).fit(pairs().x, pairs().x_pos)
    # Two steps of the potential leave −1.4e-6 ± .6e-6, over seeds.
    assert blind.score(pairs().x, pairs().x_pos) == pytest.approx(0, abs=1e-5)


def test_the_score_does_not_depend_on_the_order_of_the_rows_much_nor_on_global_chance():
    test = pairs(2_000, seed=2)
    scores = [trained().score(test.x, test.x_pos) for _ in range(2)]
    assert scores[0] == scores[1]
    assert trained().score(test.x[::-1], test.x_pos[::-1]) == pytest.approx(scores[0], abs=1e-6)


def test_no_score_exceeds_the_log_of_the_rows_compared(monkeypatch):
    test = pairs(2_000, seed=2)
    monkeypatch.setattr(contrast, "SCORE_PAIRS", 4)
    assert 0.5 < trained().score(test.x, test.x_pos) < math.log(4)


@pytest.mark.slow
def test_related_samples_are_not_negatives_because_they_are_neighbours(monkeypatch):
    # 40 groups of 50 rows: compared within its group no row is given from another, compared across groups it is.
    centres = np.repeat(Sphere().uniform(40, 3, random_state=0).numpy(), 50, axis=0)
    X = centres + 0.1 * np.random.default_rng(0).normal(size=centres.shape)
    groups = np.arange(2_000) // 50
    fitted = thorough().fit(X, groups)
    monkeypatch.setattr(contrast, "SCORE_PAIRS", 50)
    assert fitted.score(X, groups) > 1


def test_the_trained_modules_stay_in_float32_whatever_is_computed_with_them():
    fitted = quick(max_iter=2).fit(pairs().x, pairs().x_pos)
    fitted.transform(pairs().x)
    fitted.score(pairs().x, pairs().x_pos)
    assert {w.dtype for w in fitted.objective_.parameters()} == {torch.float32}


# simulations


def test_a_simulation_is_learned_from_fresh_samples():
    test = pairs(2_000, seed=2)
    fitted = thorough().fit_process(world())
    assert linear_r2(codes(fitted, test.x), test.z) > 0.98
    assert fitted.n_features_in_ == 3


def test_a_simulation_without_positives_is_refused():
    clusters = Clusters.on_sphere(3, 5, 10.0, random_state=0)
    with pytest.raises(ValueError, match="Clusters"):
        quick().fit_process(clusters)


def test_distances_on_a_box_simulation_are_learned_in_the_reals():
    box = Pairs.on_box(2, laplace(0.05), random_state=0)
    data, test = box.sample(3_000, random_state=1), box.sample(2_000, random_state=2)
    fitted = thorough(2, space=Reals(), p=1).fit(data.x, data.x_pos)
    assert linear_r2(fitted.transform(test.x), test.z) > 0.99
