"""Who is whose partner: a partner array, groups of rows, or the next row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array
from torch import Tensor

from pindown.processes import Process
from pindown.sources.batches import CapturableDraw
from pindown.sources.drawing import numbered


@dataclass(frozen=True)
class Pairing:
    """Anchors, and for each the block of rows its partner is drawn from.

    Anchor k is row ``anchors[k]`` of ``x``. Its partner is row ``start[k] + (skip[k] + i) mod size[k]`` of
    ``partners``, with i uniform in 0 … choices[k] − 1.
    """

    x: Tensor
    partners: Tensor
    anchors: Tensor  # (n,) int64
    start: Tensor  # (n,) int64
    skip: Tensor  # (n,) int64
    size: Tensor  # (n,) int64
    choices: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.anchors)

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the anchors at these positions and a partner for each."""
        chance = torch.rand(len(which), generator=generator, device=which.device)
        pick = (chance * self.choices[which]).long()
        offset = (self.skip[which] + pick) % self.size[which]
        return self.x[self.anchors[which]], self.partners[self.start[which] + offset]


def pair_up(X: np.ndarray, y: Any, device: torch.device | str = "cpu") -> Pairing:
    """Read ``y`` as partners (same shape as X), groups (1-d) or, if None, take the next row as partner."""
    x = torch.as_tensor(X, device=device)
    if y is None:
        return _one_each(x, x[1:])
    y = np.asarray(y)
    if len(y) != len(X) if y.ndim else True:
        raise ValueError(
            f"X has {len(X)} rows but y has {len(y) if y.ndim else 'none'}. Row i of y must be the partner, or the "
            "group, of row i of X."
        )
    if y.ndim == 2 and y.shape == X.shape:
        precision = [np.float64, np.float32]
        partners = check_array(y, dtype=precision, order="C", force_writeable=True, input_name="y (the partners)")
        return _one_each(x, torch.as_tensor(partners, device=device))
    if y.ndim == 1 or y.shape[1:] == (1,):
        return _by_group(x, y.reshape(-1))
    raise ValueError(
        f"y has shape {y.shape} and X {X.shape}. y must be an array of partners with the shape of X, a 1-d array of "
        "groups (same value = related), or None (the next row is the partner)."
    )


def _one_each(x: Tensor, partners: Tensor) -> Pairing:
    """Pair row i of x with row i of partners."""
    rows = torch.arange(len(partners), device=x.device)
    zero, one = torch.zeros_like(rows), torch.ones_like(rows)
    if len(rows) < 2:
        raise ValueError(
            f"There is {len(rows)} pair in n_samples={len(x)}, but a partner must be told from the partners of "
            "other rows: give at least 2 pairs."
        )
    return Pairing(x, partners, rows, start=rows, skip=zero, size=one, choices=one)


def _by_group(x: Tensor, groups: np.ndarray) -> Pairing:
    """Pair each row with another of its group; rows alone in their group are left out."""
    _, label, count = numbered(groups, "group")
    if len(count) == 1:
        raise ValueError(
            f"y puts all {len(groups)} rows into a single group, so there are no strangers to tell partners from. "
            "Give y at least two values."
        )
    if count.max() == 1:
        raise ValueError(
            "No value of y occurs twice, so no row has a partner. Give related rows the same value, or give y the "
            "shape of X if it holds the partners themselves."
        )
    if (count > 1).sum() == 1:
        raise ValueError(
            f"Only one value of y occurs twice or more, the other {(count == 1).sum()} rows are alone in theirs: "
            "there are no strangers to tell partners from. Give y at least two groups of two rows."
        )
    order = np.argsort(label, kind="stable")  # rows of one group stand together
    first = (np.cumsum(count) - count)[label[order]]
    size = count[label[order]]
    paired = size > 1

    def put(values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.int64, device=x.device)

    by_group = x[put(order)]
    position = np.arange(len(order))
    return Pairing(
        by_group,
        by_group,
        anchors=put(position[paired]),
        start=put(first[paired]),
        skip=put((position - first + 1)[paired]),  # start behind oneself …
        size=put(size[paired]),
        choices=put((size - 1)[paired]),  # … and never come round to oneself
    )


@dataclass(frozen=True)
class FreshPairs(CapturableDraw):
    """Batches of pairs from a world, new at every step."""

    process: Process
    batch_size: int

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Nothing to make ready."""

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return fresh samples and their partners."""
        sample = self.process.sample(self.batch_size, random_state=generator, device=generator.device)
        if sample.x_pos is None:
            raise ValueError(f"Contrast learns from pairs, but {type(self.process).__name__} has no partners.")
        return sample.x, sample.x_pos
