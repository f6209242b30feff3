"""Laws that several papers use; torch is imported where one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pindown.simulate.distributions import Conditional


def vmf(concentration: float) -> Conditional:
    """Return the von Mises–Fisher law on the sphere."""
    from pindown.simulate.distributions import VonMisesFisher

    return VonMisesFisher(concentration)


def projected(scale: float, shape: float) -> Conditional:
    """Return generalised normal noise e^{−|x/scale|^shape} in R^d, projected back onto the sphere."""
    from pindown.simulate.distributions import GeneralizedNormal
    from pindown_papers.simulations import Projected

    return Projected(GeneralizedNormal(scale, shape))


def projected_laplace(scale: float) -> Conditional:
    """Return Laplace noise in R^d, projected back onto the sphere."""
    return projected(scale, 1.0)


def projected_normal(std: float) -> Conditional:
    """Return normal noise in R^d, projected back onto the sphere."""
    return projected(std * 2**0.5, 2.0)


def truncated_laplace(scale: float, edge: float) -> Conditional:
    """Return Laplace noise conditioned on staying in [−edge, edge]^d; off the sphere."""
    from pindown.networks.spaces import Box
    from pindown.simulate.distributions import Truncated, laplace

    return Truncated(laplace(scale), Box(-edge, edge))
