"""Log-sum-exp over all pairs, ℓ_i = log Σ_j exp s(a_i, b_j), in memory linear in the number of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pindown.errors import InputError

BLOCK_ENTRIES = 1 << 19
"""Entries of a block on a CPU: it stays in a core's cache, and a matrix product still runs at full speed."""

GPU_BLOCK_ENTRIES = 1 << 25
"""Entries of a block on a GPU that has no fused kernel for the case: enough to keep it busy."""


def logsumexp_similarity(
    a: Tensor,
    b: Tensor,
    *,
    p: float | None = None,
    potential: Tensor | None = None,
    diagonal: int | None = None,
) -> Tensor:
    r"""Return the log-sum-exp of the similarities of each row of ``a`` with all rows of ``b``; (n,).

    .. math:: \ell_i = \log \sum_j \exp (s(a_i, b_j) + c_j), \qquad
              s(a, b) = a^\top b \;\text{ or }\; -\lVert a - b \rVert_p^p

    Memory is O(n + m), not O(n·m). Half-precision inputs are computed and summed in float32. The result can be
    differentiated once.

    Parameters
    ----------
    a, b
        Latents of shape (n, d) and (m, d).
    p
        None for the dot product, otherwise the power of the norm.
    potential
        Numbers c_j of shape (m,), added to all similarities of b_j; none by default.
    diagonal
        Leave out the pairs (i, i + diagonal), if it is not None.

    Examples
    --------
    Zero latents have similarity 0 with all three rows of b, so the result is log 3:

    >>> logsumexp_similarity(torch.zeros(2, 4), torch.zeros(3, 4)).exp().round().tolist()
    [3.0, 3.0]
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise InputError("b", f"`a` and `b` must be (n, d) and (m, d) with the same d; got {shapes}.")
    check_power(p)
    check_potential(potential, len(b))
    if len(b) < (1 if diagonal is None else 2):
        raise InputError("b", f"`b` has {len(b)} rows: a row of `a` has nothing to compare with. Add rows.")
    a, b = common_precision(a, b)
    last = None if potential is None else potential.to(b.dtype)[:, None]  # (m, 1)
    if p == 2:
        # −‖a−b‖² = 2aᵀb − ‖b‖² − ‖a‖²: a dot product with the potential −‖b‖². A common shift changes no distance, so
        # the mean is removed: smaller squares are more exact.
        centre = b.detach().mean(0)
        a, b = a - centre, b - centre
        square = b.square().sum(1, keepdim=True)
        last = -square if last is None else last - square
    if p in (None, 2) and last is not None:  # a potential is one more coordinate, in which a is 1
        factor = 1 if p is None else 2
        wide = torch.cat([factor * a, a.new_ones(len(a), 1)], 1), torch.cat([b, last], 1)  # (n, d+1), (m, d+1)
        total = _RowLogSumExp.apply(*wide, None, None, diagonal)
        return total if p is None else total - a.square().sum(1)
    return _RowLogSumExp.apply(a, b, None if last is None else last[:, 0], p, diagonal)


def common_precision(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the wider of their precisions, at least float32."""
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    return a.to(dtype), b.to(dtype)


def check_power(p: float | None) -> None:
    """Raise unless p is None or the power of a norm."""
    if p is not None and not 1 <= p < math.inf:
        raise InputError("p", f"`p` must be None, or finite and at least 1, got {p}.")


def check_potential(potential: Tensor | None, m: int) -> None:
    """Raise unless potential is None or has shape (m,)."""
    if potential is not None and potential.shape != (m,):
        raise InputError("potential", f"`potential` must have shape ({m},), got {tuple(potential.shape)}.")


@contextmanager
def _in_float32(a: Tensor) -> Iterator[None]:
    """Disable autocast and TF32, whose rounding would spoil −‖a−b‖², and launch on the GPU of `a`."""
    with torch.autocast(a.device.type, enabled=False):
        if not a.is_cuda:
            yield
            return
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.cuda.device(a.device):
                yield
        finally:
            torch.set_float32_matmul_precision(before)


class Similarities(NamedTuple):
    """The similarities s(a_i, b_j) + c_j of all pairs, or of all but (i, i + diagonal)."""

    a: Tensor  # (n, d)
    b: Tensor  # (m, d)
    potential: Tensor | None  # (m,)
    p: float | None
    diagonal: int | None

    def logsumexp(self) -> Tensor:
        """Return log Σ_j exp(s(a_i, b_j) + c_j), by a GPU kernel if there is one for the case; (n,)."""
        kernels = self._kernels()
        return row_logsumexp(self) if kernels is None else kernels.row_logsumexp(self)

    def gradients(self, result: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the gradients in a, b and potential of Σ_i grad_i · logsumexp_i."""
        kernels = self._kernels()
        return (row_logsumexp_gradients if kernels is None else kernels.row_logsumexp_gradients)(self, result, grad)

    def _kernels(self) -> ModuleType | None:
        if not self.a.is_cuda:
            return None
        try:
            from pindown.losses import kernels
        except ImportError:  # no Triton on this platform
            return None
        return kernels if kernels.supports(self.a, self.p) else None


class _RowLogSumExp(torch.autograd.Function):
    """Recompute the blocks in the backward pass: forward keeps the latents and the result, no pair."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, potential: Tensor | None, p: float | None, diagonal: int | None
    ) -> Tensor:
        with _in_float32(a):
            result = Similarities(a, b, potential, p, diagonal).logsumexp()
        ctx.save_for_backward(a, b, potential, result)
        ctx.p, ctx.diagonal = p, diagonal
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b, potential, result = ctx.saved_tensors
        with torch.no_grad(), _in_float32(a):
            gradients = Similarities(a, b, potential, ctx.p, ctx.diagonal).gradients(result, grad)
        if torch.is_grad_enabled():  # a second derivative may be requested
            gradients = _Once.apply(a, b, grad, *gradients)
        return *gradients, None, None


class _Once(torch.autograd.Function):
    """Raise when gradients are differentiated again: treating them as constants would be silently wrong."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, grad: Tensor, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(g if g is None else g.view_as(g) for g in gradients)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise RuntimeError("logsumexp_similarity has no second derivative: for one, use torch.logsumexp(a @ b.T, 1).")


def row_logsumexp(pairs: Similarities) -> Tensor:
    """Return log Σ_j exp(s(a_i, b_j) + c_j), block by block; without autograd."""
    # Not −inf: in a block without a pair for some row, −inf would be subtracted from −inf.
    a = pairs.a
    peak, total = a.new_full((len(a),), torch.finfo(a.dtype).min), a.new_zeros(len(a))
    for rows, _, block in _blocks(pairs):
        higher = torch.maximum(peak[rows], block.amax(1))
        total[rows] *= (peak[rows] - higher).clamp_min_(-80).exp_()
        total[rows] += _exp_shifted(block, higher).sum(1)
        peak[rows] = higher
    return total.log_().add_(peak)


def row_logsumexp_gradients(pairs: Similarities, result: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients in a, b and potential of Σ_i grad_i · row_logsumexp_i, with the same blocks."""
    a, b, potential, p, *_ = pairs
    grad_a, grad_b = torch.zeros_like(a), torch.zeros_like(b)
    grad_potential = None if potential is None else torch.zeros_like(potential)
    weighted = a * grad[:, None]
    for rows, columns, block in _blocks(pairs):
        softmax = _exp_shifted(block, result[rows])
        if p is None:
            grad_a[rows].addmm_(softmax, b[columns])
            grad_b[columns].addmm_(softmax.T, weighted[rows])
        else:
            _distance_gradients(softmax, a[rows], b[columns], grad[rows], p, grad_a[rows], grad_b[columns])
        if grad_potential is not None:
            grad_potential[columns].addmv_(softmax.T, grad[rows])
    return grad_a.mul_(grad[:, None]), grad_b, grad_potential


def _exp_shifted(block: Tensor, shift: Tensor) -> Tensor:
    """Return exp(block − shift) in place; shift is at least the largest entry of its row."""
    # Terms below exp(−80) change no sum, but denormal numbers make a CPU ten times slower.
    return block.sub_(shift[:, None]).clamp_min_(-80).exp_()


def _blocks(pairs: Similarities) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield (rows, columns, similarities of these rows of a and b); all blocks share one buffer."""
    a, b, potential, p, diagonal = pairs
    n, m = len(a), len(b)
    height, width = _block_shape(n, m, GPU_BLOCK_ENTRIES if a.is_cuda else BLOCK_ENTRIES)
    buffer = a.new_empty(height * width)
    scratch = torch.empty_like(buffer) if p is not None else None
    for left in range(0, m, width):  # this part of b stays in the cache during the inner loop
        columns = slice(left, min(left + width, m))
        for top in range(0, n, height):
            rows = slice(top, min(top + height, n))
            shape = rows.stop - top, columns.stop - left
            block = buffer[: math.prod(shape)].view(shape)
            if p is None:
                torch.mm(a[rows], b[columns].T, out=block)
            else:
                assert scratch is not None
                _negative_distances(a[rows], b[columns], p, block, scratch[: math.prod(shape)].view(shape))
            if potential is not None:
                block.add_(potential[columns])
            if diagonal is not None:
                block.diagonal(top + diagonal - left).fill_(-torch.inf)
            yield rows, columns, block


def _block_shape(n: int, m: int, entries: int) -> tuple[int, int]:
    """Return height and width of blocks with at most this many entries: square unless n or m is small."""
    width = min(m, max(entries // max(n, 1), math.isqrt(entries)))
    return max(1, min(n, entries // width)), width


def _negative_distances(a: Tensor, b: Tensor, p: float, out: Tensor, scratch: Tensor) -> None:
    """Write −‖a_i − b_j‖_p^p into ``out``, coordinate by coordinate: no (n, m, d) tensor."""
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
        grad_a[:, k].sub_(slope.sum(1), alpha=p)
        grad_b[:, k].addmv_(slope.T, grad, alpha=p)
