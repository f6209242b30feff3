r"""How codes before a map drive codes after it: the Jacobian between those that fire, from weights folded beforehand.

A map with one hidden layer, :math:`f(x) = V\, h(x)`, has the Jacobian :math:`V \sum_r \operatorname{diag}(s_r(x)) U_r`:
one branch r in a plain MLP, two in a gated one. With atoms :math:`d_j` before and encoder rows :math:`w_i` after it,

.. math:: J_{ij}(x) = w_i^\top \frac{\partial f}{\partial x} d_j = \sum_h (w_i^\top V)_h \sum_r s_{rh}(x)\, (U_r d_j)_h

so that :math:`U_r d_j` and :math:`w_i^\top V` are computed once a step: for the codes that fire, or for all codes if
these are fewer. Nothing of the size of rows × codes is formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pindown.gates.sums import scattered


def codes_jacobian(
    atoms: Tensor,
    inner: Sequence[Tensor],
    slopes: Sequence[Tensor],
    outer: Tensor,
    readers: Tensor,
    *,
    active: Tensor,
    active_out: Tensor,
) -> Tensor:
    r"""Return the Jacobian between active codes of each row, (n, k_out, k); differentiable by atoms and readers.

    Parameters
    ----------
    atoms
        What codes before the map add to rows, :math:`d_j`; (n_codes, m).
    inner
        The matrix of each branch of the hidden layer, :math:`U_r`; (h, m).
    slopes
        For each branch, the derivative of hidden units by it, at each row, :math:`s_r`; (n, h).
    outer
        The matrix behind the hidden layer, V; (m_out, h).
    readers
        Rows of the encoder after the map, :math:`w_i`; (n_codes_out, m_out).
    active, active_out
        Numbers of the codes that fire before and after the map, int64; (n, k) and (n, k_out).

    Examples
    --------
    Of two rectified units, which are the codes before and after, the second is off:

    >>> unit, on = torch.eye(2), torch.tensor([[1.0, 0.0]])
    >>> both, first = torch.tensor([[0, 1]]), torch.tensor([[0]])
    >>> codes_jacobian(3 * unit, [unit], [on], unit, unit, active=both, active_out=first)
    tensor([[[3., 0.]]])
    """
    for name, indices in (("active", active), ("active_out", active_out)):
        if indices.ndim != 2 or len(indices) != len(slopes[0]) or indices.dtype != torch.int64:
            raise ValueError(
                f"{name} must be int64 of shape (n, k) with n={len(slopes[0])} rows, the numbers of each row's active "
                f"codes, got {indices.dtype} of shape {tuple(indices.shape)}."
            )
    branches = _folded(atoms, [each.T for each in inner], active)  # (n, k, h) each
    given = [branch * slope[:, None] for branch, slope in zip(branches, slopes, strict=True)]
    (taken,) = _folded(readers, [outer], active_out)  # (n, k_out, h)
    return taken @ sum(given[1:], given[0]).mT


def _folded(rows: Tensor, matrices: Sequence[Tensor], indices: Tensor) -> list[Tensor]:
    """Return rows of these numbers times each matrix, (n, k, h): multiplied before or after they are gathered."""
    if indices.numel() > len(rows):
        return [gathered(rows @ matrix, indices) for matrix in matrices]
    some = gathered(rows, indices)
    return [some @ matrix for matrix in matrices]


def gathered(rows: Tensor, indices: Tensor) -> Tensor:
    """Return the rows of these numbers, (c, h) and (n, k) → (n, k, h); its gradient is summed in a known order.

    Examples
    --------
    >>> gathered(torch.eye(3), torch.tensor([[2, 0]]))
    tensor([[[0., 0., 1.],
             [1., 0., 0.]]])
    """
    return _Gathered.apply(rows, indices)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.n_rows = len(rows)
        return rows[indices]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (indices,) = ctx.saved_tensors
        flat = gradient.flatten(0, 1)
        return scattered(flat.new_ones(len(flat), 1), indices.reshape(-1, 1), flat, ctx.n_rows), None
