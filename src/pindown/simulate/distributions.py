"""Distributions of latents: conditionals p(z̃ | z) around a location, and marginals p(z).

Sampling never rejects, branches on data or synchronises with the device, so a CUDA graph can capture it. Call it once
before, so that its tables are on the device, and use a generator that is registered with the graph.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
import torch
from scipy import special
from torch import Tensor

from pindown._random import Device, RandomState, generator
from pindown.errors import InputError
from pindown.metrics.arrays import check_positive
from pindown.networks.spaces import Box, Reals, Space, Sphere


class Conditional(Protocol):
    """A distribution around a location, p(z̃ | loc), on a space."""

    @property
    def space(self) -> Space:
        """Space of its samples and locations."""

    def sample(self, loc: Tensor, *, random_state: RandomState = None) -> Tensor:
        """Draw one point around each location; (n, d) → (n, d), device and dtype of loc."""


class Marginal(Protocol):
    """A distribution p(z) of d latents on a space."""

    @property
    def d(self) -> int:
        """Number of latents."""

    @property
    def space(self) -> Space:
        """Space of its samples."""

    def sample(
        self, n: int, *, random_state: RandomState = None, device: Device = "cpu", dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Draw n points; returns (n, d)."""


@dataclass(frozen=True)
class VonMisesFisher:
    r"""The von Mises–Fisher distribution, the counterpart of the normal distribution on the sphere.

    .. math:: p(\tilde z \mid z) = C_d(\kappa)\, e^{\kappa z^\top \tilde z},
        \qquad C_d(\kappa) = \frac{\kappa^{d/2-1}}{(2\pi)^{d/2} I_{d/2-1}(\kappa)}

    The angle θ to the mean has density ∝ e^{κ cos θ} sin^{d−2} θ. Gauss–Legendre quadrature on its effective support
    gives a table for sampling by inversion [1]_, once per (d, κ).

    Parameters
    ----------
    concentration : float
        κ ≥ 0; zero is the uniform distribution.

    References
    ----------
    .. [1] Devroye. Non-Uniform Random Variate Generation, chapter II.2. Springer, 1986.

    Examples
    --------
    The mean resultant length of d = 3 is coth κ − 1/κ:

    >>> mu = torch.tensor([[0.0, 0.0, 1.0]]).expand(100_000, 3)
    >>> round(VonMisesFisher(1.0).sample(mu, random_state=0)[:, 2].mean().item(), 2)
    0.31
    """

    concentration: float
    space: ClassVar[Sphere] = Sphere()

    def __post_init__(self) -> None:
        if not (self.concentration >= 0 and math.isfinite(self.concentration)):
            got = self.concentration
            raise InputError("concentration", f"`concentration` must be finite and at least 0, got {got}.")

    def sample(self, loc: Tensor, *, random_state: RandomState = None) -> Tensor:
        """Draw one unit vector around each unit vector in loc; (n, d) → (n, d)."""
        d = _dimensions(loc)
        rng = generator(random_state, loc.device)
        table = _angle_table(d, self.concentration, loc.device)
        u = torch.rand(*loc.shape[:-1], 1, generator=rng, device=loc.device, dtype=torch.float64)
        theta = table.quantile(u).to(loc.dtype)  # (n, 1)
        direction = torch.randn(loc.shape, generator=rng, device=loc.device, dtype=loc.dtype)
        tangent = self.space.project(direction - (direction * loc).sum(-1, keepdim=True) * loc)  # (n, d)
        return theta.cos() * loc + theta.sin() * tangent


@dataclass(frozen=True)
class GeneralizedNormal:
    r"""Independent generalised normal coordinates: β = 1 is Laplace, β = 2 normal, β → ∞ uniform.

    .. math:: p(\tilde z \mid z) =
        \prod_j \frac{\beta}{2 s\, \Gamma(1/\beta)} e^{-|(\tilde z_j - z_j)/s|^\beta}

    Parameters
    ----------
    scale : float
        s > 0. The papers' "GenNorm(β = 2, λ)" is a normal distribution with *standard deviation* λ: use `normal`.
    shape : float
        β > 0.

    Examples
    --------
    >>> z = GeneralizedNormal(scale=1.0, shape=4.0).sample(torch.zeros(50_000, 2), random_state=0)
    >>> round(z.abs().pow(4).mean().item(), 2)  # 1/β
    0.25
    """

    scale: float
    shape: float
    space: ClassVar[Reals] = Reals()

    def __post_init__(self) -> None:
        for name, value in (("scale", self.scale), ("shape", self.shape)):
            if not 0 < value < math.inf:
                raise InputError(name, f"`{name}` must be positive and finite, got {value}.")

    def sample(self, loc: Tensor, *, random_state: RandomState = None) -> Tensor:
        """Draw one point around each location; (n, d) → (n, d)."""
        rng = generator(random_state, loc.device)
        u = torch.rand(loc.shape, generator=rng, device=loc.device, dtype=torch.float64)
        return loc + (self.scale * self._quantile(2 * u - 1)).to(loc.dtype)

    def level(self, t: Tensor) -> Tensor:
        """Return P(|T| ≤ t) of a standard coordinate T, for t ≥ 0."""
        if self.shape == 1:
            return -torch.expm1(-t)
        if self.shape == 2:
            return torch.erf(t)
        return torch.special.gammainc(torch.full_like(t, 1 / self.shape), t.pow(self.shape))

    def _quantile(self, w: Tensor) -> Tensor:
        """Return the t with sign(t) P(|T| ≤ |t|) = w, for w in [−1, 1] and float64."""
        p = w.abs().clamp_max(1 - 2**-53)  # rand() can be exactly 0, and level 1 is at infinity
        if self.shape == 1:
            magnitude = -torch.log1p(-p)
        elif self.shape == 2:
            magnitude = torch.erfinv(p)
        else:
            magnitude = _magnitude_table(self.shape, w.device).quantile(p)
        return magnitude.copysign(w)


def normal(std: float) -> GeneralizedNormal:
    """Return the normal distribution with standard deviation `std` in each coordinate.

    Examples
    --------
    >>> round(normal(0.05).sample(torch.zeros(50_000, 1), random_state=0).std().item(), 3)
    0.05
    """
    return GeneralizedNormal(scale=std * math.sqrt(2), shape=2.0)


def laplace(scale: float) -> GeneralizedNormal:
    """Return the Laplace distribution with density e^{−|x|/scale} / (2 scale) in each coordinate.

    Examples
    --------
    >>> round(laplace(0.05).sample(torch.zeros(50_000, 1), random_state=0).abs().mean().item(), 3)
    0.05
    """
    return GeneralizedNormal(scale=scale, shape=1.0)


@dataclass(frozen=True)
class Truncated:
    """A generalised normal distribution conditioned on a box, sampled exactly coordinate by coordinate.

    Parameters
    ----------
    base : GeneralizedNormal
        The distribution before truncation.
    space : Box
        The box; locations must lie in it.

    Examples
    --------
    >>> z = Truncated(normal(1.0)).sample(torch.full((1000, 3), 0.9), random_state=0)
    >>> bool((z.min() >= 0) & (z.max() <= 1))
    True
    """

    base: GeneralizedNormal
    space: Box = field(default_factory=Box)

    def sample(self, loc: Tensor, *, random_state: RandomState = None) -> Tensor:
        """Draw one point around each location; (n, d) → (n, d)."""
        rng = generator(random_state, loc.device)
        left, right = self.levels(loc.double())
        u = torch.rand(loc.shape, generator=rng, device=loc.device, dtype=torch.float64)
        # Signed levels are uniform on [−left, right], which chooses the side with the right probability.
        step = self.base._quantile(u * (left + right) - left)
        return self.space.project((loc + self.base.scale * step).to(loc.dtype))  # rounding may leave the box

    def levels(self, loc: Tensor) -> tuple[Tensor, Tensor]:
        left = self.base.level((loc - self.space.low).clamp_min(0) / self.base.scale)
        right = self.base.level((self.space.high - loc).clamp_min(0) / self.base.scale)
        return left, right


@dataclass(frozen=True)
class Uniform:
    """The uniform distribution on a space.

    Examples
    --------
    >>> z = Uniform(3).sample(10_000, random_state=0)
    >>> round(z.square().mean().item(), 4)  # 1/d on the sphere
    0.3333
    """

    d: int
    space: Sphere | Box = field(default_factory=Sphere)

    def __post_init__(self) -> None:
        check_positive(d=self.d)

    def sample(
        self, n: int, *, random_state: RandomState = None, device: Device = "cpu", dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Draw n points; returns (n, d)."""
        return self.space.uniform(n, self.d, random_state=random_state, device=device, dtype=dtype)


@dataclass(frozen=True)
class Around:
    """A marginal distribution: a conditional around one fixed location.

    Parameters
    ----------
    loc : tuple of float
        The location; its length is d.
    distribution : Conditional
        The distribution around it.

    Examples
    --------
    >>> Around((0.0, 3.0), normal(1.0)).sample(10_000, random_state=0).mean(0).round().tolist()
    [0.0, 3.0]
    """

    loc: tuple[float, ...]
    distribution: Conditional

    def __post_init__(self) -> None:
        if not self.space.contains(torch.tensor(self.loc)):
            raise InputError("loc", f"`loc` must lie in {self.space}, the space of `distribution`, got {self.loc}.")

    @property
    def d(self) -> int:
        """Number of latents."""
        return len(self.loc)

    @property
    def space(self) -> Space:
        """Space of the samples."""
        return self.distribution.space

    def sample(
        self, n: int, *, random_state: RandomState = None, device: Device = "cpu", dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Draw n points; returns (n, d)."""
        loc = cached_tensor(self.loc, torch.device(device), dtype)
        return self.distribution.sample(loc.expand(n, -1), random_state=random_state)


@dataclass(frozen=True, eq=False)
class _Table:
    """A piecewise linear distribution function."""

    edges: Tensor  # (k + 1,)
    cdf: Tensor  # (k + 1,), from 0 to 1

    def quantile(self, p: Tensor) -> Tensor:
        right = torch.searchsorted(self.cdf, p, right=True).clamp(1, len(self.cdf) - 1)
        low, high = self.cdf[right - 1], self.cdf[right]
        fraction = (p - low) / (high - low).clamp_min(torch.finfo(p.dtype).tiny)
        return torch.lerp(self.edges[right - 1], self.edges[right], fraction)


_N_CELLS = 2**13  # the error of a quantile is then at most about 1e-6 standard deviations


def _dimensions(loc: Tensor) -> int:
    if (d := loc.shape[-1]) < 2:
        raise InputError("loc", f"Points must have at least two coordinates, got shape {tuple(loc.shape)}.")
    return d


@lru_cache(maxsize=128)
def angle_cdf(d: int, concentration: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return edges and distribution function of the angle θ, and log ∫ e^{κ (cos θ − 1)} sin^{d−2} θ dθ."""

    def log_density(theta: np.ndarray) -> np.ndarray:
        return -2 * concentration * np.sin(theta / 2) ** 2 + (d - 2) * np.log(np.sin(theta))

    # Effective support: density above e^{-40} of the peak, one step wider on each side.
    coarse = np.geomspace(1e-12, np.pi, 100_000)
    kept = np.flatnonzero((height := log_density(coarse)) > height.max() - 40)
    low = 0.0 if kept[0] == 0 else coarse[kept[0] - 1]
    high = coarse[min(kept[-1] + 1, len(coarse) - 1)]

    edges = np.linspace(low, high, _N_CELLS + 1)
    nodes, weights = np.polynomial.legendre.leggauss(4)
    half = np.diff(edges)[:, None] / 2
    log_values = log_density(edges[:-1, None] + half * (1 + nodes))  # (cells, 4)
    peak = log_values.max()
    mass = (np.exp(log_values - peak) * weights * half).sum(1)
    cdf = np.concatenate([[0.0], mass.cumsum()])
    return edges, cdf / cdf[-1], peak + math.log(cdf[-1])


@lru_cache(maxsize=128)
def _angle_table(d: int, concentration: float, device: torch.device) -> _Table:
    edges, cdf, _ = angle_cdf(d, concentration)
    return _Table(torch.from_numpy(edges).to(device), torch.from_numpy(cdf).to(device))


@lru_cache(maxsize=128)
def _magnitude_table(shape: float, device: torch.device) -> _Table:
    """Return the table of |T|, where |T|^β ~ Gamma(1/β)."""
    last = special.gammainccinv(1 / shape, 1e-17) ** min(1.0, 1 / shape)
    # For β < 1 the distribution spans orders of magnitude, so the cells widen.
    edges = np.linspace(0.0, last, _N_CELLS + 1) ** max(1.0, 1 / shape)
    cdf = special.gammainc(1 / shape, edges**shape)
    return _Table(torch.from_numpy(edges).to(device), torch.from_numpy(cdf).to(device))


@lru_cache(maxsize=128)
def cached_tensor(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return numbers as a tensor that is created once: a captured CUDA graph must not copy to the device."""
    return torch.tensor(values, device=device, dtype=dtype)
