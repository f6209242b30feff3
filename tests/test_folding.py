"""Maps whose folds are known by thought, and a pair of trained encoders."""

import math
import warnings
from functools import partial

import pytest
import torch
from torch import nn

from pindown import Contrast, networks
from pindown.methods import PairLoss
from pindown.metrics import linear_r2
from pindown.networks.folding import Folding, find_folding
from pindown.networks.spaces import Reals, Sphere
from pindown.simulate import Pairs


def normal(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sphere(n, d, seed=0):
    return Sphere().uniform(n, d, random_state=seed, dtype=torch.float64)


def orthogonal(d, seed=7):
    return torch.linalg.qr(normal(d, d, seed)).Q


def folded_in_two(z):
    return torch.cat([z[:, :1].abs(), z[:, 1:]], 1)


def reflected(z):
    return torch.cat([-z[:, :1], z[:, 1:]], 1)


def curved(d, m, steepness=1.0, seed=3):
    """Return a map of d into m dimensions that bends, and its inverse on the sheet."""
    waves = steepness * normal(d, m - d, seed) / d**0.5
    return (lambda z: torch.cat([z, torch.sin(z @ waves)], 1)), (lambda x: x[:, :d])


# data that fill their space


@pytest.mark.parametrize("d", [1, 2, 5, 10])
@pytest.mark.parametrize("change", [lambda z: z, reflected, lambda z: z @ orthogonal(z.shape[1]), torch.sinh])
def test_maps_that_are_injective_reverse_no_orientation(d, change):
    seen = find_folding(change, normal(500, d))
    assert (seen.fraction, seen.uncertainty, seen.flat, seen.verdict) == (0, 0, 0, "injective")


@pytest.mark.parametrize("d", [1, 2, 5, 10])
def test_a_map_that_folds_one_axis_reverses_half_of_the_samples(d):
    x = normal(1_000, d)
    seen = find_folding(folded_in_two, x)
    left = float((x[:, 0] < 0).double().mean())
    assert seen.fraction == pytest.approx(min(left, 1 - left), abs=2e-3)  # differences may straddle the crease
    assert seen.verdict == "folded"


def test_folds_at_two_places_reverse_what_lies_between_them():
    x = normal(2_000, 3)
    seen = find_folding(lambda x: torch.cat([(x[:, :1].abs() - 1).abs(), x[:, 1:]], 1), x)  # at −1, 0 and 1
    between = float(((x[:, 0] < -1) | ((x[:, 0] > 0) & (x[:, 0] < 1))).double().mean())
    assert seen.fraction == pytest.approx(min(between, 1 - between), abs=2e-3)


def test_a_small_fold_is_measured_but_not_warned_of():
    seen = find_folding(lambda x: torch.cat([(x[:, :1] + 2).abs(), x[:, 1:]], 1), normal(2_000, 2))
    assert 0.005 < seen.fraction < 0.05  # a normal variable is below −2 with probability .023
    assert seen.verdict == "injective"


def test_a_direction_ironed_flat_is_counted_and_a_narrow_one_is_not():
    x = normal(500, 3)
    assert find_folding(lambda x: x * torch.tensor([1, 1, 0.1]), x).flat == 0
    flat = find_folding(lambda x: x * torch.tensor([1, 0.01, 0.001]), x)
    assert (flat.flat, flat.verdict) == (2, "flat")


def test_clusters_that_lie_apart_may_be_reflected_one_by_one():
    x = torch.cat([normal(400, 3, seed) + 8 * seed for seed in range(3)])
    seen = find_folding(lambda x: torch.where(x.sum(1, keepdim=True) > 36, reflected(x), x), x)
    assert seen.verdict == "injective"
    assert find_folding(lambda x: torch.where(x[:, :1] > 0, reflected(x), x), normal(1_200, 3)).verdict == "folded"


# data on a sphere


@pytest.mark.parametrize("d", [2, 3, 5, 10])
@pytest.mark.parametrize("change", [lambda z: z, reflected, lambda z: z @ orthogonal(z.shape[1])])
def test_on_the_sphere_rotations_and_reflections_reverse_no_orientation(d, change):
    seen = find_folding(lambda z: Sphere()(change(z)), sphere(1_000, d), Sphere())
    assert (seen.fraction, seen.verdict) == (0, "injective")


def test_a_line_laid_along_a_circle_is_no_fold_and_one_that_turns_back_is():
    line = torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
    seen = [
        find_folding(lambda x, bent=bent: torch.cat([bent(x).cos(), bent(x).sin()], 1), line, Sphere()).verdict
        for bent in (lambda x: x, torch.abs)
    ]
    assert seen == ["injective", "folded"]


@pytest.mark.parametrize("d", [2, 3, 5, 10])
def test_a_sphere_folded_onto_a_hemisphere_is_seen(d):
    seen = find_folding(lambda z: Sphere()(folded_in_two(z)), sphere(1_000, d), Sphere())
    assert 0.25 < seen.fraction <= 0.5  # half of the rows, ± .016; none would be turned over if nothing were folded
    assert seen.verdict == "folded"


def test_a_projection_that_is_linear_in_space_folds_the_sphere():
    # The Jacobian is the same everywhere: it is the surface that turns.
    seen = find_folding(
        lambda z: Sphere()(z * torch.tensor([0.0, 1, 1]) + torch.tensor([1.0, 0, 0])), sphere(1_000, 3), Sphere()
    )
    assert seen.fraction > 0.45


def test_a_surface_that_its_middle_does_not_see_is_not_taken_for_folded():
    thick, arc = 0.4, 2.6  # a croissant: most normals of its inner side point to the middle

    def bent(z):
        radius, angle = 1 + thick * z[:, 0], arc * z[:, 2]
        return torch.stack([radius * angle.cos(), radius * angle.sin(), thick * z[:, 1]], 1)

    def straightened(x):
        radius, angle = x[:, :2].norm(dim=1), torch.atan2(x[:, 1], x[:, 0])
        return torch.stack([(radius - 1) / thick, x[:, 2] / thick, angle / arc], 1)

    x = bent(sphere(2_000, 3))
    assert find_folding(lambda x: Sphere()(straightened(x)), x, Sphere()).verdict == "injective"
    assert find_folding(lambda x: Sphere()(folded_in_two(straightened(x))), x, Sphere()).verdict == "folded"


def test_a_double_cover_reverses_no_orientation_and_stays_unseen():
    doubled = lambda z: torch.stack([z[:, 0] ** 2 - z[:, 1] ** 2, 2 * z[:, 0] * z[:, 1]], 1)  # noqa: E731
    assert find_folding(doubled, sphere(1_000, 2), Sphere()).fraction == 0


# more features than dimensions


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("space", [Reals(), Sphere()])
def test_on_a_curved_sheet_only_what_happens_along_it_counts(d, space):
    d += space == Sphere()
    z = sphere(1_000, d) if space == Sphere() else normal(1_000, d)
    embed, read = curved(d, 3 * d)
    assert find_folding(lambda x: space(read(x)), embed(z), space).verdict == "injective"
    assert find_folding(lambda x: space(reflected(read(x))), embed(z), space).verdict == "injective"
    assert find_folding(lambda x: space(folded_in_two(read(x))), embed(z), space).verdict == "folded"


def test_a_sheet_with_more_waves_than_samples_show_is_left_undecided():
    z = normal(1_000, 4)
    embed, read = curved(4, 12, steepness=4.0)
    seen = find_folding(read, embed(z))
    assert seen.uncertainty > 0.1
    assert seen.verdict == "undecided"


def test_isomap_flattens_a_roll_without_a_fold_and_a_projection_folds_it():
    angle, height = 4.7 + 9.4 * torch.rand(2, 2_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.stack([angle * angle.cos(), 2 * height, angle * angle.sin()], 1)
    assert find_folding(lambda x: torch.stack([x[:, [0, 2]].norm(dim=1), x[:, 1]], 1), x).verdict == "injective"
    assert find_folding(lambda x: x[:, :2], x).verdict == "folded"


def test_features_without_variance_change_nothing():
    x = normal(500, 3)
    wide = torch.cat([x, torch.ones(500, 2, dtype=torch.float64)], 1) @ orthogonal(5)
    assert find_folding(lambda w: folded_in_two((w @ orthogonal(5).T)[:, :3]), wide).fraction == pytest.approx(
        find_folding(folded_in_two, x).fraction, abs=2e-3
    )


def test_noise_in_all_directions_is_answered_with_doubt_and_not_with_a_warning():
    flat = torch.linalg.qr(normal(30, 3)).Q
    x = sphere(2_000, 3) @ flat.T + 0.3 * normal(2_000, 30, 1)
    seen = find_folding(lambda x: Sphere()(x @ flat), x, Sphere())
    assert seen.uncertainty > 0.2
    assert seen.verdict == "undecided"


# what cannot be seen


@pytest.mark.parametrize(
    ("encode", "x", "space"),
    [
        (folded_in_two, normal(199, 2), Reals()),  # too few
        (folded_in_two, normal(1, 2), Reals()),
        (torch.ones_like, normal(500, 2), Reals()),  # one latent for all
        (lambda x: x, torch.ones(500, 2), Reals()),  # one sample, many times
        (lambda x: torch.cat([x, x], 1), normal(500, 2), Reals()),  # more latents than data have dimensions
        (lambda x: x / 0, normal(500, 2), Reals()),
        (Sphere(), normal(500, 1), Sphere()),  # two points
    ],
)
def test_where_there_is_nothing_to_see_it_says_so(encode, x, space):
    seen = find_folding(encode, x, space)
    assert math.isnan(seen.fraction)
    assert (seen.verdict, seen.n_samples) == ("undecided", len(x))
    assert str(seen).startswith("undecided")


def test_many_samples_are_thinned_and_chance_is_left_alone():
    x, before = normal(5_000, 2), torch.get_rng_state()
    seen = [find_folding(folded_in_two, x) for _ in range(2)]
    assert seen[0] == seen[1]
    assert seen[0].n_samples == 2_000
    assert torch.equal(before, torch.get_rng_state())


def test_the_verdict_weighs_the_fraction_against_the_uncertainty():
    verdicts = [Folding(share, doubt, 0, 1).verdict for share, doubt in ((0.4, 0.1), (0.4, 0.2), (0.05, 0.2))]
    assert verdicts == ["folded", "undecided", "injective"]


# trained encoders

DEEP = partial(networks.mlp, hidden=(64,) * 6)


def fitted(encoder, seed, max_iter):
    process = Pairs.on_sphere(4, 5.0, random_state=seed)
    train, test = process.sample(5_000, random_state=100 + seed), process.sample(4_000, random_state=200 + seed)
    estimator = Contrast(
        4,
        encoder=encoder,
        batch_size=256,
        max_iter=max_iter,
        loss=PairLoss(any_marginal=False),
        random_state=seed,
        device="cpu",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(train.x, train.x_pos)
    return estimator, linear_r2(estimator.transform(test.x), test.z), [str(w.message) for w in caught]


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_perceptron_stopped_early_is_folded_and_the_fit_says_what_to_do(seed):
    estimator, r2, messages = fitted(DEEP, seed, 60)
    assert r2 < 0.9
    assert estimator.folding_.verdict in ("folded", "flat")
    assert len(messages) == 1
    for part in ("the encoder is f", "not injective", "encoder=networks.skip_mlp", "max_iter"):
        assert part in messages[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_default_encoder_is_not_folded_and_the_fit_is_silent(seed):
    estimator, r2, messages = fitted(networks.skip_mlp, seed, 300)
    assert r2 > 0.98
    assert estimator.folding_.verdict == "injective"
    assert messages == []


def test_the_encoder_is_not_changed_by_the_measurement():
    estimator, _, _ = fitted(networks.skip_mlp, 0, 2)
    assert {w.dtype for w in estimator.encoder_.parameters()} == {torch.float32}
    assert not any(isinstance(m, nn.Module) and m.training for m in estimator.encoder_.modules())
