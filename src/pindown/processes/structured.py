"""Observed variables that each depend on some latents only."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from pindown import theory
from pindown._random import RandomState
from pindown.distributions import Around, GeneralizedNormal, Marginal, Truncated, Uniform, normal
from pindown.mixing import SparseMixing, sparse
from pindown.processes._base import Process, Sample, check_dimensions, placed
from pindown.spaces import Box
from pindown.theory import Assumption


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
        check_dimensions("Structured", self.marginal.d, self.mixing.d)

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
        return Sample(x=placed(self.mixing, device)(z), z=z)
