"""Analytic ray casting: a camera, where rays meet solids, and how what they meet is lit.

Rays start at o (n, 1, 3) in directions d (n, p, 3) of unit length; a solid has one place and size per picture. Where a
ray misses, its distance is `FAR`. y is up.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pindown.distributions import _constant

FAR = 1e4


class Hit(NamedTuple):
    """How far along each ray a solid is, (n, p), and which way its surface faces there, (n, p, 3)."""

    distance: Tensor
    normal: Tensor


def camera(x: Tensor, y: Tensor, eye: Tensor, target: Tensor, spread: Tensor) -> Tensor:
    """Return directions of rays through points of the picture; (p,), (p,), (n, 3), (n, 3), (n,) → (n, p, 3).

    ``spread`` is half the width of the picture at distance 1.
    """
    forward = unit(target - eye)  # (n, 3)
    up = _up(forward)
    right = unit(torch.linalg.cross(forward, up))
    over = torch.linalg.cross(right, forward)
    plane = right[:, None] * x[:, None] + over[:, None] * y[:, None]  # (n, p, 3)
    return unit(forward[:, None] + spread[:, None, None] * plane)


def unit(v: Tensor) -> Tensor:
    """Scale to length 1."""
    return v * v.square().sum(-1, keepdim=True).clamp_min(1e-12).rsqrt()


def vector(like: Tensor, *values: float) -> Tensor:
    """Return a constant where another tensor is, copied there once: a copy at each call would wait for the device."""
    return _constant(values, like.device, like.dtype)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return inner products over the last dimension."""
    return (a * b).sum(-1)


def sphere(o: Tensor, d: Tensor, centre: Tensor, radius: Tensor) -> Hit:
    """Meet a sphere; centre (n, 1, 3), radius (n, 1)."""
    away = o - centre
    b, c = dot(away, d), dot(away, away) - radius**2
    inside = b**2 - c
    distance = -b - inside.clamp_min(0).sqrt()
    distance = distance.masked_fill((inside < 0) | (distance < 0), FAR)
    return Hit(distance, (away + distance[..., None] * d) / radius[..., None])


def capsule(o: Tensor, d: Tensor, a: Tensor, b: Tensor, radius: Tensor) -> Hit:
    """Meet a rod with round ends from a to b, (n, 1, 3) each; radius (n, 1)."""
    axis, away = b - a, o - a
    length, along, start = dot(axis, axis), dot(axis, d), dot(axis, away)
    p, q = length - along**2, length * dot(away, d) - start * along
    r = length * dot(away, away) - start**2 - radius**2 * length
    inside = q**2 - p * r
    distance = (-q - inside.clamp_min(0).sqrt()) / p.clamp_min(1e-9)
    height = start + distance * along
    body = (inside >= 0) & (height > 0) & (height < length) & (distance > 0)
    end = torch.where((height <= 0)[..., None], a, b)  # a ray that misses the body can still meet the nearer end
    away_end = o - end
    b_end, c_end = dot(away_end, d), dot(away_end, away_end) - radius**2
    inside_end = b_end**2 - c_end
    distance_end = -b_end - inside_end.clamp_min(0).sqrt()
    distance_end = distance_end.masked_fill((inside_end < 0) | (distance_end < 0), FAR)
    distance = torch.where(body, distance, distance_end)
    point = o + distance[..., None] * d
    share = (dot(point - a, axis) / length.clamp_min(1e-9)).clamp(0, 1)
    return Hit(distance, (point - a - share[..., None] * axis) / radius[..., None])


def cylinder(o: Tensor, d: Tensor, radius: Tensor, height: Tensor) -> Hit:
    """Meet an upright cylinder that stands on the origin, from above or from the side; radius, height (n, 1)."""
    ox, oy, oz = o.unbind(-1)
    dx, dy, dz = d.unbind(-1)
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
    point = o + distance[..., None] * d
    round_normal = torch.stack([point[..., 0], torch.zeros_like(at), point[..., 2]], -1) / radius[..., None]
    return Hit(distance, torch.where((top < side)[..., None], _up(d), round_normal))


def cube(o: Tensor, d: Tensor, centre: Tensor, half: Tensor) -> Hit:
    """Meet a cube along the axes; centre (n, 1, 3), half an edge (n, 1)."""
    slope = 1 / torch.where(d.abs() < 1e-6, 1e-6, d)
    middle = (centre - o) * slope
    reach = half[..., None] * slope.abs()
    enter, leave = (middle - reach).amax(-1), (middle + reach).amin(-1)
    distance = enter.masked_fill((enter > leave) | (enter < 0), FAR)
    first = (middle - reach) >= enter[..., None]
    return Hit(distance, -d.sign() * first)


def room(o: Tensor, d: Tensor, half: float) -> tuple[Hit, Hit]:
    """Meet, from within, the floor y = 0 and four walls at x, z = ± half."""
    floor = -o[..., 1] / d[..., 1].clamp_max(-1e-6)
    floor = floor.masked_fill(d[..., 1] > -1e-6, FAR)
    flat = d[..., ::2]
    toward = torch.where(flat.abs() < 1e-6, 1e-6, flat)
    out = ((half * toward.sign() - o[..., ::2]) / toward).clamp_min(0)
    walls, which = out.min(-1)
    facing = -toward.sign() * torch.stack([which == 0, which == 1], -1)
    normal = torch.stack([facing[..., 0], torch.zeros_like(walls), facing[..., 1]], -1)
    return Hit(floor, _up(d)), Hit(walls, normal)


def shadow(point: Tensor, toward: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
    """Return how much light passes a ball on its way to a point, from 0 to 1, with a soft edge; (n, p)."""
    away = point - centre
    ahead = -dot(away, toward)
    miss = (dot(away, away) - ahead**2).clamp_min(1e-9).sqrt()
    soft = 0.25 * radius + 0.12 * ahead.clamp_min(0)
    share = ((miss - radius + soft) / (2 * soft)).clamp(0, 1)
    passes = share**2 * (3 - 2 * share)
    return torch.where(ahead > 0, passes, torch.ones_like(passes))


def lit(colour: Tensor, hit_normal: Tensor, toward: Tensor, view: Tensor, passes: Tensor, gloss: float) -> Tensor:
    """Return a colour in the light: some from everywhere, the rest by the angle, and a highlight; (n, p, 3)."""
    facing = dot(hit_normal, toward).clamp_min(0)
    mirrored = 2 * dot(hit_normal, toward)[..., None] * hit_normal - toward
    highlight = gloss * dot(mirrored, -view).clamp_min(0) ** 24 * (facing > 0)
    return colour * (0.42 + 0.62 * facing * passes)[..., None] + (highlight * passes)[..., None]


def _up(d: Tensor) -> Tensor:
    return vector(d, 0.0, 1.0, 0.0).expand_as(d)
