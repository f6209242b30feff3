"""Penalties on a decoder: plain functions for any training loop, and values with a weight for estimators.

They measure the decoder's Jacobian J in standardised units, D = diag(std x)⁻¹ · J · diag(std z), so that rescaling the
latents changes nothing. Zheng et al., Diverse Dictionary Learning, penalise the same sum in raw units.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from pindown.errors import InputError
from pindown.losses.jacobian import Decoder, Pushed, check_indices, pullback, pushforward

MIN_SCALE = 1e-3
"""Lower limit of the standard deviation of an observed variable, relative to the largest."""


def dependency_sparsity(
    decoder: Decoder,
    z: Tensor,
    *,
    active: Tensor | None = None,
    z_scale: Tensor | None = None,
    x_scale: Tensor | None = None,
) -> Tensor:
    r"""Return the L1 norm of the decoder's Jacobian in standardised units, averaged over samples.

    .. math:: \frac1n \sum_{\text{samples}} \sum_{ij}
              \left|\frac{\partial g_i(z)}{\partial z_j}\right| \frac{\operatorname{std} z_j}{\operatorname{std} x_i}

    It is zero if and only if no observed variable depends on a latent. `DependencySparsity` estimates it from random
    latents or observed variables.

    Parameters
    ----------
    decoder
        Maps (n, d) to (n, ...). `pushforward` lists the layers that have a closed form.
    z
        Latents (n, d).
    active
        Restrict the sum to these latents of each sample, int64 of shape (n, k), such as ``z.topk(k).indices`` in a
        sparse autoencoder. Nothing is computed for the others.
    z_scale, x_scale
        Standard deviations of the latents (d,) and of the observed variables (shape of a sample of x). None takes those
        of this batch, with gradients. ``torch.ones(())`` gives raw units.

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
    if active is not None:
        check_indices("active", active, n)
    pushed = pushforward(decoder, z, None if active is None else active.mT)
    scale = (batch_scale(z) if z_scale is None else z_scale).expand(d)
    return _l1(pushed, scale[:, None] if active is None else scale[active.mT], x_scale)


def _l1(pushed: Pushed, z_scale: Tensor, x_scale: Tensor | None) -> Tensor:
    """Return the L1 norm of columns of the Jacobian; `z_scale` has one number per column, (k, 1) or (k, n)."""
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
    x, columns = pushforward(decoder, z)
    x_scale = batch_scale(x) if x_scale is None else x_scale
    squares = (columns / x_scale).square().mean(1).flatten(1) * scale[:, None].square()  # (d, m)
    return _soft_count(squares, epsilon)


def _soft_count(squares: Tensor, epsilon: float) -> Tensor:
    """Return about the number of squares above ε²."""
    return torch.log1p(squares / epsilon**2).sum() / math.log1p(1 / epsilon**2)


def batch_scale(values: Tensor) -> Tensor:
    """Return the standard deviation of each variable over the samples, at least `MIN_SCALE` of the largest."""
    if len(values) < 2:
        raise InputError(
            "z", f"Standard deviations need at least 2 samples, got {len(values)}. Pass z_scale and x_scale."
        )
    variance = values.var(0, correction=0)
    floor = (MIN_SCALE**2 * variance.detach().max()).clamp_min(torch.finfo(values.dtype).tiny)
    return variance.clamp_min(floor).sqrt()


@dataclass(frozen=True)
class Penalty(ABC):
    """Abstract penalty of an autoencoder: called in each step, it returns what is added to the loss.

    Parameters
    ----------
    weight : float
        Nats per unit of the penalty; 0 disables it.
    """

    weight: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise InputError("weight", f"`weight` must be finite and at least 0, got {self.weight}.")

    @abstractmethod
    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty at latents z (n, d), with random numbers (n, d) in [0, 1)."""


@dataclass(frozen=True)
class _DependencyPenalty(Penalty):
    """A penalty on some entries of the Jacobian."""

    n_columns: int | None = field(default=None, kw_only=True)
    n_samples: int | None = field(default=None, kw_only=True)
    n_pixels: int | None = field(default=None, kw_only=True)
    min_samples: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, minimum in (("n_columns", 1), ("n_samples", self.min_samples), ("n_pixels", 1)):
            if (value := getattr(self, name)) is not None and value < minimum:
                raise InputError(name, f"`{name}` must be at least {minimum} or None, got {value}.")
        if self.n_columns is not None and self.n_pixels is not None:
            raise InputError("n_pixels", "Pass either `n_columns` (latents) or `n_pixels` (observed variables).")

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        x, cost = self._cost(decoder, z[: self.n_samples], batch_scale(z), uniform[: self.n_samples])
        return x if len(x) == len(z) else torch.cat([x, decoder(z[len(x) :])]), cost

    @abstractmethod
    def _cost(self, decoder: Decoder, z: Tensor, scale: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty, for latents whose standard deviations (d,) are given."""


@dataclass(frozen=True)
class DependencySparsity(_DependencyPenalty):
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

    def _cost(self, decoder: Decoder, z: Tensor, scale: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        if self.n_pixels is not None:
            x, gradients, times = pullback(decoder, z, self.n_pixels, uniform[:, 0])
            return x, self.weight * (times * (gradients.abs() @ scale).sum() / len(z))
        d, columns, per_column = z.shape[1], None, scale[:, None]
        if self.n_columns is not None and self.n_columns < d:
            columns = uniform.argsort(1)[:, : self.n_columns].mT  # (k, n)
            per_column = scale[columns] * (d / self.n_columns)
        pushed = pushforward(decoder, z, columns)
        # Observations are standardised already: their scale in the data is 1, whatever it is in this batch.
        return pushed.x, self.weight * _l1(pushed, per_column, torch.ones((), device=z.device))


@dataclass(frozen=True)
class DependencyCount(_DependencyPenalty):
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
    >>> for penalty in (DependencyCount(), DependencyCount().sharpened()):
    ...     print(penalty.epsilon, round(penalty(lambda z: 0.1 * z, z, torch.zeros(z.shape))[1].item(), 2))
    0.1 0.03
    0.03 0.07
    """

    weight: float = 0.2
    epsilon: float = 0.1
    min_samples: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.epsilon > 0:
            raise InputError("epsilon", f"`epsilon` must be positive, got {self.epsilon}.")

    def sharpened(self) -> DependencyCount:
        """Return a count with 0.3 of the epsilon, which removes weak dependencies late in training."""
        return replace(self, epsilon=0.3 * self.epsilon)

    def _cost(self, decoder: Decoder, z: Tensor, scale: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        n, d = z.shape
        if self.n_pixels is not None:
            x, gradients, times = pullback(decoder, z, self.n_pixels, uniform[:1, 0].expand(n))
            squares = gradients.square().mean(1) * scale.square()  # (k, d)
            return x, self.weight * (times * _soft_count(squares, self.epsilon))
        columns, k = None, d
        if self.n_columns is not None and self.n_columns < d:
            k = self.n_columns
            chosen = uniform[0].argsort()[:k]  # the same for all samples, since squares are averaged over them
            columns, scale = chosen[:, None].expand(k, n), scale[chosen]
        x, pushed = pushforward(decoder, z, columns)
        squares = pushed.square().mean(1).flatten(1) * scale[:, None].square()  # (k, m)
        return x, self.weight * (d / k) * _soft_count(squares, self.epsilon)
