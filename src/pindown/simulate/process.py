"""`Process`, a simulation with known latents; `Sample`, what it returns; `Pairs`, `Clusters`, `Nuisance`."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
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
    GeneralizedNormal,
    Marginal,
    Truncated,
    Uniform,
    VonMisesFisher,
)
from pindown.simulate.mixing import InvertibleNetwork, Mixing, leaky_relu_mlp
from pindown.theory import Assumption

Constant = TypeVar("Constant", Tensor, nn.Module, Mixing)


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
        """Draw n independent samples with their latents; a generator passed as `random_state` is advanced."""
        check_positive(n=n)
        device = torch.device(device)
        return self._draw(n, generator(random_state, device), device, dtype)

    def draw(self, n_samples: int, generator: torch.Generator) -> Batch:
        """Draw new samples without their latents, by role."""
        sample = self.sample(n_samples, random_state=generator, device=generator.device)
        sides = {"pairs": sample.x_pos, self.role_of_u or "y": sample.u, "given": sample.label}
        return {"x": sample.x, **{role: side for role, side in sides.items() if side is not None}}

    @cached_property
    def _thresholds(self) -> Tensor:
        """Inner edges of the distribution function; the last category absorbs rounding errors."""
        return torch.as_tensor(self.prior).cumsum(0)[:-1]

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
    conditional : Conditional
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
    conditional: Conditional
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

    def sample_classes(self, u: Tensor, rng: torch.Generator, dtype: torch.dtype) -> Sample:
        """Draw one sample of each class in ``u``, with a generator on its device."""
        loc = placed(self.vectors, u.device)[u].to(dtype)  # (n, d)
        z = self.conditional.sample(loc, random_state=rng)
        return Sample(x=placed(self.mixing, u.device)(z), z=z, u=u)

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        return self.sample_classes(self._draw_categories(n, rng, device), rng, dtype)


@dataclass(frozen=True, eq=False)
class Nuisance(Process):
    """A nuisance e that moves some directions of the latents ã: ã | e ~ p(·|v_e), x = g(ã).

    With vMF clusters the distribution of a projection of ã depends on e only through the projection of v_e. So the
    coordinates z of ã on V^⊥, V = span{v_e − v_e'}, are independent of e; those on larger subspaces are not.
    ã itself is ``clusters.mixing.inverse(x)``.

    Parameters
    ----------
    clusters : Clusters
        The simulation of ã; its classes are the levels of e.

    Examples
    --------
    >>> from pindown.simulate.distributions import VonMisesFisher
    >>> from pindown.simulate.mixing import identity
    >>> from pindown.networks.spaces import Sphere
    >>> vectors = Sphere()(torch.tensor([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]))  # they differ in the first axis
    >>> process = Nuisance(Clusters(vectors, VonMisesFisher(5.0), identity(3)))
    >>> process.d, process.nuisance_space.abs().round().flatten().tolist()
    (2, [1.0, 0.0, 0.0])
    """

    role_of_u = "nuisance"

    clusters: Clusters

    def __post_init__(self) -> None:
        if self.nuisance_space.shape[1] == self.clusters.d:
            what = f"the {self.clusters.n_classes} vectors of `clusters` differ in all {self.clusters.d} dimensions"
            raise InputError("clusters", f"{what}, so no latent is independent of the nuisance. Use fewer levels.")

    @classmethod
    def on_sphere(
        cls,
        d: int,
        n_levels: int,
        concentration: float,
        *,
        n_layers: int = 2,
        weights: tuple[float, ...] | None = None,
        random_state: RandomState = None,
    ) -> Nuisance:
        """Return a simulation with ã from `Clusters.on_sphere` in d dimensions; d − n_levels + 1 are invariant.

        ``weights`` are the frequencies of the levels, up to a factor; equal by default.
        """
        clusters = Clusters.on_sphere(d, n_levels, concentration, n_layers=n_layers, random_state=random_state)
        return cls(replace(clusters, weights=weights))

    @property
    def d(self) -> int:
        """Number of invariant latents."""
        return self.complement.shape[1]

    @cached_property
    def nuisance_space(self) -> Tensor:
        """Orthonormal basis of V; (d_a, dim V)."""
        return span_of_differences(self.clusters.vectors)

    @cached_property
    def complement(self) -> Tensor:
        """Orthonormal basis of V^⊥; (d_a, d)."""
        return torch.linalg.qr(self.nuisance_space, mode="complete").Q[:, self.nuisance_space.shape[1] :]

    @property
    def invariant_space(self) -> Tensor:
        """Orthonormal basis of the directions of x that an invariant linear encoder reads; (d_a, d)."""
        return invariant_directions(self.clusters.mixing, self.complement)

    @property
    def prior(self) -> NDArray[np.float64]:
        return self.clusters.prior

    @property
    def assumptions(self) -> frozenset[Assumption]:
        held = self.clusters.mixing.assumptions
        # Other distributions are not symmetric around v_e, so their shape on V^⊥ may depend on e.
        if theory.VMF_CLUSTERS in self.clusters.assumptions:
            held |= {theory.NUISANCE_VMF, theory.NUISANCE_INDEPENDENT}
        return held

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        x, a, u, *_ = self.clusters._draw(n, rng, device, dtype)
        return Sample(x=x, z=a @ placed(self.complement, device).to(dtype), u=u)


def invariant_directions(mixing: Mixing, directions: Tensor) -> Tensor:
    """Return an orthonormal basis of the directions m of x with mᵀ g(ã) = nᵀ ã for the directions n of ã."""
    if not isinstance(mixing, InvertibleNetwork) or len(mixing.weights) > 1:
        raise InputError("mixing", "`invariant_space` exists for a linear mixing only. Use `n_layers=1`.")
    return torch.linalg.qr(torch.linalg.solve(mixing.weights[0].mT, directions.double())).Q


def span_of_differences(vectors: Tensor) -> Tensor:
    """Return an orthonormal basis of span{v_a − v_b}; (n, d) → (d, rank)."""
    vectors = vectors.double()
    _, s, vt = torch.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    tolerance = 1e-6 * torch.linalg.matrix_norm(vectors)  # the vectors may have been rounded to float32
    return vt[s > tolerance].mT
