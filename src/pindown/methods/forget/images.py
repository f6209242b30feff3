"""`Forget` for images: closed forms use their leading directions, and the encoder convolves the images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pindown.networks import SkipMLP, linear
from pindown.networks.images import halving, widths_for
from pindown.networks.preprocessing import Preprocess, Preprocessing, whiten

# Power of their variance by which directions of images are divided: their weight is the square root of their standard
# deviation. And the smallest variance to divide by, relative to the largest.
BALANCE, MIN_VARIANCE = 0.25, 1e-6
whitened: Preprocess = partial(whiten, n_components=128)
"""Preprocessing of images for closed forms: their leading directions at unit variance."""


def spreads(first: Preprocessing) -> NDArray[np.float64]:
    """Return the standard deviations of images along whitened directions, with a mean square of one.

    Examples
    --------
    >>> from pindown.data import ArraySource
    >>> x = torch.randn(5_000, 1, 1, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([2.0, 1.0])
    >>> large, small = spreads(whitened(ArraySource(x)))
    >>> bool(abs(large / small - 2) < 0.2)
    True
    """
    spread: NDArray[np.float64] = 1 / np.linalg.norm(first.linear_map.cpu().numpy(), axis=0)
    return spread / np.sqrt((spread**2).mean())


def worth_rebuilding(white: NDArray[Any], spread: NDArray[np.float64], level: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the matrix (k, k) that weights reconstruction errors of whitened images, given the level of a nuisance.

    Errors in pixels would be dominated by the largest variation, and errors in whitened directions by noise. So each
    direction is weighted by the square root of its standard deviation within levels. A decoder that returns the mean of
    each level has a weighted mean squared error of one.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> level = rng.integers(2, size=2_000)
    >>> white = np.stack([2 * level - 1.0, rng.normal(size=2_000)], 1)  # the first direction is the level itself
    >>> round(float(worth_rebuilding(white, np.array([1.4, 0.2]), level)[1, 1]), 1)
    1.4
    """
    sums = np.stack([np.bincount(level, weights=column) for column in white.T], 1)
    residual = white - (sums / np.maximum(np.bincount(level), 1)[:, None])[level]
    pixels = residual * spread
    variances, directions = np.linalg.eigh(pixels.T @ pixels / len(pixels))
    roots = np.maximum(variances, MIN_VARIANCE * variances.max()) ** -BALANCE
    worth: NDArray[np.float64] = spread[:, None] * (directions * roots) @ directions.T
    return worth / np.sqrt(((residual @ worth) ** 2).mean())


def encoder_behind(first: Preprocessing, device: torch.device) -> Callable[[int, int], nn.Module]:
    """Return what makes an encoder of leading directions: a linear path plus convolutions of the images."""
    back = torch.linalg.pinv(first.linear_map)  # (k, pixels)
    patterns = (back / back.square().sum(0).mean().sqrt()).float()  # pixels have about unit variance
    n_channels, *sizes = first.shape_in
    widths = widths_for(first.shape_in, device)

    def make(n_in: int, n_out: int) -> nn.Module:
        nonlinear = halving(n_channels, sizes, n_out, widths, (256,))
        return SkipMLP(linear(n_in, n_out), nn.Sequential(PatternSum(patterns, first.shape_in), *nonlinear.children()))

    return make


class PatternSum(nn.Module):
    """Fixed layer: images from the coefficients of patterns (k, c · h · w), such as principal directions.

    Examples
    --------
    >>> PatternSum(torch.eye(3, 4), (1, 2, 2))(torch.tensor([[1.0, 2.0, 3.0]]))
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
