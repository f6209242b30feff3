"""`Bodies`: planar arms that all make the same motions, each seen by a camera of its own."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.metrics.arrays import check_positive
from pindown.simulate import Process, Sample
from pindown.simulate.mixing import Mixing, smooth
from pindown.simulate.process import frequencies, placed
from pindown.theory import Assumption

MARKERS = (1 / 3, 2 / 3, 1.0)  # along the arm, where it is observed; the last is the hand
CENTRE, HALF_WIDTH, STEP = (1.3, 0.0), 0.3, 0.3  # hands start in a square and move by at most a step
FARTHEST = math.hypot(CENTRE[0] + HALF_WIDTH + STEP, HALF_WIDTH + STEP)  # of a hand from the shoulder

_CENTRE = torch.tensor(CENTRE, dtype=torch.float64)
_REST = torch.cat([_CENTRE * fraction for fraction in MARKERS])  # markers of a straight arm: centre of the image


@dataclass(frozen=True)
class Arm:
    """A planar arm: a shoulder, and elbows with equal angles between links of equal length.

    All elbows bend to the same side, so the position of the hand determines all joint angles.

    Parameters
    ----------
    reach : float
        Total length of the links.
    n_elbows : int
        Joints in addition to the shoulder.

    Examples
    --------
    Two links of length 1 at a right angle put the hand at distance √2:

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
        check_positive(n_elbows=self.n_elbows)
        if not 0 < self.reach < math.inf:
            raise InputError("reach", f"`reach` must be positive and finite, got {self.reach}.")

    def joints(self, hand: Tensor) -> Tensor:
        """Return the joint angles for positions of the hand, shoulder first; (n, 2) → (n, n_elbows + 1)."""
        bend = self._elbow_angle(hand.norm(dim=1))
        shoulder = torch.atan2(hand[:, 1], hand[:, 0]) + self.n_elbows * bend / 2
        return torch.stack([shoulder, *[-bend] * self.n_elbows], 1)

    def hand(self, angles: Tensor) -> Tensor:
        """Return the position of the hand; (n, n_elbows + 1) → (n, 2)."""
        return self.markers(angles)[:, -2:]

    def markers(self, angles: Tensor) -> Tensor:
        """Return the positions of the markers, x and y of each in turn; (n, n_elbows + 1) → (n, 6)."""
        n_links = self.n_elbows + 1
        facing = angles.cumsum(1)
        links = torch.stack([facing.cos(), facing.sin()], -1) * (self.reach / n_links)  # (n, n_links, 2)
        ends = torch.cat([torch.zeros_like(links[:, :1]), links.cumsum(1)], 1)
        points = []
        for fraction in MARKERS:
            link = min(int(fraction * n_links + 1e-9), n_links - 1)
            points.append(ends[:, link] + (fraction * n_links - link) * links[:, link])
        return torch.cat(points, 1)

    def _elbow_angle(self, distance: Tensor) -> Tensor:
        """Return the angle of every elbow for a distance of the hand from the shoulder, by bisection."""
        n_links = self.n_elbows + 1
        low, high = torch.full_like(distance, 1e-9), torch.full_like(distance, 2 * math.pi / n_links)
        for _ in range(52):
            middle = (low + high) / 2
            # Chord of n links, each at an angle δ to the one before. It shortens as δ grows.
            chord = self.reach / n_links * torch.sin(n_links * middle / 2) / torch.sin(middle / 2)
            low, high = torch.where(chord > distance, middle, low), torch.where(chord > distance, high, middle)
        return (low + high) / 2


@dataclass(frozen=True, eq=False)
class Bodies(Process):
    """Arms e that all make the same motions: p → p + z, z ⟂ e, x = c_e(q_e(p)), x_pos = c_e(q_e(p + z)).

    The hand of a body is at p, with joint angles q_e(p). It moves by z, the true action: uniform on a disc, and
    independent of the body and of p. Each body has a camera c_e, a smooth map of its markers. So x reveals the body,
    and only ``x`` and ``x_pos`` together determine z. After Liu et al., SCAR, 2026, where bodies are robots.

    Parameters
    ----------
    arms : tuple of Arm
        The bodies; each must be longer than `FARTHEST`.
    cameras : tuple of Mixing
        One smooth injective map of the six marker coordinates per body.

    Examples
    --------
    >>> process = Bodies.different(3, random_state=0)
    >>> [arm.n_elbows for arm in process.arms]
    [1, 2, 3]
    >>> sample = process.sample(5, random_state=0)
    >>> tuple(sample.x.shape), tuple(sample.x_pos.shape), tuple(sample.z.shape), sample.u.shape
    ((5, 6), (5, 6), (5, 2), torch.Size([5]))
    """

    role_of_u = "nuisance"

    arms: tuple[Arm, ...]
    cameras: tuple[Mixing, ...]

    def __post_init__(self) -> None:
        if len(self.arms) < 2:
            raise InputError("arms", f"`arms` must be at least two, got {len(self.arms)}.")
        if len(self.arms) != len(self.cameras):
            raise InputError("cameras", f"`cameras` must be one per arm, {len(self.arms)}, got {len(self.cameras)}.")
        if short := [arm for arm in self.arms if arm.reach <= FARTHEST]:
            raise InputError("arms", f"`arms` must be longer than {FARTHEST:.2f}, got {short[0]}.")
        if wrong := [camera.d for camera in self.cameras if camera.d != 2 * len(MARKERS)]:
            raise InputError("cameras", f"`cameras` must map {2 * len(MARKERS)} coordinates, got one for {wrong[0]}.")

    @classmethod
    def different(cls, n_bodies: int, *, strength: float = 0.4, random_state: RandomState = None) -> "Bodies":
        """Return arms with one, two, three, one, … elbows and random lengths, each with a random camera.

        With a larger ``strength`` the cameras are more nonlinear; at 0 they are rotations.
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
        """Probability of each body."""
        return frequencies(np.ones(len(self.arms)))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions that hold in this simulation."""
        return frozenset({theory.NUISANCE_INDEPENDENT})

    def observe(self, hand: Tensor, body: int) -> Tensor:
        """Return the observation of a body with its hand at a position; (n, 2) → (n, 6)."""
        arm, camera = self.arms[body], placed(self.cameras[body], hand.device)
        return camera(2 * (arm.markers(arm.joints(hand.double())) - placed(_REST, hand.device))).to(hand.dtype)

    def same_motions(
        self, n: int, *, random_state: RandomState = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Sample, ...]:
        """Draw n actions that all bodies make, each from its own start positions; returns one sample per body."""
        rng, device = generator(random_state), torch.device("cpu")
        z = _actions(n, rng, device)
        bodies = range(len(self.arms))
        return tuple(self._moved(_positions(n, rng, device), z, torch.full((n,), e), dtype) for e in bodies)

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        u = torch.randint(len(self.arms), (n,), generator=rng, device=device)
        return self._moved(_positions(n, rng, device), _actions(n, rng, device), u, dtype)

    def _moved(self, start: Tensor, z: Tensor, u: Tensor, dtype: torch.dtype) -> Sample:
        # Compute all bodies and select one: selecting samples by body would synchronise with the device.
        own = torch.arange(len(u), device=u.device)
        x, x_pos = (
            torch.stack([self.observe(hand, e) for e in range(len(self.arms))])[u, own].to(dtype)
            for hand in (start, start + z)
        )
        return Sample(x=x, z=z.to(dtype), u=u, x_pos=x_pos)


def _positions(n: int, rng: torch.Generator, device: torch.device) -> Tensor:
    square = 2 * torch.rand(n, 2, generator=rng, device=device, dtype=torch.float64) - 1
    return HALF_WIDTH * square + placed(_CENTRE, device)


def _actions(n: int, rng: torch.Generator, device: torch.device) -> Tensor:
    length, fraction = torch.rand(2, n, generator=rng, device=device, dtype=torch.float64)
    angle = 2 * math.pi * fraction
    return STEP * length.sqrt()[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
