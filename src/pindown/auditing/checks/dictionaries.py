"""Is a sparse dictionary what theorems speak of? Rows, atoms and codes, on data that the fit has not seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pindown import theory
from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.conditions import CONDITIONED_ATOMS, DISTINCT_ATOMS
from pindown.auditing.checks.verdict import N_RESAMPLES, Estimate, Verdict, above, below, estimate
from pindown.metrics.dictionaries import firing, l0, matching_pursuit
from pindown.theory import Theorem

REST, NO_REST = 0.25, 0.1
"""Share of variance that a search for codes may leave, before rows are no sparse combination; and for sure below."""

ALIKE, NOT_ALIKE = 0.25, 0.12
"""How much larger the cosine of an atom with its nearest may be than that of a random direction; and for sure below."""

SINGULAR, REGULAR = 0.1, 0.3
"""Least singular value of atoms that fire together, at which they are as good as dependent; and surely not above."""

TOGETHER, COUNTED = 0.95, 20
"""Share of its rows at which a code fires beside another to be bound to it; and rows from which that is asked."""

BOUND, FREE = 0.25, 0.1
"""Share of codes that are bound to another, at which codes are not scattered; and for sure below."""

SAME_CODES, OTHER_CODES = 0.9, 0.7
"""Overlap of an encoder's codes with those of a search, from which on they are the same; and surely not below."""

SEARCHED, NEAR = 500, 0.9
"""Rows that are searched for codes; and the quantile of atoms whose nearest neighbour counts."""


def samples_for_atoms(n_samples: int, d: int, m: int) -> Verdict:
    """Compare the number of rows with what the theorems on dictionaries count, up to their constant.

    It fails at half of that or less.

    Examples
    --------
    >>> [samples_for_atoms(n, d=256, m=64).outcome for n in (3_500, 5_000, 8_000)]
    ['fails', 'undecided', 'holds']
    """
    theorem = theorem_for(d, m)
    assert theorem.diversity is not None
    needed = theorem.diversity.needed(d) if d <= m else theorem.diversity.needed(d, m)
    exact = Estimate(n_samples, n_samples, n_samples)
    outcome = above(exact, needed - 0.5, unless_below=needed / 2 + 0.5)
    why = f"there are {n_samples:,} rows for {d:,} atoms in {m:,} dimensions, and about {needed:,} are needed."
    remedy = "" if outcome == "holds" else " Give more rows, or ask for fewer atoms."
    return Verdict(theorem.diversity, n_samples, needed, outcome, why + remedy)


def theorem_for(d: int, m: int) -> Theorem:
    """Return the theorem on so many atoms in so many dimensions."""
    return theory.SPARSE_COMPLETE if d <= m else theory.SPARSE_OVERCOMPLETE


def sparse_combination(x: Any, atoms: Any, k: int, *, random_state: int = 0) -> Verdict:
    """Say whether k atoms add up to each row, by what a search for them leaves unexplained.

    The statistic is that share of the variance. Blind to which atoms these are: a dictionary that is wrong may do.

    Parameters
    ----------
    x : array (n, m)
        Rows that the dictionary was not fitted to, with its mean taken off.
    atoms : array (d, m)
        Of unit length.
    k : int
        Codes of a row.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> atoms = np.eye(8)
    >>> few = rng.normal(size=(300, 8)) ** 2 * (rng.permuted(np.tile(np.arange(8), (300, 1)), axis=1) < 2)
    >>> [sparse_combination(rows, atoms, 2).outcome for rows in (few, rng.normal(size=(300, 8)))]
    ['holds', 'fails']
    """
    rows, left = _searched(x, atoms, k)
    rng = np.random.default_rng(random_state)
    some = (rng.integers(len(rows), size=len(rows)) for _ in range(N_RESAMPLES))
    share = estimate([(left[part] ** 2).sum() / max((rows[part] ** 2).sum(), 1e-300) for part in some])
    outcome = _little(share, NO_REST, REST)
    why = f"a search for {k} atoms of each row leaves {share} of the variance."
    if outcome != "holds":
        why += " Rows are noisy or not sparse, or atoms are missing: try more of them, or more codes of a row."
    return Verdict(theory.SPARSE_COMBINATION, share.value, REST, outcome, why)


def distinct_atoms(atoms: Any, *, random_state: int = 0) -> Verdict:
    """Say whether atoms are as far apart as random directions, as many in as many dimensions.

    The statistic is by how much the cosine of an atom with its nearest is larger, at the 90 % quantile of atoms. Atoms
    that lie side by side are twins that split one feature, or features that no sparse code tells apart.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> atoms = rng.normal(size=(40, 20))
    >>> twins = np.repeat(atoms[:20], 2, axis=0) + 0.2 * rng.normal(size=(40, 20))
    >>> [distinct_atoms(some).outcome for some in (atoms, twins)]
    ['holds', 'fails']
    """
    rows = read("atoms", atoms)
    drawn = np.random.default_rng(random_state).normal(size=rows.shape)
    nearest, by_chance = (float(np.quantile(_nearest(some), NEAR)) for some in (rows, drawn))
    more = nearest - by_chance
    outcome = _little(Estimate(more, more, more), NOT_ALIKE, ALIKE)
    why = (
        f"one atom in ten has another within a cosine of {nearest:.2f}; of random directions, as many, it would be "
        f"{by_chance:.2f}."
    )
    if outcome != "holds":
        why += " Features that lie side by side cannot be told apart: ask for fewer atoms, or give more rows."
    return Verdict(DISTINCT_ATOMS, more, ALIKE, outcome, why)


def conditioned_atoms(codes: Any, atoms: Any) -> Verdict:
    """Say whether atoms that fire together are far from dependent, so that strengths are determined.

    The statistic is the least singular value of the atoms of a row, at the 10 % quantile of rows.

    Examples
    --------
    >>> codes = np.array([[1.0, 1.0, 0.0]] * 10)
    >>> [conditioned_atoms(codes, np.array([[1, 0], [c, (1 - c**2) ** 0.5], [0, 1]])).outcome for c in (0.2, 0.999)]
    ['holds', 'fails']
    """
    directions, fires = read("atoms", atoms), csr_array(codes)
    directions = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-300)
    rows = np.unique(np.linspace(0, fires.shape[0] - 1, SEARCHED).astype(np.int64))
    supports = [fires.indices[fires.indptr[row] : fires.indptr[row + 1]] for row in rows]
    least = [np.linalg.svd(directions[some], compute_uv=False)[-1] for some in supports if len(some)]
    too_many = any(len(some) > directions.shape[1] for some in supports)
    value = 0.0 if too_many or not least else float(np.quantile(least, 0.1))
    outcome = above(Estimate(value, value, value), REGULAR, unless_below=SINGULAR)
    why = f"atoms that fire together have a least singular value of {value:.2f} in one row of ten."
    if outcome != "holds":
        why += " They are nearly dependent, so that strengths are not determined: ask for fewer codes of a row."
    return Verdict(CONDITIONED_ATOMS, value, REGULAR, outcome, why)


def scattered_activations(codes: Any) -> Verdict:
    """Say whether codes fire in many combinations: few at a time, and none only beside another.

    The statistic is the share of codes, of those that fire at 20 rows or more, that fire beside one other at 95 % of
    these. It is necessary for scattered codes, and not sufficient. Codes of which half fire at once are not scattered.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> free = rng.random((2_000, 10)) < 0.1
    >>> bound = np.column_stack([free, free[:, :5] & (rng.random((2_000, 5)) < 0.5)])
    >>> [scattered_activations(codes).outcome for codes in (free, bound, rng.random((2_000, 10)) < 0.9)]
    ['holds', 'fails', 'fails']
    """
    fires = csr_array(codes)
    n, d = fires.shape
    share = l0(fires) / d
    if share >= 0.5:
        why = (
            f"{share:.0%} of the codes fire at a row: that is not sparse. Ask for fewer codes of a row, or more in all."
        )
        return Verdict(theory.SCATTERED_ACTIVATIONS, 1.0, BOUND, "fails", why)
    ones = csr_array((np.ones(fires.nnz), fires.indices, fires.indptr), shape=fires.shape)
    counts = firing(fires) * n
    counted = np.flatnonzero(counts >= COUNTED)
    if not len(counted):
        why = f"no code fires at {COUNTED} of {n} rows, so that nothing can be said of combinations. Give more rows."
        return Verdict(theory.SCATTERED_ACTIVATIONS, math.nan, BOUND, "undecided", why)
    both = (ones[:, counted].T @ ones).toarray()  # (counted, d)
    both[np.arange(len(counted)), counted] = 0
    bound = both.max(1) >= TOGETHER * counts[counted]
    value = float(bound.mean())
    outcome = _little(Estimate(value, value, value), FREE, BOUND)
    why = f"{value:.0%} of {len(counted)} codes fire only beside another, and {share:.1%} of all fire at a row."
    if outcome != "holds":
        why += " What never comes apart cannot be told apart, as the children of a hierarchy."
    return Verdict(theory.SCATTERED_ACTIVATIONS, value, BOUND, outcome, why)


def sparsest_activations(x: Any, codes: Any, atoms: Any, *, random_state: int = 0) -> Verdict:
    """Compare codes of one pass with those that orthogonal matching pursuit finds, as many, on the same atoms.

    The statistic is the mean overlap of the two, the F1 of which codes fire at a row. An encoder of one pass leaves a
    gap where atoms are not orthogonal: low overlap says that codes, not atoms, are the weak part.

    Examples
    --------
    >>> x = np.array([[2.0, 0.0], [0.0, 3.0]] * 50)
    >>> [sparsest_activations(x, codes, np.eye(2)).outcome for codes in (x, x[:, ::-1])]
    ['holds', 'fails']
    """
    rows, fires = read("x", x), csr_array(codes)
    some = np.unique(np.linspace(0, len(rows) - 1, SEARCHED).astype(np.int64))
    k = max(1, round(l0(fires)))
    searched, own = matching_pursuit(rows[some], atoms, k), fires[some]
    overlap = np.asarray((own != 0).multiply(searched != 0).sum(1)).reshape(-1)
    total = np.diff(own.indptr) + np.diff(searched.indptr)
    f1 = 2 * overlap / np.maximum(total, 1)
    rng = np.random.default_rng(random_state)
    resampled = (rng.integers(len(f1), size=len(f1)) for _ in range(N_RESAMPLES))
    same = estimate([f1[part].mean() for part in resampled])
    outcome = above(same, SAME_CODES, unless_below=OTHER_CODES)
    why = f"codes of one pass overlap by {same} (F1) with those of a search on the same atoms."
    if outcome != "holds":
        why += " Search for codes (metrics.matching_pursuit) where they matter more than speed."
    return Verdict(theory.SPARSEST_ACTIVATIONS, same.value, SAME_CODES, outcome, why)


def _searched(x: Any, atoms: Any, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return some rows, and what a search leaves of them."""
    rows = read("x", x)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, SEARCHED).astype(np.int64))]
    directions = read("atoms", atoms)
    return rows, rows - matching_pursuit(rows, directions, k) @ directions


def _nearest(atoms: NDArray[np.float64]) -> NDArray[np.float64]:
    unit = atoms / np.maximum(np.linalg.norm(atoms, axis=1, keepdims=True), 1e-300)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -1)
    return cosines.max(1)


def _little(measured: Estimate, surely: float, at_most: float) -> Any:
    """Decide that a number is small: below the first, for sure; above the second, that it is not."""
    outcome = below(measured, surely)
    return "undecided" if outcome == "fails" and measured.low < at_most else outcome
