"""`Projected`: a distribution in R^d projected onto a space, such as the papers' Laplace and normal on the sphere."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from pindown._random import RandomState
from pindown.networks.spaces import Space, Sphere
from pindown.simulate.distributions import GeneralizedNormal


@dataclass(frozen=True)
class Projected:
    """A distribution in R^d projected onto a space, such as the papers' Laplace and normal on the sphere.

    Examples
    --------
    >>> from pindown.simulate.distributions import laplace
    >>> z = Projected(laplace(0.05)).sample(torch.tensor([[1.0, 0.0, 0.0]]), random_state=0)
    >>> round(z.norm().item(), 4)
    1.0
    """

    base: GeneralizedNormal
    space: Space = field(default_factory=Sphere)

    def sample(self, loc: Tensor, *, random_state: RandomState = None) -> Tensor:
        """Draw one point around each location; (n, d) → (n, d)."""
        return self.space.project(self.base.sample(loc, random_state=random_state))
