"""Renderers: mixings whose observations are images. `Room` and `Sprites` draw known latents, deterministically."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import ClassVar

import torch
from torch import Tensor, nn

from pindown._names import listed, nearest
from pindown.errors import InputError
from pindown.networks.spaces import Box, Reals, Space, Sphere
from pindown.simulate import rays
from pindown.simulate.distributions import cached_tensor

RAYS_AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 23}
"""Points rendered at once, to bound the memory: on a CPU as many as fit its caches, on a GPU enough to keep it busy."""


@dataclass(frozen=True)
class Factor:
    """The meaning of one latent of a renderer.

    Attributes
    ----------
    name : str
        Such as ``"wall_hue"``.
    low, high : float
        Values at the two ends of the latent's range, in the renderer's units.
    values : tuple of str
        Names of the categories; empty if the factor is continuous.
    period : float or None
        Period after which the image repeats; None if it never does. A range of that length is a circle.

    Examples
    --------
    >>> hue, shape = Factor("hue", 0.0, 0.8, period=1.0), Factor("shape", 0, 2, values=("square", "ellipse"))
    >>> hue.categorical, hue.circular, shape.categorical
    (False, False, True)
    """

    name: str
    low: float
    high: float
    values: tuple[str, ...] = ()
    period: float | None = None

    @property
    def categorical(self) -> bool:
        """Whether the factor has unordered categories."""
        return bool(self.values)

    @property
    def circular(self) -> bool:
        """Whether the range is a full period, so that both ends give the same image."""
        return self.period is not None and math.isclose(self.high - self.low, self.period)

    @property
    def middle(self) -> float:
        """The middle of the range; for categories an index."""
        value = (self.low + self.high) / 2
        return float(math.floor(value)) if self.categorical else value

    def checked(self, value: float) -> float:
        """Return a fixed value of the factor as a number; raise if it is not finite, or no index of a category.

        Examples
        --------
        >>> Factor("shape", 0, 2, values=("square", "ellipse")).checked(7)
        Traceback (most recent call last):
        pindown.errors.InputError: `fixed`: 'shape' must be 0 (square) or 1 (ellipse), got 7.
        """
        try:
            number = math.nan if isinstance(value, str) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if self.categorical and number not in range(len(self.values)):
            which = " or ".join(f"{j} ({name})" for j, name in enumerate(self.values))
            raise InputError("fixed", f"`fixed`: {self.name!r} must be {which}, got {value!r}.")
        if not math.isfinite(number):
            raise InputError(
                "fixed", f"`fixed`: {self.name!r} must be a number, such as {self.middle:g}, got {value!r}."
            )
        return number

    def at(self, fraction: Tensor) -> Tensor:
        """Return the value at a fraction in [0, 1] of the range; for categories an index, equally likely each."""
        value = self.low + (self.high - self.low) * fraction.clamp(0, 1)
        return value.floor().clamp_max(len(self.values) - 1) if self.categorical else value


class Renderer(nn.Module, ABC):
    """Abstract mixing that draws images: latents (n, d) → (n, 3, size, size) in [0, 1].

    A deterministic function of z in torch, on its device and in its precision, without synchronisation.

    Parameters
    ----------
    size : int
        Width and height in pixels.
    factors : sequence of str, optional
        Which of the `known` factors are latents, in this order; by default all but light and camera. The others have
        their value in ``fixed``, or the middle of their range.
    domain : Box, Sphere or Reals
        Space of the latents. A box and the sphere's [−1, 1] are mapped linearly to the ranges of the factors, the
        reals by the normal distribution function. Beyond its range a factor is clipped.
    fixed : mapping from str to float, optional
        Values of factors that are no latents, in their own units.
    samples : int
        Antialiasing: a pixel is the mean of samples × samples points.
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
        for name, value, least in (("size", size, 4), ("samples", samples, 1)):
            if value < least:
                raise InputError(name, f"`{name}` must be at least {least}, got {value}.")
        if not isinstance(domain, Box | Sphere | Reals):
            raise TypeError(f"`domain` must be a Box, Sphere() or Reals(), got {domain!r}.")
        self.size, self.samples, self.domain = size, samples, domain
        self.fixed = {name: self._known(name, "fixed").checked(value) for name, value in (fixed or {}).items()}
        self.factors = tuple(self._known(name, "factors") for name in (self._usual() if factors is None else factors))
        names = [factor.name for factor in self.factors]
        if not names or len(set(names)) < len(names) or set(names) & set(self.fixed):
            raise InputError("factors", f"`factors` must be different names that are not in `fixed`, got {names}.")

    @property
    def d(self) -> int:
        """Number of latents."""
        return len(self.factors)

    @property
    def injective(self) -> bool:
        """Whether different latents give different images: not with categories or full circles among them."""
        return not any(factor.categorical or factor.circular for factor in self.factors)

    @property
    def ends(self) -> tuple[float, float]:
        """The two ends of a latent's range; for the reals, ±2.5 standard deviations."""
        match self.domain:
            case Box(low=low, high=high):
                return low, high
            case Sphere():
                return -1.0, 1.0
        return -2.5, 2.5

    def values(self, z: Tensor) -> dict[str, Tensor]:
        """Return the value of each factor, latent or not, in its own units; (n, d) → (n,) each."""
        self._check(z)
        match self.domain:
            case Box(low=low, high=high):
                fraction = (z - low) / (high - low)
            case Sphere():
                fraction = (z + 1) / 2
            case _:
                fraction = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
        found = {factor.name: factor.at(fraction[:, j]) for j, factor in enumerate(self.factors)}
        for factor in self._all():
            if factor.name not in found:
                found[factor.name] = z.new_full((len(z),), self.fixed.get(factor.name, factor.middle))
        return found

    def forward(self, z: Tensor) -> Tensor:
        """Draw images; (n, d) → (n, 3, size, size)."""
        self._check(z)
        at_once = RAYS_AT_ONCE.get(z.device.type, RAYS_AT_ONCE["cpu"])
        parts = [self._pixels(part) for part in z.split(max(1, at_once // (self.size * self.samples) ** 2))]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def extra_repr(self) -> str:
        """Return size and factors, for ``print``."""
        return f"size={self.size}, factors={[factor.name for factor in self.factors]}, domain={self.domain}"

    @abstractmethod
    def _draw(self, values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """Return colours (n, 3, h · w) at points of the image, x (w,) to the right and y (h, 1) up, from −1 to 1.

        ``values`` has the factors of every image, (n, 1) each.
        """

    def _pixels(self, z: Tensor) -> Tensor:
        fine = self.size * self.samples
        line = ((torch.arange(fine, device=z.device) + 0.5) / fine * 2 - 1).to(z.dtype)
        values = {name: value[:, None] for name, value in self.values(z).items()}
        images = self._draw(values, line, -line[:, None]).clamp(0, 1).unflatten(-1, (fine, fine))
        return nn.functional.avg_pool2d(images, self.samples) if self.samples > 1 else images

    def _check(self, z: Tensor) -> None:
        if not isinstance(z, Tensor):
            raise TypeError(f"`z` must be a tensor, got {type(z).__name__}. Pass `torch.as_tensor(z)`.")
        if z.ndim != 2 or z.shape[1] != self.d:
            names = listed([factor.name for factor in self.factors])
            raise InputError("z", f"`z` must have shape (n, {self.d}), one feature per {names}, got {tuple(z.shape)}.")

    def _all(self) -> tuple[Factor, ...]:
        return self.known

    def _usual(self) -> tuple[str, ...]:
        return self.usual

    def _known(self, name: str, argument: str) -> Factor:
        known = {factor.name: factor for factor in self._all()}
        if name not in known:
            raise InputError(argument, f"`{argument}`: there is no factor {name!r}: {nearest(name, [*known])}")
        return known[name]

    def _is_fixed(self, name: str) -> bool:
        return all(factor.name != name for factor in self.factors)


def colour_of(hue: Tensor, saturation: float = 0.7, value: float = 0.95) -> Tensor:
    """Return the RGB colour of a hue in [0, 1]; (n, 1) → (n, 3, 1)."""
    offsets = cached_tensor((0.0, 4.0, 2.0), hue.device, hue.dtype)[:, None]
    pure = ((6 * hue[:, None] + offsets).remainder(6) - 3).abs().sub(1).clamp(0, 1)
    return value * (1 - saturation + saturation * pure)


HALF = 3.4  # half the width of the room
DISTANCE = 3.1  # of the camera from the middle of the room
LAMP, ABOVE = 4.2, math.radians(52.0)  # distance and elevation of the lamp


class Room(Renderer):
    """A solid in a room: hues of floor, wall and object, size, shape, and the azimuth of the camera.

    Analytic ray casting of a cube, a cylinder, a sphere or a capsule, with a soft shadow. Light and camera are factors
    as well, useful as a nuisance: ``light`` (position of the lamp), ``brightness``, ``elevation``, ``zoom``. Hues cover
    .8 of the circle, so that no two are the same.

    Parameters
    ----------
    size, factors, domain, fixed, samples
        See `Renderer`.

    Examples
    --------
    >>> room = Room(16, factors=("wall_hue", "size"), fixed={"shape": 2})
    >>> room.d, tuple(room(torch.rand(5, 2)).shape)
    (2, (5, 3, 16, 16))
    >>> Room(16, factors=("wal_hue",))
    Traceback (most recent call last):
    pindown.errors.InputError: `factors`: there is no factor 'wal_hue': did you mean 'wall_hue'?
    """

    known = (
        Factor("floor_hue", 0.0, 0.8, period=1.0),
        Factor("wall_hue", 0.0, 0.8, period=1.0),
        Factor("object_hue", 0.0, 0.8, period=1.0),
        Factor("size", 0.45, 0.9),
        Factor("shape", 0, 4, values=("cube", "cylinder", "sphere", "capsule")),
        Factor("azimuth", -30.0, 30.0, period=360.0),
        Factor("light", -70.0, 70.0, period=360.0),
        Factor("brightness", 0.55, 1.15),
        Factor("elevation", 14.0, 34.0, period=360.0),
        Factor("zoom", 0.85, 1.2),
    )
    usual = ("floor_hue", "wall_hue", "object_hue", "size", "shape", "azimuth")

    def _draw(self, values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        azimuth, elevation, lamp = (torch.deg2rad(values[name]) for name in ("azimuth", "elevation", "light"))
        radius, bright = values["size"], values["brightness"][:, None]
        middle = (torch.zeros_like(radius), radius, torch.zeros_like(radius))
        target = rays.place(azimuth, 0.0, 0.55, 0.0)
        around = (azimuth.sin() * elevation.cos(), elevation.sin(), azimuth.cos() * elevation.cos())
        eye = rays.ahead(target, torch.full_like(azimuth, DISTANCE), around)
        seen = rays.camera(x, y, eye, target, 0.62 / values["zoom"])
        across, high = LAMP * math.cos(ABOVE), torch.full_like(lamp, LAMP * math.sin(ABOVE))
        floor, wall, own = (bright * colour_of(values[f"{name}_hue"]) for name in ("floor", "wall", "object"))
        on_floor, on_wall = rays.room(seen, HALF)
        # The ball inside the solid casts the shadow, so the solid does not shade itself.
        surfaces = [
            rays.Surface(on_floor, floor),
            rays.Surface(on_wall, wall),
            rays.Surface(self._object(seen, middle, values["shape"]), own, 0.35 * values["brightness"], shaded=False),
        ]
        passes = partial(rays.shadow, centre=middle, radius=0.95 * radius)
        return rays.painted(seen, surfaces, (across * lamp.sin(), high, across * lamp.cos()), passes)

    def _object(self, seen: rays.Rays, middle: rays.Vector, shape: Tensor) -> rays.Hit:
        """Intersect the solid; compute only the shapes that can occur."""
        x, radius, z = middle
        solids = (
            lambda: rays.cube(seen, (x, 0.8 * radius, z), 0.8 * radius),
            lambda: rays.cylinder(seen, 0.78 * radius, 1.7 * radius),
            lambda: rays.sphere(seen, middle, radius),
            lambda: rays.capsule(seen, (x, 0.6 * radius, z), (x, 1.75 * radius, z), 0.6 * radius),
        )
        if self._is_fixed("shape"):
            return solids[int(self.fixed.get("shape", 2))]()
        hits = [solid() for solid in solids]

        def chosen(of_each: Sequence[Tensor]) -> Tensor:
            return reduce(
                lambda found, one: torch.where(shape == one[0], one[1], found), enumerate(of_each), of_each[0]
            )

        return rays.Hit(chosen([hit.distance for hit in hits]), lambda v: chosen([hit.facing(v) for hit in hits]))


SPRITE = ("shape", "size", "rotation", "x", "y")  # the usual factors of a sprite


class Sprites(Renderer):
    """Flat shapes on a plain background: shape, size, rotation, x and y of each, drawn one over another.

    Edges are one pixel soft, so one sample per pixel is enough. Rotations go up to 60°, because a square repeats at
    90°. Hue, and ``ground``, the brightness of the background, are factors as well. The factors of further sprites are
    numbered: ``x_2``.

    Parameters
    ----------
    n_sprites : int
        Number of shapes.
    size, factors, domain, fixed, samples
        See `Renderer`.

    Examples
    --------
    >>> sprites = Sprites(16, n_sprites=2)
    >>> [factor.name for factor in sprites.factors][4:7], tuple(sprites(torch.rand(3, 10)).shape)
    (['y', 'shape_2', 'size_2'], (3, 3, 16, 16))
    """

    def __init__(
        self,
        size: int = 64,
        *,
        n_sprites: int = 1,
        factors: Sequence[str] | None = None,
        domain: Space = Box(),  # noqa: B008, a frozen value
        fixed: Mapping[str, float] | None = None,
        samples: int = 1,
    ) -> None:
        if n_sprites < 1:
            raise InputError("n_sprites", f"`n_sprites` must be at least 1, got {n_sprites}.")
        self.n_sprites = n_sprites
        super().__init__(size, factors=factors, domain=domain, fixed=fixed, samples=samples)

    def _all(self) -> tuple[Factor, ...]:
        several = (factor for number in range(self.n_sprites) for factor in _sprite_factors(number, self.n_sprites))
        return (*several, Factor("ground", 0.0, 0.6))

    def _usual(self) -> tuple[str, ...]:
        return tuple(f"{name}{_suffix(number)}" for number in range(self.n_sprites) for name in SPRITE)

    def _draw(self, values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        varied = {factor.name for factor in self.factors} | set(self.fixed)
        ground = values["ground"] if "ground" in varied else torch.full_like(values["x"], 0.04)
        image = ground[:, None].expand(-1, 3, len(y) * len(x))
        edge = 2.0 / (self.size * self.samples)  # a pixel
        for number in range(self.n_sprites):
            own = {name: values[f"{name}{_suffix(number)}"] for name in (*SPRITE, "hue")}
            name = f"shape{_suffix(number)}"
            shape = int(self.fixed.get(name, self._known(name, "factors").middle)) if self._is_fixed(name) else None
            plain = self.n_sprites == 1 and "hue" not in varied
            colour = torch.full_like(own["hue"][:, None], 0.95) if plain else colour_of(own["hue"])
            image = image + _coverage(own, x, y, edge, shape)[:, None] * (colour - image)
        return image


def _sprite_factors(number: int, n_sprites: int) -> tuple[Factor, ...]:
    end, reach = _suffix(number), 0.4 / n_sprites
    hue = 0.8 * (number + 0.5) / n_sprites  # different sprites have different colours if hue is not a latent
    return (
        Factor(f"shape{end}", 0, 3, values=("square", "ellipse", "heart")),
        Factor(f"size{end}", 0.18, 0.36),
        Factor(f"rotation{end}", 0.0, 60.0, period=360.0),
        Factor(f"x{end}", -0.6, 0.6),
        Factor(f"y{end}", -0.6, 0.6),
        Factor(f"hue{end}", hue - reach, hue + reach, period=1.0),
    )


def _suffix(number: int) -> str:
    return f"_{number + 1}" if number else ""


def _coverage(own: dict[str, Tensor], x: Tensor, y: Tensor, edge: float, shape: int | None) -> Tensor:
    """Return the fraction of each point that a sprite covers; (n, p). With None, each sample has its own shape."""
    angle, size = torch.deg2rad(own["rotation"])[:, None], own["size"][:, None]
    right, up = x - own["x"][:, None], y - own["y"][:, None]  # (n, 1, w), (n, h, 1)
    cos, sin = angle.cos() / size, angle.sin() / size
    u, v = (cos * right + sin * up).flatten(1), (cos * up - sin * right).flatten(1)
    if shape is not None:
        outside = (_square, _ellipse, _heart)[shape](u, v)  # in units of the size
    else:
        each = torch.stack([_square(u, v), _ellipse(u, v), _heart(u, v)])  # (3, n, p)
        outside = each.gather(0, own["shape"].long()[None].expand(1, *u.shape))[0]
    return (0.5 - outside * own["size"] / edge).clamp(0, 1)


def _square(u: Tensor, v: Tensor) -> Tensor:
    du, dv = u.abs() - 0.85, v.abs() - 0.85
    return torch.hypot(du.clamp_min(0), dv.clamp_min(0)) + torch.maximum(du, dv).clamp_max(0)


def _ellipse(u: Tensor, v: Tensor) -> Tensor:
    """Return the first-order distance from an ellipse: level over length of the gradient."""
    level = torch.hypot(u, v / 0.55)
    slope = torch.hypot(u, v / 0.55**2) / level.clamp_min(1e-6)
    return (level - 1) / slope.clamp_min(1e-6)


def _heart(u: Tensor, v: Tensor) -> Tensor:
    """Return the distance from a heart: a square on its corner, of height 1, with a half disc on each upper side."""
    scale = 0.6
    a, b = scale * u.abs(), scale * v + 0.55
    disc = torch.hypot(a - 0.25, b - 0.75) - 0.125**0.5
    along = ((a + b) / 2).clamp_min(0)  # the nearest point of the lower side is (along, along)
    below = torch.minimum(torch.hypot(a, b - 1), torch.hypot(a - along, b - along)) * torch.sign(a - b)
    return torch.where(a + b > 1, disc, below) / scale
