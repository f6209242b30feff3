"""What the law of codes leaves open: which rotations a decoder and its codes do not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

Kind = Literal["Gaussian", "round", "neither"]

TOLERATED, BY_CHANCE = 0.06, 0.6
"""Distance between two laws on a line, in standard deviations, up to which they count as the same: codes of a trained
autoencoder are never quite those of its prior; and, over the root of their number, what few codes add to it by chance.
A uniform law is .16 away from a Gaussian one, that of Laplace .15."""

ROUND = 1.5
"""How many times more codes may vary along one direction than along another and still be as good as round."""

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
    tolerated : float
        Up to which distance laws count as the same.
    """

    kind: Kind
    bent: float
    turned: float
    moved: float
    spread: float
    tolerated: float

    @property
    def keeps_the_law(self) -> bool:
        """Whether the new codes have the law of the old ones."""
        return self.kind != "neither" or (self.moved <= self.tolerated and self.spread <= ROUND)

    def __str__(self) -> str:
        if self.kind == "Gaussian":
            return f"the codes are Gaussian (no axis is further than {self.bent:.2f} from it): all rotations are free."
        if self.kind == "round":
            return (
                f"the codes have one law along all axes ({self.turned:.2f} apart), but none that is Gaussian "
                f"({self.bent:.2f} away): all rotations are free, and their latents are not independent."
            )
        if self.spread > ROUND:
            return (
                f"the codes vary {self.spread:.1f} times more along one direction than along another, so that a "
                "rotation changes their law. Whiten them, with a decoder that undoes it."
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
    kind: Kind = "neither"
    tolerated = TOLERATED + BY_CHANCE / len(codes) ** 0.5
    if spread <= ROUND and turned <= tolerated:
        kind = "Gaussian" if bent <= tolerated else "round"
    return Freedom(kind, bent, turned, _apart(old, new), spread, tolerated)


def _quantiles(codes: Matrix) -> Matrix:
    """Return quantiles of each column, of unit variance; (d, levels)."""
    levels = np.quantile(codes, (np.arange(N_LEVELS) + 0.5) / N_LEVELS, axis=0).T
    return levels / np.maximum(codes.std(0)[:, None], 1e-300)


def _apart(old: Matrix, new: Matrix) -> float:
    """Return the distance of laws along axes that go together best, either way round; the largest of them."""
    ways = np.stack([new, -new[:, ::-1]])  # (2, d, levels)
    distance = np.abs(old[:, None, None] - ways).mean(3).min(1)  # (d, d)
    return float(distance[linear_sum_assignment(distance)].max())
