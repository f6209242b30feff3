"""Folding: is an encoder injective? Measured without ground truth.

A random perceptron maps distant inputs to the same latents. It is *folded*: the determinant of its Jacobian has both
signs. The fraction of the rarer sign is measured, since a reflection has one sign everywhere and folds nothing.

Only directions along the data count. If the data do not fill their space, tangent spaces are estimated from neighbours,
and again from each half of the neighbours. The disagreement of the halves is the uncertainty.

An encoder may also collapse a direction, along which its latents then hardly vary. It is called flat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from torch import Tensor

from pindown.networks.spaces import Reals, Space, Sphere

FoldingOutcome = Literal["folded", "flat", "injective", "undecided"]

THRESHOLD = 0.1  # fraction of reversed samples above which an encoder is folded
FLAT = 1e-3  # relative variance below which a latent is flat
MIN_SAMPLES, MAX_SAMPLES = 200, 2_000  # smallest and largest number of samples that are used
EDGES = 12  # neighbours per sample in the graph; with eight it may be disconnected
NEIGHBOURS_PER_DIMENSION = 10  # of a tangent space
MAX_DIRECTIONS, FLOOR = 64, 0.1  # principal directions of the data; their least relative variance that is scaled to 1
RIDGE = 0.1  # weight of the radial direction in a closed surface's normal, relative to the variance of the neighbours
STEP = 1e-4  # step of the finite differences, in standard deviations of the data


@dataclass(frozen=True)
class Folding:
    """The measured folding of an encoder.

    Parameters
    ----------
    fraction : float
        Fraction of samples at which the encoder has the rarer orientation: 0 for an injective map, about 1/2 for a map
        that folds the data in two, NaN if it cannot be measured.
    uncertainty : float
        Fraction of samples for which two estimates of the tangent space give different orientations.
    flat : int
        Number of directions in which the latents hardly vary.
    n_samples : int
        Number of samples used.

    Examples
    --------
    >>> print(Folding(fraction=0.43, uncertainty=0.02, flat=0, n_samples=2_000))
    folded: 43 ± 2 % of 2000 samples have reversed orientation, 0 latent directions are flat
    >>> Folding(fraction=0.2, uncertainty=0.1, flat=0, n_samples=2_000).verdict
    'undecided'
    """

    fraction: float
    uncertainty: float
    flat: int
    n_samples: int

    @property
    def verdict(self) -> FoldingOutcome:
        """Flat if a direction is, folded if the fraction exceeds the threshold by twice the uncertainty.

        Otherwise injective if the fraction does not exceed the threshold, else undecided.
        """
        if self.flat:  # the orientation along a flat direction is noise
            return "flat"
        if self.fraction - 2 * self.uncertainty > THRESHOLD:
            return "folded"
        return "injective" if self.fraction <= THRESHOLD else "undecided"

    def __str__(self) -> str:
        reversed_ = f"orientation not measurable from {self.n_samples} samples"
        if not math.isnan(self.fraction):
            percent = f"{100 * self.fraction:.0f} ± {100 * self.uncertainty:.0f} %"
            reversed_ = f"{percent} of {self.n_samples} samples have reversed orientation"
        flat = "1 latent direction is" if self.flat == 1 else f"{self.flat} latent directions are"
        return f"{self.verdict}: {reversed_}, {flat} flat"


def find_folding(encode: Callable[[Tensor], Tensor], x: Tensor, space: Space = Reals()) -> Folding:  # noqa: B008
    """Return the fraction of samples at which an encoder reverses orientation, and its number of flat directions.

    Parameters
    ----------
    encode
        Maps (n, n_features) to latents (n, d), each sample by itself, in float64.
    x
        Observations of shape (n, n_features); at most :data:`MAX_SAMPLES` of them are used.
    space
        The latent space: on the sphere, latents have one dimension less than coordinates.

    Notes
    -----
    It does not detect coverings that reverse nothing, such as doubling the angle on a circle. It does not detect that
    two separate clusters share their latents.

    Orientations of tangent spaces are propagated along the spanning tree of the most parallel ones [1]_.

    References
    ----------
    .. [1] Hoppe et al., Surface reconstruction from unorganized points, SIGGRAPH 1992.

    Examples
    --------
    >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    >>> print(find_folding(lambda x: x.flip(1), x))  # a reflection
    injective: 0 ± 0 % of 500 samples have reversed orientation, 0 latent directions are flat
    >>> find_folding(lambda x: torch.stack([x[:, 0].abs(), x[:, 1]], 1), x).verdict
    'folded'
    >>> find_folding(lambda x: x * torch.tensor([1, 1e-3]), x).verdict
    'flat'
    """
    if len(x) > MAX_SAMPLES:
        x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:MAX_SAMPLES].to(x.device)]
    x = x.double()
    u, axes = _principal_coordinates(x)
    with torch.no_grad():
        z = encode(x).cpu()
        # Finite differences work for any module, and are exact enough in float64.
        slopes = [(encode(x + STEP * axis) - encode(x - STEP * axis)).cpu() / (2 * STEP) for axis in axes.T]
    dimension = z.shape[1] - isinstance(space, Sphere)
    enough = len(x) >= max(MIN_SAMPLES, 2 * NEIGHBOURS_PER_DIMENSION * dimension)
    measurable = enough and 0 < dimension <= len(slopes) and all(slope.isfinite().all() for slope in slopes)
    flat = _flat(z, dimension) if measurable else None
    if flat is None:
        return Folding(math.nan, math.nan, 0, len(x))
    return Folding(*_reversed(u, z, torch.stack(slopes, 2), dimension), flat, len(x))


def find_flat_directions(z: Tensor, space: Space = Reals()) -> Folding:  # noqa: B008
    """Return the number of flat directions of latents (n, d), for data that are too wide to measure orientation."""
    return Folding(math.nan, math.nan, _flat(z.double(), z.shape[1] - isinstance(space, Sphere)) or 0, len(z))


def _flat(z: Tensor, dimension: int) -> int | None:
    """Return the number of directions in which latents hardly vary; None if all latents are equal."""
    spread = torch.linalg.eigvalsh(torch.cov(z.T, correction=0).reshape(z.shape[1], -1)).flip(0)[:dimension]
    if spread[0] <= 1e-12 * z.square().mean():
        return None
    return int((spread < FLAT * spread[0]).sum())


def _reversed(u: Tensor, z: Tensor, jacobian: Tensor, dimension: int) -> tuple[float, float]:
    """Return fraction and uncertainty for coordinates u (n, m), latents z (n, d) and their derivatives (n, d, m)."""
    n_neighbours = NEIGHBOURS_PER_DIMENSION * dimension
    neighbours = torch.cdist(u, u).fill_diagonal_(math.inf).topk(max(EDGES, n_neighbours), largest=False).indices
    graph, neighbours = _Graph(neighbours[:, :EDGES]), neighbours[:, :n_neighbours]  # nearest first
    d, m = jacobian.shape[1:]
    if m == d == dimension:
        return graph.minority(_sign(jacobian)), 0.0
    parts = (neighbours, neighbours[:, ::2], neighbours[:, 1::2])  # all, and two halves
    whole, half, other = (_tangents(u, rows, dimension) for rows in parts)
    normal = z[:, :, None][:, :, : d - dimension]  # directions in which latents cannot move

    def orientation(tangents: Tensor) -> Tensor:
        return _sign(torch.cat([jacobian @ tangents, normal], 2))

    disagree = orientation(half) * orientation(other) * _sign(half.mT @ other) < 0
    found = [(graph.minority(orientation(whole) * graph.carried(whole)), float(disagree.double().mean()))]
    if m == d == dimension + 1:  # a closed surface has an outside, which maps to the outside
        outward = [_outward(u, rows) for rows in parts]
        whole, half, other = (
            _sign(jacobian - (jacobian @ normal) * normal.mT + z[:, :, None] * normal.mT) for normal in outward
        )
        found.append((graph.minority(whole), float((half * other < 0).double().mean())))
    return min(found, key=lambda each: each[::-1])  # the less uncertain


class _Graph:
    """Graph of samples and their neighbours."""

    def __init__(self, neighbours: Tensor) -> None:
        self.n, k = neighbours.shape
        self.start, self.end = np.repeat(np.arange(self.n), k), neighbours.reshape(-1).numpy()
        self.component = connected_components(self._matrix(np.ones(self.n * k)), directed=False)[1]

    def minority(self, orientation: Tensor) -> float:
        """Return the fraction of samples with the rarer orientation of their component."""
        counts = [np.bincount(self.component, weights=(sign * orientation > 0).numpy()) for sign in (1, -1)]
        return float(np.minimum(*counts).sum() / self.n)

    def carried(self, tangents: Tensor) -> Tensor:
        """Return the signs (n,) that give all tangent spaces (n, m, dimension) of a component one orientation."""
        overlap = torch.linalg.det(tangents[self.start].mT @ tangents[self.end]).numpy()
        tree = minimum_spanning_tree(self._matrix(2 - np.abs(overlap)))
        towards = self._matrix(np.sign(overlap))
        agree = (towards + towards.T).sign().tocsr()
        sign = np.ones(self.n)
        for root in np.unique(self.component, return_index=True)[1]:
            order, before = breadth_first_order(tree, root, directed=False)
            for node in order[1:]:
                sign[node] = sign[before[node]] * agree[node, before[node]]
        for _ in range(10):  # a vote of all neighbours corrects errors of the tree
            vote = agree @ sign
            sign = np.where(vote == 0, sign, np.sign(vote))
        return torch.as_tensor(sign)

    def _matrix(self, weights: np.ndarray) -> csr_array:
        places = (self.start.astype(np.int32), self.end.astype(np.int32))  # scipy 1.12 needs int32 here
        return coo_array((weights, places), shape=(self.n, self.n)).tocsr()


def _principal_coordinates(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return coordinates (n, m), of about unit variance but for noise, and the vector of each; (n_features, m)."""
    centred = x - x.mean(0)
    variance, direction = torch.linalg.eigh(centred.mT @ centred / len(x))
    variance, direction = variance.flip(0)[:MAX_DIRECTIONS], direction.flip(1)[:, :MAX_DIRECTIONS]
    varies = variance > 1e-6 * variance[0]
    scale = variance[varies].clamp_min(FLOOR * variance[0]).sqrt()
    return (centred @ direction[:, varies] / scale).cpu(), direction[:, varies] * scale


def _covariance(u: Tensor, rows: Tensor) -> Tensor:
    """Return the covariance (n, m, m) of each sample's neighbours (n, k)."""
    centred = (u[some] - u[some].mean(1, keepdim=True) for some in rows.split(256))
    return torch.cat([points.mT @ points / rows.shape[1] for points in centred])


def _tangents(u: Tensor, neighbours: Tensor, dimension: int) -> Tensor:
    """Return the leading principal directions of each sample's neighbours; (n, m, dimension)."""
    return torch.linalg.eigh(_covariance(u, neighbours)).eigenvectors[:, :, -dimension:]


def _outward(u: Tensor, neighbours: Tensor) -> Tensor:
    """Return outward unit normals of a surface around the origin, (n, m, 1): (C + λI)⁻¹ u, C of the neighbours."""
    covariance = _covariance(u, neighbours)
    spread = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None].clamp_min(1e-12)
    normal = torch.linalg.solve(covariance + RIDGE * spread * torch.eye(u.shape[1], dtype=u.dtype), u[:, :, None])
    return torch.nn.functional.normalize(normal, dim=1)


def _sign(matrices: Tensor) -> Tensor:
    """Return the signs of determinants; 0 where rounding decides."""
    singular = torch.linalg.svdvals(matrices)
    return torch.linalg.slogdet(matrices).sign * (singular[:, -1] > 1e-9 * singular[:, 0])
