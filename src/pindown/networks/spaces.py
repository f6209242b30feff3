"""Latent spaces: the unit sphere, a box, and R^d.

A space is a value (frozen, comparable) and a function: ``space(z)`` projects onto it.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pindown._random import RandomState, generator
from pindown.errors import InputError


class Space(ABC):
    """Abstract latent space; the points are the rows of an (n, d) tensor."""

    def __call__(self, z: Tensor) -> Tensor:
        """Project: a space is a function, so that it can end a network or be a parameter of an estimator."""
        return self.project(z)

    @abstractmethod
    def project(self, z: Tensor) -> Tensor:
        """Return the nearest point of the space."""

    def contains(self, z: Tensor, *, tolerance: float = 1e-4) -> bool:
        """Return whether all points lie in the space; waits for the device."""
        return bool(((self.project(z) - z).abs() <= tolerance).all())

    def uniform(
        self,
        n: int,
        d: int,
        *,
        random_state: RandomState = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return n points from the uniform distribution, on the sphere the rotation-invariant one; (n, d)."""
        return self._uniform((n, d), generator(random_state, device), dtype)

    @abstractmethod
    def _uniform(self, shape: tuple[int, int], rng: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw points on the device of the generator."""


@dataclass(frozen=True)
class Sphere(Space):
    """The unit sphere S^{d-1} = {z : ‖z‖ = 1}.

    Examples
    --------
    >>> Sphere()(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """

    def project(self, z: Tensor) -> Tensor:
        """Return z / ‖z‖; the zero vector has no direction and stays zero."""
        return nn.functional.normalize(z, dim=-1)

    def contains(self, z: Tensor, *, tolerance: float = 1e-4) -> bool:
        """Return whether all points have unit norm."""
        return bool(((torch.linalg.vector_norm(z, dim=-1) - 1).abs() <= tolerance).all())

    def _uniform(self, shape: tuple[int, int], rng: torch.Generator, dtype: torch.dtype) -> Tensor:
        return self.project(torch.randn(shape, generator=rng, device=rng.device, dtype=dtype))


@dataclass(frozen=True)
class Box(Space):
    """The box [low, high]^d.

    Examples
    --------
    >>> Box()(torch.tensor([[-1.0, 0.3, 7.0]]))
    tensor([[0.0000, 0.3000, 1.0000]])
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError("low", f"Box: `low` < `high` must be finite, got {self.low}, {self.high}.")

    def project(self, z: Tensor) -> Tensor:
        """Return z clipped to the box."""
        return z.clamp(self.low, self.high)

    def _uniform(self, shape: tuple[int, int], rng: torch.Generator, dtype: torch.dtype) -> Tensor:
        return self.low + (self.high - self.low) * torch.rand(shape, generator=rng, device=rng.device, dtype=dtype)


@dataclass(frozen=True)
class Reals(Space):
    """All of R^d; projecting changes nothing.

    Examples
    --------
    >>> Reals()(torch.tensor([3.0, 4.0]))
    tensor([3., 4.])
    """

    def project(self, z: Tensor) -> Tensor:
        """Return z."""
        return z

    def _uniform(self, shape: tuple[int, int], rng: torch.Generator, dtype: torch.dtype) -> Tensor:
        raise InputError("space", "Reals has no uniform distribution. Use a Box, or distributions.Around a point.")
