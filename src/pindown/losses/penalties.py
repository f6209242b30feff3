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
from pindown.losses.jacobian import Decoder, pushforward

MIN_SCALE = 1e-3  # lower limit of the standard deviation of an observed variable, relative to the largest


def dependency_sparsity(
    decoder: Decoder, z: Tensor, *, z_scale: Tensor | None = None, x_scale: Tensor | None = None
) -> Tensor:
    r"""Return the L1 norm of the decoder's Jacobian in standardised units, averaged over samples.

    .. math:: \frac1n \sum_{\text{samples}} \sum_{ij}
              \left|\frac{\partial g_i(z)}{\partial z_j}\right| \frac{\operatorname{std} z_j}{\operatorname{std} x_i}

    It is zero if and only if no observed variable depends on a latent.

    Parameters
    ----------
    decoder
        Maps (n, d) to (n, ...). `pushforward` lists the layers that have a closed form.
    z
        Latents (n, d).
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
    """
    return _l1_norm(_standardised(decoder, z, z_scale, x_scale))


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
    return _soft_count(_standardised(decoder, z, z_scale, x_scale), epsilon)


def _standardised(decoder: Decoder, z: Tensor, z_scale: Tensor | None, x_scale: Tensor | None) -> Tensor:
    """Return the columns of the Jacobian in standardised units, (d, n, m)."""
    z_scale = batch_scale(z) if z_scale is None else z_scale
    x, columns = pushforward(decoder, z)
    x_scale = batch_scale(x) if x_scale is None else x_scale
    return (columns / x_scale).flatten(2) * z_scale.expand(z.shape[1])[:, None, None]


def _l1_norm(columns: Tensor) -> Tensor:
    return columns.abs().sum() / columns.shape[1]


def _soft_count(columns: Tensor, epsilon: float) -> Tensor:
    """Return about the number of root mean squares above ε."""
    return torch.log1p(columns.square().mean(1) / epsilon**2).sum() / math.log1p(1 / epsilon**2)


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
class DependencySparsity(Penalty):
    """`dependency_sparsity` with a weight: few observed variables depend on each latent.

    Parameters
    ----------
    weight : float
        Nats per unit of the penalty.
    n_columns : int or None
        Number of random latents per sample; None takes all. The expectation is the same.
    n_samples : int or None
        Number of samples of a batch; None takes all.

    Examples
    --------
    Three latents of unit variance, each observed directly, make three entries of 1:

    >>> z = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    >>> DependencySparsity(weight=2.0)(torch.nn.Identity(), z, torch.zeros(z.shape))[1].item()
    6.0
    """

    n_columns: int | None = field(default=None, kw_only=True)
    n_samples: int | None = field(default=None, kw_only=True)
    min_samples: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, minimum in (("n_columns", 1), ("n_samples", self.min_samples)):
            if (value := getattr(self, name)) is not None and value < minimum:
                raise InputError(name, f"`{name}` must be at least {minimum} or None, got {value}.")

    def __call__(self, decoder: Decoder, z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        some, scale = z[: self.n_samples], batch_scale(z)[:, None]
        chosen, k = None, z.shape[1]
        if self.n_columns is not None and self.n_columns < k:
            k = self.n_columns
            chosen = self._ordered(uniform[: len(some)])[:, :k].mT  # (k, n)
            scale = scale[:, 0][chosen]
        # Observations are standardised already: their scale in the data is 1, whatever it is in this batch.
        x, columns = pushforward(decoder, some, chosen)
        cost = self.weight * (z.shape[1] / k) * self._size(columns.flatten(2) * scale[..., None])
        return x if len(x) == len(z) else torch.cat([x, decoder(z[len(x) :])]), cost

    def _ordered(self, uniform: Tensor) -> Tensor:
        """Return a random order of the latents for each sample, (n, d)."""
        return uniform.argsort(1)

    def _size(self, columns: Tensor) -> Tensor:
        """Return the penalty of standardised columns (k, n, m), without its weight."""
        return _l1_norm(columns)


@dataclass(frozen=True)
class DependencyCount(DependencySparsity):
    """`dependency_count` with a weight: few dependencies, counted whatever their strength.

    Parameters
    ----------
    weight, n_columns, n_samples
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

    def _ordered(self, uniform: Tensor) -> Tensor:
        return uniform[:1].argsort(1).expand(uniform.shape)  # the same for all, since squares are averaged over samples

    def _size(self, columns: Tensor) -> Tensor:
        return _soft_count(columns, self.epsilon)
