"""Analytic ray casting: a camera, where rays meet solids, and how what they meet is lit.

Rays start at o (n, 3, 1) in directions d (n, 3, p) of unit length; a solid has one place and size per picture. Where a
ray misses, its distance is `FAR`. y is up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pindown.distributions import cached_tensor

FAR = 1e4


class Hit(NamedTuple):
    """How far along each ray a solid is, (n, p), and which way its surface faces there, (n, 3, p)."""

    distance: Tensor
    normal: Tensor


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
    return unit(forward + spread[:, None, None] * (right * x + over * y))


def unit(v: Tensor) -> Tensor:
    """Scale to length 1."""
    return v * dot(v, v)[:, None].clamp_min(1e-12).rsqrt()


def vector(like: Tensor, *values: float) -> Tensor:
    """Return a constant where another tensor is, copied there once: a copy at each call would wait for the device."""
    return cached_tensor(values, like.device, like.dtype)[:, None]  # (3, 1)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return inner products; (n, 3, p) → (n, p)."""
    return (a * b).sum(1)


def sphere(o: Tensor, d: Tensor, centre: Tensor, radius: Tensor) -> Hit:
    """Meet a sphere; centre (n, 3, 1), radius (n, 1)."""
    away = o - centre
    distance = _ball(away, d, radius)
    return Hit(distance, (away + distance[:, None] * d) / radius[:, None])


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
    from_a = away + distance[:, None] * d
    share = (dot(from_a, axis) / length.clamp_min(1e-9)).clamp(0, 1)
    return Hit(distance, (from_a - share[:, None] * axis) / radius[:, None])


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
    round_normal = torch.stack([ox + distance * dx, torch.zeros_like(at), oz + distance * dz], 1) / radius[:, None]
    return Hit(distance, torch.where((top < side)[:, None], _up(d), round_normal))


def cube(o: Tensor, d: Tensor, centre: Tensor, half: Tensor) -> Hit:
    """Meet a cube along the axes; centre (n, 3, 1), half an edge (n, 1)."""
    slope = 1 / torch.where(d.abs() < 1e-6, 1e-6, d)
    middle = (centre - o) * slope
    reach = half[:, None] * slope.abs()
    near = middle - reach
    enter, leave = near.amax(1), (middle + reach).amin(1)
    distance = enter.masked_fill((enter > leave) | (enter < 0), FAR)
    return Hit(distance, -d.sign() * (near >= enter[:, None]))


def room(o: Tensor, d: Tensor, half: float) -> tuple[Hit, Hit]:
    """Meet, from within, the floor y = 0 and four walls at x, z = ± half."""
    floor = -o[:, 1] / d[:, 1].clamp_max(-1e-6)
    floor = floor.masked_fill(d[:, 1] > -1e-6, FAR)
    flat = d[:, ::2]
    toward = torch.where(flat.abs() < 1e-6, 1e-6, flat)
    out = ((half * toward.sign() - o[:, ::2]) / toward).clamp_min(0)
    sideways = out[:, 0] <= out[:, 1]
    facing = -toward.sign()
    zero = torch.zeros_like(floor)
    normal = torch.stack([torch.where(sideways, facing[:, 0], zero), zero, facing[:, 1].masked_fill(sideways, 0)], 1)
    return Hit(floor, _up(d)), Hit(torch.minimum(out[:, 0], out[:, 1]), normal)


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
    hit, colour, gloss, shaded = surfaces[0]
    distance, normal = hit
    glossy, dark = torch.full_like(distance, gloss), torch.full_like(distance, float(shaded))
    for hit, own, gloss, shaded in surfaces[1:]:
        closer = hit.distance < distance
        distance = torch.minimum(hit.distance, distance)
        normal, colour = (torch.where(closer[:, None], *pair) for pair in ((hit.normal, normal), (own, colour)))
        glossy, dark = glossy.masked_fill(closer, gloss), dark.masked_fill(closer, float(shaded))
    point = o + distance[:, None] * d
    toward = unit(lamp - point)
    return lit(colour, normal, toward, d, 1 - dark * (1 - passes(point, toward)), glossy)


def lit(colour: Tensor, normal: Tensor, toward: Tensor, view: Tensor, passes: Tensor, gloss: Tensor) -> Tensor:
    """Return a colour in the light: some from everywhere, the rest by the angle, and a highlight; (n, 3, p)."""
    angle = dot(normal, toward)
    # The mirrored ray is 2 (normal · toward) normal − toward, and what of it goes to the eye is its part against view.
    mirrored = dot(toward, view) - 2 * angle * dot(normal, view)
    highlight = gloss * mirrored.clamp_min(0) ** 24 * (angle > 0)
    return colour * (0.42 + 0.62 * angle.clamp_min(0) * passes)[:, None] + (highlight * passes)[:, None]


def _up(d: Tensor) -> Tensor:
    return vector(d, 0.0, 1.0, 0.0).expand_as(d)
