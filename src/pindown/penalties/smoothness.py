"""Penalties that other papers compare with: orthogonal Jacobians and diagonal Hessians.

Neither removes an arrow between a latent and an observed variable, so neither comes with a theorem about recovery.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pindown.penalties.tangents import Decoder, derivative, pushforward


def orojar(
    decoder: Decoder, z: Tensor, *, n_directions: int | None = None, generator: torch.Generator | None = None
) -> Tensor:
    r"""Orthogonal Jacobian regularisation: squared inner products of different columns, the mean over rows.

    .. math:: \frac1n \sum_{\text{rows}} \sum_{j \ne k} \bigl[J^\top J\bigr]_{jk}^2
              = \frac1{2n} \sum_{\text{rows}} \operatorname{Var}_v \lVert J v \rVert^2, \quad v \in \{-1, 1\}^d

    Exact by default; with `n_directions` half the sample variance over so many random v, which has the same mean.

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
        return gram_off_diagonal(pushforward(decoder, z).columns)
    signs = _rademacher(n_directions, z, generator)
    moved = derivative(decoder, z, signs).columns.flatten(2)  # (k, n, m)
    return moved.square().sum(2).var(0).mean() / 2


def hessian_penalty(
    decoder: Decoder,
    z: Tensor,
    *,
    n_directions: int = 2,
    epsilon: float = 0.1,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Twice the squared off-diagonal of the Hessian of each output, by finite differences; (n, ...) like x.

    .. math:: \operatorname{Var}_v \frac{g(z + \epsilon v) - 2 g(z) + g(z - \epsilon v)}{\epsilon^2}
              \approx 2 \sum_{j \ne k} H_{jk}^2, \qquad v \in \{-1, 1\}^d

    The sample variance over `n_directions` random v, so that its mean is the variance. The paper takes two directions,
    ε = .1, and the largest of the outputs as the loss: ``hessian_penalty(decoder, z).mean(0).max()``.

    References
    ----------
    Peebles et al., The Hessian penalty: a weak prior for unsupervised disentanglement, ECCV 2020.

    Examples
    --------
    See `exact_hessian_penalty`, which this estimates:

    >>> def decoder(z):
    ...     return torch.stack([z[:, 0] * z[:, 1], z[:, 0] ** 2 * z[:, 1]], dim=1)
    >>> z = torch.full((20_000, 2), 0.5, dtype=torch.float64)
    >>> hessian_penalty(decoder, z, generator=torch.Generator().manual_seed(0)).mean(0).round(decimals=1)
    tensor([4., 4.], dtype=torch.float64)
    """
    if n_directions < 2:
        raise ValueError(f"n_directions must be at least 2, got {n_directions}: one has no variance.")
    return second_difference_variance(decoder, z, _rademacher(n_directions, z, generator), epsilon)[1]


def exact_hessian_penalty(decoder: Decoder, z: Tensor) -> Tensor:
    r"""Twice the squared off-diagonal of each output's Hessian, :math:`2 \sum_{j \ne k} H_{jk}^2`; (n, ...) like x.

    Takes d² second derivatives per row by ``torch.func``. A piecewise-linear decoder has none: only finite differences
    see its kinks.

    Examples
    --------
    At z the Hessians of z₀z₁ and z₀²z₁ have the off-diagonals 1 and 2z₀, so the penalties are 4 and 16 z₀²:

    >>> def decoder(z):
    ...     return torch.stack([z[:, 0] * z[:, 1], z[:, 0] ** 2 * z[:, 1]], dim=1)
    >>> exact_hessian_penalty(decoder, torch.tensor([[3.0, 7.0]])).tolist()
    [[4.0, 144.0]]
    """

    def one(row: Tensor) -> Tensor:
        return decoder(row[None])[0]

    hessian = torch.func.vmap(torch.func.jacrev(torch.func.jacrev(one)))(z)  # (n, ..., d, d)
    return 2 * (hessian.square().sum((-2, -1)) - hessian.diagonal(dim1=-2, dim2=-1).square().sum(-1))


def gram_off_diagonal(columns: Tensor) -> Tensor:
    """Return the summed squares of the inner products of different columns (d, n, ...), the mean over rows."""
    flat = columns.flatten(2)
    inner = torch.einsum("jnm,knm->njk", flat, flat)
    # Not the sum of all less that of the diagonal: where columns are orthogonal only last digits would be left.
    others = inner - torch.diag_embed(inner.diagonal(dim1=1, dim2=2))
    return others.square().sum() / flat.shape[1]


def second_difference_variance(decoder: Decoder, z: Tensor, signs: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return decoder(z), and the variance over directions (k, n, d) of its second differences; both (n, ...)."""
    step, x = epsilon * signs, decoder(z)
    ahead, behind = (decoder((z + way).flatten(0, 1)).unflatten(0, step.shape[:2]) for way in (step, -step))
    return x, ((ahead - 2 * x + behind) / epsilon**2).var(0)


def _rademacher(k: int, z: Tensor, generator: torch.Generator | None) -> Tensor:
    bits = torch.randint(2, (k, *z.shape), generator=generator, device=z.device)
    return (2 * bits - 1).to(z.dtype)
