"""`Projected` distributions, densities of these and of `pindown.simulate.distributions`, and posteriors of clusters."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pindown._random import RandomState
from pindown.networks.spaces import Space, Sphere
from pindown.simulate import Clusters
from pindown.simulate.distributions import Conditional, GeneralizedNormal, Truncated, VonMisesFisher, angle_cdf
from pindown_papers.simulations.clusters import Instances

N_BLOCK = 2**16  # numbers at once in `log_posterior`; a `Projected` density holds 128 times as many
N_RADII = 128  # the error of a log density is then about 1e-6 nats for scales from .1 on


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


def log_prob(distribution: Conditional, z: Tensor, loc: Tensor) -> Tensor:
    """Return log p(z | loc) for points and locations that broadcast; (..., d), (..., d) → (...).

    On the sphere with respect to the surface measure, and −∞ outside a box.

    Examples
    --------
    >>> from pindown.simulate.distributions import normal
    >>> round(log_prob(normal(0.05), torch.zeros(1, 1), torch.zeros(1, 1)).exp().item(), 3)  # 1/(.05 √2π)
    7.979
    """
    match distribution:
        case VonMisesFisher(concentration=kappa):
            # zᵀloc − 1 = −‖z − loc‖²/2 for unit vectors, without the cancellation that a large κ would magnify
            d = z.shape[-1]
            log_area = math.log(2) + (d - 1) / 2 * math.log(math.pi) - math.lgamma((d - 1) / 2)  # of S^{d−2}
            return -0.5 * kappa * (z - loc).square().sum(-1) - log_area - angle_cdf(d, kappa)[2]
        case GeneralizedNormal():
            return _of_coordinates(distribution, z, loc).sum(-1)
        case Truncated(base=base, space=box):
            left, right = distribution.levels(loc)
            inside = (z >= box.low) & (z <= box.high)
            log_density = _of_coordinates(base, z, loc) - (0.5 * (left + right)).log()
            return torch.where(inside, log_density, -math.inf).sum(-1)
        case Projected(base=base, space=Sphere()):
            return _projected(base, z, loc)
    raise TypeError(f"The density of {distribution} is not implemented.")


def _of_coordinates(distribution: GeneralizedNormal, z: Tensor, loc: Tensor) -> Tensor:
    beta, scale = distribution.shape, distribution.scale
    log_peak = math.log(beta / (2 * scale)) - math.lgamma(1 / beta)
    return log_peak - ((z - loc) / scale).abs().pow(beta)


def _projected(base: GeneralizedNormal, z: Tensor, loc: Tensor) -> Tensor:
    """Return the density on the sphere, log ∫₀^∞ r^{d−1} p(r z | loc) dr; (..., d), (..., d) → (...).

    Midpoint rule in t with r = r_max t², which is finer near 0. The exponent is at least (‖r z − loc‖/s)^β, for β > 2
    up to a factor between norms, so the mass beyond r_max is negligible.
    """
    d, shape = z.shape[-1], base.shape
    norms = d ** max(0.0, 0.5 - 1 / shape)
    furthest = 1 + norms * base.scale * (40 + 4 * d) ** (1 / shape)
    t = (torch.arange(N_RADII, device=z.device, dtype=z.dtype) + 0.5) / N_RADII
    radii = furthest * t.square()
    log_steps = (2 * furthest * t / N_RADII).log()
    exponents = log_prob(base, radii[:, None] * z.unsqueeze(-2), loc.unsqueeze(-2))  # (..., radii)
    return (exponents + (d - 1) * radii.log() + log_steps).logsumexp(-1)


def log_posterior(process: Clusters | Instances, z: Tensor) -> Tensor:
    r"""Return log P(u = c | z) for every class or instance, the optimum of any classifier; (n, d) → (n, n_classes).

    .. math:: P(u = c \mid z) = \frac{\pi_c\, p(z \mid v_c)}{\sum_b \pi_b\, p(z \mid v_b)}

    Compare the cross-entropy of a fitted classifier with that of this posterior.

    Examples
    --------
    A latent halfway between two class vectors belongs to either with probability ½:

    >>> from pindown.simulate.mixing import identity
    >>> clusters = Clusters(torch.eye(2), VonMisesFisher(3.0), identity(2))
    >>> log_posterior(clusters, Sphere()(torch.ones(1, 2))).exp().round(decimals=3)
    tensor([[0.5000, 0.5000]])
    """
    if isinstance(process, Instances):
        label = process.classes(torch.arange(process.n_instances, device=z.device))
        return _log_densities(process.clusters, z)[:, label].log_softmax(1)
    return (_log_densities(process, z) + torch.as_tensor(process.prior).log().to(z)).log_softmax(1)


def _log_densities(clusters: Clusters, z: Tensor) -> Tensor:
    """Return log p(z | v_c) for every class, a block of samples at a time; (n, d) → (n, n_classes)."""
    vectors = clusters.vectors.to(z)
    parts = z.split(max(1, N_BLOCK // vectors.numel()))
    return torch.cat([log_prob(clusters.conditional, part[:, None], vectors) for part in parts])
