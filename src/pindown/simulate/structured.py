"""`Structured`: observed variables that each depend on some latents only."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.networks.spaces import Box
from pindown.simulate.distributions import Around, GeneralizedNormal, Marginal, Truncated, Uniform, normal
from pindown.simulate.mixing import SparseMixing, sparse
from pindown.simulate.process import Process, Sample, check_mixing
from pindown.theory import Assumption

NONLINEAR = 0.05
"""Threshold of nonlinearity above which an observed variable counts as sufficiently nonlinear."""

MAX_DRAWS = 500
"""Simulations that `Structured.well_posed` tries before it raises."""

N_NEAREST = 10
"""Neighbours of an observation whose latents are compared in `Structured.separation`."""


@dataclass(frozen=True, eq=False)
class Structured(Process):
    """Observed variables that each depend on some latents only, without side variable: z ~ p(z), x = g(z).

    Zheng et al., Diverse dictionary learning.

    Parameters
    ----------
    mixing : SparseMixing
        The map g; the support of its Jacobian is the structure.
    marginal : Marginal
        Distribution of z.

    Examples
    --------
    >>> process = Structured.from_support([[1, 0], [1, 1], [0, 1]], random_state=0)
    >>> tuple(process.sample(5, random_state=0).x.shape)
    (5, 3)
    """

    mixing: SparseMixing
    marginal: Marginal

    def __post_init__(self) -> None:
        check_mixing(self.marginal.d, self.marginal.space, self.mixing)

    @classmethod
    def from_support(
        cls, support: ArrayLike, *, n_candidates: int = 1, random_state: RandomState = None
    ) -> "Structured":
        """Return a simulation with standard normal latents and a random smooth mixing with this m×d support.

        A larger `n_candidates` makes the observed variables more nonlinear: see `mixing.sparse`.
        """
        mixing = sparse(support, n_candidates=n_candidates, random_state=random_state)
        return cls(mixing, Around((0.0,) * mixing.d, normal(1.0)))

    @classmethod
    def well_posed(
        cls,
        support: ArrayLike,
        *,
        nonlinearity: float = NONLINEAR,
        injectivity: float = 0.1,
        separation: float = 0.0,
        n_candidates: int = 1,
        random_state: RandomState = None,
    ) -> "Structured":
        """Return a simulation as `from_support` does, with a margin in the assumptions of the theorem.

        Draws simulations until `nonlinearity`, `injectivity` and `separation` reach these thresholds. The first
        conflicts with the others, and strongly nonlinear data are harder to learn.

        Examples
        --------
        >>> process = Structured.well_posed([[1, 0], [1, 1], [0, 1]], random_state=0)
        >>> process.nonlinearity().min() >= 0.05 and process.injectivity() >= 0.1
        True
        """
        rng = generator(random_state)
        for _ in range(MAX_DRAWS):
            process = cls.from_support(support, n_candidates=n_candidates, random_state=rng)
            if process.nonlinearity().min() < nonlinearity or process.injectivity() < injectivity:
                continue
            if not separation or process.separation() >= separation:
                return process
        raise InputError(
            "support",
            f"None of {MAX_DRAWS} simulations with this `support` reached `nonlinearity={nonlinearity}`, "
            f"`injectivity={injectivity}` and `separation={separation}`. Lower one of them, or add observed variables.",
        )

    @property
    def d(self) -> int:
        """Number of latents."""
        return self.marginal.d

    @property
    def support(self) -> NDArray[np.int32]:
        """Which latent affects which observed variable; (m, d) zeros and ones."""
        return self.mixing.support

    def nonlinearity(self, n: int = 4_000) -> NDArray[np.float64]:
        """Return the nonlinearity of each observed variable, from n samples: see `SparseMixing.nonlinearity`."""
        return self.mixing.nonlinearity(self.marginal.sample(n, random_state=0, dtype=torch.float64))

    def injectivity(self, n: int = 4_000) -> float:
        """Return the least singular value of the standardised Jacobian over n samples; near 0, x loses latents.

        This is a local measure. `separation` compares distant latents.
        """
        z = self.marginal.sample(n, random_state=0, dtype=torch.float64)
        gradients = self.mixing.gradients(z) * z.std(0) / self.mixing(z).std(0)[:, None]
        return float(torch.linalg.svdvals(gradients)[:, -1].min())

    def separation(self, n: int = 4_000) -> float:
        r"""Return how close observations of distant latents come; near 0, the mixing is not injective.

        .. math:: \min_{i, j} \lVert x_i - x_j \rVert / \lVert z_i - z_j \rVert, \quad
                  j \text{ among the nearest ten of } x_i

        in standardised units, over n samples.
        """
        z = self.marginal.sample(n, random_state=0, dtype=torch.float64)
        x, z_standard = ((values / values.std(0)).numpy() for values in (self.mixing(z), z))
        distance, nearest = cKDTree(x).query(x, k=N_NEAREST + 1)
        latent_distance = np.linalg.norm(z_standard[:, None] - z_standard[nearest[:, 1:]], axis=2)
        return float((distance[:, 1:] / latent_distance).min())

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions that hold in this simulation; an injective mixing is not guaranteed."""
        held = frozenset[Assumption]()
        if self.nonlinearity().min() >= NONLINEAR:  # then gradients span all directions of the support
            held |= {theory.SUFFICIENT_NONLINEARITY}
        match self.marginal:
            case Around(law=GeneralizedNormal() | Truncated()) | Uniform(space=Box()):
                held |= {theory.POSITIVE_DENSITY, theory.INDEPENDENT_BLOCKS}
        return held

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        z = self.marginal.sample(n, random_state=rng, device=device, dtype=dtype)
        return Sample(x=placed(self.mixing, device)(z), z=z)
