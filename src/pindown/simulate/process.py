"""`Process`, a simulation with known latents; `Sample`, what it returns; and `Pairs`, the simplest one."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from pindown import theory
from pindown._random import RandomState, generator
from pindown.data.sources import Batch, GeneratorSource
from pindown.errors import InputError
from pindown.metrics.arrays import check_positive
from pindown.networks.spaces import Box, Reals, Space, Sphere
from pindown.simulate.distributions import Conditional, GeneralizedNormal, Marginal, Truncated, Uniform, VonMisesFisher
from pindown.simulate.mixing import Mixing, leaky_relu_mlp
from pindown.theory import Assumption


@lru_cache(maxsize=64)
def placed(constant: Tensor | nn.Module, device: torch.device) -> Any:
    """Return the constant on a device, copied there once: a copy per draw would wait for the device."""
    return copy.deepcopy(constant).to(device)


class Sample(NamedTuple):
    """Simulated data: observations with their latents, and the side variable or positive if there is one."""

    x: Tensor  # (n, m) observations
    z: Tensor  # (n, d) latents
    u: Tensor | None = None  # (n,) class or level of the nuisance, int64
    x_pos: Tensor | None = None  # (n, m) positives
    z_pos: Tensor | None = None  # (n, d) latents of the positives
    label: Tensor | None = None  # (n,) a class that z depends on, in addition to the nuisance u, int64


class Process(GeneratorSource):
    """A simulation: `sample` returns observations with their latents.

    A process is also a source for ``fit``. Then `draw` returns only what can be observed: positives as ``pairs``, a
    label next to a nuisance as ``given``. Sampling never synchronises with the device, so a CUDA graph can capture it.
    """

    role_of_u: ClassVar[str | None] = None
    """Role of ``Sample.u``: signal, nuisance, or None if there is none."""

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of one observation."""
        return tuple(self.sample(1, random_state=0).x.shape[1:])

    @property
    def prior(self) -> NDArray[np.float64] | None:
        """Probability of each level of ``Sample.u``; None if there is no ``u``."""
        return None

    @property
    @abstractmethod
    def d(self) -> int:
        """Number of latents, the width of ``Sample.z``."""

    @property
    @abstractmethod
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions of `pindown.theory` that hold in this simulation."""

    @abstractmethod
    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        """Draw n independent samples with a generator on the device."""

    def sample(
        self,
        n: int,
        *,
        random_state: RandomState = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Sample:
        """Draw n independent samples with their latents.

        A generator passed as `random_state` must be on the same device. It is advanced.
        """
        check_positive(n=n)
        device = torch.device(device)
        return self._draw(n, generator(random_state, device), device, dtype)

    def draw(self, n_samples: int, generator: torch.Generator) -> Batch:
        """Draw new samples without their latents, by role."""
        sample = self.sample(n_samples, random_state=generator, device=generator.device)
        sides = {"pairs": sample.x_pos, self.role_of_u or "y": sample.u, "given": sample.label}
        return {"x": sample.x, **{role: side for role, side in sides.items() if side is not None}}

    @property
    def _categories(self) -> NDArray[np.float64] | None:
        """Probabilities of the categories that `_draw_categories` draws."""
        return self.prior

    @cached_property
    def _thresholds(self) -> Tensor:
        """Inner edges of the distribution function; the last category absorbs rounding errors."""
        return torch.as_tensor(self._categories).cumsum(0)[:-1]

    def _draw_categories(self, n: int, rng: torch.Generator, device: torch.device) -> Tensor:
        """Draw the index of a category for each sample; (n,) int64."""
        uniform = torch.rand(n, generator=rng, device=device, dtype=torch.float64)
        return torch.searchsorted(placed(self._thresholds, device), uniform, right=True)


def frequencies(weights: ArrayLike) -> NDArray[np.float64]:
    """Return weights scaled to sum to one."""
    weights = np.asarray(weights, dtype=np.float64)
    return weights / weights.sum()


def check_mixing(d: int, space: Space, mixing: Mixing) -> None:
    """Raise if the mixing expects another number of latents or another space."""
    if d != mixing.d:
        raise InputError("mixing", f"`mixing` must take {d} latents, got one that takes {mixing.d}.")
    if mixing.domain not in (None, space):
        raise InputError("mixing", f"`mixing` takes latents in {mixing.domain}, got {space}. Use `domain={space}`.")


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
    mixing : Mixing
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
    mixing: Mixing

    def __post_init__(self) -> None:
        check_mixing(self.marginal.d, self.marginal.space, self.mixing)
        if self.conditional.space not in (self.marginal.space, Reals()):
            spaces = f"`conditional` lies in {self.conditional.space} and `marginal` in {self.marginal.space}"
            raise InputError("conditional", f"{spaces}. Use the same space for both.")
        # Distributions on a grid have `sizes`, the number of levels of each factor.
        grid, around = (getattr(part, "sizes", None) for part in (self.marginal, self.conditional))
        if around is not None and (len(around) != self.d or grid not in (None, around)):
            raise InputError("conditional", f"`conditional` must have the same {self.d} `sizes`, got {around}.")

    @classmethod
    def on_sphere(cls, d: int, concentration: float, *, n_layers: int = 2, random_state: RandomState = None) -> Pairs:
        """Return the paper's simulation on the sphere: uniform latents, vMF positives, leaky ReLU mixing."""
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=random_state)
        return cls(Uniform(d), VonMisesFisher(concentration), mixing)

    @classmethod
    def on_box(cls, d: int, base: GeneralizedNormal, *, n_layers: int = 2, random_state: RandomState = None) -> Pairs:
        """Return the paper's simulation on [0, 1]^d: uniform latents, truncated positives, leaky ReLU mixing."""
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=random_state)
        return cls(Uniform(d, Box()), Truncated(base, Box()), mixing)

    @property
    def d(self) -> int:
        return self.marginal.d

    @property
    def assumptions(self) -> frozenset[Assumption]:
        held = self.mixing.assumptions
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
