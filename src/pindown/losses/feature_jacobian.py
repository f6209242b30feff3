r"""The Jacobian between the features of two sparse autoencoders, before and after a map with one hidden layer.

Such a map, :math:`f(x) = V\, h(x)`, has the Jacobian :math:`V \sum_r \operatorname{diag}(s_r(x)) U_r`, with one branch
r in a plain MLP and two in a gated one. With atoms :math:`d_j` before and encoder rows :math:`w_i` after it,

.. math:: J_{ij}(x) = w_i^\top \frac{\partial f}{\partial x} d_j = \sum_h (w_i^\top V)_h \sum_r s_{rh}(x)\, (U_r d_j)_h

so that :math:`U_r d_j` and :math:`w_i^\top V` are computed once per step, for the active features, or for all features
if these are fewer. No samples × features matrix is formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pindown.losses.jacobian import check_indices
from pindown.networks.sparse_sums import scattered


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
    r"""Return the Jacobian between active features of each sample, (n, k_out, k).

    It is differentiable with respect to `atoms` and `encoder_rows`.

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
    """Return the rows of these indices times each matrix, (n, k, h): gather first if that is cheaper."""
    if indices.numel() > len(rows):
        return [gathered(rows @ matrix, indices) for matrix in matrices]
    some = gathered(rows, indices)
    return [some @ matrix for matrix in matrices]


def gathered(rows: Tensor, indices: Tensor) -> Tensor:
    """Return the rows of these indices, (c, h) and (n, k) → (n, k, h); the gradient sums in a fixed order."""
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
