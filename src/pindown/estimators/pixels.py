"""What suits pictures, by their size and by the device: precision, the encoder, and the length of the first round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from pindown.networks import convolutional, deconvolutional, pictured, preprocessing, smooth, suited
from pindown.networks.images import default_widths
from pindown.networks.preprocessing import FirstLayer, Whiten
from pindown.sources import Source
from pindown.training import convergence

DIRECTIONS = 128
"""Leading directions of pictures that are looked at where closed forms are wanted of them."""

BALANCE, FAINTEST = 0.25, 1e-6
"""Directions of pictures are divided by this power of their variance, so that they count by the root of their spread;
and the least share of the largest variance that is divided by."""

ON_CPU = 2
"""On a CPU the default encoder of pictures has so many times fewer channels, and its first round fewer steps."""


def is_image(shape: Sequence[int]) -> bool:
    """Say whether rows of this shape are images (c, h, w)."""
    return len(shape) == 3


def precision_for(shape: Sequence[int], device: torch.device, asked: torch.dtype | None) -> torch.dtype | None:
    """Return the precision of products in training: that which was asked for, or half of it for pictures on a GPU.

    Examples
    --------
    >>> precision_for((3, 64, 64), torch.device("cuda"), None), precision_for((5,), torch.device("cuda"), None)
    (torch.bfloat16, None)
    """
    return torch.bfloat16 if asked is None and is_image(shape) and device.type == "cuda" else asked


def encoder_for(make: Any, shape: Any, device: torch.device) -> Any:
    """Return the encoder that was asked for; of pictures a default convolves, on a CPU with half its channels.

    Examples
    --------
    >>> encoder_for(suited, (3, 32, 32), torch.device("cpu")).keywords
    {'widths': (16, 32, 64)}
    """
    if make not in (suited, smooth) or not isinstance(shape, tuple) or not is_image(shape):
        return make
    return make if make is suited and device.type != "cpu" else partial(convolutional, widths=_widths(shape, device))


def decoder_for(make: Any, shape: tuple[int, ...], device: torch.device) -> Any:
    """Return the decoder that was asked for; to pictures the default convolves, on a CPU with half its channels.

    Examples
    --------
    >>> decoder_for(smooth, (3, 32, 32), torch.device("cpu")).func.__name__
    'deconvolutional'
    """
    return partial(deconvolutional, widths=_widths(shape, device)) if make is smooth and is_image(shape) else make


def _widths(shape: tuple[int, ...], device: torch.device) -> tuple[int, ...]:
    return tuple(width // (ON_CPU if device.type == "cpu" else 1) for width in default_widths(shape[1:]))


def whitened(source: Source) -> Whiten:
    """Return a first layer that gives the leading directions of pictures unit variance.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> whitened(Arrays(torch.randn(50, 1, 4, 4))).shape_out
    (16,)
    """
    return preprocessing.whiten(source, n_components=min(DIRECTIONS, math.prod(source.shape)))


def spreads(first: FirstLayer) -> np.ndarray:
    """Return how much pictures vary along the directions that a first layer whitens, their mean square being one.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> x = torch.randn(5_000, 1, 1, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([2.0, 1.0])
    >>> far, near = spreads(whitened(Arrays(x)))
    >>> bool(abs(far / near - 2) < 0.2)
    True
    """
    spread = 1 / np.linalg.norm(first.turned.cpu().numpy(), axis=0)
    return spread / np.sqrt((spread**2).mean())


def worth_rebuilding(white: np.ndarray, spread: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return by what errors of whitened pictures are multiplied, so that what values leave of pictures counts; (k, k).

    A decoder that is told the value need not learn what all pictures of it have in common, be it most of what varies.
    Of the rest, pixels would let a loud thing drown all others, and whitened directions would count noise as much as
    anything: each direction counts by the root of its spread within values. The mean square of what is multiplied is
    one if nothing is rebuilt but the mean of each value.

    Parameters
    ----------
    white : array (n, k)
        Pictures along directions of unit variance.
    spread : array (k,)
        How much they vary along each: see `spreads`.
    value : array (n,)
        Numbers of the values of a nuisance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> value = rng.integers(2, size=2_000)
    >>> white = np.stack([2 * value - 1.0, rng.normal(size=2_000)], 1)  # the first is the value itself
    >>> round(float(worth_rebuilding(white, np.array([1.4, 0.2]), value)[1, 1]), 1)
    1.4
    """
    sums = np.stack([np.bincount(value, weights=column) for column in white.T], 1)
    means = sums / np.maximum(np.bincount(value), 1)[:, None]
    pixels = (white - means[value]) * spread
    variances, directions = np.linalg.eigh(pixels.T @ pixels / len(pixels))
    roots = np.maximum(variances, FAINTEST * variances.max()) ** -BALANCE
    worth = spread[:, None] * (directions * roots) @ directions.T
    return worth / np.sqrt((((white - means[value]) @ worth) ** 2).mean())


def encoder_behind(first: FirstLayer, device: torch.device) -> Any:
    """Return what makes an encoder of pictures of which leading directions are seen: convolutions of what these show.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> first = whitened(Arrays(torch.randn(50, 1, 8, 8)))
    >>> encoder_behind(first, torch.device("cpu"))(*first.shape_out, 2)(torch.zeros(3, 64)).shape
    torch.Size([3, 2])
    """
    back = torch.linalg.pinv(first.turned)  # (k, pixels)
    patterns = (back / back.square().sum(0).mean().sqrt()).float()  # pixels vary by about one
    return partial(pictured, patterns=patterns, shape=first.shape_in, widths=_widths(first.shape_in, device))


def first_round_for(shape: Sequence[int], device: torch.device) -> int:
    """Return the steps of the first round of a training that chooses its own length.

    Examples
    --------
    >>> [first_round_for(shape, torch.device("cpu")) for shape in ((3, 32, 32), (5,))]
    [1000, 2000]
    """
    return convergence.FIRST_ROUND // (ON_CPU if is_image(shape) and device.type == "cpu" else 1)
