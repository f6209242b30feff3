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
from pindown.methods.dictionary.rotation import dependencies, oblique_optima, rotation_optima
from pindown.metrics import mcc
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
    return found, left_of(turn.T.numpy() @ found.unmixing)


def left_of(linear):
    """Weights of the true latents in the new ones, whose variance in a sample is that of the true ones nearly."""
    return np.abs(linear) / np.linalg.norm(linear, axis=0)


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
    left = left_of(turn.T.numpy() @ found.unmixing)
    assert left.max(0).min() > 0.95
    assert found.support.shape == found.dependence.shape == (5, 3, 16, 16)
    corner, middle = (found.support[:, :, at, at].any(1) for at in (0, 8))
    assert corner.sum() == 1  # the ground alone is seen there
    assert middle.sum() >= 4
    assert found.pictures().shape == (16, 5 * 18 - 2, 3)
    for new in (True, False):
        assert found.traversals(steps=3, new=new).shape == (5 * 18 - 2, 3 * 18 - 2, 3)


# ---- what is promised of the result -------------------------------------------------------------------


def test_new_latents_are_decoded_to_the_same_outputs():
    mixing = world(DIVERSE, 0)
    found, _ = turned(mixing, 3)
    z, turn = normal(7, 3, 5), rotation(3)
    new = z @ torch.as_tensor(found.unmixing, dtype=z.dtype)
    torch.testing.assert_close(found.decode(new), mixing(z @ turn), atol=1e-4, rtol=1e-4)


def test_a_rotation_of_the_latents_does_not_matter():
    mixing, z = world(DIVERSE, 1), normal(1_000, 3)
    plain = disentangle(mixing, z)
    turn = rotation(3, 4)
    other = disentangle(lambda z: mixing(z @ turn.T), z @ turn)
    assert other.after == pytest.approx(plain.after, abs=1e-3)
    same = left_of(np.linalg.inv(plain.unmixing) @ turn.numpy() @ other.unmixing)
    assert same.max(0).min() > 0.999


def test_arrays_and_tensors_give_the_same():
    mixing, z = world(DIVERSE, 0), normal(200, 3)
    assert np.array_equal(disentangle(mixing, z).unmixing, disentangle(mixing, z.numpy()).unmixing)


def test_every_start_is_kept_the_best_first():
    found = rotation_optima(MOMENTS, n_starts=5)
    assert found.maps.shape == (5, 2, 2)
    assert (np.diff(found.counts) >= 0).all()
    np.testing.assert_allclose(found.counts, dependencies(MOMENTS, found.maps), atol=1e-9)


# ---- latents that depend on each other, and codes that are not white ------------------------------------------------


def correlated(n, correlation, seed=1, d=3):
    covariance = torch.full((d, d), correlation) + (1 - correlation) * torch.eye(d)
    return normal(n, d, seed) @ torch.linalg.cholesky(covariance).T


def mixed(mixing, latents, seed=0):
    """Disentangle a decoder of latents that are known but for a linear map; return what was found, and their MCC."""
    weights = normal(3, 3, seed) + torch.eye(3)
    codes = latents @ torch.linalg.inv(weights)
    found = disentangle(lambda z: mixing(z @ weights), codes)
    return found, mcc(codes.numpy() @ found.unmixing, latents)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.5, 0.7])
def test_correlated_latents_behind_any_linear_map_are_found_with_their_correlations(correlation):
    for seed in range(2):
        found, score = mixed(world(DIVERSE, seed), correlated(2_000, correlation), seed)
        assert score > 0.98
        assert found.is_dependent == (correlation > 0)
        assert np.abs(np.abs(found.covariance) - correlation)[~np.eye(3, dtype=bool)].max() < 0.1
        assert found.guarantee is theory.DICTIONARY_SINGLE  # no latent reaches all that another reaches, and more


NESTED = np.array([[1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 0, 1], [0, 1, 1], [1, 1, 0]])  # 1 reaches all that 0 reaches


def test_a_latent_that_reaches_less_than_another_is_claimed_with_it_if_latents_may_depend_on_each_other():
    independent, _ = mixed(world(NESTED, 0), normal(2_000, 3))
    assert [sorted(block.latents) for block in independent.blocks] == [[0], [1], [2]]
    dependent, _ = mixed(world(NESTED, 0), correlated(2_000, 0.6))
    assert dependent.is_dependent
    assert sorted(len(block.latents) for block in dependent.blocks) != [1, 1, 1]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_claimed_of_dense_or_linear_decoders_of_correlated_latents(seed):
    weights = normal(3, 12, seed)
    for decoder in (world(DENSE, seed), lambda z: z @ weights):
        found, _ = mixed(decoder, correlated(2_000, 0.5), seed)
        assert found.claim is None


def test_codes_need_not_be_gaussian():
    uniform = 3.4 * torch.rand(2_000, 3, generator=torch.Generator().manual_seed(0)) - 1.7
    found, score = mixed(world(DIVERSE, 0), uniform)
    assert score > 0.98
    assert found.claim is not None


def test_latents_that_determine_each_other_are_not_claimed():
    latents = normal(2_000, 3)
    latents[:, 1] = latents[:, 0].abs() * normal(2_000, 1, 2)[:, 0].sign()
    found = disentangle(sparse, latents)
    assert found.is_dependent
    assert any("determine each other" in reason for reason in found.reasons_not_to_claim)
    assert found.claim is None


def test_an_oblique_search_gains_little_where_latents_are_independent():
    for seed in range(3):
        found, _ = turned(world(DIVERSE, seed), 3, seed)
        assert not found.is_dependent
        np.testing.assert_allclose(found.covariance, np.eye(3), atol=1e-9)


def test_maps_to_latents_that_are_nearly_the_same_are_left_out():
    rng = np.random.default_rng(0)
    for _ in range(5):
        direction = rng.normal(size=(4, 3))
        found = oblique_optima(direction[:, :, None] * direction[:, None], n_starts=8)
        correlations = found.maps.swapaxes(1, 2) @ found.maps
        assert (np.linalg.eigvalsh(correlations)[:, 0] > 0.02).all()
        np.testing.assert_allclose(correlations.diagonal(axis1=1, axis2=2), 1.0)


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
        (normal(50, 2) @ normal(2, 3, 2), "linear functions of others"),
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
