from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from pindown.simulate import mixing
from pindown.simulate.mixing import SinhArcsinh

MIXINGS = [
    mixing.leaky_relu_mlp(5, n_layers=3, n_candidates=500, random_state=0),
    mixing.orthogonal(5, random_state=0),
    mixing.smooth(5, n_layers=3, random_state=0),
    mixing.identity(5),
]
SUPPORT = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]])


def latents(n=300, d=5, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(1), dtype=dtype)


# ---- invertible mixings -------------------------------------------------------------------------------


@pytest.mark.parametrize("g", MIXINGS, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_the_inverse_undoes_the_mixing_both_ways(g, dtype, tolerance):
    z = latents(dtype=dtype)
    assert g(z).dtype == dtype
    torch.testing.assert_close(g.inverse(g(z)), z, atol=tolerance, rtol=0)
    torch.testing.assert_close(g(g.inverse(z)), z, atol=tolerance, rtol=0)


@pytest.mark.parametrize("g", MIXINGS, ids=str)
def test_a_mixing_has_nothing_to_train_and_travels_with_its_state(g):
    assert list(g.parameters()) == []
    assert not g(latents()).requires_grad
    assert "weights" in g.state_dict()


@pytest.mark.parametrize("make", [partial(mixing.leaky_relu_mlp, n_candidates=50), mixing.orthogonal, mixing.smooth])
def test_mixings_follow_their_seed_and_leave_the_global_generator_alone(make):
    before = torch.get_rng_state()
    first = make(3, random_state=0).weights
    assert torch.equal(first, make(3, random_state=0).weights)
    assert not torch.equal(first, make(3, random_state=1).weights)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_papers_mixing_has_unit_columns_and_leaky_relu_between_layers_only():
    g = mixing.leaky_relu_mlp(4, n_layers=2, slope=0.2, n_candidates=50, random_state=0)
    torch.testing.assert_close(g.weights.square().sum(1), torch.ones(2, 4).double())
    z = latents(d=4)
    w1, w2 = g.weights
    hidden = z @ w1.T
    expected = torch.where(hidden > 0, hidden, 0.2 * hidden) @ w2.T
    torch.testing.assert_close(g(z), expected)
    assert (g(z) < 0).any()


@pytest.mark.parametrize(("d", "low", "high"), [(5, 1.0, 2.4), (10, 2.5, 6.0), (20, 5.5, 14.5)])
def test_the_best_of_25000_draws_are_conditioned_as_in_the_papers(d, low, high):
    # One run of the public code gave 1.39, 3.95 and 8.79; over seeds we see 1.35–1.81, 3.5–4.2 and 7.5–10.3. The median
    # draw has 11, 27 and 63.
    g = mixing.leaky_relu_mlp(d, n_layers=1, random_state=2)
    assert low < torch.linalg.cond(g.weights[0]).item() < high


@pytest.mark.parametrize("seed", range(10))
def test_the_search_finds_the_very_best_conditioned_draw(seed):
    d, n = 3, 2500
    w = 2 * torch.rand(n, d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1
    w = w / w.norm(dim=2, keepdim=True)
    best = np.linalg.cond(w.numpy()).min()
    g = mixing.leaky_relu_mlp(d, n_layers=1, n_candidates=n, random_state=seed)
    assert torch.linalg.cond(g.weights[0]).item() == pytest.approx(best, rel=1e-10)


def test_more_layers_are_harder_for_a_linear_fit():
    z = latents(5000)
    scores = []
    for n_layers in (1, 2, 4):
        x = mixing.leaky_relu_mlp(5, n_layers=n_layers, n_candidates=2000, random_state=0)(z)
        residual = z - x @ torch.linalg.lstsq(x, z).solution
        scores.append(1 - (residual.var(0).sum() / z.var(0).sum()).item())
    assert scores[0] == pytest.approx(1)
    assert scores[0] > scores[1] + 0.02 > scores[2] + 0.04


def test_orthogonal_mixings_keep_distances_and_are_haar():
    g = mixing.orthogonal(6, random_state=0)
    torch.testing.assert_close(g.weights[0] @ g.weights[0].T, torch.eye(6).double())
    many = mixing.haar(2000, 3, torch.Generator().manual_seed(0))
    for i, j in np.ndindex(3, 3):  # a coordinate on S² is uniform
        assert stats.kstest(many[:, i, j].numpy(), stats.uniform(-1, 2).cdf).pvalue > 0.01


def test_the_smooth_activation_is_increasing_with_the_slopes_of_its_strength():
    activation = SinhArcsinh(strength=0.8, softness=0.3)
    x = torch.tensor([-1e4, 0.0, 1e4], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(activation.forward(x).sum(), x)
    torch.testing.assert_close(
        slope, torch.tensor([-0.8, 0.0, 0.8]).double().exp() * torch.tensor([1, np.cosh(0.8), 1])
    )
    y = activation.forward(torch.linspace(-3, 3, 1000))
    assert (y.diff() > 0).all()


def test_a_smooth_mixing_without_strength_is_orthogonal():
    z = latents()
    torch.testing.assert_close(mixing.smooth(5, strength=0.0, random_state=0)(z).norm(dim=1), z.norm(dim=1))


# ---- sparse mixings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_jacobian_of_a_sparse_mixing_has_exactly_the_support(seed):
    g = mixing.sparse(SUPPORT, random_state=seed)
    jacobian = torch.func.vmap(torch.func.jacrev(g))(latents(50, 3))  # (50, 5, 3)
    assert (jacobian[:, SUPPORT == 0] == 0).all()
    assert (jacobian[:, SUPPORT == 1].abs().amax(0) > 1e-3).all()
    assert np.array_equal(g.support, SUPPORT)


def test_sparse_mixings_are_sufficiently_nonlinear_unless_they_have_no_strength():
    z = latents(200, 3)

    def spectrum(g):  # of the gradients of the last observed variable, which sees all three latents
        return torch.linalg.svdvals(torch.func.vmap(torch.func.jacrev(g))(z)[:, -1])

    curved, linear = (spectrum(mixing.sparse(SUPPORT, strength=s, random_state=0)) for s in (0.8, 0.0))
    assert curved[2] > 0.02 * curved[0]
    assert linear[1] < 1e-10 * linear[0]


def test_sparse_mixings_follow_their_seed():
    z = latents(5, 3)
    first = mixing.sparse(SUPPORT, random_state=0)(z)
    assert torch.equal(first, mixing.sparse(SUPPORT, random_state=0)(z))
    assert not torch.equal(first, mixing.sparse(SUPPORT, random_state=1)(z))
