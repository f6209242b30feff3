"""The penalties against float64 references, and their gradients against finite differences."""

import math

import pytest
import torch
from decoders import ALL, KINKED, NONLINEAR, RAW, SMOOTH, by_hand, latents, reference, rng, seeded
from torch import nn

from pindown.losses import (
    DependencyCount,
    DependencySparsity,
    dependency_sparsity,
    pushforward,
)

# ---- tangents -----------------------------------------------------------------------------------------


@ALL
def test_pushed_columns_are_those_of_the_jacobian(build):
    decoder, z = seeded(build), latents()
    x, columns = pushforward(decoder, z)
    torch.testing.assert_close(x, decoder(z))
    torch.testing.assert_close(columns.flatten(2).permute(1, 2, 0), reference(decoder, z))


@ALL
def test_each_sample_may_choose_columns_of_its_own(build):
    decoder, z = seeded(build), latents()
    chosen = torch.randint(3, (2, len(z)), generator=rng(1))
    columns = pushforward(decoder, z, chosen).columns.flatten(2)  # (2, n, m)
    jacobian = reference(decoder, z)
    expected = torch.stack([jacobian[torch.arange(len(z)), :, row] for row in chosen])
    torch.testing.assert_close(columns, expected)


@ALL
def test_derivatives_along_directions_are_products_with_the_jacobian(build):
    decoder, z = seeded(build), latents()
    directions = torch.randn(2, *z.shape, generator=rng(1), dtype=z.dtype)
    moved = pushforward(decoder, z, directions).columns.flatten(2)
    torch.testing.assert_close(moved, torch.einsum("nmd,knd->knm", reference(decoder, z), directions))


def test_an_empty_decoder_is_the_identity():
    assert torch.equal(pushforward(nn.Sequential(), latents()).columns[:, 0], torch.eye(3).double())


# ---- dependency sparsity ------------------------------------------------------------------------------


@ALL
def test_dependency_sparsity_is_the_l1_norm_of_the_standardised_jacobian(build):
    decoder, z = seeded(build), latents(40)
    torch.testing.assert_close(dependency_sparsity(decoder, z), by_hand(decoder, z))


@NONLINEAR
def test_its_gradients_agree_with_finite_differences(build):
    decoder, z = seeded(build), latents(4).requires_grad_()
    weights = dict(decoder.named_parameters())
    names = list(weights)

    def penalty(z, *values):
        given = dict(zip(names, values, strict=True))
        stand_in = Substituted(decoder, given)
        return dependency_sparsity(stand_in if given else decoder, z)

    assert torch.autograd.gradcheck(penalty, (z, *weights.values()), eps=1e-6, atol=1e-5)


class Substituted(nn.Module):
    """A decoder whose weights are given from outside; it has no rule, so `torch.func` pushes through it."""

    def __init__(self, decoder, weights):
        super().__init__()
        self.decoder, self.given = [decoder], weights

    def forward(self, z):
        return torch.func.functional_call(self.decoder[0], self.given, (z,))


@NONLINEAR
def test_closed_form_gradients_of_the_weights_agree_with_those_of_the_reference(build):
    decoder, z = seeded(build), latents(7)
    weights = list(decoder.parameters())
    if not weights:
        pytest.skip("nothing to train")
    ours = torch.autograd.grad(dependency_sparsity(decoder, z), weights, allow_unused=True)
    theirs = torch.autograd.grad(by_hand(decoder, z), weights, allow_unused=True)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine if mine is not None else torch.zeros(()), zero_if_none(other, mine))


def zero_if_none(gradient, like):
    return torch.zeros_like(like if like is not None else torch.zeros(())) if gradient is None else gradient


def blocks_of_draws(penalty, z, n_blocks=40, n_draws=500):
    """Means over many draws: a row that stands in a batch many times draws again each time, and no scale changes."""
    return torch.stack([penalty(z.repeat(n_draws, 1)) for _ in range(n_blocks)])


@pytest.mark.parametrize("build", [SMOOTH["images in groups"], KINKED["deconvolutional"], SMOOTH["layer norm"]])
def test_decoders_of_images_and_their_normalisations_are_pushed_in_closed_form(build, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("torch.func was asked")

    decoder, z = seeded(build), latents()
    expected = reference(decoder, z)
    monkeypatch.setattr(torch.func, "jvp", refuse)
    torch.testing.assert_close(pushforward(decoder, z).columns.flatten(2).permute(1, 2, 0), expected)


@pytest.mark.parametrize("penalty", [DependencySparsity(n_samples=2), DependencyCount(n_columns=1)])
def test_samples_and_columns_that_are_taken_have_the_mean_of_all(penalty):
    decoder, z = seeded(SMOOTH["images in groups"]), latents()
    whole = type(penalty)()(decoder, z, torch.zeros(z.shape))[1]
    if penalty.n_samples:  # the first rows of a batch: of all the batches that begin elsewhere
        parts = [penalty(decoder, z.roll(k, 0), torch.zeros(z.shape)) for k in range(len(z))]
    else:  # the latent with the least of some random numbers: of all the latents that may have it
        parts = [penalty(decoder, z, -torch.eye(3)[[j] * len(z)]) for j in range(3)]
    torch.testing.assert_close(torch.stack([cost for _, cost in parts]).mean(), whole)
    assert all(x.shape == decoder(z).shape for x, _ in parts)
    torch.testing.assert_close(parts[0][0], decoder(z))


@pytest.mark.parametrize("n_columns", [1, 2])
def test_sampled_columns_are_unbiased_in_value_and_gradient(n_columns):
    decoder, z = seeded(SMOOTH["tanh"]), latents(8)
    weight, source, sampled = decoder[0].weight, rng(), DependencySparsity(n_columns=n_columns)
    exact = DependencySparsity()(decoder, z, z)[1]
    (slope,) = torch.autograd.grad(exact, weight)
    draws = blocks_of_draws(lambda z: sampled(decoder, z, torch.rand(z.shape, generator=source))[1], z)
    error = draws.std() / math.sqrt(len(draws))
    assert abs(draws.mean() - exact) < 4 * error < 0.02 * exact
    (estimated,) = torch.autograd.grad(draws.mean(), weight)
    assert (estimated - slope).abs().max() < 0.05 * slope.abs().max()


def test_scaling_latents_or_observations_does_not_cheat_standardised_units_but_does_cheat_raw_ones():
    decoder, z = seeded(SMOOTH["tanh"]), latents(30)
    first, last = decoder[0], decoder[-1]
    before = dependency_sparsity(decoder, z), dependency_sparsity(decoder, z, z_scale=RAW, x_scale=RAW)
    with torch.no_grad():
        first.weight /= 10
        last.weight *= 3
        last.bias *= 3
    after = dependency_sparsity(decoder, 10 * z), dependency_sparsity(decoder, 10 * z, z_scale=RAW, x_scale=RAW)
    torch.testing.assert_close(after[0], before[0])
    torch.testing.assert_close(after[1], 0.3 * before[1])


def test_thousands_of_latents_need_no_unit_vectors():
    # One-hot tangents would take 64 · 32 · 20,000 · 4 bytes = 164 MB next to the 5 MB of weights.
    decoder, z = nn.Sequential(nn.Linear(20_000, 64), nn.ReLU(), nn.Linear(64, 4)), torch.zeros(32, 20_000)
    chosen = torch.randint(20_000, (64, 32), generator=rng())
    largest = LargestResult()
    with largest:
        pushforward(decoder, z, chosen)
    assert largest.size <= 20_000 * 64


class LargestResult(torch.utils._python_dispatch.TorchDispatchMode):
    """Watches how large the results of operations are."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.size = max(self.size, result.untyped_storage().nbytes() // result.element_size())
        return result


def test_a_pixel_that_never_changes_is_no_division_by_zero():
    decoder = nn.Linear(2, 2, bias=False)
    decoder.weight.data = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    penalty = dependency_sparsity(decoder, latents(10, 2, torch.float32))
    (slope,) = torch.autograd.grad(penalty, decoder.weight)
    assert penalty.item() == pytest.approx(1.0)
    assert slope.isfinite().all()
