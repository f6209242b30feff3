"""Networks that a user hands over as functions: built, and looked at before hours are spent on them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

MADE_BY = "made_by"
"""Attribute of a network that says what made it, (make, n_in, n_out): a file that holds it can have it made again."""


def built(owner: str, name: str, make: Any, n_in: int, n_out: int) -> nn.Module:
    """Return ``make(n_in, n_out)``, or say what is wrong with it, by the name of the estimator and of its parameter.

    Examples
    --------
    >>> built("Forget", "decoder", nn.Linear, 3, 2)
    Linear(in_features=3, out_features=2, bias=True)
    >>> built("Forget", "decoder", lambda n_in, n_out: nn.Linear(n_in, 1), 3, 2)
    Traceback (most recent call last):
    ValueError: Forget: decoder(n_in=3, n_out=2) maps (2, 3) to (2, 1), not to (2, 2). Let its last layer have n_out \
outputs.
    """
    module = make(n_in, n_out) if callable(make) else None
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"{owner}: {name} must be a function (n_in, n_out) -> nn.Module, such as those of pindown.networks, got "
            f"{make!r}."
        )
    with torch.no_grad():
        shape = tuple(copy.deepcopy(module)(torch.zeros(2, n_in)).shape)
    if shape != (2, n_out):
        raise ValueError(
            f"{owner}: {name}(n_in={n_in}, n_out={n_out}) maps (2, {n_in}) to {shape}, not to (2, {n_out}). Let its "
            "last layer have n_out outputs."
        )
    setattr(module, MADE_BY, (make, n_in, n_out))
    return module
