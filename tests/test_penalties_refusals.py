"""Decoders and arguments for which penalties raise an error."""

import pytest
import torch
from decoders import attending, by_hand, latents, seeded
from torch import nn

from pindown.errors import InputError
from pindown.losses import (
    DependencyCount,
    DependencySparsity,
    dependency_sparsity,
    pushforward,
)


class Cut(nn.Module):
    def forward(self, z):
        return z.detach() * 2


@pytest.mark.parametrize("decoder", [Cut(), nn.Sequential(nn.Linear(3, 3), Cut()), lambda z: (z > 0).double()])
def test_a_decoder_that_is_not_differentiable_raises(decoder):
    with pytest.raises(InputError):
        dependency_sparsity(decoder.double() if isinstance(decoder, nn.Module) else decoder, latents())


class Opaque(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        return z * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_a_function_without_a_forward_derivative_raises():
    with pytest.raises(InputError):
        dependency_sparsity(Opaque.apply, latents())


def test_batch_normalisation_raises_in_training_mode_only():
    decoder = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh()).double()
    with pytest.raises(InputError):
        dependency_sparsity(decoder, latents())
    decoder.eval()
    torch.testing.assert_close(dependency_sparsity(decoder, latents()), by_hand(decoder, latents()))


def test_a_transformer_whose_samples_attend_to_each_other_raises():
    decoder = attending(batch_first=False).double()
    with pytest.raises(InputError):
        DependencySparsity()(decoder, latents(), torch.zeros(6, 3))


def test_a_transformer_with_dropout_is_right_in_evaluation_mode():
    decoder = seeded(lambda: attending(dropout=0.5)).eval()
    torch.testing.assert_close(dependency_sparsity(decoder, latents()), by_hand(decoder, latents()))
    assert torch.isfinite(dependency_sparsity(decoder.train(), latents()))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: DependencyCount(n_samples=1), "n_samples"),
        (lambda: DependencyCount(epsilon=0.0), "epsilon"),
        (lambda: DependencySparsity(n_columns=0), "n_columns"),
        (lambda: DependencySparsity(weight=-1.0), "weight"),
        (lambda: pushforward(nn.Identity(), torch.zeros(3)), "z"),
        (lambda: pushforward(nn.Identity(), torch.zeros(3, 2), torch.zeros(1, 2, dtype=torch.int64)), "tangents"),
        (lambda: dependency_sparsity(nn.Linear(3, 3).double(), latents(1)), "z"),
    ],
)
def test_arguments_out_of_range_raise(make, argument):
    with pytest.raises(InputError) as error:
        make()
    assert error.value.argument == argument
