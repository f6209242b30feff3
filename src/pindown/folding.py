"""Is an encoder folded? What its codes show of it, without ground truth.

A random perceptron lays its inputs on top of each other, like a crumpled sheet. On one side of a crease the map keeps
orientation, on the other it reverses it: the determinant of the Jacobian has both signs. A reflection reverses
*everything* and folds nothing, so what counts is the share of the rarer sign.

Only directions along the data count, since what an encoder does off the data means nothing. Data that fill their space
have all directions. Otherwise tangent spaces are estimated from neighbours, and again from each half of them: what
the halves disagree on is the doubt.

A loss may also iron a fold flat, and give the direction up: then the codes hardly vary along it.
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

from pindown.spaces import Reals, Space, Sphere

Verdict = Literal["folded", "flat", "unfolded", "undecided"]

THRESHOLD = 0.1
"""Share of samples turned over, beyond doubt, above which an encoder counts as folded."""

FLAT = 1e-3
"""Variance of the codes along a direction, relative to the largest, below which it counts as flat."""

MIN_ROWS, MAX_ROWS = 200, 2_000
"""Fewer samples say too little; more say no more."""

EDGES = 12
"""Neighbours to which a sample is connected: with eight, a thousand on a circle fall apart in one draw of six."""

NEIGHBOURS_PER_DIMENSION = 10
"""Neighbours from which a tangent space is estimated."""

MAX_DIRECTIONS = 64
"""Principal directions of the data that are looked at."""

FLOOR = 0.1
"""Least variance, relative to the largest, that is scaled up to that of the other directions."""

RIDGE = 0.1
"""Weight of the radial direction in the normal of a closed surface, relative to the spread of the neighbours."""

STEP = 1e-4
"""Half the length of the differences that stand for derivatives, in standard deviations of the data."""


@dataclass(frozen=True)
class Folding:
    """What was seen of an encoder's folds.

    Parameters
    ----------
    share : float
        Share of samples at which the encoder has the rarer orientation: 0 for an injective map, about 1/2 for one that
        folds the data in two, NaN if it cannot be seen.
    doubt : float
        Share of samples on whose orientation two estimates of the tangent space disagree.
    flat : int
        Directions in which the codes hardly vary.
    n_samples : int
        Samples looked at.

    Examples
    --------
    >>> print(Folding(share=0.43, doubt=0.02, flat=0, n_samples=2_000))
    folded: 43 ± 2 % of 2000 samples are turned over, no direction of the codes is flat
    >>> Folding(share=0.2, doubt=0.1, flat=0, n_samples=2_000).verdict
    'undecided'
    """

    share: float
    doubt: float
    flat: int
    n_samples: int

    @property
    def verdict(self) -> Verdict:
        """Flat; or folded if the share is above the threshold by twice the doubt, unfolded if it is not above it."""
        if self.flat:  # orientations along a flat direction are those of noise
            return "flat"
        if self.share - 2 * self.doubt > THRESHOLD:
            return "folded"
        return "unfolded" if self.share <= THRESHOLD else "undecided"

    def __str__(self) -> str:
        turned = f"{100 * self.share:.0f} ± {100 * self.doubt:.0f} % of {self.n_samples} samples are turned over"
        if math.isnan(self.share):
            turned = f"{self.n_samples} samples do not show what is turned over"
        flat = {0: "no direction of the codes is", 1: "1 direction of the codes is"}
        return f"{self.verdict}: {turned}, {flat.get(self.flat, f'{self.flat} directions of the codes are')} flat"


def look_for_folds(encode: Callable[[Tensor], Tensor], x: Tensor, space: Space = Reals()) -> Folding:  # noqa: B008
    """Return how much of the data an encoder turns over against the rest, and in how many directions it is flat.

    Parameters
    ----------
    encode
        Maps (n, n_features) to codes (n, d), row by row, in float64.
    x
        Observations of shape (n, n_features); at most :data:`MAX_ROWS` of them are used.
    space
        The space of the codes: on the sphere they have one dimension less than columns.

    Notes
    -----
    Blind to coverings that reverse nothing, such as twice the angle on a circle, and to sheets of data that lie apart:
    whether two clusters share their codes is not asked.

    Orientations of tangent spaces are carried along the spanning tree of the most parallel ones [1]_.

    References
    ----------
    .. [1] Hoppe et al., Surface reconstruction from unorganized points, SIGGRAPH 1992.

    Examples
    --------
    >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    >>> print(look_for_folds(lambda x: x.flip(1), x))  # a reflection of everything
    unfolded: 0 ± 0 % of 500 samples are turned over, no direction of the codes is flat
    >>> look_for_folds(lambda x: torch.stack([x[:, 0].abs(), x[:, 1]], 1), x).verdict
    'folded'
    >>> look_for_folds(lambda x: x * torch.tensor([1, 1e-3]), x).verdict
    'flat'
    """
    if len(x) > MAX_ROWS:
        x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:MAX_ROWS].to(x.device)]
    x = x.double()
    u, axes = _principal_coordinates(x)
    with torch.no_grad():
        z = encode(x).cpu()
        # By differences, which any module can do; in float64 they lose nothing that matters.
        slopes = [(encode(x + STEP * axis) - encode(x - STEP * axis)).cpu() / (2 * STEP) for axis in axes.T]
    dimension = z.shape[1] - isinstance(space, Sphere)
    enough = len(x) >= max(MIN_ROWS, 2 * NEIGHBOURS_PER_DIMENSION * dimension)
    if not (enough and 0 < dimension <= len(slopes) and all(slope.isfinite().all() for slope in slopes)):
        return Folding(math.nan, math.nan, 0, len(x))
    if (flat := _flat(z, dimension)) is None:
        return Folding(math.nan, math.nan, 0, len(x))
    share, doubt = _share_and_doubt(u, z, torch.stack(slopes, 2), dimension)
    return Folding(share, doubt, flat, len(x))


def look_for_flat_directions(z: Tensor, space: Space = Reals()) -> Folding:  # noqa: B008
    """Return in how many directions codes (n, d) hardly vary, of data too wide to say what is turned over.

    Pictures of thousands of pixels have no neighbours near enough to show in which directions they vary, and each
    direction would take a pass through their network.

    Examples
    --------
    >>> z = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    >>> print(look_for_flat_directions(z * torch.tensor([1, 1e-3])))
    flat: 500 samples do not show what is turned over, 1 direction of the codes is flat
    """
    return Folding(math.nan, math.nan, _flat(z.double(), z.shape[1] - isinstance(space, Sphere)) or 0, len(z))


def _flat(z: Tensor, dimension: int) -> int | None:
    """Return in how many directions codes hardly vary; None if all are one."""
    spread = torch.linalg.eigvalsh(torch.cov(z.T, correction=0).reshape(z.shape[1], -1)).flip(0)[:dimension]
    if spread[0] <= 1e-12 * z.square().mean():
        return None
    return int((spread < FLAT * spread[0]).sum())


def _share_and_doubt(u: Tensor, z: Tensor, jacobian: Tensor, dimension: int) -> tuple[float, float]:
    """Return them for coordinates u (n, m), codes z (n, d) and their derivatives (n, d, m)."""
    n_neighbours = NEIGHBOURS_PER_DIMENSION * dimension
    neighbours = _nearest(u, max(EDGES, n_neighbours))  # (n, k), nearest first
    graph = _Graph(neighbours[:, :EDGES])
    d, m = jacobian.shape[1:]
    if m == d == dimension:
        return graph.minority(_sign(jacobian)), 0.0
    neighbours = neighbours[:, :n_neighbours]
    seen = [_through_tangents(u, z[:, :, None][:, :, : d - dimension], jacobian, neighbours, graph)]
    if m == d == dimension + 1:  # a closed surface, which has an outside
        seen.append(_through_normals(u, z, jacobian, neighbours, graph))
    return min(seen, key=lambda share_and_doubt: share_and_doubt[::-1])  # the less doubtful


def _through_tangents(
    u: Tensor, normal: Tensor, jacobian: Tensor, neighbours: Tensor, graph: _Graph
) -> tuple[float, float]:
    """Return share and doubt as seen along estimated tangent spaces; `normal` are directions that codes cannot go."""
    dimension = jacobian.shape[1] - normal.shape[2]
    whole, half, other = (_tangents(u, rows, dimension) for rows in _with_halves(neighbours))

    def orientation(tangents: Tensor) -> Tensor:
        return _sign(torch.cat([jacobian @ tangents, normal], 2))

    doubt = (orientation(half) * orientation(other) * _sign(half.mT @ other) < 0).double().mean()
    return graph.minority(orientation(whole) * graph.carried(whole)), float(doubt)


def _through_normals(u: Tensor, z: Tensor, jacobian: Tensor, neighbours: Tensor, graph: _Graph) -> tuple[float, float]:
    """Return share and doubt as seen from the middle of a closed surface of one dimension less than its space."""

    def orientation(rows: Tensor) -> Tensor:
        normal = _outward(u, rows)
        along = jacobian - (jacobian @ normal) * normal.mT
        return _sign(along + z[:, :, None] * normal.mT)  # outside goes to outside

    whole, half, other = (orientation(rows) for rows in _with_halves(neighbours))
    return graph.minority(whole), float((half * other < 0).double().mean())


class _Graph:
    """Samples and their neighbours."""

    def __init__(self, neighbours: Tensor) -> None:
        self.n, k = neighbours.shape
        self.start, self.end = np.repeat(np.arange(self.n), k), neighbours.reshape(-1).numpy()
        self.component = connected_components(self._matrix(np.ones(self.n * k)), directed=False)[1]

    def minority(self, orientation: Tensor) -> float:
        """Return the share of samples with the rarer orientation of their component."""
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
        for _ in range(10):  # where the tree went wrong, the neighbours together know better
            vote = agree @ sign
            sign = np.where(vote == 0, sign, np.sign(vote))
        return torch.as_tensor(sign)

    def _matrix(self, weights: np.ndarray) -> csr_array:
        places = (self.start.astype(np.int32), self.end.astype(np.int32))  # scipy 1.12 takes no others to span a tree
        return coo_array((weights, places), shape=(self.n, self.n)).tocsr()


def _principal_coordinates(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return coordinates (n, m) with about unit variance, and what a unit of each is in x; (n_features, m).

    Directions of little variance stay small, so that noise does not decide who is whose neighbour.
    """
    centred = x - x.mean(0)
    variance, direction = torch.linalg.eigh(centred.mT @ centred / len(x))
    variance, direction = variance.flip(0)[:MAX_DIRECTIONS], direction.flip(1)[:, :MAX_DIRECTIONS]
    varies = variance > 1e-6 * variance[0]
    scale = variance[varies].clamp_min(FLOOR * variance[0]).sqrt()
    return (centred @ direction[:, varies] / scale).cpu(), direction[:, varies] * scale


def _nearest(u: Tensor, k: int) -> Tensor:
    """Return the k nearest other rows of each row, nearest first; (n, k)."""
    return torch.cdist(u, u).fill_diagonal_(math.inf).topk(k, largest=False).indices


def _with_halves(neighbours: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return neighbours, neighbours[:, ::2], neighbours[:, 1::2]


def _covariance(u: Tensor, rows: Tensor) -> Tensor:
    """Return the covariance (n, m, m) of each sample's neighbours (n, k)."""
    centred = (u[some] - u[some].mean(1, keepdim=True) for some in rows.split(256))
    return torch.cat([points.mT @ points / rows.shape[1] for points in centred])


def _tangents(u: Tensor, neighbours: Tensor, dimension: int) -> Tensor:
    """Return orthonormal directions in which each sample's neighbours spread most; (n, m, dimension)."""
    return torch.linalg.eigh(_covariance(u, neighbours)).eigenvectors[:, :, -dimension:]


def _outward(u: Tensor, neighbours: Tensor) -> Tensor:
    """Return unit normals of a surface around the origin (n, m, 1): away from it, and where neighbours spread least.

    The solution of (C + λI) v = u, C the neighbours' covariance: radial where C says nothing, as it does in many
    dimensions, where even the nearest are far.
    """
    covariance = _covariance(u, neighbours)
    spread = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None].clamp_min(1e-12)
    normal = torch.linalg.solve(covariance + RIDGE * spread * torch.eye(u.shape[1], dtype=u.dtype), u[:, :, None])
    return torch.nn.functional.normalize(normal, dim=1)


def _sign(matrices: Tensor) -> Tensor:
    """Return the signs of determinants; 0 where rounding decides."""
    singular = torch.linalg.svdvals(matrices)
    return torch.linalg.slogdet(matrices).sign * (singular[:, -1] > 1e-9 * singular[:, 0])
