"""Penalties of other papers against definitions by reverse mode and by hand."""

import math

import pytest
import torch
from pindown_papers.penalties import (
    HessianPenalty,
    LatentSparsity,
    OroJAR,
    exact_hessian_penalty,
    group_lasso_sparsity,
    hessian_penalty,
    latent_sparsity,
    orojar,
)
from torch import nn

from pindown.errors import InputError
from pindown.losses import dependency_sparsity

RAW = torch.ones(())


def rng():
    return torch.Generator().manual_seed(0)


def latents(n, d=3):
    return torch.randn(n, d, generator=rng(), dtype=torch.float64)


def decoder(activation):
    layers = nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 4), activation, nn.Linear(4, 3)).double()
    for weight in layers.parameters():
        nn.init.normal_(weight, std=0.4, generator=rng())
    return layers


def jacobian(decoder, z):
    return torch.func.vmap(torch.func.jacrev(lambda sample: decoder(sample[None])[0]))(z)  # (n, m, d)


def products(z):
    return torch.stack([z[:, 0] * z[:, 1], z[:, 0] ** 2 * z[:, 1]], dim=1)


def test_a_gaussian_direction_is_a_group_lasso_and_not_the_l1_norm():
    tanh, z, source = decoder(nn.Tanh()), latents(8), rng()
    lengths = jacobian(tanh, z).norm(dim=2).sum() / len(z)
    many = z.repeat(500, 1)  # each sample 500 times, each time with a direction of its own
    draws = torch.stack(
        [group_lasso_sparsity(tanh, many, z_scale=RAW, x_scale=RAW, generator=source).detach() for _ in range(40)]
    )
    error = draws.std() / math.sqrt(len(draws))
    assert abs(draws.mean() - lengths) / error < 6
    assert draws.mean() < 0.95 * dependency_sparsity(tanh, z, z_scale=RAW, x_scale=RAW)


def test_a_rotation_leaves_the_group_lasso_unchanged_and_raises_the_l1_norm():
    sparse, dense = (nn.Linear(2, 2, bias=False).double() for _ in range(2))
    sparse.weight.data = torch.eye(2).double()
    dense.weight.data = torch.tensor([[0.6, -0.8], [0.8, 0.6]]).double()
    l1 = [dependency_sparsity(g, latents(5, 2), z_scale=RAW, x_scale=RAW).item() for g in (sparse, dense)]
    assert l1 == pytest.approx([2.0, 2.8])
    many = latents(200_000, 2)
    group = [group_lasso_sparsity(g, many, z_scale=RAW, x_scale=RAW, generator=rng()).item() for g in (sparse, dense)]
    assert group == pytest.approx([2.0, 2.0], rel=0.01)


def test_latent_sparsity_is_the_l1_norm_of_standardised_latents():
    z = torch.tensor([[1.0, 10.0], [-1.0, -10.0]])
    assert latent_sparsity(z).item() == 2.0
    assert latent_sparsity(100 * z).item() == 2.0


def test_orojar_is_the_off_diagonal_of_the_gram_matrix():
    tanh, z = decoder(nn.Tanh()), latents(6)
    gram = torch.einsum("nmj,nmk->njk", *[jacobian(tanh, z)] * 2)
    off_diagonal = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(orojar(tanh, z), off_diagonal.square().sum() / len(z))
    torch.testing.assert_close(OroJAR(2.0)(tanh, z, z)[1], 2 * orojar(tanh, z))


def test_orojar_from_random_directions_is_unbiased():
    tanh, z, source = decoder(nn.Tanh()), latents(4), rng()
    draws = torch.stack([orojar(tanh, z, n_directions=2, generator=source) for _ in range(1_500)])
    assert abs(draws.mean() - orojar(tanh, z)) / (draws.std() / math.sqrt(len(draws))) < 5


def test_orojar_vanishes_for_a_rotation_which_is_not_sparse():
    reflection, z = nn.Linear(3, 3).double(), latents(6)
    with torch.no_grad():
        reflection.weight.copy_(torch.eye(3) - torch.full((3, 3), 2 / 3))  # entries of ⅓ and ⅔
    assert 0 <= orojar(reflection, z).item() < 1e-10
    sparsity = dependency_sparsity(reflection, z, z_scale=RAW, x_scale=RAW)
    assert sparsity.item() == pytest.approx(3 * (1 / 3 + 2 * 2 / 3))


def test_the_hessian_penalty_of_two_products_agrees_with_the_formula():
    z, source = latents(50, 2), rng()
    by_hand = torch.stack([torch.full((50,), 4.0).double(), 16 * z[:, 0] ** 2], dim=1)
    torch.testing.assert_close(exact_hessian_penalty(products, z), by_hand)
    draws = torch.stack([hessian_penalty(products, z, generator=source) for _ in range(1_500)])
    error = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - by_hand).abs() / (error + 1e-9)).max() < 6  # of a hundred
    costs = [HessianPenalty(1.0)(products, z, torch.rand(z.shape, generator=source))[1] for _ in range(1_500)]
    assert torch.stack(costs).mean().item() == pytest.approx(by_hand.mean().item(), rel=0.1)


def test_the_hessian_penalty_ignores_what_each_latent_does_alone():
    def separate(z):
        return (z**3).sum(1, keepdim=True)

    assert exact_hessian_penalty(separate, latents(20, 2)).abs().max() < 1e-20
    assert hessian_penalty(separate, latents(20, 2), generator=rng()).abs().max() < 1e-20


def test_only_finite_differences_see_the_kinks_of_a_piecewise_linear_decoder():
    relu, z = decoder(nn.ReLU()), latents(200)
    assert exact_hessian_penalty(relu, z).abs().max() == 0
    assert hessian_penalty(relu, z, generator=rng()).mean() > 1e-4


@pytest.mark.parametrize("make", [LatentSparsity, OroJAR, HessianPenalty])
def test_a_negative_weight_raises(make):
    with pytest.raises(InputError) as error:
        make(weight=-1.0)
    assert error.value.argument == "weight"


def test_a_variance_needs_two_directions():
    with pytest.raises(InputError) as error:
        hessian_penalty(nn.Identity(), torch.zeros(3, 2), n_directions=1)
    assert error.value.argument == "n_directions"
