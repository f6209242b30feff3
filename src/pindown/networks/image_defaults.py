"""Defaults that depend on the device and on whether samples are images: precision, networks, steps, whitening."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from pindown.networks.images import (
    ON_CPU,
    deconvolutional,
    default_encoder,
    default_network,
    widths_for,
)
from pindown.networks.vectors import smooth

FIRST_ROUND = 2_000
"""Steps of the first round of a training that chooses its own length."""


def is_image(shape: Sequence[int]) -> bool:
    """Return whether samples of this shape are images (c, h, w)."""
    return len(shape) == 3


def precision_for(shape: Sequence[int], device: torch.device, requested: torch.dtype | None) -> torch.dtype | None:
    """Return the precision of products in training: as requested, by default bfloat16 for images on a GPU.

    Examples
    --------
    >>> precision_for((3, 64, 64), torch.device("cuda"), None), precision_for((5,), torch.device("cuda"), None)
    (torch.bfloat16, None)
    """
    return torch.bfloat16 if requested is None and is_image(shape) and device.type == "cuda" else requested


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
