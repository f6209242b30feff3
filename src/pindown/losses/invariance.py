"""Losses that make latents independent of a group: an adversary's reversed gradient, and the energy distance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pindown.errors import InputError


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, strength: float | Tensor) -> Tensor:
        ctx.strength = strength
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * grad, None


def reverse_gradient(z: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    r"""Return z unchanged; in the backward pass, multiply its gradient by ``-strength``.

    A loss behind this point is minimised by the layers after it and maximised by the layers before it. Between an
    encoder and a classifier of a nuisance, it makes the encoder hide what the classifier predicts.

    References
    ----------
    Ganin and Lempitsky, Unsupervised domain adaptation by backpropagation, ICML 2015.

    Examples
    --------
    >>> z = torch.tensor([3.0], requires_grad=True)
    >>> (2 * reverse_gradient(z, 0.5)).backward()
    >>> reverse_gradient(z).item(), z.grad.item()
    (3.0, -1.0)
    """
    return _ReverseGradient.apply(z, strength)


def energy_distance(
    z: Tensor, groups: Tensor, *, weights: Tensor | None = None, within: Tensor | None = None
) -> Tensor:
    r"""Return the energy distance of the groups: the mean distance of any two samples minus that within a group.

    .. math:: E\,\lVert Z - Z' \rVert - E_e\, E\,\lVert Z_e - Z_e' \rVert

    Its expectation is 0 if all groups have the same distribution, and positive otherwise. Minimising it makes latents
    independent of their group, without an adversary. Pairs of a sample with itself are left out, so that the estimate
    is unbiased for few samples. It holds the (n, n) matrix of distances.

    Parameters
    ----------
    z
        Latents, (n, d). Scale all dimensions alike first, since the smallest has the least influence.
    groups
        Group of each sample, (n,) int.
    weights
        Weight of each sample, (n,); equal by default. Samples of weight 0 are left out.
    within
        Stratum of each sample, (n,) int: groups are compared within strata only.

    References
    ----------
    Székely and Rizzo, Energy statistics, J. Stat. Plan. Inference 2013.

    Examples
    --------
    Two groups of two samples at 0 and at 3: two in three pairs of different samples have distance 3, and no pair within
    a group. If groups are unrelated to positions the expectation is 0; single values may be negative:

    >>> z = torch.tensor([[0.0], [0.0], [3.0], [3.0]])
    >>> [round(energy_distance(z, torch.tensor(groups)).item(), 3) for groups in ([0, 0, 1, 1], [0, 1, 0, 1])]
    [2.0, -1.0]
    """
    if groups.shape != (len(z),) or z.ndim != 2:
        raise InputError(
            "groups",
            f"`z` must be (n, d) and `groups` (n,), one per sample; got {tuple(z.shape)} and {tuple(groups.shape)}.",
        )
    weights = torch.ones_like(z[:, 0]) if weights is None else weights
    all_pairs = weights * ~torch.eye(len(z), dtype=torch.bool, device=z.device)  # (n, n): weight of j for i
    if within is not None:
        all_pairs = all_pairs * (within[:, None] == within)
    same_group = all_pairs * (groups[:, None] == groups)
    anchors = weights * (same_group.sum(1) > 0)  # a sample without another of its group cannot be compared

    def normalised(pairs: Tensor) -> Tensor:
        return pairs / pairs.sum(1, keepdim=True).clamp_min(1e-12)

    pairs = (anchors / anchors.sum().clamp_min(1e-12))[:, None] * (normalised(all_pairs) - normalised(same_group))
    return (pairs * torch.cdist(z, z)).sum()
