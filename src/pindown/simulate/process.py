"""`Process`, a simulation with known latents; `Sample`, what it returns; and the first two: `Pairs` and `Clusters`."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from pindown import theory
from pindown._random import Device, RandomState, generator
from pindown.data.sources import Batch, GeneratorSource
from pindown.errors import InputError
from pindown.metrics.arrays import check_positive
from pindown.networks.spaces import Box, Reals, Space, Sphere
from pindown.simulate.distributions import (
    Conditional,
    ConditionalDensity,
    GeneralizedNormal,
    Marginal,
    Truncated,
    Uniform,
    VonMisesFisher,
)
from pindown.simulate.mixing import Mixing, leaky_relu_mlp
from pindown.theory import Assumption

Constant = TypeVar("Constant", Tensor, nn.Module, Mixing)

N_BLOCK = 2**16  # numbers at once in `Clusters.log_densities`; a `Projected` density holds 128 times as many


def placed(constant: Constant, device: torch.device) -> Constant:
    """Return the constant on a device, copied there once: a copy per draw would wait for the device."""
    return cast(Constant, _copy(constant, device))


@lru_cache(maxsize=64)
def _copy(constant: Tensor | nn.Module, device: torch.device) -> Tensor | nn.Module:
    return copy.deepcopy(constant).to(device)


class Sample(NamedTuple):
    """Simulated data: observations with their latents, and the side variable or positive if there is one."""

    x: Tensor  # (n, m) observations
    z: Tensor  # (n, d) latents
    u: Tensor | None = None  # (n,) class or level of the nuisance, int64
    x_pos: Tensor | None = None  # (n, m) positives
    z_pos: Tensor | None = None  # (n, d) latents of the positives
    label: Tensor | None = None  # (n,) a class that z depends on, in addition to the nuisance u, int64


class Process(GeneratorSource):
    """A simulation: `sample` returns observations with their latents.

    A process is also a source for ``fit``. Then `draw` returns only what can be observed: positives as ``pairs``, a
    label next to a nuisance as ``given``. Sampling never synchronises with the device, so a CUDA graph can capture it.
    """

    role_of_u: ClassVar[str | None] = None
    """Role of ``Sample.u``: signal, nuisance, or None if there is none."""

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of one observation."""
        return tuple(self.sample(1, random_state=0).x.shape[1:])

    @property
    def prior(self) -> NDArray[np.float64] | None:
        """Probability of each level of ``Sample.u``; None if there is no ``u``."""
        return None

    @property
    @abstractmethod
    def d(self) -> int:
        """Number of latents, the width of ``Sample.z``."""

    @property
    @abstractmethod
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions of `pindown.theory` that hold in this simulation."""

    @abstractmethod
    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        """Draw n independent samples with a generator on the device."""

    def sample(
        self, n: int, *, random_state: RandomState = None, device: Device = "cpu", dtype: torch.dtype = torch.float32
    ) -> Sample:
        """Draw n independent samples with their latents.

        A generator passed as `random_state` must be on the same device. It is advanced.
        """
        check_positive(n=n)
        device = torch.device(device)
        return self._draw(n, generator(random_state, device), device, dtype)

    def draw(self, n_samples: int, generator: torch.Generator) -> Batch:
        """Draw new samples without their latents, by role."""
        sample = self.sample(n_samples, random_state=generator, device=generator.device)
        sides = {"pairs": sample.x_pos, self.role_of_u or "y": sample.u, "given": sample.label}
        return {"x": sample.x, **{role: side for role, side in sides.items() if side is not None}}

    @property
    def _categories(self) -> NDArray[np.float64] | None:
        """Probabilities of the categories that `_draw_categories` draws."""
        return self.prior

    @cached_property
    def _thresholds(self) -> Tensor:
        """Inner edges of the distribution function; the last category absorbs rounding errors."""
        return torch.as_tensor(self._categories).cumsum(0)[:-1]

    def _draw_categories(self, n: int, rng: torch.Generator, device: torch.device) -> Tensor:
        """Draw the index of a category for each sample; (n,) int64."""
        uniform = torch.rand(n, generator=rng, device=device, dtype=torch.float64)
        return torch.searchsorted(placed(self._thresholds, device), uniform, right=True)


def frequencies(weights: ArrayLike) -> NDArray[np.float64]:
    """Return weights scaled to sum to one."""
    weights = np.asarray(weights, dtype=np.float64)
    return weights / weights.sum()


def check_mixing(d: int, space: Space, mixing: Mixing) -> None:
    """Raise if the mixing expects another number of latents or another space."""
    if d != mixing.d:
        raise InputError("mixing", f"`mixing` must take {d} latents, got one that takes {mixing.d}.")
    if mixing.domain not in (None, space):
        raise InputError("mixing", f"`mixing` takes latents in {mixing.domain}, got {space}. Use `domain={space}`.")


@dataclass(frozen=True, eq=False)
class Pairs(Process):
    """Pairs of observations with similar latents: z ~ p(z), z̃ ~ p(·|z), x = g(z), x̃ = g(z̃).

    Zimmermann et al., Contrastive learning inverts the data generating process, ICML 2021.

    Parameters
    ----------
    marginal : Marginal
        Distribution of z.
    conditional : Conditional
        Distribution of the positive z̃ given z.
    mixing : Mixing
        The map g.

    Examples
    --------
    >>> from pindown.simulate.mixing import orthogonal
    >>> process = Pairs(Uniform(3), VonMisesFisher(10.0), orthogonal(3, random_state=0))
    >>> sample = process.sample(5, random_state=0)
    >>> tuple(sample.x.shape), tuple(sample.z_pos.shape)
    ((5, 3), (5, 3))
    >>> theory.VMF_CONDITIONAL in process.assumptions
    True
    """

    marginal: Marginal
    conditional: Conditional
    mixing: Mixing

    def __post_init__(self) -> None:
        check_mixing(self.marginal.d, self.marginal.space, self.mixing)
        if self.conditional.space not in (self.marginal.space, Reals()):
            spaces = f"`conditional` lies in {self.conditional.space} and `marginal` in {self.marginal.space}"
            raise InputError("conditional", f"{spaces}. Use the same space for both.")
        # Distributions on a grid have `sizes`, the number of levels of each factor.
        grid, around = (getattr(part, "sizes", None) for part in (self.marginal, self.conditional))
        if around is not None and (len(around) != self.d or grid not in (None, around)):
            raise InputError("conditional", f"`conditional` must have the same {self.d} `sizes`, got {around}.")

    @classmethod
    def on_sphere(cls, d: int, concentration: float, *, n_layers: int = 2, random_state: RandomState = None) -> Pairs:
        """Return the paper's simulation on the sphere: uniform latents, vMF positives, leaky ReLU mixing."""
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=random_state)
        return cls(Uniform(d), VonMisesFisher(concentration), mixing)

    @classmethod
    def on_box(cls, d: int, base: GeneralizedNormal, *, n_layers: int = 2, random_state: RandomState = None) -> Pairs:
        """Return the paper's simulation on [0, 1]^d: uniform latents, truncated positives, leaky ReLU mixing."""
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=random_state)
        return cls(Uniform(d, Box()), Truncated(base, Box()), mixing)

    @property
    def d(self) -> int:
        return self.marginal.d

    @property
    def assumptions(self) -> frozenset[Assumption]:
        held = self.mixing.assumptions
        match self.marginal:
            case Uniform(space=Sphere()):
                held |= {theory.UNIFORM_SPHERE}
            case Uniform(space=Box()):
                held |= {theory.UNIFORM_CONVEX_BODY}
        match self.conditional:
            case VonMisesFisher(concentration=kappa) if kappa > 0:
                held |= {theory.VMF_CONDITIONAL}
            # Below 1 the exponent is no norm, which the proofs need.
            case GeneralizedNormal(shape=p) | Truncated(base=GeneralizedNormal(shape=p)) if p >= 1:
                held |= {theory.METRIC_CONDITIONAL}
                held |= {theory.LP_CONDITIONAL} if p != 2 else set()
        return held

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        mixing = placed(self.mixing, device)
        z = self.marginal.sample(n, random_state=rng, device=device, dtype=dtype)
        z_pos = self.conditional.sample(z, random_state=rng)
        return Sample(x=mixing(z), z=z, x_pos=mixing(z_pos), z_pos=z_pos)


@dataclass(frozen=True, eq=False)
class Clusters(Process):
    """Latents in clusters around class vectors: u ~ weights, z | u ~ p(·|v_u), x = g(z).

    Reizinger et al., Cross-entropy is all you need to invert the data generating process, 2024.

    Parameters
    ----------
    vectors : Tensor of shape (n_classes, d)
        The class vectors v_c, for example draws of a `pindown.simulate.distributions.Marginal`.
    conditional : ConditionalDensity
        Distribution of z around its class vector.
    mixing : Mixing
        The map g.
    weights : tuple of float, optional
        Class probabilities up to a factor; equal by default.

    Examples
    --------
    >>> from pindown.simulate.mixing import identity
    >>> process = Clusters(torch.eye(3), VonMisesFisher(50.0), identity(3))
    >>> sample = process.sample(1000, random_state=0)
    >>> (sample.x.argmax(1) == sample.u).float().mean().item() > 0.99
    True
    """

    role_of_u = "signal"

    vectors: Tensor
    conditional: ConditionalDensity
    mixing: Mixing
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or not self.vectors.is_floating_point():
            got = f"shape {tuple(self.vectors.shape)} and {self.vectors.dtype}"
            raise InputError("vectors", f"`vectors` must be a matrix of floats with one row per class, got {got}.")
        check_mixing(self.d, self.conditional.space, self.mixing)
        if not self.conditional.space.contains(self.vectors):
            where = f"{self.conditional.space}, the space of `conditional`"
            raise InputError("vectors", f"`vectors` must lie in {where}. Use `conditional.space.project(vectors)`.")
        weights = self.weights or (1.0,) * self.n_classes
        if len(weights) != self.n_classes or not all(0 < w < math.inf for w in weights):
            raise InputError("weights", f"`weights` must be {self.n_classes} positive numbers, got {weights}.")

    @classmethod
    def on_sphere(
        cls, d: int, n_classes: int, concentration: float, *, n_layers: int = 2, random_state: RandomState = None
    ) -> Clusters:
        """Return the paper's simulation: class vectors uniform on the sphere, vMF clusters, leaky ReLU mixing."""
        if n_classes < 2:
            raise InputError("n_classes", f"`n_classes` must be at least 2, got {n_classes}.")
        rng = generator(random_state)
        vectors = Sphere().uniform(n_classes, d, random_state=rng, dtype=torch.float64)
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=rng)
        return cls(vectors, VonMisesFisher(concentration), mixing)

    @property
    def d(self) -> int:
        return self.vectors.shape[1]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.vectors)

    @property
    def prior(self) -> NDArray[np.float64]:
        return frequencies(self.weights or np.ones(self.n_classes))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        held = self.mixing.assumptions
        if isinstance(self.conditional, VonMisesFisher) and self.conditional.concentration > 0:
            held |= {theory.VMF_CLUSTERS}
        if span_of_differences(self.vectors).shape[1] == self.d:
            held |= {theory.AFFINE_GENERATORS}
        return held

    def log_posterior(self, z: Tensor) -> Tensor:
        r"""Return log P(u = c | z) for every class, the optimum of any classifier; (n, d) → (n, n_classes).

        .. math:: P(u = c \mid z) = \frac{\pi_c\, p(z \mid v_c)}{\sum_b \pi_b\, p(z \mid v_b)}

        Compare the cross-entropy of a fitted classifier with that of this posterior.

        Examples
        --------
        A latent halfway between two class vectors belongs to either with probability ½:

        >>> from pindown.simulate.mixing import identity
        >>> process = Clusters(torch.eye(2), VonMisesFisher(3.0), identity(2))
        >>> process.log_posterior(Sphere()(torch.ones(1, 2))).exp().round(decimals=3)
        tensor([[0.5000, 0.5000]])
        """
        return (self.log_densities(z) + torch.as_tensor(self.prior).log().to(z)).log_softmax(1)

    def log_densities(self, z: Tensor) -> Tensor:
        """Return log p(z | v_c) for every class, a block of samples at a time; (n, d) → (n, n_classes)."""
        vectors = self.vectors.to(z)
        parts = z.split(max(1, N_BLOCK // vectors.numel()))
        return torch.cat([self.conditional.log_prob(part[:, None], vectors) for part in parts])

    def sample_classes(self, u: Tensor, rng: torch.Generator, dtype: torch.dtype) -> Sample:
        """Draw one sample of each class in ``u``, with a generator on its device."""
        loc = placed(self.vectors, u.device)[u].to(dtype)  # (n, d)
        z = self.conditional.sample(loc, random_state=rng)
        return Sample(x=placed(self.mixing, u.device)(z), z=z, u=u)

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        return self.sample_classes(self._draw_categories(n, rng, device), rng, dtype)


def in_hyperplane(vectors: Tensor, *, offset: float = 0.5) -> Tensor:
    r"""Move unit vectors into one affine hyperplane, so that they no longer generate the space; (n, d) → (n, d).

    The plane is :math:`\{v : v^\top m = \text{offset}\}` with :math:`m = (1, …, 1)/\sqrt d`. The component of a vector
    orthogonal to m keeps its direction. Classes around such vectors do not differ along m, so the theorems of
    `Classify` do not apply.

    Examples
    --------
    >>> v = in_hyperplane(torch.eye(3), offset=0.0)
    >>> bool(v.sum(1).abs().max() < 1e-6), Sphere().contains(v)
    (True, True)
    """
    if vectors.shape[-1] < 2:
        raise InputError("vectors", f"`vectors` must have at least two coordinates, got shape {tuple(vectors.shape)}.")
    if not -1 < offset < 1:
        raise InputError("offset", f"`offset` must lie between −1 and 1, got {offset}.")
    across = vectors - vectors.mean(-1, keepdim=True)
    return math.sqrt(1 - offset**2) * Sphere().project(across) + offset / math.sqrt(vectors.shape[-1])


def span_of_differences(vectors: Tensor) -> Tensor:
    """Return an orthonormal basis of span{v_a − v_b}; (n, d) → (d, rank)."""
    vectors = vectors.double()
    _, s, vt = torch.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    tolerance = 1e-6 * torch.linalg.matrix_norm(vectors)  # the vectors may have been rounded to float32
    return vt[s > tolerance].mT
