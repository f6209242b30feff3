"""Optimisers: what a step is, which weights take it, and where it comes further than Adam."""

import pytest
import torch
from pindown_papers.muon import LEAST_SIDE, Muon, muon, orthogonal_factor
from torch import nn

from pindown.training import Trainer
from pindown.training.optimizers import adam


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(2, 8, 8), (3, 8, 20), (1, 20, 8)])
def test_the_orthogonal_factor_keeps_singular_vectors_and_evens_out_singular_values(shape):
    u, _, vt = torch.linalg.svd(normal(*shape), full_matrices=False)
    s = torch.linspace(1, 20, min(shape[1:])).flip(0)
    matrices = u * s @ vt
    factor = orthogonal_factor(matrices)
    in_their_basis = u.mT @ factor @ vt.mT  # diagonal if the singular vectors are the same
    values = in_their_basis.diagonal(dim1=1, dim2=2)
    assert (in_their_basis - torch.diag_embed(values)).abs().max() < 1e-4
    assert values.min() > 0.6
    assert values.max() < 1.4


def test_a_zero_gradient_moves_nothing():
    assert orthogonal_factor(torch.zeros(1, 3, 3)).abs().max() == 0


def test_the_step_has_the_size_of_adams():
    weight = nn.Parameter(torch.zeros(200, 300))
    weight.grad = normal(200, 300)
    Muon([{"params": [weight], "orthogonal": True, "weight_decay": 0.0}], lr=torch.tensor(1.0)).step()
    # Adam's first step is ±1 in each entry; its later ones are about .2, which the factor is made for.
    assert 0.1 < weight.detach().square().mean().sqrt() < 0.25


def test_a_step_follows_the_learning_rate_in_memory():
    rate = torch.tensor(1.0)
    weight = nn.Parameter(torch.zeros(4, 4))
    optimizer = Muon([{"params": [weight], "orthogonal": True, "weight_decay": 0.0}], lr=rate)
    weight.grad = normal(4, 4)
    optimizer.step()
    far = weight.detach().clone()
    rate.fill_(0.0)
    optimizer.step()
    assert torch.equal(weight.detach(), far)


def test_only_large_matrices_take_orthogonal_steps_and_only_matrices_decay():
    side = LEAST_SIDE
    network = nn.Sequential(nn.Linear(3, side), nn.Linear(side, side), nn.Linear(side, side), nn.Linear(side, 2))
    groups = muon(network, 1e-3, 0.5).param_groups
    assert [(g["orthogonal"], g["weight_decay"], len(g["params"])) for g in groups] == [
        (True, 0.5, 2),
        (False, 0.5, 2),
        (False, 0.0, 4),
    ]


def test_small_networks_take_adams_steps():
    def trained(make):
        network = nn.Linear(3, 2)
        with torch.no_grad():
            network.weight.copy_(normal(2, 3))
            network.bias.zero_()
        optimizer = make(network, 1e-2, 0.1)
        for step in range(20):
            optimizer.zero_grad()
            network(normal(8, 3, seed=step)).square().sum().backward()
            optimizer.step()
        return network.weight.detach()

    assert torch.allclose(trained(muon), trained(adam), atol=1e-7)


class Valley(nn.Module):
    """Fit of a matrix, seen through inputs whose scales span two decades, along directions that are no axes."""

    def __init__(self, seed):
        super().__init__()
        d = LEAST_SIDE
        self.weight = nn.Parameter(torch.zeros(d, d))
        self.register_buffer("target", normal(d, d, seed=seed) / d**0.5)
        turn = torch.linalg.qr(normal(d, d, seed=seed + 1)).Q
        self.register_buffer("inputs", torch.logspace(0, -2, d)[:, None] * turn)

    def forward(self, x):
        return (x @ self.inputs @ (self.weight - self.target)).square().sum(1).mean()


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 5))])
def test_orthogonal_momentum_comes_further_than_adam_in_a_narrow_valley(seed):
    def draw(step, generator):
        return (torch.randn(256, LEAST_SIDE, generator=generator),)

    def best_loss(make):
        def last_loss(rate):
            options = {"max_iter": 150, "learning_rate": rate, "seed": 0}
            return Trainer(optimizer=make).train(Valley(seed), draw, **options).loss_curve[-10:].mean()

        return min(map(last_loss, (5e-3, 2e-2, 5e-2)))

    assert best_loss(muon) < 0.5 * best_loss(adam)


def test_a_resumed_run_equals_an_unbroken_one(tmp_path):
    def draw(step, generator):
        if step == stop:
            raise RuntimeError("cut")
        return (torch.randn(16, LEAST_SIDE, generator=generator),)

    def run(path):
        objective, trainer = Valley(0), Trainer(optimizer=muon, checkpoint=path, save_every=0.0)
        trainer.train(objective, draw, max_iter=60, learning_rate=1e-3, seed=0)
        return objective.weight.detach()

    stop = 40
    with pytest.raises(RuntimeError, match="cut"):
        run(tmp_path / "cut.safetensors")
    stop = None
    assert torch.equal(run(tmp_path / "cut.safetensors"), run(tmp_path / "whole.safetensors"))
