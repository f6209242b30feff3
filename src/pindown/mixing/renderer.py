"""`Renderer`: a mixing whose observations are pictures."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from pindown._names import listed, nearest
from pindown.distributions import cached_tensor
from pindown.mixing.factors import Factor
from pindown.spaces import Box, Reals, Space, Sphere

RAYS_AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 23}
"""Samples of pictures drawn at once, so that memory stays bounded: on a CPU as many as its caches hold (half as fast
again), on a GPU so many that its operations take longer than it takes to ask for them."""


class Renderer(nn.Module, ABC):
    """A mixing that draws: latents (n, d) → pictures (n, 3, size, size) between 0 and 1; abstract.

    Pure functions of z, in torch, on its device and in its precision, with nothing to wait for and nothing random.

    Parameters
    ----------
    size : int
        Pixels of an edge.
    factors : sequence of str, optional
        Which of the `known` factors are latents, in their order; by default all but light and camera. The others stay
        as they are in ``fixed``, or in the middle of their range.
    domain : Box, Sphere or Reals
        Where latents lie. A box and the sphere's [−1, 1] are stretched to the ranges of the factors, and so are the
        reals, by the normal distribution function. Beyond its range a factor stays at its end.
    fixed : mapping from str to float, optional
        Values of factors that are no latents, in their own units.
    samples : int
        A pixel is the mean of samples × samples points of it: antialiasing.
    """

    known: ClassVar[tuple[Factor, ...]]
    usual: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        size: int = 64,
        *,
        factors: Sequence[str] | None = None,
        domain: Space = Box(),  # noqa: B008, a frozen value
        fixed: Mapping[str, float] | None = None,
        samples: int = 2,
    ) -> None:
        super().__init__()
        if size < 4 or samples < 1:
            raise ValueError(f"{type(self).__name__}: size must be at least 4 and samples 1, got {size}, {samples}.")
        if not isinstance(domain, Box | Sphere | Reals):
            raise TypeError(f"{type(self).__name__}: domain must be a Box, Sphere() or Reals(), got {domain!r}.")
        self.size, self.samples, self.domain = size, samples, domain
        self.fixed = {name: self._fixed(name, value) for name, value in (fixed or {}).items()}
        self.factors = tuple(self._known(name) for name in (self._usual() if factors is None else factors))
        names = [factor.name for factor in self.factors]
        if not names or len(set(names)) < len(names) or set(names) & set(self.fixed):
            raise ValueError(
                f"{type(self).__name__}: factors must be some names, each once and not fixed, got {names}."
            )

    @property
    def d(self) -> int:
        """Number of latent dimensions."""
        return len(self.factors)

    @property
    def injective(self) -> bool:
        """Whether different latents give different pictures: not with categories or full circles among them."""
        return not any(factor.categorical or factor.circular for factor in self.factors)

    @property
    def ends(self) -> tuple[float, float]:
        """The two ends of a latent's range: of the reals, where nearly all of a standard normal law lies."""
        match self.domain:
            case Box(low=low, high=high):
                return low, high
            case Sphere():
                return -1.0, 1.0
        return -2.5, 2.5

    def values(self, z: Tensor) -> dict[str, Tensor]:
        """Return what each factor is, latent or not, in its own units; (n, d) → (n,) each."""
        self._check(z)
        share = self._share(z)
        found = {factor.name: factor.at(share[:, j]) for j, factor in enumerate(self.factors)}
        for factor in self._all():
            if factor.name not in found:
                value = self.fixed.get(factor.name, factor.middle)
                found[factor.name] = z.new_full((len(z),), value)
        return found

    def forward(self, z: Tensor) -> Tensor:
        """Draw pictures; (n, d) → (n, 3, size, size)."""
        self._check(z)
        rays = RAYS_AT_ONCE.get(z.device.type, RAYS_AT_ONCE["cpu"])
        at_once = max(1, rays // (self.size * self.samples) ** 2)
        parts = [self._pixels(part) for part in z.split(at_once)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def extra_repr(self) -> str:
        """Size and factors, for ``print``."""
        return f"size={self.size}, factors={[factor.name for factor in self.factors]}, domain={self.domain}"

    @abstractmethod
    def _draw(self, values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """Return colours (n, 3, h · w) at points of the picture, x (w,) to the right and y (h, 1) up, from −1 to 1.

        Of each factor there is a value for every picture, (n, 1).
        """

    def _pixels(self, z: Tensor) -> Tensor:
        fine = self.size * self.samples
        line = ((torch.arange(fine, device=z.device) + 0.5) / fine * 2 - 1).to(z.dtype)
        values = {name: value[:, None] for name, value in self.values(z).items()}
        pictures = self._draw(values, line, -line[:, None]).clamp(0, 1).unflatten(-1, (fine, fine))
        return nn.functional.avg_pool2d(pictures, self.samples) if self.samples > 1 else pictures

    def _check(self, z: Tensor) -> None:
        if not isinstance(z, Tensor):
            raise TypeError(
                f"{type(self).__name__}: z must be a tensor, got {type(z).__name__}. Pass torch.as_tensor(z)."
            )
        if z.ndim != 2 or z.shape[1] != self.d:
            raise ValueError(
                f"{type(self).__name__}: z must have shape (n, {self.d}), a column for each of "
                f"{listed([factor.name for factor in self.factors])}, got {tuple(z.shape)}."
            )

    def _share(self, z: Tensor) -> Tensor:
        match self.domain:
            case Box(low=low, high=high):
                return (z - low) / (high - low)
            case Sphere():
                return (z + 1) / 2
        return 0.5 * (1 + torch.erf(z / math.sqrt(2)))

    def _all(self) -> tuple[Factor, ...]:
        return self.known

    def _usual(self) -> tuple[str, ...]:
        return self.usual

    def _fixed(self, name: str, value: float) -> float:
        factor = self._known(name)
        try:
            return factor.fixed_at(value)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}: fixed: {error}") from error

    def _known(self, name: str) -> Factor:
        known = {factor.name: factor for factor in self._all()}
        if name not in known:
            raise ValueError(f"{type(self).__name__}: no factor is called {name!r}: {nearest(name, [*known])}")
        return known[name]


def colour_of(hue: Tensor, saturation: float = 0.7, value: float = 0.95) -> Tensor:
    """Return the colour of a hue from 0 to 1, where 1 is red again, as 0 is; (n, 1) → (n, 3, 1)."""
    turns = cached_tensor((0.0, 4.0, 2.0), hue.device, hue.dtype)[:, None]
    pure = ((6 * hue[:, None] + turns).remainder(6) - 3).abs().sub(1).clamp(0, 1)
    return value * (1 - saturation + saturation * pure)
