"""Penalties as values: what an autoencoder is asked for beside its likelihood, and how strongly.

Called as ``penalty(decoder, z, chance)`` with latents (n, d) and numbers (n, d), uniform in [0, 1), that stand for all
chance it may use, they return the decoded latents, which the likelihood needs, and the weighted penalty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pindown.penalties.dependency import batch_scale, entrywise, latent_sparsity, soft_count
from pindown.penalties.smoothness import gram_off_diagonal, second_difference_variance
from pindown.penalties.tangents import Decoder, pushforward


class Penalty(Protocol):
    """Decodes latents and says what it costs."""

    @property
    def weight(self) -> float:
        """Nats per unit of the penalty; zero: none."""
        ...

    def __call__(self, decoder: Decoder, z: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        ...


@dataclass(frozen=True)
class DependencySparsity:
    """`dependency_sparsity`: few arrows from latents to observed variables. `n_columns` of them per row, None: all.

    Examples
    --------
    Three latents of unit variance, each seen as it is, make three entries of 1:

    >>> z = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    >>> DependencySparsity(weight=2.0)(torch.nn.Identity(), z, torch.zeros(z.shape))[1].item()
    6.0
    """

    weight: float = 0.1
    n_columns: int | None = None

    def __post_init__(self) -> None:
        _check_weight(self)
        if self.n_columns is not None and self.n_columns < 1:
            raise ValueError(f"DependencySparsity: n_columns must be at least 1 or None, got {self.n_columns}.")

    def __call__(self, decoder: Decoder, z: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        d, k, scale = z.shape[1], self.n_columns, batch_scale(z)
        if k is None or k >= d:
            pushed, times = pushforward(decoder, z), scale[:, None]
        else:
            columns = chance.argsort(1)[:, :k].mT  # (k, n)
            pushed, times = pushforward(decoder, z, columns), scale[columns] * (d / k)
        # Observations are standardised already: the scale of x is 1 in the data, whatever it is in this batch.
        return pushed.x, self.weight * entrywise(pushed, times, x_scale=torch.ones((), device=z.device))


@dataclass(frozen=True)
class DependencyCount:
    """`dependency_count`: few arrows from latents to observed variables, counted and not weighed.

    Examples
    --------
    Sharpened it is nearer to the number of arrows, here one of strength .1:

    >>> z = torch.tensor([[1.0], [-1.0]])
    >>> for penalty in (DependencyCount(weight=1.0), DependencyCount(weight=1.0).sharpened()):
    ...     print(penalty, round(penalty(lambda z: 0.1 * z, z, torch.zeros(z.shape))[1].item(), 2))
    DependencyCount(weight=1.0, epsilon=0.1) 0.15
    DependencyCount(weight=1.0, epsilon=0.03) 0.36
    """

    weight: float = 0.2
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        _check_weight(self)
        if not self.epsilon > 0:
            raise ValueError(f"DependencyCount: epsilon must be positive, got {self.epsilon}.")

    def sharpened(self) -> DependencyCount:
        """Return a count that clears away weak dependencies, for codes that need not turn any more."""
        return DependencyCount(self.weight, 0.3 * self.epsilon)

    def __call__(self, decoder: Decoder, z: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        pushed = pushforward(decoder, z)
        count = soft_count(pushed, batch_scale(z)[:, None], torch.ones((), device=z.device), self.epsilon)
        return pushed.x, self.weight * count


@dataclass(frozen=True)
class LatentSparsity:
    """`latent_sparsity`: few active latents in each sample. No theorem; to compare with."""

    weight: float = 0.1

    def __post_init__(self) -> None:
        _check_weight(self)

    def __call__(self, decoder: Decoder, z: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        return decoder(z), self.weight * latent_sparsity(z)


@dataclass(frozen=True)
class OroJAR:
    """`orojar`: orthogonal columns of the Jacobian. No theorem; to compare with."""

    weight: float = 0.1

    def __post_init__(self) -> None:
        _check_weight(self)

    def __call__(self, decoder: Decoder, z: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        x, columns = pushforward(decoder, z)
        return x, self.weight * gram_off_diagonal(columns)


@dataclass(frozen=True)
class HessianPenalty:
    """`hessian_penalty`: latents that do not interact; the mean over outputs. No theorem; to compare with."""

    weight: float = 0.1
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        _check_weight(self)

    def __call__(self, decoder: Decoder, z: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        # The first two binary digits of a uniform number are independent coins.
        coins = torch.stack([(2 * chance).floor(), (4 * chance).floor() % 2])
        x, variance = second_difference_variance(decoder, z, 2 * coins - 1, self.epsilon)
        return x, self.weight * variance.mean()


def _check_weight(penalty: Penalty) -> None:
    if not 0 <= penalty.weight < float("inf"):
        raise ValueError(f"{type(penalty).__name__}: weight must be a number from 0 on, got {penalty.weight}.")
