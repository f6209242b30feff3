"""`Process`, a simulation with known latents, and `Sample`, what it returns."""

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState, generator
from pindown.data.sources import Batch, GeneratorSource
from pindown.errors import InputError
from pindown.networks.spaces import Space
from pindown.simulate.mixing import LeakyReLU, Mixing, SparseMixing
from pindown.simulate.renderers import Renderer
from pindown.theory import Assumption


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
        if n < 1:
            raise InputError("n", f"`n` must be at least 1, got {n}.")
        device = torch.device(device)
        return self._draw(n, generator(random_state, device), device, dtype)

    def draw(self, n_samples: int, generator: torch.Generator) -> Batch:
        """Draw new samples without their latents, by role."""
        sample = self.sample(n_samples, random_state=generator, device=generator.device)
        sides = {"pairs": sample.x_pos, self.role_of_u or "y": sample.u, "given": sample.label}
        return {"x": sample.x, **{role: side for role, side in sides.items() if side is not None}}


def mixing_assumptions(mixing: Mixing | Renderer) -> frozenset[Assumption]:
    """Return the assumptions about the mixing that hold."""
    if isinstance(mixing, Renderer):  # edges and shadows make an image a discontinuous function of its latents
        return frozenset({theory.INJECTIVE_MIXING} if mixing.injective else ())
    kinked = isinstance(mixing.activation, LeakyReLU) and mixing.activation.slope != 1 and len(mixing.weights) > 1
    return frozenset({theory.INJECTIVE_MIXING} | (set() if kinked else {theory.DIFFEOMORPHIC_MIXING}))


def check_mixing(d: int, space: Space, mixing: Mixing | Renderer | SparseMixing) -> None:
    """Raise if the mixing expects another number of latents or, for a renderer, another space."""
    if d != mixing.d:
        raise InputError("mixing", f"There are {d} latents, but `mixing` takes {mixing.d}. Use the same number.")
    if isinstance(mixing, Renderer) and mixing.domain != space:
        raise InputError(
            "mixing", f"The latents lie in {space}, but the renderer expects {mixing.domain}. Use `domain={space}`."
        )


def frequencies(weights: ArrayLike) -> NDArray[np.float64]:
    """Return weights scaled to sum to one."""
    weights = np.asarray(weights, dtype=np.float64)
    return weights / weights.sum()


def thresholds(probabilities: NDArray[np.float64]) -> Tensor:
    """Return the inner edges of the distribution function; the last category absorbs rounding errors."""
    return torch.as_tensor(probabilities).cumsum(0)[:-1]


def draw_categories(thresholds: Tensor, n: int, rng: torch.Generator, device: torch.device) -> Tensor:
    """Draw n category indices given the `thresholds` of their distribution; (n,) int64."""
    uniform = torch.rand(n, generator=rng, device=device, dtype=torch.float64)
    return torch.searchsorted(placed(thresholds, device), uniform, right=True)
