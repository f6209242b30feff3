import copy
import math

import pytest
import torch
from scipy import stats

from pindown.errors import InputError
from pindown.networks.spaces import Box, Reals, Space, Sphere

SPACES = [Sphere(), Box(), Box(-2.0, 3.0), Reals()]


@pytest.fixture
def z():
    return 3 * torch.randn(200, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("space", SPACES)
def test_projecting_lands_in_the_space_and_twice_is_once(space, z):
    projected = space.project(z)
    assert space.contains(projected)
    torch.testing.assert_close(space.project(projected), projected)
    assert torch.equal(space(z), projected)


@pytest.mark.parametrize("space", [Sphere(), Box()])
def test_contains_sees_a_point_outside(space, z):
    assert not space.contains(z)


def test_reals_contain_everything_finite_only(z):
    assert Reals().contains(z)
    assert not Reals().contains(torch.tensor([math.inf]))


def test_the_zero_vector_stays_zero_on_the_sphere_with_a_finite_gradient():
    z = torch.zeros(1, 3, requires_grad=True)
    Sphere()(z).sum().backward()
    assert torch.equal(Sphere()(z), torch.zeros(1, 3))
    assert z.grad.isfinite().all()


def test_uniform_on_the_sphere_is_isotropic_with_the_known_law_of_a_coordinate():
    z = Sphere().uniform(50_000, 5, random_state=0, dtype=torch.float64)
    assert Sphere().contains(z, tolerance=1e-12)
    # (1 + z_1) / 2 ~ Beta((d − 1)/2, (d − 1)/2)
    assert stats.kstest((1 + z[:, 0].numpy()) / 2, stats.beta(2, 2).cdf).pvalue > 0.01
    torch.testing.assert_close(z.T.cov(), torch.eye(5).double() / 5, atol=0.005, rtol=0)


def test_uniform_in_a_box_has_uniform_coordinates():
    z = Box(-2.0, 3.0).uniform(50_000, 3, random_state=0)
    assert stats.kstest(z[:, 1].numpy(), stats.uniform(-2, 5).cdf).pvalue > 0.01
    torch.testing.assert_close(z.T.corrcoef(), torch.eye(3), atol=0.02, rtol=0)


@pytest.mark.parametrize("space", [Sphere(), Box()])
def test_uniform_follows_its_seed_and_dtype(space):
    first = space.uniform(8, 3, random_state=1, dtype=torch.float64)
    assert first.dtype == torch.float64
    assert torch.equal(first, space.uniform(8, 3, random_state=1, dtype=torch.float64))
    assert not torch.equal(first, space.uniform(8, 3, random_state=2, dtype=torch.float64))


def test_reals_have_no_uniform_distribution():
    with pytest.raises(InputError) as error:
        Reals().uniform(3, 2)
    assert error.value.argument == "space"


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_a_box_needs_finite_ordered_edges(low, high):
    with pytest.raises(InputError) as error:
        Box(low, high)
    assert error.value.argument == "low"


@pytest.mark.parametrize("space", SPACES)
def test_spaces_are_values(space):
    assert isinstance(space, Space)
    assert copy.deepcopy(space) == space
    assert hash(copy.deepcopy(space)) == hash(space)
    assert sum(space == other for other in SPACES) == 1
