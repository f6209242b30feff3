"""Networks for images (c, h, w) and sequences (t, c), and the defaults for each shape of samples and each device.

All are linear in low frequencies at initialisation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise, product
from typing import TypeGuard

import torch
from torch import Tensor, nn

from pindown.errors import InputError
from pindown.networks.encoder import Make, Shape
from pindown.networks.vectors import SkipMLP, mlp, skip_mlp, smooth, zero_mlp

FREQUENCIES = 8  # cosines per axis that the linear path takes as input; more if there are more latents
SMALLEST, WIDTHS = 4, (32, 64, 128)  # convolutions halve an image to this many pixels a side; the last width repeats
ON_CPU = 2  # factor by which the default encoder of images is narrower, and a first round shorter, on a CPU
FIRST_ROUND = 2_000  # steps of the first round of a training that chooses its own length
GROUPS, LARGE, POOLED = 8, 64, 2  # of `resnet18`: groups of channels; pixels a side that the stem halves; at the end


def convolutional(
    shape: tuple[int, ...], n_out: int, *, widths: Sequence[int] | None = None, hidden: Sequence[int] = (256,)
) -> nn.Module:
    """Return an encoder of images: a linear path from low frequencies plus convolutions, zero at initialisation.

    The input of the linear path is the lowest cosines of each channel along height and width. Its initialisation is a
    random rotation of the n_out smoothest patterns: mean brightness, gradients of brightness, colour, and so on. When
    objects move, grow or change colour, smooth patterns change monotonically. So the map is close to injective from
    the start, as far as a linear map can be.

    Parameters
    ----------
    shape
        Shape of an image, (c, h, w).
    n_out
        Number of latents.
    widths
        Channels of the convolutions, each of which halves the image. By default 32, 64, 128, 128, … until at most
        4 × 4 pixels are left.
    hidden
        Widths of the fully connected layers after them.

    Examples
    --------
    >>> images = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> encoder = convolutional((3, 16, 16), 4)
    >>> encoder(images).shape
    torch.Size([5, 4])
    >>> torch.allclose(encoder(2 * images), 2 * encoder(images), atol=1e-4)  # linear at initialisation
    True
    """
    n_channels, *sizes = check_shape("convolutional", shape, "an image is (c, h, w)", 3)
    return SkipMLP(_smooth_path(n_channels, sizes, n_out), halving(n_channels, sizes, n_out, widths, hidden))


def _smooth_path(n_channels: int, sizes: Sequence[int], n_out: int) -> nn.Sequential:
    """Return a linear map of images, initialised as a rotation of their n_out smoothest patterns."""
    cosine_layer = Cosines(sizes, _frequencies(n_channels, sizes, n_out))
    return nn.Sequential(cosine_layer, _smoothest(n_channels, cosine_layer.n, n_out))


def temporal(
    shape: tuple[int, ...], n_out: int, *, widths: Sequence[int] | None = None, hidden: Sequence[int] = (256,)
) -> nn.Module:
    """Return an encoder of sequences (t, c): a linear path from low frequencies plus convolutions over time.

    As :func:`convolutional`, except that channels have no order. The initialisation of the linear path is a random
    orthogonal map of each channel's mean over time, and of slow changes if there are more latents than channels. The
    convolutions are zero at initialisation.

    Examples
    --------
    >>> temporal((50, 3), 2)(torch.zeros(5, 50, 3)).shape
    torch.Size([5, 2])
    """
    n_steps, n_channels = check_shape("temporal", shape, "a sequence is (t, c)", 2)
    cosine_layer = Cosines([n_steps], _frequencies(n_channels, [n_steps], n_out))
    n_cosines = cosine_layer.n[0]
    slow = min(n_cosines, -(-n_out // n_channels))
    weight = torch.zeros(n_out, n_channels, n_cosines)
    weight[:, :, :slow] = nn.init.orthogonal_(torch.empty(n_out, n_channels * slow)).unflatten(1, (n_channels, slow))
    linear_layer = _with_weight(nn.Linear(n_channels * n_cosines, n_out), weight.flatten(1))
    nonlinear = halving(n_channels, [n_steps], n_out, widths, hidden)
    return nn.Sequential(Swap(), SkipMLP(nn.Sequential(cosine_layer, linear_layer), nonlinear))


def deconvolutional(
    n_in: int, shape: tuple[int, ...], *, widths: Sequence[int] | None = None, hidden: Sequence[int] = (256,)
) -> nn.Module:
    """Return a decoder to images (c, h, w) or sequences (t, c), the mirror image of :func:`convolutional`.

    Smooth patterns plus convolutions that are zero at initialisation. `widths` and `hidden` are ordered from the image
    inwards, as in :func:`convolutional`.

    Examples
    --------
    >>> deconvolutional(4, (3, 16, 16))(torch.zeros(5, 4)).shape
    torch.Size([5, 3, 16, 16])
    >>> deconvolutional(4, (50, 3))(torch.zeros(5, 4)).shape
    torch.Size([5, 50, 3])
    """
    check_shape("deconvolutional", shape, "an image is (c, h, w), a sequence (t, c)", 2, 3)
    if len(shape) == 2:
        return nn.Sequential(_doubling(n_in, shape[1], shape[:1], widths, hidden), Swap())
    return _doubling(n_in, shape[0], shape[1:], widths, hidden)


def is_image(shape: Shape) -> TypeGuard[tuple[int, ...]]:
    """Return whether samples of this shape are images (c, h, w)."""
    return not isinstance(shape, int) and len(shape) == 3


def default_network(shape: Shape, n_outputs: int) -> nn.Module:
    """Return the default encoder: :func:`skip_mlp` for vectors, `convolutional` for images, `temporal` for sequences.

    Examples
    --------
    >>> [type(default_network(shape, 2)).__name__ for shape in (5, (5,), (3, 16, 16), (50, 3))]
    ['SkipMLP', 'SkipMLP', 'SkipMLP', 'Sequential']
    """
    match shape:
        case int(n_in) | (n_in,):
            return skip_mlp(n_in, n_outputs)
        case (_, _):
            return temporal(shape, n_outputs)
    return convolutional(shape, n_outputs)


def encoder_for(make: Make | None, shape: Shape, device: torch.device) -> Make:
    """Return the encoder as requested; None is the default for the shape, and so is `smooth` for images."""
    if make is not None and not (make is smooth and is_image(shape)):
        return make
    return partial(convolutional, widths=widths_for(shape, device)) if is_image(shape) else default_network


def decoder_for(make: Make, shape: Shape, device: torch.device) -> Make:
    """Return the decoder as requested; `smooth`, the default, stands for `deconvolutional` if samples are images."""
    return partial(deconvolutional, widths=widths_for(shape, device)) if make is smooth and is_image(shape) else make


def widths_for(shape: tuple[int, ...], device: torch.device) -> tuple[int, ...]:
    """Return the default channels of convolutions of images (c, h, w): on a CPU half as many."""
    return tuple(width // (ON_CPU if device.type == "cpu" else 1) for width in _steps(shape[1:], None)[0])


def precision_for(shape: Shape, device: torch.device, requested: torch.dtype | None) -> torch.dtype | None:
    """Return the precision of products in training: as requested, by default bfloat16 for images on a GPU."""
    return torch.bfloat16 if requested is None and is_image(shape) and device.type == "cuda" else requested


def first_round_for(shape: Shape, device: torch.device) -> int:
    """Return the steps of the first round of training; half as many for images on a CPU."""
    return FIRST_ROUND // (ON_CPU if is_image(shape) and device.type == "cpu" else 1)


class ResidualBlock(nn.Module):
    """Two convolutions with a skip connection; at initialisation they add nothing."""

    def __init__(self, n_in: int, n_out: int, *, stride: int = 1) -> None:
        super().__init__()
        last = nn.GroupNorm(GROUPS, n_out)
        nn.init.zeros_(last.weight)
        self.change = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(GROUPS, n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
            last,
        )
        same = n_in == n_out and stride == 1
        self.along = nn.Identity() if same else nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (n, n_out, h, w), of half the size if there is a stride."""
        return nn.functional.relu(self.along(x) + self.change(x))


def resnet18(shape: tuple[int, ...], n_out: int, *, width: int = 64) -> nn.Module:
    """Return a residual network of eighteen layers with the linear skip path of :func:`convolutional`.

    Use it for images that need more than :func:`convolutional`, the default: it has eleven million weights and about
    thirty times the cost. Groups of channels are normalised within each image, never across a batch.

    Parameters
    ----------
    shape
        Shape of an image, (c, h, w).
    n_out
        Number of latents.
    width
        Channels of the first blocks, a multiple of 8; each of the three further stages doubles them.

    References
    ----------
    He et al., Deep residual learning for image recognition, CVPR 2016. Wu and He, Group normalization, ECCV 2018.

    Examples
    --------
    >>> encoder = resnet18((3, 32, 32), 4, width=8)
    >>> images = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(encoder(2 * images), 2 * encoder(images), atol=1e-4)  # linear at initialisation
    True
    """
    n_channels, *sizes = check_shape("resnet18", shape, "an image is (c, h, w)", 3)
    if width < GROUPS or width % GROUPS:
        raise InputError("width", f"networks.resnet18: `width` must be a multiple of {GROUPS}, got {width}.")
    stem: list[nn.Module] = [nn.Conv2d(n_channels, width, 3, stride=2 if max(sizes) >= LARGE else 1, padding=1)]
    stem += [nn.GroupNorm(GROUPS, width), nn.ReLU()]
    if max(sizes) > LARGE:
        stem.append(nn.MaxPool2d(3, stride=2, padding=1))
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks: list[nn.Module] = []
    for stage, (before, after) in enumerate(pairwise(widths)):
        blocks += [ResidualBlock(before, after, stride=2 if stage else 1), ResidualBlock(after, after)]
    head = zero_mlp(widths[-1] * POOLED**2, n_out, hidden=())
    nonlinear = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(POOLED), nn.Flatten(), *head.children())
    return SkipMLP(_smooth_path(n_channels, sizes, n_out), nonlinear)


def zero_network(shape: tuple[int, ...], n_out: int = 1) -> nn.Module:
    """Return a network to one or more numbers that is zero at initialisation; images enter by their low frequencies.

    Examples
    --------
    >>> zero_network((3, 16, 16))(torch.ones(2, 3, 16, 16)).tolist(), zero_network((5,))(torch.ones(1, 5)).tolist()
    ([[0.0], [0.0]], [[0.0]])
    """
    if len(shape) != 3:
        return nn.Sequential(nn.Flatten(), zero_mlp(math.prod(shape), n_out, hidden=(64, 64)))
    cosine_layer = Cosines(shape[1:], _frequencies(shape[0], shape[1:], 1))
    return nn.Sequential(cosine_layer, zero_mlp(shape[0] * math.prod(cosine_layer.n), n_out, hidden=(64, 64)))


class Swap(nn.Module):
    """Exchanges the last two axes."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (…, b, a) for (…, a, b)."""
        return x.mT


class _AlongAxes(nn.Module):
    """Multiplies each axis after the channels by a fixed matrix."""

    def __init__(self, n: Sequence[int], matrices: Iterable[Tensor]) -> None:
        super().__init__()
        self.n = list(n)
        for axis, matrix in enumerate(matrices):
            self.register_buffer(f"along{axis}", matrix.contiguous())

    def _product(self, x: Tensor) -> Tensor:
        for matrix in self.buffers():
            x = x.movedim(2, -1) @ matrix  # each axis moves to the end, which restores the order
        return x


class Cosines(_AlongAxes):
    """Fixed layer: coefficients of the n lowest cosines along each axis, which nearly determine a smooth image.

    The unit is that of an image pooled to 4 × 4 pixels, so that coefficients have a similar size at any resolution.
    """

    def __init__(self, sizes: Sequence[int], n: Sequence[int]) -> None:
        super().__init__(n, (cosines(*each) * _unit(each[0]) for each in zip(sizes, n, strict=True)))

    def forward(self, x: Tensor) -> Tensor:
        """Return coefficients; (n, c, …) → (n, c · product of n)."""
        return self._product(x).flatten(1)


class Synthesis(_AlongAxes):
    """Fixed layer: images from the coefficients of :class:`Cosines`."""

    def __init__(self, sizes: Sequence[int], n: Sequence[int]) -> None:
        super().__init__(n, (cosines(*each).mT / _unit(each[0]) for each in zip(sizes, n, strict=True)))

    def forward(self, x: Tensor) -> Tensor:
        """Return images; (n, c · product of n) → (n, c, …)."""
        return self._product(x.reshape(len(x), -1, *self.n))


def cosines(size: int, n: int) -> Tensor:
    """Return the n lowest cosines on `size` points, orthonormal, one per column."""
    points, waves = torch.arange(size).double() + 0.5, torch.arange(n).double()
    basis = torch.cos(torch.pi / size * points[:, None] * waves)
    return (basis / basis.norm(dim=0)).float()


def _unit(size: int) -> float:
    """Return the square root of the fraction of an axis that pooling keeps."""
    return math.sqrt(min(1.0, SMALLEST / size))


def _frequencies(n_channels: int, sizes: Sequence[int], n_latents: int) -> list[int]:
    """Return the number of cosines along each axis: enough for the latents, if the image has that many."""
    most = FREQUENCIES
    while n_channels * math.prod(min(size, most) for size in sizes) < n_latents and most < max(sizes):
        most *= 2
    return [min(size, most) for size in sizes]


def _smoothest(n_channels: int, n: Sequence[int], n_out: int) -> nn.Linear:
    """Return a linear map of cosines, initialised as a rotation of the smoothest; the channel counts as an axis."""
    orders = sorted(product(range(n_channels), *map(range, n)), key=lambda order: (sum(order), order))[:n_out]
    patterns = torch.zeros(len(orders), n_channels, *n)
    mixes = cosines(n_channels, n_channels)  # of colours: their mean, then their differences
    for pattern, (channel, *waves) in zip(patterns, orders, strict=True):
        pattern[(slice(None), *waves)] = mixes[:, channel]
    layer = nn.Linear(n_channels * math.prod(n), n_out)
    return _with_weight(layer, nn.init.orthogonal_(torch.empty(n_out, len(orders))) @ patterns.flatten(1))


def _with_weight(layer: nn.Linear, weight: Tensor) -> nn.Linear:
    nn.init.zeros_(layer.bias)
    layer.weight.data.copy_(weight)
    return layer


def halving(
    n_channels: int, sizes: Sequence[int], n_out: int, widths: Sequence[int] | None, hidden: Sequence[int]
) -> nn.Sequential:
    """Return convolutions, each of which halves an image, and fully connected layers, the last zero at first."""
    widths, steps = _steps(sizes, widths)
    layers: list[nn.Module] = []
    for before, after in pairwise([n_channels, *widths]):
        layers += [_convolution(len(sizes), before, after, stride=2), nn.LeakyReLU(0.01)]
    head = zero_mlp(widths[-1] * math.prod(steps[-1]), n_out, hidden=hidden)
    return nn.Sequential(*layers, nn.Flatten(), *head.children())


def _doubling(
    n_in: int, n_channels: int, sizes: Sequence[int], widths: Sequence[int] | None, hidden: Sequence[int]
) -> SkipMLP:
    """Return a linear path to smooth images plus layers that double an image, the last zero at first."""
    widths, steps = _steps(sizes, widths)
    n = _frequencies(n_channels, sizes, n_in)
    patterns = _smoothest(n_channels, n, n_in)
    write = _with_weight(nn.Linear(n_in, patterns.in_features), patterns.weight.mT)
    first = mlp(n_in, widths[-1] * math.prod(steps[-1]), hidden=hidden[::-1])
    layers = [*first.children(), nn.LeakyReLU(0.01), nn.Unflatten(1, (widths[-1], *steps[-1]))]
    for size, (before, after) in zip(steps[-2::-1], pairwise([*widths[::-1], n_channels]), strict=True):
        layers += [nn.Upsample(size), _convolution(len(sizes), before, after), nn.LeakyReLU(0.01)]
    for weight in layers[-2].parameters():
        nn.init.zeros_(weight)
    return SkipMLP(nn.Sequential(write, Synthesis(sizes, n)), nn.Sequential(*layers[:-1]))


def _steps(sizes: Sequence[int], widths: Sequence[int] | None) -> tuple[Sequence[int], list[tuple[int, ...]]]:
    """Return the channels of each convolution, and the sizes of the image before and after each."""
    if widths is not None and not widths:
        raise InputError("widths", "`widths` must have at least one number of channels, got none.")
    steps = [tuple(sizes)]
    while len(steps) < 2 or (len(steps) <= len(widths) if widths is not None else max(steps[-1]) > SMALLEST):
        steps.append(tuple(-(-size // 2) for size in steps[-1]))
    if widths is None:
        widths = [WIDTHS[min(i, len(WIDTHS) - 1)] for i in range(len(steps) - 1)]
    return widths, steps


def _convolution(n_axes: int, n_in: int, n_out: int, *, stride: int = 1) -> nn.Module:
    return (nn.Conv1d if n_axes == 1 else nn.Conv2d)(n_in, n_out, 3, stride=stride, padding=1)


def check_shape(owner: str, shape: Shape, expected: str, *n_axes: int) -> tuple[int, ...]:
    """Return the shape of a sample, or raise if the network does not fit it."""
    if not isinstance(shape, tuple) or len(shape) not in n_axes or min(shape) < 1:
        raise InputError("shape", f"networks.{owner}: {expected}, but samples have the shape {shape}.")
    return shape
