"""The encoder: preprocessing, a network, and the projection onto the latent space; and how samples are encoded."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from pindown.networks.preprocessing import Preprocessing
from pindown.networks.spaces import Space

ENCODE_SAMPLES, ENCODE_BYTES = 65_536, 1 << 28
"""Samples and bytes per encoded block: they bound the memory of `transform` for any size of X."""

ENCODED_AT_ONCE = 4_096
"""Samples of a source that are read and encoded at once."""

PADDED_SAMPLES = 256
"""Size of every block that is not encoded in float64."""

CHEAP_PARAMETERS = 5_000_000
"""Number of weights up to which a network for vectors is run in float64."""


class Encoder(nn.Module):
    """Preprocessing, a network, and the projection onto the latent space."""

    preprocess: Preprocessing
    body: nn.Module
    space: Space

    def __init__(self, preprocess: Preprocessing, body: nn.Module, space: Space) -> None:
        super().__init__()
        self.preprocess, self.body, self.space = preprocess, body, space

    @property
    def n_features(self) -> int:
        """Number of variables of a preprocessed sample."""
        return math.prod(self.preprocess.shape_out)

    @property
    def device(self) -> torch.device:
        """Device of the encoder."""
        return self.preprocess.mean.device

    def forward(self, x: Tensor) -> Tensor:
        """Encode (n, …) to (n, n_components)."""
        return self.space(self.body(self.preprocess(x)))


def is_cheap(encoder: Encoder) -> bool:
    """Return whether float64 costs little: a small network for vectors."""
    vectors = len(encoder.preprocess.shape_out) == 1 and not any(isinstance(m, nn.Conv2d) for m in encoder.modules())
    return vectors and sum(weight.numel() for weight in encoder.parameters()) <= CHEAP_PARAMETERS


def encode(encoder: Encoder, x: Tensor) -> Tensor:
    """Return the latents (n, n_components) of samples (n, …), encoded in blocks.

    The latents of a sample must not depend on the other samples. Cheap encoders run in float64. Others keep the
    precision of their weights and get blocks of a fixed size, since the order of summation depends on the size.
    """
    size = max(1, min(ENCODE_SAMPLES, ENCODE_BYTES // (8 * max(1, math.prod(x.shape[1:])))))
    with torch.no_grad():  # not inference_mode: users may train on the result
        if is_cheap(encoder):
            double = copy.deepcopy(encoder).double().eval()
            return torch.cat([double(part.to(encoder.device).double()) for part in x.split(size)])
        return torch.cat([_padded(encoder.eval(), part, PADDED_SAMPLES) for part in x.split(PADDED_SAMPLES)])


def _padded(encoder: Encoder, x: Tensor, size: int) -> Tensor:
    """Encode a block that is padded to this size by copies of its first sample."""
    missing = size - len(x)
    first = x[:1] if len(x) else x.new_zeros(1, *x.shape[1:])
    filled = torch.cat([x, first.expand(missing, *x.shape[1:])]) if missing else x
    return encoder(filled.to(encoder.device))[: len(x)]
