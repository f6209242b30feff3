"""Fixed first layers as modules: what is done to rows before a network sees them, to columns alone and together."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor, nn

FAINT = 1e-2
"""Spread, relative to the largest, below which a direction is taken for noise and not blown up."""


class FirstLayer(nn.Module):
    """A map of observations that is fixed before training; abstract."""

    mean: Tensor  # in float64: an offset far above the spread must not swallow it
    shape_in: tuple[int, ...]
    shape_out: tuple[int, ...]
    note: str = ""  # what was done to the observations, and why, in one sentence

    @property
    def columns(self) -> Rescale:
        """What is done to each column alone, before all are taken together; only of a linear layer."""
        raise TypeError(f"{type(self).__name__} does not say what it does to single columns: define its `columns`.")

    @property
    def turned(self) -> Tensor:
        """What is done to rescaled columns together: the matrix that they are multiplied by; only of a linear layer."""
        raise TypeError(f"{type(self).__name__} does not say which matrix follows its columns: define its `turned`.")


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

    @property
    def columns(self) -> Rescale:
        """What is done to each column alone: all of it."""
        return self

    @property
    def turned(self) -> Tensor:
        """What is done to all of them together afterwards: nothing; (d, d) in float64."""
        return torch.eye(math.prod(self.shape_in), dtype=torch.float64, device=self.mean.device)


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
        return cls(flat.mean(0), whitening(covariance)[:, :n_components], tuple(x.shape[1:]))

    def forward(self, x: Tensor) -> Tensor:
        """Whiten (n, …); (n, k)."""
        return (x.flatten(1) - self.mean).to(self.matrix.dtype) @ self.matrix

    @property
    def columns(self) -> Rescale:
        """What is done to each column alone: its mean is taken off."""
        return Rescale(self.mean)

    @property
    def turned(self) -> Tensor:
        """What is done to all of them together afterwards; (d, k) in float64."""
        return self.matrix.double()


class Decorrelate(FirstLayer):
    """Fixed first layer: standardise columns, then give some of their directions unit variance; no unit matters.

    Where it makes rows narrower, those that it has been through already are known by their shape, and pass: of wide
    rows training then reads a few numbers each.

    Parameters
    ----------
    mean, scale
        Of each column; (d,).
    matrix
        Directions of standardised columns, divided by their spread, one in each column; (d, k).
    shape
        Of a row; None is (d,).
    note
        What was done, and why.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> Decorrelate(x.mean(0), x.std(0, correction=0), torch.eye(2))(x)[0]
    tensor([-1., -1.])
    """

    scale: Tensor
    matrix: Tensor

    def __init__(
        self, mean: Tensor, scale: Tensor, matrix: Tensor, shape: tuple[int, ...] | None = None, note: str = ""
    ) -> None:
        super().__init__()
        self.shape_in, self.shape_out = tuple(mean.shape if shape is None else shape), (matrix.shape[1],)
        self.note = note
        self.register_buffer("mean", mean.double().contiguous())
        self.register_buffer("scale", scale.double().contiguous())
        self.register_buffer("matrix", matrix.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Standardise and whiten (n, …); (n, k)."""
        if x.shape[1:] == self.shape_out != self.shape_in:
            return x.to(self.matrix.dtype)
        return ((x.flatten(1) - self.mean) / self.scale).to(self.matrix.dtype) @ self.matrix

    @property
    def columns(self) -> Rescale:
        """What is done to each column alone: it is standardised."""
        return Rescale(self.mean, self.scale.to(self.matrix.dtype))

    @property
    def turned(self) -> Tensor:
        """What is done to all of them together afterwards; (d, k) in float64."""
        return self.matrix.double()


def whitening(covariance: Tensor) -> Tensor:
    """Return directions of a covariance, divided by their spread, one per column, the largest variance first."""
    variance, direction = torch.linalg.eigh(covariance)
    return scaled(variance, direction).flip(1)  # largest variance first


def scaled(variance: Tensor, direction: Tensor) -> Tensor:
    """Return directions, one per column, divided by their spread; the faintest are not blown up."""
    largest = torch.where(variance.max() > 0, variance.max(), 1.0)  # constant data have no scale to take off
    return (direction / variance.clamp_min(FAINT**2 * largest).sqrt()).float()  # (d, k), a direction per column
