"""Whitening of wide rows: a few passes over them, no covariance, and no direction that the rows do not have."""

import pytest
import torch
from raising import input_error

from pindown.data import ArraySource
from pindown.errors import InputError
from pindown.networks import preprocessing
from pindown.networks.preprocessing import MAX_DIRECTIONS, MAX_FEATURES, leading_directions, whiten

D = MAX_FEATURES + 4


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def low_rank(n, d=D, spreads=(5.0, 3.0, 2.0, 1.0), faint=0.0, seed=0):
    """Return rows that vary along a few directions with known spreads, and those directions (d, k)."""
    directions = torch.linalg.qr(noise(d, len(spreads), seed=99)).Q
    x = noise(n, len(spreads), seed=seed) * torch.tensor(spreads) @ directions.T + faint * noise(n, d, seed=seed + 1)
    return x + 100, directions


def spread(z):
    return z.std(0, correction=0)


def test_wide_samples_are_white_along_the_directions_they_vary_in():
    x, directions = low_rank(300)
    layer = whiten(ArraySource(x))
    assert layer.shape_in == (D,)
    assert layer.shape_out == (4,)  # and no other
    torch.testing.assert_close(torch.cov(layer(x).T, correction=0), torch.eye(4), rtol=0, atol=1e-3)
    unit = layer.matrix / layer.matrix.norm(dim=0)
    torch.testing.assert_close(torch.linalg.svdvals(directions.T @ unit), torch.ones(4), rtol=0, atol=1e-4)


def test_the_leading_directions_are_those_of_the_whole_covariance():
    x, _ = low_rank(400, d=60, faint=0.1)
    found = leading_directions(ArraySource(x), 4)
    variance, direction = torch.linalg.eigh(torch.cov(x.double().T, correction=0))
    torch.testing.assert_close(found.variance, variance.flip(0)[:4], rtol=1e-4, atol=0)
    alike = (direction.flip(1)[:, :4] * found.directions).sum(0).abs()
    torch.testing.assert_close(alike, torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-4)


def test_one_pass_would_not_have_found_them(monkeypatch):
    x, _ = low_rank(400, d=600, spreads=[0.98**i for i in range(200)])
    exact = torch.linalg.eigvalsh(torch.cov(x.double().T, correction=0)).flip(0)[:20].sum()
    monkeypatch.setattr(preprocessing, "PASSES", 1)
    hasty = leading_directions(ArraySource(x), 20).variance.sum()
    monkeypatch.undo()
    ours = leading_directions(ArraySource(x), 20).variance.sum()
    assert hasty < 0.95 * exact < 0.985 * exact < ours < 1.0001 * exact  # .906 ± .01 and .995 ± .001 over seeds


def test_fewer_samples_than_columns_blow_nothing_up():
    # Thirty rows of noise span 29 directions. A new row has nearly all of its length in the others.
    x, new = noise(30, D), noise(200, D, seed=5)
    layer = whiten(ArraySource(x))
    assert layer.shape_out == (29,)
    torch.testing.assert_close(spread(layer(x)), torch.ones(29), rtol=0, atol=1e-3)
    assert spread(layer(new)).max() < 0.2
    narrow = whiten(
        ArraySource(x[:, :300])
    )  # for comparison: with the whole covariance, null directions count as faint
    assert spread(narrow(new[:, :300])).max() > 10


def test_samples_that_repeat_have_the_directions_of_those_that_differ():
    x = noise(5, D)
    assert whiten(ArraySource(x.repeat(10, 1))).shape_out == (4,)


def test_faint_directions_are_kept_but_not_blown_up():
    # Standard deviations 1, .05 and .001 of exactly white latents: the floor is .01, so the last comes out as .1.
    latents = noise(500, 3).double()
    latents = (latents - latents.mean(0)) @ torch.linalg.inv(
        torch.linalg.cholesky(torch.cov(latents.T, correction=0), upper=True)
    )
    directions = torch.linalg.qr(noise(D, 3, seed=99).double()).Q
    x = latents * torch.tensor([1.0, 0.05, 0.001]) @ directions.T
    assert spread(whiten(ArraySource(x)).double()(x)).tolist() == pytest.approx([1, 1, 0.1], abs=1e-3)


@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_the_unit_of_the_data_does_not_matter(scale):
    x = low_rank(100)[0].double()
    white, scaled = (whiten(ArraySource(rows)).double()(rows) for rows in (x, x * scale))
    torch.testing.assert_close(scaled.abs(), white.abs(), rtol=1e-2, atol=1e-2)


def test_images_are_laid_out_as_vectors():
    images = noise(20, 3, 40, 40)
    layer = whiten(ArraySource(images))
    assert layer.shape_in == (3, 40, 40)
    assert torch.equal(layer(images), whiten(ArraySource(images.flatten(1)))(images.flatten(1)))


def test_blocks_make_no_difference_and_results_repeat(monkeypatch):
    x, _ = low_rank(200, faint=0.1)
    whole = whiten(ArraySource(x), n_components=20)
    assert torch.equal(whole.matrix, whiten(ArraySource(x), n_components=20).matrix)
    monkeypatch.setattr("pindown.data.sources.BLOCK_BYTES", 50 * 8 * D)
    torch.testing.assert_close(whiten(ArraySource(x), n_components=20)(x), whole(x), rtol=1e-3, atol=1e-3)


def test_there_are_never_more_directions_than_requested():
    x = noise(40, D)
    assert whiten(ArraySource(x), n_components=7).shape_out == (7,)
    assert MAX_DIRECTIONS == 1_000


def test_wide_samples_that_are_all_the_same_are_an_error():
    with pytest.raises(InputError):
        whiten(ArraySource(torch.ones(10, D)))


def test_a_wide_sample_that_is_not_finite_is_named():
    x = noise(40, D)
    x[17, 3] = float("nan")
    with input_error("x"):
        whiten(ArraySource(x))
