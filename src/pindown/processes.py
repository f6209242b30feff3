"""Worlds whose truth is known: latents, a mixing, and perhaps a side variable, drawn as a `Sample`.

A process says which assumptions of `pindown.theory` it satisfies. Drawing neither branches on data nor waits
for the device; constants are copied to a device the first time they are needed there.
"""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from pindown import theory
from pindown._random import RandomState, generator
from pindown.distributions import (
    Around,
    Conditional,
    GeneralizedNormal,
    Marginal,
    Truncated,
    Uniform,
    VonMisesFisher,
    normal,
)
from pindown.mixing import Leaky, Mixing, SparseMixing, leaky_relu_mlp, sparse
from pindown.spaces import Box, Reals, Sphere
from pindown.theory import Assumption


class Sample(NamedTuple):
    """What a process gives: observations, their truth, and the side variable or partner if there is one."""

    x: Tensor  # (n, m) observations
    z: Tensor  # (n, d) latents
    u: Tensor | None = None  # (n,) class or nuisance value, int64
    x_pos: Tensor | None = None  # (n, m) partners
    z_pos: Tensor | None = None  # (n, d) latents of the partners


class Process(ABC):
    """A world one can draw from."""

    @property
    @abstractmethod
    def d(self) -> int:
        """Number of latent dimensions, the columns of ``Sample.z``."""

    @property
    @abstractmethod
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""

    @abstractmethod
    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        """Draw n independent observations with the generator, which is on the device."""

    def sample(
        self,
        n: int,
        *,
        random_state: RandomState = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Sample:
        """Draw n independent observations with their truth, on a device and in a precision.

        A generator given as `random_state` must be on that device, and is advanced.
        """
        if n < 1:
            raise ValueError(f"sample: n must be at least 1, got {n}.")
        device = torch.device(device)
        return self._draw(n, generator(random_state, device), device, dtype)


@dataclass(frozen=True, eq=False)
class Pairs(Process):
    """Pairs of observations whose latents are close: z ~ p(z), z̃ ~ p(·|z), x = g(z), x̃ = g(z̃).

    Zimmermann et al., Contrastive learning inverts the data generating process, ICML 2021.

    Parameters
    ----------
    marginal : Marginal
        The law of z.
    conditional : Conditional
        The law of the partner z̃ around z.
    mixing : Mixing
        The map g.

    Examples
    --------
    >>> from pindown.mixing import orthogonal
    >>> world = Pairs(Uniform(3), VonMisesFisher(10.0), orthogonal(3, random_state=0))
    >>> sample = world.sample(5, random_state=0)
    >>> tuple(sample.x.shape), tuple(sample.z_pos.shape)
    ((5, 3), (5, 3))
    >>> theory.VMF_CONDITIONAL in world.assumptions
    True
    """

    marginal: Marginal
    conditional: Conditional
    mixing: Mixing

    def __post_init__(self) -> None:
        _check_dimensions("Pairs", self.marginal.d, self.mixing.d)
        if self.conditional.space not in (self.marginal.space, Reals()):
            raise ValueError(
                f"Pairs: the marginal lies in {self.marginal.space}, but the conditional needs locations in "
                f"{self.conditional.space}. Give both the same space."
            )

    @classmethod
    def on_sphere(cls, d: int, concentration: float, *, n_layers: int = 2, random_state: RandomState = None) -> "Pairs":
        """Make the papers' world: uniform on the sphere, vMF partners, leaky ReLU mixing."""
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=random_state)
        return cls(Uniform(d), VonMisesFisher(concentration), mixing)

    @classmethod
    def on_box(cls, d: int, base: GeneralizedNormal, *, n_layers: int = 2, random_state: RandomState = None) -> "Pairs":
        """Make the papers' world: uniform on [0, 1]^d, partners from `base` truncated, leaky ReLU mixing."""
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=random_state)
        return cls(Uniform(d, Box()), Truncated(base, Box()), mixing)

    @property
    def d(self) -> int:
        """Number of latent dimensions."""
        return self.marginal.d

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""
        held = _of_mixing(self.mixing)
        match self.marginal:
            case Uniform(space=Sphere()):
                held |= {theory.UNIFORM_SPHERE}
            case Uniform(space=Box()):
                held |= {theory.UNIFORM_CONVEX_BODY}
        match self.conditional:
            case VonMisesFisher(concentration=kappa) if kappa > 0:
                held |= {theory.VMF_CONDITIONAL}
            # Below 1 the exponent comes from no norm, which the proofs need.
            case GeneralizedNormal(shape=p) | Truncated(base=GeneralizedNormal(shape=p)) if p >= 1:
                held |= {theory.METRIC_CONDITIONAL}
                held |= {theory.LP_CONDITIONAL} if p != 2 else set()
        return held

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        mixing = _placed(self.mixing, device)
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
        The class vectors v_c.
    conditional : Conditional
        The law of z around its class vector.
    mixing : Mixing
        The map g.
    weights : tuple of float, optional
        Class probabilities up to a factor; equal by default.

    Examples
    --------
    >>> from pindown.mixing import identity
    >>> world = Clusters(torch.eye(3), VonMisesFisher(50.0), identity(3))
    >>> sample = world.sample(1000, random_state=0)
    >>> (sample.x.argmax(1) == sample.u).float().mean().item() > 0.99
    True
    """

    vectors: Tensor
    conditional: Conditional
    mixing: Mixing
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or not self.vectors.is_floating_point():
            raise ValueError(
                "Clusters: vectors must be a floating-point matrix, one row per class, "
                f"got shape {tuple(self.vectors.shape)} and {self.vectors.dtype}."
            )
        _check_dimensions("Clusters", self.d, self.mixing.d)
        if not self.conditional.space.contains(self.vectors):
            raise ValueError(
                f"Clusters: vectors must lie in {self.conditional.space}, where the conditional lives. "
                "Project them first: conditional.space.project(vectors)."
            )
        if self.weights is not None and (
            len(self.weights) != len(self.vectors) or not all(0 < w < float("inf") for w in self.weights)
        ):
            raise ValueError(
                f"Clusters: weights must be {len(self.vectors)} positive numbers, one per class vector, "
                f"got {self.weights}."
            )

    @classmethod
    def on_sphere(
        cls,
        d: int,
        n_classes: int,
        concentration: float,
        *,
        n_layers: int = 2,
        random_state: RandomState = None,
    ) -> "Clusters":
        """Make the papers' world: class vectors uniform on the sphere, vMF clusters, leaky ReLU mixing."""
        if n_classes < 2:
            raise ValueError(f"Clusters: n_classes must be at least 2, got {n_classes}.")
        rng = generator(random_state)
        vectors = Sphere().uniform(n_classes, d, random_state=rng, dtype=torch.float64)
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=rng)
        return cls(vectors, VonMisesFisher(concentration), mixing)

    @property
    def d(self) -> int:
        """Number of latent dimensions."""
        return self.vectors.shape[1]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.vectors)

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""
        held = _of_mixing(self.mixing)
        if isinstance(self.conditional, VonMisesFisher) and self.conditional.concentration > 0:
            held |= {theory.VMF_CLUSTERS}
        if _spread(self.vectors).shape[1] == self.d:
            held |= {theory.AFFINE_GENERATORS}
        return held

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        levels = torch.rand(n, generator=rng, device=device, dtype=torch.float64)
        u = torch.searchsorted(_placed(self._thresholds, device), levels, right=True)  # (n,)
        loc = _placed(self.vectors, device)[u].to(dtype)  # (n, d)
        z = self.conditional.sample(loc, random_state=rng)
        return Sample(x=_placed(self.mixing, device)(z), z=z, u=u)

    @cached_property
    def _thresholds(self) -> Tensor:
        weights = torch.tensor(self.weights or (1.0,) * self.n_classes, dtype=torch.float64)
        # The inner ones only: the last class takes the rest, however the sum was rounded.
        return (weights / weights.sum()).cumsum(0)[:-1]  # (n_classes − 1,)


@dataclass(frozen=True, eq=False)
class Nuisance(Process):
    """A nuisance e that moves part of what is seen: ã | e ~ p(·|v_e), x = g(ã), and z, what e leaves alone.

    With vMF clusters the law of a projection of ã depends on e only through the projection of v_e. So the
    coordinates z of ã on V^⊥, V = span{v_e − v_e'}, are independent of e; those on larger subspaces are not.
    ã itself is ``clusters.mixing.inverse(x)``.

    Parameters
    ----------
    clusters : Clusters
        The world of ã; its classes are the values of e.

    Examples
    --------
    >>> from pindown.mixing import identity
    >>> vectors = Sphere()(torch.tensor([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]))  # they differ in the first axis
    >>> world = Nuisance(Clusters(vectors, VonMisesFisher(5.0), identity(3)))
    >>> world.d, world.nuisance_space.abs().round().flatten().tolist()
    (2, [1.0, 0.0, 0.0])
    """

    clusters: Clusters

    def __post_init__(self) -> None:
        if self.nuisance_space.shape[1] == self.clusters.d:
            raise ValueError(
                f"Nuisance: the differences of the {self.clusters.n_classes} nuisance vectors span all "
                f"{self.clusters.d} dimensions, so the nuisance leaves nothing alone. "
                "Use fewer values, at most as many as dimensions, or more dimensions."
            )

    @classmethod
    def on_sphere(
        cls,
        d: int,
        n_values: int,
        concentration: float,
        *,
        n_layers: int = 2,
        random_state: RandomState = None,
    ) -> "Nuisance":
        """Make `Clusters.on_sphere` in d dimensions the world of ã; d − n_values + 1 of them survive."""
        clusters = Clusters.on_sphere(d, n_values, concentration, n_layers=n_layers, random_state=random_state)
        return cls(clusters)

    @property
    def d(self) -> int:
        """Number of dimensions that survive."""
        return self.complement.shape[1]

    @cached_property
    def nuisance_space(self) -> Tensor:
        """Orthonormal basis of V, in columns; (d_a, dim V)."""
        return _spread(self.clusters.vectors)

    @cached_property
    def complement(self) -> Tensor:
        """Orthonormal basis of V^⊥, in columns; (d_a, d)."""
        return torch.linalg.qr(self.nuisance_space, mode="complete").Q[:, self.nuisance_space.shape[1] :]

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""
        held = _of_mixing(self.clusters.mixing)
        # Other laws are not rotation-symmetric around v_e, so their shape on V^⊥ may depend on e.
        if theory.VMF_CLUSTERS in self.clusters.assumptions:
            held |= {theory.NUISANCE_VMF, theory.NUISANCE_INDEPENDENT}
        return held

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        x, a, u, *_ = self.clusters._draw(n, rng, device, dtype)
        return Sample(x=x, z=a @ _placed(self.complement, device).to(dtype), u=u)


@dataclass(frozen=True, eq=False)
class Structured(Process):
    """Observed variables that each depend on some latents only, without side variable: z ~ p(z), x = g(z).

    Zheng et al., Diverse dictionary learning.

    Parameters
    ----------
    mixing : SparseMixing
        The map g; its Jacobian's support is the structure.
    marginal : Marginal
        The law of z.

    Examples
    --------
    >>> world = Structured.from_support([[1, 0], [1, 1], [0, 1]], random_state=0)
    >>> tuple(world.sample(5, random_state=0).x.shape)
    (5, 3)
    """

    mixing: SparseMixing
    marginal: Marginal

    def __post_init__(self) -> None:
        _check_dimensions("Structured", self.marginal.d, self.mixing.d)

    @classmethod
    def from_support(cls, support: ArrayLike, *, random_state: RandomState = None) -> "Structured":
        """Make a world of standard normal latents and a random smooth mixing with this m×d support."""
        mixing = sparse(support, random_state=random_state)
        return cls(mixing, Around((0.0,) * mixing.d, normal(1.0)))

    @property
    def d(self) -> int:
        """Number of latent dimensions."""
        return self.marginal.d

    @property
    def support(self) -> np.ndarray:
        """The m×d matrix of zeros and ones that says which latent reaches which observed variable."""
        return self.mixing.support

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world; nothing guarantees an injective mixing."""
        match self.marginal:
            case Around(law=GeneralizedNormal() | Truncated()) | Uniform(space=Box()):
                return frozenset({theory.POSITIVE_DENSITY, theory.INDEPENDENT_BLOCKS})
        return frozenset()

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        z = self.marginal.sample(n, random_state=rng, device=device, dtype=dtype)
        return Sample(x=_placed(self.mixing, device)(z), z=z)


@lru_cache(maxsize=64)
def _placed(constant: Tensor | nn.Module, device: torch.device) -> Any:
    """Return the constant on a device, copied there once: a copy per draw would wait for the device."""
    return copy.deepcopy(constant).to(device)


def _spread(vectors: Tensor) -> Tensor:
    """Orthonormal basis, in columns, of the span of all differences of the rows."""
    vectors = vectors.double()
    _, s, vt = torch.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    tolerance = 1e-6 * torch.linalg.matrix_norm(vectors)  # the vectors may have been rounded to float32
    return vt[s > tolerance].mT


def _of_mixing(mixing: Mixing) -> frozenset[Assumption]:
    kinked = isinstance(mixing.bend, Leaky) and mixing.bend.slope != 1 and len(mixing.weights) > 1
    return frozenset({theory.INJECTIVE_MIXING} | (set() if kinked else {theory.DIFFEOMORPHIC_MIXING}))


def _check_dimensions(owner: str, d: int, mixing_d: int) -> None:
    if d != mixing_d:
        raise ValueError(f"{owner}: the latents have {d} dimensions, the mixing takes {mixing_d}. Make them agree.")
