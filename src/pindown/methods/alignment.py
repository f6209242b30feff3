r"""Alignment of the latents of two levels of a nuisance, such as two robots, with pairs or without.

An invariant embedding is recovered up to a bijection *per level*, :math:`\hat z = \Phi_e(z)`: the same point may stand
for different latents in two robots. `align` learns :math:`\Phi_2 \circ \Phi_1^{-1}` from pairs, latents of the same
event at both levels, and measures how many it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils import check_array, check_consistent_length

from pindown.errors import InputError
from pindown.metrics.arrays import Matrix, pooled_r2

PAIRS = (0, 5, 10, 20, 50, 100, 200)  # default numbers of pairs, as far as there are enough
MIN_SCORED = 20  # pairs that must be left for scoring: the R² of fewer varies too much


class PolynomialRidge(RegressorMixin, BaseEstimator):
    """Ridge regression on powers of standardised inputs, with degree and penalty chosen by leave-one-out error.

    Each degree up to ``max_degree`` is fitted with 17 penalties. With few samples a linear map is chosen, and with very
    few nearly a constant.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 30)[:, None]
    >>> [PolynomialRidge(3).fit(x, y).degree_ for y in (x, x**2)]
    [1, 2]
    """

    def __init__(self, max_degree: int = 1) -> None:
        self.max_degree = max_degree

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Choose degree and penalty, and fit."""
        fits = [
            make_pipeline(
                StandardScaler(),
                PolynomialFeatures(degree, include_bias=False),
                StandardScaler(),
                RidgeCV(np.logspace(-4, 4, 17)),
            ).fit(X, y)
            for degree in range(1, self.max_degree + 1)
        ]
        errors = [-fit[-1].best_score_ for fit in fits]
        # A higher degree must lower the error by more than rounding does.
        self.degree_ = 1 + next(i for i, error in enumerate(errors) if error <= 1.0001 * min(errors) + 1e-12)
        self.fitted_ = fits[self.degree_ - 1]
        return self

    def predict(self, X: ArrayLike) -> Matrix:
        """Return the predictions for some samples."""
        return self.fitted_.predict(X)


@dataclass(frozen=True)
class Transfer:
    """Held-out R² of latents mapped with so many pairs: mean and standard deviation over draws of the pairs."""

    n_pairs: int
    r2: float
    spread: float

    def __str__(self) -> str:
        return f"{self.n_pairs:>5}  {self.r2:7.3f} ± {self.spread:.3f}"


@dataclass(frozen=True, eq=False)
class Alignment:
    """A map from the latents of one level to those of another, and its held-out R² by the number of pairs.

    Attributes
    ----------
    curve : tuple of Transfer
        Held-out R² by the number of pairs; 0 compares latents as they are.
    n_available : int
        Number of pairs; the map is fitted to all of them.
    regressor : PolynomialRidge
        The fitted map.
    """

    curve: tuple[Transfer, ...]
    n_available: int
    regressor: PolynomialRidge

    def transform(self, latents: ArrayLike) -> Matrix:
        """Map latents of the first level to the second; (n, d) → (n, d)."""
        return self.regressor.predict(check_array(latents, dtype=np.float64)).reshape(len(np.asarray(latents)), -1)

    def at(self, n_pairs: int) -> Transfer:
        """Return the point of the curve with so many pairs."""
        points = {point.n_pairs: point for point in self.curve}
        if n_pairs not in points:
            known = ", ".join(map(str, points))
            raise InputError("n_pairs", f"`n_pairs` must be one of {known}, got {n_pairs}.")
        return points[n_pairs]

    def __str__(self) -> str:
        lines = [f"Transfer by number of pairs, of {self.n_available}", "pairs  held-out R²", *map(str, self.curve)]
        first, best = self.curve[0], max(self.curve, key=lambda point: point.r2)
        if first.n_pairs == 0:
            lines.append(
                f"Without pairs {first.r2:.3f}, with {best.n_pairs} {best.r2:.3f}: "
                + ("the latents agree as they are." if first.r2 > best.r2 - 0.05 else "invariance is not unification.")
            )
        return "\n".join(lines)


def align(
    source: ArrayLike,
    target: ArrayLike,
    *,
    n_pairs: Sequence[int] | None = None,
    max_degree: int = 1,
    n_repeats: int = 20,
    random_state: int | np.random.Generator | None = None,
) -> Alignment:
    """Learn a map from the latents of one level of a nuisance to those of another, and measure what pairs are worth.

    Parameters
    ----------
    source, target : array of shape (n, d)
        Latents at the two levels; row i of both is the same event.
    n_pairs : sequence of int, optional
        Numbers of pairs for the curve: 0, or at least 2. By default 0, 5, 10, 20, 50, 100 and 200, as far as there are
        enough.
    max_degree : int
        1 fits an affine map; more let leave-one-out error choose powers, too.
    n_repeats : int
        Draws of each number of pairs. All other pairs score.
    random_state : int, numpy.random.Generator or None
        Seed of the draws.

    Examples
    --------
    >>> source = np.random.default_rng(0).normal(size=(300, 2))
    >>> print(align(source, source @ [[0, 1], [-1, 0]], n_pairs=(0, 5, 50), random_state=0))
    Transfer by number of pairs, of 300
    pairs  held-out R²
        0   -1.009 ± 0.000
        5    1.000 ± 0.000
       50    1.000 ± 0.000
    Without pairs -1.009, with 50 1.000: invariance is not unification.
    """
    first, second = (
        check_array(a, dtype=np.float64, input_name=name) for a, name in ((source, "source"), (target, "target"))
    )
    check_consistent_length(first, second)
    if first.shape != second.shape:
        shapes = f"{first.shape[1]} and {second.shape[1]}"
        raise InputError("target", f"`source` and `target` must have the same number of latents, got {shapes}.")
    sizes = _sizes(n_pairs, len(first))
    rng = np.random.default_rng(random_state)
    curve = tuple(_transfer(first, second, k, max_degree, n_repeats if k else 1, rng) for k in sizes)
    return Alignment(curve, len(first), PolynomialRidge(max_degree).fit(first, second))


def _transfer(
    source: Matrix, target: Matrix, n_pairs: int, max_degree: int, n_repeats: int, rng: np.random.Generator
) -> Transfer:
    scores = []
    for _ in range(n_repeats):
        order = rng.permutation(len(source))
        fitted, held_out = order[:n_pairs], order[n_pairs:]
        mapped = source[held_out]
        if n_pairs:
            mapped = PolynomialRidge(max_degree).fit(source[fitted], target[fitted]).predict(mapped)
        scores.append(pooled_r2(target[held_out], mapped))
    return Transfer(n_pairs, float(np.mean(scores)), float(np.std(scores)))


def _sizes(n_pairs: Sequence[int] | None, n_available: int) -> tuple[int, ...]:
    most = n_available - MIN_SCORED
    if most < 2:
        raise InputError("source", f"`align` needs at least {MIN_SCORED + 2} pairs, got {n_available}.")
    if n_pairs is None:
        return tuple(k for k in PAIRS if k <= most)
    if wrong := [k for k in n_pairs if k < 0 or k == 1 or k > most]:
        raise InputError("n_pairs", f"`n_pairs` must be 0, or from 2 to {most}, got {wrong[0]}.")
    return tuple(n_pairs)
