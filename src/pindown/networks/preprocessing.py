"""Fixed first layers: what an encoder does to observations before its network sees them, as functions of a source.

An estimator takes one of these functions as its ``preprocess`` and calls it with the source of the observations. What
comes back is a module without parameters that knows the shape of a row before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from pindown import _random
from pindown.networks.principal import leading_directions
from pindown.sources import Source, moments

MOST_COLUMNS, MOST_DIRECTIONS = 4_096, 1_000
"""Columns up to which `whiten` forms their whole covariance; and directions that it keeps beyond."""

FAINT = 1e-2
"""Spread, relative to the largest, below which a direction is taken for noise and not blown up."""

CONSTANT = 1e-12
"""Spread, relative to the mean, up to which numbers are one number and its rounding."""


class FirstLayer(nn.Module):
    """A map of observations that is fixed before training; abstract."""

    mean: Tensor  # in float64: an offset far above the spread must not swallow it
    shape_in: tuple[int, ...]
    shape_out: tuple[int, ...]


Preprocess = Callable[[Source], FirstLayer]
"""What estimators take as ``preprocess``."""


class Rescale(FirstLayer):
    """Fixed first layer: take a mean off and divide by a scale; the shape stays.

    Parameters
    ----------
    mean
        Of rows, or what broadcasts to their shape: (d,), (c, 1, 1) for images, (c,) for sequences (t, c).
    scale
        The same in its shape, or a single number; its precision is that of what comes out. None is 1.
    shape
        Of a row; None is that of the mean.

    Examples
    --------
    >>> Rescale(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))(torch.tensor([[2.0, 4.0]]))
    tensor([[1., 1.]])
    """

    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor | None = None, shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.shape_in = self.shape_out = tuple(mean.shape if shape is None else shape)
        self.register_buffer("mean", mean.double().contiguous())
        self.register_buffer("scale", torch.ones((), device=mean.device) if scale is None else scale.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Rescale (n, …)."""
        exact = torch.promote_types(
            x.dtype, self.scale.dtype
        )  # not always float64, in which images take twice the room
        return (x.to(exact) - self.mean.to(exact)).to(self.scale.dtype) / self.scale


class Whiten(FirstLayer):
    """Fixed first layer: centre the data and give their leading directions unit variance; images are laid out flat.

    Directions below a hundredth of the largest standard deviation are treated as noise and not blown up. All others
    count alike: where most are faint, as pixels that are nearly always empty, give leading principal components, as
    ``partial(whiten, n_components=50)`` does.

    Parameters
    ----------
    mean
        Of the data, each row laid out as a vector; (d,).
    matrix
        Directions, divided by their spread, one in each column; (d, k).
    shape
        Of a row; None is (d,).

    Examples
    --------
    >>> x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> torch.cov(Whiten.of(x)(x).T, correction=0).round(decimals=3).abs()
    tensor([[1., 0.],
            [0., 1.]])
    """

    matrix: Tensor

    def __init__(self, mean: Tensor, matrix: Tensor, shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.shape_in, self.shape_out = tuple(mean.shape if shape is None else shape), (matrix.shape[1],)
        self.register_buffer("mean", mean.contiguous())
        self.register_buffer("matrix", matrix.contiguous())  # as files store it: see tests/test_networks_layout.py

    @classmethod
    def of(cls, x: Tensor, n_components: int | None = None) -> Self:
        """Return what whitens these rows, (n, …), which lie in memory, along all directions or the leading ones."""
        flat = x.double().flatten(1)
        covariance = torch.cov(flat.T, correction=0).reshape(flat.shape[1], -1)
        return cls(flat.mean(0), _whitening(covariance)[:, :n_components], tuple(x.shape[1:]))

    def forward(self, x: Tensor) -> Tensor:
        """Whiten (n, …); (n, k)."""
        return (x.flatten(1) - self.mean).to(self.matrix.dtype) @ self.matrix


def whiten(source: Source, *, n_components: int | None = None, random_state: _random.RandomState = 0) -> Whiten:
    """Return a first layer that centres rows and gives their directions unit variance, the most variable first.

    Images and sequences are laid out as vectors. Up to 4,096 columns the covariance is taken whole. Wider rows keep at
    most 1,000 leading directions, and never more than the rows have, found by a few passes over the source:
    see `pindown.networks.principal.leading_directions`.

    Parameters
    ----------
    source : Source
        The rows.
    n_components : int or None
        Number of directions to keep at most; None keeps all up to 4,096 columns, 1,000 beyond.
    random_state : int, numpy.random.RandomState, torch.Generator or None
        Where the search in wide rows begins.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> whiten(Arrays(x))(x).abs()
    tensor([[1., 1.],
            [1., 1.],
            [1., 1.],
            [1., 1.]])
    """
    if n_components is not None and n_components < 1:
        raise ValueError(f"whiten: n_components must be at least 1, got {n_components}.")
    n_columns = math.prod(source.shape)
    if n_columns > MOST_COLUMNS:
        leading = leading_directions(source, n_components or MOST_DIRECTIONS, random_state=random_state)
        return Whiten(leading.mean, _scaled(leading.variance, leading.directions), source.shape)
    found = moments(source)
    assert found.covariance is not None
    return Whiten(found.mean, _whitening(found.covariance)[:, :n_components], source.shape)


def _whitening(covariance: Tensor) -> Tensor:
    variance, direction = torch.linalg.eigh(covariance)
    return _scaled(variance, direction).flip(1)  # largest variance first


def _scaled(variance: Tensor, direction: Tensor) -> Tensor:
    largest = torch.where(variance.max() > 0, variance.max(), 1.0)  # constant data have no scale to take off
    return (direction / variance.clamp_min(FAINT**2 * largest).sqrt()).float()  # (d, k), a direction per column


def standardise(source: Source) -> Rescale:
    """Return a first layer that takes the mean off and gives unit variance, per column, or per channel of images.

    The channel is the first axis of an image (c, h, w), the last of a sequence (t, c). What never varies becomes zero.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> images = torch.tensor([[0.0, 2.0], [4.0, 5.0]]).reshape(2, 2, 1, 1).expand(2, 2, 8, 8)
    >>> standardise(Arrays(images))(images)[:, :, 0, 0]
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """
    found = moments(source, covariance=False, channel=_channel(source.shape))
    varies = found.variance.sqrt() > CONSTANT * found.mean.abs()
    if not varies.any():
        raise ValueError(
            "standardise: all numbers of a column or channel are the same, in every one of them, so that there is "
            "nothing to learn from. Was the right array read?"
        )
    scale = torch.where(varies, found.variance.sqrt(), 1.0).float()
    return Rescale(_spread_out(found.mean, source.shape), _spread_out(scale, source.shape), source.shape)


def centre(source: Source) -> Rescale:
    """Return a first layer that takes the mean off, per column, or per channel of images, and nothing else.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> centre(Arrays([[1.0], [3.0]]))(torch.tensor([[3.0]]))
    tensor([[1.]])
    """
    mean = moments(source, covariance=False, channel=_channel(source.shape)).mean
    return Rescale(_spread_out(mean, source.shape), shape=source.shape)


def nothing(source: Source) -> Rescale:
    """Return a first layer that changes nothing but the precision, for networks that bring their own preprocessing.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> nothing(Arrays([[1.0], [3.0]]))(torch.tensor([[3.0]], dtype=torch.float64))
    tensor([[3.]])
    """
    channel = _channel(source.shape)
    n = math.prod(source.shape) if channel is None else source.shape[channel]
    return Rescale(_spread_out(torch.zeros(n, dtype=torch.float64), source.shape), shape=source.shape)


def suited(source: Source) -> FirstLayer:
    """Return what suits the rows: vectors are whitened; images and sequences are standardised, and keep their shape.

    A convolution looks for neighbours, which a rotation of all pixels would leave none of.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> [type(suited(Arrays(torch.eye(24).reshape(24, *shape)))).__name__ for shape in ((24,), (6, 4), (2, 3, 4))]
    ['Whiten', 'Rescale', 'Rescale']
    """
    return whiten(source) if len(source.shape) == 1 else standardise(source)


def fitted(owner: str, preprocess: Any, source: Source) -> FirstLayer:
    """Return ``preprocess(source)``, or say what is wrong with it, by the name of the estimator that was given it.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> fitted("Contrast", nn.Identity, Arrays([[1.0]]))
    Traceback (most recent call last):
    TypeError: Contrast: preprocess must return a networks.FirstLayer, which knows its shape_in, shape_out and mean, ...
    """
    if not callable(preprocess):
        raise TypeError(
            f"{owner}: preprocess must be a function of a source, such as preprocessing.whiten, got {preprocess!r}."
        )
    layer = preprocess(source)
    if not isinstance(layer, FirstLayer):
        raise TypeError(
            f"{owner}: preprocess must return a networks.FirstLayer, which knows its shape_in, shape_out and mean, got "
            f"{layer!r}."
        )
    return layer


def _channel(shape: tuple[int, ...]) -> int | None:
    """Return the axis of a row whose places are variables of their own; None if all numbers are."""
    return {1: None, 2: -1}.get(len(shape), 0)


def _spread_out(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a value for each column or channel as a tensor that broadcasts to rows of this shape."""
    return values if _channel(shape) != 0 else values.reshape(-1, *[1] * (len(shape) - 1))
