r"""Alignment: carry a code from one value of a nuisance to another, with pairs, and say how many pairs it takes.

And, where there are none, `OneLaw`: codes of all values with one law, by small moves, so that nothing tells the value.

A blind code is recovered up to a bijection *per value*, :math:`\hat z = \Phi_e(z)`. Invariance is not unification: one
code may stand for one latent in one body and for another in another. What carries codes from value 1 to value 2 is
:math:`\Phi_2 \circ \Phi_1^{-1}`, and it takes pairs to learn it: codes of the same latent under both values.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils import check_array, check_consistent_length, check_scalar
from sklearn.utils.validation import check_is_fitted

Matrix = NDArray[np.floating[Any]]
RandomState = int | np.random.Generator | None

PAIRS = (0, 5, 10, 20, 50, 100, 200)
"""Numbers of pairs tried unless others are asked for, as far as there are enough."""

LEAST_SCORED = 20
"""Pairs that must be left to score on: an R² of fewer says little."""

N_KNOTS = 17
"""Quantiles that laws along a direction are compared at. More follow the accidents of the rows; chosen, with the number
of rounds, on a recording of robots of which nothing is reported."""

ROWS_PER_KNOT = 5
"""Codes of each value that a quantile takes."""


class PolynomialRidge(RegressorMixin, BaseEstimator):
    """Ridge regression on powers of standardised inputs, whose degree and penalty the given rows choose themselves.

    Each degree up to ``max_degree`` is fitted with each of 17 penalties, and what has the least leave-one-out error is
    kept; so few rows end with a linear map, and very few with nearly none.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 30)[:, None]
    >>> [PolynomialRidge(3).fit(x, y).degree_ for y in (x, x**2)]
    [1, 2]
    """

    def __init__(self, max_degree=1):
        self.max_degree = max_degree

    def fit(self, X, y) -> Self:
        """Choose and fit."""
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
        # A higher degree must earn its place by more than rounding.
        self.degree_ = 1 + next(i for i, error in enumerate(errors) if error <= 1.0001 * min(errors) + 1e-12)
        self.fitted_ = fits[self.degree_ - 1]
        return self

    def predict(self, X) -> np.ndarray:
        """Map rows."""
        return self.fitted_.predict(X)


@dataclass(frozen=True)
class Transfer:
    """Held-out R² of codes carried over with so many pairs: mean and standard deviation over draws of the pairs."""

    n_pairs: int
    r2: float
    spread: float

    def __str__(self) -> str:
        return f"{self.n_pairs:>5}  {self.r2:7.3f} ± {self.spread:.3f}"


@dataclass(frozen=True, eq=False)
class Alignment:
    """A map from the codes of one value to those of another, and what it is worth by the number of pairs.

    Attributes
    ----------
    curve : tuple of Transfer
        Held-out R² against the number of pairs; 0 takes codes as they are.
    n_available : int
        Pairs that were given; the map is fitted to all of them.
    regressor : estimator
        The map, fitted.
    """

    curve: tuple[Transfer, ...]
    n_available: int
    regressor: Any

    def transform(self, codes: ArrayLike) -> Matrix:
        """Carry codes of the first value over to the second; (n, d) → (n, d)."""
        return self.regressor.predict(check_array(codes, dtype=np.float64)).reshape(len(np.asarray(codes)), -1)

    def at(self, n_pairs: int) -> Transfer:
        """Return the point of the curve with so many pairs."""
        points = {point.n_pairs: point for point in self.curve}
        if n_pairs not in points:
            raise ValueError(f"at: the curve has {', '.join(map(str, points))} pairs, not {n_pairs}.")
        return points[n_pairs]

    def __str__(self) -> str:
        lines = [f"Transfer by number of pairs, of {self.n_available}", "pairs  held-out R²", *map(str, self.curve)]
        first, best = self.curve[0], max(self.curve, key=lambda point: point.r2)
        if first.n_pairs == 0:
            lines.append(
                f"Without pairs {first.r2:.3f}, with {best.n_pairs} {best.r2:.3f}: "
                + ("the codes agree as they are." if first.r2 > best.r2 - 0.05 else "invariance is not unification.")
            )
        return "\n".join(lines)


def align(
    source: ArrayLike,
    target: ArrayLike,
    *,
    n_pairs: Sequence[int] | None = None,
    max_degree: int = 1,
    n_repeats: int = 20,
    random_state: RandomState = None,
) -> Alignment:
    r"""Learn to carry codes from one value of a nuisance to another, and score it by the number of pairs.

    For each number k of pairs, k random ones are used to fit and all others to score: the share of the target codes'
    variance that is hit, over all columns, so that no rotation of the codes changes it; averaged over draws. With k = 0
    codes are taken as they are, which is what a *unified* code would allow. A guess of the mean scores 0, so anything
    below is worse than no code at all.

    Parameters
    ----------
    source, target : array (n, d)
        Codes of the same n latents under the first and under the second value of the nuisance, row by row.
    n_pairs : sequence of int, optional
        Numbers of pairs to try, each 0 or at least 2. By default `PAIRS`, as far as 20 are left to score on.
    max_degree : int
        1: an affine map (ridge regression). 2 or 3: powers are tried, too, and kept if the pairs that are used to fit
        say so by leave-one-out.
    n_repeats : int
        Draws of the pairs for each number.
    random_state : int, numpy.random.Generator or None
        Seed of the draws.

    Examples
    --------
    Codes that are the same but for a quarter turn are worth nothing without pairs, and all with a few:

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
        raise ValueError(
            f"align: source has {first.shape[1]} columns and target {second.shape[1]}; codes have one size."
        )
    sizes = _sizes(n_pairs, len(first))
    rng = np.random.default_rng(random_state)
    curve = tuple(_transfer(first, second, k, max_degree, n_repeats if k else 1, rng) for k in sizes)
    return Alignment(curve, len(first), PolynomialRidge(max_degree).fit(first, second))


class OneLaw(BaseEstimator):
    r"""Give codes of all values of a nuisance one law, of mean 0 and covariance I, by small moves and in closed form.

    Codes of each value are whitened, by the symmetric root of their covariance, which turns them least. Then, along
    random orthonormal axes, each value's quantiles are moved to the mean of those of all values: along one axis this is
    optimal transport to the barycentre, and the next round takes other axes (sliced transport; Pitié et al., 2007).
    Quantiles are joined by straight lines, and beyond the outermost all codes move alike, so that codes of other rows
    are carried, too. Maps are one-to-one and nearly straight, so what codes tell within a value stays. **One law is
    not one meaning**: codes that pairs tied before stay tied as well as they were, and no others.

    Parameters
    ----------
    n_rounds : int
        Sets of axes. 0 only whitens.
    random_state : int, numpy.random.Generator or None
        Seed of the axes.

    Attributes
    ----------
    n_features_in_ : int
        Number of codes.

    References
    ----------
    Pitié, Kokaram and Dahyot, Automated colour grading using colour distribution transfer, 2007.

    Examples
    --------
    Uniform and normal codes of one covariance are told apart by how far they reach; with one law they are not:

    >>> rng = np.random.default_rng(0)
    >>> codes = {"Panda": rng.uniform(-1, 1, size=(2_000, 2)), "UR5e": rng.normal(size=(2_000, 2))}
    >>> white, alike = (OneLaw(n, random_state=0).fit(codes).transform(codes) for n in (0, 80))
    >>> far = [{robot: (abs(z) > 1.7).mean() for robot, z in made.items()} for made in (white, alike)]
    >>> [abs(float(share["Panda"] - share["UR5e"])) < 0.02 for share in far]
    [False, True]
    """

    def __init__(self, n_rounds=80, *, random_state: RandomState = None):
        self.n_rounds = n_rounds
        self.random_state = random_state

    def fit(self, codes: Mapping[Any, ArrayLike], y: None = None) -> Self:
        """Find the moves; ``codes`` maps each value to its codes, (n, d)."""
        check_scalar(self.n_rounds, "n_rounds", numbers.Integral, min_val=0)
        here = self._read(codes)
        if len(here) < 2:
            raise ValueError("OneLaw: codes must be of two values of the nuisance at least: one has one law already.")
        sizes = {value: part.shape for value, part in here.items()}
        if len({d for _, d in sizes.values()}) > 1:
            raise ValueError(f"OneLaw: codes have one size, got columns { ({v: d for v, (_, d) in sizes.items()}) }.")
        for value, (n_samples, d) in sizes.items():
            least = max(ROWS_PER_KNOT * N_KNOTS, 2 * d)
            if n_samples < least:
                raise ValueError(
                    f"OneLaw: the law of {d} codes takes {least} rows of each value at least, got {n_samples} of "
                    f"{value}. Give more, or leave it out."
                )
            if not here[value].std(0).all():
                raise ValueError(f"OneLaw: a code of {value} is constant, so that it has no law. Leave that code out.")
        self.n_features_in_ = next(iter(sizes.values()))[1]
        self.white_ = {value: (part.mean(0), _inverse_root(np.cov(part.T))) for value, part in here.items()}
        here = {value: (part - self.white_[value][0]) @ self.white_[value][1] for value, part in here.items()}
        rng, shares = np.random.default_rng(self.random_state), (np.arange(N_KNOTS) + 0.5) / N_KNOTS
        self.axes_, self.knots_ = [], []
        for _ in range(self.n_rounds):
            axes = np.linalg.qr(rng.normal(size=(self.n_features_in_, self.n_features_in_)))[0]
            knots = {value: np.quantile(part @ axes, shares, axis=0) for value, part in here.items()}
            common = np.mean(list(knots.values()), axis=0)
            moves = {value: (own, common - own) for value, own in knots.items()}
            here = {value: _moved(part, axes, *moves[value]) for value, part in here.items()}
            self.axes_.append(axes)
            self.knots_.append(moves)
        return self

    def transform(self, codes: Mapping[Any, ArrayLike]) -> dict[Any, Matrix]:
        """Return codes of values that were there in ``fit``, with one law."""
        check_is_fitted(self)
        here = self._read(codes)
        if new := [value for value in here if value not in self.white_]:
            raise ValueError(
                f"OneLaw: there were no codes of {new[0]} in fit, but of {', '.join(map(str, self.white_))}."
            )
        for value, part in here.items():
            if part.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"OneLaw: there were {self.n_features_in_} codes in fit, got {part.shape[1]} of {value}."
                )
            centre, root = self.white_[value]
            made = (part - centre) @ root
            for axes, moves in zip(self.axes_, self.knots_, strict=True):
                made = _moved(made, axes, *moves[value])
            here[value] = made
        return here

    @staticmethod
    def _read(codes: Any) -> dict[Any, Matrix]:
        if not isinstance(codes, Mapping):
            raise ValueError(
                "OneLaw: codes must be a mapping from each value of the nuisance to its codes, got "
                f"{type(codes).__name__}."
            )
        return {v: check_array(part, dtype=np.float64, input_name=f"codes of {v}") for v, part in codes.items()}


def _inverse_root(covariance: np.ndarray) -> Matrix:
    values, vectors = np.linalg.eigh(np.atleast_2d(covariance))
    return (vectors / np.sqrt(np.maximum(values, 1e-12 * values.max()))) @ vectors.T


def _moved(codes: Matrix, axes: Matrix, knots: Matrix, moves: Matrix) -> Matrix:
    """Move codes along each axis by as much as quantiles move there; (n, d), (d, d), (knots, d) twice → (n, d)."""
    along = codes @ axes
    far = np.stack([np.interp(z, at, by) for z, at, by in zip(along.T, knots.T, moves.T, strict=True)], 1)
    return (along + far) @ axes.T


def _transfer(
    source: Matrix, target: Matrix, k: int, max_degree: int, n_repeats: int, rng: np.random.Generator
) -> Transfer:
    scores = []
    for _ in range(n_repeats):
        order = rng.permutation(len(source))
        used, held_out = order[:k], order[k:]
        carried = source[held_out]
        if k:
            carried = PolynomialRidge(max_degree).fit(source[used], target[used]).predict(carried)
        carried = carried.reshape(len(held_out), -1)
        scores.append(r2_score(target[held_out], carried, multioutput="variance_weighted"))
    return Transfer(k, float(np.mean(scores)), float(np.std(scores)))


def _sizes(n_pairs: Sequence[int] | None, n_available: int) -> tuple[int, ...]:
    most = n_available - LEAST_SCORED
    if most < 2:
        raise ValueError(
            f"align: {n_available} pairs are too few: two to fit and {LEAST_SCORED} to score on are the least. "
            "Pair more latents."
        )
    if n_pairs is None:
        return tuple(k for k in PAIRS if k <= most)
    for k in n_pairs:
        if k < 0 or k == 1 or k > most:
            raise ValueError(
                f"align: n_pairs must each be 0, or from 2 to {most} (of {n_available} pairs, {LEAST_SCORED} are kept "
                f"to score on), got {k}."
            )
    return tuple(n_pairs)
