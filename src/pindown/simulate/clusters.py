"""`Clusters`: latents around class vectors, with the class as the label."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.networks.spaces import Sphere
from pindown.simulate.distributions import ConditionalDensity, VonMisesFisher
from pindown.simulate.mixing import Mixing, leaky_relu_mlp
from pindown.simulate.process import Process, Sample, check_mixing, frequencies, placed
from pindown.theory import Assumption

_N_BLOCK = 2**16  # numbers at once; a `Projected` density holds 128 times as many


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
    ) -> "Clusters":
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
        parts = z.split(max(1, _N_BLOCK // vectors.numel()))
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
