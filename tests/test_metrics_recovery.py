import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pindown.metrics import (
    chance_linear_r2,
    chance_mcc,
    chance_procrustes,
    linear_r2,
    mcc,
    procrustes,
)

METRICS = [linear_r2, mcc, procrustes]
ROTATION_45 = np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
SEEDS = st.integers(0, 2**32 - 1)
modest = settings(deadline=None, max_examples=25)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def random_orthogonal(rng, d):
    return np.linalg.qr(rng.normal(size=(d, d))).Q


# linear_r2


@modest
@given(SEEDS, st.integers(1, 5), st.integers(0, 3))
def test_linear_r2_is_blind_to_invertible_affine_maps(seed, d, extra):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, d))
    # Singular values within [.1, 10] keep the map invertible in floating point; the embedding may be wider than z.
    stretch = np.diag(10 ** rng.uniform(-1, 1, d))
    matrix = random_orthogonal(rng, d) @ stretch @ random_orthogonal(rng, d + extra)[:d]
    assert linear_r2(z @ matrix + rng.normal(size=d + extra), z) == pytest.approx(1, abs=1e-9)


def test_linear_r2_sees_a_squared_latent():
    # z² is uncorrelated with a symmetric z, so that column scores 0 (± 1/√n = .02) and the other 1.
    z = noise(5000, 2)
    assert linear_r2(np.column_stack([z[:, 0], z[:, 1] ** 2]), z) == pytest.approx(0.5, abs=0.01)


def test_linear_r2_of_signal_plus_equal_noise_is_one_half():
    # The regression of z on z + ε has slope ½ and leaves variance ½ (± 1/√2500 = .02).
    z = noise(5000, 3)
    assert linear_r2(z + noise(5000, 3, seed=1), z) == pytest.approx(0.5, abs=0.03)


def test_linear_r2_weighs_all_latents_alike_whatever_their_variance():
    # One latent known, the other unknown and 100 times as large: ½, where pooled variance would give 1/10001.
    z = noise(5000, 2) * [1, 100]
    assert linear_r2(np.column_stack([z[:, 0], noise(5000, seed=1)]), z) == pytest.approx(0.5, abs=0.01)


def test_linear_r2_accepts_a_dead_column_and_a_collapsed_embedding():
    z = noise(200, 2)
    assert linear_r2(np.column_stack([z, np.full(200, 0.1)]), z) == pytest.approx(1)
    assert linear_r2(np.full((200, 2), 0.1), z) == pytest.approx(0, abs=0.05)


def test_linear_r2_of_noise_is_not_positive_held_out_though_it_is_in_sample():
    # In-sample chance at d_hat = 10, n = 40 is 10/39 = .26; held-out it is far below 0.
    held_out = [linear_r2(noise(40, 10, seed=s), noise(40, 3, seed=1000 + s)) for s in range(20)]
    in_sample = [linear_r2(noise(40, 10, seed=s), noise(40, 3, seed=1000 + s), held_out=False) for s in range(20)]
    assert max(held_out) <= 0 < min(in_sample)
    assert np.mean(in_sample) == pytest.approx(10 / 39, abs=0.04)


# mcc


@modest
@given(SEEDS, st.integers(1, 6), st.sampled_from(["pearson", "spearman"]))
def test_mcc_is_blind_to_scaled_permutations(seed, d, method):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, d))
    scale = rng.choice([-1, 1], size=d) * 10 ** rng.uniform(-3, 3, size=d)
    z_hat = z[:, rng.permutation(d)] * scale + rng.normal(size=d)
    assert mcc(z_hat, z, method=method) == pytest.approx(1, abs=1e-9)


def test_mcc_sees_a_rotation():
    # At 45° every |correlation| is √½ (± ½/√10000 = .005 each).
    z = noise(20_000, 2)
    assert mcc(z @ ROTATION_45, z) == pytest.approx(0.7071, abs=0.01)


def test_mcc_by_ranks_is_blind_to_monotone_maps_and_mcc_by_values_is_not():
    z = np.random.default_rng(0).uniform(-1, 1, size=(5000, 2))
    warped = np.column_stack([z[:, 1] ** 5, -z[:, 0]])
    assert mcc(warped, z, method="spearman") == pytest.approx(1, abs=1e-9)
    # corr(z⁵, z) = (1/7) / √(1/11 · 1/3) = .821 for a uniform z, and its mean with 1 is .910.
    assert mcc(warped, z) == pytest.approx(0.910, abs=0.01)


def test_mcc_matches_one_to_one():
    # Both latents correlate best with the first column, but only one may have it: (1 + .1)/2, not (1 + .9)/2.
    common, other = noise(50_000, seed=1), noise(50_000, seed=2)
    z = np.column_stack([common, 0.9 * common + np.sqrt(1 - 0.9**2) * other])
    second = 0.1 * z[:, 1] + np.sqrt(1 - 0.1**2) * noise(50_000, seed=3)
    assert mcc(np.column_stack([common, second]), z) == pytest.approx((1 + 0.1) / 2, abs=0.01)


def test_mcc_takes_the_best_total_and_not_the_best_pair():
    # |corr| = [[.8, .6], [.6, 0]]: the greedy .8 would leave 0, the matching takes .6 twice.
    z = noise(20_000, 2)
    z_hat = np.column_stack([0.8 * z[:, 0] + 0.6 * z[:, 1], 0.6 * z[:, 0] + 0.8 * noise(20_000, seed=1)])
    assert mcc(z_hat, z) == pytest.approx(0.6, abs=0.01)


def test_mcc_picks_the_right_columns_of_a_larger_embedding():
    z = noise(100, 2)
    assert mcc(np.column_stack([noise(100, 3, seed=1), -z, noise(100, seed=2)]), z) == pytest.approx(1)


def test_mcc_counts_latents_without_a_column_as_zero():
    z = noise(100, 4)
    assert mcc(z[:, [2]], z) == pytest.approx(1 / 4)


def test_mcc_of_noise_is_lower_held_out_than_in_sample():
    # Held-out, no matching helps: mean |r| over 20 samples is about √(2 / (20 π)) = .18. In-sample, also with 20
    # samples so that only the matching differs, the best of 10! matchings is far higher.
    pairs = [(noise(40, 10, seed=s), noise(40, 10, seed=1000 + s)) for s in range(20)]
    held_out = np.mean([mcc(a, b) for a, b in pairs])
    in_sample = np.mean([mcc(a[:20], b[:20], held_out=False) for a, b in pairs])
    assert held_out == pytest.approx(0.18, abs=0.03)
    assert in_sample > held_out + 0.15


# procrustes


@modest
@given(SEEDS, st.integers(1, 5))
def test_procrustes_is_blind_to_rotation_reflection_scale_and_shift(seed, d):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, d)) * rng.uniform(0.1, 10, size=d)
    rotation, scale, shift = random_orthogonal(rng, d), 10 ** rng.uniform(-2, 2), rng.normal(size=d)
    fit = procrustes(scale * z @ rotation + shift, z)
    np.testing.assert_allclose(fit.rotation, rotation.T, atol=1e-7)
    assert fit.scale == pytest.approx(1 / scale)
    np.testing.assert_allclose(fit.shift, -shift @ rotation.T / scale, atol=1e-6)
    assert fit.relative_error == pytest.approx(0, abs=1e-7)
    assert fit.r2 == pytest.approx(1)


def test_procrustes_sees_columns_stretched_unequally():
    # ẑ = (z₁, 2 z₂): Q = I, s = (1 + 2)/(1 + 4) = .6, residuals (.4, −.2), R² = 1 − (.16 + .04)/2 = .9.
    z = noise(20_000, 2)
    fit = procrustes(z * [1, 2], z)
    assert fit.scale == pytest.approx(0.6, abs=0.01)
    assert fit.r2 == pytest.approx(0.9, abs=0.005)
    assert fit.relative_error == pytest.approx(np.sqrt(0.1), abs=0.01)
    assert linear_r2(z * [1, 2], z) == pytest.approx(1)


def test_procrustes_r2_does_not_change_when_the_latents_are_rotated():
    rng = np.random.default_rng(0)
    z, rotation = rng.normal(size=(100, 3)) * [1, 5, 20], random_orthogonal(rng, 3)
    z_hat = z + rng.normal(size=(100, 3))
    assert procrustes(z_hat, z @ rotation).r2 == pytest.approx(procrustes(z_hat, z).r2)


def test_procrustes_of_noise_is_not_positive_held_out_though_it_is_in_sample():
    pairs = [(noise(40, 5, seed=s), noise(40, 5, seed=1000 + s)) for s in range(20)]
    assert np.mean([procrustes(a, b).r2 for a, b in pairs]) < 0
    assert min(procrustes(a, b, held_out=False).r2 for a, b in pairs) > 0.01


# chance


@pytest.mark.parametrize(
    ("d", "level"), [(1, 1), (2, np.sqrt(8) / np.pi), (3, 0.826), (4, 0.774), (5, 0.729), (10, 0.594)]
)
def test_chance_mcc_is_that_of_random_rotations(d, level):
    # d = 2: the mean over angles of max(|cos|, |sin|) is (4/π) ∫₀^{π/4} cos = √8/π. Others: scipy's
    # ortho_group with linear_sum_assignment, 4,000 draws, gives .829, .772, .729, .593, each ± .001.
    assert chance_mcc(d) == pytest.approx(level, abs=0.01)


@pytest.mark.parametrize(("d", "d_hat"), [(3, 3), (2, 6), (5, 2)])
@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_chance_mcc_is_what_mcc_scores_on_rotated_gaussians(d, d_hat, method):
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(300):
        z = rng.normal(size=(1000, d))
        rotation = random_orthogonal(rng, max(d, d_hat))[:d, :d_hat]
        scores.append(mcc(z @ rotation, z, method=method))
    # Standard error of 300 draws that scatter by about .1: .006.
    assert chance_mcc(d, d_hat, method=method) == pytest.approx(np.mean(scores), abs=0.02)


def test_chance_mcc_of_ranks_is_lower_than_of_values():
    # (6/π) arcsin(q/2) < q on (0, 1): at q = √½ it is .690.
    assert chance_mcc(3) - 0.03 < chance_mcc(3, method="spearman") < chance_mcc(3) - 0.002


@pytest.mark.parametrize(("n", "d_hat"), [(60, 3), (61, 10)])
@pytest.mark.parametrize("held_out", [True, False])
def test_chance_linear_r2_is_what_linear_r2_scores_on_noise(n, d_hat, held_out):
    scores = [linear_r2(noise(n, d_hat, seed=s), noise(n, 4, seed=10_000 + s), held_out=held_out) for s in range(400)]
    assert chance_linear_r2(n, d_hat, held_out=held_out) == pytest.approx(np.mean(scores), abs=4 * np.std(scores) / 20)


@pytest.mark.parametrize(("n", "d"), [(60, 3), (61, 10)])
@pytest.mark.parametrize("held_out", [True, False])
def test_chance_procrustes_is_what_procrustes_scores_on_noise(n, d, held_out):
    scores = [procrustes(noise(n, d, seed=s), noise(n, d, seed=10_000 + s), held_out=held_out).r2 for s in range(400)]
    assert chance_procrustes(n, d, held_out=held_out) == pytest.approx(np.mean(scores), abs=4 * np.std(scores) / 20)


def test_chance_levels_of_r2_vanish_with_many_samples():
    # To first order −(2 + d_hat k/m)/k with k = m = n/2: −(2 + 5)/5e5 = −1.4e-5.
    assert chance_linear_r2(10**6, 5) == pytest.approx(-1.4e-5, rel=0.01)
    assert chance_linear_r2(10**6, 5) < chance_procrustes(10**6, 5) < 0  # fewer parameters, less overfit


@pytest.mark.parametrize(
    "chance",
    [lambda: chance_mcc(20), lambda: chance_procrustes(10**6, 20)],
)
def test_chance_is_quick(chance):
    def seconds():
        start = time.process_time()
        chance()
        return time.process_time() - start

    # About .1 s on a core; the best of three, with room for slower ones.
    assert min(seconds() for _ in range(3)) < 0.5


# randomness, inputs


@pytest.mark.parametrize("metric", METRICS)
def test_halves_depend_on_random_state_alone(metric):
    def score(random_state):
        result = metric(z_hat, z, random_state=random_state)
        return getattr(result, "r2", result)

    z = noise(50, 2)
    z_hat = z + noise(50, 2, seed=1)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert score(0) == score(0) == score(np.random.default_rng(0))
    assert score(0) != score(1)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("metric", METRICS)
def test_inputs_are_left_as_they_were(metric):
    z, z_hat = noise(50, 2), noise(50, 2, seed=1)
    metric(z_hat, z)
    np.testing.assert_array_equal(z, noise(50, 2))
    np.testing.assert_array_equal(z_hat, noise(50, 2, seed=1))


def test_tensors_lists_integers_and_single_precision_are_read():
    z = noise(50, 2)
    expected = mcc(z @ ROTATION_45, z)
    tensor = torch.tensor(z @ ROTATION_45, requires_grad=True)
    assert mcc(tensor, torch.tensor(z)) == expected
    assert mcc((z @ ROTATION_45).tolist(), z.tolist()) == expected
    assert mcc(tensor.float(), z) == pytest.approx(expected, abs=1e-6)
    counts = np.random.default_rng(0).integers(0, 9, size=(50, 2))
    assert linear_r2(counts, 3 * counts + 1) == pytest.approx(1)


def test_a_large_offset_is_not_taken_for_a_constant():
    z = noise(50, 1)
    assert mcc(z + 1e6, z) == pytest.approx(1, abs=1e-6)


def test_metrics_do_not_import_torch():
    code = "import sys, pindown.metrics.recovery; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0
