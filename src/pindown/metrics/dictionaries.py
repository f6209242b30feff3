r"""Dictionaries: whether two sets of directions are the same, their codes fire at the same rows, and how sparsely.

A dictionary has an *atom* in each row, (k, m); codes have a column for each atom, (n, k), dense or as a scipy matrix.

============== ======================================================== =======================================
metric         blind to                                                 chance is the score of
============== ======================================================== =======================================
`mmcs`         order and length of atoms; atoms that are there twice    directions drawn at random
`pw_mcc`       order and length of atoms                                directions drawn at random
`firing_f1`    how strongly a code fires                                codes that fire as often, at other rows
`dead_fraction`   all but whether a code ever fires                        codes that fire by chance, as often
`fvu`          shifts of each column                                    1, that of the mean
============== ======================================================== =======================================

The sign of an atom matters, since codes of a gate are not negative; with ``signed=False`` it does not. Chance is high,
and grows with the number of atoms: two random dictionaries of 3,072 atoms in 384 dimensions have a `pw_mcc` of .17.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from pindown.metrics.reading import Matrix, RandomState, read_matrix, require_positive

ENTRIES = 1 << 22
"""Entries of drawn matrices of cosines over which a level of chance is averaged: the more atoms, the fewer draws."""


EXACT = 4_096
"""Atoms up to which all are matched at once."""


class AtomMatch(NamedTuple):
    """The atom of a dictionary that stands for each of another's (−1: none), and the cosine between the two."""

    partner: NDArray[np.int64]  # (k,)
    cosine: NDArray[np.float64]  # (k,)


def match_atoms(dictionary: ArrayLike, other: ArrayLike, *, signed: bool = True) -> AtomMatch:
    """Match atoms one to one, with the largest sum of cosines; an atom that is left over has partner −1 and cosine 0.

    Takes a moment for a thousand atoms. Of more than 4,096, those that are each other's nearest are matched first,
    round by round, until so many are left: the sum is then hardly below the largest.

    Parameters
    ----------
    dictionary, other : array of shape (k_hat, m), (k, m)
        Atoms in rows, of any length. Atoms of length 0 have a cosine of 0 with all.
    signed : bool
        Whether an atom and its negative are two atoms.

    Returns
    -------
    AtomMatch
        For each atom of ``other``.

    Examples
    --------
    >>> match_atoms([[0, 2], [3, 0], [1, 1]], [[1, 0], [0, 1]])
    AtomMatch(partner=array([1, 0]), cosine=array([1., 1.]))
    """
    first, second = _units("match_atoms", dictionary, other)
    partner, found = np.full(len(second), -1), np.zeros(len(second))
    left, open_ = np.arange(len(first)), np.arange(len(second))
    while min(len(left), len(open_)) and max(len(left), len(open_)) > EXACT:
        atom, of, cosine = _mutual(first[left], second[open_], signed)
        partner[open_[of]], found[open_[of]] = left[atom], cosine
        left, open_ = np.delete(left, atom), np.delete(open_, of)
    products = _signed(first[left] @ second[open_].T, signed)
    atom, of = linear_sum_assignment(products, maximize=True)
    partner[open_[of]], found[open_[of]] = left[atom], products[atom, of]
    return AtomMatch(partner, found)


def _mutual(first: Matrix, second: Matrix, signed: bool) -> tuple[NDArray[np.int64], NDArray[np.int64], Matrix]:
    """Return atoms that are each other's nearest, and their cosines, some rows at a time."""
    nearest, cosine = np.zeros(len(first), dtype=np.int64), np.zeros(len(first))
    best, whose = np.full(len(second), -np.inf), np.zeros(len(second), dtype=np.int64)
    for start in range(0, len(first), EXACT):
        products = _signed(first[start : start + EXACT] @ second.T, signed)
        rows = slice(start, start + len(products))
        nearest[rows] = products.argmax(1)
        cosine[rows] = products.max(1)
        better = products.max(0) > best
        whose[better] = start + products.argmax(0)[better]
        best = np.maximum(best, products.max(0))
    both = np.flatnonzero(whose[nearest] == np.arange(len(first)))
    return both, nearest[both], cosine[both]


def pw_mcc(dictionary: ArrayLike, other: ArrayLike, *, signed: bool = True) -> float:
    r"""Mean cosine of atoms that are matched one to one: of two seeds (pairwise MCC), or of a dictionary and the truth.

    .. math:: \frac1k \sum_j \cos(\hat d_{\pi(j)}, d_j), \qquad \pi \text{ the matching with the largest sum}

    An atom of ``other`` that is left over counts as 0, a surplus of ``dictionary`` does not count. See `match_atoms`
    for single atoms, and `by_frequency` for which of them agree. Chance: see `chance_pw_mcc`. After Song et al. (2025),
    *Mechanistic interpretability should prioritize feature consistency in SAEs*.

    Examples
    --------
    >>> pw_mcc([[0, 2], [3, 0]], [[1, 0], [0, 1]]), pw_mcc([[0, -2], [3, 0]], [[1, 0], [0, 1]])
    (1.0, 0.0)
    >>> pw_mcc([[0, -2], [3, 0]], [[1, 0], [0, 1]], signed=False)
    1.0
    """
    return float(match_atoms(dictionary, other, signed=signed).cosine.mean())


def chance_pw_mcc(
    k: int, m: int, k_hat: int | None = None, *, signed: bool = True, random_state: RandomState = 0
) -> float:
    """Return the mean `pw_mcc` of dictionaries whose atoms are drawn at random, evenly in all directions.

    Examples
    --------
    Of single atoms in the plane the cosine of an angle, which is 2/π = .64 without its sign; many find a partner that
    is nearer:

    >>> round(chance_pw_mcc(1, 2, signed=False), 1), round(chance_pw_mcc(256, 64), 2)
    (0.6, 0.33)
    """
    return _by_chance("chance_pw_mcc", pw_mcc, k, m, k_hat, signed, random_state)


def mmcs(dictionary: ArrayLike, other: ArrayLike, *, signed: bool = True) -> float:
    r"""Mean over atoms of ``other`` of the largest cosine with any atom of ``dictionary`` (Sharkey et al., 2022).

    .. math:: \frac1k \sum_j \max_i \cos(\hat d_i, d_j)

    One atom may stand for several, so that a dictionary that merges atoms scores more than by `pw_mcc`. Chance: see
    `chance_mmcs`.

    Examples
    --------
    Halfway between two atoms, and for both of them:

    >>> round(mmcs([[1, 1]], [[1, 0], [0, 1]]), 3), round(pw_mcc([[1, 1]], [[1, 0], [0, 1]]), 3)
    (0.707, 0.354)
    """
    return float(_cosines("mmcs", dictionary, other, signed).max(axis=0).mean())


def chance_mmcs(
    k: int, m: int, k_hat: int | None = None, *, signed: bool = True, random_state: RandomState = 0
) -> float:
    """Return the mean `mmcs` of dictionaries whose atoms are drawn at random, evenly in all directions.

    Examples
    --------
    >>> chance_mmcs(64, 8) > chance_pw_mcc(64, 8) > chance_pw_mcc(64, 64)
    True
    """
    return _by_chance("chance_mmcs", mmcs, k, m, k_hat, signed, random_state)


class FiringBand(NamedTuple):
    """The mean of a score over atoms whose codes fire about equally often."""

    low: float  # shares of rows
    high: float
    n: int
    mean: float


def by_frequency(values: ArrayLike, frequency: ArrayLike, *, n_bands: int = 5) -> tuple[FiringBand, ...]:
    """Average a score of atoms within bands of how often they fire, as many atoms in each; silent ones by themselves.

    Rare atoms are the ones that seeds disagree about, and an average over all hides it.

    Parameters
    ----------
    values : array of shape (k,)
        Such as ``match_atoms(…).cosine``.
    frequency : array of shape (k,)
        Share of rows at which each fires: see `firing`.
    n_bands : int
        Number of bands of those that fire.

    Examples
    --------
    >>> by_frequency([0.0, 0.2, 0.4, 1.0, 1.0], [0, 0.01, 0.02, 0.2, 0.4], n_bands=2)[-1]
    FiringBand(low=0.2, high=0.4, n=2, mean=1.0)
    """
    score, often = (np.asarray(part, dtype=np.float64) for part in (values, frequency))
    if score.ndim != 1 or score.shape != often.shape:
        raise ValueError(
            f"by_frequency: values and frequency must have one number for each atom, got shapes {score.shape} and "
            f"{often.shape}."
        )
    require_positive("by_frequency", n_bands=n_bands)
    order = np.argsort(often, kind="stable")
    silent, fires = order[often[order] <= 0], order[often[order] > 0]
    parts = [part for part in (silent, *np.array_split(fires, n_bands)) if len(part)]
    return tuple(
        FiringBand(float(often[part[0]]), float(often[part[-1]]), len(part), float(score[part].mean()))
        for part in parts
    )


# ---- parts ----------------------------------------------------------------------------------------------------------


def _cosines(caller: str, dictionary: Any, other: Any, signed: bool) -> Matrix:
    """Return all cosines, or their absolute values; (k_hat, k)."""
    first, second = _units(caller, dictionary, other)
    return _signed(first @ second.T, signed)


def _signed(cosines: Matrix, signed: bool) -> Matrix:
    return cosines if signed else np.abs(cosines)


def _units(caller: str, dictionary: Any, other: Any) -> tuple[Matrix, Matrix]:
    """Return the atoms of both, of unit length."""
    first, second = read_matrix(caller, "dictionary", dictionary), read_matrix(caller, "other", other)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"{caller}: atoms of dictionary have {first.shape[1]} entries, those of other {second.shape[1]}, but both "
            "must live in the same space. Atoms are rows: was one of them transposed?"
        )
    return _unit(first), _unit(second)


def _unit(atoms: Matrix) -> Matrix:
    length = np.linalg.norm(atoms, axis=1, keepdims=True)
    return atoms / np.where(length > 0, length, 1)


def _by_chance(
    caller: str,
    metric: Callable[..., float],
    k: int,
    m: int,
    k_hat: int | None,
    signed: bool,
    random_state: RandomState,
) -> float:
    k_hat = k if k_hat is None else k_hat
    require_positive(caller, k=k, m=m, k_hat=k_hat)
    rng = np.random.default_rng(random_state)
    n_draws = max(1, min(200, ENTRIES // (k * k_hat)))
    drawn = ((rng.normal(size=(k_hat, m)), rng.normal(size=(k, m))) for _ in range(n_draws))
    return float(np.mean([metric(a, b, signed=signed) for a, b in drawn]))
