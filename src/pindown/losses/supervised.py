"""Losses of latents given labels: cross-entropy of classes, and independence of groups such as those of a nuisance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pindown.errors import InputError
from pindown.losses.pairwise import common_precision, logsumexp_similarity

MAX_SCORES = 1 << 14
"""Up to this many scores (64 KB) a CPU computes all of them at once, in a third of the time."""


def cross_entropy(
    z: Tensor,
    vectors: Tensor,
    labels: Tensor,
    *,
    scale: float | Tensor = 1.0,
    offsets: Tensor | None = None,
) -> Tensor:
    r"""Return the softmax cross-entropy of labels whose scores are dot products with one vector per label.

    .. math::

        \frac1n \sum_i \Big[ \log \sum_c \exp(\beta\, z_i^\top w_c + b_c) - (\beta\, z_i^\top w_{y_i} + b_{y_i}) \Big]

    It equals ``torch.nn.functional.cross_entropy(scale * z @ vectors.T + offsets, labels)`` exactly, but holds no
    (n, n_labels) matrix beyond 64 KB: a million labels take the memory of their vectors. At the minimum, the scores
    are :math:`\log p(y = c \mid x)` up to a constant per sample.

    Parameters
    ----------
    z
        Latents, (n, d).
    vectors
        One vector w_c per label, (n_labels, d).
    labels
        The label of each sample, (n,) int64 in 0 … n_labels − 1. They are checked on a CPU only: a check on a GPU would
        wait for it.
    scale
        The number β. A tensor that requires a gradient gets one.
    offsets
        One number b_c per label, (n_labels,); none by default. For classes of unequal frequency, pass the logarithms
        of the frequencies.

    References
    ----------
    Reizinger et al., Cross-Entropy Is All You Need To Invert the Data Generating Process, 2024, eq. 2.

    Examples
    --------
    Latents of zero make five labels equally likely:

    >>> labels = torch.tensor([0, 4])
    >>> round(cross_entropy(torch.zeros(2, 3), torch.ones(5, 3), labels).exp().item(), 3)
    5.0
    """
    if z.ndim != 2 or vectors.ndim != 2 or z.shape[1] != vectors.shape[1] or len(z) == 0 or len(vectors) == 0:
        shapes = f"{tuple(z.shape)} and {tuple(vectors.shape)}"
        raise InputError("vectors", f"`z` and `vectors` must be (n, d) and (n_labels, d), not empty; got {shapes}.")
    if labels.shape != (len(z),) or labels.dtype != torch.int64:
        found = f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise InputError("labels", f"`labels` must be int64 of shape ({len(z)},), got {found}. Use labels.long().")
    readable = labels.device.type == "cpu" and not torch.compiler.is_compiling()
    if readable and not 0 <= int(labels.min()) <= int(labels.max()) < len(vectors):
        found = f"{int(labels.min())} to {int(labels.max())}"
        raise InputError("labels", f"`labels` must be between 0 and {len(vectors) - 1}, got values from {found}.")
    if offsets is not None and offsets.shape != (len(vectors),):
        raise InputError("offsets", f"`offsets` must have shape ({len(vectors)},), got {tuple(offsets.shape)}.")
    z, vectors = common_precision(z, vectors)
    z = scale * z
    if not z.is_cuda and len(z) * len(vectors) <= MAX_SCORES:
        scores = z @ vectors.mT if offsets is None else torch.addmm(offsets.to(z.dtype), z, vectors.mT)
        return nn.functional.cross_entropy(scores, labels)
    own = (z * vectors[labels]).sum(1)  # (n,)
    if offsets is not None:
        own = own + offsets[labels].to(own.dtype)
    total = logsumexp_similarity(z, vectors, potential=offsets)
    # A sum is at least each of its terms; float32 rounding can violate this.
    return (total - own).clamp_min(0).mean()


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
        shapes = f"{tuple(z.shape)} and {tuple(groups.shape)}"
        raise InputError("groups", f"`z` must be (n, d) and `groups` (n,), got {shapes}.")
    weights = torch.ones_like(z[:, 0]) if weights is None else weights
    all_pairs = weights * ~torch.eye(len(z), dtype=torch.bool, device=z.device)  # (n, n): weight of j for i
    if within is not None:
        all_pairs = all_pairs * (within[:, None] == within)
    same_group = all_pairs * (groups[:, None] == groups)
    anchors = weights * (same_group.sum(1) > 0)  # a sample without another of its group cannot be compared
    all_pairs, same_group = (each / each.sum(1, keepdim=True).clamp_min(1e-12) for each in (all_pairs, same_group))
    pairs = (anchors / anchors.sum().clamp_min(1e-12))[:, None] * (all_pairs - same_group)
    return (pairs * torch.cdist(z, z)).sum()
