"""Observed variables that each depend on some latents only."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState, generator
from pindown.distributions import Around, GeneralizedNormal, Marginal, Truncated, Uniform, normal
from pindown.mixing import SparseMixing, sparse
from pindown.processes._base import Process, Sample, check_mixing
from pindown.spaces import Box
from pindown.theory import Assumption

NONLINEAR = 0.05
"""Least nonlinearity of an observed variable that counts as sufficient, not to depend on the last digits."""

MAX_DRAWS = 500
"""Worlds that `Structured.well_posed` tries before it gives up."""

N_NEAREST = 10
"""Neighbours of an observation whose latents are compared."""


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
        check_mixing("Structured", self.marginal.d, self.marginal.space, self.mixing)

    @classmethod
    def from_support(
        cls, support: ArrayLike, *, n_candidates: int = 1, random_state: RandomState = None
    ) -> "Structured":
        """Make a world of standard normal latents and a random smooth mixing with this m×d support.

        With more `n_candidates` observed variables are further from linear: see `mixing.sparse`.
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
        """Make a world as `from_support` does that keeps away from the edges of the theorem's assumptions.

        Worlds are drawn until every observed variable is as nonlinear, the least singular value of the Jacobian as
        large, and observations of distant latents as far apart, as asked for: see `nonlinearity`, `injectivity` and
        `separation`. The first pulls against the others, and what is far from linear is harder to learn.

        Examples
        --------
        >>> world = Structured.well_posed([[1, 0], [1, 1], [0, 1]], random_state=0)
        >>> world.nonlinearity().min() >= 0.05 and world.injectivity() >= 0.1
        True
        """
        rng = generator(random_state)
        for _ in range(MAX_DRAWS):
            world = cls.from_support(support, n_candidates=n_candidates, random_state=rng)
            if world.nonlinearity().min() < nonlinearity or world.injectivity() < injectivity:
                continue
            if not separation or world.separation() >= separation:
                return world
        raise ValueError(
            f"well_posed: none of {MAX_DRAWS} worlds with this support had nonlinearity >= {nonlinearity}, "
            f"injectivity >= {injectivity} and separation >= {separation}. Ask for less of one of them, or add "
            "observed variables."
        )

    @property
    def d(self) -> int:
        """Number of latent dimensions."""
        return self.marginal.d

    @property
    def support(self) -> np.ndarray:
        """The m×d matrix of zeros and ones that says which latent reaches which observed variable."""
        return self.mixing.support

    def nonlinearity(self, n: int = 4_000) -> np.ndarray:
        """Return how far each observed variable is from linear, from n samples: see `SparseMixing.nonlinearity`."""
        return self.mixing.nonlinearity(self.marginal.sample(n, random_state=0, dtype=torch.float64))

    def injectivity(self, n: int = 4_000) -> float:
        """Return the least singular value of the Jacobian in standardised units over n samples: near 0, x hides z.

        It looks at each point by itself: whether distant latents have different observations, `separation` says.
        """
        z = self.marginal.sample(n, random_state=0, dtype=torch.float64)
        gradients = self.mixing.gradients(z) * z.std(0) / self.mixing(z).std(0)[:, None]
        return float(torch.linalg.svdvals(gradients)[:, -1].min())

    def separation(self, n: int = 4_000) -> float:
        r"""Return how near observations come whose latents do not: near 0, x folds onto itself.

        .. math:: \min_{i, j} \lVert x_i - x_j \rVert / \lVert z_i - z_j \rVert, \quad
                  j \text{ among the nearest ten of } x_i

        in standardised units, over n samples.
        """
        z = self.marginal.sample(n, random_state=0, dtype=torch.float64)
        seen, hidden = ((rows / rows.std(0)).numpy() for rows in (self.mixing(z), z))
        apart, nearest = cKDTree(seen).query(seen, k=N_NEAREST + 1)
        latents_apart = np.linalg.norm(hidden[:, None] - hidden[nearest[:, 1:]], axis=2)
        return float((apart[:, 1:] / latents_apart).min())

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world; nothing guarantees an injective mixing."""
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
