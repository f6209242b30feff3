"""Renderers: mixings whose observations are images, drawn deterministically by analytic ray casting; and `Room`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pindown import theory
from pindown._names import listed, nearest
from pindown.errors import InputError
from pindown.networks.spaces import Box, Reals, Space, Sphere
from pindown.simulate.distributions import cached_tensor
from pindown.simulate.images import Bytes, contact_sheet
from pindown.simulate.mixing import Mixing
from pindown.theory import Assumption

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
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or (self.categorical and number not in range(len(self.values))):
            categories = " or ".join(f"{j} ({name})" for j, name in enumerate(self.values))
            allowed = categories or f"a number, such as {self.middle:g}"
            raise InputError("fixed", f"`fixed`: {self.name!r} must be {allowed}, got {value!r}.")
        return number

    def at(self, fraction: Tensor) -> Tensor:
        """Return the value at a fraction in [0, 1] of the range; for categories an index, equally likely each."""
        value = self.low + (self.high - self.low) * fraction.clamp(0, 1)
        return value.floor().clamp_max(len(self.values) - 1) if self.categorical else value


class Renderer(Mixing, ABC):
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

    known: tuple[Factor, ...]
    usual: tuple[str, ...]
    domain: Space

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
        self.factors = tuple(self._known(name, "factors") for name in (self.usual if factors is None else factors))
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
    def assumptions(self) -> frozenset[Assumption]:
        """Injective at most: edges and shadows make an image a discontinuous function of its latents."""
        return frozenset({theory.INJECTIVE_MIXING} if self.injective else ())

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
        for factor in self.known:
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

    def _known(self, name: str, argument: str) -> Factor:
        known = {factor.name: factor for factor in self.known}
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


FAR = 1e4
"""Distance of a ray that hits nothing."""

STEEPEST = 1e6
"""Limit of the reciprocals of coordinates: a ray may be parallel to a wall."""

Vector = tuple[Tensor, Tensor, Tensor]


class Rays(NamedTuple):
    """Rays of images: their start and directions, of length 1 straight ahead, and more to the sides.

    Distances along a ray are in units of its direction. ``along`` maps a vector per image to its inner product with all
    directions.
    """

    start: Vector
    d: Vector
    slope: Vector  # reciprocals of the directions
    squared: Tensor  # their squared lengths
    along: Callable[[Vector], Tensor]


class Hit(NamedTuple):
    """Where rays hit a solid: the distance, and a map from vectors to their component along the surface normal.

    A map, not the normal itself: for planes it is a coordinate, and choosing between numbers is faster than between
    vectors.
    """

    distance: Tensor
    facing: Callable[[Vector], Tensor]


class Surface(NamedTuple):
    """A surface that rays hit: where, its colour (n, 3, 1), its gloss, and whether shadows fall on it."""

    hit: Hit
    colour: Tensor
    gloss: Tensor | None = None
    shaded: bool = True


class Light(NamedTuple):
    """Light at the points that rays hit: the lamp, its distance, and the component of a vector per image towards it."""

    lamp: Vector
    distance: Tensor
    along: Callable[[Vector], Tensor]


def camera(x: Tensor, y: Tensor, eye: Vector, target: Vector, spread: Tensor) -> Rays:
    """Return the rays from an eye through points of an image, x (w,) to the right and y (h, 1) up.

    ``spread`` is half the width of the image at distance 1.
    """
    forward = fx, fy, fz = unit(minus(target, eye))
    flat = (fx**2 + fz**2).rsqrt()
    right = (-fz * flat, torch.zeros_like(fx), fx * flat)
    over = (-right[2] * fy, right[2] * fx - right[0] * fz, right[0] * fy)
    x, y = spread[:, None] * x, spread[:, None] * y  # (n, 1, w), (n, h, 1)

    def spanned(ahead: Tensor, across: Tensor, up: Tensor) -> Tensor:
        line = torch.addcmul(ahead[:, None], up[:, None], y)  # common to all rays of a line
        return torch.addcmul(line, across[:, None], x).flatten(1)

    def along(v: Vector) -> Tensor:
        return spanned(dot(v, forward), dot(v, right), dot(v, over))

    dx, dy, dz = (spanned(*parts) for parts in zip(forward, right, over, strict=True))
    d = (dx, dy, dz)
    return Rays(eye, d, reciprocals(d), (1 + y**2 + x**2).flatten(1), along)


def reciprocals(d: Vector) -> Vector:
    """Return one over each coordinate."""
    x, y, z = (part.reciprocal().clamp(-STEEPEST, STEEPEST) for part in d)
    return x, y, z


def place(like: Tensor, x: float, y: float, z: float) -> Vector:
    """Return a constant vector on the device and in the precision of another tensor."""
    return torch.full_like(like, x), torch.full_like(like, y), torch.full_like(like, z)


def dot(a: Vector, b: Vector) -> Tensor:
    """Return inner products; small coordinates are summed before they are broadcast."""
    products = sorted(zip(a, b, strict=True), key=lambda pair: max(part.numel() for part in pair))
    return reduce(lambda found, pair: torch.addcmul(found, *pair), products[1:], products[0][0] * products[0][1])


def minus(a: Vector, b: Vector) -> Vector:
    """Return a − b."""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def ahead(start: Vector, distance: Tensor, d: Vector, sign: int = 1) -> Vector:
    """Return start ± distance · d."""
    x, y, z = (torch.addcmul(at, distance, part, value=sign) for at, part in zip(start, d, strict=True))
    return x, y, z


def unit(v: Vector) -> Vector:
    """Scale to length 1."""
    size = dot(v, v).clamp_min(1e-12).rsqrt()
    return v[0] * size, v[1] * size, v[2] * size


def sphere(rays: Rays, centre: Vector, radius: Tensor) -> Hit:
    """Return where rays hit a sphere."""
    away = minus(rays.start, centre)
    distance = _ball(rays, rays.along(away), dot(away, away) - radius**2)
    out = ahead(away, distance, rays.d)
    return Hit(distance, lambda v: dot(out, v) / radius)


def _ball(rays: Rays, b: Tensor, c: Tensor) -> Tensor:
    """Return the distance to a ball, for the start relative to the centre: b along the ray, c its excess square."""
    inside = torch.addcmul(b**2, rays.squared, c, value=-1)
    distance = (-b - inside.clamp_min(0).sqrt()) / rays.squared
    return distance.masked_fill((inside < 0) | (distance < 0), FAR)


def capsule(rays: Rays, a: Vector, b: Vector, radius: Tensor) -> Hit:
    """Return where rays hit a rod with round ends from a to b."""
    axis, away, from_b = minus(b, a), minus(rays.start, a), minus(rays.start, b)
    length, start, along, near = dot(axis, axis), dot(axis, away), rays.along(axis), rays.along(away)
    p = torch.addcmul(length * rays.squared, along, along, value=-1)
    q = torch.addcmul(length * near, start, along, value=-1)
    r = length * dot(away, away) - start**2 - radius**2 * length
    inside = torch.addcmul(q**2, p, r, value=-1)
    distance = (-q - inside.clamp_min(0).sqrt()) / p.clamp_min(1e-9)
    height = torch.addcmul(start, distance, along)
    body = (inside >= 0) & (height > 0) & (height < length) & (distance > 0)
    below = height <= 0  # a ray that misses the body can still hit the nearer end
    out_a, out_b = (dot(v, v) - radius**2 for v in (away, from_b))
    end = _ball(rays, torch.where(below, near, rays.along(from_b)), torch.where(below, out_a, out_b))
    distance = torch.where(body, distance, end)
    fraction = (torch.addcmul(start, distance, along) / length.clamp_min(1e-9)).clamp(0, 1)
    out = ahead(ahead(away, distance, rays.d), fraction, axis, -1)
    return Hit(distance, lambda v: dot(out, v) / radius)


def cylinder(rays: Rays, radius: Tensor, height: Tensor) -> Hit:
    """Return where rays hit an upright cylinder that stands on the origin, from above or from the side."""
    (ox, oy, oz), (dx, dy, dz) = rays.start, rays.d
    a = (dx**2 + dz**2).clamp_min(1e-9)
    b, c = ox * dx + oz * dz, ox**2 + oz**2 - radius**2
    inside = torch.addcmul(b**2, a, c, value=-1)
    side = (-b - inside.clamp_min(0).sqrt()) / a
    at = torch.addcmul(oy, side, dy)
    side = side.masked_fill((inside < 0) | (side < 0) | (at < 0) | (at > height), FAR)
    top = (height - oy) * rays.slope[1]
    across = (ox + top * dx) ** 2 + (oz + top * dz) ** 2
    top = torch.where((across > radius**2) | (top < 0), FAR, top)
    distance = torch.minimum(side, top)
    on_top, x, z = top < side, torch.addcmul(ox, distance, dx), torch.addcmul(oz, distance, dz)
    return Hit(distance, lambda v: torch.where(on_top, v[1], torch.addcmul(x * v[0], z, v[2]) / radius))


def cube(rays: Rays, centre: Vector, half: Tensor) -> Hit:
    """Return where rays hit a cube along the axes, for half an edge."""
    middle = [out * slope for out, slope in zip(minus(centre, rays.start), rays.slope, strict=True)]
    near, far = (
        [torch.addcmul(at, half, slope.abs(), value=sign) for at, slope in zip(middle, rays.slope, strict=True)]
        for sign in (-1, 1)
    )
    enter, leave = torch.maximum(torch.maximum(*near[:2]), near[2]), torch.minimum(torch.minimum(*far[:2]), far[2])
    on_x, on_z = near[0] >= enter, near[2] >= enter
    distance = enter.masked_fill((enter > leave) | (enter < 0), FAR)

    def chosen(v: Vector) -> Tensor:
        return torch.where(on_x, v[0], torch.where(on_z, v[2], v[1]))

    outward = -chosen(rays.d).sign()
    return Hit(distance, lambda v: outward * chosen(v))


def room(rays: Rays, half: float) -> tuple[Hit, Hit]:
    """Return where rays from within hit the floor y = 0, and four walls at x, z = ± half."""
    (ox, oy, oz), (dx, dy, dz), (x, y, z) = rays.start, rays.d, rays.slope
    floor = torch.where(dy > -1e-6, FAR, -oy * y)
    out_x, out_z = (torch.add(-start * slope, slope.abs(), alpha=half) for start, slope in ((ox, x), (oz, z)))
    sideways, walls = out_x <= out_z, torch.minimum(out_x, out_z)
    inward = -torch.where(sideways, dx, dz).sign()
    return Hit(floor, lambda v: v[1]), Hit(walls, lambda v: inward * torch.where(sideways, v[0], v[2]))


def shadow(light: Light, centre: Vector, radius: Tensor) -> Tensor:
    """Return the fraction of light that passes a ball, with a soft edge."""
    away = minus(centre, light.lamp)
    back = light.along(away)
    before = back + light.distance  # distance of the lit point beyond the ball
    miss = torch.addcmul(dot(away, away), back, back, value=-1).clamp_min(1e-9).sqrt()
    soft = torch.add(0.25 * radius, before.clamp_min(0), alpha=0.12)
    fraction = ((miss - radius) / (2 * soft) + 0.5).clamp(0, 1)
    passes = fraction**2 * (3 - 2 * fraction)
    return passes.masked_fill(before <= 0, 1.0)


def painted(rays: Rays, surfaces: Sequence[Surface], lamp: Vector, passes: Callable[[Light], Tensor]) -> Tensor:
    """Return the colours of the nearest surfaces in the light of a lamp; (n, 3, p).

    The nearest surface is found first, so that each ray is lit once. ``passes`` returns the fraction of the light that
    is not in a shadow.
    """
    first, *others = surfaces
    distance, nearest = first.hit.distance, []
    for surface in others:
        nearest.append(surface.hit.distance < distance)
        distance = torch.minimum(surface.hit.distance, distance)
    from_start = minus(lamp, rays.start)
    toward = ahead(from_start, distance, rays.d, -1)  # to the lamp, of the length of its distance
    nearness = dot(toward, toward).clamp_min(1e-12).rsqrt()

    def along(v: Vector) -> Tensor:
        return torch.addcmul(dot(v, from_start), distance, rays.along(v), value=-1) * nearness

    facing, colour = first.hit.facing(toward), first.colour
    lit = torch.full_like(nearness, not first.shaded, dtype=torch.bool)
    gloss = torch.zeros_like(nearness) if first.gloss is None else first.gloss
    against = gloss if first.gloss is None else first.hit.facing(rays.d)
    for closer, surface in zip(nearest, others, strict=True):
        facing = torch.where(closer, surface.hit.facing(toward), facing)
        colour = torch.where(closer[:, None], surface.colour, colour)
        lit = lit & ~closer if surface.shaded else lit | closer
        if surface.gloss is None:
            gloss = gloss.masked_fill(closer, 0.0)
        else:
            gloss = torch.where(closer, surface.gloss, gloss)
            against = torch.where(closer, surface.hit.facing(rays.d), against)
    angle = facing * nearness
    passing = passes(Light(lamp, nearness.reciprocal(), along)).masked_fill(lit, 1.0)
    light = torch.addcmul(torch.full_like(angle[:1, :1], 0.42), angle.clamp_min(0), passing, value=0.62)
    if all(surface.gloss is None for surface in surfaces):
        return colour * light[:, None]
    # The mirrored ray is 2 (normal · toward) normal − toward; the eye sees its component against the view.
    mirrored = torch.addcmul(rays.along(from_start), distance, rays.squared, value=-1) * nearness
    mirrored = torch.addcmul(mirrored, angle, against, value=-2) * rays.squared.rsqrt()
    shine = gloss * (mirrored.clamp_min(0) ** 24 * passing).masked_fill(angle <= 0, 0.0)
    return torch.addcmul(shine[:, None], colour, light[:, None])


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
        target = place(azimuth, 0.0, 0.55, 0.0)
        around = (azimuth.sin() * elevation.cos(), elevation.sin(), azimuth.cos() * elevation.cos())
        eye = ahead(target, torch.full_like(azimuth, DISTANCE), around)
        seen = camera(x, y, eye, target, 0.62 / values["zoom"])
        across, high = LAMP * math.cos(ABOVE), torch.full_like(lamp, LAMP * math.sin(ABOVE))
        floor, wall, own = (bright * colour_of(values[f"{name}_hue"]) for name in ("floor", "wall", "object"))
        on_floor, on_wall = room(seen, HALF)
        # The ball inside the solid casts the shadow, so the solid does not shade itself.
        surfaces = [
            Surface(on_floor, floor),
            Surface(on_wall, wall),
            Surface(self._object(seen, middle, values["shape"]), own, 0.35 * values["brightness"], shaded=False),
        ]
        passes = partial(shadow, centre=middle, radius=0.95 * radius)
        return painted(seen, surfaces, (across * lamp.sin(), high, across * lamp.cos()), passes)

    def _object(self, seen: Rays, middle: Vector, shape: Tensor) -> Hit:
        """Intersect the solid; compute only the shapes that can occur."""
        x, radius, z = middle
        solids = (
            lambda: cube(seen, (x, 0.8 * radius, z), 0.8 * radius),
            lambda: cylinder(seen, 0.78 * radius, 1.7 * radius),
            lambda: sphere(seen, middle, radius),
            lambda: capsule(seen, (x, 0.6 * radius, z), (x, 1.75 * radius, z), 0.6 * radius),
        )
        if self._is_fixed("shape"):
            return solids[int(self.fixed.get("shape", 2))]()
        hits = [solid() for solid in solids]

        def chosen(of_each: Sequence[Tensor]) -> Tensor:
            return reduce(
                lambda found, one: torch.where(shape == one[0], one[1], found), enumerate(of_each), of_each[0]
            )

        return Hit(chosen([hit.distance for hit in hits]), lambda v: chosen([hit.facing(v) for hit in hits]))


def traversals(renderer: Renderer, z: Tensor | None = None, *, steps: int = 8) -> Bytes:
    """Draw one line of images per latent, which varies over its range while the others are fixed.

    Parameters
    ----------
    renderer : Renderer
        Draws the images.
    z : Tensor of shape (d,), optional
        Values of the fixed latents. By default each is at a different part of its range, so that hues differ.
    steps : int
        Images per line.

    Examples
    --------
    >>> traversals(Room(16), steps=4).shape  # six latents
    (106, 70, 3)
    """
    if steps < 2:
        raise InputError("steps", f"`steps` must be at least 2, got {steps}.")
    low, high = renderer.ends
    apart = low + (high - low) * ((0.1 + 0.618 * torch.arange(renderer.d)) % 1)
    start = apart if z is None else torch.as_tensor(z)
    if start.shape != (renderer.d,):
        raise InputError("z", f"`z` must have shape ({renderer.d},), got {tuple(start.shape)}.")
    points = start.repeat(renderer.d, steps, 1)  # (d, steps, d)
    points.diagonal(dim1=0, dim2=2).copy_(torch.linspace(low, high, steps, dtype=start.dtype)[:, None])
    return contact_sheet(renderer(points.flatten(0, 1)), columns=steps)
