"""Simulations with a nuisance that moves some latents, that depends on a label, or that is the body of an arm."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.metrics.arrays import check_positive
from pindown.networks.spaces import Reals
from pindown.simulate.mixing import InvertibleNetwork, Mixing, smooth
from pindown.simulate.process import Clusters, Process, Sample, check_mixing, frequencies, placed, span_of_differences
from pindown.theory import Assumption

MARKERS = (1 / 3, 2 / 3, 1.0)  # along the arm, where it is observed; the last is the hand
CENTRE, HALF_WIDTH, STEP = (1.3, 0.0), 0.3, 0.3  # hands start in a square and move by at most a step
FARTHEST = math.hypot(CENTRE[0] + HALF_WIDTH + STEP, HALF_WIDTH + STEP)  # of a hand from the shoulder

_CENTRE = torch.tensor(CENTRE, dtype=torch.float64)
_REST = torch.cat([_CENTRE * fraction for fraction in MARKERS])  # markers of a straight arm: centre of the image


@dataclass(frozen=True, eq=False)
class Nuisance(Process):
    """A nuisance e that moves some directions of the latents ã: ã | e ~ p(·|v_e), x = g(ã).

    With vMF clusters the distribution of a projection of ã depends on e only through the projection of v_e. So the
    coordinates z of ã on V^⊥, V = span{v_e − v_e'}, are independent of e; those on larger subspaces are not.
    ã itself is ``clusters.mixing.inverse(x)``.

    Parameters
    ----------
    clusters : Clusters
        The simulation of ã; its classes are the levels of e.

    Examples
    --------
    >>> from pindown.simulate.distributions import VonMisesFisher
    >>> from pindown.simulate.mixing import identity
    >>> from pindown.networks.spaces import Sphere
    >>> vectors = Sphere()(torch.tensor([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]))  # they differ in the first axis
    >>> process = Nuisance(Clusters(vectors, VonMisesFisher(5.0), identity(3)))
    >>> process.d, process.nuisance_space.abs().round().flatten().tolist()
    (2, [1.0, 0.0, 0.0])
    """

    role_of_u = "nuisance"

    clusters: Clusters

    def __post_init__(self) -> None:
        if self.nuisance_space.shape[1] == self.clusters.d:
            what = f"the {self.clusters.n_classes} vectors of `clusters` differ in all {self.clusters.d} dimensions"
            raise InputError("clusters", f"{what}, so no latent is independent of the nuisance. Use fewer levels.")

    @classmethod
    def on_sphere(
        cls,
        d: int,
        n_levels: int,
        concentration: float,
        *,
        n_layers: int = 2,
        weights: tuple[float, ...] | None = None,
        random_state: RandomState = None,
    ) -> "Nuisance":
        """Return a simulation with ã from `Clusters.on_sphere` in d dimensions; d − n_levels + 1 are invariant.

        ``weights`` are the frequencies of the levels, up to a factor; equal by default.
        """
        clusters = Clusters.on_sphere(d, n_levels, concentration, n_layers=n_layers, random_state=random_state)
        return cls(replace(clusters, weights=weights))

    @property
    def d(self) -> int:
        """Number of invariant latents."""
        return self.complement.shape[1]

    @cached_property
    def nuisance_space(self) -> Tensor:
        """Orthonormal basis of V; (d_a, dim V)."""
        return span_of_differences(self.clusters.vectors)

    @cached_property
    def complement(self) -> Tensor:
        """Orthonormal basis of V^⊥; (d_a, d)."""
        return torch.linalg.qr(self.nuisance_space, mode="complete").Q[:, self.nuisance_space.shape[1] :]

    @property
    def invariant_space(self) -> Tensor:
        """Orthonormal basis of the directions of x that an invariant linear encoder reads; (d_a, d)."""
        return invariant_directions(self.clusters.mixing, self.complement)

    @property
    def prior(self) -> NDArray[np.float64]:
        return self.clusters.prior

    @property
    def assumptions(self) -> frozenset[Assumption]:
        held = self.clusters.mixing.assumptions
        # Other distributions are not symmetric around v_e, so their shape on V^⊥ may depend on e.
        if theory.VMF_CLUSTERS in self.clusters.assumptions:
            held |= {theory.NUISANCE_VMF, theory.NUISANCE_INDEPENDENT}
        return held

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        x, a, u, *_ = self.clusters._draw(n, rng, device, dtype)
        return Sample(x=x, z=a @ placed(self.complement, device).to(dtype), u=u)


@dataclass(frozen=True, eq=False)
class Confounded(Process):
    """A nuisance e that correlates with a label c, as in an unbalanced study: (c, e) ~ joint, x = g(z, w).

    The label moves z | c ~ N(l_c, I), the nuisance moves w | e ~ N(v_e, I). So z is independent of e *given the
    label*, but not marginally: an embedding that is independent of e loses part of c. The label is ``Sample.label``.

    Parameters
    ----------
    label_vectors : Tensor of shape (n_labels, d)
        The means l_c of z.
    nuisance_vectors : Tensor of shape (n_levels, n_affected)
        The means v_e of w.
    joint : Tensor of shape (n_labels, n_levels)
        Frequencies of the pairs (c, e), up to a factor.
    mixing : Mixing
        The map g of (z, w).

    Examples
    --------
    >>> from pindown.simulate.mixing import identity
    >>> joint = torch.tensor([[9.0, 1.0], [1.0, 9.0]])  # nearly every sample of a label has the same level
    >>> process = Confounded(torch.eye(2), torch.tensor([[-1.0], [1.0]]), joint, identity(3))
    >>> sample = process.sample(10_000, random_state=0)
    >>> round((sample.label == sample.u).float().mean().item(), 1)
    0.9
    """

    role_of_u = "nuisance"

    label_vectors: Tensor
    nuisance_vectors: Tensor
    joint: Tensor
    mixing: Mixing

    def __post_init__(self) -> None:
        shape = (len(self.label_vectors), len(self.nuisance_vectors))
        if self.joint.shape != shape or not (self.joint >= 0).all() or not self.joint.sum() > 0:
            got = f"shape {tuple(self.joint.shape)}"
            raise InputError(
                "joint", f"`joint` must be {shape[0]} × {shape[1]} frequencies, labels × levels, got {got}."
            )
        check_mixing(self.d + self.nuisance_vectors.shape[1], Reals(), self.mixing)

    @property
    def d(self) -> int:
        """Number of latents that are independent of the nuisance given the label."""
        return self.label_vectors.shape[1]

    @property
    def prior(self) -> NDArray[np.float64]:
        return frequencies(self.joint.sum(0))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions that hold in this simulation; z depends on e unless the label is given."""
        return self.mixing.assumptions

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        pair = self._draw_categories(n, rng, device)
        label, u = pair // self.joint.shape[1], pair % self.joint.shape[1]
        means = [placed(self.label_vectors, device)[label], placed(self.nuisance_vectors, device)[u]]
        white = torch.randn(n, self.mixing.d, generator=rng, device=device, dtype=dtype)
        a = white + torch.cat(means, 1).to(dtype)
        return Sample(x=placed(self.mixing, device)(a), z=a[:, : self.d], u=u, label=label)

    @property
    def _categories(self) -> NDArray[np.float64]:
        return frequencies(self.joint.flatten())


def invariant_directions(mixing: Mixing, directions: Tensor) -> Tensor:
    """Return an orthonormal basis of the directions m of x with mᵀ g(ã) = nᵀ ã for the directions n of ã."""
    if not isinstance(mixing, InvertibleNetwork) or len(mixing.weights) > 1:
        raise InputError("mixing", "`invariant_space` exists for a linear mixing only. Use `n_layers=1`.")
    return torch.linalg.qr(torch.linalg.solve(mixing.weights[0].mT, directions.double())).Q


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
        return frequencies(np.ones(len(self.arms)))

    @property
    def assumptions(self) -> frozenset[Assumption]:
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
