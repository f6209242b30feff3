"""`Arm`: a jointed arm on a table, seen by a camera."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from pindown.mixing import rays
from pindown.mixing.factors import Factor
from pindown.mixing.renderer import Renderer, colour_of

LENGTHS = (0.75, 0.7, 0.45)  # of upper arm, forearm and hand
RADII = (0.16, 0.13, 0.1)
BASE = 0.28  # height of the shoulder above the table


class Arm(Renderer):
    """A jointed arm on a table, seen by a camera: yaw, shoulder, elbow, wrist, hues of arm and ground.

    Three rods with round ends, met by rays analytically, and their soft shadow on the table. ``hand_hue``, ``light``
    (where the lamp is), ``brightness`` and ``elevation`` are factors as well. The joints stay within ranges in which no
    two poses look the same.

    Parameters
    ----------
    size, factors, domain, fixed, samples
        See `Renderer`.

    Examples
    --------
    >>> arm = Arm(16, factors=("yaw", "elbow"))
    >>> tuple(arm(torch.rand(4, 2)).shape)
    (4, 3, 16, 16)
    """

    known = (
        Factor("yaw", -70.0, 70.0, period=360.0),
        Factor("shoulder", -10.0, 65.0, period=360.0),
        Factor("elbow", 15.0, 100.0, period=360.0),
        Factor("wrist", -50.0, 50.0, period=360.0),
        Factor("arm_hue", 0.0, 0.8, period=1.0),
        Factor("ground_hue", 0.0, 0.8, period=1.0),
        Factor("hand_hue", 0.0, 0.8, period=1.0),
        Factor("light", -70.0, 70.0, period=360.0),
        Factor("brightness", 0.55, 1.15),
        Factor("elevation", 18.0, 42.0, period=360.0),
    )
    usual = ("yaw", "shoulder", "elbow", "wrist", "arm_hue", "ground_hue")

    def _draw(self, values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        rise, lamp = torch.deg2rad(values["elevation"]), torch.deg2rad(values["light"])
        zero = torch.zeros_like(rise)
        target = rays.vector(rise, 0.0, 0.65, 0.0)
        o = target + 4.2 * torch.stack([zero, rise.sin(), rise.cos()], 1)[..., None]
        d = rays.camera(x, y, o, target, torch.full_like(rise, 0.39))
        lamp_at = torch.stack([3.2 * lamp.sin(), zero + 3.6, 2.4 * lamp.cos()], 1)[..., None]
        joints = self._joints(values)
        floor, wall = rays.room(o, d, 4.5)
        ground, own = colour_of(values["ground_hue"], 0.45)[..., None], colour_of(values["arm_hue"])[..., None]
        hand = colour_of(values["hand_hue"])[..., None] if self._is_drawn("hand_hue") else 0.45 + 0.55 * own
        foot = joints[0] * rays.vector(rise, 1.0, 0.0, 1.0)
        rods = [(foot, joints[0], 0.2, 0.55 * own), *zip(joints, joints[1:], RADII, (own, own, hand), strict=False)]
        surfaces = [rays.Surface(floor, ground), rays.Surface(wall, 0.8 * ground, shaded=False)]
        for a, b, radius, colour in rods:
            hit = rays.capsule(o, d, a, b, torch.full_like(a[:, 0], radius))
            surfaces.append(rays.Surface(hit, colour, gloss=0.3, shaded=False))
        passes = partial(self._passes, joints=joints)
        return rays.painted(o, d, surfaces, lamp_at, passes) * values["brightness"][:, None, None]

    def _joints(self, values: dict[str, Tensor]) -> list[Tensor]:
        """Return shoulder, elbow, wrist and tip, (n, 3, 1) each: angles are from upright, each from the one before."""
        yaw = torch.deg2rad(values["yaw"])
        place = rays.vector(yaw, 0.0, BASE, 0.0).expand(len(yaw), 3, 1)
        joints, lean = [place], torch.zeros_like(yaw)
        for name, length in zip(("shoulder", "elbow", "wrist"), LENGTHS, strict=True):
            lean = lean + torch.deg2rad(values[name])
            out = lean.sin()
            place = place + length * torch.stack([out * yaw.sin(), lean.cos(), out * yaw.cos()], 1)[..., None]
            joints.append(place)
        return joints

    def _passes(self, point: Tensor, toward: Tensor, joints: list[Tensor]) -> Tensor:
        """Return how much light passes the arm: three balls on each rod stand for it."""
        passes = torch.ones_like(point[:, 0])
        for a, b, radius in zip(joints, joints[1:], RADII, strict=False):
            for share in (1 / 6, 1 / 2, 5 / 6):
                ball = torch.lerp(a, b, share)
                passes = passes * rays.shadow(point, toward, ball, torch.full_like(ball[:, 0], 1.1 * radius))
        return passes

    def _is_drawn(self, name: str) -> bool:
        return name in self.fixed or any(factor.name == name for factor in self.factors)
