"""`Projected`: a distribution in R^d projected onto a space, such as the papers' Laplace and normal on the sphere."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pindown._random import RandomState
from pindown.networks.spaces import Space, Sphere
from pindown.simulate.distributions import GeneralizedNormal

_N_RADII = 128  # the error of a log density is then about 1e-6 nats for scales from .1 on


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

    def log_prob(self, z: Tensor, loc: Tensor) -> Tensor:
        r"""Return the density on the sphere, log ∫₀^∞ r^{d−1} p(r z | loc) dr; (..., d), (..., d) → (...).

        Midpoint rule in t with r = r_max t², which is finer near 0. The exponent is at least (‖r z − loc‖/s)^β, for
        β > 2 up to a factor between norms, so the mass beyond r_max is negligible.
        """
        if self.space != Sphere():
            raise TypeError(f"The density of {self} is not implemented, only that on the sphere.")
        d, shape = z.shape[-1], self.base.shape
        norms = d ** max(0.0, 0.5 - 1 / shape)
        furthest = 1 + norms * self.base.scale * (40 + 4 * d) ** (1 / shape)
        t = (torch.arange(_N_RADII, device=z.device, dtype=z.dtype) + 0.5) / _N_RADII
        radii = furthest * t.square()
        log_steps = (2 * furthest * t / _N_RADII).log()
        exponents = self.base.log_prob(radii[:, None] * z.unsqueeze(-2), loc.unsqueeze(-2))  # (..., radii)
        return (exponents + (d - 1) * radii.log() + log_steps).logsumexp(-1)
