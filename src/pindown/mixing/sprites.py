"""`Sprites`: flat shapes on a plain ground."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pindown.mixing.factors import Factor
from pindown.mixing.renderer import Renderer, colour_of
from pindown.spaces import Box, Space

SHAPES = ("square", "ellipse", "heart")


class Sprites(Renderer):
    """Flat shapes on a plain ground: shape, size, rotation, x and y of each, painted one after another.

    The edges are as soft as a pixel, by the distance from them, so that one sample a pixel will do. A rotation goes
    up to 60°; at 90° a square would look the same again. Hue, and the brightness of the ground, are
    factors as well. The factors of further sprites have their number: ``x_2``.

    Parameters
    ----------
    n_sprites : int
        How many there are.
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
            raise ValueError(f"Sprites: n_sprites must be at least 1, got {n_sprites}.")
        self.n_sprites = n_sprites
        super().__init__(size, factors=factors, domain=domain, fixed=fixed, samples=samples)

    def _all(self) -> tuple[Factor, ...]:
        several = tuple(factor for number in range(self.n_sprites) for factor in _of_one(number, self.n_sprites))
        return (*several, Factor("ground", 0.0, 0.6))

    def _usual(self) -> tuple[str, ...]:
        return tuple(
            f"{name}{_suffix(number)}"
            for number in range(self.n_sprites)
            for name in ("shape", "size", "rotation", "x", "y")
        )

    def _draw(self, values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        latent = {factor.name for factor in self.factors} | set(self.fixed)
        ground = values["ground"] if "ground" in latent else torch.full_like(values["x"], 0.04)
        picture = ground[:, None].expand(-1, 3, len(y) * len(x))
        edge = 2.0 / (self.size * self.samples)  # a pixel
        for number in range(self.n_sprites):
            own = {name: values[f"{name}{_suffix(number)}"] for name in ("shape", "size", "rotation", "x", "y")}
            name = f"shape{_suffix(number)}"
            drawn = any(factor.name == name for factor in self.factors)
            inside = _inside(own, x, y, edge, None if drawn else int(self.fixed.get(name, self._known(name).middle)))
            plain = self.n_sprites == 1 and "hue" not in latent
            hue = values[f"hue{_suffix(number)}"]
            colour = torch.full_like(hue[:, None], 0.95) if plain else colour_of(hue)
            picture = picture + inside[:, None] * (colour - picture)
        return picture


def _of_one(number: int, n_sprites: int) -> tuple[Factor, ...]:
    end = _suffix(number)
    hue = 0.8 * (number + 0.5) / n_sprites  # in the middle of its range if it is no latent: colours of their own
    reach = 0.4 / n_sprites
    return (
        Factor(f"shape{end}", 0, 3, values=SHAPES),
        Factor(f"size{end}", 0.18, 0.36),
        Factor(f"rotation{end}", 0.0, 60.0, period=360.0),
        Factor(f"x{end}", -0.6, 0.6),
        Factor(f"y{end}", -0.6, 0.6),
        Factor(f"hue{end}", hue - reach, hue + reach, period=1.0),
    )


def _suffix(number: int) -> str:
    return f"_{number + 1}" if number else ""


def _inside(own: dict[str, Tensor], x: Tensor, y: Tensor, edge: float, shape: int | None) -> Tensor:
    """Return how much of each point a sprite covers, from 0 to 1; (n, p). One shape, or None: each has its own."""
    turn, size = torch.deg2rad(own["rotation"])[:, None], own["size"][:, None]
    right, up = x - own["x"][:, None], y - own["y"][:, None]  # (n, 1, w), (n, h, 1)
    cos, sin = turn.cos() / size, turn.sin() / size
    u, v = (cos * right + sin * up).flatten(1), (cos * up - sin * right).flatten(1)
    if shape is not None:
        outside = (_square, _ellipse, _heart)[shape](u, v)  # in units of the size
    else:
        each = torch.stack([_square(u, v), _ellipse(u, v), _heart(u, v)])  # (3, n, p)
        outside = each.gather(0, own["shape"].long()[None].expand(1, *u.shape))[0]
    far = outside * own["size"]
    return (0.5 - far / edge).clamp(0, 1)


def _square(u: Tensor, v: Tensor) -> Tensor:
    du, dv = u.abs() - 0.85, v.abs() - 0.85
    return torch.hypot(du.clamp_min(0), dv.clamp_min(0)) + torch.maximum(du, dv).clamp_max(0)


def _ellipse(u: Tensor, v: Tensor) -> Tensor:
    """Return the first-order distance from an ellipse: its level by the length of the gradient."""
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
