import numpy as np
import pytest
import torch
from pindown_papers.simulations import Sprites, well_separated
from raising import input_error
from sklearn.datasets import load_digits
from torch import nn

import pindown
from pindown import disentangle, theory
from pindown.errors import InputError
from pindown.methods.dictionary.disentangle import symmetry
from pindown.methods.dictionary.rotation import dependencies, rotation_optima
from pindown.networks.spaces import Reals

DIVERSE = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]])
TWINS = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 1], [0, 0, 1], [1, 1, 0], [1, 1, 1]])  # latents 0 and 1 reach the same
DENSE = np.ones((6, 3), dtype=int)


def rotation(d, seed=0):
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed)))[0]


def normal(n, d, seed=1):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def turned(mixing, d, seed=0, latents=None):
    """Disentangle a decoder that is known but for a rotation; return what was found, and what is left of it."""
    turn = rotation(d, seed)
    found = disentangle(lambda z: mixing(z @ turn), normal(1_000, d) if latents is None else latents)
    return found, np.abs(turn.T.numpy() @ found.rotation)


def world(support, seed):
    return well_separated(support, random_state=seed).mixing


# ---- assumptions hold: the rotation is found; broken: nothing is claimed -------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_sparse_decoder_is_rotated_to_its_latents_and_each_is_claimed(seed):
    found, left = turned(world(DIVERSE, seed), 3, seed)
    assert left.max(0).min() > 0.99
    assert sorted(left.argmax(0)) == [0, 1, 2]
    assert found.after < min(found.chance, found.before)
    assert found.guarantee is theory.DICTIONARY_SINGLE
    assert "{0}, {1}, {2}" in found.claim
    order = left.argmax(0)
    assert np.array_equal(found.support.T.astype(int), DIVERSE[:, order])


@pytest.mark.parametrize("seed", range(4))
def test_of_a_dense_decoder_nothing_is_claimed(seed):
    found, _ = turned(world(DENSE, seed), 3, seed)
    assert found.claim is None
    assert found.guarantee is None
    assert "No claim is supported" in str(found)


@pytest.mark.parametrize("seed", range(3))
def test_latents_that_reach_the_same_are_claimed_together_only(seed):
    found, left = turned(world(TWINS, seed), 3, seed)
    assert sorted(len(block.latents) for block in found.blocks) == [1, 2]
    assert found.guarantee is theory.DICTIONARY_BLOCKS
    (single,) = (next(iter(block.latents)) for block in found.blocks if block.is_single)
    assert left[2, single] > 0.99


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_in_a_linear_decoder_some_outputs_are_always_cleared_and_nothing_is_claimed(seed):
    weights = normal(5, 100, seed)
    found, _ = turned(lambda z: z @ weights, 5)
    assert found.claim is None
    assert any("no axes in common" in reason for reason in found.reasons_not_to_claim)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("d", [2, 3])
def test_one_layer_of_random_weights_is_dense_and_nothing_is_claimed(d, seed):
    rng = torch.Generator().manual_seed(seed)
    weights, shift = 2 * torch.rand(d, 64, generator=rng) - 1, torch.rand(64, generator=rng)  # corners are more common
    found = disentangle(lambda z: torch.tanh(z @ weights + shift), normal(1_000, d, 10 + seed))
    assert found.claim is None
    assert any("no axes in common" in reason for reason in found.reasons_not_to_claim)


def sparse(z):
    a, b, c = z.unbind(1)
    return torch.stack([a.sin(), b.exp(), c.tanh(), a * b, b * c, (a + c).sin(), a * c, c.cos()], dim=1)


MIX = normal(3, 8, 7)
HIDDEN = {
    "jumps": lambda z: sparse(z) + 3 * torch.sign(z @ MIX),
    "a part that is detached": lambda z: sparse(z) + 3 * torch.sin(z.detach() @ MIX),
    "rounding whose derivative is another's": lambda z: sparse(z) + ((3 * z @ MIX).round() - 3 * z @ MIX).detach(),
}


@pytest.mark.parametrize("decoder", HIDDEN.values(), ids=HIDDEN)
def test_nothing_is_claimed_if_derivatives_miss_a_dependence(decoder):
    assert disentangle(sparse, normal(1_000, 3)).claim is not None
    found = disentangle(decoder, normal(1_000, 3))
    assert found.claim is None
    assert any("derivatives do not see" in reason for reason in found.reasons_not_to_claim)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_of_an_autoencoder_of_real_digits_nothing_is_claimed_though_its_prior_is_gaussian(seed):
    # As many write one: nobody knows what the latents of digits are, and no gap parts derivatives from none.
    x, d = torch.tensor(load_digits().data / 16, dtype=torch.float32), 5
    torch.manual_seed(seed)  # noqa: TID251 (as they do)
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2 * d))
    decoder = nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid())
    descent = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
    for _ in range(600):
        rows = x[torch.randint(len(x), (128,))]
        mean, log_variance = encoder(rows).chunk(2, 1)
        latents = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        missed = nn.functional.binary_cross_entropy(decoder(latents), rows, reduction="none").sum(1)
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
        descent.zero_grad()
        (missed + divergence).mean().backward()
        descent.step()
    found = disentangle(decoder, normal(2_000, d, seed))
    assert found.symmetry.kind == "Gaussian"
    assert found.claim is None
    assert any("neither strong nor faint" in reason for reason in found.reasons_not_to_claim)


MOMENTS = np.stack([np.diag([1.0, 0.1]), np.diag([0.1, 1.0])])


def test_a_tie_is_found():
    # Three outputs along three axes, three along axes that are turned by 60 degrees about (1, 1, 1): either will do.
    other = torch.ones(3, 3) * 2 / 3 - torch.roll(torch.eye(3), 1, 0)
    z = normal(1_000, 3) - normal(1_000, 3).mean(0)
    z = z @ torch.linalg.inv(torch.linalg.cholesky(z.T @ z / len(z))).T
    found = disentangle(lambda z: z @ torch.cat([torch.eye(3), other], 1), z, n_samples=1_000)
    assert found.is_tied
    assert "a tie" in str(found)
    assert found.claim is None


@pytest.mark.slow
def test_images_of_a_simulator_are_disentangled_without_training():
    sprites = Sprites(16, factors=("size", "x", "y", "hue", "ground"), domain=Reals())
    turn = rotation(5)
    found = disentangle(lambda z: sprites(z @ turn), normal(1_000, 5), n_samples=150, n_outputs=300)
    left = np.abs(turn.T.numpy() @ found.rotation)
    assert left.max(0).min() > 0.95
    assert found.support.shape == found.dependence.shape == (5, 3, 16, 16)
    corner, middle = (found.support[:, :, at, at].any(1) for at in (0, 8))
    assert corner.sum() == 1  # the ground alone is seen there
    assert middle.sum() >= 4
    assert found.pictures().shape == (16, 5 * 18 - 2, 3)
    for rotated in (True, False):
        assert found.traversals(steps=3, rotated=rotated).shape == (5 * 18 - 2, 3 * 18 - 2, 3)


# ---- what is promised of the result -------------------------------------------------------------------


def test_new_latents_are_decoded_to_the_same_outputs():
    mixing = world(DIVERSE, 0)
    found, _ = turned(mixing, 3)
    z, turn = normal(7, 3, 5), rotation(3)
    new = z @ torch.as_tensor(found.rotation, dtype=z.dtype)
    torch.testing.assert_close(found.decode(new), mixing(z @ turn), atol=1e-4, rtol=1e-4)


def test_a_rotation_of_the_latents_does_not_matter():
    mixing, z = world(DIVERSE, 1), normal(1_000, 3)
    plain = disentangle(mixing, z)
    turn = rotation(3, 4)
    other = disentangle(lambda z: mixing(z @ turn.T), z @ turn)
    assert other.after == pytest.approx(plain.after, abs=1e-3)
    same = np.abs(plain.rotation.T @ (turn.numpy() @ other.rotation))
    assert same.max(0).min() > 0.999


def test_arrays_and_tensors_give_the_same():
    mixing, z = world(DIVERSE, 0), normal(200, 3)
    assert np.array_equal(disentangle(mixing, z).rotation, disentangle(mixing, z.numpy()).rotation)


def test_every_start_is_kept_the_best_first():
    found = rotation_optima(MOMENTS, n_starts=5)
    assert found.rotations.shape == (5, 2, 2)
    assert (np.diff(found.counts) >= 0).all()
    np.testing.assert_allclose(found.counts, dependencies(MOMENTS, found.rotations), atol=1e-9)


# ---- the distribution of the latents -----------------------------------------------------------------------------


def test_the_rotations_that_keep_a_distribution_are_found():
    rng, turn = np.random.default_rng(0), rotation(3).double().numpy()
    gaussian = rng.normal(size=(3_000, 3))
    sphere = gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True)
    uniform = rng.uniform(size=(3_000, 3))
    assert [symmetry(latents, turn).kind for latents in (gaussian, sphere, uniform)] == [
        "Gaussian",
        "isotropic",
        "other",
    ]
    assert not symmetry(uniform, turn).is_kept
    assert symmetry(uniform, np.eye(3)[::-1]).is_kept  # another order
    wide = symmetry(gaussian * [1, 1, 3], turn)
    assert not wide.is_kept
    assert "Whiten" in str(wide)


def test_latents_whose_distribution_a_rotation_changes_are_not_claimed():
    uniform = 3.4 * torch.rand(2_000, 3, generator=torch.Generator().manual_seed(0)) - 1.7
    found, _ = turned(world(DIVERSE, 0), 3, latents=uniform)
    assert found.symmetry.kind == "other"
    assert found.claim is None
    assert "does not keep it" in str(found)


def dependent(n):  # the size of the second is that of the first: their signs are free
    z = normal(n, 3)
    z[:, 1] = z[:, 0].abs() * normal(n, 1, 2)[:, 0].sign()
    return z


@pytest.mark.parametrize("seed", range(2))
def test_dependent_latents_are_not_claimed_along_any_axes(seed):
    turn = rotation(3, seed)
    for latents, decoder in ((dependent(2_000), sparse), (dependent(2_000) @ turn.T, lambda z: sparse(z @ turn))):
        found = disentangle(decoder, latents)
        assert found.claim is None
        assert not found.symmetry.is_independent


@pytest.mark.parametrize("correlation", [0.3, 0.35])
def test_correlated_latents_must_be_whitened(correlation):
    z = normal(2_000, 3)
    z[:, 1] = correlation * z[:, 0] + (1 - correlation**2) ** 0.5 * z[:, 1]
    found = disentangle(sparse, z)
    assert found.claim is None
    assert "Whiten them" in str(found)


@pytest.mark.parametrize("seed", range(3))
def test_heavy_tails_and_two_humps_are_not_gaussian(seed):
    rng = np.random.default_rng(seed)
    for latents in (rng.standard_t(8, size=(8_000, 3)), rng.normal(size=(8_000, 3)) + rng.choice([-1, 1], (8_000, 3))):
        assert symmetry(latents / latents.std(0), np.eye(3)).kind != "Gaussian"
    assert symmetry(rng.normal(size=(8_000, 3)), np.eye(3)).kind == "Gaussian"


def test_few_samples_do_not_show_a_distribution():
    found = disentangle(sparse, normal(50, 3))
    assert any("too few to estimate" in reason for reason in found.reasons_not_to_claim)


# ---- input that is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (lambda z: z.detach(), "not differentiable"),
        (lambda z: torch.ones(len(z), 4) + 0 * z[:, :1], "it does not depend on them"),
        (nn.Linear(4, 6), "does not take `latents` of 3 columns"),
        (lambda z: z[:, :2], r"does not respond to latent\(s\) \[2\]"),
        (lambda z: torch.stack([z[:, 0], z[:, 1] + z[:, 2]], 1), "responds to 2 directions of its 3 latents"),
        (lambda z: z.round() + 0 * z, "No derivative of the decoder"),
        (lambda z: z.sum(), "must map latents"),
        (lambda z: {"x": z}, "must map latents"),
        (nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6)), "batch normalisation"),
        (nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6)).forward, "depends on other samples"),
        (lambda z: z - z.mean(0), "depends on other samples"),
        (lambda z: z + torch.rand(z.shape), "it is random"),
        (lambda z: z.log(), "has NaN or infinity"),
        (lambda z: torch.as_tensor(np.sin(z.numpy())), "that torch differentiates"),
    ],
)
def test_decoders_that_cannot_be_disentangled_are_refused(decoder, message):
    with pytest.raises(ValueError, match=message):
        disentangle(decoder, normal(50, 3))


@pytest.mark.parametrize(
    ("latents", "message"),
    [
        (torch.cat([normal(50, 2), torch.ones(50, 1)], 1), r"column\(s\) \[2\] of `latents` are constant"),
        (normal(50, 3)[:, 0], "must be a matrix"),
        (torch.full((50, 3), torch.nan), "finite numbers"),
        (normal(1, 3), "two samples or more"),
    ],
)
def test_latents_that_cannot_be_used_are_refused(latents, message):
    with pytest.raises(InputError, match=message) as error:
        disentangle(nn.Linear(3, 6), latents)
    assert error.value.argument == "latents"


def test_options_and_images_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="n_starts"):
        disentangle(nn.Linear(3, 6), normal(50, 3), n_starts=0)
    found, _ = turned(world(DIVERSE, 0), 3)
    for draw in (found.pictures, found.traversals):
        with input_error("decoder"):
            draw()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_images_of_any_precision_and_in_any_units_are_drawn(dtype):
    sprites = Sprites(8, factors=("x", "hue"), domain=Reals())
    plain = disentangle(lambda z: sprites(z.float()).to(z.dtype), normal(200, 2).to(dtype))
    bright = disentangle(lambda z: 255 * sprites(z.float()).to(z.dtype), normal(200, 2).to(dtype))
    assert np.abs(plain.traversals(steps=3).astype(int) - bright.traversals(steps=3)).mean() < 12
    assert bright.traversals(steps=3).std() > 20


def test_the_function_is_a_name_of_the_package():
    assert pindown.disentangle is disentangle
