"""Encoders and supports: directions, folds, life, diversity and bends, where they are and where they are not."""

import math

import numpy as np
import pytest
from pindown_papers import supports

from pindown.auditing.checks.encoders import (
    distinct_latents,
    enough_directions,
    injective_encoder,
    many_negatives,
    structure_kept,
)
from pindown.auditing.checks.noise import noise_left
from pindown.auditing.checks.supports import diverse_support, independent_blocks, sufficient_nonlinearity
from pindown.errors import InputError
from pindown.networks.folding import Folding
from pindown.simulate import Pairs, Structured

SEEDS = (0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)))


def rng(seed=0):
    return np.random.default_rng(seed)


# Encoders.


def test_data_vary_in_enough_directions_too_few_or_barely():
    z = rng().normal(size=(400, 2))
    x = np.hstack([z, z.sum(1, keepdims=True)])
    assert enough_directions(x, 2).outcome == "holds"
    assert enough_directions(x, 3).outcome == "fails"
    assert enough_directions(x + 1e-3 * rng(1).normal(size=x.shape), 3).outcome == "undecided"
    assert "3 features" in enough_directions(x, 4).why


@pytest.mark.parametrize("seed", SEEDS)
def test_latents_that_leave_one_out_cannot_predict_the_observations(seed):
    sample = Pairs.on_sphere(4, 10.0, random_state=seed).sample(2_000, random_state=seed)
    x, z = sample.x.numpy(), sample.z.numpy()
    assert structure_kept(lambda x: z, x).outcome == "holds"
    assert structure_kept(lambda x: z[:, :2], x).outcome == "fails"


def noisy_columns(share, n_latents=3, n_columns=30, n=1_500):
    """Return rows of a linear simulation with noise of single columns, and the map back to its latents."""
    lift = rng().normal(size=(n_latents, n_columns))
    lift /= np.linalg.norm(lift, axis=0)
    signal = rng(1).normal(size=(n, n_latents)) @ lift
    return signal + math.sqrt(share / (1 - share)) * rng(2).normal(size=signal.shape), np.linalg.pinv(lift)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_latents_must_predict_the_signal_of_noisy_features_and_a_missing_latent_shows(share):
    x, back = noisy_columns(share)
    assert noise_left(lambda x: x @ back, x).fraction == pytest.approx(share, abs=0.03)
    assert structure_kept(lambda x: x @ back, x).outcome == "holds"
    missed = structure_kept(lambda x: x @ back[:, :2], x)
    assert missed.outcome == "fails"
    assert missed.statistic == pytest.approx(2 / 3, abs=0.12)
    assert "2 latents" in missed.why


THREE = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]]


def folded(z):
    """Return latents that are equal for samples that differ in the sign of the first."""
    return np.column_stack([np.abs(z[:, 0]), z[:, 1:]])


@pytest.mark.parametrize("seed", SEEDS)
def test_nonlinear_latents_distinguish_samples_and_folded_ones_do_not(seed):
    sample = Structured.well_posed(THREE, n_candidates=5, random_state=seed).sample(800, random_state=seed)
    x, z = sample.x.numpy(), sample.z.double().numpy()
    bent = z + 0.3 * np.sin(z[:, ::-1])
    assert distinct_latents(lambda x: bent, x).outcome == "holds"
    laid_on_each_other = distinct_latents(lambda x: folded(bent), x)
    assert laid_on_each_other.outcome == "fails"
    assert laid_on_each_other.statistic > 0.1
    assert "merges" in laid_on_each_other.why


def test_noise_by_which_rows_with_one_latent_differ_is_no_fold_and_a_fold_shows_through_it():
    x, back = noisy_columns(0.3)
    assert distinct_latents(lambda x: x @ back, x).outcome != "fails"
    assert distinct_latents(lambda x: folded(x @ back), x).outcome == "fails"


def test_few_rows_in_many_dimensions_do_not_say_whether_latents_are_folded():
    z = rng().normal(size=(300, 10))
    x = np.hstack([z, np.sin(2 * z @ rng(1).normal(size=(10, 10)))])
    assert distinct_latents(lambda x: z, x).outcome == "undecided"
    few = distinct_latents(lambda x: z[:50], x[:50])
    assert (few.outcome, math.isnan(few.statistic)) == ("undecided", True)


def test_few_columns_show_no_noise_and_what_latents_leave_of_them_is_signal():
    z = rng().normal(size=(2_000, 2))
    x = z + 0.4 * rng(1).normal(size=z.shape)
    assert not noise_left(lambda x: z, x).decided
    assert structure_kept(lambda x: z, x).outcome == "undecided"


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_what_latents_leave_is_noise_only_if_columns_do_not_share_it(share):
    x, back = noisy_columns(share, n_latents=2, n_columns=10)
    assert noise_left(lambda x: x @ back, x).fraction == pytest.approx(share, abs=0.05)
    left_out = noise_left(lambda x: x @ back[:, :1], x)
    assert left_out.is_nil
    assert not left_out.decided


def test_folds_become_verdicts():
    cases = {(0.4, 0.01, 0): "fails", (0.0, 0.0, 1): "fails", (0.02, 0.01, 0): "holds", (0.2, 0.1, 0): "undecided"}
    for (share, doubt, flat), outcome in cases.items():
        assert injective_encoder(Folding(share, doubt, flat, 2_000)).outcome == outcome
    assert injective_encoder(Folding(math.nan, math.nan, 0, 50)).outcome == "undecided"


def test_negatives_bound_the_information_they_can_show():
    outcomes = [many_negatives(math.log(16), m).outcome for m in (512, 32, 16)]
    assert outcomes == ["holds", "undecided", "fails"]


# Structure.


def test_a_support_is_diverse_if_a_wide_gap_says_so():
    strong = supports.diverse(6, 3, random_state=0)
    assert diverse_support(strong, 0.1).outcome == "holds"
    assert diverse_support(np.where(strong, 0.7, 0.1), 0.2).outcome == "holds"
    assert diverse_support(np.ones((6, 3)), 0.1).outcome == "fails"
    assert diverse_support(np.where(strong, 1, 0.17), 0.1).outcome == "undecided"  # 6 to 1 for it and against


def test_strengths_without_a_gap_are_all_edges():
    spread = np.linspace(0.1, 1, 18)[rng().permutation(18)].reshape(6, 3)
    assert diverse_support(spread, 0.07).outcome == "fails"
    assert diverse_support(spread, 0.4).outcome == "undecided"  # a cut that nothing speaks for


def test_latents_that_reach_the_same_variables_are_named():
    table = [[1, 1, 0], [1, 1, 1], [0, 0, 1]]
    assert "[0, 1] reach the same features" in diverse_support(table, 0.5).why
    assert "[2] reach no feature" in diverse_support([[1, 0, 0], [0, 1, 0]], 0.5).why


def test_two_latents_of_one_angle_are_not_independent_however_little_they_correlate():
    rng = np.random.default_rng(0)
    angle, others = rng.uniform(0, 0.8 * 2 * np.pi, 1_000), rng.normal(size=(1_000, 4))
    bent = independent_blocks(0.0, 0.025, np.column_stack([np.cos(angle), np.sin(angle), others]), np.eye(6))
    assert bent.outcome == "fails"
    assert "latents 0 and 1" in bent.why
    assert bent.statistic > 0.8  # nats, of which two normal latents that correlate by .87 share .7
    assert independent_blocks(0.0, 0.025, np.column_stack([angle, others]), np.eye(5)).outcome == "holds"
    together = np.array([[1, 1, 0, 0, 0, 0], *np.eye(6, dtype=int)[2:]])
    codes = np.column_stack([np.cos(angle), np.sin(angle), others])
    assert independent_blocks(0.0, 0.025, codes, together).outcome == "holds"  # within a block they may


@pytest.mark.parametrize("seed", SEEDS)
def test_nonlinear_variables_are_distinguished_from_linear_ones(seed):
    support = supports.diverse(6, 3, random_state=seed)
    world = Structured.from_support(support, random_state=seed)
    z = world.sample(500, random_state=seed).z.double()
    bent = world.mixing.gradients(z)
    assert sufficient_nonlinearity(bent, support).outcome == "holds"
    straight = np.broadcast_to(support * rng(seed).normal(size=support.shape), bent.shape)
    assert sufficient_nonlinearity(straight, support).outcome == "fails"


def test_barely_nonlinear_variables_are_undecided_and_single_ones_may_be_linear():
    straight = np.ones((500, 1, 2))
    barely = straight + 0.06 * rng().normal(size=straight.shape) * [1, 0]
    assert sufficient_nonlinearity(barely, [[1, 1]]).outcome == "undecided"
    assert sufficient_nonlinearity(straight, [[1, 0]]).outcome == "holds"
    with pytest.raises(InputError) as error:
        sufficient_nonlinearity(np.ones((5, 2, 2)), [[1, 1]])
    assert error.value.argument == "jacobians"
