"""A nuisance that moves part of what is seen, and leaves the rest alone."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pindown import theory
from pindown._random import RandomState
from pindown.processes._base import Process, Sample, of_mixing, placed
from pindown.processes.clusters import Clusters, spread
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
        return spread(self.clusters.vectors)

    @cached_property
    def complement(self) -> Tensor:
        """Orthonormal basis of V^⊥, in columns; (d_a, d)."""
        return torch.linalg.qr(self.nuisance_space, mode="complete").Q[:, self.nuisance_space.shape[1] :]

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
