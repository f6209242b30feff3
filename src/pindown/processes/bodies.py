"""Bodies: planar arms of different build that move their hands in the same way, each seen by a camera of its own."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState, generator
from pindown.mixing import Mixing, smooth
from pindown.processes._base import Process, Sample, shares
from pindown.theory import Assumption

MARKERS = (1 / 3, 2 / 3, 1.0)
"""Where on an arm a camera sees markers, as shares of its length; the last is the hand."""

CENTRE, HALF_WIDTH, STEP = (1.3, 0.0), 0.3, 0.3
"""Hands start in the square around the centre, and move by at most a step."""

FARTHEST = math.hypot(CENTRE[0] + HALF_WIDTH + STEP, HALF_WIDTH + STEP)
"""An arm must reach farther than any hand may go."""

_CENTRE = torch.tensor(CENTRE, dtype=torch.float64)
_REST = torch.cat([_CENTRE * share for share in MARKERS])  # where cameras point: a straight arm's markers


@dataclass(frozen=True)
class Arm:
    """A planar arm: a shoulder, and elbows that all bend alike between links of equal length.

    Since they bend to one side only, where the hand is tells all joint angles, and they where it is.

    Parameters
    ----------
    reach : float
        Length of all links together.
    n_elbows : int
        Joints beside the shoulder.

    Examples
    --------
    Two links of length 1 that meet at a right angle put the hand √2 away:

    >>> arm = Arm(reach=2.0, n_elbows=1)
    >>> angles = arm.joints(torch.tensor([[2**0.5, 0.0]], dtype=torch.float64))
    >>> angles.rad2deg().round().tolist()
    [[45.0, -90.0]]
    >>> arm.hand(angles).round(decimals=6).tolist()
    [[1.414214, 0.0]]
    """

    reach: float
    n_elbows: int = 1

    def __post_init__(self) -> None:
        if self.n_elbows < 1 or not 0 < self.reach < math.inf:
            raise ValueError(
                f"Arm: it takes a positive reach and at least one elbow, got reach={self.reach}, "
                f"n_elbows={self.n_elbows}."
            )

    def joints(self, hand: Tensor) -> Tensor:
        """Return the joint angles that put the hand there, shoulder first; (n, 2) → (n, n_elbows + 1)."""
        bend = self._bend(hand.norm(dim=1))
        shoulder = torch.atan2(hand[:, 1], hand[:, 0]) + self.n_elbows * bend / 2
        return torch.stack([shoulder, *[-bend] * self.n_elbows], 1)

    def hand(self, angles: Tensor) -> Tensor:
        """Return where the hand is; (n, n_elbows + 1) → (n, 2)."""
        return self.markers(angles)[:, -2:]

    def markers(self, angles: Tensor) -> Tensor:
        """Return where the markers are, x and y of each in turn; (n, n_elbows + 1) → (n, 6)."""
        n_links = self.n_elbows + 1
        facing = angles.cumsum(1)
        links = torch.stack([facing.cos(), facing.sin()], -1) * (self.reach / n_links)  # (n, n_links, 2)
        ends = torch.cat([torch.zeros_like(links[:, :1]), links.cumsum(1)], 1)
        points = []
        for share in MARKERS:
            link = min(int(share * n_links + 1e-9), n_links - 1)
            points.append(ends[:, link] + (share * n_links - link) * links[:, link])
        return torch.cat(points, 1)

    def _bend(self, distance: Tensor) -> Tensor:
        """Return by how much every elbow bends if the hand is so far from the shoulder; by bisection."""
        n_links = self.n_elbows + 1
        low, high = torch.full_like(distance, 1e-9), torch.full_like(distance, 2 * math.pi / n_links)
        for _ in range(52):
            middle = (low + high) / 2
            # The chord of n links that each turn by δ against the one before: it shortens as they bend.
            chord = self.reach / n_links * torch.sin(n_links * middle / 2) / torch.sin(middle / 2)
            low, high = torch.where(chord > distance, middle, low), torch.where(chord > distance, high, middle)
        return (low + high) / 2


@dataclass(frozen=True, eq=False)
class Bodies(Process):
    """Arms e that all make the same motions: p → p + z, z ⟂ e, x = c_e(q_e(p)), x_pos = c_e(q_e(p + z)).

    The hand of a body stands at p, which its joints q_e tell, and moves by z, the true action: uniform on a disc, and
    independent of the body and of p. A camera of the body's own, c_e, turns and bends the picture of its markers. So x
    tells the body, and the shared z can be had only from two of them: ``x`` before, ``x_pos`` after. After Liu et al.,
    SCAR, 2026, where bodies are robots.

    Parameters
    ----------
    arms : tuple of Arm
        The bodies; each must reach farther than `FARTHEST`.
    cameras : tuple of Mixing
        A smooth injective map of the six coordinates of the markers for each body.

    Examples
    --------
    >>> world = Bodies.different(3, random_state=0)
    >>> [arm.n_elbows for arm in world.arms]
    [1, 2, 3]
    >>> sample = world.sample(5, random_state=0)
    >>> tuple(sample.x.shape), tuple(sample.x_pos.shape), tuple(sample.z.shape), sample.u.shape
    ((5, 6), (5, 6), (5, 2), torch.Size([5]))
    """

    role_of_u = "nuisance"

    arms: tuple[Arm, ...]
    cameras: tuple[Mixing, ...]

    def __post_init__(self) -> None:
        if len(self.arms) < 2 or len(self.arms) != len(self.cameras):
            raise ValueError(
                f"Bodies: give at least two arms, and a camera for each, got {len(self.arms)} and {len(self.cameras)}."
            )
        if short := [arm for arm in self.arms if arm.reach <= FARTHEST]:
            raise ValueError(f"Bodies: hands go as far as {FARTHEST:.2f}, which is out of reach for {short[0]}.")
        if wrong := [camera.d for camera in self.cameras if camera.d != 2 * len(MARKERS)]:
            raise ValueError(f"Bodies: a camera must map {2 * len(MARKERS)} numbers, got one that maps {wrong[0]}.")

    @classmethod
    def different(cls, n_bodies: int, *, strength: float = 0.4, random_state: RandomState = None) -> "Bodies":
        """Make arms with one, two, three, one, … elbows, of different lengths, and a random camera for each.

        The larger ``strength``, the more the cameras bend; at 0 they are rotations.
        """
        rng = generator(random_state)
        reaches = (2.2 + 0.5 * torch.rand(n_bodies, generator=rng)).tolist()
        arms = tuple(Arm(reach, 1 + e % 3) for e, reach in enumerate(reaches))
        return cls(arms, tuple(smooth(2 * len(MARKERS), strength=strength, random_state=rng) for _ in arms))

    @property
    def d(self) -> int:
        """Number of dimensions of the true action."""
        return 2

    @property
    def prior(self) -> NDArray[np.float64]:
        """How often each value of the nuisance comes."""
        return shares(np.ones(len(self.arms)))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""
        return frozenset({theory.NUISANCE_INDEPENDENT})

    def observe(self, hand: Tensor, body: int) -> Tensor:
        """Return what a body looks like with its hand there; (n, 2) → (n, 6)."""
        arm, camera = self.arms[body], placed(self.cameras[body], hand.device)
        return camera(2 * (arm.markers(arm.joints(hand.double())) - placed(_REST, hand.device))).to(hand.dtype)

    def same_motions(
        self, n: int, *, random_state: RandomState = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Sample, ...]:
        """Draw n actions, and let every body do them all, each from a place of its own: a sample per body."""
        rng, device = generator(random_state), torch.device("cpu")
        z = _actions(n, rng, device)
        bodies = range(len(self.arms))
        return tuple(self._moved(_places(n, rng, device), z, torch.full((n,), e), dtype) for e in bodies)

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        u = torch.randint(len(self.arms), (n,), generator=rng, device=device)
        return self._moved(_places(n, rng, device), _actions(n, rng, device), u, dtype)

    def _moved(self, start: Tensor, z: Tensor, u: Tensor, dtype: torch.dtype) -> Sample:
        # All bodies are drawn, and one taken, since choosing rows by body would wait for the device.
        own = torch.arange(len(u), device=u.device)
        x, x_pos = (
            torch.stack([self.observe(hand, e) for e in range(len(self.arms))])[u, own].to(dtype)
            for hand in (start, start + z)
        )
        return Sample(x=x, z=z.to(dtype), u=u, x_pos=x_pos)


def _places(n: int, rng: torch.Generator, device: torch.device) -> Tensor:
    square = 2 * torch.rand(n, 2, generator=rng, device=device, dtype=torch.float64) - 1
    return HALF_WIDTH * square + placed(_CENTRE, device)


def _actions(n: int, rng: torch.Generator, device: torch.device) -> Tensor:
    length, turn = torch.rand(2, n, generator=rng, device=device, dtype=torch.float64)
    angle = 2 * math.pi * turn
    return STEP * length.sqrt()[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
