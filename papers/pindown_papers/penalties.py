"""Penalties of other papers on a decoder or on latents, to compare with: no theorem about recovery covers them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pindown.errors import InputError
from pindown.losses import Penalty, pushforward
from pindown.losses.jacobian import Decoder
from pindown.losses.penalties import batch_scale


def group_lasso_sparsity(
    decoder: Decoder,
    z: Tensor,
    *,
    z_scale: Tensor | None = None,
    x_scale: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the sum of the Euclidean norms of the Jacobian's rows, from one random direction per sample.

    .. math:: \sum_i \lVert D_{i\cdot} \rVert_2 = \sqrt{\pi/2} \; \mathbb E_{v \sim N(0, I)} \sum_i |D_{i\cdot} v|

    A Gaussian direction is often used as an estimate of the L1 norm. It is not one: rotations of z leave it unchanged.
    It removes observed variables, but no single dependency.

    Examples
    --------
    >>> decoder = torch.nn.Linear(2, 1, bias=False)
    >>> decoder.weight.data = torch.tensor([[3.0, 4.0]])
    >>> z, raw = torch.zeros(200_000, 2), torch.ones(())
    >>> rng = torch.Generator().manual_seed(0)
    >>> round(group_lasso_sparsity(decoder, z, z_scale=raw, x_scale=raw, generator=rng).item(), 1)
    5.0
    """
    scale = batch_scale(z) if z_scale is None else z_scale
    direction = torch.randn(z.shape, generator=generator, dtype=z.dtype, device=z.device) * scale
    x, (moved,) = pushforward(decoder, z, direction[None])
    x_scale = batch_scale(x) if x_scale is None else x_scale
    return math.sqrt(math.pi / 2) * (moved / x_scale).abs().sum() / len(z)


def latent_sparsity(z: Tensor, *, z_scale: Tensor | None = None) -> Tensor:
    r"""Return the L1 norm of the latents in standardised units, averaged over samples, as in sparse autoencoders.

    .. math:: \frac1n \sum_{\text{samples}} \sum_j |z_j| / \operatorname{std} z_j

    Examples
    --------
    >>> latent_sparsity(torch.tensor([[1.0, -1.0], [0.0, 3.0]]), z_scale=torch.ones(())).item()
    2.5
    """
    return (z / (batch_scale(z) if z_scale is None else z_scale)).abs().sum() / len(z)


def orojar(
    decoder: Decoder, z: Tensor, *, n_directions: int | None = None, generator: torch.Generator | None = None
) -> Tensor:
    r"""Return the orthogonal Jacobian regularisation: squared inner products of different columns.

    .. math:: \frac1n \sum_{\text{samples}} \sum_{j \ne k} \bigl[J^\top J\bigr]_{jk}^2
              = \frac1{2n} \sum_{\text{samples}} \operatorname{Var}_v \lVert J v \rVert^2, \quad v \in \{-1, 1\}^d

    It is exact by default. With `n_directions`, it is half the sample variance over that many random v, which has the
    same expectation. No theorem about recovery covers it.

    References
    ----------
    Wei et al., Orthogonal Jacobian regularization for unsupervised disentanglement in image generation, ICCV 2021.

    Examples
    --------
    The columns (1, 0) and (1, 1) have the inner product 1, which counts twice:

    >>> decoder = torch.nn.Linear(2, 2, bias=False)
    >>> decoder.weight.data = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> orojar(decoder, torch.zeros(7, 2)).item()
    2.0
    """
    if n_directions is None:
        return _gram_off_diagonal(pushforward(decoder, z).columns)
    moved = pushforward(decoder, z, _rademacher(n_directions, z, generator)).columns.flatten(2)  # (k, n, m)
    return moved.square().sum(2).var(0).mean() / 2


def hessian_penalty(
    decoder: Decoder,
    z: Tensor,
    *,
    n_directions: int = 2,
    epsilon: float = 0.1,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return twice the squared off-diagonal of each output's Hessian, by finite differences; (n, ...) like x.

    .. math:: \operatorname{Var}_v \frac{g(z + \epsilon v) - 2 g(z) + g(z - \epsilon v)}{\epsilon^2}
              \approx 2 \sum_{j \ne k} H_{jk}^2, \qquad v \in \{-1, 1\}^d

    It is the sample variance over `n_directions` random v, an unbiased estimate. The paper takes two directions,
    ε = .1, and the maximum over outputs as the loss: ``hessian_penalty(decoder, z).mean(0).max()``. No theorem about
    recovery covers it.

    References
    ----------
    Peebles et al., The Hessian penalty: a weak prior for unsupervised disentanglement, ECCV 2020.

    Examples
    --------
    It estimates `exact_hessian_penalty`:

    >>> def decoder(z):
    ...     return torch.stack([z[:, 0] * z[:, 1], z[:, 0] ** 2 * z[:, 1]], dim=1)
    >>> z = torch.full((20_000, 2), 0.5, dtype=torch.float64)
    >>> hessian_penalty(decoder, z, generator=torch.Generator().manual_seed(0)).mean(0).round(decimals=1)
    tensor([4., 4.], dtype=torch.float64)
    """
    if n_directions < 2:
        raise InputError("n_directions", f"`n_directions` must be at least 2, got {n_directions}: one has no variance.")
    return _second_difference_variance(decoder, z, _rademacher(n_directions, z, generator), epsilon)[1]


def exact_hessian_penalty(decoder: Decoder, z: Tensor) -> Tensor:
    r"""Return twice the squared off-diagonal of each output's Hessian, :math:`2 \sum_{j \ne k} H_{jk}^2`; (n, ...).

    It takes d² second derivatives per sample by ``torch.func``. For a piecewise-linear decoder they are zero: only
    finite differences see its kinks.

    Examples
    --------
    The Hessians of z₀z₁ and z₀²z₁ have the off-diagonals 1 and 2z₀, so the penalties are 4 and 16 z₀²:

    >>> def decoder(z):
    ...     return torch.stack([z[:, 0] * z[:, 1], z[:, 0] ** 2 * z[:, 1]], dim=1)
    >>> exact_hessian_penalty(decoder, torch.tensor([[3.0, 7.0]])).tolist()
    [[4.0, 144.0]]
    """

    def one(sample: Tensor) -> Tensor:
        return decoder(sample[None])[0]

    hessian = torch.func.vmap(torch.func.jacrev(torch.func.jacrev(one)))(z)  # (n, ..., d, d)
    return 2 * (hessian.square().sum((-2, -1)) - hessian.diagonal(dim1=-2, dim2=-1).square().sum(-1))


def _gram_off_diagonal(columns: Tensor) -> Tensor:
    """Return the summed squared inner products of different columns (d, n, ...), averaged over samples."""
    flat = columns.flatten(2)
    inner = torch.einsum("jnm,knm->njk", flat, flat)
    # Not the sum of all minus the diagonal, which would lose all digits where columns are orthogonal.
    others = inner - torch.diag_embed(inner.diagonal(dim1=1, dim2=2))
    return others.square().sum() / flat.shape[1]


def _second_difference_variance(decoder: Decoder, z: Tensor, signs: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return decoder(z), and the variance over directions (k, n, d) of its second differences; both (n, ...)."""
    step, x = epsilon * signs, decoder(z)
    ahead, behind = (decoder((z + by).flatten(0, 1)).unflatten(0, step.shape[:2]) for by in (step, -step))
    return x, ((ahead - 2 * x + behind) / epsilon**2).var(0)


def _rademacher(k: int, z: Tensor, generator: torch.Generator | None) -> Tensor:
    bits = torch.randint(2, (k, *z.shape), generator=generator, device=z.device)
    return (2 * bits - 1).to(z.dtype)


@dataclass(frozen=True)
class LatentSparsity(Penalty):
    """`latent_sparsity` with a weight, as a baseline without a theorem: few active latents in each sample."""

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        return decoder(z), self.weight * latent_sparsity(z)


@dataclass(frozen=True)
class OroJAR(Penalty):
    """`orojar` with a weight, as a baseline without a theorem: orthogonal columns of the Jacobian."""

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        x, columns = pushforward(decoder, z)
        return x, self.weight * _gram_off_diagonal(columns)


@dataclass(frozen=True)
class HessianPenalty(Penalty):
    """The mean of `hessian_penalty` over outputs with a weight, as a baseline without a theorem: no interactions."""

    epsilon: float = 0.1

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        # The first two binary digits of a uniform number are independent coins.
        coins = torch.stack([(2 * uniform).floor(), (4 * uniform).floor() % 2])
        x, variance = _second_difference_variance(decoder, z, 2 * coins - 1, self.epsilon)
        return x, self.weight * variance.mean()
