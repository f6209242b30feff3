"""`Room`: a solid in a room, seen by a camera."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce

import torch
from torch import Tensor

from pindown.mixing import rays
from pindown.mixing.factors import Factor
from pindown.mixing.renderer import Renderer, colour_of

HALF = 3.4  # of the room's width
DISTANCE = 3.1  # of the camera from the middle of the room
LAMP, ABOVE = 4.2, math.radians(52.0)  # how far the lamp is, and how high
SHAPES = ("cube", "cylinder", "sphere", "capsule")


class Room(Renderer):
    """A solid in a room: hues of floor, wall and object, size, shape, and the azimuth of the camera.

    Rays meet a cube, a cylinder, a sphere or a capsule analytically; a lamp casts a soft shadow. Light and camera are
    factors as well, for those who want them as a nuisance: ``light`` (where the lamp is), ``brightness``,
    ``elevation``, ``zoom``. Hues go over .8 of the circle, so that no two are the same.

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
    ValueError: Room: no factor is called 'wal_hue': did you mean 'wall_hue'?
    """

    known = (
        Factor("floor_hue", 0.0, 0.8, period=1.0),
        Factor("wall_hue", 0.0, 0.8, period=1.0),
        Factor("object_hue", 0.0, 0.8, period=1.0),
        Factor("size", 0.45, 0.9),
        Factor("shape", 0, 4, values=SHAPES),
        Factor("azimuth", -30.0, 30.0, period=360.0),
        Factor("light", -70.0, 70.0, period=360.0),
        Factor("brightness", 0.55, 1.15),
        Factor("elevation", 14.0, 34.0, period=360.0),
        Factor("zoom", 0.85, 1.2),
    )
    usual = ("floor_hue", "wall_hue", "object_hue", "size", "shape", "azimuth")

    def _draw(self, values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        turn, rise, lamp = (torch.deg2rad(values[name]) for name in ("azimuth", "elevation", "light"))
        radius, bright = values["size"], values["brightness"][:, None]
        middle = (torch.zeros_like(radius), radius, torch.zeros_like(radius))
        target = rays.place(turn, 0.0, 0.55, 0.0)
        around = (turn.sin() * rise.cos(), rise.sin(), turn.cos() * rise.cos())
        seen = rays.camera(
            x, y, rays.ahead(target, torch.full_like(turn, DISTANCE), around), target, 0.62 / values["zoom"]
        )
        across, high = LAMP * math.cos(ABOVE), torch.full_like(lamp, LAMP * math.sin(ABOVE))
        floor, wall, own = (bright * colour_of(values[f"{name}_hue"]) for name in ("floor", "wall", "object"))
        on_floor, on_wall = rays.room(seen, HALF)
        # The ball that casts the shadow is the solid's own, so nothing of it is hidden from the lamp by itself.
        surfaces = [
            rays.Surface(on_floor, floor),
            rays.Surface(on_wall, wall),
            rays.Surface(self._object(seen, middle, values["shape"]), own, 0.35 * values["brightness"], shaded=False),
        ]
        passes = partial(rays.shadow, centre=middle, radius=0.95 * radius)
        return rays.painted(seen, surfaces, (across * lamp.sin(), high, across * lamp.cos()), passes)

    def _object(self, seen: rays.Rays, middle: rays.Vector, shape: Tensor) -> rays.Hit:
        """Meet the solid; only the shapes that can occur are met at all."""
        fixed = all(factor.name != "shape" for factor in self.factors)
        number = int(self.fixed.get("shape", 2)) if fixed else None
        x, radius, z = middle
        solids = (
            lambda: rays.cube(seen, (x, 0.8 * radius, z), 0.8 * radius),
            lambda: rays.cylinder(seen, 0.78 * radius, 1.7 * radius),
            lambda: rays.sphere(seen, middle, radius),
            lambda: rays.capsule(seen, (x, 0.6 * radius, z), (x, 1.75 * radius, z), 0.6 * radius),
        )
        if number is not None:
            return solids[number]()
        hits = [solid() for solid in solids]

        def chosen(of_each: Sequence[Tensor]) -> Tensor:
            each = enumerate(of_each)
            return reduce(lambda found, one: torch.where(shape == one[0], one[1], found), each, of_each[0])

        return rays.Hit(chosen([hit.distance for hit in hits]), lambda v: chosen([hit.facing(v) for hit in hits]))
