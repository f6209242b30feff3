"""First layers: whitening, standardising, centring, nothing; on vectors, images, sequences and streams."""

from functools import partial

import numpy as np
import pytest
import torch
from raising import input_error

from pindown import Contrast, networks
from pindown.data import ArraySource, GeneratorSource, Source, sources
from pindown.errors import InputError
from pindown.networks.preprocessing import centre, default_preprocessing, nothing, standardise, whiten

ALL = [whiten, standardise, centre, nothing, default_preprocessing]


def noise(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Stream(Source):
    """Rows of an array that can only be gone through."""

    def __init__(self, x, n_samples=None):
        self.x, self.shape, self.n_samples = x, tuple(x.shape[1:]), n_samples

    def blocks(self, n_samples):
        yield from ({"x": rows} for rows in self.x.split(n_samples))


# what every first layer is


@pytest.mark.parametrize("preprocess", ALL)
@pytest.mark.parametrize("shape", [(5,), (7, 3), (3, 4, 5), (2, 3, 4, 5)])
def test_a_preprocessing_knows_the_shapes_of_samples_before_and_after_it(preprocess, shape):
    x = noise(200, *shape)
    layer = preprocess(ArraySource(x))
    assert layer.shape_in == shape
    assert layer(x).shape == (200, *layer.shape_out)
    flattens = preprocess is whiten or (preprocess is default_preprocessing and len(shape) == 1)
    assert layer.shape_out == ((x[0].numel(),) if flattens else shape)


@pytest.mark.parametrize("preprocess", ALL)
@pytest.mark.parametrize("shape", [(5,), (7, 3), (3, 4, 5)])
def test_a_preprocessing_is_fixed_gives_the_networks_precision_and_moves_with_it(preprocess, shape):
    x = noise(50, *shape, dtype=torch.float64)
    layer = preprocess(ArraySource(x))
    assert list(layer.parameters()) == []
    assert layer.mean.dtype == torch.float64
    assert layer(x).dtype == layer(x.float()).dtype == torch.float32
    assert layer.double()(x).dtype == torch.float64
    assert all(tensor.is_contiguous() for tensor in layer.state_dict().values())


@pytest.mark.parametrize("preprocess", ALL)
@pytest.mark.parametrize("shape", [(5,), (7, 3), (3, 4, 5)])
def test_arrays_tensors_and_streams_of_the_same_samples_give_the_same_layer(preprocess, shape):
    x = noise(300, *shape)
    of_tensor, *others = (
        preprocess(s) for s in (ArraySource(x), ArraySource(x.numpy()), Stream(x), Stream(x, n_samples=300))
    )
    for other in others:
        torch.testing.assert_close(other(x), of_tensor(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("preprocess", [standardise, centre, nothing])
def test_images_in_bytes_are_numbers_like_others(preprocess):
    x = torch.randint(256, (20, 3, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    torch.testing.assert_close(preprocess(ArraySource(x))(x), preprocess(ArraySource(x.float()))(x.float()))


@pytest.mark.parametrize("preprocess", [whiten, standardise, centre, default_preprocessing])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("stream", [ArraySource, Stream])
def test_a_sample_that_is_not_finite_is_named(preprocess, bad, stream):
    x = noise(40, 3, 4, 4)
    x[31, 1, 2, 3] = bad
    with input_error("x"):
        preprocess(stream(x))


@pytest.mark.parametrize(
    ("preprocess", "got"),
    [("whiten", "'whiten'"), (lambda source: 3, "3"), (lambda source: torch.nn.Identity(), "Identity")],
)
def test_what_is_no_preprocessing_raises(preprocess, got):
    with pytest.raises(TypeError, match=f"Contrast: preprocess must be a function .* got {got}"):
        Contrast(2, preprocess=preprocess).fit(noise(50, 3))


# whitening


def covariance(x):
    return torch.cov(x.T, correction=0)


def by_hand(x):
    """Whiten with the operations of the tables on record, in their order."""
    x = x.double()
    variance, direction = torch.linalg.eigh(torch.cov(x.T, correction=0).reshape(x.shape[1], -1))
    scaled = direction / variance.clamp_min(1e-4 * variance[-1]).sqrt()
    return x.mean(0), scaled.flip(1).float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "d"), [(10, 1), (1_000, 3), (20_001, 10), (150, 200)])
def test_samples_in_memory_are_whitened_to_the_bit_as_the_tables_on_record_were(n, d, dtype):
    x = noise(n, d, dtype=dtype) * torch.linspace(0.001, 3, d) + 5
    for source in (ArraySource(x), ArraySource(x.numpy())):
        layer = whiten(source)
        for ours, theirs in zip((layer.mean, layer.matrix), by_hand(x), strict=True):
            assert torch.equal(ours, theirs)


def test_whitened_data_have_mean_zero_and_unit_covariance():
    x = noise(500, 3) @ torch.tensor([[3.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.2]]) + 10
    white = whiten(ArraySource(x))(x)
    torch.testing.assert_close(covariance(white), torch.eye(3), rtol=0, atol=1e-4)
    assert white.mean(0).abs().max() < 1e-4
    assert (covariance(x) - torch.eye(3)).abs().max() > 5  # which they had not before


def test_the_direction_of_the_largest_variance_comes_first():
    x = noise(500, 3) * torch.tensor([1.0, 100.0, 10.0])
    share = whiten(ArraySource(x)).matrix.abs() * torch.tensor([1.0, 100.0, 10.0])[:, None]
    assert share.argmax(0).tolist() == [1, 2, 0]


def test_directions_below_a_hundredth_of_the_largest_are_not_blown_up():
    # Standard deviations 1, .05 and .001: the floor is .01, so the last comes out as .001 / .01 = .1.
    x = noise(2_000, 3, dtype=torch.float64)
    x = (x - x.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky(covariance(x), upper=True))  # exactly white
    x = x * torch.tensor([1.0, 0.05, 0.001])
    assert covariance(whiten(ArraySource(x)).double()(x)).diagonal().sqrt().tolist() == pytest.approx(
        [1, 1, 0.1], abs=1e-4
    )


def test_one_feature_is_centred_and_scaled():
    x = torch.tensor([[2.0], [6.0]])  # mean 4, standard deviation 2
    assert sorted(whiten(ArraySource(x))(x).flatten().tolist()) == pytest.approx([-1, 1])


def test_a_constant_column_becomes_zero_and_leaves_the_others_alone():
    x = torch.cat([noise(100, 2), torch.full((100, 1), 7.0)], 1)
    white = whiten(ArraySource(x))(x)
    assert covariance(white).diagonal().tolist() == pytest.approx([1, 1, 0], abs=1e-4)


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_the_unit_of_the_data_does_not_matter(scale):
    x = noise(100, 2)
    torch.testing.assert_close(
        whiten(ArraySource(x * scale))(x * scale).abs(), whiten(ArraySource(x))(x).abs(), rtol=1e-3, atol=1e-3
    )


def test_whitening_is_fixed_not_trained_and_moves_with_the_module():
    x = noise(50, 2)
    layer = whiten(ArraySource(x))
    assert list(layer.parameters()) == []
    assert set(layer.state_dict()) == {"mean", "matrix"}
    assert layer.double()(x.double()).dtype == torch.float64


def test_leading_directions_are_the_first_of_all():
    x = noise(500, 4) * torch.tensor([1.0, 8.0, 2.0, 4.0])
    torch.testing.assert_close(
        partial(whiten, n_components=2)(ArraySource(x)).matrix, whiten(ArraySource(x)).matrix[:, :2]
    )
    with pytest.raises(InputError, match="n_components"):
        whiten(ArraySource(x), n_components=0)


def test_samples_that_do_not_fit_are_whitened_by_streamed_moments(monkeypatch):
    x = noise(500, 3) @ torch.tensor([[3.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.2]]) + 10
    at_once = whiten(ArraySource(x))
    monkeypatch.setattr(sources, "BLOCK_BYTES", 100)
    torch.testing.assert_close(whiten(ArraySource(x))(x).abs(), at_once(x).abs(), rtol=1e-4, atol=1e-4)


def test_of_samples_without_an_end_some_are_whitened():
    class Endless(GeneratorSource):
        shape = (2,)

        def draw(self, n_samples, generator):
            return {"x": torch.randn(n_samples, 2, generator=generator) * torch.tensor([1.0, 3.0])}

    x = noise(5_000, 2) * torch.tensor([1.0, 3.0])
    torch.testing.assert_close(covariance(whiten(Endless())(x)), torch.eye(2), rtol=0, atol=0.06)


# standardising


def test_columns_are_standardised_one_by_one():
    x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])  # means 2 and 20, standard deviations 1 and 10
    assert standardise(ArraySource(x))(x).tolist() == [[-1, -1], [1, 1]]


@pytest.mark.parametrize(("shape", "axis"), [((3, 4, 5), 1), ((7, 3), 2)])
def test_images_are_standardised_by_their_first_axis_and_sequences_by_their_last(shape, axis):
    units = torch.tensor([1.0, 5.0, 0.1])
    units = units[:, None, None] if axis == 1 else units
    x = noise(300, *shape) * units + 3 * units
    out = standardise(ArraySource(x))(x).movedim(axis, 0).flatten(1)  # (3, the rest)
    torch.testing.assert_close(out.mean(1), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(out.std(1, correction=0), torch.ones(3), rtol=0, atol=1e-5)


def test_neighbouring_pixels_stay_neighbours():
    x = noise(50, 1, 6, 6)
    out = standardise(ArraySource(x))(x)
    assert torch.corrcoef(torch.stack([x.flatten(), out.flatten()]))[0, 1] > 0.9999
    whitened = whiten(ArraySource(x))(x)  # which is why images are not
    assert torch.corrcoef(torch.stack([x.flatten(), whitened.flatten()]))[0, 1].abs() < 0.5


def test_a_constant_channel_becomes_zero_and_blank_images_are_an_error():
    x = noise(50, 2, 4, 4)
    x[:, 1] = 0.1  # such as opacity; its mean is rounded
    assert standardise(ArraySource(x))(x)[:, 1].abs().max() < 1e-6
    with pytest.raises(InputError):
        standardise(ArraySource(torch.full((50, 2, 4, 4), 0.1)))


def test_centring_takes_the_mean_off_and_leaves_the_spread():
    x = noise(50, 2, 4, 4) * 7 + 100
    out = centre(ArraySource(x))(x)
    torch.testing.assert_close(out.mean((0, 2, 3)), torch.zeros(2), rtol=0, atol=1e-4)
    torch.testing.assert_close(out.std(), (x - x.mean((0, 2, 3), keepdim=True)).std())


def test_an_offset_far_above_the_spread_does_not_swallow_it():
    x = (noise(200, 3, dtype=torch.float64) + 1e9).numpy()
    for preprocess in (whiten, standardise, centre):
        layer = preprocess(ArraySource(x))
        assert layer(torch.as_tensor(x)).std(0).numpy() == pytest.approx(np.ones(3), rel=0.3)


def test_nothing_changes_nothing():
    x = noise(20, 3, 4, 4)
    assert torch.equal(nothing(ArraySource(x))(x), x)
    assert torch.equal(nothing(ArraySource(x)).mean, torch.zeros(3, 1, 1))


def test_a_preprocessing_is_made_again_from_its_tensors_and_its_shape():
    x = noise(20, 2, 3, 3)
    first, second = whiten(ArraySource(x)), standardise(ArraySource(x))
    assert torch.equal(networks.Whiten(first.mean, first.matrix, first.shape_in)(x), first(x))
    assert torch.equal(networks.Rescale(second.mean, second.scale, second.shape_in)(x), second(x))
