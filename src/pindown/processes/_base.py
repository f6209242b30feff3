"""What a world is, and what all worlds share."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pindown import theory
from pindown._random import RandomState, generator
from pindown.mixing import Leaky, Mixing, Renderer
from pindown.spaces import Space
from pindown.theory import Assumption


class Sample(NamedTuple):
    """What a process gives: observations, their truth, and the side variable or partner if there is one."""

    x: Tensor  # (n, m) observations
    z: Tensor  # (n, d) latents
    u: Tensor | None = None  # (n,) class or nuisance value, int64
    x_pos: Tensor | None = None  # (n, m) partners
    z_pos: Tensor | None = None  # (n, d) latents of the partners
    label: Tensor | None = None  # (n,) a class that z depends on, beside the nuisance u, int64


class Process(ABC):
    """A world one can draw from."""

    role_of_u: ClassVar[str | None] = None
    """The part that ``Sample.u`` plays: signal, nuisance, or None if there is none."""

    @property
    def prior(self) -> NDArray[np.float64] | None:
        """How often each value of ``Sample.u`` comes, summing to one; None if there is none."""
        return None

    @property
    @abstractmethod
    def d(self) -> int:
        """Number of latent dimensions, the columns of ``Sample.z``."""

    @property
    @abstractmethod
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""

    @abstractmethod
    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        """Draw n independent observations with the generator, which is on the device."""

    def sample(
        self,
        n: int,
        *,
        random_state: RandomState = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Sample:
        """Draw n independent observations with their truth, on a device and in a precision.

        A generator given as `random_state` must be on that device, and is advanced.
        """
        if n < 1:
            raise ValueError(f"sample: n must be at least 1, got {n}.")
        device = torch.device(device)
        return self._draw(n, generator(random_state, device), device, dtype)


def of_mixing(mixing: Mixing | Renderer) -> frozenset[Assumption]:
    if isinstance(mixing, Renderer):  # edges and shadows: a picture is no smooth function of what is drawn
        return frozenset({theory.INJECTIVE_MIXING} if mixing.injective else ())
    kinked = isinstance(mixing.bend, Leaky) and mixing.bend.slope != 1 and len(mixing.weights) > 1
    return frozenset({theory.INJECTIVE_MIXING} | (set() if kinked else {theory.DIFFEOMORPHIC_MIXING}))


def check_mixing(owner: str, d: int, space: Space, mixing: nn.Module) -> None:
    """Raise if the mixing takes latents of another number or, a renderer, from another space."""
    if d != mixing.d:
        raise ValueError(f"{owner}: the latents have {d} dimensions, the mixing takes {mixing.d}. Make them agree.")
    if isinstance(mixing, Renderer) and mixing.domain != space:
        raise ValueError(
            f"{owner}: the latents lie in {space}, but the renderer draws those of {mixing.domain}. "
            f"Make it with domain={space}."
        )


def shares(weights: Any) -> NDArray[np.float64]:
    """Return weights, up to a factor, as frequencies."""
    weights = np.asarray(weights, dtype=np.float64)
    return weights / weights.sum()


def thresholds(frequencies: NDArray[np.float64]) -> Tensor:
    """Return the levels between values of these frequencies; the last takes the rest, however the sum was rounded."""
    return torch.as_tensor(frequencies).cumsum(0)[:-1]
