"""What the penalties cannot push a tangent through, or would be wrong, is refused by name; and so are arguments."""

import pytest
import torch
from decoders import SMOOTH, attending, by_hand, latents, perceptron, seeded
from torch import nn

from pindown.penalties import (
    DependencyCount,
    DependencySparsity,
    dependency_sparsity,
    hessian_penalty,
    pushforward,
)


class Cut(nn.Module):
    def forward(self, z):
        return z.detach() * 2


@pytest.mark.parametrize("decoder", [Cut(), nn.Sequential(nn.Linear(3, 3), Cut()), lambda z: (z > 0).double()])
def test_a_decoder_that_is_not_differentiable_is_refused(decoder):
    with pytest.raises(ValueError, match=r"not differentiable.*detach"):
        dependency_sparsity(decoder.double() if isinstance(decoder, nn.Module) else decoder, latents())


class Opaque(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        return z * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_a_function_without_a_forward_derivative_is_refused_by_name():
    with pytest.raises(ValueError, match=r"torch.func cannot push a tangent.*jvp"):
        dependency_sparsity(Opaque.apply, latents())


def test_batch_normalisation_is_refused_while_it_mixes_rows_and_taken_once_it_does_not():
    decoder = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh()).double()
    with pytest.raises(ValueError, match=r"batch normalisation in training mode.*eval"):
        dependency_sparsity(decoder, latents())
    decoder.eval()
    torch.testing.assert_close(dependency_sparsity(decoder, latents()), by_hand(decoder, latents()))


def test_a_transformer_whose_rows_attend_to_each_other_is_refused():
    decoder = attending(batch_first=False).double()
    for penalty in (DependencySparsity(), DependencySparsity(n_pixels=1)):
        with pytest.raises(ValueError, match=r"rows attend to each other.*batch_first=True"):
            penalty(decoder, latents(), torch.zeros(6, 3))


def test_a_transformer_that_drops_tokens_is_given_to_torch_and_stays_right_once_it_drops_none():
    decoder = seeded(lambda: attending(dropout=0.5)).eval()
    torch.testing.assert_close(dependency_sparsity(decoder, latents()), by_hand(decoder, latents()))
    assert torch.isfinite(dependency_sparsity(decoder.train(), latents()))


@pytest.mark.parametrize(
    "build", [attending, SMOOTH["attention of one's own"], SMOOTH["layer norm"], perceptron(nn.ReLU())]
)
def test_pixels_are_pulled_back_through_attention_and_normalisation(build):
    decoder, z = seeded(build), latents()
    m = decoder(z)[0].numel()
    whole, all_pixels = (DependencySparsity(n_pixels=k)(decoder, z, torch.zeros(z.shape))[1] for k in (None, m))
    torch.testing.assert_close(all_pixels, whole)
    weight = decoder[0].weight
    ours, theirs = (torch.autograd.grad(cost, weight)[0] for cost in (all_pixels, whole))
    torch.testing.assert_close(ours, theirs)


def test_counts_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="give one of the two"):
        DependencyCount(n_columns=1, n_pixels=1)
    with pytest.raises(ValueError, match="n_pixels must be at least 1"):
        DependencySparsity(n_pixels=0)
    with pytest.raises(ValueError, match="not differentiable"):
        DependencySparsity(n_pixels=1)(torch.detach, latents(), torch.zeros(6, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_columns": 4}, "n_columns must be between 1 and d=3, got 4"),
        ({"n_columns": 0}, "n_columns must be between 1"),
        ({"active": torch.zeros(5, 1, dtype=torch.int64)}, "active must be int64 of shape"),
        ({"active": torch.zeros(6, 1)}, "active must be int64 of shape"),
        ({"active": torch.zeros(6, 1, dtype=torch.int64), "n_columns": 1}, "give one of the two"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        dependency_sparsity(nn.Linear(3, 3).double(), latents(), **arguments)


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="z must be a matrix"):
        pushforward(nn.Identity(), torch.zeros(3))
    with pytest.raises(ValueError, match="columns must be int64"):
        pushforward(nn.Identity(), torch.zeros(3, 2), torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="two rows or more"):
        dependency_sparsity(nn.Linear(3, 3).double(), latents(1))
    with pytest.raises(ValueError, match="at least 2"):
        hessian_penalty(nn.Identity(), torch.zeros(3, 2), n_directions=1)
