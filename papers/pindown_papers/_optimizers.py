"""Optimizers that are imported when they are used: a table is read without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


def adam(objective: nn.Module, learning_rate: float, weight_decay: float) -> Optimizer:
    """Return Adam with decoupled weight decay."""
    from pindown.training import optimizers

    return optimizers.adam(objective, learning_rate, weight_decay)


def muon(objective: nn.Module, learning_rate: float, weight_decay: float) -> Optimizer:
    """Return Adam with orthogonal steps for the large matrices."""
    from pindown_papers.muon import muon

    return muon(objective, learning_rate, weight_decay)
