"""Penalties as values: what an autoencoder is asked for beside its likelihood, and how strongly.

Called as ``penalty(decoder, z, chance)`` with latents (n, d) and numbers (n, d), uniform in [0, 1), that stand for all
chance it may use, they return the decoded latents, which the likelihood needs, and the weighted penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from pindown.penalties.dependency import batch_scale, entrywise, latent_sparsity, soft_count, softly_counted
from pindown.penalties.gradients import pullback
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
    """`dependency_sparsity`: few arrows from latents to observed variables.

    Of each row `n_columns` latents or `n_pixels` observed variables are taken at random, and `n_rows` of a batch; None
    takes all. Whichever are taken, the expectation is that of all. Latents are pushed forward through the decoder,
    observed variables pulled back: where latents are many, the latter costs less.

    Examples
    --------
    Three latents of unit variance, each seen as it is, make three entries of 1:

    >>> z = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    >>> DependencySparsity(weight=2.0)(torch.nn.Identity(), z, torch.zeros(z.shape))[1].item()
    6.0
    """

    weight: float = 0.1
    n_columns: int | None = None
    n_rows: int | None = None
    n_pixels: int | None = None

    def __post_init__(self) -> None:
        _check_weight(self)
        _check_counts(self, n_columns=1, n_rows=1, n_pixels=1)

    def __call__(self, decoder: Decoder, z: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        d, k, scale, some = z.shape[1], self.n_columns, batch_scale(z), z[: self.n_rows]
        if self.n_pixels is not None:
            pulled = pullback(decoder, some, self.n_pixels, chance[: self.n_rows, 0])
            cost = pulled.times * (pulled.gradients.abs() @ scale).sum() / len(some)
            return _with_others(decoder, z, pulled.x), self.weight * cost
        if k is None or k >= d:
            pushed, times = pushforward(decoder, some), scale[:, None]
        else:
            columns = chance[: self.n_rows].argsort(1)[:, :k].mT  # (k, n)
            pushed, times = pushforward(decoder, some, columns), scale[columns] * (d / k)
        # Observations are standardised already: the scale of x is 1 in the data, whatever it is in this batch.
        cost = self.weight * entrywise(pushed, times, x_scale=torch.ones((), device=z.device))
        return _with_others(decoder, z, pushed.x), cost


@dataclass(frozen=True)
class DependencyCount:
    """`dependency_count`: few arrows from latents to observed variables, counted and not weighed.

    Of each batch `n_columns` latents or `n_pixels` observed variables are taken at random, the same for all its rows,
    and `n_rows` of them; None takes all. Over latents and observed variables the expectation is that of all; of fewer
    rows it is the count of a smaller batch.

    Examples
    --------
    Sharpened it is nearer to the number of arrows, here one of strength .1:

    >>> z = torch.tensor([[1.0], [-1.0]])
    >>> for penalty in (DependencyCount(weight=1.0), DependencyCount(weight=1.0).sharpened()):
    ...     print(penalty, round(penalty(lambda z: 0.1 * z, z, torch.zeros(z.shape))[1].item(), 2))
    DependencyCount(weight=1.0, epsilon=0.1, n_columns=None, n_rows=None, n_pixels=None) 0.15
    DependencyCount(weight=1.0, epsilon=0.03, n_columns=None, n_rows=None, n_pixels=None) 0.36
    """

    weight: float = 0.2
    epsilon: float = 0.1
    n_columns: int | None = None
    n_rows: int | None = None
    n_pixels: int | None = None

    def __post_init__(self) -> None:
        _check_weight(self)
        _check_counts(self, n_columns=1, n_rows=2, n_pixels=1)
        if not self.epsilon > 0:
            raise ValueError(f"DependencyCount: epsilon must be positive, got {self.epsilon}.")

    def sharpened(self) -> DependencyCount:
        """Return a count that clears away weak dependencies, for codes that need not turn any more."""
        return replace(self, epsilon=0.3 * self.epsilon)

    def __call__(self, decoder: Decoder, z: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder(z) and the weighted penalty."""
        (n, d), scale, one = z.shape, batch_scale(z), torch.ones((), device=z.device)
        k, rows = min(self.n_columns or d, d), min(self.n_rows or n, n)
        if self.n_pixels is not None:
            pulled = pullback(decoder, z[:rows], self.n_pixels, chance[:1, 0].expand(rows))
            squares = pulled.gradients.square().mean(1) * scale.square()  # (k, d)
            count = pulled.times * softly_counted(squares, self.epsilon)
            return _with_others(decoder, z, pulled.x), self.weight * count
        if k == d and rows == n:
            pushed = pushforward(decoder, z)
            return pushed.x, self.weight * soft_count(pushed, scale[:, None], one, self.epsilon)
        columns = chance[0].argsort()[:k]  # the same for all rows, over which squares are averaged
        pushed = pushforward(decoder, z[:rows], columns[:, None].expand(k, rows))
        count = soft_count(pushed, scale[columns][:, None], one, self.epsilon)
        return _with_others(decoder, z, pushed.x), self.weight * (d / k) * count


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


def _with_others(decoder: Decoder, z: Tensor, x: Tensor) -> Tensor:
    """Return the decoded latents: those whose derivatives were taken, and the rest."""
    return x if len(x) == len(z) else torch.cat([x, decoder(z[len(x) :])])


def _check_counts(penalty: Penalty, **least: int) -> None:
    for name, fewest in least.items():
        value = getattr(penalty, name)
        if value is not None and value < fewest:
            raise ValueError(f"{type(penalty).__name__}: {name} must be at least {fewest} or None, got {value}.")
    if getattr(penalty, "n_columns", None) is not None and getattr(penalty, "n_pixels", None) is not None:
        raise ValueError(
            f"{type(penalty).__name__}: n_columns pushes latents forward, n_pixels pulls observed variables back: give "
            "one of the two."
        )


def _check_weight(penalty: Penalty) -> None:
    if not 0 <= penalty.weight < float("inf"):
        raise ValueError(f"{type(penalty).__name__}: weight must be a number from 0 on, got {penalty.weight}.")
