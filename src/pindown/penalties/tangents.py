"""A decoder and columns of its Jacobian in one pass: tangents pushed through it layer by layer.

The layers of the usual decoders have rules of their own, built from plain tensor operations, so that whatever is made
of the columns can be differentiated once more at the price of an ordinary backward pass. A layer without a rule is
left to ``torch.func``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from pindown.networks import Residual, Unfolded
from pindown.networks.images import Cosines, Swap, Synthesis
from pindown.penalties.attention import has_closed_form, push_attention
from pindown.penalties.normalisation import PlainNormalisation, affine

Decoder = Callable[[Tensor], Tensor]
"""Maps latents (n, d) to observations (n, ...), each row by itself."""


class Pushed(NamedTuple):
    """What a decoder makes of latents, and of steps along some of them."""

    x: Tensor  # (n, ...)
    columns: Tensor  # (k, n, ...): the derivative of x along the k-th chosen latent


def pushforward(decoder: Decoder, z: Tensor, columns: Tensor | None = None) -> Pushed:
    r"""Decode latents, and take columns of the decoder's Jacobian at them along.

    .. math:: x = g(z), \qquad \frac{\partial g(z)}{\partial z_j} \text{ for the chosen } j

    ``nn.Sequential`` and this package's networks go through in closed form as long as their layers are linear,
    convolutional, elementwise, reshaping, transformers (``nn.TransformerEncoderLayer``), or normalise layers or groups;
    a layer of another kind is given to ``torch.func.jvp``, and so is a decoder that is any other
    callable. Rows must be decoded independently of each other.

    Parameters
    ----------
    decoder
        Maps (n, d) to (n, ...).
    z
        Latents (n, d).
    columns
        Which latents to step along: int64 of shape (k, n), an own choice per row, or None for all d.

    Returns
    -------
    Pushed
        ``x`` of shape (n, ...) and ``columns`` of shape (k, n, ...).

    Raises
    ------
    ValueError
        If the decoder cannot be differentiated, or mixes rows.

    Examples
    --------
    >>> decoder = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
    >>> decoder[0].weight.data = torch.tensor([[1.0, 2.0], [-3.0, -4.0]])
    >>> x, columns = pushforward(decoder, torch.ones(1, 2))
    >>> x.tolist(), columns[:, 0].abs().tolist()
    ([[3.0, 0.0]], [[1.0, 0.0], [2.0, 0.0]])
    """
    _check_latents(z)
    if columns is None:
        seed = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)[:, None, :]  # (d, 1, d): the same for all rows
    else:
        seed = _checked_columns(columns, z)
    x, moved = _push(decoder, z, seed)
    tangents = _tangents(moved, z)
    return Pushed(x, tangents.expand(len(tangents), *x.shape))


def derivative(decoder: Decoder, z: Tensor, directions: Tensor) -> Pushed:
    """Decode latents, and take the derivative along directions of shape (n, d) or (k, n, d) along; see `pushforward`.

    Examples
    --------
    >>> derivative(nn.Identity(), torch.zeros(1, 2), torch.tensor([[1.0, -1.0]])).columns.tolist()
    [[[1.0, -1.0]]]
    """
    _check_latents(z)
    x, moved = _push(decoder, z, directions if directions.ndim == 3 else directions[None])
    return Pushed(x, _tangents(moved, z))


def _check_latents(z: Tensor) -> None:
    if z.ndim != 2 or not z.is_floating_point():
        raise ValueError(f"z must be a matrix (n, d) of floating-point latents, got {tuple(z.shape)} of {z.dtype}.")


def _checked_columns(columns: Tensor, z: Tensor) -> Tensor:
    if columns.ndim != 2 or columns.shape[1] != len(z) or columns.dtype != torch.int64:
        raise ValueError(
            f"columns must be int64 of shape (k, n), the numbers of k latents for each of n={len(z)} rows, "
            f"got {columns.dtype} of shape {tuple(columns.shape)}."
        )
    return columns


class _Scaled(NamedTuple):
    """Tangents that are products: a vector per tangent, the same for all rows, times a vector per row."""

    vectors: Tensor  # (k, 1, width)
    slopes: Tensor  # (n, width)


Tangents = Tensor | _Scaled
"""Tangents (k, n or 1, ...), or the numbers of coordinates (k, n) they point along, or products."""


def _push(layer: Decoder, x: Tensor, t: Tangents) -> tuple[Tensor, Tangents]:
    """Return layer(x) (n, ...) and its derivative along t."""
    rule = _RULES.get(type(layer))
    return rule(layer, x, t) if rule is not None else _push_any(layer, x, _tangents(t, x))


def _tangents(t: Tangents, x: Tensor) -> Tensor:
    """Return tangents as they are: products multiplied, and unit vectors where coordinates are given by number."""
    if isinstance(t, _Scaled):
        return t.vectors * t.slopes
    return t if t.is_floating_point() else functional.one_hot(t, x.shape[1]).to(x.dtype)


def _push_any(layer: Decoder, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    refuse_mixed_rows(layer)
    with torch.enable_grad():
        if not _carries_gradient(layer, x):
            raise ValueError(
                f"the decoder is not differentiable: the output of {_name(layer)} does not depend on its input by "
                "operations that torch can differentiate. Look for detach(), no_grad, item(), numpy or integers in it."
            )

    def along(one: Tensor) -> tuple[Tensor, Tensor]:
        y, moved, *_ = torch.func.jvp(layer, (x,), (one,))
        return y, moved

    try:
        with (
            PlainNormalisation(),
            sdpa_kernel(SDPBackend.MATH),  # torch's fast attention has no forward derivative
            warnings.catch_warnings(),
        ):  # torch's own first use of forward derivatives warns of its own torch.jit
            warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
            ways: Any = (None, 0)  # the output is the same for all tangents
            y, moved = torch.func.vmap(along, out_dims=ways, randomness="same")(t.expand(len(t), *x.shape))
    except (NotImplementedError, RuntimeError) as error:
        cause = str(error).splitlines()[0]
        raise ValueError(
            f"torch.func cannot push a tangent through {_name(layer)} ({cause}). Build the decoder of layers that have "
            "a forward derivative; an autograd.Function of your own needs a jvp and generate_vmap_rule = True."
        ) from error
    return y, moved


def _carries_gradient(layer: Decoder, x: Tensor) -> bool:
    probe = x[:1].detach().clone().requires_grad_()
    y = layer(probe)
    if not y.requires_grad:
        return False
    (gradient,) = torch.autograd.grad(y.sum(), probe, allow_unused=True)
    return gradient is not None


def refuse_mixed_rows(layer: Decoder) -> None:
    """Raise if a decoder makes of a row what depends on other rows."""
    for part in layer.modules() if isinstance(layer, nn.Module) else ():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and (part.training or part.running_mean is None):
            raise ValueError(
                "the decoder holds batch normalisation in training mode, where each row's output depends on all rows, "
                "so that its Jacobian is not that of a map z -> x. Call decoder.eval(), or use another normalisation."
            )
        if isinstance(part, nn.TransformerEncoderLayer) and not part.self_attn.batch_first:
            raise ValueError(
                "the decoder holds a TransformerEncoderLayer that takes the first axis for tokens, so that rows attend "
                "to each other, and its Jacobian is not that of a map z -> x. Build it with batch_first=True."
            )


def _name(layer: Decoder) -> str:
    return type(layer).__name__ if isinstance(layer, nn.Module) else getattr(layer, "__name__", repr(layer))


# ---- rules: containers --------------------------------------------------------------------------------


def _push_sequential(layer: nn.Sequential, x: Tensor, t: Tangents) -> tuple[Tensor, Tangents]:
    t = _tangents(t, x) if len(layer) == 0 else t
    for part in layer:
        x, t = _push(part, x, t)
    return x, t


def _push_unfolded(layer: Unfolded, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    (straight, moved_straight), (bend, moved_bend) = _push(layer.straight, x, t), _push(layer.bend, x, t)
    return straight + bend, _tangents(moved_straight, x) + _tangents(moved_bend, x)


def _push_residual(layer: Residual, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    t = _tangents(t, x)
    change, moved = _push(layer.change, x, t)
    return x + change, t + _tangents(moved, x)


def _push_transformer(layer: nn.TransformerEncoderLayer, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    """Attend and transform, each beside what was there, and normalised before it or after it."""
    refuse_mixed_rows(layer)
    t, bend = _tangents(t, x), _ACTIVATIONS.get(layer.activation, layer.activation)
    drops = layer.training and any(part.p > 0 for part in layer.modules() if isinstance(part, nn.Dropout))
    if drops or not has_closed_form(layer.self_attn) or not isinstance(bend, nn.Module) or type(bend) not in _RULES:
        return _push_any(layer, x, t)
    attend = partial(push_attention, layer.self_attn)
    change = partial(_push_sequential, nn.Sequential(layer.linear1, bend, layer.linear2))
    for part, norm in ((attend, layer.norm1), (change, layer.norm2)):
        before, moved_before = _push(norm, x, t) if layer.norm_first else (x, t)
        y, moved = part(before, _tangents(moved_before, before))
        x, t = x + y, t + _tangents(moved, y)
        if not layer.norm_first:
            x, normalised = _push(norm, x, t)
            t = _tangents(normalised, x)
    return x, t


# ---- rules: linear layers -----------------------------------------------------------------------------


def _push_linear(layer: nn.Linear, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    if isinstance(t, _Scaled):
        # Multiplied into the weights, not with all rows: fewer products, and half the way back if slopes are constant.
        return layer(x), t.slopes @ (layer.weight * t.vectors).mT
    if t.is_floating_point():
        return layer(x), functional.linear(t, layer.weight)
    return layer(x), functional.embedding(t, layer.weight.mT)  # no unit vectors: there may be thousands of latents


def _push_convolution(layer: Any, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    if layer.padding_mode != "zeros":
        return _push_any(layer, x, _tangents(t, x))
    t = _tangents(t, x)
    settings: tuple[Any, ...]
    if layer.transposed:
        settings = (layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation)
    else:
        settings = (layer.stride, layer.padding, layer.dilation, layer.groups)
    moved = _CONVOLUTIONS[type(layer)](t.flatten(0, 1), layer.weight, None, *settings)
    return layer(x), moved.unflatten(0, t.shape[:2])


def _push_homogeneous(layer: nn.Module, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    return layer(x), _each(layer, _tangents(t, x))


def _each(layer: nn.Module, t: Tensor) -> Tensor:
    """Apply a layer to a stack of batches."""
    return layer(t.flatten(0, 1)).unflatten(0, t.shape[:2])


# ---- rules: normalisations ----------------------------------------------------------------------------


def _push_layer_norm(layer: nn.LayerNorm, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    axes = tuple(range(-len(layer.normalized_shape), 0))
    y, moved = _push_normalised(x, _tangents(t, x), axes, layer.eps)
    return affine(y, layer.weight, layer.bias), affine(moved, layer.weight, None)


def _push_group_norm(layer: nn.GroupNorm, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    t = _tangents(t, x)
    grouped, along = (each.unflatten(axis, (layer.num_groups, -1)).flatten(axis + 1) for each, axis in ((x, 1), (t, 2)))
    y, moved = _push_normalised(grouped, along, (-1,), layer.eps)
    weight, bias = (None if w is None else w.view(-1, *(1,) * (x.ndim - 2)) for w in (layer.weight, layer.bias))
    return affine(y.reshape(x.shape), weight, bias), affine(moved.reshape(-1, *x.shape), weight, None)


def _push_normalised(x: Tensor, t: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """Return (x − mean) / std over axes, and its derivative along t: with y the result, (t − E t − y E yt) / std."""
    centred = x - x.mean(axes, keepdim=True)
    std = (centred.square().mean(axes, keepdim=True) + eps).sqrt()
    y = centred / std
    return y, (t - t.mean(axes, keepdim=True) - y * (y * t).mean(axes, keepdim=True)) / std


# ---- rules: elementwise layers ------------------------------------------------------------------------


def _elementwise(slope: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> Callable:
    """Return the rule of an elementwise layer whose slope is a function of the layer, its input and its output."""

    def push(layer: nn.Module, x: Tensor, t: Tangents) -> tuple[Tensor, Tangents]:
        y = layer(x.clone() if getattr(layer, "inplace", False) else x)
        t, slopes = _tangents(t, x), slope(layer, x, y)
        return y, _Scaled(t, slopes) if t.shape[1] == 1 and x.ndim == 2 else t * slopes

    return push


def _leaky(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    slope = layer.negative_slope if isinstance(layer, nn.LeakyReLU) else 0.0
    steep = x.detach().clone().gt_(0)  # constant, so that nothing is kept for it; torch.where would be slower
    return steep.mul_(1 - slope).add_(slope) if slope else steep


def _elu(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    assert isinstance(layer, nn.ELU)
    return torch.where(x > 0, 1.0, layer.alpha * x.clamp_max(0).exp())


def _softplus(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    assert isinstance(layer, nn.Softplus)
    scaled = layer.beta * x
    return scaled.sigmoid().where(scaled <= layer.threshold, 1.0)  # above it torch's own is the identity


def _silu(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    gate = x.sigmoid()
    return gate + y * (1 - gate)


def _gelu(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    assert isinstance(layer, nn.GELU)
    if layer.approximate == "none":
        return 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    a, b = math.sqrt(2 / math.pi), 0.044715
    inner = torch.tanh(a * (x + b * x**3))
    return 0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * a * (1 + 3 * b * x * x)


_CONVOLUTIONS: dict[type, Callable] = {
    nn.Conv1d: functional.conv1d,
    nn.Conv2d: functional.conv2d,
    nn.Conv3d: functional.conv3d,
    nn.ConvTranspose1d: functional.conv_transpose1d,
    nn.ConvTranspose2d: functional.conv_transpose2d,
    nn.ConvTranspose3d: functional.conv_transpose3d,
}

_ACTIVATIONS: dict[Any, nn.Module] = {functional.relu: nn.ReLU(), functional.gelu: nn.GELU()}
"""What functions that a transformer is given stand for."""

_RULES: dict[type, Callable] = {
    nn.Sequential: _push_sequential,
    Unfolded: _push_unfolded,
    Residual: _push_residual,
    nn.TransformerEncoderLayer: _push_transformer,
    nn.Linear: _push_linear,
    **dict.fromkeys(_CONVOLUTIONS, _push_convolution),
    **dict.fromkeys(
        (nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample, nn.AvgPool1d, nn.AvgPool2d, nn.PixelShuffle, nn.ZeroPad2d),
        _push_homogeneous,
    ),
    **dict.fromkeys((Cosines, Swap, Synthesis), _push_homogeneous),
    nn.LayerNorm: _push_layer_norm,
    nn.GroupNorm: _push_group_norm,
    nn.LeakyReLU: _elementwise(_leaky),
    nn.ReLU: _elementwise(_leaky),
    nn.ELU: _elementwise(_elu),
    nn.Softplus: _elementwise(_softplus),
    nn.SiLU: _elementwise(_silu),
    nn.GELU: _elementwise(_gelu),
    nn.Tanh: _elementwise(lambda layer, x, y: 1 - y * y),
    nn.Sigmoid: _elementwise(lambda layer, x, y: y * (1 - y)),
}
