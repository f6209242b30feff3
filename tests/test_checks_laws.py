"""Laws of positives, clusters and marginals: told from others where data decide, and undecided where they cannot."""

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Projected

from pindown.auditing.checks.distributions import (
    even_conditional,
    lp_conditional,
    matching_model,
    related_pairs,
    tail_index,
    uniform_in_body,
    uniform_on_sphere,
    vmf_clusters,
    vmf_conditional,
)
from pindown.errors import InputError
from pindown.networks.spaces import Box
from pindown.simulate import Pairs
from pindown.simulate.distributions import Around, Uniform, VonMisesFisher, laplace, normal

SEEDS = (0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)))


def rng(seed=0):
    return np.random.default_rng(seed)


# Laws of positives and clusters.


@pytest.mark.parametrize("seed", SEEDS)
def test_positives_of_a_vmf_law_are_distinguished_from_those_of_a_laplace_law(seed):
    z = Uniform(4).sample(2_000, random_state=seed)
    for law, outcome in ((VonMisesFisher(10.0), "holds"), (Projected(laplace(0.2)), "fails")):
        assert vmf_conditional(z, law.sample(z, random_state=seed + 1)).outcome == outcome


def test_few_positives_do_not_decide_their_law():
    z = Uniform(4).sample(12, random_state=0)
    assert vmf_conditional(z, VonMisesFisher(10.0).sample(z, random_state=1)).outcome == "undecided"


def test_a_sphere_of_two_points_and_identical_positives_decide_nothing():
    assert vmf_conditional(np.ones((9, 1)), -np.ones((9, 1))).outcome == "undecided"
    assert vmf_conditional(np.eye(3), np.eye(3)).outcome == "undecided"
    assert matching_model(np.eye(3), np.eye(3), 2).outcome == "undecided"


def test_very_tight_positives_are_judged_too():
    z = Uniform(3).sample(2_000, random_state=0, dtype=torch.float64)
    assert vmf_conditional(z, VonMisesFisher(1e6).sample(z, random_state=1)).outcome == "holds"


@pytest.mark.parametrize("beta", [1.0, 2.0, 3.0])
def test_the_tail_index_is_the_power_in_the_exponent(beta):
    sizes = rng().gamma(3 / beta, size=(40, 4_000)) ** (1 / beta)  # the radius of exp(−r^β) in three dimensions
    found = [tail_index(size, 3, sphere=False) for size in sizes]
    assert np.mean([abs(index.value - beta) for index in found]) < 0.05 * beta
    assert np.mean([index.high - index.low for index in found]) < 0.11 * beta
    assert np.mean([index.low <= beta <= index.high for index in found]) > 0.6  # of 40 intervals of 90 %, ± .05


def test_clusters_are_judged_around_given_vectors_or_their_own_means():
    vectors = torch.eye(3)
    labels = torch.arange(3).repeat(400)
    for law, outcome in ((VonMisesFisher(10.0), "holds"), (Projected(laplace(0.3)), "fails")):
        codes = law.sample(vectors[labels], random_state=0)
        assert vmf_conditional(codes, vectors[labels]).outcome == outcome
        assert vmf_clusters(codes, labels).outcome == outcome


def test_few_members_do_not_decide_the_law_of_clusters():
    labels = torch.arange(3).repeat(8)
    codes = VonMisesFisher(10.0).sample(torch.eye(3)[labels], random_state=0)
    assert vmf_clusters(codes, labels).outcome == "undecided"


def in_box(seed, law, n=2_000):
    sample = Pairs.on_box(3, law, random_state=seed).sample(n, random_state=seed)
    return sample.z, sample.z_pos


@pytest.mark.parametrize("seed", SEEDS)
def test_the_norm_of_the_model_must_be_that_of_the_conditional(seed):
    for law, p in ((normal(0.1), 2), (laplace(0.1), 1)):
        pairs = in_box(seed, law)
        assert matching_model(*pairs, p).outcome == "holds"
        assert matching_model(*pairs, 3 - p).outcome == "fails"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_normal_law_singles_out_no_axes(seed):
    assert lp_conditional(*in_box(seed, laplace(0.1))).outcome == "holds"
    assert lp_conditional(*in_box(seed, normal(0.1))).outcome == "fails"


def test_few_pairs_decide_neither_norm_nor_axes():
    pairs = in_box(0, normal(0.1), n=10)
    assert matching_model(*pairs, 2).outcome == "undecided"
    assert lp_conditional(*pairs).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_metric_conditional_is_alike_everywhere(seed):
    z = rng(seed).uniform(size=(2_000, 3))
    noise = rng(seed + 100).normal(size=z.shape)
    assert even_conditional(z, z + 0.1 * noise).outcome == "holds"
    assert even_conditional(z, z + (0.02 + 0.25 * z[:, :1] ** 2) * noise).outcome == "fails"


def test_a_slightly_uneven_conditional_is_undecided():
    z = rng().uniform(size=(150, 2))
    noise = rng(1).normal(size=z.shape)
    assert even_conditional(z, z + (1.5 + z[:, :1]) * noise).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_positives_are_related_unless_they_are_shuffled(seed):
    sample = Pairs.on_sphere(3, 10.0, random_state=seed).sample(300, random_state=seed)
    assert related_pairs(sample.x, sample.x_pos).outcome == "holds"
    assert related_pairs(sample.x, sample.x_pos.roll(7, 0)).outcome == "fails"


def test_weakly_related_positives_are_undecided():
    x, noise = rng(2).normal(size=(2, 300, 2))
    assert related_pairs(x, 0.2 * x + noise).outcome == "undecided"


def test_positives_must_match_row_by_row():
    with pytest.raises(InputError) as error:
        related_pairs(np.ones((5, 2)), np.ones((4, 2)))
    assert error.value.argument == "positives"


# Marginals.


@pytest.mark.parametrize("seed", SEEDS)
def test_a_uniform_sphere_is_distinguished_from_one_gathered_at_a_pole(seed):
    pole = Around((1.0, 0.0, 0.0), Projected(normal(1.0)))
    for law, outcome in ((Uniform(3), "holds"), (pole, "fails")):
        assert uniform_on_sphere(law.sample(1_000, random_state=seed)).outcome == outcome


def test_forty_points_do_not_decide_a_uniform_sphere():
    assert uniform_on_sphere(Uniform(3).sample(40, random_state=0)).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_uniform_box_is_distinguished_from_a_normal_law(seed):
    normal_law = Around((0.0,) * 3, normal(1.0))
    for law, outcome in ((Uniform(3, Box()), "holds"), (normal_law, "fails")):
        assert uniform_in_body(law.sample(2_000, random_state=seed)).outcome == outcome


def test_fifty_points_do_not_decide_a_uniform_box():
    assert uniform_in_body(Uniform(3, Box()).sample(50, random_state=1)).outcome == "undecided"
