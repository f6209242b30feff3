"""Self-attention and its derivative along tangents, in plain tensor operations."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional


def push_attention(layer: nn.MultiheadAttention, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return what tokens take from each other, and its derivative along tangents.

    .. math:: a = \operatorname{softmax}(q k^\top / \sqrt w), \quad y = a v, \qquad
              \dot a = a \odot (\dot s - \textstyle\sum a \odot \dot s), \quad \dot y = \dot a v + a \dot v

    with :math:`\dot s = (\dot q k^\top + q \dot k^\top) / \sqrt w` for heads of width w.

    Parameters
    ----------
    layer
        Queries, keys and values are all of x: see `has_closed_form`.
    x
        Tokens (n, tokens, width).
    t
        Tangents (k, n, tokens, width).

    Examples
    --------
    One token can attend to itself only: it is mapped linearly, and so is a step of it.

    >>> import torch
    >>> layer = nn.MultiheadAttention(2, 1, bias=False, batch_first=True)
    >>> x, t = torch.ones(1, 1, 2), torch.ones(1, 1, 1, 2)
    >>> y, moved = push_attention(layer, x, t)
    >>> torch.allclose(y, moved[0])
    True
    """
    weight, bias = layer.in_proj_weight, layer.in_proj_bias
    query, key, value = _heads(functional.linear(x, weight, bias), layer.num_heads)
    moved_query, moved_key, moved_value = _heads(functional.linear(t, weight), layer.num_heads)
    scale = 1 / math.sqrt(query.shape[-1])
    shares = (scale * query @ key.mT).softmax(-1)  # (n, heads, tokens, tokens)
    slopes = scale * (moved_query @ key.mT + query @ moved_key.mT)
    moved_shares = shares * (slopes - (shares * slopes).sum(-1, keepdim=True))
    taken, moved = shares @ value, moved_shares @ value + shares @ moved_value
    out = layer.out_proj
    return out(_joined(taken)), functional.linear(_joined(moved), out.weight)


def has_closed_form(layer: nn.MultiheadAttention) -> bool:
    """Return whether `push_attention` is what the layer does: no dropout, no tokens of its own, one width for all."""
    drops = layer.training and layer.dropout > 0
    return not drops and layer.bias_k is None and not layer.add_zero_attn and layer.in_proj_weight is not None


def _heads(projected: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values by heads; (…, tokens, 3 · width) → three of (…, heads, tokens, width / heads)."""
    query, key, value = (part.unflatten(-1, (n, -1)).transpose(-2, -3) for part in projected.chunk(3, dim=-1))
    return query, key, value


def _joined(heads: Tensor) -> Tensor:
    return heads.transpose(-2, -3).flatten(-2)
