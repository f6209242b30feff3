r"""Sparse dictionaries: whether two have the same atoms, whether features fire at the same samples, and what is lost.

A dictionary has an *atom* in each row, (k, m); feature activations have a column for each atom, (n, k), dense or as a
scipy matrix.

=============== ===================================================== ==============================================
metric          blind to                                              chance is the score of
=============== ===================================================== ==============================================
`pw_mcc`        order and length of atoms                             directions drawn at random
`dead_fraction` everything except whether a feature ever fires        features that fire by chance, as often
`fvu`           shifts of each column                                 1, that of the mean
=============== ===================================================== ==============================================

The sign of an atom matters, since activations of a gate are not negative; with ``signed=False`` it does not. Chance is
high, and grows with the number of atoms: two random dictionaries of 3,072 atoms in 384 dimensions have a `pw_mcc` of
.17.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csc_array, csr_array, issparse
from sklearn.preprocessing import normalize

from pindown.errors import InputError
from pindown.metrics.arrays import (
    Labels,
    Matrix,
    RandomState,
    check_positive,
    correlations,
    matched_sum,
    read_matrix,
    read_pair,
)

Activations: TypeAlias = "ArrayLike | csr_array"

ENTRIES = 1 << 22  # of all drawn matrices of cosines: the more atoms, the fewer draws
EXACT = 4_096  # atoms up to which all are matched at once


class AtomMatch(NamedTuple):
    """The atom of a dictionary that is matched to each of another's (−1: none), and the cosine between the two."""

    matching: Labels  # (k,)
    cosine: NDArray[np.float64]  # (k,)


def match_atoms(dictionary: ArrayLike, other: ArrayLike, *, signed: bool = True) -> AtomMatch:
    """Match atoms one to one, with the largest sum of cosines; an atom that is left over has match −1 and cosine 0.

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
    AtomMatch(matching=array([1, 0]), cosine=array([1., 1.]))
    """
    first, second = read_matrix("dictionary", dictionary), read_matrix("other", other)
    if first.shape[1] != second.shape[1]:
        sizes = f"atoms of `dictionary` have {first.shape[1]} entries, those of `other` {second.shape[1]}"
        raise InputError("dictionary", f"{sizes}. Atoms are rows of the same space: was one transposed?")
    first, second = normalize(first), normalize(second)  # to unit length
    matching, found = np.full(len(second), -1), np.zeros(len(second))
    left, open_ = np.arange(len(first)), np.arange(len(second))
    while min(len(left), len(open_)) and max(len(left), len(open_)) > EXACT:
        atom, of, cosine = _mutual(first[left], second[open_], signed)
        matching[open_[of]], found[open_[of]] = left[atom], cosine
        left, open_ = np.delete(left, atom), np.delete(open_, of)
    cosines = _cosines(first[left], second[open_], signed)
    atom, of = linear_sum_assignment(cosines, maximize=True)
    matching[open_[of]], found[open_[of]] = left[atom], cosines[atom, of]
    return AtomMatch(matching, found)


def _mutual(first: Matrix, second: Matrix, signed: bool) -> tuple[Labels, Labels, Matrix]:
    """Return atoms that are each other's nearest, and their cosines, some rows at a time."""
    nearest, cosine = np.zeros(len(first), dtype=np.int64), np.zeros(len(first))
    best, whose = np.full(len(second), -np.inf), np.zeros(len(second), dtype=np.int64)
    for start in range(0, len(first), EXACT):
        cosines = _cosines(first[start : start + EXACT], second, signed)
        rows = slice(start, start + len(cosines))
        nearest[rows], cosine[rows] = cosines.argmax(1), cosines.max(1)
        better = cosines.max(0) > best
        whose[better] = start + cosines.argmax(0)[better]
        best = np.maximum(best, cosines.max(0))
    both = np.flatnonzero(whose[nearest] == np.arange(len(first)))
    return both, nearest[both], cosine[both]


def pw_mcc(dictionary: ArrayLike, other: ArrayLike, *, signed: bool = True) -> float:
    r"""Return the mean cosine of atoms matched one to one: the pairwise MCC of two seeds, or of a fit and the truth.

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
    """Return the mean `pw_mcc` of dictionaries whose atoms are drawn at random, uniformly over all directions.

    Examples
    --------
    For single atoms in the plane it is the mean cosine of an angle, 2/π = .64 without its sign. Among many atoms the
    best match is nearer:

    >>> round(chance_pw_mcc(1, 2, signed=False), 1), round(chance_pw_mcc(256, 64), 2)
    (0.6, 0.33)
    """
    k_hat = k if k_hat is None else k_hat
    check_positive(k=k, m=m, k_hat=k_hat)
    rng = np.random.default_rng(random_state)
    n_draws = max(1, min(200, ENTRIES // (k * k_hat)))
    drawn = ((rng.normal(size=(k_hat, m)), rng.normal(size=(k, m))) for _ in range(n_draws))
    return float(np.mean([pw_mcc(*pair, signed=signed) for pair in drawn]))


def _cosines(first: Matrix, second: Matrix, signed: bool) -> Matrix:
    """Return the cosines of atoms of unit length, or their absolute values; (k_hat, k)."""
    return first @ second.T if signed else np.abs(first @ second.T)


def matching_pursuit(x: ArrayLike, atoms: ArrayLike, k: int) -> csr_array:
    """Return feature activations by orthogonal matching pursuit: at most k atoms of each sample, chosen one by one.

    Each step adds the atom nearest to the residual and solves for all activations again. Compare an encoder of one pass
    with it: on the same dictionary a search finds activations that are as sparse and reconstruct more. Only atoms that
    point towards the residual are added, as by a gate. Activations may become negative.

    Parameters
    ----------
    x : array of shape (n, m)
        Samples, centred.
    atoms : array of shape (d, m)
        In rows, of unit length.
    k : int
        Number of features that may fire at a sample.

    Examples
    --------
    >>> matching_pursuit([[3.0, 0.5]], [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], 2).toarray()
    array([[3. , 0.5, 0. ]])
    """
    samples, dictionary = read_matrix("x", x), read_matrix("atoms", atoms)
    if samples.shape[1] != dictionary.shape[1]:
        raise InputError("atoms", f"`atoms` have {dictionary.shape[1]} entries, `x` has {samples.shape[1]} features.")
    if not 1 <= k <= len(dictionary):
        raise InputError("k", f"`k` must be 1 to {len(dictionary)}, the number of atoms, got {k}.")
    parts = [_pursued(samples[i : i + 256], dictionary, k) for i in range(0, len(samples), 256)]
    strength, at = (np.concatenate([part[i] for part in parts]).reshape(-1) for i in (0, 1))
    found = csr_array((strength, (np.repeat(np.arange(len(samples)), k), at)), shape=(len(samples), len(dictionary)))
    found.eliminate_zeros()
    return found


def _pursued(x: Matrix, atoms: Matrix, k: int) -> tuple[Matrix, Labels]:
    """Return the activations of some samples and the atoms that they belong to; (n, k) each."""
    n = len(x)
    products, taken = x @ atoms.T, np.zeros((n, len(atoms)), dtype=bool)
    at, strength, residual = np.zeros((n, k), dtype=np.int64), np.zeros((n, k)), x.copy()
    size = np.maximum((x**2).sum(1), 1e-300)
    for step in range(k):
        scores = np.where(taken, -np.inf, residual @ atoms.T)
        at[:, step] = scores.argmax(1)
        # A sample that is reconstructed keeps the activations it has: what it did not add counts as 0.
        some = np.flatnonzero((scores.max(1) > 0) & ((residual**2).sum(1) > 1e-9 * size))
        if not len(some):
            break
        taken[some, at[some, step]] = True
        chosen = at[some, : step + 1]
        basis = atoms[chosen]  # (samples, step + 1, m)
        gram = basis @ basis.transpose(0, 2, 1) + 1e-9 * np.eye(step + 1)
        solved = np.linalg.solve(gram, np.take_along_axis(products[some], chosen, axis=1)[:, :, None])[:, :, 0]
        strength[some, : step + 1] = solved
        residual[some] = x[some] - np.einsum("ns,nsm->nm", solved, basis)
    return strength, at


# ---- which features fire, and how often -----------------------------------------------------------------------------


def firing(activations: Activations) -> NDArray[np.float64]:
    """Return the fraction of samples at which each feature is not 0; (k,).

    Examples
    --------
    >>> firing([[0, 1.5], [0, -1], [0, 0], [2, 1]]).tolist()
    [0.25, 0.75]
    """
    fires = _fires("activations", activations)
    return np.diff(fires.indptr) / fires.shape[0]


def l0(activations: Activations) -> float:
    """Return the mean number of features that are not 0 at a sample.

    Examples
    --------
    >>> l0([[0, 1.5], [0, -1], [0, 0], [2, 1]])
    1.0
    """
    return float(firing(activations).sum())


def feature_mcc(activations_hat: ArrayLike, activations: ArrayLike) -> float:
    """Return the mean correlation of features matched one to one, over those of ``activations`` that vary.

    Like `pindown.metrics.mcc`, but some features may be dead: their correlation is 0. The matching is found in every
    other sample and scored in the others. Blind to order, shift and positive scale of features; sees their sign. Chance
    is about 0: it is what features score whose samples are shuffled.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(200, 2)) * [1, 0]
    >>> round(feature_mcc(3 * z[:, ::-1], z), 6)
    1.0
    """
    a, b = read_pair(activations_hat, activations, names=("activations_hat", "activations"))
    fires = b.std(axis=0) > 0
    if len(a) < 6 or not fires.any():
        raise InputError("activations", "six samples are needed, and a feature that varies. Give more samples.")
    fit, score = (correlations(a[part::2], b[part::2, fires]) for part in (0, 1))
    return matched_sum(score, fit) / float(fires.sum())


def sparsity(activations: ArrayLike) -> float:
    r"""Return how sparse signed features are: the mean of :math:`1 - \frac\pi2 (\mathrm E|z|)^2 / \mathrm E z^2`.

    1 at most; 0, the level of chance, for normal ones; below 0 for features that are spread evenly. Blind to the scale
    of each.

    Examples
    --------
    A feature that is a standard normal number one time in ten, and 0 otherwise, has .9:

    >>> rng = np.random.default_rng(0)
    >>> round(sparsity(rng.normal(size=(9_000, 5)) * (rng.random((9_000, 5)) < 0.1)), 1)
    0.9
    """
    a = read_matrix("activations", activations)
    power = (a**2).mean(axis=0)
    return float((1 - np.pi / 2 * np.abs(a).mean(axis=0) ** 2 / np.where(power > 0, power, np.inf)).mean())


class DeadFraction(NamedTuple):
    """The fraction of features that never fire, and in how many samples (tokens); prints as a sentence."""

    fraction: float
    n_features: int
    n_samples: int

    def __str__(self) -> str:
        return f"{self.fraction:.2%} of {self.n_features:,} features are dead in {self.n_samples:,} tokens"


def dead_fraction(activations: Activations) -> DeadFraction:
    """Return the fraction of features that never fire in these samples (n, k), and the number of samples.

    Libraries call a feature dead that does not fire in ten million tokens, or in eight thousand. One that fires at a
    fraction p of all samples fires in none of n with probability (1 − p)ⁿ.

    Examples
    --------
    >>> print(dead_fraction([[0, 1.5], [0, -1]]))
    50.00% of 2 features are dead in 2 tokens
    """
    fires = _fires("activations", activations)
    return DeadFraction(float((np.diff(fires.indptr) == 0).mean()), fires.shape[1], fires.shape[0])


class FiringBand(NamedTuple):
    """The mean of a score over atoms whose features fire about equally often."""

    low: float  # fractions of samples
    high: float
    n: int
    mean: float

    def __str__(self) -> str:
        often = f"that fire at {self.low:.2%} to {self.high:.2%} of samples" if self.high else "that never fire"
        return f"{self.n} {often}: {self.mean:.3f}"


def by_frequency(values: ArrayLike, frequency: ArrayLike, *, n_bands: int = 5) -> tuple[FiringBand, ...]:
    """Average a score of atoms within bands of how often they fire, as many atoms in each; dead ones by themselves.

    Seeds disagree about rare atoms, which an average over all hides.

    Parameters
    ----------
    values : array of shape (k,)
        Such as ``match_atoms(…).cosine``.
    frequency : array of shape (k,)
        Fraction of samples at which each fires: see `firing`.
    n_bands : int
        Number of bands of those that fire.

    Examples
    --------
    >>> by_frequency([0.0, 0.2, 0.4, 1.0, 1.0], [0, 0.01, 0.02, 0.2, 0.4], n_bands=2)[-1]
    FiringBand(low=0.2, high=0.4, n=2, mean=1.0)
    """
    score, often = (np.asarray(part, dtype=np.float64) for part in (values, frequency))
    if score.ndim != 1 or score.shape != often.shape:
        raise InputError("values", f"`values` and `frequency` have shapes {score.shape}, {often.shape}, not one (k,).")
    check_positive(n_bands=n_bands)
    order = np.argsort(often, kind="stable")
    dead, fires = order[often[order] <= 0], order[often[order] > 0]
    parts = [part for part in (dead, *np.array_split(fires, n_bands)) if len(part)]
    return tuple(FiringBand(float(often[p[0]]), float(often[p[-1]]), len(p), float(score[p].mean())) for p in parts)


def _fires(name: str, activations: Activations) -> csc_array:
    """Return where activations are not 0, as a sparse matrix of zeros and ones by columns."""
    fires = csc_array(activations if issparse(activations) else read_matrix(name, activations))
    fires.eliminate_zeros()
    if not fires.shape[0] or not np.isfinite(fires.data).all():
        raise InputError(name, f"`{name}` has no samples, or is not finite: training may have diverged.")
    return csc_array((np.ones(fires.nnz, dtype=np.int32), fires.indices, fires.indptr), shape=fires.shape)


# ---- what is reconstructed ------------------------------------------------------------------------------------------


def fvu(x: ArrayLike, x_hat: ArrayLike) -> float:
    r"""Return the fraction of variance that is unexplained.

    .. math:: \sum_j \mathrm{var}(x_j - \hat x_j) \, / \, \sum_j \mathrm{var}\, x_j

    Blind to a shift of each column. The mean of the samples scores 1, a random reconstruction about 1 or more. A low
    value does not show that the dictionary is right: matching pursuit has the lowest of all in simulations in which it
    recovers least.

    Examples
    --------
    >>> fvu([[0.0, 0.0], [2.0, 2.0]], [[0.5, 0.0], [1.5, 2.0]])
    0.125
    """
    a, b = read_matrix("x", x), read_matrix("x_hat", x_hat)
    if a.shape != b.shape:
        raise InputError("x_hat", f"`x` has shape {a.shape} and `x_hat` {b.shape}, but both must have the same.")
    total = float(a.var(axis=0).sum())
    if total == 0:
        raise InputError("x", "all samples of `x` are the same, so there is no variance to explain.")
    return float((a - b).var(axis=0).sum() / total)
