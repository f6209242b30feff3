r"""GPU kernels for :mod:`pindown.pairwise`, in Triton: the sums over all pairs, without the matrix of all pairs.

Both kernels walk over tiles of pairs. The first keeps, per row, the running peak and the running sum of
exponentials; the second weighs the other side's codes with the softmax. Products run as three TF32 products each,
which is as exact as float32 and uses the tensor cores.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Tile:
    """Pairs one program looks at together, and the warps that do it; measured on an H200."""

    rows: int
    columns: int
    warps: int


DOT_TILE, NORM_TILE = Tile(64, 128, 4), Tile(256, 16, 4)

WIDEST = 64
"""Most dimensions: tiles of wider codes do not fit into a multiprocessor's memory."""

PROGRAMS = 528
"""Programs that keep a large GPU busy: four for each of 132 multiprocessors."""

POWERS = (None, 1, 3)
"""Similarities the kernels know: the dot product and two norms; p = 2 is a dot product already."""


def can_handle(a: Tensor, p: float | None) -> bool:
    """Say whether these kernels compute this case."""
    return a.dtype == torch.float32 and a.shape[1] <= WIDEST and p in POWERS


def row_logsumexp(
    a: Tensor, b: Tensor, potential: Tensor | None, p: float | None, skip_diagonal: bool, row_offset: int
) -> Tensor:
    """Return log Σ_j exp(s(a_i, b_j) + c_j); a is (n, d), b is (m, d), c is (m,), the result (n,)."""
    tile = _tile(p)
    a, b, c = a.contiguous(), b.contiguous(), None if potential is None else potential.contiguous()
    grid, width = _grid(len(a), len(b), tile)
    parts = a.new_empty(grid[1], len(a))
    _logsumexp_kernel[grid](
        a, b, c, parts, len(a), len(b), row_offset, width, *_shape(a, tile),
        SKIP=skip_diagonal, P=p or 0, num_warps=tile.warps,
    )  # fmt: skip
    return torch.logsumexp(parts, 0)


def row_logsumexp_gradients(
    a: Tensor,
    b: Tensor,
    potential: Tensor | None,
    result: Tensor,
    grad: Tensor,
    p: float | None,
    skip_diagonal: bool,
    row_offset: int,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients in a, b and potential of Σ_i grad_i · row_logsumexp_i."""
    tile = _tile(p)
    a, b, result, grad = (t.contiguous() for t in (a, b, result, grad))
    c = None if potential is None else potential.contiguous()

    def weighted(x: Tensor, y: Tensor, offset: int, by_column: bool) -> tuple[Tensor, Tensor | None]:
        grid, width = _grid(len(x), len(y), tile)
        parts = x.new_empty(grid[1], *x.shape)
        weights = None if c is None else x.new_empty(grid[1], len(x))
        _gradient_kernel[grid](
            x, y, c, result, grad, parts, weights, len(x), len(y), offset, width, *_shape(x, tile),
            BY_COLUMN=by_column, SKIP=skip_diagonal, P=p or 0, num_warps=tile.warps,
        )  # fmt: skip
        return parts.sum(0), None if weights is None else weights.sum(0)

    grad_a, _ = weighted(a, b, row_offset, False)
    grad_b, grad_c = weighted(b, a, -row_offset, True)
    return grad_a * grad[:, None], grad_b, grad_c


def _tile(p: float | None) -> Tile:
    return DOT_TILE if p is None else NORM_TILE


def _grid(n: int, m: int, tile: Tile) -> tuple[tuple[int, int], int]:
    """Split rows into tiles and, if those are few, columns into stretches; the grid and a stretch's width."""
    tiles = max(1, triton.cdiv(n, tile.rows))
    stretches = max(1, min(PROGRAMS // tiles, triton.cdiv(m, tile.columns)))
    width = triton.cdiv(triton.cdiv(m, stretches), tile.columns) * tile.columns
    return (tiles, triton.cdiv(m, width)), width


def _shape(x: Tensor, tile: Tile) -> tuple[int, int, int, int]:
    d = x.shape[1]
    return d, max(16, triton.next_power_of_2(d)), tile.rows, tile.columns


@triton.jit
def _similarity(
    x, x_ptr, y_ptr, rows, columns, n, m, offset,
    D: tl.constexpr, D_PAD: tl.constexpr, SKIP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Similarities of a tile; −inf where there is no pair."""
    if P == 0:
        k = tl.arange(0, D_PAD)
        y = tl.load(y_ptr + columns[:, None] * D + k, mask=(columns[:, None] < m) & (k < D), other=0.0)
        s = tl.dot(x, tl.trans(y), input_precision="tf32x3")
    else:
        s = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
        for k in range(D):
            difference = _difference(x_ptr, y_ptr, rows, columns, n, m, k, D)
            size = tl.abs(difference)
            s -= size if P == 1 else size * size * size
    pair = columns[None, :] < m
    if SKIP:
        pair &= rows[:, None] + offset != columns[None, :]
    return tl.where(pair, s, float("-inf"))


@triton.jit
def _difference(x_ptr, y_ptr, rows, columns, n, m, k, D: tl.constexpr):
    x_k = tl.load(x_ptr + rows * D + k, mask=rows < n, other=0.0)
    y_k = tl.load(y_ptr + columns * D + k, mask=columns < m, other=0.0)
    return x_k[:, None] - y_k[None, :]


@triton.jit
def _logsumexp_kernel(
    x_ptr, y_ptr, c_ptr, out_ptr, n, m, offset, width,
    D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SKIP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    first = tl.program_id(1) * width
    k = tl.arange(0, D_PAD)
    x = tl.load(x_ptr + rows[:, None] * D + k, mask=(rows[:, None] < n) & (k < D), other=0.0)
    # Not −inf: a tile without a pair would then subtract −inf from −inf.
    peak = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(first, min(first + width, m), BN):
        columns = start + tl.arange(0, BN)
        s = _similarity(x, x_ptr, y_ptr, rows, columns, n, m, offset, D, D_PAD, SKIP, P)
        if c_ptr is not None:
            s += tl.load(c_ptr + columns, mask=columns < m, other=0.0)[None, :]
        higher = tl.maximum(peak, tl.max(s, 1))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(s - higher[:, None]), 1)
        peak = higher
    tl.store(out_ptr + tl.program_id(1) * n + rows, peak + tl.log(total), mask=rows < n)


@triton.jit
def _gradient_kernel(
    x_ptr, y_ptr, c_ptr, result_ptr, grad_ptr, out_ptr, weight_ptr, n, m, offset, width,
    D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BY_COLUMN: tl.constexpr, SKIP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Sum of softmax weight × derivative of the similarity in x, over the y of a stretch.

    The softmax runs over columns (gradient in a), or, BY_COLUMN, over rows (gradient in b), where the incoming
    gradient then also belongs to the column.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    first = tl.program_id(1) * width
    k = tl.arange(0, D_PAD)
    x = tl.load(x_ptr + rows[:, None] * D + k, mask=(rows[:, None] < n) & (k < D), other=0.0)
    total = tl.zeros((BM, D_PAD), tl.float32)
    weights = tl.zeros((BM,), tl.float32)
    for start in range(first, min(first + width, m), BN):
        columns = start + tl.arange(0, BN)
        s = _similarity(x, x_ptr, y_ptr, rows, columns, n, m, offset, D, D_PAD, SKIP, P)
        if c_ptr is not None:
            if BY_COLUMN:
                s += tl.load(c_ptr + rows, mask=rows < n, other=0.0)[:, None]
            else:
                s += tl.load(c_ptr + columns, mask=columns < m, other=0.0)[None, :]
        if BY_COLUMN:
            result = tl.load(result_ptr + columns, mask=columns < m, other=0.0)
            grad = tl.load(grad_ptr + columns, mask=columns < m, other=0.0)
            weight = tl.exp(s - result[None, :]) * grad[None, :]
        else:
            result = tl.load(result_ptr + rows, mask=rows < n, other=0.0)
            weight = tl.exp(s - result[:, None])
        if c_ptr is not None:
            weights += tl.sum(weight, 1)
        if P == 0:
            y = tl.load(y_ptr + columns[:, None] * D + k, mask=(columns[:, None] < m) & (k < D), other=0.0)
            total = tl.dot(weight, y, total, input_precision="tf32x3")
        else:
            for j in range(D):
                difference = _difference(x_ptr, y_ptr, rows, columns, n, m, j, D)
                sign = tl.where(difference > 0, 1.0, 0.0) - tl.where(difference < 0, 1.0, 0.0)
                slope = -sign if P == 1 else -3.0 * difference * tl.abs(difference)
                total += tl.where(k == j, tl.sum(weight * slope, 1)[:, None], 0.0)
    if c_ptr is not None:
        tl.store(weight_ptr + tl.program_id(1) * n + rows, weights, mask=rows < n)
    place = out_ptr + (tl.program_id(1) * n + rows[:, None]) * D + k
    tl.store(place, total, mask=(rows[:, None] < n) & (k < D))
