"""A nuisance that moves part of what is seen, or changes its shape, and leaves the rest alone."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState, generator
from pindown.mixing import Mixing, Renderer, leaky_relu_mlp
from pindown.processes._base import Process, Sample, check_mixing, of_mixing, shares, thresholds
from pindown.processes.clusters import Clusters, spread
from pindown.spaces import Reals
from pindown.theory import Assumption


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
    >>> from pindown.distributions import VonMisesFisher
    >>> from pindown.mixing import identity
    >>> from pindown.spaces import Sphere
    >>> vectors = Sphere()(torch.tensor([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]))  # they differ in the first axis
    >>> world = Nuisance(Clusters(vectors, VonMisesFisher(5.0), identity(3)))
    >>> world.d, world.nuisance_space.abs().round().flatten().tolist()
    (2, [1.0, 0.0, 0.0])
    """

    role_of_u = "nuisance"

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
        weights: tuple[float, ...] | None = None,
        random_state: RandomState = None,
    ) -> "Nuisance":
        """Make `Clusters.on_sphere` in d dimensions the world of ã; d − n_values + 1 of them survive.

        ``weights`` are the frequencies of the values, up to a factor; equal by default.
        """
        clusters = Clusters.on_sphere(d, n_values, concentration, n_layers=n_layers, random_state=random_state)
        return cls(replace(clusters, weights=weights))

    @property
    def d(self) -> int:
        """Number of dimensions that survive."""
        return self.complement.shape[1]

    @cached_property
    def nuisance_space(self) -> Tensor:
        """Orthonormal basis of V, in columns; (d_a, dim V)."""
        return spread(self.clusters.vectors)

    @cached_property
    def complement(self) -> Tensor:
        """Orthonormal basis of V^⊥, in columns; (d_a, d)."""
        return torch.linalg.qr(self.nuisance_space, mode="complete").Q[:, self.nuisance_space.shape[1] :]

    @property
    def blind_space(self) -> Tensor:
        """Orthonormal basis of the row space that a blind linear code of x must have, in columns; (d_a, d)."""
        return _rows_of(self.clusters.mixing, self.complement)

    @property
    def prior(self) -> NDArray[np.float64]:
        """How often each value of the nuisance comes."""
        return self.clusters.prior

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""
        held = of_mixing(self.clusters.mixing)
        # Other laws are not rotation-symmetric around v_e, so their shape on V^⊥ may depend on e.
        if theory.VMF_CLUSTERS in self.clusters.assumptions:
            held |= {theory.NUISANCE_VMF, theory.NUISANCE_INDEPENDENT}
        return held

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        x, a, u, *_ = self.clusters._draw(n, rng, device, dtype)
        return Sample(x=x, z=a @ placed(self.complement, device).to(dtype), u=u)


@dataclass(frozen=True, eq=False)
class ShapeNuisance(Process):
    """A nuisance that changes spreads, not means: ã = (z, w), z ~ N(0, I), w | e ~ N(0, diag(s_e²)), x = g(ã).

    The means of x agree for all values of e if g is linear, so that whatever looks at means alone finds nothing to
    remove; yet the spread of w tells e.

    Parameters
    ----------
    scales : Tensor of shape (n_values, n_touched)
        The standard deviations s_e of w, one row per value of e.
    mixing : Mixing or Renderer
        The map g; what it takes beyond the n_touched coordinates of w is z.
    weights : tuple of float, optional
        Frequencies of the values of e, up to a factor; equal by default.

    Examples
    --------
    >>> from pindown.mixing import identity
    >>> world = ShapeNuisance(torch.tensor([[1.0], [3.0]]), identity(3))
    >>> sample = world.sample(10_000, random_state=0)
    >>> world.d, [round(sample.x[sample.u == e, 2].std().item()) for e in (0, 1)]
    (2, [1, 3])
    """

    role_of_u = "nuisance"

    scales: Tensor
    mixing: Mixing | Renderer
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.scales.ndim != 2 or not (self.scales > 0).all():
            raise ValueError(
                "ShapeNuisance: scales must be a matrix of positive numbers, one row per value of the nuisance, "
                f"got shape {tuple(self.scales.shape)}."
            )
        if not 0 < self.scales.shape[1] < self.mixing.d:
            raise ValueError(
                f"ShapeNuisance: the nuisance touches {self.scales.shape[1]} of {self.mixing.d} dimensions. "
                "Let it touch at least one, and leave at least one alone."
            )
        check_mixing("ShapeNuisance", self.mixing.d, Reals(), self.mixing)
        if self.weights is not None and len(self.weights) != len(self.scales):
            raise ValueError(f"ShapeNuisance: weights must be {len(self.scales)} numbers, one per row of scales.")

    @classmethod
    def spread(
        cls,
        d: int,
        n_touched: int,
        n_values: int,
        ratio: float = 5.0,
        *,
        n_layers: int = 1,
        weights: tuple[float, ...] | None = None,
        random_state: RandomState = None,
    ) -> "ShapeNuisance":
        """Make a world in d dimensions whose touched ones have spreads from 1 to ``ratio``, in an order of their own.

        One layer of mixing is a linear map; with more there is a leaky ReLU between each two.
        """
        rng = generator(random_state)
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=rng)
        steps = torch.logspace(0, 1, n_values, base=ratio, dtype=torch.float64)
        orders = torch.rand(n_values, n_touched, generator=rng, dtype=torch.float64).argsort(0)
        return cls(steps[orders], mixing, weights)

    @property
    def d(self) -> int:
        """Number of dimensions that the nuisance leaves alone."""
        return self.mixing.d - self.scales.shape[1]

    @property
    def blind_space(self) -> Tensor:
        """Orthonormal basis of the row space that a blind linear code of x must have, in columns; (d_a, d)."""
        return _rows_of(self.mixing, torch.eye(self.mixing.d, self.d, dtype=torch.float64))

    @property
    def prior(self) -> NDArray[np.float64]:
        """How often each value of the nuisance comes."""
        return shares(self.weights or np.ones(len(self.scales)))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""
        return of_mixing(self.mixing) | {theory.NUISANCE_INDEPENDENT}

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        u = _drawn(self._thresholds, n, rng, device)
        white = torch.randn(n, self.mixing.d, generator=rng, device=device, dtype=dtype)
        a = white * placed(self._spreads, device).to(dtype)[u]
        return Sample(x=placed(self.mixing, device)(a), z=a[:, : self.d], u=u)

    @cached_property
    def _thresholds(self) -> Tensor:
        return thresholds(self.prior)

    @cached_property
    def _spreads(self) -> Tensor:
        """Standard deviations of ã, one row per value; (n_values, d_a)."""
        return torch.cat([torch.ones(len(self.scales), self.d), self.scales], 1)


@dataclass(frozen=True, eq=False)
class Confounded(Process):
    """A nuisance e that goes with a label c, as in a badly balanced study: (c, e) ~ joint, x = g(z, w).

    z | c ~ N(l_c, I) is what the label moves, w | e ~ N(v_e, I) what the nuisance moves. So z is independent of e
    *given the label*, but not without: a code that forgets e altogether must forget part of c. The label is the
    ``label`` of a sample.

    Parameters
    ----------
    label_vectors : Tensor of shape (n_labels, d)
        The means l_c of z.
    nuisance_vectors : Tensor of shape (n_values, n_touched)
        The means v_e of w.
    joint : Tensor of shape (n_labels, n_values)
        Frequencies of the pairs (c, e), up to a factor.
    mixing : Mixing or Renderer
        The map g of (z, w).

    Examples
    --------
    >>> from pindown.mixing import identity
    >>> joint = torch.tensor([[9.0, 1.0], [1.0, 9.0]])  # nearly every sample of a label has one value
    >>> world = Confounded(torch.eye(2), torch.tensor([[-1.0], [1.0]]), joint, identity(3))
    >>> sample = world.sample(10_000, random_state=0)
    >>> round((sample.label == sample.u).float().mean().item(), 1)
    0.9
    """

    role_of_u = "nuisance"

    label_vectors: Tensor
    nuisance_vectors: Tensor
    joint: Tensor
    mixing: Mixing | Renderer

    def __post_init__(self) -> None:
        shape = (len(self.label_vectors), len(self.nuisance_vectors))
        if self.joint.shape != shape or not (self.joint >= 0).all() or not self.joint.sum() > 0:
            raise ValueError(
                f"Confounded: joint must be {shape[0]} × {shape[1]} frequencies, a row per label and a column per "
                f"value of the nuisance, got shape {tuple(self.joint.shape)}."
            )
        if self.label_vectors.shape[1] + self.nuisance_vectors.shape[1] != self.mixing.d:
            raise ValueError(
                f"Confounded: z and w have {self.label_vectors.shape[1]} + {self.nuisance_vectors.shape[1]} "
                f"dimensions, the mixing takes {self.mixing.d}. Make them agree."
            )
        check_mixing("Confounded", self.mixing.d, Reals(), self.mixing)

    @property
    def d(self) -> int:
        """Number of dimensions that the nuisance leaves alone, given the label."""
        return self.label_vectors.shape[1]

    @property
    def blind_space(self) -> Tensor:
        """Orthonormal basis of the row space of codes blind given the label, all of w kept that can be; (d_a, d_b)."""
        moved = spread(self.nuisance_vectors)
        basis = torch.eye(self.mixing.d, dtype=torch.float64)
        basis[self.d :, self.d :] -= moved @ moved.mT
        u, s, _ = torch.linalg.svd(basis)
        return _rows_of(self.mixing, u[:, s > 0.5])

    @property
    def prior(self) -> NDArray[np.float64]:
        """How often each value of the nuisance comes."""
        return shares(self.joint.sum(0))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world: z depends on e unless the label is given."""
        return of_mixing(self.mixing)

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        pair = _drawn(self._thresholds, n, rng, device)
        label, u = pair // self.joint.shape[1], pair % self.joint.shape[1]
        means = [placed(self.label_vectors, device)[label], placed(self.nuisance_vectors, device)[u]]
        white = torch.randn(n, self.mixing.d, generator=rng, device=device, dtype=dtype)
        a = white + torch.cat(means, 1).to(dtype)
        return Sample(x=placed(self.mixing, device)(a), z=a[:, : self.d], u=u, label=label)

    @cached_property
    def _thresholds(self) -> Tensor:
        return thresholds(shares(self.joint.flatten()))


def _drawn(thresholds: Tensor, n: int, rng: torch.Generator, device: torch.device) -> Tensor:
    levels = torch.rand(n, generator=rng, device=device, dtype=torch.float64)
    return torch.searchsorted(placed(thresholds, device), levels, right=True)


def _rows_of(mixing: Mixing | Renderer, directions: Tensor) -> Tensor:
    """Return the directions m of x with mᵀ g(ã) = nᵀ ã for each direction n of ã, as an orthonormal basis."""
    if isinstance(mixing, Renderer) or len(mixing.weights) > 1:
        raise ValueError("blind_space: the mixing is not linear, so no linear code of x is blind. Use n_layers=1.")
    return torch.linalg.qr(torch.linalg.solve(mixing.weights[0].mT, directions.double())).Q
