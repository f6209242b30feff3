"""`Pairs`: pairs of observations with similar latents."""

from dataclasses import dataclass

import torch

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState
from pindown.errors import InputError
from pindown.networks.spaces import Box, Reals, Sphere
from pindown.simulate.distributions import Conditional, GeneralizedNormal, Marginal, Truncated, Uniform, VonMisesFisher
from pindown.simulate.mixing import Mixing, leaky_relu_mlp
from pindown.simulate.process import Process, Sample, check_mixing, mixing_assumptions
from pindown.simulate.renderers import Renderer
from pindown.theory import Assumption


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
    mixing : Mixing or Renderer
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
    mixing: Mixing | Renderer

    def __post_init__(self) -> None:
        check_mixing(self.marginal.d, self.marginal.space, self.mixing)
        if self.conditional.space not in (self.marginal.space, Reals()):
            raise InputError(
                "conditional",
                f"`marginal` lies in {self.marginal.space}, but `conditional` in {self.conditional.space}. "
                "Use the same space for both.",
            )
        # Distributions on a grid have `sizes`, the number of levels of each factor.
        grid, around = getattr(self.marginal, "sizes", None), getattr(self.conditional, "sizes", None)
        if around is not None and (len(around) != self.d or grid not in (None, around)):
            where = f"has {self.d} latents" if grid is None else f"lies on a grid of sizes {grid}"
            raise InputError(
                "conditional", f"`marginal` {where}, but `conditional` on a grid of sizes {around}. Use the same sizes."
            )

    @classmethod
    def on_sphere(cls, d: int, concentration: float, *, n_layers: int = 2, random_state: RandomState = None) -> "Pairs":
        """Return the paper's simulation on the sphere: uniform latents, vMF positives, leaky ReLU mixing."""
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=random_state)
        return cls(Uniform(d), VonMisesFisher(concentration), mixing)

    @classmethod
    def on_box(cls, d: int, base: GeneralizedNormal, *, n_layers: int = 2, random_state: RandomState = None) -> "Pairs":
        """Return the paper's simulation on [0, 1]^d: uniform latents, truncated positives, leaky ReLU mixing."""
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=random_state)
        return cls(Uniform(d, Box()), Truncated(base, Box()), mixing)

    @property
    def d(self) -> int:
        """Number of latents."""
        return self.marginal.d

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions that hold in this simulation."""
        held = mixing_assumptions(self.mixing)
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
