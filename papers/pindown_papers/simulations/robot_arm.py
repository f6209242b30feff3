"""`RobotArm`: a renderer of an arm with three joints on a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial, reduce

import torch
from torch import Tensor

from pindown.errors import InputError
from pindown.networks.spaces import Box, Space
from pindown_papers.simulations import renderers as rays
from pindown_papers.simulations.renderers import Factor, Renderer, colour_of

LENGTHS = (0.75, 0.7, 0.45)  # of upper arm, forearm and hand
RADII = (0.16, 0.13, 0.1)
BASE = 0.28  # height of the shoulder above the table


class RobotArm(Renderer):
    """A jointed arm on a table, seen by a camera: yaw, shoulder, elbow, wrist, hues of arm and ground.

    Three rods with round ends, met by rays analytically, and their soft shadow on the table. ``hand_hue``, ``light``
    (where the lamp is), ``brightness`` and ``elevation`` are factors as well. The joints stay within ranges in which no
    two poses look the same.

    Parameters
    ----------
    size, factors, domain, fixed, samples
        See `Renderer`.
    lengths : tuple of float
        Of upper arm, forearm and hand: arms of another build.

    Examples
    --------
    >>> arm = RobotArm(16, factors=("yaw", "elbow"))
    >>> tuple(arm(torch.rand(4, 2)).shape)
    (4, 3, 16, 16)

    Where a hand is, and which joints put it there:

    >>> short = RobotArm(16, factors=("yaw", "shoulder", "elbow"), fixed={"wrist": 0.0}, lengths=(0.7, 0.6, 0.3))
    >>> z = short.reaching(torch.tensor([[0.7, 0.9, 0.7]]))
    >>> short.hand(z).round(decimals=4)
    tensor([[0.7000, 0.9000, 0.7000]])
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

    def __init__(
        self,
        size: int = 64,
        *,
        factors: Sequence[str] | None = None,
        domain: Space = Box(),  # noqa: B008, a frozen value
        fixed: Mapping[str, float] | None = None,
        samples: int = 2,
        lengths: tuple[float, float, float] = LENGTHS,
    ) -> None:
        super().__init__(size, factors=factors, domain=domain, fixed=fixed, samples=samples)
        if len(lengths) != 3 or not min(lengths) > 0:
            raise InputError("lengths", f"lengths must be three positive numbers, got {lengths}.")
        self.lengths = tuple(lengths)

    def hand(self, z: Tensor) -> Tensor:
        """Return where the tip of the hand is: to the right, up, towards the camera; (n, d) → (n, 3)."""
        return torch.stack(self._joints(self.values(z))[-1], 1)

    def reaching(self, hand: Tensor) -> Tensor:
        """Return latents that put the tip of the hand there, for an arm of yaw, shoulder and elbow; (n, 3) → (n, 3).

        The wrist stays as it is, so that forearm and hand are one rod, and the elbow bends to one side: there is one
        posture. Raises if a joint would have to leave its range.
        """
        names = [factor.name for factor in self.factors]
        if sorted(names) != ["elbow", "shoulder", "yaw"] or not isinstance(self.domain, Box):
            raise InputError(
                "factors", f"reaching takes an arm in a box whose factors are yaw, shoulder, elbow, got {names}."
            )
        upper, fore, palm = self.lengths
        wrist = math.radians(self.fixed.get("wrist", self._known("wrist", "factors").middle))
        rod, bent = abs(fore + palm * complex(math.cos(wrist), math.sin(wrist))), math.sin(wrist) * palm
        bent = math.asin(bent / rod)  # between the forearm and the line from elbow to tip
        out, up = hand[:, [0, 2]].norm(dim=1), hand[:, 1] - BASE
        turn = torch.acos((out**2 + up**2 - upper**2 - rod**2) / (2 * upper * rod))
        lean = torch.atan2(out, up) - torch.atan2(rod * turn.sin(), upper + rod * turn.cos())
        angles = {"yaw": torch.atan2(hand[:, 0], hand[:, 2]), "shoulder": lean, "elbow": turn - bent}
        shares = [(angles[f.name].rad2deg() - f.low) / (f.high - f.low) for f in self.factors]
        share = torch.stack(shares, 1)
        if not ((share >= 0) & (share <= 1)).all():  # nor where there is no angle at all, and the cosine is none
            raise InputError(
                "hand", f"a hand is where an arm of lengths {self.lengths} cannot reach. Bring hands nearer."
            )
        return self.domain.low + (self.domain.high - self.domain.low) * share

    def _draw(self, values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        rise, lamp, bright = torch.deg2rad(values["elevation"]), torch.deg2rad(values["light"]), values["brightness"]
        target = rays.place(rise, 0.0, 0.65, 0.0)
        eye = (target[0], 0.65 + 4.2 * rise.sin(), 4.2 * rise.cos())
        seen = rays.camera(x, y, eye, target, torch.full_like(rise, 0.39))
        joints = self._joints(values)
        floor, wall = rays.room(seen, 4.5)
        ground, own = bright[:, None] * colour_of(values["ground_hue"], 0.45), colour_of(values["arm_hue"])
        hand = colour_of(values["hand_hue"]) if self._is_drawn("hand_hue") else 0.45 + 0.55 * own
        foot = (joints[0][0], torch.zeros_like(rise), joints[0][2])
        rods = [(foot, joints[0], 0.2, 0.55 * own), *zip(joints, joints[1:], RADII, (own, own, hand), strict=False)]
        surfaces = [rays.Surface(floor, ground), rays.Surface(wall, 0.8 * ground, shaded=False)]
        for a, b, radius, colour in rods:
            hit = rays.capsule(seen, a, b, torch.full_like(rise, radius))
            surfaces.append(rays.Surface(hit, bright[:, None] * colour, 0.3 * bright, shaded=False))
        lamp_at = (3.2 * lamp.sin(), torch.full_like(lamp, 3.6), 2.4 * lamp.cos())
        return rays.painted(seen, surfaces, lamp_at, partial(self._passes, joints=joints))

    def _joints(self, values: dict[str, Tensor]) -> list[rays.Vector]:
        """Return shoulder, elbow, wrist and tip: angles are from upright, each from the one before."""
        yaw = torch.deg2rad(values["yaw"])
        joint = rays.place(yaw, 0.0, BASE, 0.0)
        joints, lean = [joint], torch.zeros_like(yaw)
        for name, length in zip(("shoulder", "elbow", "wrist"), self.lengths, strict=True):
            lean = lean + torch.deg2rad(values[name])
            out = lean.sin()
            joint = rays.ahead(joint, torch.full_like(yaw, length), (out * yaw.sin(), lean.cos(), out * yaw.cos()))
            joints.append(joint)
        return joints

    def _passes(self, light: rays.Light, joints: list[rays.Vector]) -> Tensor:
        """Return how much light passes the arm: three balls on each rod stand for it."""
        passes = []
        for a, b, radius in zip(joints, joints[1:], RADII, strict=False):
            for share in (1 / 6, 1 / 2, 5 / 6):
                ball = rays.ahead(a, torch.full_like(a[0], share), rays.minus(b, a))
                passes.append(rays.shadow(light, ball, torch.full_like(a[0], 1.1 * radius)))
        return reduce(torch.mul, passes)

    def _is_drawn(self, name: str) -> bool:
        return name in self.fixed or any(factor.name == name for factor in self.factors)
