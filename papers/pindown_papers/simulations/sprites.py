"""`Sprites`: a renderer of flat shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pindown.errors import InputError
from pindown.networks.spaces import Box, Space
from pindown_papers.simulations.renderers import Factor, Renderer, colour_of

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
        several = (factor for number in range(n_sprites) for factor in _sprite_factors(number, n_sprites))
        self.known = (*several, Factor("ground", 0.0, 0.6))
        self.usual = tuple(f"{name}{_suffix(number)}" for number in range(n_sprites) for name in SPRITE)
        super().__init__(size, factors=factors, domain=domain, fixed=fixed, samples=samples)

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
