"""Who is whose partner: a partner array, groups of rows, or the next row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array
from torch import Tensor

from pindown.data.arrays import ArraySource
from pindown.data.data import with_next_row
from pindown.data.labels import numbered
from pindown.data.sampling import on_device, taken
from pindown.data.source import IndexedSource
from pindown.data.streaming import require_finite_samples


@dataclass(frozen=True)
class Pairing:
    """Anchors, and for each the places its partner is drawn from.

    Anchor k is row ``anchors[k]`` of ``x``. Its partner is row ``places[start[k] + (skip[k] + i) mod size[k]]`` of
    ``partners``, with i uniform in 0 … choices[k] − 1.
    """

    x: Tensor | IndexedSource
    partners: Tensor | IndexedSource
    anchors: Tensor  # (n,) int64
    places: Tensor  # (m,) int64
    start: Tensor  # (n,) int64
    skip: Tensor  # (n,) int64
    size: Tensor  # (n,) int64
    choices: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.anchors.device

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the anchors at these positions and a partner for each."""
        chance = torch.rand(len(which), generator=generator, device=which.device)
        pick = (chance * self.choices[which]).long()
        place = self.start[which] + (self.skip[which] + pick) % self.size[which]
        return taken(self.x, self.anchors[which]), taken(self.partners, self.places[place])


def pair_up(
    X: np.ndarray | IndexedSource,
    y: Any,
    device: torch.device | str = "cpu",
    *,
    groups: np.ndarray | None = None,
    among: np.ndarray | None = None,
) -> Pairing:
    """Read ``y`` as partners (same shape as X), groups (1-d) or, if None, take the next row as partner.

    ``groups`` are those across which no row has a next one. ``among`` are the rows that anchors, and partners that are
    rows of X, are taken from; None: all.
    """
    x = on_device(X, torch.device(device))
    if y is None or isinstance(y, str):
        rows = with_next_row(len(x), groups)
        if among is not None:
            there = np.isin(np.arange(len(x)), among)
            rows = rows[there[rows] & there[rows + 1]]
        return _one_each(x, x, rows, rows + 1)
    y = np.asarray(y)
    if len(y) != len(X) if y.ndim else True:
        raise ValueError(
            f"X has {len(X)} rows but y has {len(y) if y.ndim else 'none'}. Row i of y must be the partner, or the "
            "group, of row i of X."
        )
    shape = X.shape if isinstance(X, IndexedSource) else X.shape[1:]
    if y.ndim > 1 and y.shape[1:] == shape:
        rows = np.arange(len(y)) if among is None else among
        return _one_each(x, _partners(y, x, torch.device(device)), rows, rows)
    if y.ndim == 1 or y.shape[1:] == (1,):
        return _by_group(x, y.reshape(-1), np.arange(len(y)) if among is None else among)
    raise ValueError(
        f"y has shape {y.shape} and X {(len(X), *shape)}. y must be an array of partners with the shape of X, a 1-d "
        "array of groups (same value = related), or None (the next row is the partner)."
    )


def _partners(y: np.ndarray, x: Tensor | IndexedSource, device: torch.device) -> Tensor | IndexedSource:
    """Return partners where their observations are: in memory after a look at them, or where they can be taken from."""
    if isinstance(x, IndexedSource):
        return ArraySource(y)
    numbers: dict[str, Any] = {"dtype": [np.float64, np.float32], "order": "C", "force_writeable": True}
    whole = check_array(y, **numbers, allow_nd=True, ensure_all_finite=False, input_name="y (the partners)")
    require_finite_samples(whole, "y (the partners)")
    return on_device(whole, device)


def _one_each(
    x: Tensor | IndexedSource, partners: Tensor | IndexedSource, rows: np.ndarray, places: np.ndarray
) -> Pairing:
    """Pair these rows of x with those at these places of partners."""
    if len(rows) < 2:
        raise ValueError(
            f"There is {len(rows)} pair in n_samples={len(x)}, but a partner must be told from the partners of "
            "other rows: give at least 2 pairs."
        )
    put = _put(x)
    each = np.arange(len(rows))
    zero, one = np.zeros_like(each), np.ones_like(each)
    at = {"start": put(each), "skip": put(zero), "size": put(one), "choices": put(one)}
    return Pairing(x, partners, put(rows), put(places), **at)


def _put(x: Tensor | IndexedSource) -> Callable[[np.ndarray], Tensor]:
    device = x.device if isinstance(x, Tensor) else "cpu"
    return lambda values: torch.as_tensor(values, dtype=torch.int64, device=device)


def _by_group(x: Tensor | IndexedSource, groups: np.ndarray, rows: np.ndarray) -> Pairing:
    """Pair each of these rows with another of its group; rows alone in their group are left out."""
    _, label, count = numbered(groups[rows], "y", "group")
    if len(count) == 1:
        raise ValueError(
            f"y puts all {len(rows)} rows into a single group, so there are no negatives to tell partners from. "
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
            "there are no negatives to tell partners from. Give y at least two groups of two rows."
        )
    order = np.argsort(label, kind="stable")  # rows of one group stand together
    first = (np.cumsum(count) - count)[label[order]]
    size = count[label[order]]
    paired = size > 1

    put, position = _put(x), np.arange(len(order))
    return Pairing(
        x,
        x,
        anchors=put(rows[order[paired]]),
        places=put(rows[order]),
        start=put(first[paired]),
        skip=put((position - first + 1)[paired]),  # start behind oneself …
        size=put(size[paired]),
        choices=put((size - 1)[paired]),  # … and never come round to oneself
    )
