"""Pairs of observations whose latents are close."""

from dataclasses import dataclass

import torch

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState
from pindown.distributions import Conditional, GeneralizedNormal, Marginal, Truncated, Uniform, VonMisesFisher
from pindown.grids import sizes_of
from pindown.mixing import Mixing, Renderer, leaky_relu_mlp
from pindown.processes._base import Process, Sample, check_mixing, of_mixing
from pindown.spaces import Box, Reals, Sphere
from pindown.theory import Assumption


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
    mixing : Mixing or Renderer
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
    mixing: Mixing | Renderer

    def __post_init__(self) -> None:
        check_mixing("Pairs", self.marginal.d, self.marginal.space, self.mixing)
        if self.conditional.space not in (self.marginal.space, Reals()):
            raise ValueError(
                f"Pairs: the marginal lies in {self.marginal.space}, but the conditional needs locations in "
                f"{self.conditional.space}. Give both the same space."
            )
        grid, around = sizes_of(self.marginal), sizes_of(self.conditional)
        if around is not None and (len(around) != self.d or grid not in (None, around)):
            where = f"has {self.d} latents" if grid is None else f"lies on a grid of sizes {grid}"
            raise ValueError(f"Pairs: the marginal {where}, but partners on one of {around}. Give both the same sizes.")

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
        held = of_mixing(self.mixing)
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
        mixing = placed(self.mixing, device)
        z = self.marginal.sample(n, random_state=rng, device=device, dtype=dtype)
        z_pos = self.conditional.sample(z, random_state=rng)
        return Sample(x=mixing(z), z=z, x_pos=mixing(z_pos), z_pos=z_pos)
