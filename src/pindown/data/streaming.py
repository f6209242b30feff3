"""Statistics of a source, and some of its samples, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown.data.data import LARGEST
from pindown.data.sources import Batch, IndexedSource, Source, as_tensor, concatenated
from pindown.errors import InputError

BLOCK_BYTES = 1 << 26
"""Bytes of a block of samples in float64."""

ROWS_BYTES = 1 << 30
"""Bytes that `first_samples` takes into memory at most, counted in float64."""

WHITEN_SAMPLES = 20_000
"""Samples that moments are estimated from if a source does not know how many it has."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance of samples, each a vector of d numbers, in float64.

    Parameters
    ----------
    n : int
        Number of samples.
    mean, variance : Tensor of shape (d,)
        Of each number; divided by n.
    covariance : Tensor of shape (d, d) or None
        Of all numbers, if requested; divided by n.
    """

    n: int
    mean: Tensor
    variance: Tensor
    covariance: Tensor | None


def moments(
    source: Source, *, covariance: bool = True, n_samples: int | None = None, channel: int | None = None
) -> Moments:
    """Return mean and variance of a source's samples, block by block, exact also where the mean is much larger.

    Moments of blocks, each in two passes, are merged after Chan, Golub and LeVeque (1979).

    Parameters
    ----------
    source : Source
        The samples; each is flattened.
    covariance : bool
        Whether to compute the d × d covariance, or the variances only.
    n_samples : int or None
        Number of samples: drawn at random, or the first ones of a stream. None: all, or `WHITEN_SAMPLES` if the source
        has no known end.
    channel : int or None
        An axis of a sample whose places are the variables, such as colours: 0 for images (c, h, w), −1 for sequences
        (t, c). None: every number is a variable.

    Raises
    ------
    ValueError
        If a sample has NaN or infinity, or there are no samples.

    Examples
    --------
    >>> from pindown.data import ArraySource
    >>> found = moments(ArraySource(np.array([[0.0, 1e9], [2.0, 1e9 + 2]])))
    >>> found.mean.tolist(), found.covariance.tolist()
    ([1.0, 1000000001.0], [[1.0, 1.0], [1.0, 1.0]])
    """
    axes = len(source.shape)
    if channel is not None and not -axes <= channel < axes:
        raise InputError("channel", f"`channel={channel}` is no axis of a sample, whose shape is {source.shape}.")
    seen, n, largest, total = 0, 0, 0.0, None
    for numbers, batch in some_blocks(source, n_samples):
        x = as_tensor(batch["x"]).double()
        require_finite(x, numbers)
        seen, largest = seen + len(x), max(largest, _largest(x))
        flat = x.reshape(len(x), -1) if channel is None else x.movedim(channel % axes + 1, -1).flatten(0, -2)
        spread = torch.cov(flat.T, correction=0).reshape(flat.shape[1], -1) if covariance else flat.var(0, correction=0)
        total = _merged(total, n, (flat.mean(0), spread), len(flat))
        n += len(flat)
    if total is None:
        raise InputError("X", "The source has no samples. Check that it is right.")
    _require_squares(largest, "X")
    mean, spread = (part.cpu() for part in total)
    return Moments(seen, mean, spread.diagonal() if covariance else spread, spread if covariance else None)


def _merged(
    old: tuple[Tensor, Tensor] | None, n_old: int, new: tuple[Tensor, Tensor], n_new: int
) -> tuple[Tensor, Tensor]:
    """Return the moments of two sets of samples together."""
    if old is None:
        return new
    fraction, step = n_new / (n_old + n_new), new[0] - old[0]
    between = torch.outer(step, step) if new[1].ndim == 2 else step.square()
    # In place: with many features the covariance is the largest thing in memory.
    spread = old[1].mul_(1 - fraction).add_(new[1], alpha=fraction).add_(between, alpha=fraction * (1 - fraction))
    return old[0] + fraction * step, spread


def first_samples(source: Source, n_samples: int, *, random_state: int = 0, max_bytes: int = ROWS_BYTES) -> Batch:
    """Return some samples in memory: drawn at random, in order, or the first ones of a stream.

    Parameters
    ----------
    source : Source
        Where they come from.
    n_samples : int
        How many at most; all, if there are no more.
    random_state : int
        Seed of the draw.
    max_bytes : int
        Take fewer samples if they would need more memory than this, in float64.

    Examples
    --------
    >>> from pindown.data import ArraySource
    >>> source = ArraySource(np.arange(1_000))
    >>> first_samples(source, 3)["x"].tolist(), len(first_samples(source, 10**6)["x"])
    ([511, 636, 848], 1000)
    """
    n_samples = max(1, min(n_samples, max_bytes // _sample_bytes(source)))
    return concatenated([batch for _, batch in some_blocks(source, n_samples, random_state)])


def some_blocks(
    source: Source, n_samples: int | None, random_state: int = 0
) -> Iterator[tuple[Sequence[int] | NDArray[np.int64], Batch]]:
    """Go through some samples in blocks of bounded size, with their numbers: see `moments` for which."""
    size = max(1, BLOCK_BYTES // _sample_bytes(source))
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


def rebatched(batches: Iterator[Batch], n_samples: int) -> Iterator[Batch]:
    """Yield the same samples in batches of this size; the last may be smaller.

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
        whole = concatenated(held)
        for first in range(0, ready - n_samples + 1, n_samples):
            yield {name: part[first : first + n_samples] for name, part in whole.items()}
        ready %= n_samples
        held = [{name: part[len(part) - ready :] for name, part in whole.items()}] if ready else []
    if held:
        yield concatenated(held)


def require_finite(x: Tensor, numbers: Sequence[int] | NDArray[np.int64], name: str = "x") -> None:
    """Raise if a sample has NaN or infinity, and give its number."""
    if x.is_floating_point() and not (finite := x.reshape(len(x), -1).isfinite().all(1)).all():
        which = numbers[int((~finite).nonzero()[0])]
        message = f"Sample {which:,} of {name} has NaN or infinity. Leave such samples out, or fill what is missing."
        raise InputError(name, message)


def require_finite_samples(values: NDArray[np.generic], of: str, *, start: int = 0) -> None:
    """Raise if a sample of (n, …) has NaN, infinity, or numbers that are too large or too small to compute with.

    The first sample has the number ``start`` in messages. Works block by block, since ``values`` may be a memory map.
    """
    size = max(1, BLOCK_BYTES // (8 * max(1, math.prod(values.shape[1:]))))
    largest = 0.0
    for first in range(0, len(values), size):
        block = as_tensor(values[first : first + size])
        require_finite(block, range(start + first, start + first + len(block)), of)
        largest = max(largest, _largest(block))
    _require_squares(largest, of)


def _largest(x: Tensor) -> float:
    return max(abs(float(bound)) for bound in x.aminmax()) if x.numel() and x.is_floating_point() else 0.0


def _require_squares(largest: float, name: str) -> None:
    """Raise if the largest number, or all of them, have no square in float64."""
    if largest > LARGEST or 0 < largest < 1 / LARGEST:
        message = f"The largest number of {name} is {largest:.3g}, whose square float64 cannot hold. Multiply {name} by"
        raise InputError(name, f"{message} {1 / largest:.0e}, or leave out numbers that stand for missing values.")


def _sample_bytes(source: Source) -> int:
    return 8 * max(1, math.prod(source.shape))
