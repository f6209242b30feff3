"""Layers of torch that a file may hold: what each is made from, by the names of arguments that are attributes, too."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_CONVOLUTION = (
    *("in_channels", "out_channels", "kernel_size", "stride", "padding"),
    *("dilation", "groups", "bias", "padding_mode"),
)
_AVERAGE = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_LARGEST = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
_BATCH = ("num_features", "eps", "momentum", "affine", "track_running_stats")

LAYERS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features", "bias"),
    "Bilinear": ("in1_features", "in2_features", "out_features", "bias"),
    "Embedding": ("num_embeddings", "embedding_dim", "padding_idx"),
    "Conv1d": _CONVOLUTION,
    "Conv2d": _CONVOLUTION,
    "Conv3d": _CONVOLUTION,
    "ConvTranspose1d": (*_CONVOLUTION, "output_padding"),
    "ConvTranspose2d": (*_CONVOLUTION, "output_padding"),
    "ConvTranspose3d": (*_CONVOLUTION, "output_padding"),
    "GroupNorm": ("num_groups", "num_channels", "eps", "affine"),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "BatchNorm1d": _BATCH,
    "BatchNorm2d": _BATCH,
    "InstanceNorm1d": _BATCH,
    "InstanceNorm2d": _BATCH,
    "ReLU": ("inplace",),
    "ReLU6": ("inplace",),
    "LeakyReLU": ("negative_slope", "inplace"),
    "PReLU": ("num_parameters",),
    "ELU": ("alpha", "inplace"),
    "CELU": ("alpha", "inplace"),
    "SELU": ("inplace",),
    "GELU": ("approximate",),
    "SiLU": ("inplace",),
    "Mish": ("inplace",),
    "Hardtanh": ("min_val", "max_val", "inplace"),
    "Hardswish": ("inplace",),
    "Softplus": ("beta", "threshold"),
    "Softsign": (),
    "Softmax": ("dim",),
    "LogSoftmax": ("dim",),
    "Sigmoid": (),
    "Tanh": (),
    "Dropout": ("p", "inplace"),
    "Flatten": ("start_dim", "end_dim"),
    "Unflatten": ("dim", "unflattened_size"),
    "AvgPool1d": _AVERAGE,
    "AvgPool2d": _AVERAGE,
    "MaxPool1d": _LARGEST,
    "MaxPool2d": _LARGEST,
    "AdaptiveAvgPool1d": ("output_size",),
    "AdaptiveAvgPool2d": ("output_size",),
    "AdaptiveMaxPool1d": ("output_size", "return_indices"),
    "AdaptiveMaxPool2d": ("output_size", "return_indices"),
    "Upsample": ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor"),
    "PixelShuffle": ("upscale_factor",),
    "PixelUnshuffle": ("downscale_factor",),
    "Identity": (),
    "Sequential": (),
    "ModuleList": (),
}


def is_layer(module: nn.Module) -> bool:
    """Whether a module is one of these layers, and not of a class derived from it.

    Examples
    --------
    >>> is_layer(nn.Linear(1, 1)), is_layer(nn.LSTM(1, 1))
    (True, False)
    """
    name = type(module).__name__
    return name in LAYERS and type(module) is getattr(nn, name)


def arguments(layer: nn.Module) -> dict[str, Any]:
    """Return what a layer was made from.

    Examples
    --------
    >>> arguments(nn.Linear(3, 2, bias=False))
    {'in_features': 3, 'out_features': 2, 'bias': False}
    """
    named = {name: getattr(layer, name) for name in LAYERS[type(layer).__name__]}
    return named | {name: value is not None for name, value in named.items() if name == "bias"}


def made(name: str, arguments: dict[str, Any]) -> nn.Module:
    """Return a layer that is made so, without numbers yet: its tensors are on no device, and take no room.

    Examples
    --------
    >>> made("Linear", {"in_features": 10**6, "out_features": 10**6}).weight.device
    device(type='meta')
    """
    if name not in LAYERS:
        raise ValueError(f"it has a layer {name}, which is not known here")
    with torch.device("meta"):
        return getattr(nn, name)(**arguments)
