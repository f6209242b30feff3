"""A fit made again: another seed, other rows, and where a method can, another initialisation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import nn

from pindown.data.data import Data
from pindown.data.splits import FEWEST
from pindown.networks import built, linear
from pindown.networks.encoder import Make

STRETCH, BEND = 1.5, 0.3
"""How much another start stretches some directions and shrinks others; and the slope of negative values there."""

WIDEST = 2_000
"""Columns up to which a map of all of them is made."""


def refitted(est: Any, data: Data, *, seed: int, elsewhere: bool = False) -> Any:
    """Return a clone of an estimator, fitted to data with another seed, and perhaps from another start.

    It has as many codes, where the estimator counted them and its rows support so many, and a linear encoder if that of
    the estimator was left straight. Of too few rows to keep some back it takes the steps of the estimator, whose length
    was found by rows held out: to find it again, in folds, takes five times as long. Nothing is shown, and no
    checkpoint is kept. Where there are fewer rows than in a batch, the batch is smaller.
    """
    parameters = est.get_params(deep=False)
    batch_size = parameters.get("batch_size")
    other: dict[str, Any] = {
        "random_state": seed,
        "verbose": False,
        "trainer": replace(est.trainer, checkpoint=None) if "trainer" in parameters else None,
        "batch_size": None if batch_size is None else min(batch_size, len(data)),
    }
    found = getattr(est, "held_out_", None)
    straight, step_plan = getattr(found, "straight", False), getattr(found, "step_plan", None)
    if step_plan is not None and est.holdout * len(data) < FEWEST and len(est.shape_in_) == 1:
        other |= {"holdout": 0.0, "trainer": replace(other["trainer"], step_plan=step_plan)}
    if straight:
        other["encoder"] = linear
    if elsewhere and est.spec.varies_initialisation and "encoder" in parameters:
        # Behind a bend no linear map could be made again.
        other["encoder"] = AnotherStart(linear, seed, bend=1.0) if straight else AnotherStart(est.encoder, seed)
    fresh = clone(est).set_params(**{name: value for name, value in other.items() if name in parameters})
    if parameters.get("n_components", 0) is None and hasattr(est, "n_components_"):  # as many codes as the fit has
        most = math.prod(fresh.shown(data.X).shape_out) if est.needs_injective else est.n_components_
        fresh.set_params(n_components=min(est.n_components_, most))
    est.spec.copy_choices(est, fresh)
    return est.spec.fit(fresh, data)


def has_another_start(n_in: Any) -> bool:
    """Return whether an encoder of such inputs can start behind a random map: vectors that are not too wide.

    Examples
    --------
    >>> has_another_start(50), has_another_start((30_000,)), has_another_start((3, 16, 16))
    (True, False, False)
    """
    shape = (n_in,) if isinstance(n_in, int) else n_in
    return len(shape) == 1 and shape[0] <= WIDEST


@dataclass(frozen=True)
class AnotherStart:
    """The same kind of encoder, behind an invertible map of its own that stretches, turns and bends the data.

    Encoders that start at orthonormal rows of whitened data start alike, up to a rotation; where the side information
    says nothing they stay so, and would seem to agree. Behind different maps, what agrees in the end was learned.
    Networks of images and of very wide rows have no such map: they start at other weights alone.

    Examples
    --------
    >>> from pindown.networks import linear
    >>> body = AnotherStart(linear, seed=0)(3, 2)
    >>> body(torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """

    encoder: Make
    seed: int
    bend: float = BEND  # the slope of negative values; 1 for a map without bend

    def __call__(self, n_in: Any, n_out: int) -> nn.Module:
        """Return the module."""
        body = built("audit", "encoder", self.encoder, n_in, n_out)
        if not has_another_start(n_in):
            return body
        rng = np.random.default_rng(self.seed)
        first, second, third = (np.linalg.qr(rng.normal(size=(n_in, n_in)))[0] for _ in range(3))
        stretch = STRETCH ** rng.uniform(-1, 1, size=n_in)
        start = (_fixed(first * stretch @ second), nn.LeakyReLU(self.bend), _fixed(third))
        return nn.Sequential(*start, body)


def _fixed(matrix: NDArray[np.float64]) -> nn.Module:
    layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False).requires_grad_(False)
    layer.weight.copy_(torch.as_tensor(matrix, dtype=torch.float32))
    return layer
