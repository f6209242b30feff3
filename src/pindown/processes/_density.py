"""Densities of latents around many locations at once, projected laws included."""

from collections.abc import Callable

import torch
from torch import Tensor

from pindown.distributions import Conditional, GeneralizedNormal, Projected, Truncated, VonMisesFisher
from pindown.spaces import Sphere

_N_RADII = 128  # a posterior is then off by about 1e-6 nats for scales from .1 on, where a Laplace law has its kinks
_N_BLOCK = 2**22  # numbers held at once


def log_densities(conditional: Conditional, z: Tensor, locations: Tensor) -> Tensor:
    """Return log p(z_i | location_c) for all pairs; (n, d), (k, d) → (n, k).

    Raises
    ------
    TypeError
        If the law is unknown here.
    """
    locations = locations.to(z)
    match conditional:
        case VonMisesFisher() | GeneralizedNormal() | Truncated():
            return _in_blocks(lambda rows: conditional.log_prob(rows[:, None], locations), z, locations.numel())
        case Projected(base=base, space=Sphere()):
            return _in_blocks(
                lambda rows: _log_projected(base, rows[:, None], locations), z, locations.numel() * _N_RADII
            )
    raise TypeError(f"log_posterior: the density of {conditional} is not known, so neither is the posterior.")


def _log_projected(base: GeneralizedNormal, z: Tensor, loc: Tensor) -> Tensor:
    r"""Density on the sphere of a law in R^d that was projected there: ∫₀^∞ r^{d−1} p(r z | loc) dr.

    By the midpoint rule in t with r = r_max t², which is finer near 0. The exponent is at least (‖r z − loc‖/s)^β, for
    β > 2 up to a factor of norms, so that beyond r_max nothing is left.
    """
    d = z.shape[-1]
    norms = d ** max(0.0, 0.5 - 1 / base.shape)
    furthest = 1 + norms * base.scale * (40 + 4 * d) ** (1 / base.shape)
    t = (torch.arange(_N_RADII, device=z.device, dtype=z.dtype) + 0.5) / _N_RADII
    radii = furthest * t.square()
    log_steps = (2 * furthest * t / _N_RADII).log()
    exponents = base.log_prob(radii[:, None] * z.unsqueeze(-2), loc.unsqueeze(-2))  # (..., radii)
    return (exponents + (d - 1) * radii.log() + log_steps).logsumexp(-1)


def _in_blocks(densities: Callable[[Tensor], Tensor], z: Tensor, numbers_per_row: int) -> Tensor:
    """Apply to some rows at a time, so that memory stays bounded."""
    return torch.cat([densities(rows) for rows in z.split(max(1, _N_BLOCK // numbers_per_row))])
