r"""Optimizers: functions that take an objective and return its optimizer; and schedules of the learning rate.

Learning rates are tensors, so that a step captured in a CUDA graph follows a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from pindown.networks import Frame

LEAST_SIDE = 128
"""Matrices with a shorter side are optimised by Adam."""

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
    """Learning-rate factor of the encoder in adversarial training: zero at first, then half a cosine down to zero.

    Examples
    --------
    >>> [round(waiting_cosine(t), 3) for t in (0.0, 0.09, 0.1, 0.55, 1.0)]
    [0.0, 0.0, 1.0, 0.5, 0.0]
    """
    return 0.0 if progress < WAIT else _half_cosine(progress, WAIT)


def constant(progress: float) -> float:
    """Learning-rate factor 1 throughout."""
    return 1.0


def falling(progress: float) -> float:
    """Learning-rate factor: half a cosine from one down to zero.

    Examples
    --------
    >>> [round(falling(t), 3) for t in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
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


def muon(objective: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    r"""Orthogonalised momentum for the large matrices, Adam for everything else: see :class:`Muon`.

    In a narrow valley of the loss it makes more progress per step than Adam, but a step takes longer.
    """
    large, rest = _split(objective.parameters(), lambda w: w.ndim == 2 and min(w.shape) >= LEAST_SIDE)
    matrices, others = _split(rest, lambda w: w.ndim >= 2)
    groups = [
        {"params": large, "weight_decay": weight_decay, "orthogonal": True},
        {"params": matrices, "weight_decay": weight_decay, "orthogonal": False},
        {"params": others, "weight_decay": 0.0, "orthogonal": False},
    ]
    return Muon([group for group in groups if group["params"]], lr=_rate(objective, learning_rate))


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
    own, decoder = (_of(part) for part in (encoder, getattr(objective, "decoder", None)))
    frames = {id(part.weight) for part in encoder.modules() if isinstance(part, Frame)}
    leads, answers = _split([w for w in objective.parameters() if w.requires_grad], lambda w: id(w) in own)
    groups: list[dict[str, Any]] = []
    leading = {"betas": (0.0, 0.99)}
    answering = {"betas": (0.9, 0.99), "peak": answer_rate, "schedule": constant}
    for weights, manner in ((leads, leading), (answers, answering)):
        framed, others = _split(weights, lambda w: id(w) in frames)
        # Weight decay keeps a classifier from memorising samples; a decoder it would only distort.
        decayed, free = _split(others, lambda w: w.ndim >= 2 and id(w) not in decoder)
        for same, decay, eps in ((framed, 0.0, STILL), (decayed, weight_decay, 1e-8), (free, 0.0, 1e-8)):
            groups.append({"params": same, "weight_decay": decay, "eps": eps, **manner})
    return _adamw(objective, groups, learning_rate)


def _of(part: nn.Module | None) -> set[int]:
    return set() if part is None else {id(w) for w in part.parameters()}


def _split(
    weights: Iterable[nn.Parameter], condition: Callable[[Tensor], bool]
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    weights = list(weights)
    return [w for w in weights if condition(w)], [w for w in weights if not condition(w)]


def _rate(objective: nn.Module, learning_rate: float) -> Tensor:
    return torch.tensor(learning_rate, device=next(objective.parameters()).device)


def _adamw(objective: nn.Module, groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
    used = [group | {"lr": _rate(objective, group.get("peak", learning_rate))} for group in groups if group["params"]]
    return torch.optim.AdamW(used, fused=True, capturable=used[0]["lr"].is_cuda)


class Muon(torch.optim.Optimizer):
    r"""Orthogonal momentum: each large matrix moves along the orthogonal factor of its averaged gradient.

    With :math:`M = U S V^\top` the average, the step is :math:`-\eta \, U V^\top`, so that all directions of the
    gradient are followed at the same speed. The factor :math:`0.2 \sqrt{\max(r, c)}` gives an r×c matrix steps as
    large as Adam's, so that one learning rate serves both. The learning rate is a tensor, unlike that of
    ``torch.optim.Muon``.

    Parameters
    ----------
    groups
        Parameter groups, each with ``orthogonal`` (True: matrices only) and ``weight_decay``.
    lr
        Learning rate, a tensor.

    References
    ----------
    Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024; Liu et al., Muon is scalable for LLM
    training, arXiv:2502.16982.

    Examples
    --------
    The step is nearly a multiple of an orthogonal matrix, whatever the scales of the gradient:

    >>> weight = nn.Parameter(torch.zeros(2, 2))
    >>> weight.grad = torch.tensor([[100.0, 0.0], [0.0, 1.0]])
    >>> Muon([{"params": [weight], "orthogonal": True, "weight_decay": 0.0}], lr=torch.tensor(1.0)).step()
    >>> step = -weight.detach() / (0.2 * 2**0.5)
    >>> bool((torch.linalg.svdvals(step) - 1).abs().max() < 0.35)
    True
    """

    MOMENTUM = 0.95

    def __init__(self, groups: Any, lr: Tensor) -> None:
        # "fused", so that a step counter loaded from a file is moved to the device of its weights.
        super().__init__(groups, {"lr": lr, "fused": True})
        for group in self.param_groups:
            # Sorted by shape, since matrices of one shape are orthogonalised together.
            if group["orthogonal"]:
                group["params"].sort(key=lambda w: w.shape)
            for w in group["params"]:
                self.state[w] = {"average": torch.zeros_like(w)}
                if not group["orthogonal"]:
                    self.state[w] |= {"square": torch.zeros_like(w), "step": torch.zeros((), device=w.device)}

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move all parameters that have a gradient."""
        for group in self.param_groups:
            weights = [w for w in group["params"] if w.grad is not None]
            if not group["orthogonal"]:
                states = [self.state[w] for w in weights]
                _adam_step(weights, states, group["lr"], group["weight_decay"])
                continue
            for _, alike in groupby(weights, key=lambda w: w.shape):
                self._orthogonal(group, list(alike))

    def _orthogonal(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        gradients = [w.grad for w in weights if w.grad is not None]
        averages = [self.state[w]["average"] for w in weights]
        torch._foreach_lerp_(averages, gradients, 1 - self.MOMENTUM)
        ahead = torch.lerp(torch.stack(gradients), torch.stack(averages), self.MOMENTUM)  # Nesterov's
        r, c = ahead.shape[1:]
        moves = orthogonal_factor(ahead) * (group["lr"] * (0.2 * max(r, c) ** 0.5))
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_sub_(weights, list(moves.unbind()))


def _adam_step(
    weights: list[Tensor],
    states: list[Any],
    rate: Tensor,
    weight_decay: float,
) -> None:
    adamw(
        weights,
        [w.grad for w in weights if w.grad is not None],
        [state["average"] for state in states],
        [state["square"] for state in states],
        [],
        [state["step"] for state in states],
        fused=True,
        capturable=weights[0].is_cuda if weights else False,
        amsgrad=False,
        beta1=0.9,
        beta2=0.999,
        lr=rate,
        weight_decay=weight_decay,
        eps=1e-8,
        maximize=False,
    )


def orthogonal_factor(matrices: Tensor) -> Tensor:
    r"""Return nearly :math:`U V^\top` for each :math:`U S V^\top` of a stack, by five matrix polynomials.

    The polynomial :math:`a x + b x^3 + c x^5` is applied to all singular values, which end within a third of 1.

    Examples
    --------
    >>> matrices = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(0))
    >>> values = torch.linalg.svdvals(orthogonal_factor(matrices))
    >>> bool((values - 1).abs().max() < 0.35)
    True
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal_factor(matrices.mT).mT
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + 1e-12)  # singular values in [0, 1]
    for _ in range(5):
        square = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x
