"""Analytic ray casting: a camera, where rays meet solids, and how what they meet is lit.

Rays start at o (n, 3, 1) in directions d (n, 3, p) of unit length; a solid has one place and size per picture. Where a
ray misses, its distance is `FAR`. y is up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from pindown.distributions import cached_tensor

FAR = 1e4


class Hit(NamedTuple):
    """How far along each ray a solid is, (n, p), and how its surface faces there: (n, 3, p) → parts along its normal.

    A map, and not the normal itself: of planes it is a coordinate, and numbers are chosen between faster than vectors.
    """

    distance: Tensor
    facing: Callable[[Tensor], Tensor]


class Surface(NamedTuple):
    """What rays meet: where, of which colour (n, 3, 1), how glossy it is, and whether shadows fall on it."""

    hit: Hit
    colour: Tensor
    gloss: float = 0.0
    shaded: bool = True


def camera(x: Tensor, y: Tensor, eye: Tensor, target: Tensor, spread: Tensor) -> Tensor:
    """Return directions of rays through points of the picture; (p,), (p,), (n, 3, 1), (n, 3, 1), (n,) → (n, 3, p).

    ``spread`` is half the width of the picture at distance 1.
    """
    forward = unit(target - eye)  # (n, 3, 1)
    right = unit(torch.linalg.cross(forward, _up(forward), dim=1))
    over = torch.linalg.cross(right, forward, dim=1)
    wide = spread[:, None]
    # All three are of unit length and at right angles, so that the length of the sum is known.
    length = (1 + wide**2 * (x**2 + y**2)).rsqrt()
    ray = torch.addcmul(torch.addcmul(forward, wide[:, None] * right, x), wide[:, None] * over, y)
    return ray * length[:, None]


def unit(v: Tensor) -> Tensor:
    """Scale to length 1."""
    return v * dot(v, v)[:, None].clamp_min(1e-12).rsqrt()


def vector(like: Tensor, *values: float) -> Tensor:
    """Return a constant where another tensor is, copied there once: a copy at each call would wait for the device."""
    return cached_tensor(values, like.device, like.dtype)[:, None]  # (3, 1)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return inner products; (n, 3, p) → (n, p). Three passes over numbers: products of vectors are never written."""
    (ax, ay, az), (bx, by, bz) = a.unbind(1), b.unbind(1)
    return torch.addcmul(torch.addcmul(ax * bx, ay, by), az, bz)


def sphere(o: Tensor, d: Tensor, centre: Tensor, radius: Tensor) -> Hit:
    """Meet a sphere; centre (n, 3, 1), radius (n, 1)."""
    away = o - centre
    distance = _ball(away, d, radius)
    out = torch.addcmul(away, distance[:, None], d)
    return Hit(distance, lambda v: dot(out, v) / radius)


def _ball(away: Tensor, d: Tensor, radius: Tensor) -> Tensor:
    b, c = dot(away, d), dot(away, away) - radius**2
    inside = b**2 - c
    distance = -b - inside.clamp_min(0).sqrt()
    return distance.masked_fill((inside < 0) | (distance < 0), FAR)


def capsule(o: Tensor, d: Tensor, a: Tensor, b: Tensor, radius: Tensor) -> Hit:
    """Meet a rod with round ends from a to b, (n, 3, 1) each; radius (n, 1)."""
    axis, away = b - a, o - a
    length, along, start = dot(axis, axis), dot(axis, d), dot(axis, away)
    p, q = length - along**2, length * dot(away, d) - start * along
    r = length * dot(away, away) - start**2 - radius**2 * length
    inside = q**2 - p * r
    distance = (-q - inside.clamp_min(0).sqrt()) / p.clamp_min(1e-9)
    height = start + distance * along
    body = (inside >= 0) & (height > 0) & (height < length) & (distance > 0)
    end = torch.where((height <= 0)[:, None], a, b)  # a ray that misses the body can still meet the nearer end
    distance = torch.where(body, distance, _ball(o - end, d, radius))
    from_a = torch.addcmul(away, distance[:, None], d)
    share = (dot(from_a, axis) / length.clamp_min(1e-9)).clamp(0, 1)
    out = torch.addcmul(from_a, share[:, None], axis, value=-1)
    return Hit(distance, lambda v: dot(out, v) / radius)


def cylinder(o: Tensor, d: Tensor, radius: Tensor, height: Tensor) -> Hit:
    """Meet an upright cylinder that stands on the origin, from above or from the side; radius, height (n, 1)."""
    ox, oy, oz = o.unbind(1)
    dx, dy, dz = d.unbind(1)
    a = (dx**2 + dz**2).clamp_min(1e-9)
    b, c = ox * dx + oz * dz, ox**2 + oz**2 - radius**2
    inside = b**2 - a * c
    side = (-b - inside.clamp_min(0).sqrt()) / a
    at = oy + side * dy
    side = side.masked_fill((inside < 0) | (side < 0) | (at < 0) | (at > height), FAR)
    top = (height - oy) / torch.where(dy.abs() < 1e-6, -1e-6, dy)
    across = (ox + top * dx) ** 2 + (oz + top * dz) ** 2
    top = top.masked_fill((across > radius**2) | (top < 0), FAR)
    distance = torch.minimum(side, top)
    on_top, x, z = top < side, ox + distance * dx, oz + distance * dz
    return Hit(distance, lambda v: torch.where(on_top, v[:, 1], (x * v[:, 0] + z * v[:, 2]) / radius))


def cube(o: Tensor, d: Tensor, centre: Tensor, half: Tensor) -> Hit:
    """Meet a cube along the axes; centre (n, 3, 1), half an edge (n, 1)."""
    slope = d.reciprocal().clamp(-1e6, 1e6)
    middle, steep = (centre - o) * slope, slope.abs()
    near, far = (torch.addcmul(middle, half[:, None], steep, value=sign) for sign in (-1, 1))
    enter, leave = near.amax(1), far.amin(1)
    distance = enter.masked_fill((enter > leave) | (enter < 0), FAR)
    normal = torch.where(near >= enter[:, None], -d.sign(), 0.0)
    return Hit(distance, partial(dot, normal))


def room(o: Tensor, d: Tensor, half: float) -> tuple[Hit, Hit]:
    """Meet, from within, the floor y = 0 and four walls at x, z = ± half."""
    floor = -o[:, 1] / d[:, 1].clamp_max(-1e-6)
    floor = floor.masked_fill(d[:, 1] > -1e-6, FAR)
    flat = d[:, ::2]
    toward = torch.where(flat.abs() < 1e-6, 1e-6, flat)
    out = ((half * toward.sign() - o[:, ::2]) / toward).clamp_min(0)
    sideways = out[:, 0] <= out[:, 1]
    inward = -torch.where(sideways, toward[:, 0], toward[:, 1]).sign()
    walls = torch.minimum(out[:, 0], out[:, 1])
    return Hit(floor, lambda v: v[:, 1]), Hit(walls, lambda v: inward * torch.where(sideways, v[:, 0], v[:, 2]))


def shadow(point: Tensor, toward: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
    """Return how much light passes a ball on its way to a point, from 0 to 1, with a soft edge; (n, p)."""
    away = point - centre
    ahead = -dot(away, toward)
    miss = (dot(away, away) - ahead**2).clamp_min(1e-9).sqrt()
    soft = 0.25 * radius + 0.12 * ahead.clamp_min(0)
    share = ((miss - radius + soft) / (2 * soft)).clamp(0, 1)
    passes = share**2 * (3 - 2 * share)
    return passes.masked_fill(ahead <= 0, 1.0)


def painted(
    o: Tensor,
    d: Tensor,
    surfaces: Sequence[Surface],
    lamp: Tensor,
    passes: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return the colours of what rays meet first, in the light of a lamp at (n, 3, 1); (n, 3, p).

    The nearest surface is found first, so that each ray is lit once. ``passes`` maps points, and directions to the
    lamp, to the share of its light that gets there.
    """
    distance, in_front = surfaces[0].hit.distance, []
    for surface in surfaces[1:]:
        in_front.append(surface.hit.distance < distance)
        distance = torch.minimum(surface.hit.distance, distance)
    point = torch.addcmul(o, distance[:, None], d)
    toward = unit(lamp - point)
    passing, straight = passes(point, toward), dot(toward, d)
    colour = surfaces[0].colour
    light, shine = lit(surfaces[0], toward, d, passing, straight)
    for closer, surface in zip(in_front, surfaces[1:], strict=True):
        of_it = lit(surface, toward, d, passing, straight)
        light, shine = (torch.where(closer, *pair) for pair in zip(of_it, (light, shine), strict=True))
        colour = torch.where(closer[:, None], surface.colour, colour)
    return torch.addcmul(shine[:, None], colour, light[:, None])


def lit(surface: Surface, toward: Tensor, view: Tensor, passing: Tensor, straight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the light on a surface, some from everywhere and the rest by the angle, and its highlight; (n, p) each.

    ``straight`` is the part of ``toward``, to the lamp, along ``view``.
    """
    angle = surface.hit.facing(toward)
    direct = angle.clamp_min(0)
    light = 0.42 + 0.62 * (direct * passing if surface.shaded else direct)
    if not surface.gloss:
        return light, torch.zeros_like(straight)
    # The mirrored ray is 2 (normal · toward) normal − toward, and what of it goes to the eye is its part against view.
    mirrored = torch.addcmul(straight, angle, surface.hit.facing(view), value=-2)
    shine = surface.gloss * mirrored.clamp_min(0) ** 24 * (angle > 0)
    return light, shine * passing if surface.shaded else shine


def _up(d: Tensor) -> Tensor:
    return vector(d, 0.0, 1.0, 0.0).expand_as(d)
