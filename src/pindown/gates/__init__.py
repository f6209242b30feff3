"""Gates of a sparse dictionary: which codes of a row are let through. Values, given to `pindown.Sparse`.

========================= ================================================== ================================
gate                      lets through                                       how sparse is settled by
========================= ================================================== ================================
`TopK`                    the k largest of a row                             k
`BatchTopK`               k a row on average: some rows need more            k
`Matryoshka`              the same, and leading codes alone must do, too     k
`JumpReLU`                what exceeds a threshold of each code              k, to which thresholds are led
`L1`                      all that is positive, at a price                   the price
========================= ================================================== ================================

None of them has a theorem: what may be said of their dictionaries is how well seeds agree, beside chance.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from sklearn.utils import check_scalar

from pindown.gates.openings import Jump, Largest, LargestOfBatch, Opening, Ramp
from pindown.gates.sums import chosen, combined, scattered

__all__ = ["L1", "BatchTopK", "Gate", "JumpReLU", "Matryoshka", "TopK", "chosen", "combined", "scattered"]

MANY, SHARE = 32, 32
"""Codes of a row that fire if nobody says how many: so many, and no more than one in so many of all."""


class Gate(ABC):
    """What lets codes through: a function of their number that returns a module; abstract."""

    @abstractmethod
    def __call__(self, n_codes: int) -> Opening:
        """Return the module for so many codes, or say what does not go with them."""


@dataclass(frozen=True)
class TopK(Gate):
    """The k largest codes of each row, as far as they are positive (Gao et al., 2024).

    Parameters
    ----------
    k : int or None
        None takes 32, or one in 32 of the codes if that is fewer.

    Examples
    --------
    >>> import torch
    >>> TopK(2)(8)(torch.tensor([[3.0, -1.0]]))
    tensor([[3., 0.]])
    """

    k: int | None = None

    def __call__(self, n_codes: int) -> Opening:
        """Return the module for so many codes."""
        return Largest(count(self, self.k, n_codes))


@dataclass(frozen=True)
class BatchTopK(Gate):
    """The n·k largest codes of a batch of n rows; at most 4 k of one row (Bussmann et al., 2024).

    After training a threshold takes the place of the batch, so that a row's codes do not depend on others.

    Parameters
    ----------
    k : int or None
        Codes of a row, on average. None takes 32, or one in 32 of the codes if that is fewer.
    """

    k: int | None = None

    def __call__(self, n_codes: int) -> Opening:
        """Return the module for so many codes."""
        k = count(self, self.k, n_codes)
        return LargestOfBatch(k, min(4 * k, n_codes))


@dataclass(frozen=True)
class Matryoshka(Gate):
    """`BatchTopK`, where a 16th, an 8th, a quarter, a half of the codes alone must rebuild rows, too.

    What is common is then found in the first codes as a whole, and is not split up to spare a code where features come
    in a hierarchy (Bussmann et al., 2025).

    Parameters
    ----------
    k : int or None
        Codes of a row, on average. None takes 32, or one in 32 of the codes if that is fewer.
    shares : tuple of float
        Shares of the codes that must do alone.
    """

    k: int | None = None
    shares: tuple[float, ...] = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)

    def __call__(self, n_codes: int) -> Opening:
        """Return the module for so many codes."""
        if not self.shares or not all(0 < share <= 1 for share in self.shares) or max(self.shares) < 1:
            raise ValueError(f"Matryoshka: shares must be in (0, 1], and 1 among them, got {self.shares}.")
        k = count(self, self.k, n_codes)
        return LargestOfBatch(k, min(4 * k, n_codes), tuple(self.shares))


@dataclass(frozen=True)
class JumpReLU(Gate):
    """Codes above a threshold of their own, which is learned so that k of a row fire (Rajamanoharan et al., 2024).

    Parameters
    ----------
    k : int or None
        Codes of a row, on average. None takes 32, or one in 32 of the codes if that is fewer.
    bandwidth : float
        Width of the slope that stands for the jump in gradients, where scores of random directions have unit spread.
    weight : float
        What it costs to miss k by all of it, as a share of the variance of x.
    """

    k: int | None = None
    bandwidth: float = 1.0
    weight: float = 1.0

    def __call__(self, n_codes: int) -> Opening:
        """Return the module for so many codes."""
        for name in ("bandwidth", "weight"):
            _check_positive(self, name)
        return Jump(count(self, self.k, n_codes), n_codes, self.bandwidth, self.weight)


@dataclass(frozen=True)
class L1(Gate):
    """All positive codes, at a price for each unit of them: shrinks codes, and needs the price to be found.

    Parameters
    ----------
    weight : float
        The price: a code pays for itself if it takes off more than this of the squared length of a row, where rows have
        as much as they have columns.
    """

    weight: float = 2.0

    def __call__(self, n_codes: int) -> Opening:
        """Return the module for so many codes."""
        _check_positive(self, "weight")
        return Ramp(self.weight, max(1.0, min(MANY, n_codes / SHARE)))


def count(gate: Any, k: int | None, n_codes: int) -> int:
    """Return the number of codes of a row that a gate lets through, or say that there are not so many.

    Examples
    --------
    >>> count(TopK(), None, 4_096), count(TopK(), None, 64), count(TopK(5), 5, 64)
    (32, 2, 5)
    >>> count(TopK(5), 5, 4)
    Traceback (most recent call last):
    ValueError: TopK: k=5 codes of a row cannot fire where there are 4 in all. Take a smaller k, or more n_components.
    """
    if k is None:
        return max(1, min(MANY, n_codes // SHARE))
    check_scalar(k, f"{type(gate).__name__}: k", numbers.Integral, min_val=1)
    if k > n_codes:
        raise ValueError(
            f"{type(gate).__name__}: k={k} codes of a row cannot fire where there are {n_codes} in all. Take a smaller "
            "k, or more n_components."
        )
    return int(k)


def _check_positive(gate: Gate, name: str) -> None:
    label = f"{type(gate).__name__}: {name}"
    check_scalar(getattr(gate, name), label, numbers.Real, min_val=0, include_boundaries="neither")
