"""Are codes spread as a theorem assumes? Evenly on the sphere, or within a convex body."""

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from pindown import theory
from pindown.auditing.checks.arrays import N_RESAMPLES, Matrix, on_sphere, read, whitened
from pindown.auditing.checks.verdict import Estimate, Verdict, below, estimate

LOPSIDED = 0.2
"""Length of the mean of unit codes, or relative excess of their second moment in a direction, that is not uniform."""

PEAKED = 0.5
"""Slope of log density within a body, in units of a normal law's: 0 is uniform, 1 is normal."""

_MARGINAL = {
    "holds": "",
    "undecided": " Give more samples.",
    "fails": " Contrast(any_marginal=True), the default, makes up for it; without it the theorem does not speak.",
}


def uniform_on_sphere(codes: Any, *, random_state: int = 0) -> Verdict:
    r"""Say whether unit codes are spread evenly, by their first two moments.

    .. math:: \max\bigl( \lVert \mathrm E z \rVert,\; \lVert d\, \mathrm E z z^\top - I \rVert_2 \bigr)

    less what chance gives.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> [uniform_on_sphere(z + shift).outcome for shift in (0, [1, 0, 0])]
    ['holds', 'fails']
    """
    unit = on_sphere(read("codes", codes))
    rng = np.random.default_rng(random_state)
    n, d = unit.shape
    resampled = estimate([_lopsidedness(unit[rng.integers(n, size=n)]) for _ in range(N_RESAMPLES)])
    # What chance gives to a uniform sample of this size is taken off, and the interval moved along.
    chance = float(np.mean([_lopsidedness(on_sphere(rng.normal(size=(n, d)))) for _ in range(N_RESAMPLES)]))
    found = max(0.0, _lopsidedness(unit) ** 2 - chance**2) ** 0.5
    off = Estimate(*(max(0.0, found + end - resampled.value) for end in resampled))
    outcome = below(off, LOPSIDED)
    why = f"their moments are {off} from those of the uniform law."
    return Verdict(theory.UNIFORM_SPHERE, off.value, LOPSIDED, outcome, why + _MARGINAL[outcome])


def _lopsidedness(unit: Matrix) -> float:
    moments = np.linalg.eigvalsh(unit.shape[1] * unit.T @ unit / len(unit))
    return float(max(np.linalg.norm(unit.mean(0)), np.abs(moments - 1).max()))


def uniform_on_body(codes: Any, *, random_state: int = 0) -> Verdict:
    r"""Say whether codes fill a convex body evenly: whether their density falls off away from the middle.

    With r the radius of whitened codes, the statistic is the slope of log density against :math:`-r^2/2` among the
    inner half of them: 0 for a uniform law, 1 for a normal one. Densities come from distances to the tenth neighbour.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> [uniform_on_body(z).outcome for z in (rng.uniform(size=(2_000, 3)), rng.normal(size=(2_000, 3)))]
    ['holds', 'fails']
    """
    white = whitened(read("codes", codes))
    d = white.shape[1]
    distance = cKDTree(white).query(white, k=min(11, len(white)))[0][:, -1]
    radius = (white**2).sum(1) / 2
    inner = radius <= np.median(radius)
    fall, radius = d * np.log(np.maximum(distance[inner], 1e-12)), radius[inner]
    rng = np.random.default_rng(random_state)
    resampled = (rng.integers(len(fall), size=len(fall)) for _ in range(N_RESAMPLES))
    slope = estimate([np.polyfit(radius[some], fall[some], 1)[0] for some in resampled])
    outcome = below(slope, PEAKED)
    why = f"log density falls {slope} times as fast as that of a normal law."
    return Verdict(theory.UNIFORM_CONVEX_BODY, slope.value, PEAKED, outcome, why + _MARGINAL[outcome])
