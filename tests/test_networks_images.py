"""Networks for images and sequences: linear and unfolded to begin with, able to bend, for any size."""

import math

import pytest
import torch
from torch import nn

from pindown import _random, networks
from pindown.errors import InputError
from pindown.losses import pushforward
from pindown.networks import convolutional, deconvolutional, default_network, resnet18, skip_mlp, temporal
from pindown.networks.images import Cosines, Synthesis

SHAPES = [(1, 4, 4), (3, 16, 16), (2, 5, 9), (4, 4, 40), (7, 33, 31)]
SEQUENCES = [(1, 1), (4, 2), (50, 3), (7, 30)]


def made(network, *arguments, seed=0, **options):
    with _random.forked(seed):
        return network(*arguments, **options)


def noise(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def small_resnet(shape, n_out):
    return resnet18(shape, n_out, width=8)


def encoders():
    yield from ((convolutional, shape) for shape in SHAPES)
    yield from ((small_resnet, shape) for shape in SHAPES)
    yield from ((temporal, shape) for shape in SEQUENCES)


def pooled(shape):
    """Return the square of the unit of latents: the fraction of pixels left after pooling to at most four a side."""
    sizes = shape[1:] if len(shape) == 3 else shape[:1]
    return math.prod(min(1, 4 / size) for size in sizes)


def jacobian(network, x):
    return torch.autograd.functional.jacobian(lambda row: network(row[None])[0].flatten(), x).flatten(1)  # (out, in)


@pytest.mark.parametrize(("network", "shape"), list(encoders()))
def test_encoders_of_any_size_start_as_one_linear_map_with_orthogonal_samples(network, shape):
    x = noise(2, *shape)
    n_out = min(5, x[0].numel())
    encoder = made(network, shape, n_out)
    here, there = (jacobian(encoder, row) for row in x)
    torch.testing.assert_close(here, there)  # the same everywhere
    torch.testing.assert_close(here @ here.T / pooled(shape), torch.eye(n_out), rtol=0, atol=1e-5)
    assert encoder(torch.zeros_like(x)).abs().max() == 0


@pytest.mark.parametrize("shape", [*SHAPES, *SEQUENCES])
def test_decoders_to_any_size_start_as_one_linear_map_with_orthogonal_columns(shape):
    n_in = min(5, torch.zeros(shape).numel())
    decoder = made(deconvolutional, n_in, shape)
    assert decoder(torch.zeros(3, n_in)).shape == (3, *shape)
    here, there = (
        (decoder(z + torch.eye(n_in)) - decoder(z)).flatten(1).T  # (out, in): what a step along each latent changes
        for z in (noise(1, n_in, seed=s) for s in (0, 1))
    )
    torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(here.T @ here * pooled(shape), torch.eye(n_in), rtol=0, atol=1e-5)


@pytest.mark.parametrize("n_out", [1, 4, 200, 800])
def test_as_many_latents_as_requested_up_to_and_beyond_the_number_of_pixels(n_out):
    weight = jacobian(made(convolutional, (3, 16, 16), n_out), noise(3, 16, 16))  # 768 pixels
    gram = weight @ weight.T if n_out <= 768 else weight.T @ weight
    torch.testing.assert_close(16 * gram, torch.eye(len(gram)), rtol=0, atol=1e-4)


def test_a_disc_that_moves_or_grows_changes_its_latents_steadily_where_convolutions_alone_turn_back():
    place = torch.linspace(0.2, 0.8, 40)
    axis = (torch.arange(16) + 0.5) / 16
    disc = torch.sigmoid(20 * (0.2 - ((axis - place[:, None, None]) ** 2 + (axis[:, None] - 0.5) ** 2).sqrt()))
    images = disc[:, None].expand(-1, 3, -1, -1)

    def turns(network):  # latents along the way whose direction of change comes to be reversed
        steps = network(images).diff(dim=0)
        return sum(int((step @ steps[0] < 0).item()) for step in steps)

    ours = [turns(made(convolutional, (3, 16, 16), 4, seed=seed)) for seed in range(5)]
    alone = []
    for seed in range(5):
        network = made(convolutional, (3, 16, 16), 4, seed=seed).nonlinear
        with _random.forked(seed):
            network[-1].reset_parameters()
        alone.append(turns(network))
    assert ours == [0] * 5
    assert min(alone) > 0


def test_the_first_latents_are_brightness_its_slopes_and_a_colour():
    # Four latents span the mean of all pixels, its slopes along both axes, and a contrast of colours.
    weight = 2 * jacobian(made(convolutional, (3, 8, 8), 4), noise(3, 8, 8))
    slope = torch.cos(torch.pi * (torch.arange(8) + 0.5) / 8)
    colour = torch.tensor([1.0, 0.0, -1.0])
    for pattern in (
        torch.ones(3, 8, 8),
        slope.expand(3, 8, 8),
        slope[:, None].expand(3, 8, 8),
        colour[:, None, None].expand(3, 8, 8),
    ):
        unit = pattern.flatten() / pattern.norm()
        assert (weight @ unit).norm() == pytest.approx(1, abs=1e-4)
    finer = torch.cos(2 * torch.pi * (torch.arange(8) + 0.5) / 8).expand(3, 8, 8).flatten()
    assert (weight @ finer).norm() < 1e-4


@pytest.mark.parametrize(
    ("network", "arguments", "shape"),
    [
        (convolutional, ((3, 16, 16), 4), (3, 16, 16)),
        (temporal, ((50, 3), 4), (50, 3)),
        (deconvolutional, (4, (3, 16, 16)), (4,)),
        (deconvolutional, (4, (50, 3)), (4,)),
    ],
)
def test_all_weights_are_trained_after_a_few_steps(network, arguments, shape):
    module = made(network, *arguments)
    x = noise(20, *shape)
    target = noise(*module(x).shape, seed=1)
    start = {name: weight.clone() for name, weight in module.named_parameters()}
    descent = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(3):
        descent.zero_grad()
        (module(x) - target).square().mean().backward()
        descent.step()
    assert [name for name, weight in module.named_parameters() if torch.equal(weight, start[name])] == []


@pytest.mark.parametrize(("network", "shape"), [(convolutional, (3, 16, 16)), (temporal, (50, 3))])
def test_the_latent_of_a_sample_does_not_depend_on_its_neighbours_and_is_the_same_in_both_modes(network, shape):
    encoder = made(network, shape, 4).double()
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(0.1 * noise(*weight.shape, dtype=torch.float64))  # so that it bends
    x = noise(6, *shape, dtype=torch.float64)
    together = encoder(x)
    torch.testing.assert_close(torch.cat([encoder(row[None]) for row in x]), together, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(encoder.eval()(x), together, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(3, 9, 8), (10, 3)])
def test_penalties_can_push_a_step_through_a_decoder(shape):
    decoder = made(deconvolutional, 4, shape, widths=(6, 5)).double()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.add_(0.1 * noise(*weight.shape, dtype=torch.float64))  # so that it bends
    z, h = noise(5, 4, dtype=torch.float64), 1e-6
    pushed = pushforward(decoder, z)
    steps = torch.stack([(decoder(z + h * e) - decoder(z - h * e)) / (2 * h) for e in torch.eye(4).double()])
    torch.testing.assert_close(pushed.x, decoder(z))
    torch.testing.assert_close(pushed.columns, steps, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("size", "n_convolutions"), [(4, 1), (5, 1), (8, 1), (16, 2), (32, 3), (64, 4), (224, 6)])
def test_depth_follows_from_the_size_until_four_pixels_a_side_are_left(size, n_convolutions):
    layers = [layer for layer in made(convolutional, (3, size, size), 2).modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == [32, 64, 128, 128, 128, 128][:n_convolutions]


def test_widths_and_hidden_layers_are_those_requested():
    encoder = made(convolutional, (3, 16, 16), 2, widths=(8, 12, 5), hidden=(20, 10))
    assert [layer.out_channels for layer in encoder.modules() if isinstance(layer, nn.Conv2d)] == [8, 12, 5]
    assert [layer.out_features for layer in encoder.nonlinear if isinstance(layer, nn.Linear)] == [20, 10, 2]
    decoder = made(deconvolutional, 2, (3, 16, 16), widths=(8, 12, 5), hidden=(20, 10))
    assert [layer.out_channels for layer in decoder.modules() if isinstance(layer, nn.Conv2d)] == [12, 8, 3]
    assert [layer.out_features for layer in decoder.nonlinear if isinstance(layer, nn.Linear)] == [10, 20, 5 * 2 * 2]
    with pytest.raises(InputError, match="widths"):
        convolutional((3, 16, 16), 2, widths=())


def test_latents_are_as_large_for_a_fine_image_as_for_a_coarse_one():
    coarse = nn.functional.interpolate(noise(50, 3, 4, 4), (16, 16), mode="bilinear")
    fine = nn.functional.interpolate(coarse, (64, 64), mode="bilinear")
    sizes = [made(convolutional, tuple(x.shape[1:]), 4)(x).std() for x in (coarse, fine)]
    assert 0.9 < sizes[0] / sizes[1] < 1.1
    assert 0.3 < sizes[0] < 3


def test_cosines_determine_a_smooth_image():
    image = noise(2, 3, 3, 2)
    smooth = Synthesis([12, 10], [3, 2])(image.flatten(1))
    assert smooth.shape == (2, 3, 12, 10)
    torch.testing.assert_close(Cosines([12, 10], [3, 2])(smooth), image.flatten(1))


def test_vectors_have_the_network_they_had_with_the_same_random_numbers():
    for n_in in (5, (5,)):
        ours, theirs = made(default_network, n_in, 3).state_dict(), made(skip_mlp, 5, 3).state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(("shape", "network"), [((3, 8, 8), convolutional), ((9, 4), temporal)])
def test_images_and_sequences_have_networks_of_their_own(shape, network):
    x = noise(3, *shape)
    assert torch.equal(made(default_network, shape, 2)(x), made(network, shape, 2)(x))


@pytest.mark.parametrize("network", [convolutional, temporal])
def test_another_seed_gives_another_start(network):
    shape = (3, 8, 8) if network is convolutional else (8, 3)
    assert not torch.equal(made(network, shape, 2)(noise(1, *shape)), made(network, shape, 2, seed=1)(noise(1, *shape)))


@pytest.mark.parametrize("network", [convolutional, temporal, lambda shape, n: deconvolutional(n, shape)])
@pytest.mark.parametrize("shape", [30, (30,), (2, 3, 4, 5), (0, 3, 3), (0, 3)])
def test_a_shape_that_is_none_of_theirs_is_an_error(network, shape):
    with pytest.raises(InputError, match="shape"):
        network(shape, 2)


def test_every_tensor_is_contiguous():
    for module in (
        made(convolutional, (3, 16, 16), 4),
        made(temporal, (50, 3), 4),
        made(networks.deconvolutional, 4, (3, 9, 9)),
    ):
        assert all(tensor.is_contiguous() for tensor in module.state_dict().values())


def test_a_resnet_has_eighteen_layers_and_sees_each_image_alone():
    encoder = made(resnet18, (3, 16, 16), 2, width=8)
    deep = [layer for layer in encoder.nonlinear.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert sum(1 for layer in deep if getattr(layer, "kernel_size", None) != (1, 1)) == 18
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(0.1 * noise(*weight.shape))  # so that it bends
        x = noise(4, 3, 16, 16)
        torch.testing.assert_close(encoder(x)[1:2], encoder(x[1:2]))
        assert not torch.allclose(encoder(2 * x), 2 * encoder(x), rtol=0.1)
    assert sum(weight.numel() for weight in resnet18((3, 64, 64), 4).parameters()) > 11_000_000
    with pytest.raises(InputError, match="width"):
        resnet18((3, 16, 16), 2, width=12)
    with pytest.raises(ValueError, match="shape"):
        resnet18(5, 2)
