"""`Sensors`: a simulation seen by one of several sensors, a nuisance of the image and not of the scene."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from pindown import theory
from pindown.errors import InputError
from pindown.simulate import Process, Sample
from pindown.simulate.process import frequencies, placed
from pindown.theory import Assumption


@dataclass(frozen=True, eq=False)
class Sensors(Process):
    """A simulation seen by one of several random sensors e: x = gain_e · x' + offset_e + noise_e · ε, ε ~ N(0, I).

    Examples are the scanners of several hospitals and the cameras of several robots. The latents are those of the
    simulation and independent of e. Positives and labels of the simulation are not passed on.

    Parameters
    ----------
    simulation : Process
        The simulation that the sensors observe.
    gains, offsets, noises : tuple of float
        One number per sensor.

    Examples
    --------
    >>> from pindown.simulate.distributions import Truncated, Uniform, normal
    >>> from pindown_papers.simulations import Sprites
    >>> from pindown.simulate import Pairs
    >>> from pindown.networks.spaces import Box
    >>> scenes = Pairs(Uniform(2, Box()), Truncated(normal(0.1)), Sprites(16, factors=("x", "y")))
    >>> sample = Sensors(scenes, gains=(1.0, 0.5), offsets=(0.0, 0.3), noises=(0.0, 0.05)).sample(100, random_state=0)
    >>> tuple(sample.x.shape), sample.u.unique().tolist()
    ((100, 3, 16, 16), [0, 1])
    """

    role_of_u = "nuisance"

    simulation: Process
    gains: tuple[float, ...]
    offsets: tuple[float, ...]
    noises: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.gains) == len(self.offsets) == len(self.noises) or len(self.gains) < 2:
            raise InputError(
                "gains",
                "gains, offsets and noises must have one number for each of at least two sensors, "
                f"got {len(self.gains)}, {len(self.offsets)} and {len(self.noises)}.",
            )
        if not all(gain > 0 for gain in self.gains) or not all(noise >= 0 for noise in self.noises):
            raise InputError(
                "gains", "gains must be positive, noises at least 0: a sensor without a gain sees nothing."
            )

    @property
    def d(self) -> int:
        """Number of latent dimensions."""
        return self.simulation.d

    @property
    def prior(self) -> NDArray[np.float64]:
        """How often each sensor comes."""
        return frequencies(np.ones(len(self.gains)))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this simulation: with noise no map is injective."""
        mixing = {theory.INJECTIVE_MIXING, theory.DIFFEOMORPHIC_MIXING}
        held = frozenset({theory.NUISANCE_INDEPENDENT})
        return held | (self.simulation.assumptions & mixing if not any(self.noises) else frozenset())

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        scene = self.simulation._draw(n, rng, device, dtype)
        u = torch.randint(len(self.gains), (n,), generator=rng, device=device)
        settings = placed(self._settings, device).to(dtype)[:, u]  # (3, n)
        gain, offset, noise = settings.reshape(3, n, *[1] * (scene.x.ndim - 1))
        grain = torch.randn(scene.x.shape, generator=rng, device=device, dtype=dtype)
        return Sample(x=gain * scene.x + offset + noise * grain, z=scene.z, u=u)

    @cached_property
    def _settings(self) -> torch.Tensor:
        return torch.tensor([self.gains, self.offsets, self.noises], dtype=torch.float64)
