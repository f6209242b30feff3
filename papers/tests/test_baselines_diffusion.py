"""`EncDiff`, on diffusers where it is installed: images that are drawn from noise and latents."""

import math
import sys

import numpy as np
import pytest
import torch
from pindown_papers.baselines import EncDiff
from pindown_papers.baselines.denoising import Denoiser, denoising
from pindown_papers.simulations import Sprites

from pindown import load, networks
from pindown.losses import DependencySparsity

QUICK = {"max_iter": 2, "batch_size": 16, "random_state": 0, "device": "cpu", "verbose": False}


def sprites(n, seed):
    z = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed))
    return Sprites(8, factors=("x", "y"), fixed={"shape": 0, "size": 1, "rotation": 0})(z)


def test_without_diffusers_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(ImportError, match="diffusers"):
        EncDiff(2, **QUICK).fit(sprites(40, 0))


@pytest.mark.parametrize("shape", [(6,), (3, 7, 8)])
def test_rows_that_are_no_images_or_have_odd_sides_are_refused(shape):
    with pytest.raises(ValueError, match="EncDiff"):
        EncDiff(2, **QUICK).fit(np.random.default_rng(0).normal(size=(40, *shape)).astype(np.float32))


def test_a_decoder_that_sees_no_noise_is_refused():
    with pytest.raises(TypeError, match="noise"):
        EncDiff(2, decoder=networks.deconvolutional, **QUICK).fit(sprites(40, 0))


def test_images_are_noisy_by_as_much_as_their_level_says():
    denoiser = Denoiser(torch.nn.Identity(), 2, (1, 2, 2))
    x, noise = torch.ones(3, 1, 2, 2), torch.full((3, 1, 2, 2), 5.0)
    noisy = denoiser.noisy(x, torch.tensor([0, 500, 999]), noise)[:, 0, 0, 0]
    kept = torch.cos(math.pi / 2 * (torch.tensor([0, 500, 999]) + 0.5) / 1_000)
    torch.testing.assert_close(noisy, kept + 5 * torch.sqrt(1 - kept**2))
    assert noisy[2] == pytest.approx(5, abs=1e-2)  # nothing is left to see


@pytest.mark.slow
def test_it_fits_encodes_draws_takes_a_penalty_and_is_saved(tmp_path):
    pytest.importorskip("diffusers")
    x = sprites(60, 1)
    est = EncDiff(2, **QUICK).fit(x)
    codes = est.transform(x)
    assert codes.shape == (60, 2)
    assert est.inverse_transform(codes).shape == x.shape
    assert est.sample(3, random_state=0).shape == (3, 3, 8, 8)
    assert est.guarantee is None
    assert -x[0].numel() < est.score(x) < 0
    est.save(tmp_path / "fit.pindown")
    again = load(tmp_path / "fit.pindown", trust=[EncDiff, denoising])
    assert torch.equal(again.transform(x), codes)
    np.testing.assert_allclose(again.inverse_transform(codes), est.inverse_transform(codes), atol=1e-6)
    pressed = EncDiff(2, penalty=DependencySparsity(5.0, n_columns=1), **QUICK).fit(x)
    assert not torch.equal(pressed.transform(x), codes)


@pytest.mark.slow
def test_the_denoiser_uses_the_latents():
    pytest.importorskip("diffusers")
    x, test = sprites(1_000, 1), sprites(300, 2)
    est = EncDiff(2, **QUICK | {"max_iter": 400, "batch_size": 64}).fit(x)
    blind = -0.5 * test[0].numel()  # of noise of unit variance, where latents tell nothing
    assert est.score(test) > 0.5 * blind
