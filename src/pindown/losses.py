"""Losses: tensors in, a scalar out, in memory that grows linearly with the batch.

Plain functions for anyone's training loop. None of them holds the batch × batch matrix, see
:mod:`pindown.pairwise`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pindown.pairwise import check_potential, check_power, common_precision, logsumexp_similarity


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
) -> Tensor:
    r"""InfoNCE: tell each sample's partner from the partners of the other samples.

    .. math::

        -\frac1n \sum_i \log \frac{\exp(s(z_i, z_i^+)/\tau)}{\sum_j \exp(s(z_i, z_j^+)/\tau)},
        \qquad s(a, b) = a^\top b \;\text{ or }\; -\lVert a - b \rVert_p^p

    Its minimiser makes :math:`s/\tau` the log density ratio of partners to strangers, up to a constant. If pairs
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
    if not isinstance(temperature, Tensor) and not 0 < temperature < math.inf:
        raise ValueError(f"infonce: temperature must be positive and finite, got {temperature}.")
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

    def one_way(anchor: Tensor, partner: Tensor) -> Tensor:
        if not self_negatives:
            skip = not positive_in_denominator
            total = logsumexp_similarity(anchor, partner, p=p, potential=potential, skip_diagonal=skip)
        else:
            total = logsumexp_similarity(anchor, anchor, p=p)
            if positive_in_denominator:
                total = torch.logaddexp(total, positive)
        if positive_in_denominator:
            # A sum is no less than one of its terms; in float32, with codes far apart, it may come out so.
            total = torch.maximum(total, positive)
        return (total - positive).mean()

    loss = one_way(z, z_pos)
    return (loss + one_way(z_pos, z)) / 2 if symmetric else loss


def align_uniform(z: Tensor, z_pos: Tensor, *, alpha: float = 0.5, p: float = 2) -> Tensor:
    r"""Alignment and uniformity: pull partners together, spread everything else.

    .. math::

        \alpha \, \mathbb E_z \log \mathbb E_{z^-} e^{-\lVert z - z^- \rVert_p^p}
        + (1 - \alpha) \, \mathbb E \lVert z - z^+ \rVert_p^p

    At ``alpha=0.5`` it is half of what InfoNCE tends to with many negatives.

    Parameters
    ----------
    z, z_pos
        Codes of the samples and of their partners, both (n, d), n ≥ 2.
    alpha
        Weight of uniformity against alignment, between 0 and 1.
    p
        Power of the norm.

    References
    ----------
    Wang and Isola, ICML 2020; Zimmermann et al., ICML 2021, eq. 70-72.

    Examples
    --------
    Two samples at distance 2, each equal to its partner: half of log e^(−4) is −2.

    >>> z = torch.tensor([[0.0], [2.0]])
    >>> align_uniform(z, z).item()
    -2.0
    """
    _check_pairs(z, z_pos, "align_uniform")
    check_power(p, "align_uniform")
    if len(z) < 2:
        raise ValueError("align_uniform: z has 1 row, but uniformity compares samples: give at least 2.")
    if not 0 <= alpha <= 1:
        raise ValueError(f"align_uniform: alpha must be between 0 and 1, got {alpha}.")
    z, z_pos = common_precision(z, z_pos)
    log_mean = logsumexp_similarity(z, z, p=p, skip_diagonal=True) - math.log(len(z) - 1)
    return alpha * log_mean.mean() - (1 - alpha) * _similarity(z, z_pos, p).mean()


def _similarity(a: Tensor, b: Tensor, p: float | None) -> Tensor:
    """Similarity of each row of a with the same row of b."""
    return (a * b).sum(1) if p is None else -(a - b).abs().pow(p).sum(1)


def _check_pairs(z: Tensor, z_pos: Tensor, name: str) -> None:
    if z.ndim != 2 or z.shape != z_pos.shape or len(z) == 0:
        raise ValueError(
            f"{name}: z and z_pos must be two (n, d) tensors of one shape with n ≥ 1, row i of z_pos being the "
            f"partner of row i of z; got {tuple(z.shape)} and {tuple(z_pos.shape)}."
        )
