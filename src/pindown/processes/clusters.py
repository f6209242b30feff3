"""Latents in clusters around class vectors, labelled by class or by instance."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState, generator
from pindown.distributions import Conditional, VonMisesFisher
from pindown.mixing import Mixing, Renderer, leaky_relu_mlp
from pindown.processes._base import Process, Sample, check_mixing, of_mixing, shares, thresholds
from pindown.processes._density import log_densities
from pindown.spaces import Sphere
from pindown.theory import Assumption


@dataclass(frozen=True, eq=False)
class Clusters(Process):
    """Latents in clusters around class vectors: u ~ weights, z | u ~ p(·|v_u), x = g(z).

    Reizinger et al., Cross-entropy is all you need to invert the data generating process, 2024.

    Parameters
    ----------
    vectors : Tensor of shape (n_classes, d)
        The class vectors v_c, such as draws of a `pindown.distributions.Marginal`.
    conditional : Conditional
        The law of z around its class vector.
    mixing : Mixing or Renderer
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

    role_of_u = "signal"

    vectors: Tensor
    conditional: Conditional
    mixing: Mixing | Renderer
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or not self.vectors.is_floating_point():
            raise ValueError(
                "Clusters: vectors must be a floating-point matrix, one row per class, "
                f"got shape {tuple(self.vectors.shape)} and {self.vectors.dtype}."
            )
        check_mixing("Clusters", self.d, self.conditional.space, self.mixing)
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
    def prior(self) -> NDArray[np.float64]:
        """How often each class comes."""
        return shares(self.weights or np.ones(self.n_classes))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""
        held = of_mixing(self.mixing)
        if isinstance(self.conditional, VonMisesFisher) and self.conditional.concentration > 0:
            held |= {theory.VMF_CLUSTERS}
        if spread(self.vectors).shape[1] == self.d:
            held |= {theory.AFFINE_GENERATORS}
        return held

    def log_posterior(self, z: Tensor) -> Tensor:
        r"""Return log P(u = c | z) of every class, the best any classifier can do; (n, d) → (n, n_classes).

        .. math:: P(u = c \mid z) = \frac{\pi_c\, p(z \mid v_c)}{\sum_b \pi_b\, p(z \mid v_b)}

        Its cross-entropy on samples of this world is what a fitted classifier's is to be compared with.

        Examples
        --------
        A latent halfway between two class vectors may belong to either:

        >>> from pindown.mixing import identity
        >>> world = Clusters(torch.eye(2), VonMisesFisher(3.0), identity(2))
        >>> world.log_posterior(Sphere()(torch.ones(1, 2))).exp().round(decimals=3)
        tensor([[0.5000, 0.5000]])
        """
        joint = log_densities(self.conditional, z, self.vectors) + torch.as_tensor(self.prior).log().to(z)
        return joint.log_softmax(1)

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        levels = torch.rand(n, generator=rng, device=device, dtype=torch.float64)
        u = torch.searchsorted(placed(self._thresholds, device), levels, right=True)  # (n,)
        return self._around(u, rng, dtype)

    def _around(self, u: Tensor, rng: torch.Generator, dtype: torch.dtype) -> Sample:
        """Draw one observation of each of these classes."""
        loc = placed(self.vectors, u.device)[u].to(dtype)  # (n, d)
        z = self.conditional.sample(loc, random_state=rng)
        return Sample(x=placed(self.mixing, u.device)(z), z=z, u=u)

    @cached_property
    def _thresholds(self) -> Tensor:
        return thresholds(self.prior)


@dataclass(frozen=True, eq=False)
class Instances(Process):
    """Clusters whose labels are instances: u is one of n_instances ids, and every draw of an id is a new view of it.

    Instance i belongs to class i mod n_classes, and all views of a class follow the same law: telling instances
    apart (DIET) is then as good as telling classes apart, up to a guess among the instances of the class.

    Parameters
    ----------
    clusters : Clusters
        The world of the views, with classes of equal weight.
    n_instances : int
        Number of ids, at least one per class.

    Examples
    --------
    >>> world = Instances(Clusters.on_sphere(3, 4, 10.0, random_state=0), 12)
    >>> sample = world.sample(1000, random_state=0)
    >>> sample.u.unique().tolist() == list(range(12))
    True
    >>> world.classes(torch.tensor([0, 4, 5]))
    tensor([0, 0, 1])
    """

    role_of_u = "signal"

    clusters: Clusters
    n_instances: int

    def __post_init__(self) -> None:
        if self.n_instances < self.clusters.n_classes:
            raise ValueError(
                f"Instances: n_instances={self.n_instances} is less than the {self.clusters.n_classes} classes, "
                "so some would never be seen. Take fewer classes, or more instances."
            )
        if self.clusters.weights is not None:
            raise ValueError(
                "Instances: the clusters have weights, but here a class weighs as much as it has instances. "
                "Leave the weights out."
            )

    @property
    def d(self) -> int:
        """Number of latent dimensions."""
        return self.clusters.d

    @property
    def vectors(self) -> Tensor:
        """The class vector of every instance; (n_instances, d)."""
        return self.clusters.vectors[self.classes(torch.arange(self.n_instances))]

    @property
    def prior(self) -> NDArray[np.float64]:
        """How often each instance comes."""
        return shares(np.ones(self.n_instances))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""
        return self.clusters.assumptions

    def classes(self, ids: Tensor) -> Tensor:
        """Return the class of each instance."""
        return ids % self.clusters.n_classes

    def log_posterior(self, z: Tensor) -> Tensor:
        """Return log P(u = i | z) of every instance; (n, d) → (n, n_instances)."""
        label = self.classes(torch.arange(self.n_instances, device=z.device))
        # Instances are equally likely: of a class with more of them there is more to be seen.
        return log_densities(self.clusters.conditional, z, self.clusters.vectors)[:, label].log_softmax(1)

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        u = torch.randint(self.n_instances, (n,), generator=rng, device=device)
        return self.clusters._around(self.classes(u), rng, dtype)._replace(u=u)


def in_hyperplane(vectors: Tensor, *, offset: float = 0.5) -> Tensor:
    r"""Move unit vectors into one affine hyperplane, where they are no affine generator system; (n, d) → (n, d).

    The plane is :math:`\{v : v^\top m = \text{offset}\}` with :math:`m = (1, …, 1)/\sqrt d`; what a vector has across m
    keeps its direction. Classes around such vectors differ in nothing along m: the theorems of `Classify` no longer
    apply.

    Examples
    --------
    >>> v = in_hyperplane(torch.eye(3), offset=0.0)
    >>> bool(v.sum(1).abs().max() < 1e-6), Sphere().contains(v)
    (True, True)
    """
    if not (-1 < offset < 1 and vectors.shape[-1] > 1):
        raise ValueError(
            f"in_hyperplane: vectors must have at least two coordinates and offset must lie between −1 and 1, "
            f"got shape {tuple(vectors.shape)} and offset={offset}."
        )
    across = vectors - vectors.mean(-1, keepdim=True)
    return math.sqrt(1 - offset**2) * Sphere().project(across) + offset / math.sqrt(vectors.shape[-1])


def spread(vectors: Tensor) -> Tensor:
    """Orthonormal basis, in columns, of the span of all differences of the rows."""
    vectors = vectors.double()
    _, s, vt = torch.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    tolerance = 1e-6 * torch.linalg.matrix_norm(vectors)  # the vectors may have been rounded to float32
    return vt[s > tolerance].mT
