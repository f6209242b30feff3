"""InfoNCE, and alignment with uniformity: contrastive losses of pairs, in memory linear in the batch size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from pindown.errors import InputError
from pindown.losses.pairwise import check_potential, check_power, common_precision, logsumexp_similarity


def infonce(
    z: Tensor,
    z_pos: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    p: float | None = None,
    potential: Tensor | None = None,
    positive_in_denominator: bool = True,
    self_negatives: bool = False,
    across_processes: bool = False,
) -> Tensor:
    r"""Return the InfoNCE loss: classify each sample's positive among the positives of all samples.

    .. math::

        -\frac1n \sum_i \log \frac{\exp(s(z_i, z_i^+)/\tau)}{\sum_j \exp(s(z_i, z_j^+)/\tau)},
        \qquad s(a, b) = a^\top b \;\text{ or }\; -\lVert a - b \rVert_p^p

    At the minimum, :math:`s/\tau` is the log density ratio of positives to negatives, up to a constant. If pairs are
    drawn from :math:`p(\tilde z | z) \propto e^{s(z, \tilde z)/\tau}`, the encoder then inverts the mixing up to an
    isometry of s. ``log n`` minus the loss is a lower bound on the mutual information of a pair, in nats. For a
    symmetric loss, average with ``infonce(z_pos, z)``.

    Parameters
    ----------
    z, z_pos
        Latents of the samples and of their positives, both (n, d).
    temperature
        Divides the similarity. A tensor that requires a gradient gets one.
    p
        None for the dot product (latents on a sphere), otherwise the power of the norm (latents in R^d).
    potential
        One number per positive, (n,), added to its similarity with every sample. At the minimum it is minus the log
        density of the positives. Without a potential the marginal of the latents has to be uniform; with one, pairs
        from :math:`p(\tilde z | z) \propto e^{s(z, \tilde z)/\tau}` are fitted whatever their marginal.
    positive_in_denominator
        Whether the denominator includes the sample's own positive. False gives the decoupled form of some SimCLR
        implementations, which has no lower bound.
    self_negatives
        False: the negatives are the positives of the other samples. True: the negatives are all samples z_j,
        including the sample itself, as in the public code of the paper. This is harmless on the sphere. With a
        distance, each sample is its own nearest candidate, which hurts when positives are close.
    across_processes
        True: every process of `torch.distributed` holds its own samples, and the samples of all processes are
        candidates. Loss and gradient, averaged over processes as DistributedDataParallel does, equal those of one
        process with all samples. All processes have to call this function with the same options. The option has no
        effect without a process group.

    References
    ----------
    Zimmermann et al., Contrastive Learning Inverts the Data Generating Process, ICML 2021, eq. 1.

    Examples
    --------
    Constant latents carry no information, so the loss is log n:

    >>> round(infonce(torch.ones(4, 2), torch.ones(4, 2)).exp().item(), 3)
    4.0

    If latents are far apart, each positive is recognised:

    >>> z = torch.tensor([[0.0], [10.0], [20.0]])
    >>> infonce(z, z, p=2).item()
    0.0
    """
    z, z_pos = _scaled(z, z_pos, temperature, p)
    check_potential(potential, len(z_pos))
    positive = _similarity(z, z_pos, p)  # (n,)
    if potential is not None:
        if self_negatives:
            raise InputError("potential", "`potential` applies to positives only. Leave `self_negatives` False.")
        positive = positive + potential
    batch = _ProcessBatch.of(z, across_processes)
    if self_negatives:
        total = logsumexp_similarity(z, batch.gather(z), p=p)
        if positive_in_denominator:
            total = torch.logaddexp(total, positive)
    else:
        potential = None if potential is None else batch.gather(potential)
        diagonal = None if positive_in_denominator else batch.start
        total = logsumexp_similarity(z, batch.gather(z_pos), p=p, potential=potential, diagonal=diagonal)
    excess = total - positive
    if positive_in_denominator:
        # A sum is at least each of its terms; float32 rounding can violate this for latents far apart.
        excess = excess.clamp_min(0)
    return batch.weight * excess.mean()


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
    r"""Return the alignment and uniformity loss: attract positives, repel all other samples.

    .. math::

        \alpha \, \mathbb E_z \log \mathbb E_{z^-} e^{-\delta(z, z^-)} + (1 - \alpha) \, \mathbb E \, \delta(z, z^+),
        \qquad \delta(a, b) = \lVert a - b \rVert_p^p / \tau

    It equals :math:`\alpha L + (1 - 2\alpha) \, \mathbb E \, \delta(z, z^+)`, where L is the limit of InfoNCE minus
    ``log n`` for many negatives. At ``alpha=0.5`` it is half of L and has its minimiser. If only near negatives
    matter, L is the mean of δ minus the entropy of the latents. Another weight then only scales the minimiser by
    :math:`(\alpha / (1 - \alpha))^{1/p}`.

    The positive of a sample is not among its negatives. If positives are closer than all negatives, the loss has no
    lower bound as latents grow or the temperature falls. InfoNCE has one, and so has this loss with
    ``self_negatives``.

    Parameters
    ----------
    z, z_pos
        Latents of the samples and of their positives, both (n, d), n ≥ 2.
    alpha
        Weight of uniformity, between 0 and 1. Alignment has the weight 1 − alpha.
    temperature
        Divides the distances. A tensor that requires a gradient gets one.
    p
        Power of the norm.
    potentials
        One number c per sample and per positive, two (n,) tensors. c(z⁻) is added to the exponent of each negative,
        and the mean of c(z⁺) is subtracted from uniformity. Like `potential` in `infonce`, it allows marginals of
        the latents that are not uniform: at the minimum in c, the positives that the model expects have the
        distribution of the true ones.
    self_negatives
        Count a sample among its own negatives, as the paper's code does: then uniformity is at least −log n.
    across_processes
        As in `infonce`.

    References
    ----------
    Wang and Isola, ICML 2020; Zimmermann et al., ICML 2021, eq. 70-72.

    Examples
    --------
    Two samples at distance 2, each equal to its positive: half of log e^(−4) is −2.

    >>> z = torch.tensor([[0.0], [2.0]])
    >>> align_uniform(z, z).item()
    -2.0

    With each sample among its own negatives: half of log(½ (1 + e^(−4))).

    >>> round(align_uniform(z, z, self_negatives=True).item(), 3), round(math.log((1 + math.exp(-4)) / 2) / 2, 3)
    (-0.337, -0.337)
    """
    if p is None:
        raise InputError("p", "`p` must be the power of a norm, got None. On a sphere take `p=2`: ‖a − b‖² = 2 − 2aᵀb.")
    for each in potentials or ():
        check_potential(each, len(z))
    if not 0 <= alpha <= 1:
        raise InputError("alpha", f"`alpha` must be between 0 and 1, got {alpha}.")
    z, z_pos = _scaled(z, z_pos, temperature, p)
    batch = _ProcessBatch.of(z, across_processes)
    if batch.total < 2:
        raise InputError("z", "`z` has 1 sample, but uniformity compares samples. Pass at least 2.")
    potential = None if potentials is None else batch.gather(potentials[0])
    diagonal = None if self_negatives else batch.start
    log_sum = logsumexp_similarity(z, batch.gather(z), p=p, potential=potential, diagonal=diagonal)
    uniformity = log_sum - math.log(batch.total - (not self_negatives))  # (n,)
    if potentials is not None:
        uniformity = uniformity - potentials[1]
    return batch.weight * (alpha * uniformity - (1 - alpha) * _similarity(z, z_pos, p)).mean()


@dataclass(frozen=True)
class _ProcessBatch:
    """The samples of this process within the batch of all processes."""

    sizes: tuple[int, ...]  # number of samples of each process
    rank: int = 0

    @classmethod
    def of(cls, samples: Tensor, across_processes: bool) -> _ProcessBatch:
        if not (across_processes and distributed.is_available() and distributed.is_initialized()):
            return cls((len(samples),))
        rank = distributed.get_rank()
        sizes = torch.zeros(distributed.get_world_size(), dtype=torch.int64, device=samples.device)
        sizes[rank] = len(samples)
        distributed.all_reduce(sizes)
        return cls(tuple(sizes.tolist()), rank)

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @property
    def start(self) -> int:
        """Index of the first sample of this process."""
        return sum(self.sizes[: self.rank])

    @property
    def weight(self) -> float:
        """Factor of this process's mean, such that the mean over processes is the mean over samples."""
        return self.sizes[self.rank] * len(self.sizes) / self.total

    def gather(self, samples: Tensor) -> Tensor:
        """Return the samples of all processes; gradients are summed over processes."""
        if len(self.sizes) == 1:
            return samples
        from torch.distributed.nn.functional import all_gather  # not there in a torch without distributed training

        n_missing = max(self.sizes) - len(samples)  # all processes must send the same number
        padded = torch.cat([samples, samples.new_zeros(n_missing, *samples.shape[1:])])
        return torch.cat([part[:n] for part, n in zip(all_gather(padded), self.sizes, strict=True)])


def _similarity(a: Tensor, b: Tensor, p: float | None) -> Tensor:
    """Return s(a_i, b_i) for each i; (n,)."""
    return (a * b).sum(1) if p is None else -(a - b).abs().pow(p).sum(1)


def _scaled(z: Tensor, z_pos: Tensor, temperature: float | Tensor, p: float | None) -> tuple[Tensor, Tensor]:
    """Return latents that absorb the temperature: the dot product has degree 2, the distance degree p."""
    if z.ndim != 2 or z.shape != z_pos.shape or len(z) == 0:
        shapes = f"{tuple(z.shape)} and {tuple(z_pos.shape)}"
        raise InputError("z_pos", f"`z` and `z_pos` must have the same shape (n, d) with n ≥ 1; got {shapes}.")
    check_power(p)
    # The value of a tensor is not checked: reading it would wait for the device.
    if not isinstance(temperature, Tensor) and not 0 < temperature < math.inf:
        raise InputError("temperature", f"`temperature` must be positive and finite, got {temperature}.")
    scale = temperature ** (1 / (2 if p is None else p))
    z, z_pos = common_precision(z, z_pos)
    return z / scale, z_pos / scale
