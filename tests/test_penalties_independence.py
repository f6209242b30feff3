"""The energy distance between groups of latents: 0 where they have one law, above it where they do not."""

import pytest
import torch

from pindown.errors import InputError
from pindown.losses import energy_distance


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_groups_of_one_law_are_no_distance_apart_in_the_mean_however_few_they_have():
    found = torch.stack([energy_distance(normal(12, 2, seed=s), torch.arange(12) % 3) for s in range(400)])
    assert found.mean().abs() / (found.std() / 400**0.5) < 5
    assert found.std() > 0.05  # so that it could have been seen


@pytest.mark.parametrize("stretch", [1.0, 3.0])
def test_groups_whose_spreads_differ_are_apart_though_their_means_agree(stretch):
    groups = torch.arange(2_000) % 2
    z = normal(2_000, 2) * torch.where(groups == 1, stretch, 1.0)[:, None]
    assert (energy_distance(z, groups) > 0.05) == (stretch != 1)


def test_two_normal_laws_have_the_distance_of_the_book():
    groups = torch.arange(4_000) % 2
    z = normal(4_000, 1, seed=1).double() + 100.0 * groups[:, None]
    # Half of the pairs are 100 apart, half 2/√π; in a group all are 2/√π.
    assert energy_distance(z, groups).item() == pytest.approx((100 - 2 / torch.pi**0.5) / 2, rel=0.002)


def test_a_shift_between_strata_is_no_difference_within_them():
    strata, groups = torch.arange(2_000) // 1_000, torch.arange(2_000) % 2
    groups[:600] = 0  # so that groups go with strata
    z = normal(2_000, 2) + 5.0 * strata[:, None]
    assert energy_distance(z, groups, within=strata).abs() < 0.02
    assert energy_distance(z, groups) > 0.1
    assert energy_distance(z + groups[:, None], groups, within=strata) > 0.1


def test_samples_without_weight_do_not_matter_and_weights_balance_groups():
    groups = torch.arange(900) % 3
    z = normal(900, 2) + torch.where(groups == 2, 50.0, 0.0)[:, None]
    counts = (groups != 2).float()
    kept = groups != 2
    assert energy_distance(z, groups, weights=counts).item() == pytest.approx(
        energy_distance(z[kept], groups[kept]).item(), abs=1e-5
    )
    rare = torch.cat([torch.zeros(800, dtype=torch.int64), torch.ones(100, dtype=torch.int64)])
    apart = normal(900, 1) + 100.0 * rare[:, None]
    balanced = energy_distance(apart, rare, weights=torch.where(rare == 1, 8.0, 1.0))
    assert balanced.item() == pytest.approx((100 - 2 / torch.pi**0.5) / 2, rel=0.01)


def test_gradients_draw_groups_together_and_are_finite_where_latents_coincide():
    groups = torch.arange(40) % 2
    z = (3.0 * groups[:, None]).repeat(1, 2).requires_grad_()
    energy_distance(z, groups).backward()
    assert z.grad.isfinite().all()
    assert (z.grad[groups == 1] > 0).all()
    assert (z.grad[groups == 0] < 0).all()


def test_groups_that_do_not_fit_the_latents_raise():
    with pytest.raises(InputError) as error:
        energy_distance(torch.zeros(4, 2), torch.zeros(3, dtype=torch.int64))
    assert error.value.argument == "groups"
