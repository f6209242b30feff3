"""Sparse dictionaries: whether samples are sparse combinations of atoms that can be identified."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from pindown import theory
from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.conditions import CONDITIONED_ATOMS, DISTINCT_ATOMS
from pindown.auditing.checks.verdict import Verdict, at_least, at_most, bootstrap
from pindown.metrics.dictionaries import firing, l0, matching_pursuit

REST, NO_REST = 0.25, 0.1  # fraction of variance that matching pursuit leaves: more fails, and less holds
ALIKE, NOT_ALIKE = 0.25, 0.12  # excess of the cosine of nearest atoms over that of random directions
SINGULAR, REGULAR = 0.1, 0.3  # smallest singular value of active atoms: less fails, and more holds
TOGETHER, COUNTED = 0.95, 20  # fraction of its samples at which a bound feature fires with another; samples needed
BOUND, FREE = 0.25, 0.1  # fraction of features that may be bound to another
SAME_FEATURES, OTHER_FEATURES = 0.9, 0.7  # overlap with the features of matching pursuit: more holds, less fails
SEARCHED, NEAR = 500, 0.9  # samples for matching pursuit; quantile of atoms whose nearest neighbour counts


def samples_for_atoms(n_samples: int, d: int, m: int) -> Verdict:
    """Compare the number of samples with what the theorems need for d atoms in m dimensions, up to a constant.

    The check fails with half of that number or fewer.

    Examples
    --------
    >>> [samples_for_atoms(n, d=256, m=64).outcome for n in (3_500, 5_000, 8_000)]
    ['fails', 'undecided', 'holds']
    """
    diversity = (theory.SPARSE_COMPLETE if d <= m else theory.SPARSE_OVERCOMPLETE).diversity
    assert diversity is not None
    needed = diversity.needed(d) if d <= m else diversity.needed(d, m)
    why = f"there are {n_samples:,} samples for {d:,} atoms in {m:,} dimensions, and about {needed:,} are needed."
    fails = "Give more samples, or ask for fewer atoms."
    return at_least(diversity, n_samples, needed, why, fails=fails, unless_below=needed / 2 + 0.5)


def sparse_combination(x: ArrayLike, atoms: ArrayLike, k: int, *, random_state: int = 0) -> Verdict:
    """Say whether k atoms add up to each sample, by what orthogonal matching pursuit leaves unexplained.

    The statistic is that fraction of the variance. Blind to which atoms these are: a wrong dictionary may pass.

    Parameters
    ----------
    x : array (n, m)
        Samples that the dictionary was not fitted to, with its mean subtracted.
    atoms : array (d, m)
        Of unit length.
    k : int
        Active features of a sample.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> atoms = np.eye(8)
    >>> few = rng.normal(size=(300, 8)) ** 2 * (rng.permuted(np.tile(np.arange(8), (300, 1)), axis=1) < 2)
    >>> [sparse_combination(rows, atoms, 2).outcome for rows in (few, rng.normal(size=(300, 8)))]
    ['holds', 'fails']
    """
    rows, directions = _spread(read("x", x)), read("atoms", atoms)
    left = rows - matching_pursuit(rows, directions, k) @ directions
    missed, size = ((each**2).sum(1) for each in (left, rows))
    rng = np.random.default_rng(random_state)
    fraction = bootstrap(lambda some: missed[some].sum() / max(size[some].sum(), 1e-300), len(rows), rng)
    found = f"matching pursuit with {k} atoms per sample leaves {fraction} of the variance."
    fails = "Samples are noisy or not sparse, or atoms are missing: try more atoms, or more active features."
    return at_most(theory.SPARSE_COMBINATION, fraction, REST, found, fails=fails, surely=NO_REST)


def distinct_atoms(atoms: ArrayLike, *, random_state: int = 0) -> Verdict:
    """Say whether atoms are as far apart as random directions, as many in as many dimensions.

    The statistic is by how much the cosine of an atom with its nearest is larger, at the 90 % quantile of atoms. Atoms
    that are nearly parallel split one feature, or are features that no sparse code can distinguish.

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
    found = (
        f"one atom in ten has another within a cosine of {nearest:.2f}; among as many random directions it would be "
        f"{by_chance:.2f}."
    )
    fails = "Nearly parallel features cannot be distinguished: ask for fewer atoms, or give more samples."
    return at_most(DISTINCT_ATOMS, nearest - by_chance, ALIKE, found, fails=fails, surely=NOT_ALIKE)


def conditioned_atoms(activations: ArrayLike | csr_array, atoms: ArrayLike) -> Verdict:
    """Say whether atoms that are active together are far from dependent, so that activations are determined.

    The statistic is the smallest singular value of the active atoms of a sample, at the 10 % quantile of samples.

    Examples
    --------
    >>> activations = np.array([[1.0, 1.0, 0.0]] * 10)
    >>> pairs = [np.array([[1, 0], [c, (1 - c**2) ** 0.5], [0, 1]]) for c in (0.2, 0.999)]
    >>> [conditioned_atoms(activations, atoms).outcome for atoms in pairs]
    ['holds', 'fails']
    """
    directions, fires = read("atoms", atoms), csr_array(activations)
    directions = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-300)
    supports = [fires.indices[fires.indptr[row] : fires.indptr[row + 1]] for row in _spread(np.arange(fires.shape[0]))]
    least = [np.linalg.svd(directions[some], compute_uv=False)[-1] for some in supports if len(some)]
    too_many = any(len(some) > directions.shape[1] for some in supports)
    value = 0.0 if too_many or not least else float(np.quantile(least, 0.1))
    found = f"atoms that are active together have a smallest singular value of {value:.2f} in one sample of ten."
    fails = "They are nearly dependent, so activations are not determined: ask for fewer active features."
    return at_least(CONDITIONED_ATOMS, value, REGULAR, found, fails=fails, unless_below=SINGULAR)


def scattered_activations(activations: ArrayLike | csr_array) -> Verdict:
    """Say whether features fire in many combinations: few at a time, and none only next to another.

    The statistic is the fraction of features, of those that fire at 20 samples or more, that fire next to one other at
    95 % of these. It is necessary for scattered features, and not sufficient. If half of all fire at once, it fails.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> free = rng.random((2_000, 10)) < 0.1
    >>> bound = np.column_stack([free, free[:, :5] & (rng.random((2_000, 5)) < 0.5)])
    >>> [scattered_activations(fires).outcome for fires in (free, bound, rng.random((2_000, 10)) < 0.9)]
    ['holds', 'fails', 'fails']
    """
    fires = csr_array(activations)
    n, d = fires.shape
    active = l0(fires) / d
    if active >= 0.5:
        why = f"{active:.0%} of the features fire at a sample, not few. Ask for fewer at once, or more in all."
        return Verdict(theory.SCATTERED_ACTIVATIONS, 1.0, BOUND, "fails", why)
    ones = csr_array((np.ones(fires.nnz), fires.indices, fires.indptr), shape=fires.shape)
    counts = firing(fires) * n
    counted = np.flatnonzero(counts >= COUNTED)
    if not len(counted):
        why = f"no feature fires at {COUNTED} of {n} samples, so combinations cannot be counted. Give more samples."
        return Verdict(theory.SCATTERED_ACTIVATIONS, math.nan, BOUND, "undecided", why)
    both = (ones[:, counted].T @ ones).toarray()  # (counted, d)
    both[np.arange(len(counted)), counted] = 0
    bound = float((both.max(1) >= TOGETHER * counts[counted]).mean())
    found = f"{bound:.0%} of {len(counted)} features fire only next to another, and {active:.1%} fire at a sample."
    fails = "Features that never fire apart cannot be distinguished, such as the children of a hierarchy."
    return at_most(theory.SCATTERED_ACTIVATIONS, bound, BOUND, found, fails=fails, surely=FREE)


def sparsest_activations(
    x: ArrayLike, activations: ArrayLike | csr_array, atoms: ArrayLike, *, random_state: int = 0
) -> Verdict:
    """Compare an encoder's activations with those of orthogonal matching pursuit, as many, on the same atoms.

    The statistic is the mean F1 between the features that are active in both. An encoder leaves a gap where atoms are
    not orthogonal: a low value says that activations, not atoms, are the weak part.

    Examples
    --------
    >>> x = np.array([[2.0, 0.0], [0.0, 3.0]] * 50)
    >>> [sparsest_activations(x, activations, np.eye(2)).outcome for activations in (x, x[:, ::-1])]
    ['holds', 'fails']
    """
    rows, fires = read("x", x), csr_array(activations)
    some = _spread(np.arange(len(rows)))
    searched, own = matching_pursuit(rows[some], atoms, max(1, round(l0(fires)))), fires[some]
    overlap = np.asarray((own != 0).multiply(searched != 0).sum(1)).reshape(-1)
    f1 = 2 * overlap / np.maximum(np.diff(own.indptr) + np.diff(searched.indptr), 1)
    same = bootstrap(lambda part: f1[part].mean(), len(f1), np.random.default_rng(random_state))
    found = f"the encoder's features overlap by {same} (F1) with those of matching pursuit on the same atoms."
    fails = "Use metrics.matching_pursuit where activations matter more than speed."
    return at_least(theory.SPARSEST_ACTIVATIONS, same, SAME_FEATURES, found, fails=fails, unless_below=OTHER_FEATURES)


def _spread(rows: np.ndarray) -> np.ndarray:
    """Return some samples, evenly spaced."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, SEARCHED).astype(np.int64))]


def _nearest(atoms: NDArray[np.float64]) -> NDArray[np.float64]:
    unit = atoms / np.maximum(np.linalg.norm(atoms, axis=1, keepdims=True), 1e-300)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -1)
    return cosines.max(1)
