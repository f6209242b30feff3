"""Distributions on a grid, as in the image sets of the field: a marginal, positives by UNI and LAP, categories.

A factor of K values is the latent (i + ½) / K between 0 and 1, i = 0, …, K − 1, so that a renderer draws it as it draws
continuous ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pindown._random import Device, RandomState, generator
from pindown.errors import InputError
from pindown.networks.spaces import Box
from pindown.simulate.distributions import Conditional, Marginal, cached_tensor


@dataclass(frozen=True)
class Grid:
    """The uniform marginal of a grid.

    Parameters
    ----------
    sizes : tuple of int
        The number of values of each factor.

    Examples
    --------
    >>> grid = Grid((2, 4))
    >>> z = grid.sample(1_000, random_state=0)
    >>> sorted(set(z[:, 1].tolist())), grid.labels(z).amax(0).tolist()
    ([0.125, 0.375, 0.625, 0.875], [1, 3])
    """

    sizes: tuple[int, ...]
    space: ClassVar[Box] = Box()

    def __post_init__(self) -> None:
        _check_sizes(self.sizes)

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    def sample(
        self, n: int, *, random_state: RandomState = None, device: Device = "cpu", dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Draw n points; returns (n, d)."""
        rng = generator(random_state, device)
        return _snapped(torch.rand(n, self.d, generator=rng, device=device, dtype=dtype), self.sizes)

    def labels(self, z: Tensor) -> Tensor:
        """Return which value of its factor each latent is; (n, d) → (n, d), int64."""
        return _numbers(z, self.sizes).long()


@dataclass(frozen=True)
class SomeChange:
    """UNI: some factors, drawn at random, take a new value uniformly; the others stay.

    Parameters
    ----------
    n_changed : int, optional
        How many change; by default 1 to d − 1 of them, each number equally likely.
    sizes : tuple of int, optional
        The numbers of values, on a grid; by default factors are continuous.

    Examples
    --------
    >>> z = torch.full((1_000, 4), 0.5)
    >>> (SomeChange(n_changed=1).sample(z, random_state=0) != z).sum(1).unique().tolist()
    [1]
    """

    n_changed: int | None = None
    sizes: tuple[int, ...] | None = None
    space: ClassVar[Box] = Box()

    def __post_init__(self) -> None:
        if self.n_changed is not None and self.n_changed < 1:
            raise InputError("n_changed", f"n_changed must be at least 1, got {self.n_changed}.")
        if self.sizes is not None:
            _check_sizes(self.sizes)
            self._check_count(len(self.sizes))

    def sample(self, loc: Tensor, *, random_state: RandomState = None) -> Tensor:
        """Draw one point around each row of loc; (n, d) → (n, d)."""
        rng = generator(random_state, loc.device)
        n, d = loc.shape
        self._check_count(d)
        new = torch.rand(loc.shape, generator=rng, device=loc.device, dtype=loc.dtype)
        place = torch.rand(loc.shape, generator=rng, device=loc.device).argsort(1)  # a random order of the factors
        if self.n_changed is not None:
            some = place < self.n_changed
        else:
            count = torch.randint(1, max(2, d), (n, 1), generator=rng, device=loc.device)
            some = place < count
        return torch.where(some, new if self.sizes is None else _snapped(new, self.sizes), loc)

    def _check_count(self, d: int) -> None:
        if self.n_changed is not None and self.n_changed > d:
            raise InputError(
                "n_changed", f"of {d} factors, {self.n_changed} cannot change. Ask for a smaller n_changed."
            )


@dataclass(frozen=True)
class LaplaceSteps:
    """LAP: all factors but categories go a Laplace step along the grid, of scale log K / rate; at least one moves.

    Where no step is large enough to reach another value, the factor that is nearest to it moves by one.

    Parameters
    ----------
    sizes : tuple of int
        The numbers of values K.
    rate : float
        The larger, the shorter the steps.
    categories : sequence of int
        Factors that stay.

    Examples
    --------
    >>> grid = Grid((3, 40, 32))
    >>> z = grid.sample(1_000, random_state=0)
    >>> z_pos = LaplaceSteps(grid.sizes, categories=(0,)).sample(z, random_state=1)
    >>> bool((z[:, 0] == z_pos[:, 0]).all()), bool((z != z_pos).any(1).all())
    (True, True)
    """

    sizes: tuple[int, ...]
    rate: float = 1.0
    categories: Sequence[int] = ()
    space: ClassVar[Box] = Box()

    def __post_init__(self) -> None:
        _check_sizes(self.sizes)
        if not self.rate > 0:
            raise InputError("rate", f"rate must be positive, got {self.rate}.")
        _check_factors("categories", self.categories, len(self.sizes))
        if not any(size > 1 and j not in self.categories for j, size in enumerate(self.sizes)):
            raise InputError("sizes", "at least one factor must have two values and be no category, to move at all.")

    def sample(self, loc: Tensor, *, random_state: RandomState = None) -> Tensor:
        """Draw one point around each row of loc; (n, d) → (n, d)."""
        rng = generator(random_state, loc.device)
        sizes = _sizes(loc, self.sizes)
        level = 2 * torch.rand(loc.shape, generator=rng, device=loc.device, dtype=torch.float64) - 1
        scale = tuple(0.0 if j in self.categories else math.log(k) / self.rate for j, k in enumerate(self.sizes))
        step = (-torch.log1p(-level.abs().clamp_max(1 - 2**-53)) * level.sign()).to(loc.dtype) * cached_tensor(
            scale, loc.device, loc.dtype
        )
        old = _numbers(loc, self.sizes)
        new = (old + step).round().clamp(torch.zeros_like(sizes), sizes - 1)
        stuck = (new == old).all(1, keepdim=True)
        furthest = torch.nn.functional.one_hot(step.abs().argmax(1), loc.shape[1]).bool()
        back = torch.where(old + step.sign() < 0, 1.0, torch.where(old + step.sign() > sizes - 1, -1.0, step.sign()))
        new = torch.where(stuck & furthest, old + back, new)
        return (new + 0.5) / sizes


@dataclass(frozen=True)
class Redrawn:
    r"""Positives of which some factors have no distribution of steps: each stays, or is drawn again with a probability.

    So categories have positives: a value s becomes :math:`\tilde s` with :math:`p(\tilde s | s) \propto
    e^{-\gamma [s \ne \tilde s]}`, whatever the names of the values, and all other factors follow a distribution.
    On a grid, values that are drawn again are those of the grid.

    Parameters
    ----------
    distribution : Conditional
        Of the others.
    factors : tuple of int
        Which of the latents.
    probability : float
        With which each is drawn again, uniformly; 0: they always stay, 1: positives share nothing of them.

    Examples
    --------
    >>> from pindown.simulate.distributions import Truncated, laplace
    >>> z = torch.full((1_000, 3), 0.5)
    >>> positives = Redrawn(Truncated(laplace(0.1)), factors=(2,), probability=0.3)
    >>> moved = (positives.sample(z, random_state=0) != z).float().mean(0)
    >>> [round(share, 1) for share in moved.tolist()]
    [1.0, 1.0, 0.3]
    """

    distribution: Conditional
    factors: tuple[int, ...]
    probability: float
    space: ClassVar[Box] = Box()

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise InputError("probability", f"probability must lie between 0 and 1, got {self.probability}.")
        if not self.factors:
            raise InputError("factors", "factors must be some numbers of latents, counted from 0, got none.")
        _check_factors("factors", self.factors, None if self.sizes is None else len(self.sizes))

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """Numbers of values, if the distribution of the others is one on a grid."""
        return sizes_of(self.distribution)

    def sample(self, loc: Tensor, *, random_state: RandomState = None) -> Tensor:
        """Draw one point around each row of loc; (n, d) → (n, d)."""
        d = loc.shape[1]
        _check_factors("factors", self.factors, d)
        rng = generator(random_state, loc.device)
        moved = self.distribution.sample(loc, random_state=rng)
        again, new = torch.rand(2, *loc.shape, generator=rng, device=loc.device, dtype=loc.dtype)
        new = new if self.sizes is None else _snapped(new, self.sizes)
        chosen = cached_tensor(tuple(float(j in self.factors) for j in range(d)), loc.device, loc.dtype) > 0
        return torch.where(chosen, torch.where(again < self.probability, new, loc), moved)


def sizes_of(distribution: Marginal | Conditional) -> tuple[int, ...] | None:
    """Return the numbers of values of a distribution on a grid; None for any other.

    Examples
    --------
    >>> sizes_of(Redrawn(LaplaceSteps((3, 4)), (0,), 0.5)), sizes_of(SomeChange())
    ((3, 4), None)
    """
    return distribution.sizes if isinstance(distribution, Grid | SomeChange | LaplaceSteps | Redrawn) else None


def _check_factors(argument: str, factors: Sequence[int], d: int | None) -> None:
    """Raise if these are no indices of d factors; None if d is unknown."""
    below = "" if d is None else f" below {d}"
    if not all(isinstance(j, int | np.integer) and 0 <= j < (math.inf if d is None else d) for j in factors):
        raise InputError(argument, f"`{argument}` must be indices of latents{below}, got {factors}.")


def _check_sizes(sizes: tuple[int, ...]) -> None:
    if not sizes or min(sizes) < 1:
        raise InputError("sizes", f"`sizes` must be numbers of levels, at least 1 each, got {sizes}.")


def _numbers(z: Tensor, sizes: tuple[int, ...]) -> Tensor:
    count = _sizes(z, sizes)
    return (z * count).floor().clamp(torch.zeros_like(count), count - 1)


def _snapped(z: Tensor, sizes: tuple[int, ...]) -> Tensor:
    return (_numbers(z, sizes) + 0.5) / _sizes(z, sizes)


def _sizes(z: Tensor, sizes: tuple[int, ...]) -> Tensor:
    if z.shape[-1] != len(sizes):  # one size would be taken for that of all
        raise InputError(
            "loc", f"a grid of sizes {sizes} has {len(sizes)} factors, but there are {z.shape[-1]} latents."
        )
    return cached_tensor(tuple(map(float, sizes)), z.device, z.dtype)
