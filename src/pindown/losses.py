"""Losses: tensors in, a scalar out, in memory that grows linearly with the batch.

Plain functions for anyone's training loop. None of them holds the batch × batch matrix, see
:mod:`pindown.pairwise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable

from pindown.pairwise import check_potential, check_power, common_precision, logsumexp_similarity

SMALL = 1 << 14
"""Scores of codes with all labels up to which they are held at once, on a CPU: 64 KB, in a third of the time."""


def infonce(
    z: Tensor,
    z_pos: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    p: float | None = None,
    potential: Tensor | None = None,
    positive_in_denominator: bool = True,
    self_negatives: bool = False,
    symmetric: bool = False,
    across_processes: bool = False,
) -> Tensor:
    r"""InfoNCE: tell each sample's partner from the partners of the other samples.

    .. math::

        -\frac1n \sum_i \log \frac{\exp(s(z_i, z_i^+)/\tau)}{\sum_j \exp(s(z_i, z_j^+)/\tau)},
        \qquad s(a, b) = a^\top b \;\text{ or }\; -\lVert a - b \rVert_p^p

    Its minimiser makes :math:`s/\tau` the log density ratio of partners to negatives, up to a constant. If pairs
    are drawn from :math:`p(\tilde z | z) \propto e^{s(z, \tilde z)/\tau}`, the encoder then inverts the mixing up
    to an isometry of s. ``log n`` minus the loss bounds the information between partners from below, in nats.

    Parameters
    ----------
    z, z_pos
        Codes of the samples and of their partners, both (n, d).
    temperature
        Divides the similarity. A tensor that requires a gradient gets one.
    p
        None for the dot product (codes on a sphere), otherwise the power of the norm (codes in R^d).
    potential
        A number for each partner, (n,), added to its similarity with every sample. At the minimum it is minus the
        log density of the partners: with it, pairs from :math:`p(\tilde z | z) \propto e^{s(z, \tilde z)/\tau}` are
        fitted whatever the marginal of the latents, which otherwise has to be uniform.
    positive_in_denominator
        Whether a sample's own partner stands in its denominator. False is the decoupled form some SimCLR
        implementations use; it is not bounded from below.
    self_negatives
        False: the negatives are the other samples' partners. True: they are all samples z_j, *each its own
        negative*, as in the public code of the paper: harmless on the sphere, but with a distance the sample is
        the nearest of all candidates to itself, which hurts when partners lie close.
    symmetric
        Average with the loss in which z and z_pos change roles.
    across_processes
        True: every process of `torch.distributed` holds rows of its own, as many as it likes, and those of all are
        candidates. The mean of the loss over processes, and the mean of the gradient, which is what
        DistributedDataParallel takes, are then those of one process with all rows. All processes have to call it,
        with the same options. Without a process group it is the plain loss.

    References
    ----------
    Zimmermann et al., Contrastive Learning Inverts the Data Generating Process, ICML 2021, eq. 1.

    Examples
    --------
    Constant codes carry no information, so the loss is log n:

    >>> round(infonce(torch.ones(4, 2), torch.ones(4, 2)).exp().item(), 3)
    4.0

    Far apart, each code finds its partner:

    >>> z = torch.tensor([[0.0], [10.0], [20.0]])
    >>> infonce(z, z, p=2).item()
    0.0
    """
    _check_pairs(z, z_pos, "infonce")
    check_power(p, "infonce")
    check_potential(potential, len(z_pos), "infonce")
    _check_temperature(temperature, "infonce")
    # The temperature is absorbed into the codes, so that its gradient comes for free: the dot product is
    # homogeneous of degree 2, the distance of degree p.
    scale = temperature ** (1 / (2 if p is None else p))
    z, z_pos = (codes / scale for codes in common_precision(z, z_pos))
    positive = _similarity(z, z_pos, p)  # (n,)
    if potential is not None:
        if symmetric or self_negatives:
            raise ValueError(
                "infonce: potential belongs to the partners alone; leave symmetric and self_negatives False."
            )
        positive = positive + potential
    share = _Share.of(z, across_processes)

    def one_way(anchor: Tensor, partner: Tensor) -> Tensor:
        if not self_negatives:
            total = logsumexp_similarity(
                anchor,
                share.gather(partner),
                p=p,
                potential=None if potential is None else share.gather(potential),
                skip_diagonal=not positive_in_denominator,
                row_offset=share.start,
            )
        else:
            total = logsumexp_similarity(anchor, share.gather(anchor), p=p)
            if positive_in_denominator:
                total = torch.logaddexp(total, positive)
        excess = total - positive
        if positive_in_denominator:
            # A sum is no less than one of its terms; in float32, with codes far apart, it may come out so.
            excess = excess.clamp_min(0)
        return share.weight * excess.mean()

    loss = one_way(z, z_pos)
    return (loss + one_way(z_pos, z)) / 2 if symmetric else loss


def align_uniform(
    z: Tensor,
    z_pos: Tensor,
    *,
    alpha: float = 0.5,
    temperature: float | Tensor = 1.0,
    p: float = 2,
    potentials: tuple[Tensor, Tensor] | None = None,
    self_negatives: bool = False,
    across_processes: bool = False,
) -> Tensor:
    r"""Alignment and uniformity: pull partners together, spread everything else.

    .. math::

        \alpha \, \mathbb E_z \log \mathbb E_{z^-} e^{-\delta(z, z^-)} + (1 - \alpha) \, \mathbb E \, \delta(z, z^+),
        \qquad \delta(a, b) = \lVert a - b \rVert_p^p / \tau

    It is :math:`\alpha L + (1 - 2\alpha) \, \mathbb E \, \delta(z, z^+)`, L being what InfoNCE less ``log n`` tends to
    with many negatives: at ``alpha=0.5`` half of it, with its minimiser. Where only near negatives count, the inner
    mean is the density of the codes times a constant, so that L is the mean of δ less the entropy of the codes; any
    other weight then scales the minimiser by :math:`(\alpha / (1 - \alpha))^{1/p}`, and does nothing else.

    A sample's partner is not among its negatives. With so few of those that the partner is the nearest of all, the
    loss has no lower bound as codes grow or the temperature falls; InfoNCE has one, and so has this with
    ``self_negatives``.

    Parameters
    ----------
    z, z_pos
        Codes of the samples and of their partners, both (n, d), n ≥ 2.
    alpha
        Weight of uniformity against alignment, between 0 and 1.
    temperature
        Divides the distances. A tensor that requires a gradient gets one.
    p
        Power of the norm.
    potentials
        A number c for each sample and for each partner, two (n,) tensors: c(z⁻) is added to the exponent of each
        negative, and uniformity less the mean of c(z⁺) takes the place of uniformity. At the minimum in c the
        partners the model expects have the law of the true ones: as `potential` does in `infonce`, it frees the
        marginal of the latents from being uniform.
    self_negatives
        Count a sample among its own negatives, as the paper's code does: then uniformity is at least −log n.
    across_processes
        As in `infonce`.

    References
    ----------
    Wang and Isola, ICML 2020; Zimmermann et al., ICML 2021, eq. 70-72.

    Examples
    --------
    Two samples at distance 2, each equal to its partner: half of log e^(−4) is −2.

    >>> z = torch.tensor([[0.0], [2.0]])
    >>> align_uniform(z, z).item()
    -2.0

    Each among its own negatives, however far apart they are: half of log(½ (1 + e^(−4))).

    >>> round(align_uniform(z, z, self_negatives=True).item(), 3), round(math.log((1 + math.exp(-4)) / 2) / 2, 3)
    (-0.337, -0.337)
    """
    _check_pairs(z, z_pos, "align_uniform")
    check_power(p, "align_uniform")
    if p is None:
        raise ValueError(
            "align_uniform: p must be the power of a norm, got None. On a sphere take p=2: ‖a − b‖² = 2 − 2aᵀb."
        )
    for potential in potentials or ():
        check_potential(potential, len(z), "align_uniform")
    if not 0 <= alpha <= 1:
        raise ValueError(f"align_uniform: alpha must be between 0 and 1, got {alpha}.")
    _check_temperature(temperature, "align_uniform")
    z, z_pos = (codes / temperature ** (1 / p) for codes in common_precision(z, z_pos))
    share = _Share.of(z, across_processes)
    if share.total < 2:
        raise ValueError("align_uniform: z has 1 row, but uniformity compares samples: give at least 2.")
    log_sum = logsumexp_similarity(
        z,
        share.gather(z),
        p=p,
        potential=None if potentials is None else share.gather(potentials[0]),
        skip_diagonal=not self_negatives,
        row_offset=share.start,
    )
    uniformity = log_sum - math.log(share.total - (not self_negatives))  # (n,)
    if potentials is not None:
        uniformity = uniformity - potentials[1]
    return share.weight * (alpha * uniformity - (1 - alpha) * _similarity(z, z_pos, p)).mean()


@dataclass(frozen=True)
class _Share:
    """Which rows of the whole batch are mine, when every process holds some."""

    sizes: tuple[int, ...]  # rows of each process
    rank: int = 0

    @classmethod
    def of(cls, rows: Tensor, across_processes: bool) -> _Share:
        if not (across_processes and distributed.is_available() and distributed.is_initialized()):
            return cls((len(rows),))
        rank = distributed.get_rank()
        sizes = torch.zeros(distributed.get_world_size(), dtype=torch.int64, device=rows.device)
        sizes[rank] = len(rows)
        distributed.all_reduce(sizes)
        return cls(tuple(sizes.tolist()), rank)

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @property
    def start(self) -> int:
        """Where my rows begin."""
        return sum(self.sizes[: self.rank])

    @property
    def weight(self) -> float:
        """What my mean must be multiplied with, so that the mean over processes is the mean over rows."""
        return self.sizes[self.rank] * len(self.sizes) / self.total

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes."""
        return rows if len(self.sizes) == 1 else _GatherRows.apply(rows, self)


class _GatherRows(torch.autograd.Function):
    """The rows of all processes one below the other; backward, what all of them have for my rows is summed."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, share: _Share) -> Tensor:
        ctx.share = share
        padded = rows.new_zeros(max(share.sizes), *rows.shape[1:])  # all must send the same number
        padded[: len(rows)] = rows
        received = [torch.empty_like(padded) for _ in share.sizes]
        distributed.all_gather(received, padded)
        return torch.cat([part[:n] for part, n in zip(received, share.sizes, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(grad)
        return grad[ctx.share.start :][: ctx.share.sizes[ctx.share.rank]], None


def _similarity(a: Tensor, b: Tensor, p: float | None) -> Tensor:
    """Similarity of each row of a with the same row of b."""
    return (a * b).sum(1) if p is None else -(a - b).abs().pow(p).sum(1)


def _check_pairs(z: Tensor, z_pos: Tensor, name: str) -> None:
    if z.ndim != 2 or z.shape != z_pos.shape or len(z) == 0:
        raise ValueError(
            f"{name}: z and z_pos must be two (n, d) tensors of one shape with n ≥ 1, row i of z_pos being the "
            f"partner of row i of z; got {tuple(z.shape)} and {tuple(z_pos.shape)}."
        )


def _check_temperature(temperature: float | Tensor, name: str) -> None:
    # A tensor is not looked at, for that would wait for the device.
    if not isinstance(temperature, Tensor) and not 0 < temperature < math.inf:
        raise ValueError(f"{name}: temperature must be positive and finite, got {temperature}.")


def cross_entropy(
    z: Tensor,
    vectors: Tensor,
    labels: Tensor,
    *,
    scale: float | Tensor = 1.0,
    offsets: Tensor | None = None,
) -> Tensor:
    r"""Softmax cross-entropy of labels whose scores are dot products with one vector per label.

    .. math::

        \frac1n \sum_i \Big[ \log \sum_c \exp(\beta\, z_i^\top w_c + b_c) - (\beta\, z_i^\top w_{y_i} + b_{y_i}) \Big]

    It equals ``torch.nn.functional.cross_entropy(scale * z @ vectors.T + offsets, labels)``, exactly and over all
    labels, but holds no (n, n_labels) matrix beyond 64 KB: a million labels take the memory of their vectors. The
    minimiser makes the scores :math:`\log p(y = c \mid x)` up to a number per sample.

    Parameters
    ----------
    z
        Codes, (n, d).
    vectors
        One vector w_c per label, (n_labels, d).
    labels
        The label of each code, (n,) int64 in 0 … n_labels − 1. They are checked only on a CPU, since to look at them
        on a GPU would wait for it.
    scale
        The number β. A tensor that requires a gradient gets one.
    offsets
        One number b_c per label, (n_labels,); none by default. For classes of unequal frequency, the logarithms of the
        frequencies.

    References
    ----------
    Reizinger et al., Cross-Entropy Is All You Need To Invert the Data Generating Process, 2024, eq. 2.

    Examples
    --------
    Codes of zero say nothing, so that each of five labels is as likely as the others:

    >>> labels = torch.tensor([0, 4])
    >>> round(cross_entropy(torch.zeros(2, 3), torch.ones(5, 3), labels).exp().item(), 3)
    5.0
    """
    _check_labels(z, vectors, labels)
    if offsets is not None and offsets.shape != (len(vectors),):
        raise ValueError(
            f"cross_entropy: offsets must have shape ({len(vectors)},), a number per row of vectors; "
            f"got {tuple(offsets.shape)}."
        )
    z, vectors = common_precision(z, vectors)
    z = scale * z
    if not z.is_cuda and len(z) * len(vectors) <= SMALL:
        scores = z @ vectors.mT if offsets is None else torch.addmm(offsets.to(z.dtype), z, vectors.mT)
        return nn.functional.cross_entropy(scores, labels)
    own = (z * vectors[labels]).sum(1)  # (n,)
    if offsets is not None:
        own = own + offsets[labels].to(own.dtype)
    total = logsumexp_similarity(z, vectors, potential=offsets)
    # A sum is no less than one of its terms; in float32 it may come out so.
    return (total - own).clamp_min(0).mean()


class _Reverse(torch.autograd.Function):
    """The identity, with a gradient of the other sign."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, strength: float | Tensor) -> Tensor:
        ctx.strength = strength
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * grad, None


def reverse_gradient(z: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    r"""Return z as it is, and let its gradient come back with the other sign, times ``strength``.

    What is minimised beyond this point is maximised before it: between an encoder and a classifier of a nuisance it
    makes the encoder hide what the classifier looks for. Ganin and Lempitsky, Unsupervised domain adaptation by
    backpropagation, ICML 2015.

    Examples
    --------
    >>> z = torch.tensor([3.0], requires_grad=True)
    >>> (2 * reverse_gradient(z, 0.5)).backward()
    >>> reverse_gradient(z).item(), z.grad.item()
    (3.0, -1.0)
    """
    return _Reverse.apply(z, strength)


def _check_labels(z: Tensor, vectors: Tensor, labels: Tensor) -> None:
    if z.ndim != 2 or vectors.ndim != 2 or z.shape[1] != vectors.shape[1] or len(z) == 0 or len(vectors) == 0:
        raise ValueError(
            "cross_entropy: z and vectors must be (n, d) and (n_labels, d) with one d, n ≥ 1 and n_labels ≥ 1; "
            f"got {tuple(z.shape)} and {tuple(vectors.shape)}."
        )
    if labels.shape != (len(z),) or labels.dtype != torch.int64:
        raise ValueError(
            f"cross_entropy: labels must be int64 of shape ({len(z)},), one for each row of z; got "
            f"{labels.dtype} of shape {tuple(labels.shape)}. Number the labels from 0 and use labels.long()."
        )
    can_look = labels.device.type == "cpu" and not torch.compiler.is_compiling()  # elsewhere it would mean to wait
    if can_look and not 0 <= int(labels.min()) <= int(labels.max()) < len(vectors):
        raise ValueError(
            f"cross_entropy: labels must lie between 0 and {len(vectors) - 1}, since vectors has {len(vectors)} rows; "
            f"they reach from {int(labels.min())} to {int(labels.max())}. Number them from 0, or give more vectors."
        )
