"""Convolutional networks for images (c, h, w) and sequences (t, c), which start as a linear map of what is smooth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor, nn

from pindown.networks.vectors import Unfolded, flat, linear, mlp, unfolded

FREQUENCIES = 8
"""Cosines that the linear path sees along each axis of an image, or along time; more if the codes need more."""

SMALLEST, WIDTHS = 4, (32, 64, 128)
"""Each convolution halves an image until it has at most so many pixels a side; its channels, of which the last stay."""


def convolutional(
    shape: tuple[int, ...], n_out: int, *, widths: Sequence[int] | None = None, hidden: Sequence[int] = (256,)
) -> nn.Module:
    """Return an encoder of images: a linear path from low-pass features, beside convolutions that start at zero.

    The linear path sees each channel's first cosines along height and width. It starts with orthogonal rows, a random
    rotation of the n_out smoothest patterns: mean brightness, brightness from side to side and from top to bottom,
    colour, and so on. What moves, grows or changes its colour changes these steadily, where a pattern with many bumps
    would come back to the same value: so the map starts unfolded, as far as a linear one can.

    Parameters
    ----------
    shape
        Of an image, (c, h, w).
    n_out
        Number of codes.
    widths
        Channels of the convolutions, each of which halves the image. By default 32, 64, 128, 128, … until at most
        4 × 4 pixels are left.
    hidden
        Widths of the layers behind them.

    Examples
    --------
    >>> images = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> encoder = convolutional((3, 16, 16), 4)
    >>> encoder(images).shape
    torch.Size([5, 4])
    >>> torch.allclose(encoder(2 * images), 2 * encoder(images), atol=1e-4)  # linear to begin with
    True
    """
    n_channels, *sizes = checked("convolutional", shape, "an image is (c, h, w)", 3)
    return Unfolded(smooth_path(n_channels, sizes, n_out), _halving(n_channels, sizes, n_out, widths, hidden))


def smooth_path(n_channels: int, sizes: Sequence[int], n_out: int) -> nn.Sequential:
    """Return a linear map of images that starts as a rotation of their n_out smoothest patterns.

    Examples
    --------
    >>> smooth_path(3, [16, 16], 4)(torch.ones(2, 3, 16, 16)).shape
    torch.Size([2, 4])
    """
    see = Cosines(sizes, _frequencies(n_channels, sizes, n_out))
    return nn.Sequential(see, _smoothest(n_channels, see.n, n_out))


def temporal(
    shape: tuple[int, ...], n_out: int, *, widths: Sequence[int] | None = None, hidden: Sequence[int] = (256,)
) -> nn.Module:
    """Return an encoder of sequences: a linear path from slow features, beside convolutions that start at zero.

    As :func:`convolutional`, but channels have no order: the linear path starts as a random orthogonal map of each
    channel's mean over time, and of slow changes if there are more codes than channels. Sequences are (t, c).

    Examples
    --------
    >>> temporal((50, 3), 2)(torch.zeros(5, 50, 3)).shape
    torch.Size([5, 2])
    """
    n_steps, n_channels = checked("temporal", shape, "a sequence is (t, c)", 2)
    see = Cosines([n_steps], _frequencies(n_channels, [n_steps], n_out))
    slow = min(see.n[0], -(-n_out // n_channels))
    start = nn.init.orthogonal_(torch.empty(n_out, n_channels * slow))
    read = nn.Linear(n_channels * see.n[0], n_out)
    with torch.no_grad():
        weight = torch.zeros(n_out, n_channels, see.n[0])
        weight[:, :, :slow] = start.unflatten(1, (n_channels, slow))
        read.weight.copy_(weight.flatten(1))
        read.bias.zero_()
    bend = _halving(n_channels, [n_steps], n_out, widths, hidden)
    return nn.Sequential(Swap(), Unfolded(nn.Sequential(see, read), bend))


def deconvolutional(
    n_in: int, shape: tuple[int, ...], *, widths: Sequence[int] | None = None, hidden: Sequence[int] = (256,)
) -> nn.Module:
    """Return a decoder to images (c, h, w) or sequences (t, c): smooth patterns beside convolutions that start at zero.

    The mirror of :func:`convolutional`: `widths` and `hidden` are read from the image inwards, as they are there.

    Examples
    --------
    >>> deconvolutional(4, (3, 16, 16))(torch.zeros(5, 4)).shape
    torch.Size([5, 3, 16, 16])
    >>> deconvolutional(4, (50, 3))(torch.zeros(5, 4)).shape
    torch.Size([5, 50, 3])
    """
    checked("deconvolutional", shape, "an image is (c, h, w), a sequence (t, c)", 2, 3)
    if len(shape) == 2:
        return nn.Sequential(_doubling(n_in, shape[1], shape[:1], widths, hidden), Swap())
    return _doubling(n_in, shape[0], shape[1:], widths, hidden)


def suited(n_in: int | tuple[int, ...], n_out: int) -> nn.Module:
    """Return an encoder that suits the rows: unfolded for vectors, convolutional for images, temporal for sequences.

    Examples
    --------
    >>> [type(suited(n_in, 2)).__name__ for n_in in (5, (5,), (3, 16, 16), (50, 3))]
    ['Unfolded', 'Unfolded', 'Unfolded', 'Sequential']
    """
    if isinstance(n_in, int) or len(n_in) == 1:
        return unfolded(n_in if isinstance(n_in, int) else n_in[0], n_out)
    return temporal(n_in, n_out) if len(n_in) == 2 else convolutional(n_in, n_out)


class Painted(nn.Module):
    """Fixed layer: images from coefficients of patterns (k, c · h · w), as those of leading directions of pictures.

    Examples
    --------
    >>> Painted(torch.eye(3, 4), (1, 2, 2))(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[[[1., 2.],
              [3., 0.]]]])
    """

    patterns: Tensor

    def __init__(self, patterns: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.register_buffer("patterns", patterns.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Return images; (n, k) → (n, c, h, w)."""
        return (x @ self.patterns).unflatten(1, self.shape)


def pictured(
    n_in: int, n_out: int, *, patterns: Tensor, shape: tuple[int, ...], widths: Sequence[int] | None = None
) -> nn.Module:
    """Return an encoder of pictures given by their coefficients: a linear path beside convolutions of the pictures.

    Parameters
    ----------
    n_in, n_out
        Numbers of coefficients and of codes.
    patterns
        Which picture each coefficient stands for; (n_in, c · h · w).
    shape
        Of a picture, (c, h, w).
    widths
        See :func:`convolutional`.

    Examples
    --------
    >>> pictured(3, 2, patterns=torch.eye(3, 48), shape=(3, 4, 4))(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """
    n_channels, *sizes = checked("pictured", shape, "an image is (c, h, w)", 3)
    bend = _halving(n_channels, sizes, n_out, widths, (256,))
    return Unfolded(linear(n_in, n_out), nn.Sequential(Painted(patterns, shape), *bend.children()))


def level(shape: tuple[int, ...], n_out: int = 1) -> nn.Module:
    """Return a network to one number, or some, which starts at zero: of an image, from what is smooth in it.

    Examples
    --------
    >>> level((3, 16, 16))(torch.ones(2, 3, 16, 16)).tolist(), level((5,))(torch.ones(1, 5)).tolist()
    ([[0.0], [0.0]], [[0.0]])
    """
    if len(shape) != 3:
        return nn.Sequential(nn.Flatten(), flat(math.prod(shape), n_out, hidden=(64, 64)))
    see = Cosines(shape[1:], _frequencies(shape[0], shape[1:], 1))
    return nn.Sequential(see, flat(shape[0] * math.prod(see.n), n_out, hidden=(64, 64)))


class Swap(nn.Module):
    """The last two axes, exchanged."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (…, b, a) for (…, a, b)."""
        return x.mT


class Cosines(nn.Module):
    """Fixed layer: coefficients of the lowest cosines along each axis, by which a smooth image is nearly told.

    In units of an image that is pooled to 4 × 4 pixels, so that they are about as large for any resolution.

    Parameters
    ----------
    sizes
        Of the axes behind the channels.
    n
        Cosines along each.

    Examples
    --------
    >>> Cosines([4, 4], [1, 2])(torch.ones(1, 3, 4, 4)).round(decimals=4).abs()  # sums over 16 pixels, by their root
    tensor([[4., 0., 4., 0., 4., 0.]])
    """

    def __init__(self, sizes: Sequence[int], n: Sequence[int]) -> None:
        super().__init__()
        self.n = list(n)
        for axis, (size, frequencies) in enumerate(zip(sizes, n, strict=True)):
            self.register_buffer(f"along{axis}", cosines(size, frequencies) * _unit(size))

    def forward(self, x: Tensor) -> Tensor:
        """Return coefficients; (n, c, …) → (n, c · product of n)."""
        for along in self.buffers():
            x = x.movedim(2, -1) @ along  # each axis goes last, so that all are in order again
        return x.flatten(1)


class Synthesis(nn.Module):
    """Fixed layer: images from the coefficients of :class:`Cosines`."""

    def __init__(self, sizes: Sequence[int], n: Sequence[int]) -> None:
        super().__init__()
        self.n = list(n)
        for axis, (size, frequencies) in enumerate(zip(sizes, n, strict=True)):
            self.register_buffer(f"along{axis}", cosines(size, frequencies).mT.contiguous() / _unit(size))

    def forward(self, x: Tensor) -> Tensor:
        """Return images; (n, c · product of n) → (n, c, …)."""
        x = x.reshape(len(x), -1, *self.n)
        for along in self.buffers():
            x = x.movedim(2, -1) @ along
        return x


def cosines(size: int, n: int) -> Tensor:
    """Return the n lowest cosines on `size` places, orthonormal, one in each column.

    Examples
    --------
    >>> basis = cosines(6, 6)
    >>> torch.allclose(basis.T @ basis, torch.eye(6), atol=1e-6)
    True
    """
    places, waves = torch.arange(size).double() + 0.5, torch.arange(n).double()
    basis = torch.cos(torch.pi / size * places[:, None] * waves)
    return (basis / basis.norm(dim=0)).float()


def _unit(size: int) -> float:
    """Return the root of the share of an axis that is kept when it is pooled."""
    return math.sqrt(min(1.0, SMALLEST / size))


def _frequencies(n_channels: int, sizes: Sequence[int], n_codes: int) -> list[int]:
    """Return how many cosines to see along each axis: enough for the codes, if there are."""
    most = FREQUENCIES
    while n_channels * math.prod(min(size, most) for size in sizes) < n_codes and most < max(sizes):
        most *= 2
    return [min(size, most) for size in sizes]


def _smoothest(n_channels: int, n: Sequence[int], n_out: int) -> nn.Linear:
    """Return a linear map of cosines that starts as a rotation of the smoothest ones, channels counted as an axis."""
    orders = sorted(product(range(n_channels), *map(range, n)), key=lambda order: (sum(order), order))[:n_out]
    patterns = torch.zeros(len(orders), n_channels, *n)
    mixes = cosines(n_channels, n_channels)  # of colours: their mean, then what tells them apart
    for pattern, (channel, *waves) in zip(patterns, orders, strict=True):
        pattern[(slice(None), *waves)] = mixes[:, channel]
    layer = nn.Linear(n_channels * math.prod(n), n_out)
    with torch.no_grad():
        layer.weight.copy_(nn.init.orthogonal_(torch.empty(n_out, len(orders))) @ patterns.flatten(1))
        layer.bias.zero_()
    return layer


def _halving(
    n_channels: int, sizes: Sequence[int], n_out: int, widths: Sequence[int] | None, hidden: Sequence[int]
) -> nn.Sequential:
    """Return convolutions, each of which halves an image, and the layers behind them; the last starts at zero."""
    widths, steps = _steps(sizes, widths)
    layers: list[nn.Module] = []
    for before, after in pairwise([n_channels, *widths]):
        layers += [_convolution(len(sizes), before, after, stride=2), nn.LeakyReLU(0.01)]
    head = flat(widths[-1] * math.prod(steps[-1]), n_out, hidden=hidden)
    return nn.Sequential(*layers, nn.Flatten(), *head.children())


def _doubling(
    n_in: int, n_channels: int, sizes: Sequence[int], widths: Sequence[int] | None, hidden: Sequence[int]
) -> Unfolded:
    """Return a linear path to smooth images beside layers that double a small one, the last of which starts at zero."""
    widths, steps = _steps(sizes, widths)
    n = _frequencies(n_channels, sizes, n_in)
    smooth = _smoothest(n_channels, n, n_in)
    write = nn.Linear(n_in, smooth.in_features)
    with torch.no_grad():
        write.weight.copy_(smooth.weight.mT)
        write.bias.zero_()
    first = mlp(n_in, widths[-1] * math.prod(steps[-1]), hidden=hidden[::-1])
    layers = [*first.children(), nn.LeakyReLU(0.01), nn.Unflatten(1, (widths[-1], *steps[-1]))]
    for size, (before, after) in zip(steps[-2::-1], pairwise([*widths[::-1], n_channels]), strict=True):
        layers += [nn.Upsample(size), _convolution(len(sizes), before, after), nn.LeakyReLU(0.01)]
    last = layers[-2]
    for weight in last.parameters():
        nn.init.zeros_(weight)
    return Unfolded(nn.Sequential(write, Synthesis(sizes, n)), nn.Sequential(*layers[:-1]))


def _steps(sizes: Sequence[int], widths: Sequence[int] | None) -> tuple[Sequence[int], list[tuple[int, ...]]]:
    """Return the channels of each convolution, and the sizes of the image before and after each."""
    if widths is not None and not widths:
        raise ValueError("networks: widths must name the channels of at least one convolution, got none.")
    steps = [tuple(sizes)]
    while len(steps) < 2 or (len(steps) <= len(widths) if widths is not None else max(steps[-1]) > SMALLEST):
        steps.append(tuple(-(-size // 2) for size in steps[-1]))
    if widths is None:
        widths = [WIDTHS[min(i, len(WIDTHS) - 1)] for i in range(len(steps) - 1)]
    return widths, steps


def default_widths(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the channels of the convolutions that images of this size have by default.

    Examples
    --------
    >>> default_widths((64, 64))
    (32, 64, 128, 128)
    """
    return tuple(_steps(sizes, None)[0])


def _convolution(n_axes: int, n_in: int, n_out: int, *, stride: int = 1) -> nn.Module:
    return (nn.Conv1d if n_axes == 1 else nn.Conv2d)(n_in, n_out, 3, stride=stride, padding=1)


def checked(owner: str, shape: Any, what: str, *n_axes: int) -> tuple[int, ...]:
    """Return the shape of a row, or say that the network is for others."""
    if not isinstance(shape, tuple) or len(shape) not in n_axes or min(shape) < 1:
        raise ValueError(f"networks.{owner}: {what}, but rows have the shape {shape}.")
    return shape
