"""The encoder: a fixed first layer, a network, and the projection onto the space of the latents; and how it is run."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from pindown.networks.preprocessing import FirstLayer
from pindown.spaces import Space

ENCODE_ROWS, ENCODE_BYTES = 65_536, 1 << 28
"""Rows encoded at once, and bytes of them: bounds the memory of `transform` whatever the size of X."""

ENCODED_AT_ONCE = 4_096
"""Rows of a source that are read, or of charts that are encoded, at once."""

PADDED_ROWS = 256
"""Rows that a network is always shown at once where it is not run in float64."""

CHEAP_PARAMETERS = 5_000_000
"""Weights up to which a network that sees vectors is run in float64; others stay in the precision they have."""


class Encoder(nn.Module):
    """Preprocessing, a network, and the projection onto the space of the latents."""

    preprocess: FirstLayer
    body: nn.Module
    space: Space

    def __init__(self, preprocess: FirstLayer, body: nn.Module, space: Space) -> None:
        super().__init__()
        self.preprocess, self.body, self.space = preprocess, body, space

    @property
    def n_features(self) -> int:
        """Number of variables that the network sees in a row."""
        return math.prod(self.preprocess.shape_out)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.preprocess.mean.device

    def forward(self, x: Tensor) -> Tensor:
        """Encode (n, …) to (n, n_components)."""
        return self.space(self.body(self.preprocess(x)))


def is_cheap(encoder: Encoder) -> bool:
    """Say whether float64 costs little: a small network of vectors."""
    vectors = len(encoder.preprocess.shape_out) == 1 and not any(isinstance(m, nn.Conv2d) for m in encoder.modules())
    return vectors and sum(weight.numel() for weight in encoder.parameters()) <= CHEAP_PARAMETERS


def encode(encoder: Encoder, x: Tensor) -> Tensor:
    """Encode (n, …), a bounded number of rows at a time; (n, n_components).

    In float64 where that is cheap, so that a row's latents do not depend on the rows beside it; in the precision of its
    weights where it is not, and then always with as many rows at once, since sums come in an order that depends on
    their number.
    """
    rows = max(1, min(ENCODE_ROWS, ENCODE_BYTES // (8 * max(1, math.prod(x.shape[1:])))))
    with torch.no_grad():  # not inference_mode: what comes out may enter someone's own training
        if is_cheap(encoder):
            double = copy.deepcopy(encoder).double().eval()
            return torch.cat([double(part.to(encoder.device).double()) for part in x.split(rows)])
        return torch.cat([_padded(encoder.eval(), part, PADDED_ROWS) for part in x.split(PADDED_ROWS)])


def _padded(encoder: Encoder, x: Tensor, n_rows: int) -> Tensor:
    """Encode rows beside copies of the first, so that there are always so many."""
    missing = n_rows - len(x)
    first = x[:1] if len(x) else x.new_zeros(1, *x.shape[1:])
    filled = torch.cat([x, first.expand(missing, *x.shape[1:])]) if missing else x
    return encoder(filled.to(encoder.device))[: len(x)]
