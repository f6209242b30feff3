"""Softmax cross-entropy with one vector per label, in memory linear in the numbers of samples and of labels."""

from __future__ import annotations

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
    _check_labels(z, vectors, labels)
    if offsets is not None and offsets.shape != (len(vectors),):
        raise InputError(
            "offsets",
            f"`offsets` must have shape ({len(vectors)},), one number per label; got {tuple(offsets.shape)}.",
        )
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


def _check_labels(z: Tensor, vectors: Tensor, labels: Tensor) -> None:
    if z.ndim != 2 or vectors.ndim != 2 or z.shape[1] != vectors.shape[1] or len(z) == 0 or len(vectors) == 0:
        raise InputError(
            "vectors",
            "`z` and `vectors` must be (n, d) and (n_labels, d) with the same d, n ≥ 1 and n_labels ≥ 1; "
            f"got {tuple(z.shape)} and {tuple(vectors.shape)}.",
        )
    if labels.shape != (len(z),) or labels.dtype != torch.int64:
        raise InputError(
            "labels",
            f"`labels` must be int64 of shape ({len(z)},), one per sample; got {labels.dtype} of shape "
            f"{tuple(labels.shape)}. Number the labels from 0 and use labels.long().",
        )
    readable = labels.device.type == "cpu" and not torch.compiler.is_compiling()
    if readable and not 0 <= int(labels.min()) <= int(labels.max()) < len(vectors):
        raise InputError(
            "labels",
            f"`labels` must be between 0 and {len(vectors) - 1}, since there are {len(vectors)} vectors; got values "
            f"from {int(labels.min())} to {int(labels.max())}. Number the labels from 0, or pass more vectors.",
        )
