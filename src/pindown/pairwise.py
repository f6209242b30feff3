r"""Log-sum-exp over all pairs, in memory that grows linearly with the number of rows.

Every loss here that compares each sample with all others (InfoNCE, uniformity, classification with one vector
per label) needs one quantity,

.. math:: \ell_i = \log \sum_j \exp s(a_i, b_j),

and none needs the matrix of all :math:`s(a_i, b_j)`. It is formed a block of rows at a time, and formed again
in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Entries of one block. Small enough to stay in a core's cache between the passes over it, large enough for a
# matrix product to run at full speed.
BLOCK_ENTRIES = 1 << 19


def logsumexp_similarity(a: Tensor, b: Tensor, *, p: float | None = None, skip_diagonal: bool = False) -> Tensor:
    r"""Row-wise log-sum-exp of the similarities between all rows of ``a`` and all rows of ``b``.

    .. math:: \ell_i = \log \sum_j \exp s(a_i, b_j), \qquad
              s(a, b) = a^\top b \;\text{ or }\; -\lVert a - b \rVert_p^p

    Memory is O(n + m), never O(n·m). Half-precision inputs are computed and summed in float32. The result can be
    differentiated once.

    Parameters
    ----------
    a, b
        Codes of shape (n, d) and (m, d).
    p
        None for the dot product, otherwise the power of the norm.
    skip_diagonal
        Leave out the pairs (i, i).

    Examples
    --------
    Zero codes have similarity 0 with all three others, so the result is log 3:

    >>> logsumexp_similarity(torch.zeros(2, 4), torch.zeros(3, 4)).exp().round().tolist()
    [3.0, 3.0]
    """
    if len(b) < 1 + skip_diagonal:
        raise ValueError(
            f"logsumexp_similarity: b has {len(b)} rows{' and the diagonal is skipped' if skip_diagonal else ''}, so "
            "some row of a is compared with nothing. Give more rows."
        )
    if a.dtype in (torch.float16, torch.bfloat16):
        a, b = a.float(), b.float()
    if p is None:
        return _RowLogSumExp.apply(a, b, None, skip_diagonal)
    if p == 2:
        # −‖a−b‖² = 2aᵀb − ‖b‖² − ‖a‖²: a dot product once ‖b‖² is a coordinate. Distances do not see a common
        # shift, and with the mean removed the squares are as small, so as exact, as they can be.
        centre = b.detach().mean(0)
        a, b = a - centre, b - centre
        a_wide = torch.cat([2 * a, a.new_ones(len(a), 1)], 1)  # (n, d+1)
        b_wide = torch.cat([b, -b.square().sum(1, keepdim=True)], 1)  # (m, d+1)
        return _RowLogSumExp.apply(a_wide, b_wide, None, skip_diagonal) - a.square().sum(1)
    return _RowLogSumExp.apply(a, b, p, skip_diagonal)


class _RowLogSumExp(torch.autograd.Function):
    """Blocks of rows forward; the same blocks again backward, with the softmax as weights."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, p: float | None, skip_diagonal: bool) -> Tensor:
        with torch.autocast(a.device.type, enabled=False):
            result = a.new_empty(len(a))
            for rows, block in _blocks(a, b, p, skip_diagonal):
                peak = block.amax(1)
                result[rows] = _exp_shifted(block, peak).sum(1).log_().add_(peak)
        ctx.save_for_backward(a, b, result)
        ctx.p, ctx.skip_diagonal = p, skip_diagonal
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        a, b, result = ctx.saved_tensors
        grad_a, grad_b = torch.empty_like(a), torch.zeros_like(b)
        with torch.autocast(a.device.type, enabled=False):
            for rows, block in _blocks(a, b, ctx.p, ctx.skip_diagonal):
                softmax = _exp_shifted(block, result[rows])
                if ctx.p is None:
                    torch.mm(softmax, b, out=grad_a[rows])
                    grad_b.addmm_(softmax.T, a[rows] * grad[rows, None])
                else:
                    _distance_gradients(softmax, a[rows], b, grad[rows], ctx.p, grad_a[rows], grad_b)
        return grad_a.mul_(grad[:, None]), grad_b, None, None


def _exp_shifted(block: Tensor, shift: Tensor) -> Tensor:
    """Return exp(block − shift) for shift at least the largest entry of its row; in place."""
    # Below exp(−80) a term changes no sum, but as a denormal number it makes a CPU ten times slower.
    return block.sub_(shift[:, None]).clamp_min_(-80).exp_()


def _blocks(a: Tensor, b: Tensor, p: float | None, skip_diagonal: bool):
    """Yield (rows, similarities of those rows with all of b), one buffer for all of them."""
    n, m = len(a), len(b)
    height = max(1, min(n, BLOCK_ENTRIES // max(m, 1)))
    buffer = a.new_empty(height, m)
    scratch = torch.empty_like(buffer) if p is not None else None
    for start in range(0, n, height):
        rows = slice(start, min(start + height, n))
        block = buffer[: rows.stop - start]
        if p is None:
            torch.mm(a[rows], b.T, out=block)
        else:
            assert scratch is not None
            _negative_distances(a[rows], b, p, block, scratch[: len(block)])
        if skip_diagonal:
            block.diagonal(start).fill_(-torch.inf)
        yield rows, block


def _negative_distances(a: Tensor, b: Tensor, p: float, out: Tensor, scratch: Tensor) -> None:
    """Write −‖a_i − b_j‖_p^p into ``out``, a coordinate at a time: no (n, m, d) tensor."""
    out.zero_()
    for a_k, b_k in zip(a.T, b.T, strict=True):
        torch.sub(a_k[:, None], b_k, out=scratch).abs_()
        out.sub_(scratch if p == 1 else scratch.pow_(p))


def _distance_gradients(
    softmax: Tensor, a: Tensor, b: Tensor, grad: Tensor, p: float, grad_a: Tensor, grad_b: Tensor
) -> None:
    """Add the gradients of −‖a−b‖_p^p, whose derivative in a is −p·sign(a−b)·|a−b|^(p−1)."""
    for k in range(a.shape[1]):
        difference = a[:, k, None] - b[:, k]
        slope = difference.sign()
        if p != 1:
            slope.mul_(difference.abs_().pow_(p - 1))
        slope.mul_(softmax)
        grad_a[:, k] = slope.sum(1).mul_(-p)
        grad_b[:, k].addmv_(slope.T, grad, alpha=p)
