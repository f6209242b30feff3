import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Projected, log_prob
from scipy import integrate, special, stats

from pindown.networks.spaces import Box, Reals, Sphere
from pindown.simulate.distributions import (
    Around,
    GeneralizedNormal,
    Truncated,
    Uniform,
    VonMisesFisher,
    laplace,
    normal,
)

CONDITIONALS = [
    VonMisesFisher(5.0),
    normal(0.3),
    laplace(0.3),
    GeneralizedNormal(0.3, 3.0),
    Truncated(normal(0.3), Box(-1.0, 1.0)),
    Truncated(GeneralizedNormal(0.3, 3.0), Box(-1.0, 1.0)),
    Projected(laplace(0.3)),
]


def axis(n, d, dtype=torch.float32):
    return torch.eye(d, dtype=dtype)[:1].expand(n, d)


# ---- every distribution ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", CONDITIONALS, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_lie_in_the_space_of_the_distribution_with_shape_and_dtype_of_loc(distribution, dtype):
    loc = Sphere().uniform(500, 4, random_state=0, dtype=dtype)
    z = distribution.sample(loc, random_state=0)
    assert z.shape == loc.shape
    assert z.dtype == dtype
    assert distribution.space.contains(z, tolerance=1e-6)
    assert not torch.equal(z, loc)


@pytest.mark.parametrize("distribution", CONDITIONALS, ids=repr)
def test_draws_follow_the_seed_and_leave_the_global_generators_alone(distribution):
    loc = axis(50, 3)
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = distribution.sample(loc, random_state=0)
    assert torch.equal(first, distribution.sample(loc, random_state=0))
    assert not torch.equal(first, distribution.sample(loc, random_state=1))
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


@pytest.mark.parametrize("distribution", CONDITIONALS, ids=repr)
def test_one_generator_gives_fresh_draws_each_time(distribution):
    rng = torch.Generator().manual_seed(0)
    assert not torch.equal(
        distribution.sample(axis(5, 3), random_state=rng), distribution.sample(axis(5, 3), random_state=rng)
    )


# ---- von Mises–Fisher ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "concentration", "length"),
    [(10, 1.0, 0.0992), (10, 10.0, 0.6337), (5, 10.0, 0.8111), (5, 50.0, 0.9604), (20, 10.0, 0.4184)],
)
def test_vmf_has_the_mean_resultant_length_of_its_bessel_ratio(d, concentration, length):
    n = 1_000_000
    t = VonMisesFisher(concentration).sample(axis(n, d), random_state=1)[:, 0].double()
    expected = special.ive(d / 2, concentration) / special.ive(d / 2 - 1, concentration)
    assert round(expected, 4) == length
    standard_error = t.std() / math.sqrt(n)
    assert abs(t.mean() - expected) < 5 * standard_error
    # E t² = 1 − (d − 1) A / κ
    second = 1 - (d - 1) * expected / concentration
    assert abs(t.square().mean() - second) < 6 * t.square().std() / math.sqrt(n)


@pytest.mark.parametrize("d", [2, 3, 10, 50])
@pytest.mark.parametrize("concentration", [0.0, 1e-3, 1.0, 30.0, 1e4])
def test_vmf_angles_follow_the_exact_distribution(d, concentration):
    mu = Sphere().uniform(1, d, random_state=3, dtype=torch.float64).expand(20_000, d)
    z = VonMisesFisher(concentration).sample(mu, random_state=5)
    theta = 2 * torch.asin(torch.linalg.vector_norm(z - mu, dim=1).div(2).clamp(max=1)).numpy()

    def density(t):
        return math.exp(concentration * (math.cos(t) - 1)) * math.sin(t) ** (d - 2)

    # Exact by adaptive quadrature, on a grid over the observed range; linear in between.
    grid = np.linspace(0, theta.max(), 300)
    pieces = [integrate.quad(density, a, b)[0] for a, b in pairwise(grid)]
    total = sum(pieces) + integrate.quad(density, grid[-1], min(math.pi, 2 * grid[-1]))[0]
    cdf = np.concatenate([[0], np.cumsum(pieces)]) / total
    assert stats.kstest(theta, lambda t: np.interp(t, grid, cdf)).pvalue > 0.001


@pytest.mark.parametrize("d", [2, 3, 8])
def test_vmf_has_no_preferred_direction_around_its_mean(d):
    z = VonMisesFisher(4.0).sample(axis(200_000, d, torch.float64), random_state=0)
    mean, covariance = z.mean(0), z.T.cov()
    torch.testing.assert_close(mean[1:], torch.zeros(d - 1).double(), atol=0.005, rtol=0)
    # E of each other squared coordinate is A / κ.
    side = special.ive(d / 2, 4.0) / special.ive(d / 2 - 1, 4.0) / 4.0
    torch.testing.assert_close(covariance[1:, 1:], side * torch.eye(d - 1).double(), atol=0.005, rtol=0)
    torch.testing.assert_close(covariance[0, 1:], torch.zeros(d - 1).double(), atol=0.005, rtol=0)


@pytest.mark.parametrize("concentration", [1e-3, 0.5, 5.0, 200.0])
def test_vmf_log_prob_has_the_closed_forms_of_two_and_three_dimensions(concentration):
    distribution = VonMisesFisher(concentration)
    for d in (2, 3):
        mu = Sphere().uniform(20, d, random_state=0, dtype=torch.float64)
        z = Sphere().uniform(20, d, random_state=1, dtype=torch.float64)
        if d == 2:  # e^{κ cos} / (2π I_0(κ))
            log_total = math.log(2 * math.pi * special.ive(0, concentration)) + concentration
        else:  # κ e^{κ cos} / (4π sinh κ)
            log_sinh = concentration + math.log(-math.expm1(-2 * concentration) / 2)
            log_total = math.log(4 * math.pi / concentration) + log_sinh
        expected = concentration * (z * mu).sum(1) - log_total
        torch.testing.assert_close(log_prob(distribution, z, mu), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("d", "concentration"), [(4, 0.3), (10, 1.0), (10, 1e4), (64, 7.0), (200, 500.0)])
def test_vmf_normaliser_agrees_with_the_bessel_function(d, concentration):
    mu = axis(1, d, torch.float64)
    order = d / 2 - 1
    log_bessel = math.log(special.ive(order, concentration)) + concentration
    expected = order * math.log(concentration) - d / 2 * math.log(2 * math.pi) - log_bessel + concentration
    assert log_prob(VonMisesFisher(concentration), mu, mu).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("d", [2, 3, 10, 5000])
def test_vmf_without_concentration_has_the_density_one_over_the_area_of_the_sphere(d):
    log_area = math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)
    mu = axis(1, d, torch.float64)
    assert log_prob(VonMisesFisher(0.0), mu, -mu).item() == pytest.approx(-log_area, rel=1e-11)


def test_vmf_log_prob_keeps_its_digits_in_float32_at_high_concentration():
    distribution, mu = VonMisesFisher(1e4), axis(100, 6, torch.float64)
    z = distribution.sample(mu, random_state=0)
    torch.testing.assert_close(
        log_prob(distribution, z.float(), mu.float()).double(), log_prob(distribution, z, mu), atol=1e-3, rtol=0
    )


# ---- generalised normal, and truncated ----------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.5, 1.0, 1.5, 2.0, 3.0, 12.0])
def test_generalised_normal_draws_follow_scipy_s(shape):
    z = GeneralizedNormal(0.7, shape).sample(torch.full((25_000, 2), 1.0, dtype=torch.float64), random_state=0)
    reference = stats.gennorm(shape, loc=1.0, scale=0.7)
    assert stats.kstest(z[:, 0].numpy(), reference.cdf).pvalue > 0.01
    assert stats.kstest(z[:, 1].numpy(), reference.cdf).pvalue > 0.01
    assert abs(np.corrcoef(z.numpy().T)[0, 1]) < 0.03


@pytest.mark.parametrize("shape", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_generalised_normal_has_the_right_far_tail(shape):
    z = GeneralizedNormal(1.0, shape).sample(torch.zeros(2_000_000, 1, dtype=torch.float64), random_state=0)
    edge = stats.gennorm(shape).isf(1e-4)  # expect 200 ± 14 beyond
    assert 150 < (z > edge).sum() < 250


@pytest.mark.parametrize("shape", [0.5, 1.0, 1.5, 2.0, 3.0, 12.0])
def test_generalised_normal_log_prob_is_scipy_s_summed_over_coordinates(shape):
    loc, z = torch.randn(2, 10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = stats.gennorm(shape, loc=loc.numpy(), scale=0.4).logpdf(z.numpy()).sum(1)
    np.testing.assert_allclose(log_prob(GeneralizedNormal(0.4, shape), z, loc).numpy(), expected, rtol=1e-12)


def test_normal_takes_its_standard_deviation_and_laplace_its_scale():
    loc = torch.zeros(100_000, 2)
    assert normal(0.05).sample(loc, random_state=0).std().item() == pytest.approx(0.05, rel=0.01)
    assert laplace(0.05).sample(loc, random_state=0).abs().mean().item() == pytest.approx(0.05, rel=0.01)


@pytest.mark.parametrize("shape", [0.7, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("scale", [0.07, 0.5, 50.0])
@pytest.mark.parametrize("loc", [0.0, 0.1, 0.85])
def test_truncated_draws_follow_the_analytic_truncated_distribution(shape, scale, loc):
    distribution = Truncated(GeneralizedNormal(scale, shape), Box(0.0, 1.0))
    z = distribution.sample(torch.full((10_000, 1), loc, dtype=torch.float64), random_state=1)[:, 0].numpy()
    base = stats.gennorm(shape, loc=loc, scale=scale)
    low, high = base.cdf(0.0), base.cdf(1.0)
    assert z.min() >= 0
    assert z.max() <= 1
    assert stats.kstest(z, lambda t: (base.cdf(t) - low) / (high - low)).pvalue > 0.001


@pytest.mark.parametrize("base", [normal(0.2), laplace(0.2), GeneralizedNormal(0.2, 3.0)], ids=repr)
def test_truncated_log_prob_integrates_to_one_and_is_minus_infinity_outside(base):
    distribution = Truncated(base, Box(-0.5, 1.0))
    loc = torch.tensor([[0.2, -0.4]], dtype=torch.float64)
    grid = torch.linspace(-0.5, 1.0, 601, dtype=torch.float64)
    z = torch.cartesian_prod(grid, grid)
    density = log_prob(distribution, z, loc).exp().reshape(601, 601)
    assert torch.trapezoid(torch.trapezoid(density, grid), grid).item() == pytest.approx(1, abs=1e-3)
    assert log_prob(distribution, torch.tensor([[0.2, 1.01]]).double(), loc).item() == -math.inf


def test_truncated_stays_in_the_box_in_float32_even_at_its_edges():
    distribution = Truncated(laplace(0.05), Box(0.1, 0.7))
    loc = torch.tensor([0.1, 0.7]).expand(100_000, 2)
    z = distribution.sample(loc, random_state=0)
    assert distribution.space.contains(z, tolerance=0)
    assert (z != loc).float().mean() > 0.99


# ---- projected, and marginals -------------------------------------------------------------------------


def test_projected_is_the_projection_of_its_base_draw():
    distribution, loc = Projected(normal(0.3)), axis(20, 4)
    assert torch.equal(distribution.sample(loc, random_state=0), Sphere()(normal(0.3).sample(loc, random_state=0)))


@pytest.mark.parametrize(
    "marginal",
    [
        Uniform(3),
        Uniform(3, Box(-1.0, 2.0)),
        Around((0.0, 0.0, 0.0), laplace(1.0)),
        Around((1.0, 0.0, 0.0), Projected(normal(1.0))),
    ],
    ids=repr,
)
def test_marginals_give_n_points_of_their_space(marginal):
    z = marginal.sample(100, random_state=0, dtype=torch.float64)
    assert z.shape == (100, marginal.d)
    assert z.dtype == torch.float64
    assert marginal.space.contains(z, tolerance=1e-12)
    assert torch.equal(z, marginal.sample(100, random_state=0, dtype=torch.float64))
    assert not torch.equal(z, marginal.sample(100, random_state=1, dtype=torch.float64))


def test_around_is_centred_on_its_location():
    z = Around((1.0, -2.0), normal(0.5)).sample(50_000, random_state=0)
    torch.testing.assert_close(z.mean(0), torch.tensor([1.0, -2.0]), atol=0.01, rtol=0)


def test_laws_are_values():
    assert VonMisesFisher(2.0) == VonMisesFisher(2.0) != VonMisesFisher(3.0)
    assert normal(0.1) != laplace(0.1)
    assert Truncated(normal(0.1)).space == Box()
    assert normal(0.1).space == Reals()
    assert len({Uniform(3), Uniform(3, Sphere()), Uniform(3, Box())}) == 2
