r"""Optimizers: functions that take an objective and return its optimizer; and schedules of the learning rate.

Learning rates are tensors, so that a step captured in a CUDA graph follows a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pindown.networks import Frame

STILL = 0.05
"""Gradient of an orthonormal row, in nats per radian, below which its steps shrink with it, since Adam's steps are
otherwise as long for noise as for a signal."""


Schedule = Callable[[float], float]
"""Maps progress in [0, 1] to the factor of the learning rate."""

WAIT = 0.1
"""Fraction of the steps in which an encoder waits, while its adversary learns."""


def cosine(progress: float) -> float:
    """Learning-rate factor: a short linear warm-up, then half a cosine down to zero.

    Examples
    --------
    >>> [round(cosine(t), 3) for t in (0.0, 0.025, 0.05, 0.525, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    warm_up = 0.05
    return progress / warm_up if progress < warm_up else _half_cosine(progress, warm_up)


def waiting_cosine(progress: float) -> float:
    """Learning-rate factor of the encoder in adversarial training: zero at first, then half a cosine down to zero."""
    return 0.0 if progress < WAIT else _half_cosine(progress, WAIT)


def constant(progress: float) -> float:
    """Learning-rate factor 1 throughout."""
    return 1.0


def falling(progress: float) -> float:
    """Learning-rate factor: half a cosine from one down to zero."""
    return _half_cosine(progress, 0.0)


def _half_cosine(progress: float, start: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * (progress - start) / (1 - start)))


class MakeOptimizer(Protocol):
    """Makes the optimizer of an objective.

    A parameter group may have its own ``schedule``, and its own ``peak``, the learning rate at the top of the schedule;
    the default is that of the training.
    """

    def __call__(self, objective: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """Return the optimizer; only matrices should have weight decay, not biases and temperatures."""
        ...


def adam(objective: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay.

    References
    ----------
    Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019.
    """
    matrices, others = _split(objective.parameters(), lambda w: w.ndim >= 2)
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return _adamw(objective, groups, learning_rate)


def rivals(
    objective: nn.Module, learning_rate: float, weight_decay: float, *, answer_rate: float = 5e-3
) -> torch.optim.Optimizer:
    """Adam for adversarial training: without momentum for the encoder, with another learning rate for the others.

    The objective has an ``encoder``; its other parts (a classifier, a decoder) respond to it. The learning rate of the
    encoder follows the schedule, down to zero; that of the others is constant, so that they keep up. With momentum the
    encoder would overshoot, and all would oscillate.
    """
    encoder = getattr(objective, "encoder", None)
    if not isinstance(encoder, nn.Module):
        raise TypeError(f"rivals: the objective must have an encoder, got {objective!r}.")
    decoder = getattr(objective, "decoder", None) or nn.Module()
    own, decoding = ({id(w) for w in part.parameters()} for part in (encoder, decoder))
    frames = {id(part.weight) for part in encoder.modules() if isinstance(part, Frame)}
    leads, answers = _split([w for w in objective.parameters() if w.requires_grad], lambda w: id(w) in own)
    groups: list[dict[str, Any]] = []
    leading = {"betas": (0.0, 0.99)}
    answering = {"betas": (0.9, 0.99), "peak": answer_rate, "schedule": constant}
    for weights, manner in ((leads, leading), (answers, answering)):
        framed, others = _split(weights, lambda w: id(w) in frames)
        # Weight decay keeps a classifier from memorising samples; a decoder it would only distort.
        decayed, free = _split(others, lambda w: w.ndim >= 2 and id(w) not in decoding)
        for same, decay, eps in ((framed, 0.0, STILL), (decayed, weight_decay, 1e-8), (free, 0.0, 1e-8)):
            groups.append({"params": same, "weight_decay": decay, "eps": eps, **manner})
    return _adamw(objective, groups, learning_rate)


def _split(
    weights: Iterable[nn.Parameter], condition: Callable[[Tensor], bool]
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    weights = list(weights)
    return [w for w in weights if condition(w)], [w for w in weights if not condition(w)]


def _adamw(objective: nn.Module, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
    device = next(objective.parameters()).device
    rates = [torch.tensor(group.get("peak", learning_rate), device=device) for group in groups]
    used = [group | {"lr": rate} for group, rate in zip(groups, rates, strict=True) if group["params"]]
    return torch.optim.AdamW(used, fused=True, capturable=device.type == "cuda")
