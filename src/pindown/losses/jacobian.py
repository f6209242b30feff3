"""Columns of a decoder's Jacobian, which penalties can differentiate again.

`pushforward` carries tangents through the decoder layer by layer, next to its output. Common layers have rules made of
plain tensor operations, so that a penalty on the columns costs an ordinary backward pass. Other layers are left to
``torch.func``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from pindown.errors import InputError
from pindown.networks import Residual, SkipMLP
from pindown.networks.gates import combined
from pindown.networks.images import Cosines, Swap, Synthesis

Decoder = Callable[[Tensor], Tensor]
"""Maps latents (n, d) to observations (n, ...), each sample by itself."""


class Pushed(NamedTuple):
    """The output of a decoder and columns of its Jacobian, or derivatives along other directions."""

    x: Tensor  # (n, ...)
    columns: Tensor  # (k, n, ...): the derivative of x along the k-th direction


def pushforward(decoder: Decoder, z: Tensor, tangents: Tensor | None = None) -> Pushed:
    r"""Return the decoded latents and columns of the decoder's Jacobian.

    .. math:: x = g(z), \qquad \frac{\partial g(z)}{\partial z_j} \text{ for the chosen } j, \text{ or }
              \frac{\partial g(z)}{\partial z}\, v \text{ for directions } v

    ``nn.Sequential`` and the networks of this package have a closed form if their layers are linear, convolutional,
    elementwise, reshaping, or layer or group normalisation. Any other layer or callable, such as attention, goes
    through ``torch.func.jvp``. Samples must be decoded independently of each other.

    Parameters
    ----------
    decoder
        Maps (n, d) to (n, ...).
    z
        Latents (n, d).
    tangents
        Indices of latents, int64 of shape (k, n), a choice per sample; or directions, of shape (k, n, d) and the
        precision of z; or None for all d latents.

    Returns
    -------
    Pushed
        ``x`` of shape (n, ...) and ``columns`` of shape (k, n, ...).

    Raises
    ------
    InputError
        If the decoder is not differentiable, or mixes samples.

    Examples
    --------
    >>> decoder = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
    >>> decoder[0].weight.data = torch.tensor([[1.0, 2.0], [-3.0, -4.0]])
    >>> x, columns = pushforward(decoder, torch.ones(1, 2))
    >>> x.tolist(), columns[:, 0].abs().tolist()
    ([[3.0, 0.0]], [[1.0, 0.0], [2.0, 0.0]])
    """
    if z.ndim != 2 or not z.is_floating_point():
        raise InputError("z", f"`z` must be a floating-point tensor (n, d), got {tuple(z.shape)} of {z.dtype}.")
    if tangents is None:
        tangents = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)[:, None, :]  # (d, 1, d): for all samples
    elif not tangents.is_floating_point():
        check_indices("tangents", tangents.mT, len(z))
    x, moved = _push(decoder, z, tangents)
    dense = _dense(moved, z)
    return Pushed(x, dense.expand(len(dense), *x.shape))


def check_indices(name: str, indices: Tensor, n: int) -> None:
    """Raise unless indices is int64 of shape (n, k), k latents for each of n samples."""
    if indices.ndim != 2 or len(indices) != n or indices.dtype != torch.int64:
        found = f"{indices.dtype} of shape {tuple(indices.shape)}"
        raise InputError(name, f"`{name}` must be int64 of shape ({n}, k), k latents of each sample; got {found}.")


def check_samples_apart(decoder: Decoder) -> None:
    """Raise if the output of a decoder for one sample depends on other samples."""
    for part in decoder.modules() if isinstance(decoder, nn.Module) else ():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and (part.training or part.running_mean is None):
            raise InputError(
                "decoder",
                "The decoder's batch normalisation makes a sample's output depend on all samples: call decoder.eval().",
            )
        if isinstance(part, nn.TransformerEncoderLayer) and not part.self_attn.batch_first:
            raise InputError(
                "decoder", "Samples attend to each other in a TransformerEncoderLayer: build it with batch_first=True."
            )


def _not_differentiable(what: str) -> InputError:
    return InputError(
        "decoder",
        f"The output of {what} is not differentiable. Check it for detach(), no_grad, item(), numpy or integers.",
    )


class _Scaled(NamedTuple):
    """Tangents that are products of a vector per tangent and a vector per sample."""

    vectors: Tensor  # (k, 1, width)
    slopes: Tensor  # (n, width)


Tangents = Tensor | _Scaled
"""Tangents (k, n or 1, ...), products, or indices (k, n) of the coordinates that they point along."""

Rule = Callable[[Any, Tensor, Any], tuple[Tensor, Tangents]]
"""Maps a layer, its input x and tangents to the output and its derivative along the tangents."""


def _push(layer: Decoder, x: Tensor, t: Tangents) -> tuple[Tensor, Tangents]:
    """Return layer(x) (n, ...) and its derivative along t."""
    if type(layer) in _RULES_OF_ANY_TANGENTS:
        return _RULES_OF_ANY_TANGENTS[type(layer)](layer, x, t)
    return _RULES.get(type(layer), _push_any)(layer, x, _dense(t, x))


def _dense(t: Tangents, x: Tensor) -> Tensor:
    """Return tangents as a dense tensor."""
    if isinstance(t, _Scaled):
        return t.vectors * t.slopes
    return t if t.is_floating_point() else functional.one_hot(t, x.shape[1]).to(x.dtype)


def _push_any(layer: Decoder, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Push through a layer without a rule, by ``torch.func.jvp``."""
    check_samples_apart(layer)
    name = type(layer).__name__ if isinstance(layer, nn.Module) else getattr(layer, "__name__", repr(layer))
    with torch.enable_grad():
        sample = x[:1].detach().clone().requires_grad_()
        y = layer(sample)
        if not y.requires_grad or torch.autograd.grad(y.sum(), sample, allow_unused=True)[0] is None:
            raise _not_differentiable(name)

    def along(one: Tensor) -> tuple[Tensor, Tensor]:
        y, moved, *_ = torch.func.jvp(layer, (x,), (one,))
        return y, moved

    try:
        with (
            _PlainNormalisation(),
            sdpa_kernel(SDPBackend.MATH),  # torch's fast attention has no forward derivative
            warnings.catch_warnings(),
        ):  # the first use of forward derivatives makes torch warn about torch.jit
            warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
            dims: Any = (None, 0)  # the output is the same for all tangents
            return torch.func.vmap(along, out_dims=dims, randomness="same")(t.expand(len(t), *x.shape))
    except (NotImplementedError, RuntimeError) as error:
        cause = str(error).splitlines()[0]
        what = f"torch.func cannot push a tangent through {name} ({cause})."
        raise InputError(
            "decoder", f"{what} An autograd.Function needs a jvp and generate_vmap_rule = True."
        ) from error


class _PlainNormalisation(TorchFunctionMode):
    """Compute normalisations by elementary operations: PyTorch's have wrong derivatives of forward derivatives."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _PLAIN.get(func, func)(*args, **(kwargs or {}))


def _layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return _affine(_normalised(x, tuple(range(-len(normalized_shape), 0)), eps)[0], weight, bias)


def _group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    y, _ = _normalised(x.unflatten(1, (num_groups, -1)).flatten(2), (-1,), eps)
    return _affine(y.reshape(x.shape), *_per_channel(x, weight, bias))


def _normalised(x: Tensor, axes: tuple[int, ...], eps: float, t: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return y = (x − mean) / std over axes, and its derivative along t, (t − E t − y E yt) / std."""
    centred = x - x.mean(axes, keepdim=True)
    std = (centred.square().mean(axes, keepdim=True) + eps).sqrt()
    y = centred / std
    return y, y if t is None else (t - t.mean(axes, keepdim=True) - y * (y * t).mean(axes, keepdim=True)) / std


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _per_channel(x: Tensor, *weights: Tensor | None) -> list[Tensor | None]:
    """Return weights of channels in a shape that broadcasts to x (n, channels, ...)."""
    return [None if weight is None else weight.view(-1, *(1,) * (x.ndim - 2)) for weight in weights]


_PLAIN: dict[Any, Any] = {functional.layer_norm: _layer_norm, functional.group_norm: _group_norm}


def _push_sequential(layer: nn.Sequential, x: Tensor, t: Tangents) -> tuple[Tensor, Tangents]:
    for part in layer:
        x, t = _push(part, x, t)
    return x, t


def _push_skip(layer: SkipMLP, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    (linear, moved), (nonlinear, also_moved) = _push(layer.linear, x, t), _push(layer.nonlinear, x, t)
    return linear + nonlinear, _dense(moved, x) + _dense(also_moved, x)


def _push_linear(layer: nn.Linear, x: Tensor, t: Tangents) -> tuple[Tensor, Tensor]:
    if isinstance(t, _Scaled):  # into the weights, not into all samples: fewer products
        return layer(x), t.slopes @ (layer.weight * t.vectors).mT
    if t.is_floating_point():
        return layer(x), functional.linear(t, layer.weight)
    return layer(x), functional.embedding(t, layer.weight.mT)  # no unit vectors: latents may be thousands


def _push_residual(layer: Residual, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    change, moved = _push(layer.change, x, t)
    return x + change, t + _dense(moved, x)


def _push_convolution(layer: Any, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    if layer.padding_mode != "zeros":
        return _push_any(layer, x, t)
    settings: tuple[Any, ...] = (layer.stride, layer.padding, layer.dilation, layer.groups)
    if layer.transposed:
        settings = (layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation)
    moved = _CONVOLUTIONS[type(layer)](t.flatten(0, 1), layer.weight, None, *settings)
    return layer(x), moved.unflatten(0, t.shape[:2])


def _push_homogeneous(layer: nn.Module, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    return layer(x), layer(t.flatten(0, 1)).unflatten(0, t.shape[:2])


def _push_layer_norm(layer: nn.LayerNorm, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    y, moved = _normalised(x, tuple(range(-len(layer.normalized_shape), 0)), layer.eps, t)
    return _affine(y, layer.weight, layer.bias), _affine(moved, layer.weight, None)


def _push_group_norm(layer: nn.GroupNorm, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    grouped, along = (each.unflatten(axis, (layer.num_groups, -1)).flatten(axis + 1) for each, axis in ((x, 1), (t, 2)))
    y, moved = _normalised(grouped, (-1,), layer.eps, along)
    weight, bias = _per_channel(x, layer.weight, layer.bias)
    return _affine(y.reshape(x.shape), weight, bias), _affine(moved.reshape(-1, *x.shape), weight, None)


def _elementwise(slope: Callable[[Any, Tensor, Tensor], Tensor]) -> Rule:
    """Return the rule of an elementwise layer from its slope, a function of the layer, its input and its output."""

    def push(layer: nn.Module, x: Tensor, t: Tensor) -> tuple[Tensor, Tangents]:
        y = layer(x.clone() if getattr(layer, "inplace", False) else x)
        slopes = slope(layer, x, y)
        return y, _Scaled(t, slopes) if t.shape[1] == 1 and x.ndim == 2 else t * slopes

    return push


def _leaky(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    slope = layer.negative_slope if isinstance(layer, nn.LeakyReLU) else 0.0
    steep = x.detach().clone().gt_(0)  # without a graph; torch.where is slower
    return steep.mul_(1 - slope).add_(slope) if slope else steep


def _silu(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    gate = x.sigmoid()
    return gate + y * (1 - gate)


def _by_autograd(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(layer(x.clone()).sum(), x, create_graph=True)
    return slopes if torch.is_grad_enabled() else slopes.detach()


_CONVOLUTIONS: dict[type, Callable[..., Tensor]] = {
    nn.Conv1d: functional.conv1d,
    nn.Conv2d: functional.conv2d,
    nn.Conv3d: functional.conv3d,
    nn.ConvTranspose1d: functional.conv_transpose1d,
    nn.ConvTranspose2d: functional.conv_transpose2d,
    nn.ConvTranspose3d: functional.conv_transpose3d,
}

_RULES_OF_ANY_TANGENTS: dict[type, Rule] = {
    nn.Sequential: _push_sequential,
    SkipMLP: _push_skip,
    nn.Linear: _push_linear,
}
"""Rules of layers that take tangents of every kind; those of `_RULES` take dense ones."""

_RULES: dict[type, Rule] = {
    Residual: _push_residual,
    **dict.fromkeys(_CONVOLUTIONS, _push_convolution),
    **dict.fromkeys(
        (nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample, nn.AvgPool1d, nn.AvgPool2d, nn.PixelShuffle, nn.ZeroPad2d),
        _push_homogeneous,
    ),
    **dict.fromkeys((Cosines, Swap, Synthesis), _push_homogeneous),
    nn.LayerNorm: _push_layer_norm,
    nn.GroupNorm: _push_group_norm,
    **dict.fromkeys((nn.LeakyReLU, nn.ReLU), _elementwise(_leaky)),
    nn.SiLU: _elementwise(_silu),
    **dict.fromkeys((nn.ELU, nn.GELU, nn.Sigmoid, nn.Softplus, nn.Tanh), _elementwise(_by_autograd)),
}


def feature_jacobian(
    atoms: Tensor,
    inner: Sequence[Tensor],
    slopes: Sequence[Tensor],
    outer: Tensor,
    encoder_rows: Tensor,
    *,
    active: Tensor,
    active_out: Tensor,
) -> Tensor:
    r"""Return the Jacobian between active features of two sparse autoencoders, before and after a map; (n, k_out, k).

    A map with one hidden layer, :math:`f(x) = V\, h(x)`, has the Jacobian
    :math:`V \sum_r \operatorname{diag}(s_r(x)) U_r`, with one branch r in a plain MLP and two in a gated one. With
    atoms :math:`d_j` before and encoder rows :math:`w_i` after it,

    .. math:: J_{ij}(x) = w_i^\top \frac{\partial f}{\partial x} d_j
              = \sum_h (w_i^\top V)_h \sum_r s_{rh}(x)\, (U_r d_j)_h

    The products :math:`U_r d_j` and :math:`w_i^\top V` are computed once, for the active features, or for all features
    if these are fewer. No samples × features matrix is formed. The result is differentiable with respect to `atoms` and
    `encoder_rows`.

    Parameters
    ----------
    atoms
        Atoms of the features before the map, :math:`d_j`; (n_features, m).
    inner
        The matrix of each branch of the hidden layer, :math:`U_r`; (h, m).
    slopes
        For each branch, the derivatives of the hidden units at each sample, :math:`s_r`; (n, h).
    outer
        The matrix after the hidden layer, V; (m_out, h).
    encoder_rows
        Rows of the encoder after the map, :math:`w_i`; (n_features_out, m_out).
    active, active_out
        Indices of the active features before and after the map, int64; (n, k) and (n, k_out).

    Examples
    --------
    The features are two rectified units, of which the second is off:

    >>> unit, on = torch.eye(2), torch.tensor([[1.0, 0.0]])
    >>> both, first = torch.tensor([[0, 1]]), torch.tensor([[0]])
    >>> feature_jacobian(3 * unit, [unit], [on], unit, unit, active=both, active_out=first)
    tensor([[[3., 0.]]])
    """
    check_indices("active", active, len(slopes[0]))
    check_indices("active_out", active_out, len(slopes[0]))
    branches = _products(atoms, [each.T for each in inner], active)  # (n, k, h) each
    given = [branch * slope[:, None] for branch, slope in zip(branches, slopes, strict=True)]
    (taken,) = _products(encoder_rows, [outer], active_out)  # (n, k_out, h)
    return taken @ sum(given[1:], given[0]).mT


def _products(rows: Tensor, matrices: Sequence[Tensor], indices: Tensor) -> list[Tensor]:
    """Return the rows of these indices (n, k) times each matrix, (n, k, h): gather first if that is cheaper."""

    def gathered(rows: Tensor) -> Tensor:  # by `combined`, whose gradient sums in a fixed order
        return combined(rows.new_ones(indices.numel(), 1), indices.reshape(-1, 1), rows).unflatten(0, indices.shape)

    if indices.numel() > len(rows):
        return [gathered(rows @ matrix) for matrix in matrices]
    some = gathered(rows)
    return [some @ matrix for matrix in matrices]
