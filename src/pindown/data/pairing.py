"""Positive pairs: an array of positives, groups of samples, or the next sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from torch import Tensor

from pindown.data.batches import on_device, take
from pindown.data.data import samples_with_next
from pindown.data.labels import IntArray, numbered
from pindown.data.sources import ArraySource, IndexedSource, require_finite_samples
from pindown.errors import InputError


@dataclass(frozen=True)
class Pairing:
    """Anchors, and the candidates that the positive of each is drawn from.

    Anchor k is sample ``anchors[k]`` of ``x``. Its positive is sample ``places[start[k] + (skip[k] + i) mod size[k]]``
    of ``positives``, with i uniform in 0 … choices[k] − 1.
    """

    x: Tensor | IndexedSource
    positives: Tensor | IndexedSource
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
        """The device of the samples."""
        return self.anchors.device

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the anchors with these numbers and a positive for each."""
        chance = torch.rand(len(which), generator=generator, device=which.device)
        pick = (chance * self.choices[which]).long()
        place = self.start[which] + (self.skip[which] + pick) % self.size[which]
        return take(self.x, self.anchors[which]), take(self.positives, self.places[place])


def pair_up(
    X: NDArray[np.generic] | IndexedSource,
    y: ArrayLike | None,
    device: torch.device | str = "cpu",
    *,
    groups: NDArray[np.generic] | None = None,
    among: IntArray | None = None,
) -> Pairing:
    """Return the pairs that ``y`` describes: positives like X, groups (1-d), or, if None, the next sample.

    The last sample of each of the ``groups`` has no next one. Anchors, and positives that are samples of X, are taken
    ``among`` some samples, if these are given.
    """
    x, n = on_device(X, torch.device(device)), len(X)
    if y is None or isinstance(y, str):
        indices = samples_with_next(n, groups)
        if among is not None:
            is_there = np.isin(np.arange(n), among)
            indices = indices[is_there[indices] & is_there[indices + 1]]
        return _one_each(x, x, indices, indices + 1)
    y = np.asarray(y)
    if y.ndim == 0 or len(y) != n:
        has = len(y) if y.ndim else "none"
        raise InputError("y", f"X has {n} samples but y has {has}. Pass one positive, or one group, per sample.")
    shape = X.shape if isinstance(X, IndexedSource) else X.shape[1:]
    indices = np.arange(n) if among is None else among
    if y.ndim > 1 and y.shape[1:] == shape:
        return _one_each(x, _positives(y, x, torch.device(device)), indices, indices)
    if y.ndim == 1 or y.shape[1:] == (1,):
        return _by_group(x, y.reshape(-1), indices)
    raise InputError(
        "y",
        f"y must be an array of positives with the shape of X, {(n, *shape)}, a 1-d array of groups, or None (the next "
        f"sample is the positive), got shape {y.shape}.",
    )


def _positives(y: NDArray[np.generic], x: Tensor | IndexedSource, device: torch.device) -> Tensor | IndexedSource:
    """Return an array of positives where its anchors are: in memory after a check, or in a source."""
    if isinstance(x, IndexedSource):
        return ArraySource(y)
    numbers: dict[str, Any] = {"dtype": [np.float64, np.float32], "order": "C", "force_writeable": True}
    whole = check_array(y, **numbers, allow_nd=True, ensure_all_finite=False, input_name="y (the positives)")
    require_finite_samples(whole, "y (the positives)")
    return on_device(whole, device)


def _one_each(
    x: Tensor | IndexedSource, positives: Tensor | IndexedSource, anchors: IntArray, places: IntArray
) -> Pairing:
    """Pair samples of x with those at these places of an array of positives."""
    if len(anchors) < 2:
        raise InputError("pairs", f"{len(anchors)} pair of n_samples={len(x)} is left. Give at least 2 pairs.")
    each, one = np.arange(len(anchors)), np.ones_like(anchors)
    return Pairing(x, positives, *_on_device_of(x, anchors, places, each, np.zeros_like(each), one, one))


def _by_group(x: Tensor | IndexedSource, groups: NDArray[np.generic], indices: IntArray) -> Pairing:
    """Pair each of these samples with another of its group; samples alone in their group are left out."""
    _, label, count = numbered(groups[indices], "y", "group")
    if (n_groups := int((count > 1).sum())) < 2:
        raise InputError(
            "y",
            f"y has {n_groups} groups of two samples or more, but pairs and negatives need two such groups. Give "
            "related samples the same value, or give y the shape of X if it holds the positives themselves.",
        )
    order = np.argsort(label, kind="stable")  # samples of one group stand together
    first = (np.cumsum(count) - count)[label[order]]
    size = count[label[order]]
    paired = size > 1
    skip = np.arange(len(order)) - first + 1  # start behind the anchor, and never come round to it
    parts = (indices[order[paired]], indices[order], first[paired], skip[paired], size[paired], (size - 1)[paired])
    return Pairing(x, x, *_on_device_of(x, *parts))


def _on_device_of(x: Tensor | IndexedSource, *parts: IntArray) -> tuple[Tensor, ...]:
    device = x.device if isinstance(x, Tensor) else "cpu"
    return tuple(torch.as_tensor(part, dtype=torch.int64, device=device) for part in parts)
