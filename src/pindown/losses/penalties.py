"""Penalties on a decoder or on latents: plain functions for any training loop, and values with a weight for estimators.

Dependency penalties measure the decoder's Jacobian J in standardised units, D = diag(std x)⁻¹ · J · diag(std z):
multiplying latents by ten and dividing the decoder's first weights by ten changes nothing. Zheng et al., Diverse
Dictionary Learning, penalise the same sum in raw units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from pindown.errors import InputError
from pindown.losses.jacobian import Decoder, Pushed, check_indices, derivative, pullback, pushforward

MIN_SCALE = 1e-3
"""Lower limit of the standard deviation of an observed variable, relative to the largest."""


def dependency_sparsity(
    decoder: Decoder,
    z: Tensor,
    *,
    n_columns: int | None = None,
    active: Tensor | None = None,
    z_scale: Tensor | None = None,
    x_scale: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the L1 norm of the decoder's Jacobian in standardised units, averaged over samples.

    .. math:: \frac1n \sum_{\text{samples}} \sum_{ij}
              \left|\frac{\partial g_i(z)}{\partial z_j}\right| \frac{\operatorname{std} z_j}{\operatorname{std} x_i}

    It is zero if and only if no observed variable depends on a latent. It is exact by default. With `n_columns`, each
    sample takes that many random latents with the weight d / n_columns: the expectation of value and gradient stays.

    Parameters
    ----------
    decoder
        Maps (n, d) to (n, ...). `pushforward` lists the layers that have a closed form.
    z
        Latents (n, d).
    n_columns
        Number of random latents per sample; None takes all.
    active
        Restrict the sum to these latents of each sample, int64 of shape (n, k), such as ``z.topk(k).indices`` in a
        sparse autoencoder. Nothing is computed for the others.
    z_scale, x_scale
        Standard deviations of the latents (d,) and of the observed variables (shape of a sample of x). None takes those
        of this batch, with gradients. ``torch.ones(())`` gives raw units.
    generator
        Random number generator for the choice of latents.

    Examples
    --------
    For x = (z₀ + z₁, z₁) in raw units, three entries of the Jacobian are 1:

    >>> decoder = torch.nn.Linear(2, 2, bias=False)
    >>> decoder.weight.data = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> z, raw = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)), torch.ones(())
    >>> dependency_sparsity(decoder, z, z_scale=raw, x_scale=raw).item()
    3.0

    Latents ten times as large, decoded by weights a tenth as large, have the same penalty:

    >>> before = dependency_sparsity(decoder, z)
    >>> decoder.weight.data /= 10
    >>> torch.allclose(dependency_sparsity(decoder, 10 * z), before)
    True
    """
    n, d = z.shape
    columns, weight = None, 1.0
    if active is not None:
        if n_columns is not None:
            raise InputError(
                "n_columns", "Pass either `n_columns`, which samples latents, or `active`, which names them."
            )
        check_indices("active", active, n)
        columns = active.mT
    elif n_columns is not None and n_columns != d:
        if not 1 <= n_columns <= d:
            raise InputError("n_columns", f"`n_columns` must be between 1 and d={d}, got {n_columns}.")
        columns, weight = sampled_columns(n, d, n_columns, generator, z.device), d / n_columns
    pushed = pushforward(decoder, z, columns)
    scale = (batch_scale(z) if z_scale is None else z_scale).expand(d)
    return weight * jacobian_l1(pushed, scale[:, None] if columns is None else scale[columns], x_scale)


def jacobian_l1(pushed: Pushed, z_scale: Tensor, x_scale: Tensor | None = None) -> Tensor:
    """Return the penalty of `dependency_sparsity` from columns of the Jacobian.

    For a training step that uses ``pushed.x`` anyway. `z_scale` has one number per column, shape (k, 1) or (k, n).

    Examples
    --------
    >>> pushed = pushforward(torch.nn.Identity(), torch.zeros(5, 3))
    >>> jacobian_l1(pushed, torch.ones(3, 1), torch.ones(())).item()
    3.0
    """
    x_scale = batch_scale(pushed.x) if x_scale is None else x_scale
    per_unit = (1 / x_scale).to(pushed.x).expand(pushed.x.shape[1:]).flatten()  # (m,)
    per_column = pushed.columns.abs().flatten(2) @ per_unit  # (k, n)
    return (per_column * z_scale).sum() / pushed.columns.shape[1]


def dependency_count(
    decoder: Decoder,
    z: Tensor,
    *,
    epsilon: float = 0.1,
    z_scale: Tensor | None = None,
    x_scale: Tensor | None = None,
) -> Tensor:
    r"""Return the soft number of dependencies: pairs of a latent and an observed variable that depends on it.

    .. math:: \sum_{ij} \frac{\log(1 + \overline{D_{ij}^2} / \epsilon^2)}{\log(1 + 1 / \epsilon^2)}

    D is the Jacobian in standardised units, and the mean is over samples. It is closer to the theorem than the L1 norm:
    an entry counts if it differs from zero in some sample, and counts little more if it is large. So it does not
    replace one strong dependence by several weak ones.

    Parameters
    ----------
    decoder, z, z_scale, x_scale
        As in `dependency_sparsity`.
    epsilon
        Strength, in standardised units, below which a dependence hardly counts.

    Examples
    --------
    A dependence of half the strength counts nearly as much. The L1 norms are 2 and 1.5:

    >>> decoder, raw = torch.nn.Linear(2, 2, bias=False), torch.ones(())
    >>> for strength in (1.0, 0.5):
    ...     decoder.weight.data = torch.tensor([[1.0, 0.0], [0.0, strength]])
    ...     print(round(dependency_count(decoder, torch.zeros(4, 2), z_scale=raw, x_scale=raw).item(), 2))
    2.0
    1.71
    """
    scale = (batch_scale(z) if z_scale is None else z_scale).expand(z.shape[1])
    return jacobian_count(pushforward(decoder, z), scale[:, None], x_scale, epsilon)


def jacobian_count(pushed: Pushed, z_scale: Tensor, x_scale: Tensor | None = None, epsilon: float = 0.1) -> Tensor:
    """Return the penalty of `dependency_count` from columns of the Jacobian."""
    x_scale = batch_scale(pushed.x) if x_scale is None else x_scale
    squares = (pushed.columns / x_scale).square().mean(1).flatten(1) * z_scale.square()  # (d, m)
    return _soft_count(squares, epsilon)


def _soft_count(squares: Tensor, epsilon: float) -> Tensor:
    """Return about the number of squares above ε²."""
    return torch.log1p(squares / epsilon**2).sum() / math.log1p(1 / epsilon**2)


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
    x, moved = derivative(decoder, z, direction)
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


def batch_scale(values: Tensor) -> Tensor:
    """Return the standard deviation of each variable over the samples, at least `MIN_SCALE` of the largest.

    Examples
    --------
    >>> batch_scale(torch.tensor([[0.0, 5.0], [2.0, 5.0]])).double().round(decimals=6).tolist()
    [1.0, 0.001]
    """
    if len(values) < 2:
        raise InputError(
            "z", f"Standard deviations need at least 2 samples, got {len(values)}. Pass z_scale and x_scale."
        )
    variance = values.var(0, correction=0)
    floor = (MIN_SCALE**2 * variance.detach().max()).clamp_min(torch.finfo(values.dtype).tiny)
    return variance.clamp_min(floor).sqrt()


def sampled_columns(n: int, d: int, k: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Return k different random latents for each of n samples; (k, n)."""
    if k == 1:
        return torch.randint(d, (1, n), generator=generator, device=device)
    return torch.rand(n, d, generator=generator, device=device).argsort(1)[:, :k].mT


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
    moved = derivative(decoder, z, _rademacher(n_directions, z, generator)).columns.flatten(2)  # (k, n, m)
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


class Penalty(Protocol):
    """A penalty of an autoencoder with its weight: decodes latents and returns what is added to the loss."""

    @property
    def weight(self) -> float:
        """Nats per unit of the penalty; 0 disables it."""
        ...

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z), which the likelihood needs, and the weighted penalty.

        `z` are latents (n, d). `uniform` are random numbers (n, d) in [0, 1), the only randomness of the penalty.
        """
        ...


@dataclass(frozen=True)
class _Weighted:
    """A weight that is not negative, and numbers of latents, samples and observed variables that are positive."""

    weight: float = 0.1

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not 0 <= self.weight < float("inf"):
            raise InputError("weight", f"{name}: `weight` must be finite and at least 0, got {self.weight}.")
        for argument in ("n_columns", "n_samples", "n_pixels"):
            value, least = getattr(self, argument, None), 1
            if isinstance(self, DependencyCount) and argument == "n_samples":
                least = 2
            if value is not None and value < least:
                raise InputError(argument, f"{name}: `{argument}` must be at least {least} or None, got {value}.")
        if getattr(self, "n_columns", None) is not None and getattr(self, "n_pixels", None) is not None:
            raise InputError(
                "n_pixels", f"{name}: pass either `n_columns` (latents) or `n_pixels` (observed variables)."
            )


@dataclass(frozen=True)
class DependencySparsity(_Weighted):
    """`dependency_sparsity` with a weight: few observed variables depend on each latent.

    Parameters
    ----------
    weight : float
        Nats per unit of the penalty.
    n_columns : int or None
        Number of random latents per sample, by forward mode; None takes all.
    n_samples : int or None
        Number of samples of a batch; None takes all.
    n_pixels : int or None
        Number of random observed variables per sample, by reverse mode. Costs less than `n_columns` for many latents.
        The expectation is the same for any choice.

    Examples
    --------
    Three latents of unit variance, each observed directly, make three entries of 1:

    >>> z = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    >>> DependencySparsity(weight=2.0)(torch.nn.Identity(), z, torch.zeros(z.shape))[1].item()
    6.0
    """

    n_columns: int | None = None
    n_samples: int | None = None
    n_pixels: int | None = None

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        d, k, scale, some = z.shape[1], self.n_columns, batch_scale(z), z[: self.n_samples]
        if self.n_pixels is not None:
            pulled = pullback(decoder, some, self.n_pixels, uniform[: self.n_samples, 0])
            cost = pulled.times * (pulled.gradients.abs() @ scale).sum() / len(some)
            return _decode_rest(decoder, z, pulled.x), self.weight * cost
        if k is None or k >= d:
            pushed, times = pushforward(decoder, some), scale[:, None]
        else:
            columns = uniform[: self.n_samples].argsort(1)[:, :k].mT  # (k, n)
            pushed, times = pushforward(decoder, some, columns), scale[columns] * (d / k)
        # Observations are standardised already: their scale in the data is 1, whatever it is in this batch.
        cost = self.weight * jacobian_l1(pushed, times, x_scale=torch.ones((), device=z.device))
        return _decode_rest(decoder, z, pushed.x), cost


@dataclass(frozen=True)
class DependencyCount(_Weighted):
    """`dependency_count` with a weight: few dependencies, counted whatever their strength.

    Parameters
    ----------
    weight, n_columns, n_samples, n_pixels
        As in `DependencySparsity`, but all samples of a batch share the choice. With `n_samples` it is the count of a
        smaller batch, which differs in expectation.
    epsilon : float
        Strength below which a dependence hardly counts.

    Examples
    --------
    A sharpened count is closer to the number of dependencies, here one of strength .1:

    >>> z = torch.tensor([[1.0], [-1.0]])
    >>> for penalty in (DependencyCount(weight=1.0), DependencyCount(weight=1.0).sharpened()):
    ...     print(penalty, round(penalty(lambda z: 0.1 * z, z, torch.zeros(z.shape))[1].item(), 2))
    DependencyCount(weight=1.0, epsilon=0.1, n_columns=None, n_samples=None, n_pixels=None) 0.15
    DependencyCount(weight=1.0, epsilon=0.03, n_columns=None, n_samples=None, n_pixels=None) 0.36
    """

    weight: float = 0.2
    epsilon: float = 0.1
    n_columns: int | None = None
    n_samples: int | None = None
    n_pixels: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.epsilon > 0:
            raise InputError("epsilon", f"DependencyCount: `epsilon` must be positive, got {self.epsilon}.")

    def sharpened(self) -> DependencyCount:
        """Return a count with 0.3 of the epsilon, which removes weak dependencies late in training."""
        return replace(self, epsilon=0.3 * self.epsilon)

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        (n, d), scale, one = z.shape, batch_scale(z), torch.ones((), device=z.device)
        k, n_some = min(self.n_columns or d, d), min(self.n_samples or n, n)
        if self.n_pixels is not None:
            pulled = pullback(decoder, z[:n_some], self.n_pixels, uniform[:1, 0].expand(n_some))
            squares = pulled.gradients.square().mean(1) * scale.square()  # (k, d)
            count = pulled.times * _soft_count(squares, self.epsilon)
            return _decode_rest(decoder, z, pulled.x), self.weight * count
        if k == d and n_some == n:
            pushed = pushforward(decoder, z)
            return pushed.x, self.weight * jacobian_count(pushed, scale[:, None], one, self.epsilon)
        columns = uniform[0].argsort()[:k]  # the same for all samples, since squares are averaged over them
        pushed = pushforward(decoder, z[:n_some], columns[:, None].expand(k, n_some))
        count = jacobian_count(pushed, scale[columns][:, None], one, self.epsilon)
        return _decode_rest(decoder, z, pushed.x), self.weight * (d / k) * count


@dataclass(frozen=True)
class LatentSparsity(_Weighted):
    """`latent_sparsity` with a weight, as a baseline without a theorem: few active latents in each sample."""

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        return decoder(z), self.weight * latent_sparsity(z)


@dataclass(frozen=True)
class OroJAR(_Weighted):
    """`orojar` with a weight, as a baseline without a theorem: orthogonal columns of the Jacobian."""

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        x, columns = pushforward(decoder, z)
        return x, self.weight * _gram_off_diagonal(columns)


@dataclass(frozen=True)
class HessianPenalty(_Weighted):
    """The mean of `hessian_penalty` over outputs with a weight, as a baseline without a theorem: no interactions."""

    epsilon: float = 0.1

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        # The first two binary digits of a uniform number are independent coins.
        coins = torch.stack([(2 * uniform).floor(), (4 * uniform).floor() % 2])
        x, variance = _second_difference_variance(decoder, z, 2 * coins - 1, self.epsilon)
        return x, self.weight * variance.mean()


def _decode_rest(decoder: Decoder, z: Tensor, x: Tensor) -> Tensor:
    """Return x, the decoded first latents, followed by the others."""
    return x if len(x) == len(z) else torch.cat([x, decoder(z[len(x) :])])
