"""What can be known of a source by going through it: its moments, and some of its rows, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown.data.arrays import as_tensor
from pindown.data.source import Batch, IndexedSource, Source

BLOCK_BYTES = 1 << 26
"""Bytes of a block in float64: what is gone through is never in memory as a whole."""

ROWS_BYTES = 1 << 30
"""Bytes that `first_samples` takes into memory at most, counted in float64."""

WHITEN_SAMPLES = 20_000
"""Rows that moments are taken from if a source does not say how many it has."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and spread of rows, each a vector of d numbers, in float64.

    Parameters
    ----------
    n : int
        Number of rows.
    mean, variance : Tensor of shape (d,)
        Of each number; divided by n.
    covariance : Tensor of shape (d, d) or None
        Of all numbers, if it was asked for; divided by n.
    """

    n: int
    mean: Tensor
    variance: Tensor
    covariance: Tensor | None


def moments(
    source: Source, *, covariance: bool = True, n_samples: int | None = None, channel: int | None = None
) -> Moments:
    """Return mean and spread of a source's rows, a block at a time; an offset far above the spread does not swallow it.

    Blocks have moments of their own, in two passes over memory, and are merged after Chan, Golub and LeVeque (1979).

    Parameters
    ----------
    source : Source
        The rows; each is laid out as a vector.
    covariance : bool
        Whether to take the d × d covariance; the variance of each number takes less.
    n_samples : int or None
        Rows to look at: a random sample, or the first ones of a stream. None looks at all; at `WHITEN_SAMPLES` if the
        source has no known end.
    channel : int or None
        An axis of a row: all numbers with the same place on it are one variable, such as the pixels of a colour. So
        it is 0 for images (c, h, w), and −1 for sequences (t, c).

    Raises
    ------
    ValueError
        If a row has NaN or infinity, or there are no rows.

    Examples
    --------
    >>> from pindown.data.arrays import ArraySource
    >>> found = moments(ArraySource(np.array([[0.0, 1e9], [2.0, 1e9 + 2]])))
    >>> found.mean.tolist(), found.covariance.tolist()
    ([1.0, 1000000001.0], [[1.0, 1.0], [1.0, 1.0]])
    """
    seen, done, total = 0, 0, None
    for numbers, batch in some_blocks(source, n_samples):
        rows = as_tensor(batch["x"]).double()
        require_finite(rows, numbers)
        seen += len(rows)
        if channel is None:
            flat = rows.reshape(len(rows), -1)
        else:
            flat = rows.movedim(_axis(source, channel), -1).flatten(0, -2)
        total = _merged(total, done, _of_block(flat, covariance), len(flat))
        done += len(flat)
    if total is None:
        raise ValueError("The source has no rows: there is nothing to learn from.")
    mean, spread = (part.cpu() for part in total)
    return Moments(seen, mean, spread.diagonal() if covariance else spread, spread if covariance else None)


def _axis(source: Source, channel: int) -> int:
    axes = len(source.shape)
    if not -axes <= channel < axes:
        raise ValueError(f"moments: channel={channel} is no axis of a row, whose shape is {source.shape}.")
    return channel % axes + 1


def _of_block(x: Tensor, covariance: bool) -> tuple[Tensor, Tensor]:
    """Return the mean of (n, d), and their covariance (d, d) or variance (d,)."""
    if covariance:
        return x.mean(0), torch.cov(x.T, correction=0).reshape(x.shape[1], -1)
    return x.mean(0), x.var(0, correction=0)


def _merged(
    old: tuple[Tensor, Tensor] | None, n_old: int, new: tuple[Tensor, Tensor], n_new: int
) -> tuple[Tensor, Tensor]:
    """Return mean and spread of two lots of rows together: what is between their means counts, too."""
    if old is None:
        return new
    share, step = n_new / (n_old + n_new), new[0] - old[0]
    between = torch.outer(step, step) if new[1].ndim == 2 else step.square()
    # In place: of wide rows a covariance is the largest thing in memory.
    spread = old[1].mul_(1 - share).add_(new[1], alpha=share).add_(between, alpha=share * (1 - share))
    return old[0] + share * step, spread


def first_samples(source: Source, n_samples: int, *, random_state: int = 0, max_bytes: int = ROWS_BYTES) -> Batch:
    """Return some rows in memory: a random sample, in order, or the first ones of what can only be gone through.

    Parameters
    ----------
    source : Source
        Where they come from.
    n_samples : int
        How many at most; all, if there are no more.
    random_state : int
        Seed of the sample.
    max_bytes : int
        Fewer rows are taken if so many would take more, in float64.

    Examples
    --------
    >>> from pindown.data.arrays import ArraySource
    >>> source = ArraySource(np.arange(1_000))
    >>> first_samples(source, 3)["x"].tolist(), len(first_samples(source, 10**6)["x"])
    ([511, 636, 848], 1000)
    """
    n_samples = max(1, min(n_samples, max_bytes // _row_bytes(source)))
    return joined([batch for _, batch in some_blocks(source, n_samples, random_state)])


def some_blocks(
    source: Source, n_samples: int | None, random_state: int = 0
) -> Iterator[tuple[Sequence[int] | NDArray[np.int64], Batch]]:
    """Go through so many rows in blocks of bounded size, with the rows' numbers: see `moments` for which."""
    size = max(1, BLOCK_BYTES // _row_bytes(source))
    if isinstance(source, IndexedSource) and n_samples is not None and n_samples < source.n_samples:
        chosen = np.sort(np.random.default_rng(random_state).choice(source.n_samples, n_samples, replace=False))
        for first in range(0, n_samples, size):
            yield chosen[first : first + size], source.take(chosen[first : first + size])
        return
    if n_samples is None:
        n_samples = WHITEN_SAMPLES if source.n_samples is None else source.n_samples
    seen = 0
    for batch in source.blocks(min(size, n_samples)):
        some = {name: part[: n_samples - seen] for name, part in batch.items()}
        yield range(seen, seen + len(some["x"])), some
        seen += len(some["x"])
        if seen == n_samples:
            return


def joined(batches: list[Batch]) -> Batch:
    """Return the rows of several batches as one."""
    if not batches:
        raise ValueError("The source has no rows: there is nothing to learn from.")
    if len(batches) == 1:
        return batches[0]
    parts = {name: [batch[name] for batch in batches] for name in batches[0]}
    return {
        name: torch.cat(some) if isinstance(some[0], Tensor) else np.concatenate(some) for name, some in parts.items()
    }


def rebatched(batches: Iterator[Batch], n_samples: int) -> Iterator[Batch]:
    """Give the same rows in batches of this size; the last may be smaller.

    Examples
    --------
    >>> parts = iter([{"x": np.arange(3)}, {"x": np.arange(3, 7)}])
    >>> [batch["x"].tolist() for batch in rebatched(parts, 2)]
    [[0, 1], [2, 3], [4, 5], [6]]
    """
    held: list[Batch] = []
    ready = 0
    for batch in batches:
        held.append(batch)
        ready += len(batch["x"])
        if ready < n_samples:
            continue
        whole = joined(held)
        for first in range(0, ready - n_samples + 1, n_samples):
            yield {name: part[first : first + n_samples] for name, part in whole.items()}
        ready %= n_samples
        held = [{name: part[len(part) - ready :] for name, part in whole.items()}] if ready else []
    if held:
        yield joined(held)


def require_finite(x: Tensor, numbers: Sequence[int] | NDArray[np.int64], noun: str = "Row", of: str = "x") -> None:
    """Raise if a row has NaN or infinity, and say which, by its number, and of what."""
    if x.is_floating_point() and not (finite := x.reshape(len(x), -1).isfinite().all(1)).all():
        which = numbers[int((~finite).nonzero()[0])]
        raise ValueError(
            f"{noun} {which:,} of {of} has NaN or infinity. Leave such {noun.lower()}s out, or fill in what is missing."
        )


def require_finite_samples(values: NDArray[Any], of: str, *, start: int = 0) -> None:
    """Raise if a row of an array (n, …) has NaN or infinity, and say which, by its number from ``start`` on.

    A block at a time, since it may be a map.
    """
    size = max(1, BLOCK_BYTES // (8 * max(1, math.prod(values.shape[1:]))))
    for first in range(0, len(values), size):
        block = as_tensor(values[first : first + size])
        require_finite(block, range(start + first, start + first + len(block)), of=of)


def _row_bytes(source: Source) -> int:
    return 8 * max(1, math.prod(source.shape))
