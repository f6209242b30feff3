"""Clusters in one hyperplane, and with instance labels, as in instance discrimination (DIET)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown.errors import InputError
from pindown.networks.spaces import Sphere
from pindown.simulate import Clusters, Process, Sample
from pindown.simulate.process import frequencies
from pindown.theory import Assumption


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


@dataclass(frozen=True, eq=False)
class Instances(Process):
    """Clusters with instance labels: u is one of n_instances ids, and every draw of an id is a new view of it.

    Instance i belongs to class i mod n_classes. All views of a class have the same distribution, so classifying
    instances (DIET) is as informative as classifying classes, up to a guess among the instances of the class.

    Parameters
    ----------
    clusters : Clusters
        The simulation of the views, with classes of equal weight.
    n_instances : int
        Number of ids, at least one per class.

    Examples
    --------
    >>> process = Instances(Clusters.on_sphere(3, 4, 10.0, random_state=0), 12)
    >>> sample = process.sample(1000, random_state=0)
    >>> sample.u.unique().tolist() == list(range(12))
    True
    >>> process.classes(torch.tensor([0, 4, 5]))
    tensor([0, 0, 1])
    """

    role_of_u = "signal"

    clusters: Clusters
    n_instances: int

    def __post_init__(self) -> None:
        if self.n_instances < self.clusters.n_classes:
            raise InputError(
                "n_instances",
                f"`n_instances={self.n_instances}` is less than the {self.clusters.n_classes} classes. Use more "
                "instances or fewer classes.",
            )
        if self.clusters.weights is not None:
            raise InputError("clusters", "`clusters` must have equal weights. Leave its `weights` out.")

    @property
    def d(self) -> int:
        """Number of latents."""
        return self.clusters.d

    @property
    def vectors(self) -> Tensor:
        """The class vector of every instance; (n_instances, d)."""
        return self.clusters.vectors[self.classes(torch.arange(self.n_instances))]

    @property
    def prior(self) -> NDArray[np.float64]:
        """Probability of each instance."""
        return frequencies(np.ones(self.n_instances))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions that hold in this simulation."""
        return self.clusters.assumptions

    def classes(self, ids: Tensor) -> Tensor:
        """Return the class of each instance."""
        return ids % self.clusters.n_classes

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        u = torch.randint(self.n_instances, (n,), generator=rng, device=device)
        return self.clusters.sample_classes(self.classes(u), rng, dtype)._replace(u=u)
