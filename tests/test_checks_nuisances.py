"""Nuisances that can be forgotten, those that cannot, and latents that still tell them."""

import math

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Confounded, ShapeNuisance

from pindown.auditing.checks.nuisances import (
    invariant_latents,
    overlapping_levels,
    same_covariance,
    surviving_dimensions,
    unconfounded,
)
from pindown.errors import InputError
from pindown.simulate import Nuisance, Pairs

SEEDS = (0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)))


def rng(seed=0):
    return np.random.default_rng(seed)


# Nuisances.


@pytest.mark.parametrize("seed", SEEDS)
def test_what_survives_a_nuisance_is_what_its_means_do_not_span(seed):
    sample = Nuisance.on_sphere(6, 3, 5.0, n_layers=1, random_state=seed).sample(3_000, random_state=seed)
    assert surviving_dimensions(sample.x, sample.u, 4).outcome == "holds"
    verdict = surviving_dimensions(sample.x, sample.u, 5)
    assert verdict.outcome == "fails"
    assert "ask for 4" in verdict.why


def test_a_faint_shift_leaves_undecided_what_survives():
    e = np.arange(200) % 2
    x = rng().normal(size=(200, 3)) + 0.5 * e[:, None] * [1, 0, 0]
    assert surviving_dimensions(x, e, 3).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_nuisance_of_shape_is_distinguished_from_one_of_means(seed):
    of_means = Nuisance.on_sphere(6, 3, 5.0, n_layers=1, random_state=seed)
    of_shape = ShapeNuisance.spread(6, 2, 3, n_layers=1, random_state=seed)
    for world, outcome in ((of_means, "holds"), (of_shape, "fails")):
        sample = world.sample(3_000, random_state=seed)
        assert same_covariance(sample.x, sample.u).outcome == outcome


def test_a_hundred_rows_do_not_decide_spreads():
    assert same_covariance(rng().normal(size=(100, 4)), np.arange(100) % 2).outcome == "undecided"


def test_nothing_is_left_to_compare_where_means_span_everything():
    e = np.arange(300) % 3
    x = 5 * np.eye(3)[e][:, :2] + rng().normal(size=(300, 2))
    verdict = same_covariance(x, e)
    assert verdict.outcome == "undecided"
    assert math.isnan(verdict.statistic)


def test_values_overlap_or_lie_apart():
    e = np.arange(600) % 3
    x = rng().normal(size=(600, 3))
    for shift, outcome in ((2, "holds"), (20, "fails")):
        assert overlapping_levels(x + shift * np.eye(3)[e], e).outcome == outcome
    assert overlapping_levels(x[:30] + 20 * np.eye(3)[e[:30]], e[:30]).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_label_that_goes_with_the_nuisance_is_confounded(seed):
    for crossed, outcome in ((0.5, "holds"), (0.2, "fails")):
        joint = torch.tensor([[1 - crossed, crossed], [crossed, 1 - crossed]])
        world = Confounded(torch.eye(2), torch.tensor([[-1.0], [1.0]]), joint, Pairs.on_sphere(3, 1.0).mixing)
        sample = world.sample(2_000, random_state=seed)
        assert unconfounded(sample.label, sample.u).outcome == outcome


def test_forty_rows_do_not_decide_confounding():
    label = np.repeat([0, 1], 20)
    e = np.tile([0, 1], 20)
    e[[0, 1]] = 1
    assert unconfounded(label, e).outcome == "undecided"


def test_leaking_latents_are_found_and_collapsed_ones_prove_nothing():
    e = np.arange(2_000) % 2
    z = rng(1).normal(size=(2_000, 2))
    told = [invariant_latents(codes, e).outcome for codes in (z, z + e[:, None], np.ones_like(z))]
    assert told == ["holds", "fails", "undecided"]


def test_a_nuisance_of_one_value_cannot_be_forgotten():
    with pytest.raises(InputError) as error:
        same_covariance(np.eye(3), [1, 1, 1])
    assert error.value.argument == "nuisance"
