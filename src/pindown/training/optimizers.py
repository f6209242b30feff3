r"""Optimisers: functions that take an objective and return what minimises it.

All read their learning rate from memory, so that a step captured in a CUDA graph follows a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from pindown.networks import Frame
from pindown.training.schedules import constant

LEAST_SIDE = 128
"""Matrices with a shorter side stay with Adam: few directions leave little to even out."""

STILL = 0.05
"""Gradient of an orthonormal row, in nats per radian, below which its steps shrink with it.

Adam's steps are as long for noise as for a signal. Once a classifier reads nothing, an encoder that went on at that
pace would wander off.
"""


class MakeOptimizer(Protocol):
    """Makes the optimiser of an objective.

    A parameter group follows the schedule of the training, up to its learning rate, unless it has a ``schedule`` of its
    own (see `pindown.training.schedules`) or a ``peak``, the rate at the schedule's top.
    """

    def __call__(self, objective: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """Return the optimiser; matrices decay, offsets and temperatures have no reason to be small."""
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
    r"""Momentum made orthogonal for the large matrices, Adam for everything else: see :class:`Muon`.

    Where the loss is a narrow valley it comes further than Adam in as many steps; but a step takes longer.
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
    """Adam for a game: the encoder without momentum, those who answer it with momentum and at a rate of their own.

    The objective has an ``encoder``; all else in it (a classifier, a decoder) answers. While the encoder's rate
    follows the schedule, down to zero, that of the answers stays: they keep up, as if they took several steps to one
    of the encoder. Momentum would carry an encoder past the point where the others have turned, and all would circle.
    """
    encoder = getattr(objective, "encoder", None)
    if not isinstance(encoder, nn.Module):
        raise TypeError(f"rivals: the objective must have an encoder for the others to answer, got {objective!r}.")
    own, decoder = (_of(part) for part in (encoder, getattr(objective, "decoder", None)))
    frames = {id(part.weight) for part in encoder.modules() if isinstance(part, Frame)}
    leads, answers = _split([w for w in objective.parameters() if w.requires_grad], lambda w: id(w) in own)
    groups: list[dict[str, Any]] = []
    leading = {"betas": (0.0, 0.99)}
    answering = {"betas": (0.9, 0.99), "peak": answer_rate, "schedule": constant}
    for weights, manner in ((leads, leading), (answers, answering)):
        framed, others = _split(weights, lambda w: id(w) in frames)
        # Decay keeps a classifier from learning rows by heart; a decoder it would only bend.
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

    With :math:`M = U S V^\top` the average, the step is :math:`-\eta \, U V^\top`, so that directions in which the
    gradient is small, as in a flat valley, are followed as fast as the steep ones. The factor
    :math:`0.2 \sqrt{\max(r, c)}` gives an r×c matrix steps as large as Adam's, so that one learning rate serves both.

    PyTorch's own takes the learning rate as a number, which a captured step would repeat for ever.

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
    A step of unit length turns into a multiple of an orthogonal matrix, whatever the gradient's scales:

    >>> weight = nn.Parameter(torch.zeros(2, 2))
    >>> weight.grad = torch.tensor([[100.0, 0.0], [0.0, 1.0]])
    >>> Muon([{"params": [weight], "orthogonal": True, "weight_decay": 0.0}], lr=torch.tensor(1.0)).step()
    >>> step = -weight.detach() / (0.2 * 2**0.5)
    >>> bool((torch.linalg.svdvals(step) - 1).abs().max() < 0.35)
    True
    """

    MOMENTUM = 0.95

    def __init__(self, groups: Any, lr: Tensor) -> None:
        # Fused, as Adam's steps here are: so said, a counter that is loaded from a file is put beside its weights.
        super().__init__(groups, {"lr": lr, "fused": True})
        for group in self.param_groups:
            # In the order of their shapes, since matrices of one shape are made orthogonal together.
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

    The polynomial :math:`a x + b x^3 + c x^5` is applied to all singular values at once. Its coefficients lift small
    ones fast, at the price of leaving all of them within about a third of 1.

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
