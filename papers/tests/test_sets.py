from dataclasses import astuple
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pindown_papers.sets import (
    chance_set_scores,
    chance_shd,
    chance_support_f1,
    match_supports,
    mcc_above_chance,
    set_scores,
    shd,
    support_f1,
)
from sklearn.linear_model import LinearRegression

from pindown.errors import InputError
from pindown.metrics import chance_mcc, match_latents

modest = settings(deadline=None, max_examples=50)
# z_0 is seen by x_0 alone, z_1 and z_2 by both, z_3 by x_1 alone.
SHARED = np.array([[1, 1, 1, 0], [0, 1, 1, 1]])
SEEDS = range(5)
CHANCE = astuple(chance_set_scores(SHARED, 0, 1, n_draws=4000))


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def random_orthogonal(rng, d):
    return np.linalg.qr(rng.normal(size=(d, d))).Q


@st.composite
def pairs_of_supports(draw, rows=4, most=4):
    d = draw(st.integers(1, most))
    found, true = (draw(arrays(bool, (rows, d))) for _ in range(2))
    true[~true.any(1), 0] = True  # the truth has no empty row or column
    true[0, ~true.any(0)] = True
    return found, true


# ---- set_scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_mixing_within_parts_scores_low_with_a_high_reference(seed):
    z = noise(4000, 4, seed=seed)
    z_hat = z.copy()
    z_hat[:, 1], z_hat[:, 2] = z[:, 1] + 0.5 * z[:, 2], z[:, 2] - 0.5 * z[:, 1]
    scores = set_scores((z_hat + z_hat**3)[:, [2, 0, 3, 1]], z, SHARED, 0, 1, random_state=seed)
    assert max(astuple(scores)[:4]) < 0.02
    assert scores.reference > 0.9


def test_each_score_sees_its_own_leak_and_no_other():
    z = noise(20_000, 4)
    # A column z_i + z_j explains half of z_j (± 1/√10000 = .01); a part of two latents averages it with 0.
    leaks = {
        # column the leak is in, latent that leaks: expected Int, SymDiff, Comp A, Comp B
        (0, 1): (0.25, 0, 0, 0),
        (1, 0): (0, 0.25, 0, 0),
        (3, 0): (0, 0, 0.5, 0),
        (0, 3): (0, 0, 0, 0.5),
        (1, 2): (0, 0, 0, 0),
    }
    for (column, latent), expected in leaks.items():
        z_hat = z.copy()
        z_hat[:, column] += z[:, latent]
        found = astuple(set_scores(z_hat, z, SHARED, 0, 1, matching=range(4), regressor=LinearRegression()))
        assert found[:4] == pytest.approx(expected, abs=0.03)


def test_a_leak_that_no_linear_map_finds_is_found():
    # Column 0 holds an angle whose cosine is z_1; the correlation of the two is 0.
    angle = np.random.default_rng(0).uniform(-np.pi, np.pi, 4000)
    z = np.column_stack([noise(4000), np.cos(angle), noise(4000, seed=1)])
    z_hat = np.column_stack([angle, z[:, 1:]])
    support = [[1, 1, 0], [0, 1, 1]]
    nonlinear, linear = (
        set_scores(z_hat, z, support, 0, 1, matching=range(3), regressor=regressor).intersection
        for regressor in (None, LinearRegression())
    )
    assert nonlinear > 0.95
    assert linear < 0.02


def test_an_independent_embedding_has_low_scores_and_a_low_reference():
    scores = set_scores(noise(4000, 4), noise(4000, 4, seed=1), SHARED, 0, 1)
    assert max(astuple(scores)) < 0.02


def test_latents_that_depend_on_each_other_set_a_floor():
    # Correlation √½ between z_0 and z_1 and between no others: z_0 explains half of z_1.
    z = noise(4000, 4)
    z[:, 1] = (z[:, 0] + z[:, 1]) / np.sqrt(2)
    assert set_scores(z, z, SHARED, 0, 1).intersection == pytest.approx(0.25, abs=0.03)


def test_an_empty_part_has_no_score():
    z = noise(500, 2)
    scores = set_scores(z, z, [[1, 1], [0, 1]], 0, 1)
    assert np.isnan([scores.complement_a, scores.complement_b]).all()
    assert np.isfinite([scores.intersection, scores.symmetric_difference, scores.reference]).all()
    chance = chance_set_scores([[1, 1], [0, 1]], 0, 1)
    assert np.isnan(astuple(chance)).tolist() == np.isnan(astuple(scores)).tolist()


def test_groups_of_observed_variables_count_together():
    z = noise(1000, 4)
    apart = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]])
    assert set_scores(z, z, apart, [0, 1], [2, 3]) == set_scores(z, z, SHARED, 0, 1)


def test_chance_is_what_random_rotations_score():
    rng = np.random.default_rng(0)
    scored = []
    for _ in range(60):
        z = rng.normal(size=(1000, 4))
        z_hat = z @ random_orthogonal(rng, 4)
        scored.append(astuple(set_scores(z_hat, z, SHARED, 0, 1, regressor=LinearRegression())))
    # One score varies by .12 between rotations, so the mean of 2 × 60 by .011. The parts are alike in pairs.
    found, chance = (np.reshape(scores[:4], (2, 2)).mean(1) for scores in (np.mean(scored, axis=0), CHANCE))
    assert found == pytest.approx(chance, abs=0.035)
    assert CHANCE[4] == pytest.approx(1)


def test_scores_depend_on_the_seed_alone_and_take_tensors():
    z = noise(300, 4)
    first = set_scores(z @ np.triu(np.ones((4, 4))), z, SHARED, 0, 1, random_state=3)
    z_hat = torch.tensor(z @ np.triu(np.ones((4, 4))), requires_grad=True)
    assert first == set_scores(z_hat, torch.tensor(z), SHARED, 0, 1, random_state=3)
    assert first != set_scores(z_hat, torch.tensor(z), SHARED, 0, 1, random_state=4)


def raises(argument, function, *inputs, **options):
    with pytest.raises(InputError) as raised:
        function(*inputs, **options)
    assert raised.value.argument == argument


def test_set_scores_raise_and_name_the_argument():
    z = noise(100, 4)
    raises("support", set_scores, z, z, SHARED.T, 0, 1)
    raises("z_hat", set_scores, z[:, :3], z, SHARED, 0, 1)
    raises("z_hat", set_scores, z * [1, 0, 1, 1], z, SHARED, 0, 1)
    raises("observed", set_scores, z, z, SHARED, 0, 2)
    raises("z", set_scores, z[:8], z[:8], SHARED, 0, 1)


@pytest.mark.parametrize("matching", [[0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 4], [0.0, 1.0, 2.0, 3.0], [-2, 0, 1, 2]])
def test_a_matching_must_give_each_latent_a_column_of_its_own(matching):
    z = noise(100, 4)
    raises("matching", set_scores, z, z, SHARED, 0, 1, matching=matching)
    raises("matching", support_f1, SHARED, SHARED, matching=matching)


# ---- matchings ----------------------------------------------------------------------------------------


def test_match_latents_finds_the_columns_whatever_their_order_sign_and_scale():
    z = noise(200, 4)
    order = [2, 0, 3, 1]
    matching = match_latents(z[:, order] * [-1, 2, 3, -4], z)
    assert [order[column] for column in matching] == [0, 1, 2, 3]


def test_match_latents_by_rank_follows_a_nonlinear_map_that_correlation_loses():
    z = noise(300, 2)
    z_hat = np.column_stack([np.exp(6 * z[:, 1]), z[:, 0] + 0.3 * z[:, 1]])
    assert match_latents(z_hat, z, method="spearman").tolist() == [1, 0]


def test_a_latent_without_a_column_is_matched_to_none():
    z = noise(200, 3)
    assert match_latents(z[:, [2, 0]], z).tolist() == [1, -1, 0]
    assert match_supports(np.eye(3)[:, [2, 0]], np.eye(3)).tolist() == [1, -1, 0]


def test_match_latents_raises_for_a_constant_column():
    raises("z_hat", match_latents, noise(50, 2) * [0, 1], noise(50, 2))


# ---- supports -----------------------------------------------------------------------------------------


def test_the_right_support_scores_one_and_its_edges_count_when_wrong():
    true = np.array([[1, 0], [1, 1], [0, 1]])
    assert (support_f1(true, true), shd(true, true)) == (1, 0)
    more, less = true.copy(), true.copy()
    more[0, 1], less[1, 1] = 1, 0
    assert (support_f1(more, true), shd(more, true)) == (pytest.approx(8 / 9), 1)
    assert (support_f1(less, true), shd(less, true)) == (pytest.approx(6 / 7), 1)


def test_an_explicit_matching_sees_a_swap_that_the_best_one_undoes():
    true = np.array([[1, 0], [1, 1], [0, 1]])
    swapped = true[:, ::-1]
    assert (support_f1(swapped, true), shd(swapped, true)) == (1, 0)
    # One edge of four is shared by the columns [1 1 0] and [0 1 1], twice.
    assert (support_f1(swapped, true, matching=[0, 1]), shd(swapped, true, matching=[0, 1])) == (0.5, 4)


def test_columns_that_are_missing_dead_or_too_many_count_as_wrong_edges():
    true = np.eye(3)
    assert (support_f1(true[:, :2], true), shd(true[:, :2], true)) == (0.8, 1)
    dead = true * [1, 1, 0]
    assert (support_f1(dead, true), shd(dead, true)) == (0.8, 1)
    wide = np.column_stack([true, [1, 1, 1]])
    assert (support_f1(wide, true), shd(wide, true)) == (pytest.approx(6 / 9), 3)
    assert support_f1(np.zeros((3, 3)), true) == 0
    assert shd(true, true, matching=[0, 1, -1]) == 2  # an edge that stands for nothing, and one not found


@modest
@given(pairs_of_supports())
def test_the_default_matching_is_the_best_of_all_orders(supports):
    found, true = supports
    orders = [list(order) for order in permutations(range(true.shape[1]))]
    assert support_f1(found, true) == max(support_f1(found, true, matching=order) for order in orders)
    assert shd(found, true) == min(np.sum(found[:, order] != true) for order in orders)


@modest
@given(pairs_of_supports(), st.randoms(use_true_random=False))
def test_support_scores_are_blind_to_the_order_of_columns(supports, random):
    found, true = supports
    d = true.shape[1]
    first, second = random.sample(range(d), d), random.sample(range(d), d)
    assert support_f1(found[:, first], true[:, second]) == support_f1(found, true)
    assert shd(found[:, first], true[:, second]) == shd(found, true)


@pytest.mark.parametrize("rematched", [True, False])
def test_chance_of_a_support_is_the_mean_over_all_placements(rematched):
    true = np.array([[1, 0], [1, 1], [0, 1]])
    placements = []
    for places in combinations(range(6), 3):
        found = np.isin(np.arange(6), places).reshape(3, 2)
        matching = None if rematched else [0, 1]
        placements.append((support_f1(found, true, matching=matching), shd(found, true, matching=matching)))
    f1, distance = np.mean(placements, axis=0)
    # The standard deviation of one draw is about .15, so .003 of a mean of 3000.
    assert chance_support_f1(true, n_edges=3, rematched=rematched, n_draws=3000) == pytest.approx(f1, abs=0.01)
    assert chance_shd(true, n_edges=3, rematched=rematched, n_draws=3000) == pytest.approx(distance, abs=0.07)


def test_chance_rises_with_density_until_it_says_nothing():
    sparse, half = np.eye(6), np.tril(np.ones((6, 6)))
    assert chance_support_f1(sparse) < chance_support_f1(half) < chance_support_f1(np.ones((6, 6)))
    assert chance_support_f1(np.ones((6, 6))) == 1


def test_support_scores_raise_and_name_the_argument():
    raises("support_hat", support_f1, np.eye(2), np.eye(3))
    raises("support_hat", shd, np.eye(3) * 0.5, np.eye(3))
    raises("support", shd, np.eye(2), np.eye(2) * [1, 0] + [[0, 0], [1, 0]])
    raises("n_edges", chance_support_f1, np.eye(3), n_edges=10)


# ---- mcc above chance ---------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 4])
def test_mcc_above_chance_is_zero_for_rotations_and_the_whole_rest_for_the_truth(d):
    rng = np.random.default_rng(d)
    z = noise(1000, d)
    rotated = [mcc_above_chance(z @ random_orthogonal(rng, d), z) for _ in range(40)]
    assert np.mean(rotated) == pytest.approx(0, abs=0.03)  # one varies by .09 (d = 2) or less, the mean of 40 by .014
    assert mcc_above_chance(-z[:, ::-1], z) == pytest.approx(1 - chance_mcc(d), abs=1e-9)


def test_mcc_above_chance_is_negative_for_an_independent_embedding():
    assert mcc_above_chance(noise(1000, 3), noise(1000, 3, seed=1)) < -0.7
