"""What the law of codes leaves open: which rotations a decoder and its codes do not see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

Kind = Literal["Gaussian", "round", "neither"]

TOLERATED, BY_CHANCE = 0.03, 1.2
"""Distance between two laws on a line, in standard deviations, up to which they count as the same: codes of a trained
autoencoder are never quite those of its prior; and, over the root of their number, what few codes add to it by chance.
A uniform law is .16 away from a Gaussian one, that of Laplace .15, Student's with 8 degrees of freedom .06."""

ROUND = 1.1
"""How many times more codes may vary along one direction than along another and still be as good as round, beside what
few codes make of it: codes of which two correlate by .1."""

DEPENDENT, BY_CHANCE_DEPENDENT = 0.1, 4.0
"""Correlation of two new codes, or of their sizes, up to which they count as independent; and, over the root of their
number, what the largest of many may be by chance."""

N_TURNS, N_LEVELS = 16, 400
"""Random rotations under which the law is looked at, and quantiles at which laws are compared."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Freedom:
    """Which rotations of codes their law leaves open.

    Attributes
    ----------
    kind : {"Gaussian", "round", "neither"}
        Gaussian with one variance in all directions, so that latents stay independent under any rotation; the same in
        all directions, but not Gaussian; or neither.
    bent : float
        Largest distance of the law along an axis, old or new, from a Gaussian one, in standard deviations.
    turned : float
        The same distance between laws along old axes and along those of random rotations.
    moved : float
        The same between old axes and new ones.
    spread : float
        How many times more codes vary along one direction than along another.
    dependent : float
        Largest correlation of two new codes, or of their absolute values.
    n, d : int
        How many codes there were, of how many columns.
    """

    kind: Kind
    bent: float
    turned: float
    moved: float
    spread: float
    dependent: float
    n: int
    d: int

    @property
    def tolerated(self) -> float:
        """Up to which distance laws count as the same."""
        return TOLERATED + BY_CHANCE / self.n**0.5

    @property
    def is_round(self) -> bool:
        """Whether codes vary as much along all directions, but for what so few of them leave open."""
        few = (self.d / self.n) ** 0.5
        return few < 1 and self.spread <= ROUND * (1 + few) / (1 - few)

    @property
    def is_independent(self) -> bool:
        """Whether new codes tell nothing of each other, as far as correlations of them and of their sizes show."""
        return self.dependent <= DEPENDENT + BY_CHANCE_DEPENDENT / self.n**0.5

    @property
    def keeps_the_law(self) -> bool:
        """Whether the new codes have the law of the old ones."""
        return self.kind != "neither" or (self.moved <= self.tolerated and self.is_round)

    def __str__(self) -> str:
        if self.kind == "Gaussian":
            return f"the codes are Gaussian (no axis is further than {self.bent:.2f} from it): all rotations are free."
        if self.kind == "round":
            return (
                f"the codes have one law along all axes ({self.turned:.2f} apart), but none that is Gaussian "
                f"({self.bent:.2f} away): all rotations are free, and their latents are not independent."
            )
        if not self.is_round:
            return (
                f"the codes vary {min(self.spread, 999):.2f} times as much along one direction as along another, so "
                "that a rotation changes their law. Whiten them, with a decoder that undoes it."
            )
        if self.bent <= self.tolerated and not self.is_independent:
            return (
                f"two of the new codes depend on each other (they, or their sizes, correlate by {self.dependent:.2f}): "
                "latents that do are not independent, and only what keeps their law is free."
            )
        kept = "keeps it" if self.keeps_the_law else "does not keep it"
        return (
            f"the codes are not Gaussian ({self.bent:.2f} away along an axis; a uniform law is .16): only what "
            "keeps their law is free, such as order and signs of independent latents. This rotation "
            f"{kept} ({self.moved:.2f})."
        )


def freedom(codes: Matrix, rotation: Matrix, *, random_state: int = 0) -> Freedom:
    r"""Look at which rotations the law of codes leaves open.

    Laws along single axes are compared by their quantiles, :math:`W_1 = \int |F^{-1}(p) - G^{-1}(p)| \, dp`, in
    standard deviations; those of old and new axes in the order in which they go together best.

    Parameters
    ----------
    codes
        (n, d).
    rotation
        Orthogonal, (d, d): the new codes are ``codes @ rotation``.
    random_state
        Seed of the random rotations.

    Examples
    --------
    >>> rng, turn = np.random.default_rng(0), np.array([[0.8, -0.6], [0.6, 0.8]])
    >>> [freedom(codes, turn).kind for codes in (rng.normal(size=(5_000, 2)), rng.uniform(size=(5_000, 2)))]
    ['Gaussian', 'neither']
    """
    centred = codes - codes.mean(0)
    variances = np.linalg.eigvalsh(centred.T @ centred / len(centred))
    spread = float(np.sqrt(variances[-1] / max(variances[0], 1e-300)))
    turns = np.linalg.qr(np.random.default_rng(random_state).normal(size=(N_TURNS, *rotation.shape)))[0]
    old, new = _quantiles(centred), _quantiles(centred @ rotation)
    levels = norm.ppf((np.arange(N_LEVELS) + 0.5) / N_LEVELS)
    bent = max(float(np.abs(each - levels).mean(1).max()) for each in (old, new))
    turned = max(_apart(old, _quantiles(centred @ turn)) for turn in turns)
    found = Freedom("neither", bent, turned, _apart(old, new), spread, _dependent(centred @ rotation), *codes.shape)
    if not found.is_round or turned > found.tolerated:
        return found
    if bent > found.tolerated:
        return replace(found, kind="round")
    return replace(found, kind="Gaussian") if found.is_independent else found


def _dependent(codes: Matrix) -> float:
    """Return the largest correlation of two columns, or of their absolute values."""
    if codes.shape[1] < 2:
        return 0.0
    with np.errstate(invalid="ignore"):
        both = np.stack([np.corrcoef(some.T) for some in (codes, np.abs(codes))])
    return float(np.nan_to_num(np.abs(both[:, ~np.eye(codes.shape[1], dtype=bool)])).max())


def _quantiles(codes: Matrix) -> Matrix:
    """Return quantiles of each column, of unit variance; (d, levels)."""
    levels = np.quantile(codes, (np.arange(N_LEVELS) + 0.5) / N_LEVELS, axis=0).T
    return levels / np.maximum(codes.std(0)[:, None], 1e-300)


def _apart(old: Matrix, new: Matrix) -> float:
    """Return the distance of laws along axes that go together best, either way round; the largest of them."""
    ways = np.stack([new, -new[:, ::-1]])  # (2, d, levels)
    distance = np.abs(old[:, None, None] - ways).mean(3).min(1)  # (d, d)
    return float(distance[linear_sum_assignment(distance)].max())
