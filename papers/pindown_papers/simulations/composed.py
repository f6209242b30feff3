"""`Composed`: images of cut-outs on a background, with seven independent factors."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name it goes by)

from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.simulate import Process, Sample
from pindown.simulate.process import placed
from pindown.theory import Assumption

FACTORS = ("size", "darkness", "right", "blur", "occlusion", "grey", "rotation")
"""Binary factors, each present in half of the images."""

HARMONICS = 4
"""Waves along the outline of a cut-out."""


class Composed(Process):
    """Images of cut-outs, whose seven binary factors are independent of each other and of the object.

    For probes of frozen vision models (`pindown.probe`), which measure how well features predict each factor. An object
    is large (*size*), on the right (*right*), rotated (*rotation*), or half hidden by a bar (*occlusion*). An image is
    dark (*darkness*), out of focus (*blur*), or without colour (*grey*). ``Sample.z`` has the factors, 0 or 1, and
    ``Sample.u`` the object. Objects are groups: a probe must not be trained and scored on the same one.

    Parameters
    ----------
    objects : int, or array or tensor of shape (k, 4, s, s)
        How many cut-outs to draw, see `cutouts`; or your own: red, green, blue and opacity, in [0, 1].
    size : int
        Pixels of a side.
    random_state : int, RandomState, Generator or None
        Seed of the objects.

    Examples
    --------
    >>> simulation = Composed(20, size=16, random_state=0)
    >>> sample = simulation.sample(8, random_state=1)
    >>> tuple(sample.x.shape), tuple(sample.z.shape), simulation.factors[:3]
    ((8, 3, 16, 16), (8, 7), ('size', 'darkness', 'right'))
    """

    role_of_u: ClassVar[str | None] = "signal"
    factors: ClassVar[tuple[str, ...]] = FACTORS

    def __init__(self, objects: int | Tensor | NDArray = 160, *, size: int = 64, random_state: RandomState = None):
        if size < 8:
            raise InputError("size", f"size must be at least 8 pixels, got {size}.")
        self.size = size
        if isinstance(objects, int):
            self.objects = cutouts(objects, size, random_state=random_state)
            return
        given = torch.as_tensor(np.asarray(objects), dtype=torch.float32)
        if given.ndim != 4 or given.shape[1] != 4 or given.shape[2] != given.shape[3] or not len(given):
            raise InputError(
                "objects",
                "objects must be a number, or cut-outs of shape (k, 4, s, s): red, green, blue and opacity; "
                f"got shape {tuple(given.shape)}.",
            )
        if not torch.isfinite(given).all() or given.min() < 0 or given.max() > 1:
            raise InputError("objects", "cut-outs must be in [0, 1]. Divide bytes by 255.")
        self.objects = given

    @property
    def d(self) -> int:
        """Number of factors."""
        return len(FACTORS)

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """None: objects tell nothing of the factors."""
        return frozenset()

    @property
    def prior(self) -> NDArray[np.float64]:
        """All objects come equally often."""
        return np.full(len(self.objects), 1 / len(self.objects))

    @cached_property
    def _blur(self) -> Tensor:
        """A normal bell whose spread is a thirtieth of an image; (taps,)."""
        spread = self.size / 30
        at = torch.arange(-math.ceil(2 * spread), math.ceil(2 * spread) + 1, dtype=torch.float32)
        bell = torch.exp(-((at / spread) ** 2) / 2)
        return bell / bell.sum()

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        u = torch.randint(len(self.objects), (n,), generator=rng, device=device)
        z = torch.randint(2, (n, self.d), generator=rng, device=device).float()
        chance = torch.rand(n, 16, generator=rng, device=device)
        has = dict(zip(FACTORS, z.T[:, :, None, None, None], strict=True))  # (n, 1, 1, 1)
        x = self._pasted(placed(self.objects, device)[u], z, chance)
        bar = _bar(chance, z, self.size)  # (n, 1, size, size)
        x = torch.where((bar > 0) & (has["occlusion"] > 0), chance[:, 10:13, None, None], x)
        x = torch.where(has["blur"] > 0, _blurred(x, placed(self._blur, device)), x)
        x = torch.where(has["grey"] > 0, x.mean(1, keepdim=True), x)
        x = torch.where(has["darkness"] > 0, 0.35 * x, x)
        return Sample(x=x.to(dtype), z=z.to(dtype), u=u)

    def _pasted(self, cut: Tensor, z: Tensor, chance: Tensor) -> Tensor:
        """Paste cut-outs on grounds of two colours that pass into each other; (n, 3, size, size)."""
        scale, turn, x, y = _placement(z, chance)
        cos, sin, zero = turn.cos() / scale, turn.sin() / scale, torch.zeros_like(x)
        linear = torch.stack([cos, sin, zero, -sin, cos, zero], 1).reshape(-1, 2, 3)
        shift = torch.stack([-(cos * x + sin * y), sin * x - cos * y], 1)
        linear[:, :, 2] = shift
        grid = F.affine_grid(linear, [len(cut), 4, self.size, self.size], align_corners=False)
        rgba = F.grid_sample(cut, grid, align_corners=False)
        colour, alpha = rgba[:, :3], rgba[:, 3:]
        ramp = torch.linspace(0, 1, self.size, device=cut.device)[None, None, :, None]
        ground = chance[:, 4:7, None, None] * (1 - ramp) + chance[:, 7:10, None, None] * ramp
        return (1 - alpha) * (0.25 + 0.5 * ground) + alpha * colour


def _placement(z: Tensor, chance: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return size, angle and place of the object in each image; (n,) each."""
    size, right, rotation = (z[:, FACTORS.index(name)] for name in ("size", "right", "rotation"))
    scale = 0.55 + 0.4 * size + 0.1 * (chance[:, 0] - 0.5)
    turn = math.pi / 2 * rotation + 0.3 * (chance[:, 1] - 0.5)
    return scale, turn, 0.5 * (right - 0.5) + 0.1 * (chance[:, 2] - 0.5), 0.3 * (chance[:, 3] - 0.5)


def _bar(chance: Tensor, z: Tensor, size: int) -> Tensor:
    """Return where a bar across the object would be; (n, 1, size, size), 1 or 0."""
    scale, _, x, y = (part[:, None, None] for part in _placement(z, chance))
    at = (torch.arange(size, device=z.device) + 0.5) / size * 2 - 1
    down, across = at[None, :, None], at[None, None, :]
    off = 0.3 * scale * (chance[:, 13, None, None] - 0.5)
    inside = ((across - x).abs() < 0.7 * scale) & ((down - y - off).abs() < 0.25 * scale)
    return inside[:, None].float()


def _blurred(x: Tensor, bell: Tensor) -> Tensor:
    half = len(bell) // 2
    padded = F.pad(x, (half, half, half, half), mode="replicate")
    rows = F.conv2d(padded, bell.reshape(1, 1, 1, -1).expand(3, 1, 1, -1), groups=3)
    return F.conv2d(rows, bell.reshape(1, 1, -1, 1).expand(3, 1, -1, 1), groups=3)


def cutouts(n: int, size: int, *, random_state: RandomState = None) -> Tensor:
    """Draw cut-outs: blobs with an outline of their own, in stripes of two colours; (n, 4, size, size), in [0, 1].

    Examples
    --------
    >>> some = cutouts(3, 32, random_state=0)
    >>> tuple(some.shape), bool((some[:, 3, 16, 16] > 0.99).all()), bool((some[:, 3, 0, 0] < 0.01).all())
    ((3, 4, 32, 32), True, True)
    """
    if n < 1:
        raise InputError("n", f"n must be at least 1, got {n}.")
    rng = generator(random_state)
    waves, phases = (torch.rand(n, HARMONICS, generator=rng) for _ in range(2))
    chance = torch.rand(n, 10, generator=rng)[:, :, None, None]
    at = (torch.arange(size) + 0.5) / size * 2 - 1
    down, across = at[None, :, None], at[None, None, :]
    far, angle = torch.hypot(across, down * (1 + 0.8 * chance[:, 0])), torch.atan2(down, across)
    outline = torch.full_like(far, 0.65)
    for k in range(HARMONICS):
        wave = waves[:, k, None, None] / (k + 2)
        outline = outline + 0.25 * wave * torch.cos((k + 2) * angle + 2 * math.pi * phases[:, k, None, None])
    alpha = ((outline - far) * size / 4).clamp(0, 1)
    along = across * torch.cos(math.pi * chance[:, 1]) + down * torch.sin(math.pi * chance[:, 1])
    stripe = 0.5 + 0.5 * torch.sin((4 + 12 * chance[:, 2]) * along + 6 * chance[:, 3])
    first, second = chance[:, 4:7, 0], chance[:, 7:10, 0]  # (n, 3, 1)
    colour = stripe[:, None] * first[..., None] + (1 - stripe[:, None]) * second[..., None]
    return torch.cat([colour, alpha[:, None]], dim=1)
