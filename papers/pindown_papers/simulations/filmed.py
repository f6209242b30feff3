"""`Filmed`: images of arms of different build and colour that move their hands in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._files import atomic_path
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.simulate import Process, Sample
from pindown.simulate.process import frequencies, placed
from pindown.theory import Assumption
from pindown_papers.simulations.robot_arm import RobotArm

_CENTRE = torch.tensor((0.9, 0.9, 0.6), dtype=torch.float64)
_HALF_WIDTHS = torch.tensor((0.15, 0.15, 0.15), dtype=torch.float64)
STEP = 0.15
"""Hands are in a box around the centre (to the right, up, towards the camera), and move by at most this along each."""

JOINTS = ("yaw", "shoulder", "elbow")


class Film(NamedTuple):
    """Episodes of bodies: what was seen at each moment, and how the hand moved between them."""

    frames: Tensor  # (n, steps + 1, 3, size, size)
    actions: Tensor  # (n, steps, 3)
    u: Tensor  # (n,) whose episode it is


@dataclass(frozen=True, eq=False)
class Filmed(Process):
    """Arms e before a camera that all make the same motions: p → p + z, z ⟂ e; ``x`` and ``x_pos`` are images.

    The hand of a body is somewhere in a box, p, and moves by z, the true action, which is uniform and independent of
    body and position where the box leaves room for it. Bodies differ in the lengths of their links and in colour,
    and each has its own background. Like `Bodies`, whose observations are markers, but with pixels.

    Parameters
    ----------
    arms : tuple of RobotArm
        The bodies, with yaw, shoulder and elbow for factors; each must reach every place of the box.

    Examples
    --------
    >>> simulation = Filmed.different(2, size=16)
    >>> sample = simulation.sample(5, random_state=0)
    >>> tuple(sample.x.shape), tuple(sample.x_pos.shape), tuple(sample.z.shape)
    ((5, 3, 16, 16), (5, 3, 16, 16), (5, 3))
    >>> film = simulation.episodes(4, 10, random_state=0)
    >>> tuple(film.frames.shape), tuple(film.actions.shape)
    ((4, 11, 3, 16, 16), (4, 10, 3))
    """

    role_of_u = "nuisance"

    arms: tuple[RobotArm, ...]

    def __post_init__(self) -> None:
        if len(self.arms) < 2:
            raise InputError("arms", f"give at least two arms, got {len(self.arms)}.")
        signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 3)
        for arm in self.arms:
            arm.reaching(_CENTRE + signs * _HALF_WIDTHS)

    @classmethod
    def different(cls, n_bodies: int, *, size: int = 32, samples: int = 1) -> Filmed:
        """Make arms whose upper arms are shorter and whose forearms are longer from one to the next, each with hues."""
        arms = []
        for e in range(n_bodies):
            share = e / max(1, n_bodies - 1)
            hues = {"arm_hue": 0.8 * share, "ground_hue": 0.8 * ((0.55 + 0.618 * e) % 1)}
            lengths = (0.78 - 0.16 * share, 0.47 + 0.15 * share, 0.3)
            arms.append(RobotArm(size, factors=JOINTS, fixed={"wrist": 10.0, **hues}, samples=samples, lengths=lengths))
        return cls(tuple(arms))

    @property
    def d(self) -> int:
        """Number of dimensions of the true action."""
        return 3

    @property
    def prior(self) -> NDArray[np.float64]:
        """Probability of each level of the nuisance."""
        return frequencies(np.ones(len(self.arms)))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this simulation."""
        return frozenset({theory.NUISANCE_INDEPENDENT})

    def observe(self, hand: Tensor, body: int) -> Tensor:
        """Return what a body looks like with its hand there; (n, 3) → (n, 3, size, size)."""
        arm = self.arms[body]
        return arm(arm.reaching(hand.double()).to(hand.dtype))

    def episodes(
        self,
        n: int,
        n_steps: int,
        *,
        bodies: Tensor | None = None,
        random_state: RandomState = None,
        dtype: torch.dtype = torch.float32,
    ) -> Film:
        """Draw n episodes of so many steps, of bodies (n,) by turns or as given: the same ones make the same motions.

        Motions depend on ``random_state`` only, so that another body makes the same if it is given instead.
        """
        rng, device = generator(random_state), torch.device("cpu")
        whose = torch.arange(n) % len(self.arms) if bodies is None else torch.as_tensor(bodies)
        path = [_places(n, rng, device)]
        for _ in range(n_steps):
            path.append(_within(path[-1] + _actions(n, rng, device)))
        hands = torch.stack(path, 1)  # (n, steps + 1, 3)
        frames = self._seen(hands.flatten(0, 1), whose.repeat_interleave(n_steps + 1), dtype)
        return Film(frames.unflatten(0, (n, n_steps + 1)), hands.diff(dim=1).to(dtype), whose)

    def same_motions(
        self, n: int, *, random_state: RandomState = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Sample, ...]:
        """Draw n motions, and let every body make them all: a sample per body."""
        rng, device = generator(random_state), torch.device("cpu")
        start = _places(n, rng, device)
        end = _within(start + _actions(n, rng, device))
        return tuple(self._moved(start, end, torch.full((n,), e), dtype) for e in range(len(self.arms)))

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        u = torch.randint(len(self.arms), (n,), generator=rng, device=device)
        start = _places(n, rng, device)
        return self._moved(start, _within(start + _actions(n, rng, device)), u, dtype)

    def _moved(self, start: Tensor, end: Tensor, u: Tensor, dtype: torch.dtype) -> Sample:
        x, x_pos = (self._seen(hand, u, dtype) for hand in (start, end))
        return Sample(x=x, z=(end - start).to(dtype), u=u, x_pos=x_pos)

    def _seen(self, hands: Tensor, u: Tensor, dtype: torch.dtype) -> Tensor:
        size = self.arms[0].size
        frames = torch.empty(len(hands), 3, size, size, dtype=dtype, device=hands.device)
        for e in range(len(self.arms)):
            own = u == e
            frames[own] = self.observe(hands[own].to(dtype), e)
        return frames


def _places(n: int, rng: torch.Generator, device: torch.device) -> Tensor:
    cube = 2 * torch.rand(n, 3, generator=rng, device=device, dtype=torch.float64) - 1
    return placed(_CENTRE, device) + placed(_HALF_WIDTHS, device) * cube


def _actions(n: int, rng: torch.Generator, device: torch.device) -> Tensor:
    return STEP * (2 * torch.rand(n, 3, generator=rng, device=device, dtype=torch.float64) - 1)


def _within(hand: Tensor) -> Tensor:
    """Return places that were left, mirrored back into the box."""
    centre, half = placed(_CENTRE, hand.device), placed(_HALF_WIDTHS, hand.device)
    away = hand - centre
    return centre + torch.where(away.abs() > half, away.sign() * 2 * half - away, away)


def save_animation(path: str | Path, images: NDArray[np.uint8], *, seconds: float = 0.2) -> None:
    """Write bytes (n, height, width, 3) as an animated PNG that browsers play in a loop; needs Pillow.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_animation(f"{folder}/a.png", np.arange(180, dtype=np.uint8).reshape(3, 4, 5, 3))
    ...     Path(f"{folder}/a.png").read_bytes().count(b"fcTL")  # one per image
    3
    """
    from PIL import Image

    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not len(images):
        raise InputError("images", f"`images` must be bytes (n, height, width, 3), got {images.dtype} {images.shape}.")
    first, *others = (Image.fromarray(image) for image in images)
    with atomic_path(Path(path)) as temporary:
        first.save(temporary, format="PNG", save_all=True, append_images=others, duration=round(1000 * seconds), loop=0)
