"""Triton kernels for :mod:`pindown.losses.pairwise`, by tiles of pairs.

Products run as three TF32 products, as exact as float32; logarithms and exponentials have base 2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from pindown.losses.pairwise import Similarities

WIDEST = 128
"""Largest dimension: tiles of wider latents do not fit into the memory of a multiprocessor."""

PROGRAMS = 528
"""Number of programs that keeps a large GPU busy: four for each of 132 multiprocessors."""

POWERS = (None, 1, 3)
"""Supported similarities: the dot product and two norms; p = 2 is computed as a dot product."""

LOG2_E = tl.constexpr(1.4426950408889634)


class Tile(NamedTuple):
    """Pairs that a program processes together, and its number of warps; chosen by measurements on an H200."""

    rows: int
    columns: int
    warps: int = 4

    @classmethod
    def of(cls, d: int, p: float | None) -> Tile:
        """Return the tile for latents of d dimensions."""
        if p is not None:
            return cls(256, 16, 8)
        return cls(128, 64) if d <= 32 else cls(64, 64) if d <= 64 else cls(64, 32)


def supports(a: Tensor, p: float | None) -> bool:
    """Return whether the kernels compute this case."""
    return a.dtype == torch.float32 and a.shape[1] <= WIDEST and p in POWERS


def row_logsumexp(pairs: Similarities) -> Tensor:
    """Return log Σ_j exp(s(a_i, b_j) + c_j); a is (n, d), b is (m, d), c is (m,), the result (n,)."""
    a, b, potential, p, diagonal = pairs
    tile, (d, padded) = Tile.of(a.shape[1], p), _shape(a.shape[1])
    n, m, c = len(a), len(b), None if potential is None else potential.contiguous()
    tiles, stretches, width = _grid(n, m, tile, PROGRAMS)
    parts = a.new_empty(stretches, n)
    _logsumexp_kernel[(tiles, stretches)](
        _packed(a, p), _packed(b, p), c, parts, n, m, diagonal, width, d if p else padded, tile.rows, tile.columns,
        RAGGED=m % tile.columns != 0, P=p or 0, num_warps=tile.warps,
    )  # fmt: skip
    return parts.mul_(math.log(2)).logsumexp(0)


def row_logsumexp_gradients(pairs: Similarities, result: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients in a, b and potential of Σ_i grad_i · row_logsumexp_i."""
    a, b, potential, p, diagonal = pairs
    tile, shape = Tile.of(a.shape[1], p), _shape(a.shape[1])
    n, m, c = len(a), len(b), None if potential is None else potential.contiguous()
    # One launch for both gradients: programs of the first half own rows of a, those of the second rows of b.
    tiles_a, stretches_a, width_a = _grid(n, m, tile, PROGRAMS // 2)
    tiles_b, stretches_b, width_b = _grid(m, n, tile, PROGRAMS // 2)
    parts_a, parts_b = a.new_empty(stretches_a, *a.shape), b.new_empty(stretches_b, *b.shape)
    parts_c = None if c is None else b.new_empty(stretches_b, m)
    _gradient_kernel[(max(tiles_a, tiles_b), max(stretches_a, stretches_b), 2)](
        _packed(a, p), _packed(b, p), c, result.contiguous(), grad.contiguous(), parts_a, parts_b, parts_c,
        n, m, diagonal, width_a, width_b, *shape, tile.rows, tile.columns, P=p or 0, num_warps=tile.warps,
    )  # fmt: skip
    return parts_a.sum(0), parts_b.sum(0), None if parts_c is None else parts_c.sum(0)


def _grid(n: int, m: int, tile: Tile, programs: int) -> tuple[int, int, int]:
    """Split rows into tiles and, if these are few, columns into stretches; return their numbers and the width."""
    tiles = max(1, triton.cdiv(n, tile.rows))
    stretches = max(1, min(programs // tiles, triton.cdiv(m, tile.columns)))
    width = triton.cdiv(triton.cdiv(m, stretches), tile.columns) * tile.columns
    return tiles, triton.cdiv(m, width), width


def _shape(d: int) -> tuple[int, int]:
    """Return the dimension of the latents, and the padded dimension in a tile."""
    return d, max(16, triton.next_power_of_2(d))


def _packed(x: Tensor, p: float | None) -> Tensor:
    """Return latents in the layout that the kernels read fastest: padded tiles, or one coordinate after another."""
    if p is not None:
        return x.T.contiguous()  # (d, n)
    d, padded = _shape(x.shape[1])
    return torch.nn.functional.pad(x, (0, padded - d)).contiguous()  # (n, padded)


@triton.jit
def _load_tile(ptr, rows, n, D_PAD: tl.constexpr):
    """Load a tile of latents for a dot product; norms load coordinate by coordinate instead."""
    return tl.load(ptr + rows[:, None] * D_PAD + tl.arange(0, D_PAD), mask=rows[:, None] < n, other=0.0)


@triton.jit
def _difference(x_ptr, y_ptr, rows, columns, n, m, k):
    x_k = tl.load(x_ptr + k * n + rows, mask=rows < n, other=0.0)
    y_k = tl.load(y_ptr + k * m + columns, mask=columns < m, other=0.0)
    return x_k[:, None] - y_k[None, :]


@triton.jit
def _negative_distances(x_ptr, y_ptr, rows, columns, n, m, D: tl.constexpr, P: tl.constexpr):
    """Similarities of a tile by a norm, times log₂ e."""
    s = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    for k in range(D):
        size = tl.abs(_difference(x_ptr, y_ptr, rows, columns, n, m, k))
        s -= size if P == 1 else size * size * size
    return s * LOG2_E


@triton.jit
def _logsumexp_kernel(
    x_ptr, y_ptr, c_ptr, out_ptr, n, m, diagonal, width,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, RAGGED: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    first = tl.program_id(1) * width
    if P == 0:
        x = _load_tile(x_ptr, rows, n, D) * LOG2_E
    # Not −inf: in a tile without a pair, −inf would be subtracted from −inf.
    peak = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(first, min(first + width, m), BN):
        columns = start + tl.arange(0, BN)
        if P == 0:
            y = _load_tile(y_ptr, columns, m, D)
            s = tl.dot(x, tl.trans(y), input_precision="tf32x3")  # x is already multiplied by log₂ e
        else:
            s = _negative_distances(x_ptr, y_ptr, rows, columns, n, m, D, P)
        if c_ptr is not None:
            s += tl.load(c_ptr + columns, mask=columns < m, other=0.0)[None, :] * LOG2_E
        if RAGGED:
            s = tl.where(columns[None, :] < m, s, float("-inf"))
        if diagonal is not None:
            s = tl.where(rows[:, None] + diagonal == columns[None, :], float("-inf"), s)
        higher = tl.maximum(peak, tl.max(s, 1))
        total = total * tl.exp2(peak - higher) + tl.sum(tl.exp2(s - higher[:, None]), 1)
        peak = higher
    tl.store(out_ptr + tl.program_id(1) * n + rows, peak + tl.log2(total), mask=rows < n)


@triton.jit
def _gradient_kernel(
    a_ptr, b_ptr, c_ptr, result_ptr, grad_ptr, grad_a_ptr, grad_b_ptr, grad_c_ptr, n, m, diagonal, width_a, width_b,
    D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    tile, stretch = tl.program_id(0), tl.program_id(1)
    if tl.program_id(2) == 0:
        if (tile * BM < n) & (stretch * width_a < m):
            _gradient(
                a_ptr, b_ptr, c_ptr, result_ptr, grad_ptr, grad_a_ptr, grad_c_ptr, n, m, diagonal, width_a,
                D, D_PAD, BM, BN, P, False,
            )  # fmt: skip
    else:
        if (tile * BM < m) & (stretch * width_b < n):
            _gradient(
                b_ptr, a_ptr, c_ptr, result_ptr, grad_ptr, grad_b_ptr, grad_c_ptr, m, n, diagonal, width_b,
                D, D_PAD, BM, BN, P, True,
            )  # fmt: skip


@triton.jit
def _gradient(
    x_ptr, y_ptr, c_ptr, result_ptr, grad_ptr, out_ptr, weight_ptr, n, m, diagonal, width,
    D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, P: tl.constexpr, BY_COLUMN: tl.constexpr,
):  # fmt: skip
    """Sum softmax weight × slope in x over a stretch; softmax and gradient are of rows, with BY_COLUMN of columns."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    first = tl.program_id(1) * width
    k = tl.arange(0, D_PAD)
    if P == 0:
        x = _load_tile(x_ptr, rows, n, D_PAD) * LOG2_E
    total = tl.zeros((BM, D_PAD), tl.float32)
    weights = tl.zeros((BM,), tl.float32)
    # Subtracted from a row's similarities: its log-sum-exp, or minus its potential. Rows outside have no weight.
    if BY_COLUMN:
        shift = tl.zeros((BM,), tl.float32)
        if c_ptr is not None:
            shift -= tl.load(c_ptr + rows, mask=rows < n, other=0.0) * LOG2_E
    else:
        shift = tl.load(result_ptr + rows, mask=rows < n, other=0.0) * LOG2_E
    for start in range(first, min(first + width, m), BN):
        columns = start + tl.arange(0, BN)
        if P == 0:
            y = _load_tile(y_ptr, columns, m, D_PAD)
            s = tl.dot(x, tl.trans(y), input_precision="tf32x3")
        else:
            s = _negative_distances(x_ptr, y_ptr, rows, columns, n, m, D, P)
        s -= shift[:, None]
        if BY_COLUMN:
            s -= tl.load(result_ptr + columns, mask=columns < m, other=float("inf"))[None, :] * LOG2_E
        elif c_ptr is not None:
            s += tl.load(c_ptr + columns, mask=columns < m, other=0.0)[None, :] * LOG2_E
        if P != 0:  # padding has a derivative in a norm, though not in a dot product
            s = tl.where(columns[None, :] < m, s, float("-inf"))
        if diagonal is not None:
            offset = -diagonal if BY_COLUMN else diagonal
            s = tl.where(rows[:, None] + offset == columns[None, :], float("-inf"), s)
        weight = tl.exp2(s)
        if BY_COLUMN:
            grad = tl.load(grad_ptr + columns, mask=columns < m, other=0.0)
            if c_ptr is not None:
                weights += tl.sum(weight * grad[None, :], 1)
        if P == 0:
            if BY_COLUMN:
                y = y * grad[:, None]
            total = tl.dot(weight, y, total, input_precision="tf32x3")
        else:
            if BY_COLUMN:
                weight = weight * grad[None, :]
            for j in range(D):
                difference = _difference(x_ptr, y_ptr, rows, columns, n, m, j)
                sign = tl.where(difference > 0, 1.0, 0.0) - tl.where(difference < 0, 1.0, 0.0)
                slope = -sign if P == 1 else -3.0 * difference * tl.abs(difference)
                total += tl.where(k == j, tl.sum(weight * slope, 1)[:, None], 0.0)
    if BY_COLUMN:
        if c_ptr is not None:
            tl.store(weight_ptr + tl.program_id(1) * n + rows, weights, mask=rows < n)
    else:
        total *= tl.load(grad_ptr + rows, mask=rows < n, other=0.0)[:, None]
    place = out_ptr + (tl.program_id(1) * n + rows[:, None]) * D + k
    tl.store(place, total, mask=(rows[:, None] < n) & (k < D))
