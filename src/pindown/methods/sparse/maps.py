"""The map between two dictionaries: an MLP with one hidden layer, plain or gated, frozen, with its slopes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the name it goes by)

Bend = Callable[[Tensor], Tensor]


class Mlp(nn.Module):
    """A frozen map V h(x) + c with one hidden layer; abstract. Its weights are not trained."""

    outer: Tensor
    shift: Tensor
    bend: Bend

    def __init__(self, bend: Bend, outer: nn.Linear) -> None:
        super().__init__()
        self.bend = bend
        _keep(self, "outer", "shift", outer)

    @property
    @abstractmethod
    def inner(self) -> tuple[Tensor, ...]:
        """The matrices of its branches; (h, m) each."""

    @abstractmethod
    def hidden(self, x: Tensor) -> Tensor:
        """Return hidden units, (n, h)."""

    @abstractmethod
    def slopes(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the derivative of hidden units by each branch; (n, h) each."""

    @property
    def n_in(self) -> int:
        """Columns of rows before it."""
        return self.inner[0].shape[1]

    @property
    def n_out(self) -> int:
        """Columns of rows after it."""
        return len(self.outer)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return rows after the map, (n, n_out)."""
        return F.linear(self.hidden(x.to(self.outer.dtype)), self.outer, self.shift)

    def slope(self, u: Tensor) -> Tensor:
        """Return the derivative of the nonlinearity."""
        with torch.enable_grad():
            at = u.detach().requires_grad_()
            return torch.autograd.grad(self.bend(at).sum(), at)[0]


class Plain(Mlp):
    """V φ(U x + b) + c.

    Examples
    --------
    >>> twice = Plain(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> twice(torch.zeros(5, 2)).shape, twice.slopes(torch.zeros(5, 2))[0].shape
    (torch.Size([5, 2]), torch.Size([5, 3]))
    """

    first: Tensor
    offset: Tensor

    def __init__(self, inner: nn.Linear, bend: Bend, outer: nn.Linear) -> None:
        super().__init__(bend, outer)
        _keep(self, "first", "offset", inner)

    @property
    def inner(self) -> tuple[Tensor, ...]:
        """One matrix."""
        return (self.first,)

    def hidden(self, x: Tensor) -> Tensor:
        """Return hidden units."""
        return self.bend(F.linear(x, self.first, self.offset))

    def slopes(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return their slope."""
        return (self.slope(F.linear(x.to(self.first.dtype), self.first, self.offset)),)


class Gated(Mlp):
    """V (φ(U x + b) ⊙ (U' x + b')) + c, as in models of the Llama family."""

    first: Tensor
    offset: Tensor
    second: Tensor
    other: Tensor

    def __init__(self, gate: nn.Linear, bend: Bend, up: nn.Linear, outer: nn.Linear) -> None:
        super().__init__(bend, outer)
        _keep(self, "first", "offset", gate)
        _keep(self, "second", "other", up)

    @property
    def inner(self) -> tuple[Tensor, ...]:
        """That of the gate, and the other."""
        return self.first, self.second

    def hidden(self, x: Tensor) -> Tensor:
        """Return hidden units."""
        return self.bend(F.linear(x, self.first, self.offset)) * F.linear(x, self.second, self.other)

    @torch.no_grad()
    def slopes(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return their slopes by the gate and by the other branch."""
        rows = x.to(self.first.dtype)
        gate, up = F.linear(rows, self.first, self.offset), F.linear(rows, self.second, self.other)
        return self.slope(gate) * up, self.bend(gate)


def read_map(module: Any) -> Mlp:
    """Return a module as a map with one hidden layer, its weights copied to the CPU, or say what it must look like.

    Examples
    --------
    >>> type(read_map(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)))).__name__
    'Plain'
    >>> read_map(nn.Linear(4, 4))
    Traceback (most recent call last):
    TypeError: SparsePair: map must be nn.Sequential(Linear, a nonlinearity, Linear), or a gated MLP with gate_proj, ...
    """
    if isinstance(module, Mlp):
        return module
    parts: Sequence[Any] = list(module) if isinstance(module, nn.Sequential) else ()
    # Dropout is nothing once a model is trained.
    parts = [part for part in parts if not isinstance(part, nn.Dropout | nn.Identity)]
    if len(parts) == 3 and isinstance(parts[0], nn.Linear) and isinstance(parts[2], nn.Linear) and callable(parts[1]):
        return _fits(Plain(parts[0], parts[1], parts[2]))
    named = [getattr(module, name, None) for name in ("gate_proj", "act_fn", "up_proj", "down_proj")]
    gate, bend, up, down = named
    if isinstance(gate, nn.Linear) and isinstance(up, nn.Linear) and isinstance(down, nn.Linear) and callable(bend):
        return _fits(Gated(gate, bend, up, down))
    raise TypeError(
        "SparsePair: map must be nn.Sequential(Linear, a nonlinearity, Linear), or a gated MLP with gate_proj, act_fn, "
        f"up_proj and down_proj, got {type(module).__name__}. Put the layers of yours into one of these."
    )


def _fits(found: Mlp) -> Mlp:
    wide = {len(each) for each in found.inner} | {found.outer.shape[1]}
    if len(wide) > 1:
        raise ValueError(f"SparsePair: the layers of map do not go together: hidden units are {sorted(wide)}.")
    return found


def _keep(module: nn.Module, weight: str, bias: str, layer: nn.Linear) -> None:
    """Keep copies of a layer's weights as buffers: what is a parameter would be trained."""
    shift = torch.zeros(layer.out_features) if layer.bias is None else layer.bias.detach()
    for name, tensor in ((weight, layer.weight.detach()), (bias, shift)):
        module.register_buffer(name, tensor.to("cpu", torch.float32, copy=True))
