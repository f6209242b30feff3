"""Layer and group normalisation in elementary operations, whose second derivatives are right."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class PlainNormalisation(TorchFunctionMode):
    """Normalisations spelled out in elementary operations.

    PyTorch's own forward derivatives of these take the means and variances they divide by for constants when they are
    differentiated once more, so that a penalty on a Jacobian would have a right value and a wrong gradient.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call the plain version where there is one."""
        return PLAIN.get(func, func)(*args, **(kwargs or {}))


def _layer_norm(x: Tensor, normalized_shape, weight=None, bias=None, eps: float = 1e-5) -> Tensor:
    return affine(_normalised(x, tuple(range(-len(normalized_shape), 0)), eps), weight, bias)


def _group_norm(x: Tensor, num_groups: int, weight=None, bias=None, eps: float = 1e-5) -> Tensor:
    grouped = _normalised(x.unflatten(1, (num_groups, -1)).flatten(2), (-1,), eps).reshape(x.shape)
    per_channel = (-1, *(1,) * (x.ndim - 2))
    return affine(grouped, *(None if w is None else w.view(per_channel) for w in (weight, bias)))


def _normalised(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True) + eps).sqrt()


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return what is normalised with the weights and the bias that a layer gives it, if any."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


PLAIN = {functional.layer_norm: _layer_norm, functional.group_norm: _group_norm}
