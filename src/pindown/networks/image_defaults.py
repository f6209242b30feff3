"""Defaults that depend on the device and on whether samples are images: precision, networks, steps, whitening."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pindown.networks.images import (
    ON_CPU,
    convolutional_of_coefficients,
    deconvolutional,
    default_encoder,
    default_network,
    widths_for,
)
from pindown.networks.preprocessing import Preprocess, Preprocessing, whiten
from pindown.networks.vectors import smooth

FIRST_ROUND = 2_000
"""Steps of the first round of a training that chooses its own length."""

BALANCE, FAINTEST = 0.25, 1e-6
"""Directions of images are divided by this power of their variance, so that their weight is the square root of their
standard deviation; and the smallest variance, relative to the largest, that is divided by."""

whitened: Preprocess = partial(whiten, n_components=128)
"""Preprocessing of images where closed forms need vectors: their leading directions at unit variance."""


def is_image(shape: Sequence[int]) -> bool:
    """Return whether samples of this shape are images (c, h, w)."""
    return len(shape) == 3


def precision_for(shape: Sequence[int], device: torch.device, asked: torch.dtype | None) -> torch.dtype | None:
    """Return the precision of products in training: as requested, by default bfloat16 for images on a GPU.

    Examples
    --------
    >>> precision_for((3, 64, 64), torch.device("cuda"), None), precision_for((5,), torch.device("cuda"), None)
    (torch.bfloat16, None)
    """
    return torch.bfloat16 if asked is None and is_image(shape) and device.type == "cuda" else asked


def first_round_for(shape: Sequence[int], device: torch.device) -> int:
    """Return the steps of the first round of training; half as many for images on a CPU.

    Examples
    --------
    >>> [first_round_for(shape, torch.device("cpu")) for shape in ((3, 32, 32), (5,))]
    [1000, 2000]
    """
    return FIRST_ROUND // (ON_CPU if is_image(shape) and device.type == "cpu" else 1)


def encoder_for(make: Any, shape: Any, device: torch.device) -> Any:
    """Return the encoder as requested; a default encoder of images is convolutional, on a CPU with half the channels.

    Examples
    --------
    >>> encoder_for(default_network, (3, 32, 32), torch.device("cpu")).keywords
    {'widths': (16, 32, 64)}
    """
    image = isinstance(shape, tuple) and is_image(shape)
    is_default = make is smooth or (make is default_network and device.type == "cpu")
    return default_encoder(shape, device) if image and is_default else make


def decoder_for(make: Any, shape: tuple[int, ...], device: torch.device) -> Any:
    """Return the decoder as requested; `smooth`, the default, stands for that of images if samples are images.

    Examples
    --------
    >>> decoder_for(smooth, (3, 32, 32), torch.device("cpu")).func.__name__
    'deconvolutional'
    """
    return default_decoder(shape, device) if make is smooth and is_image(shape) else make


def default_decoder(shape: int | tuple[int, ...], device: torch.device) -> Callable[[int, Any], nn.Module]:
    """Return the function (n_latents, shape) -> nn.Module that makes the default decoder to samples of this shape.

    It is `smooth` for vectors and sequences, `deconvolutional` for images; on a CPU with half the channels.
    """
    if isinstance(shape, int) or not is_image(shape):
        return smooth
    return partial(deconvolutional, widths=widths_for(shape, device))


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

    A decoder that is conditioned on the level need not learn the mean image of each level. For the rest, errors in
    pixels would be dominated by the largest variation, and errors in whitened directions by noise. So each direction
    is weighted by the square root of its standard deviation within levels. A decoder that returns the mean of each
    level has a weighted mean squared error of one.

    Parameters
    ----------
    white : array (n, k)
        Images along directions of unit variance.
    spread : array (k,)
        Standard deviation of each direction: see `spreads`.
    level : array (n,)
        Index of the level of the nuisance.

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
    roots = np.maximum(variances, FAINTEST * variances.max()) ** -BALANCE
    worth: NDArray[np.float64] = spread[:, None] * (directions * roots) @ directions.T
    return worth / np.sqrt(((residual @ worth) ** 2).mean())


def encoder_behind(first: Preprocessing, device: torch.device) -> Callable[[int, int], nn.Module]:
    """Return the function that makes a convolutional encoder of images given by their leading directions.

    Examples
    --------
    >>> from pindown.data import ArraySource
    >>> first = whitened(ArraySource(torch.randn(50, 1, 8, 8)))
    >>> encoder_behind(first, torch.device("cpu"))(*first.shape_out, 2)(torch.zeros(3, 64)).shape
    torch.Size([3, 2])
    """
    back = torch.linalg.pinv(first.linear_map)  # (k, pixels)
    patterns = (back / back.square().sum(0).mean().sqrt()).float()  # pixels have about unit variance
    return partial(
        convolutional_of_coefficients,
        patterns=patterns,
        shape=first.shape_in,
        widths=widths_for(first.shape_in, device),
    )
