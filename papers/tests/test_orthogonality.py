"""How far a map is from orthogonal: numbers derived by hand, the level of chance, and input that cannot be used."""

import numpy as np
import pytest
from pindown_papers.orthogonality import chance_orthogonality_error, orthogonality_error
from scipy.integrate import trapezoid

from pindown.errors import InputError

ROTATION_45 = np.array([[1, 1], [-1, 1]]) / np.sqrt(2)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def raises(argument, metric, *inputs, **options):
    with pytest.raises(InputError) as raised:
        metric(*inputs, **options)
    assert raised.value.argument == argument


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_orthogonality_error_is_blind_to_rotation_reflection_and_shift(seed, d):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, d)) * rng.uniform(0.1, 10, size=d)
    result = orthogonality_error(z @ np.linalg.qr(rng.normal(size=(d, d))).Q + rng.normal(size=d), z)
    np.testing.assert_allclose(result.singular_values, 1, atol=1e-7)
    assert result.absolute == pytest.approx(0, abs=1e-7)


def test_orthogonality_error_sees_a_stretch():
    # Columns stretched by 1/2 and 1/4 are mapped back by 2 and 4: mean(|2−1|, |4−1|) = 2.
    z = noise(100, 2)
    result = orthogonality_error(z @ ROTATION_45 / [2, 4], z)
    np.testing.assert_allclose(result.singular_values, [4, 2])
    assert (result.absolute, result.relative, result.target) == pytest.approx((2, 2, 1))


def test_orthogonality_error_is_also_given_in_units_of_its_target():
    # The same map: mean(|2−4|, |4−4|) = 1, a quarter of 4.
    z = noise(100, 2)
    result = orthogonality_error(z / [2, 4], z, target=4)
    assert (result.absolute, result.relative, result.target) == pytest.approx((1, 0.25, 4))


def test_orthogonality_error_without_target_leaves_the_scale_free():
    # Around their mean 3, singular values 2 and 4 miss by 1, a third of it, at every scale of the embedding.
    z = noise(100, 2)
    result = orthogonality_error(z / [2, 4], z, target=None)
    assert (result.absolute, result.relative, result.target) == pytest.approx((1, 1 / 3, 3))
    assert orthogonality_error(7 * z / [2, 4], z, target=None).relative == pytest.approx(1 / 3)
    assert orthogonality_error(7 * z @ ROTATION_45, z, target=None).relative == pytest.approx(0, abs=1e-9)


def test_chance_orthogonality_error_of_one_latent_is_that_of_a_half_normal():
    # E||g| − 1| = 2·2(φ(1) − Q(1)) − (√(2/π) − 1) = .333 + .202 = .535.
    assert chance_orthogonality_error(1, n_draws=20_000) == pytest.approx(0.535, abs=0.015)
    assert chance_orthogonality_error(1, target=None) == 0


def test_chance_orthogonality_error_tends_to_the_quarter_circle_law():
    # Mean 8/(3π) = .849; E|σ − 1| = 2(√3 − 2π/3 + √3/2)/π + 1 − .849 = .472, approached from above.
    assert 0.472 < chance_orthogonality_error(60, n_draws=50) < 0.482
    # Around its own mean m: E|σ − m|/m = .450/.849 = .530 by quadrature of the same law.
    s = np.linspace(0, 2, 200_001)
    density = np.sqrt(4 - s**2) / np.pi
    mean = trapezoid(s * density, s)
    spread = trapezoid(np.abs(s - mean) * density, s) / mean
    assert chance_orthogonality_error(60, target=None, n_draws=50) == pytest.approx(spread, abs=0.01)


def test_chance_orthogonality_error_is_what_a_random_linear_embedding_scores():
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(200):
        z, best_map = rng.normal(size=(30, 4)), rng.normal(size=(4, 4))
        z_hat = z @ np.linalg.inv(best_map)  # so that z = ẑ @ best_map, exactly
        scores.append(orthogonality_error(z_hat, z, target=2).relative)  # rms singular value √4
    assert chance_orthogonality_error(4) == pytest.approx(np.mean(scores), abs=4 * np.std(scores) / np.sqrt(200))


def test_too_few_samples_for_an_orthogonality_error_raise():
    raises("z", orthogonality_error, noise(5, 3), noise(5, 3, seed=1))
    orthogonality_error(noise(6, 3), noise(6, 3, seed=1))


@pytest.mark.parametrize("target", [0, -1, np.inf, np.nan])
def test_a_target_that_is_not_positive_raises(target):
    raises("target", orthogonality_error, noise(50, 2), noise(50, 2), target=target)


def test_a_free_scale_raises_where_the_map_is_zero():
    z_hat = np.array([-1, 1, -1, 1, -1, 1, -1, 1.0])[:, None]
    z = np.array([-1, -1, 1, 1, -1, -1, 1, 1.0])[:, None]
    raises("z_hat", orthogonality_error, z_hat, z, target=None)
    assert orthogonality_error(z_hat, z).relative == pytest.approx(1)


@pytest.mark.parametrize(
    ("argument", "z_hat", "z"),
    [
        ("z_hat", noise(50, 3) * [1, 0, 1], noise(50, 3)),
        ("z", noise(50, 3), noise(50, 3) * [1, 0, 1]),
        ("z_hat", noise(50, 3), noise(50, 2)),
    ],
)
def test_embeddings_and_latents_that_no_rotation_relates_raise(argument, z_hat, z):
    raises(argument, orthogonality_error, z_hat, z)
    raises("d", chance_orthogonality_error, 0)
