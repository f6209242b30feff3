r"""Sums over the active features of samples, and their gradients, without a samples × features matrix.

The active features of a sample have ``indices`` (n, c) and ``values`` (n, c). `chosen` finds them block by block,
`combined` sums their atoms, and `scattered` is its transpose and the gradient of both. All three sum by
`torch.nn.functional.embedding_bag` in a fixed order, so that results are the same in every run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812 (its usual name)

AT_ONCE = 1 << 24
"""Maximum number of scores, samples × features, in a block."""


def chosen(x: Tensor, weight: Tensor, bias: Tensor, n_chosen: int) -> tuple[Tensor, Tensor]:
    r"""Return the largest entries of each row of :math:`x W^\top + b`, and their indices; (n, c) each.

    Differentiable with respect to x, W and b, in bounded memory.

    Examples
    --------
    >>> values, indices = chosen(torch.tensor([[1.0, 2.0]]), torch.eye(2), torch.zeros(2), 1)
    >>> values.tolist(), indices.tolist()
    ([[2.0]], [[1]])
    """
    return _Chosen.apply(x, weight, bias, n_chosen)


def combined(values: Tensor, indices: Tensor, atoms: Tensor) -> Tensor:
    r"""Return :math:`\sum_j v_{ij}\, d_{\pi(i, j)}` for each sample i; (n, c), (n, c) and (k, m) → (n, m).

    Examples
    --------
    >>> combined(torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 2]]), torch.eye(3))
    tensor([[2., 0., 1.]])
    """
    return _Combined.apply(values, indices, atoms)


def scattered(values: Tensor, indices: Tensor, rows: Tensor, n_codes: int) -> Tensor:
    r"""Return :math:`\sum_{ij : \pi(i, j) = k} v_{ij}\, r_i` for each feature k; (n, c), (n, c) and (n, m) → (k, m).

    Examples
    --------
    >>> scattered(torch.tensor([[2.0], [1.0]]), torch.tensor([[1], [1]]), torch.eye(2), 3)
    tensor([[0., 0.],
            [2., 1.],
            [0., 0.]])
    """
    flat = indices.reshape(-1)
    order = flat.argsort(stable=True)
    first = torch.searchsorted(flat[order], torch.arange(n_codes, device=flat.device))
    row = torch.div(order, indices.shape[1], rounding_mode="floor")
    return F.embedding_bag(row, rows, first, mode="sum", per_sample_weights=values.reshape(-1)[order])


class _Chosen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, n_chosen: int) -> tuple[Tensor, Tensor]:
        parts = []
        for rows in x.split(max(1, AT_ONCE // len(weight))):
            scores = torch.addmm(bias.to(rows.dtype), rows, weight.T)
            parts.append(scores.topk(n_chosen, dim=1, sorted=False))
        values = torch.cat([part.values for part in parts]).to(weight.dtype)  # they may be bfloat16
        indices = torch.cat([part.indices for part in parts])
        ctx.save_for_backward(x, weight, indices)
        ctx.mark_non_differentiable(indices)
        return values, indices

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0]
        x, weight, indices = ctx.saved_tensors
        of_x = combined(gradient, indices, weight) if ctx.needs_input_grad[0] else None
        ones = x.new_ones(len(x), 1)
        of_bias = scattered(gradient, indices, ones, len(weight))[:, 0]
        return of_x, scattered(gradient, indices, x, len(weight)), of_bias, None


class _Combined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, indices: Tensor, atoms: Tensor) -> Tensor:
        ctx.save_for_backward(values, indices, atoms)
        return F.embedding_bag(indices, atoms, per_sample_weights=values, mode="sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, indices, atoms = ctx.saved_tensors
        with torch.enable_grad():  # torch's gradient of the weights needs no (n, c, m)
            weights = values.detach().requires_grad_()
            again = F.embedding_bag(indices, atoms.detach(), per_sample_weights=weights, mode="sum")
            (of_values,) = torch.autograd.grad(again, weights, gradient)
        of_atoms = scattered(values, indices, gradient, len(atoms)) if ctx.needs_input_grad[2] else None
        return of_values, None, of_atoms
