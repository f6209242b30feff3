import pytest
import torch
from torch import nn

from pindown import _random
from pindown.networks import Residual, linear, mlp, residual, skip_mlp, zero_mlp


def made(network, *shape, seed=0, **options):
    with _random.forked(seed):
        return network(*shape, **options)


def noise(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def jacobian_at(encoder, x):
    return torch.autograd.functional.jacobian(lambda row: encoder(row[None])[0], x)  # (n_out, n_in)


# encoders


@pytest.mark.parametrize(("n_in", "n_out"), [(5, 5), (7, 3), (4, 1)])
def test_linear_starts_with_orthonormal_samples_and_no_offset(n_in, n_out):
    layer = made(linear, n_in, n_out)
    torch.testing.assert_close(layer.weight @ layer.weight.T, torch.eye(n_out))
    assert layer(torch.zeros(2, n_in)).abs().max() == 0


@pytest.mark.parametrize("network", [skip_mlp, residual])
@pytest.mark.parametrize(("n_in", "n_out"), [(5, 5), (7, 3)])
def test_encoders_with_a_linear_skip_path_start_as_one_linear_map_with_orthonormal_samples(network, n_in, n_out):
    encoder = made(network, n_in, n_out)
    here, there = (jacobian_at(encoder, noise(n_in, seed=s)) for s in (0, 1))
    torch.testing.assert_close(here, there)  # the same everywhere
    torch.testing.assert_close(here @ here.T, torch.eye(n_out))
    assert encoder(torch.zeros(2, n_in)).abs().max() == 0


def test_a_linear_skip_path_keeps_all_distances_at_the_start_where_mlp_folds_and_shrinks():
    x = noise(200, 5)
    distances = torch.pdist(x)
    torch.testing.assert_close(torch.pdist(made(skip_mlp, 5, 5)(x)), distances)
    ratio = torch.pdist(made(mlp, 5, 5)(x)) / distances
    assert ratio.max() > 3 * ratio.min()  # some directions are flattened
    assert ratio.mean() < 0.2  # and all are small
    here, there = (jacobian_at(made(mlp, 5, 5), row) for row in x[:2])
    assert (here - there).norm() > 0.1 * here.norm()  # nor is it linear


def test_a_zero_mlp_starts_as_zero_but_not_without_gradient():
    network = made(zero_mlp, 4, 2)
    assert network(noise(5, 4)).abs().max() == 0
    network(noise(5, 4)).sum().backward()
    assert network[-1].weight.grad.abs().max() > 0


def test_a_skip_mlp_becomes_nonlinear_once_it_is_trained():
    # The perceptron starts at zero; were its last layer not trained, or the layers before it dead, no gradient came.
    encoder = made(skip_mlp, 3, 3)
    encoder(noise(10, 3)).square().sum().backward()
    last = next(reversed(list(encoder.nonlinear.children())))
    assert last.weight.grad.any()
    with torch.no_grad():
        last.weight -= 0.1 * last.weight.grad
    first, second = (jacobian_at(encoder, noise(3, seed=s)) for s in (0, 1))
    assert (first - second).abs().max() > 1e-3


@pytest.mark.parametrize("network", [mlp, skip_mlp])
def test_hidden_widths_are_those_requested(network):
    widths = [layer.out_features for layer in made(network, 4, 2, hidden=(8, 16)).modules() if hasattr(layer, "bias")]
    assert sorted(widths) == ([2, 8, 16] if network is mlp else [2, 2, 8, 16])


def test_without_hidden_layers_mlp_is_affine():
    assert [type(layer) for layer in made(mlp, 4, 2, hidden=())] == [nn.Linear]


@pytest.mark.parametrize("network", [linear, mlp, skip_mlp, residual])
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(network):
    x = noise(3, 4)
    assert torch.equal(made(network, 4, 2)(x), made(network, 4, 2)(x))
    assert not torch.equal(made(network, 4, 2)(x), made(network, 4, 2, seed=1)(x))


def test_a_residual_encoder_has_as_many_blocks_as_requested_each_of_which_starts_by_changing_nothing():
    encoder = made(residual, 4, 2, width=8, n_blocks=3)
    blocks = [part for part in encoder.modules() if isinstance(part, Residual)]
    assert len(blocks) == 3
    x = noise(5, 8)
    assert all(torch.equal(block(x), x) for block in blocks)
    assert {layer.out_features for layer in encoder.nonlinear.modules() if isinstance(layer, nn.Linear)} == {8, 2}


def test_all_weights_of_a_residual_encoder_are_trained_after_a_few_steps():
    # Zeros behind zeros: the output moves first, then the blocks, then what they read.
    encoder = made(residual, 3, 3, width=16, n_blocks=2)
    start = {name: weight.clone() for name, weight in encoder.named_parameters()}
    descent = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for _ in range(4):
        descent.zero_grad()
        (encoder(noise(50, 3)) - noise(50, 3).abs()).square().mean().backward()
        descent.step()
    assert all(not torch.equal(weight, start[name]) for name, weight in encoder.named_parameters())
