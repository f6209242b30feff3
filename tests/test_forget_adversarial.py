"""Adversarial training of `Forget`: its parts and its initialisation."""

from functools import partial

import numpy as np
import pytest
import torch
from forgetting import confounded, moved, normal, small
from torch import nn

from pindown import Forget, networks, theory
from pindown.losses import reverse_gradient
from pindown.methods.forget.adversarial import ENERGY_WEIGHT, IMAGE_ENERGY_WEIGHT
from pindown.methods.forget.linear_erasure import moment_matched_projection
from pindown.metrics.dependence import Grouping
from pindown.networks import Frame, nearest_frame
from pindown.training import Trainer, TrainingDefaults, constant, optimizers, waiting_cosine
from pindown.training.optimizers import rivals

# the parts of adversarial training


def test_a_reversed_gradient_has_the_other_sign_and_the_value_is_untouched():
    z = torch.tensor([[1.0, -2.0]], requires_grad=True)
    out = reverse_gradient(z, 0.5)
    assert torch.equal(out, z)
    (out * torch.tensor([[1.0, 10.0]])).sum().backward()
    assert torch.equal(z.grad, torch.tensor([[-0.5, -5.0]]))


def test_the_nearest_frame_is_the_polar_factor_and_stays_so_for_skewed_rows():
    matrix = torch.as_tensor(normal(4, 7))
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.allclose(nearest_frame(matrix), u @ vt, atol=1e-6)


class Tug(nn.Module):
    """A game without a middle: one pulls where the other pushes."""

    def __init__(self):
        super().__init__()
        self.encoder, self.answer = nn.Linear(1, 1), nn.Parameter(torch.ones(1))

    def forward(self):
        return self.encoder.weight.sum() * self.answer.sum()


def test_who_answers_keeps_the_rate_and_who_leads_follows_the_schedule():
    def moved(schedule):
        game, trainer = Tug(), Trainer(optimizer=partial(rivals, answer_rate=0.5))
        before = game.encoder.weight.item(), game.answer.item()
        defaults = TrainingDefaults(schedule=schedule)
        trainer.train(game, lambda step, generator: (), max_iter=1, learning_rate=0.1, seed=0, defaults=defaults)
        return abs(game.encoder.weight.item() - before[0]), abs(game.answer.item() - before[1])

    assert moved(waiting_cosine) == (0, pytest.approx(0.5, rel=1e-4))
    assert moved(constant) == (pytest.approx(0.1, rel=1e-4), pytest.approx(0.5, rel=1e-4))


def test_a_frame_stands_still_where_its_gradient_is_noise_and_other_weights_do_not():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.ModuleList([Frame(torch.eye(2)), nn.Linear(2, 2, bias=False)])

    game = Two()
    before = [part.weight.detach().clone() for part in game.encoder]
    for part in game.encoder:
        part.weight.grad = torch.full((2, 2), 1e-4)
    rivals(game, 0.1, 0.0).step()
    frame, other = ((part.weight - old).abs().max().item() for part, old in zip(game.encoder, before, strict=True))
    assert other == pytest.approx(0.1, rel=1e-3)
    assert frame < 0.001


def test_rivals_need_an_encoder():
    with pytest.raises(TypeError, match="objective"):
        optimizers.rivals(nn.Linear(1, 1), 0.1, 0.0)


# where adversarial training starts, and which one is kept


def test_even_rows_show_groups_alike_where_each_lies_in_a_plane_of_its_own():
    rng = np.random.default_rng(0)
    e = rng.integers(2, size=6_000)
    planes = [np.linalg.qr(rng.normal(size=(4, 2))).Q.T for _ in range(2)]
    x = np.stack([rng.normal(size=2) @ planes[value] for value in e])
    grouping = Grouping(e, 0 * e)

    def unlike(rows):
        covariances = np.stack([np.cov((x[e == value] @ rows.T).T) for value in range(2)])
        return np.abs(covariances - np.eye(2)).max()

    found = moment_matched_projection(x, [grouping], np.eye(4)[:2], rng)
    assert unlike(found) < 0.05
    assert min(unlike(np.linalg.qr(rng.normal(size=(4, 2))).Q.T) for _ in range(20)) > 0.2


def test_even_rows_keep_off_differences_of_means_and_do_without_too_few_rows():
    X, e = moved(n=3_000)
    rows = moment_matched_projection(X, [Grouping(e, 0 * e)], np.eye(5)[2:], np.random.default_rng(0))
    assert np.abs(rows[:, :2]).max() < 0.07 * np.abs(rows[:, 2:]).max()
    few = X[:8], [Grouping(e[:8], 0 * e[:8])]
    assert np.array_equal(moment_matched_projection(*few, np.eye(5)[2:], np.random.default_rng(0)), np.eye(5)[2:])


def test_a_nonlinear_encoder_starts_with_one_mean_and_covariance_within_each_level_of_a_given_label():
    sample = confounded()
    forget = Forget(
        encoder=small,
        decoder=small,
        max_iter=1,
        strength=0.0,
        trainer=Trainer(validation_fraction=0.0),
        device="cpu",
        random_state=0,
    )
    Z = forget.fit(sample.x, sample.u, given=sample.label).transform(sample.x).numpy()
    label, e = sample.label.numpy(), sample.u.numpy()
    gaps = [Z[(label == c) & (e == 0)].mean(0) - Z[(label == c) & (e == 1)].mean(0) for c in (0, 1)]
    assert np.abs(gaps).max() < 0.2
    assert np.abs(Z[label == 0].mean(0) - Z[label == 1].mean(0)).max() > 0.5  # which the label moves


@pytest.mark.parametrize("encoder", [partial(networks.linear), lambda n_in, n_out: nn.Linear(n_in, n_out, bias=False)])
def test_a_linear_layer_is_recognised_whoever_makes_it(encoder):
    forget = Forget(encoder=encoder, max_iter=5, trainer=Trainer(validation_fraction=0.0), device="cpu", random_state=0)
    assert forget.guarantee is theory.FORGET
    assert forget.fit(*moved()).components_.shape == (3, 5)
    assert (
        Forget(encoder=lambda n_in, n_out: nn.Sequential(nn.Linear(n_in, n_out))).guarantee is theory.FORGET_NONLINEAR
    )


@pytest.mark.parametrize(("shape", "weight"), [((12,), ENERGY_WEIGHT), ((3, 2, 2), IMAGE_ENERGY_WEIGHT)])
def test_of_images_the_energy_distance_counts_more(shape, weight):
    rows = normal(60, 12).reshape(60, *shape)
    options = {"encoder": networks.skip_mlp, "device": "cpu", "verbose": False, "random_state": 0}
    est = Forget(2, max_iter=1, trainer=Trainer(validation_fraction=0), **options)
    est.fit(rows, np.arange(60) % 2)
    assert est.objective_.energy_weight == weight
