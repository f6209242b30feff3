"""Analytic ray casting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

FAR = 1e4
"""Where a ray meets nothing."""

STEEPEST = 1e6
"""Reciprocals of coordinates end here: a ray may go along a wall."""

Vector = tuple[Tensor, Tensor, Tensor]


class Rays(NamedTuple):
    """Where rays start, and where they go: directions have length 1 straight ahead, and more to the sides.

    Distances along a ray are in units of its direction. ``along`` maps a vector that a picture has once to its inner
    product with all directions.
    """

    start: Vector
    d: Vector
    slope: Vector  # reciprocals of the directions
    squared: Tensor  # their squared lengths
    along: Callable[[Vector], Tensor]


class Hit(NamedTuple):
    """How far along each ray a solid is, and how its surface faces there: vectors → their parts along its normal.

    A map, and not the normal itself: of planes it is a coordinate, and numbers are chosen between faster than vectors.
    """

    distance: Tensor
    facing: Callable[[Vector], Tensor]


class Surface(NamedTuple):
    """What rays meet: where, of which colour (n, 3, 1), how glossy it is, and whether shadows fall on it."""

    hit: Hit
    colour: Tensor
    gloss: Tensor | None = None
    shaded: bool = True


class Light(NamedTuple):
    """How light comes to what rays meet: from where, how far, and which part of a picture's vector is towards it."""

    lamp: Vector
    distance: Tensor
    along: Callable[[Vector], Tensor]


def camera(x: Tensor, y: Tensor, eye: Vector, target: Vector, spread: Tensor) -> Rays:
    """Return the rays from an eye through points of a picture, x (w,) to the right and y (h, 1) up.

    ``spread`` is half the width of the picture at distance 1.
    """
    forward = fx, fy, fz = unit(minus(target, eye))
    flat = (fx**2 + fz**2).rsqrt()
    right = (-fz * flat, torch.zeros_like(fx), fx * flat)
    over = (-right[2] * fy, right[2] * fx - right[0] * fz, right[0] * fy)
    x, y = spread[:, None] * x, spread[:, None] * y  # (n, 1, w), (n, h, 1)

    def spanned(straight: Tensor, across: Tensor, up: Tensor) -> Tensor:
        line = torch.addcmul(straight[:, None], up[:, None], y)  # what all rays of a line share
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
    """Return a constant vector, where and in the precision in which another tensor is."""
    return torch.full_like(like, x), torch.full_like(like, y), torch.full_like(like, z)


def dot(a: Vector, b: Vector) -> Tensor:
    """Return inner products, narrow coordinates first: these are summed before they are broad."""
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
    """Meet a sphere."""
    away = minus(rays.start, centre)
    distance = _ball(rays, rays.along(away), dot(away, away) - radius**2)
    out = ahead(away, distance, rays.d)
    return Hit(distance, lambda v: dot(out, v) / radius)


def _ball(rays: Rays, b: Tensor, c: Tensor) -> Tensor:
    """Meet a ball, b being the part along the ray of where it starts, seen from the centre, and c how far outside."""
    inside = torch.addcmul(b**2, rays.squared, c, value=-1)
    distance = (-b - inside.clamp_min(0).sqrt()) / rays.squared
    return distance.masked_fill((inside < 0) | (distance < 0), FAR)


def capsule(rays: Rays, a: Vector, b: Vector, radius: Tensor) -> Hit:
    """Meet a rod with round ends from a to b."""
    axis, away, from_b = minus(b, a), minus(rays.start, a), minus(rays.start, b)
    length, start, along, near = dot(axis, axis), dot(axis, away), rays.along(axis), rays.along(away)
    p = torch.addcmul(length * rays.squared, along, along, value=-1)
    q = torch.addcmul(length * near, start, along, value=-1)
    r = length * dot(away, away) - start**2 - radius**2 * length
    inside = torch.addcmul(q**2, p, r, value=-1)
    distance = (-q - inside.clamp_min(0).sqrt()) / p.clamp_min(1e-9)
    height = torch.addcmul(start, distance, along)
    body = (inside >= 0) & (height > 0) & (height < length) & (distance > 0)
    below = height <= 0  # a ray that misses the body can still meet the nearer end
    out_a, out_b = (dot(v, v) - radius**2 for v in (away, from_b))
    end = _ball(rays, torch.where(below, near, rays.along(from_b)), torch.where(below, out_a, out_b))
    distance = torch.where(body, distance, end)
    share = (torch.addcmul(start, distance, along) / length.clamp_min(1e-9)).clamp(0, 1)
    out = ahead(ahead(away, distance, rays.d), share, axis, -1)
    return Hit(distance, lambda v: dot(out, v) / radius)


def cylinder(rays: Rays, radius: Tensor, height: Tensor) -> Hit:
    """Meet an upright cylinder that stands on the origin, from above or from the side."""
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
    """Meet a cube along the axes; half an edge."""
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
    """Meet, from within, the floor y = 0 and four walls at x, z = ± half."""
    (ox, oy, oz), (dx, dy, dz), (x, y, z) = rays.start, rays.d, rays.slope
    floor = torch.where(dy > -1e-6, FAR, -oy * y)
    out_x, out_z = (torch.add(-start * slope, slope.abs(), alpha=half) for start, slope in ((ox, x), (oz, z)))
    sideways, walls = out_x <= out_z, torch.minimum(out_x, out_z)
    inward = -torch.where(sideways, dx, dz).sign()
    return Hit(floor, lambda v: v[1]), Hit(walls, lambda v: inward * torch.where(sideways, v[0], v[2]))


def shadow(light: Light, centre: Vector, radius: Tensor) -> Tensor:
    """Return how much light passes a ball on its way, from 0 to 1, with a soft edge."""
    away = minus(centre, light.lamp)
    back = light.along(away)
    before = back + light.distance  # how far before the ball the light ends
    miss = torch.addcmul(dot(away, away), back, back, value=-1).clamp_min(1e-9).sqrt()
    soft = torch.add(0.25 * radius, before.clamp_min(0), alpha=0.12)
    share = ((miss - radius) / (2 * soft) + 0.5).clamp(0, 1)
    passes = share**2 * (3 - 2 * share)
    return passes.masked_fill(before <= 0, 1.0)


def painted(rays: Rays, surfaces: Sequence[Surface], lamp: Vector, passes: Callable[[Light], Tensor]) -> Tensor:
    """Return the colours of what rays meet first, in the light of a lamp; (n, 3, p).

    The nearest surface is found first, and what is needed of it chosen, so that each ray is lit once. ``passes`` maps
    the way of the light to the share of it that gets there.
    """
    first, *others = surfaces
    distance, nearest = first.hit.distance, []
    for surface in others:
        nearest.append(surface.hit.distance < distance)
        distance = torch.minimum(surface.hit.distance, distance)
    from_start = minus(lamp, rays.start)
    toward = ahead(from_start, distance, rays.d, -1)  # to the lamp, as far as it is
    nearness = dot(toward, toward).clamp_min(1e-12).rsqrt()

    def along(v: Vector) -> Tensor:
        return torch.addcmul(dot(v, from_start), distance, rays.along(v), value=-1) * nearness

    facing, colour, exposed = first.hit.facing(toward), first.colour, None if first.shaded else nearness > 0
    glossy = None if first.gloss is None else (first.gloss, first.hit.facing(rays.d))
    for closer, surface in zip(nearest, others, strict=True):
        facing = torch.where(closer, surface.hit.facing(toward), facing)
        colour = torch.where(closer[:, None], surface.colour, colour)
        exposed = _exposed(exposed, closer, surface)
        glossy = _glossy(glossy, closer, surface, rays)
    angle = facing * nearness
    passing = passes(Light(lamp, nearness.reciprocal(), along))
    passing = passing if exposed is None else passing.masked_fill(exposed, 1.0)
    light = torch.addcmul(torch.full_like(angle[:1, :1], 0.42), angle.clamp_min(0), passing, value=0.62)
    if glossy is None:
        return colour * light[:, None]
    # The mirrored ray is 2 (normal · toward) normal − toward, and what of it goes to the eye is its part against view.
    gloss, against = glossy
    mirrored = torch.addcmul(rays.along(from_start), distance, rays.squared, value=-1) * nearness
    mirrored = torch.addcmul(mirrored, angle, against, value=-2) * rays.squared.rsqrt()
    shine = gloss * (mirrored.clamp_min(0) ** 24 * passing).masked_fill(angle <= 0, 0.0)
    return torch.addcmul(shine[:, None], colour, light[:, None])


def _exposed(behind: Tensor | None, closer: Tensor, surface: Surface) -> Tensor | None:
    """Return where no shadow falls, with one more surface before the others; None: nowhere."""
    if surface.shaded:
        return None if behind is None else behind & ~closer
    return closer if behind is None else behind | closer


def _glossy(
    behind: tuple[Tensor, Tensor] | None, closer: Tensor, surface: Surface, rays: Rays
) -> tuple[Tensor, Tensor] | None:
    """Return how glossy what is seen is, and how it faces the view, with one more surface before the others."""
    if surface.gloss is None:
        return None if behind is None else (behind[0].masked_fill(closer, 0.0), behind[1])
    gloss, facing = behind or (torch.zeros_like(surface.gloss), torch.zeros_like(surface.gloss))
    return torch.where(closer, surface.gloss, gloss), torch.where(closer, surface.hit.facing(rays.d), facing)
