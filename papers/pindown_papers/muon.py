"""Muon: orthogonalised momentum for large matrices, Adam for everything else."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

LEAST_SIDE = 128
"""Matrices with a shorter side are optimised by Adam."""


def muon(objective: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    r"""Orthogonalised momentum for the large matrices, Adam for everything else: see :class:`Muon`.

    In a narrow valley of the loss it makes more progress per step than Adam, but a step takes longer.
    """
    weights = [*objective.parameters()]
    large = [w for w in weights if w.ndim == 2 and min(w.shape) >= LEAST_SIDE]
    matrices = [w for w in weights if w.ndim >= 2 and not (w.ndim == 2 and min(w.shape) >= LEAST_SIDE)]
    others = [w for w in weights if w.ndim < 2]
    groups = [
        {"params": large, "weight_decay": weight_decay, "orthogonal": True},
        {"params": matrices, "weight_decay": weight_decay, "orthogonal": False},
        {"params": others, "weight_decay": 0.0, "orthogonal": False},
    ]
    return Muon(
        [group for group in groups if group["params"]], lr=torch.tensor(learning_rate, device=weights[0].device)
    )


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
