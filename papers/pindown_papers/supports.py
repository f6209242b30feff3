r"""Supports of the papers' simulations: random ones, their set algebra, and what isolates each latent.

A support S is an m×d matrix of zeros and ones, as in `pindown.theory.structure`: row k is the index set I_k, the
latents that the observed variable x_k depends on. Index sets are frozensets, so the set algebra is Python's own: ``&``,
``-``, ``^``, ``|``. ``random_state`` is an int, a numpy generator, or None for fresh entropy.

`diverse` and `nested` draw supports with m ≥ d, no empty row or column, and structural rank d, without which no map
with that support is injective.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import structural_rank

from pindown.errors import InputError
from pindown.theory.structure import (
    Condition,
    Support,
    as_support,
    atomic_regions,
    is_diverse,
    isolating_variables,
)

RandomState = int | np.random.Generator | None

MAX_DRAWS = 2_000


# ---- random supports ------------------------------------------------------------------------------------------------


def diverse(m: int, d: int, *, density: float = 0.5, random_state: RandomState = None) -> NDArray[np.int_]:
    """Draw a support in which every latent meets a diversity condition: independent edges, given that they are.

    Parameters
    ----------
    m, d : int
        Numbers of observed variables and of latents.
    density : float
        Probability of an edge before the conditions are imposed, strictly between 0 and 1.
    random_state : int, Generator or None

    Examples
    --------
    >>> S = diverse(6, 3, random_state=0)
    >>> S.shape, is_diverse(S)
    ((6, 3), True)
    """
    _check_sizes(m, d)
    if not 0 < density < 1:
        raise InputError("density", f"`density` must lie strictly between 0 and 1, got {density}.")
    rng = np.random.default_rng(random_state)
    for _ in range(MAX_DRAWS):
        support = _without_empty_rows(m, d, density, rng)
        if _is_usable(support) and is_diverse(support):
            return support.astype(int)
    raise InputError(
        "density",
        f"none of {MAX_DRAWS} supports of shape ({m}, {d}) with `density={density}` was diverse and of full structural "
        "rank. Use a density nearer to 1/2, or more observed variables.",
    )


def nested(m: int, d: int, *, random_state: RandomState = None) -> NDArray[np.int_]:
    """Draw a support whose index sets form a chain, I_a ⊂ I_b ⊂ …, of all sizes from 1 to d.

    Every latent has an atomic region of its own: what one set adds to the next. But only the innermost meets
    the condition that needs no independence. Rows, columns, and the m − d sizes that repeat are random.

    Examples
    --------
    >>> sizes = nested(4, 3, random_state=0).sum(1)
    >>> sorted(set(sizes.tolist()))
    [1, 2, 3]
    """
    _check_sizes(m, d)
    rng = np.random.default_rng(random_state)
    sizes = np.concatenate([np.arange(1, d + 1), rng.integers(1, d + 1, m - d)])
    rank = rng.permutation(d)  # the place of each latent in the chain
    return (rank[None, :] < rng.permutation(sizes)[:, None]).astype(int)


def _without_empty_rows(m: int, d: int, density: float, rng: np.random.Generator) -> Support:
    """Draw independent edges given that no row is empty: the first edge of each row, then the places after it.

    Among many rows one is nearly always empty, so rejection would not do.
    """
    # The first edge is at j with probability ∝ (1 − p)^j: a truncated geometric distribution, drawn by inversion.
    cut = 1 - rng.random((m, 1)) * -np.expm1(d * np.log1p(-density))
    first = np.minimum(np.floor(np.log(cut) / np.log1p(-density)), d - 1)  # rounding may carry it to d
    place = np.arange(d)
    return np.asarray((place == first) | ((place > first) & (rng.random((m, d)) < density)), dtype=bool)


def _is_usable(support: Support) -> bool:
    """Return whether no row is empty and some map with this support is injective (so that no column is empty)."""
    return bool(support.any(1).all() and structural_rank(csr_array(support.astype(int))) == support.shape[1])


def _check_sizes(m: int, d: int) -> None:
    if not 1 <= d <= m:
        raise InputError(
            "m",
            f"`m` must be at least `d`, and `d` at least 1, got m={m}, d={d}: with fewer observed variables than "
            "latents no map is injective.",
        )


# ---- index sets -----------------------------------------------------------------------------------------------------


def index_set(support: ArrayLike, observed: int | Iterable[int]) -> frozenset[int]:
    r"""Return the latents that one or several observed variables depend on.

    .. math:: I_K = \{ j : S_{kj} = 1 \text{ for some } k \in K \}

    Examples
    --------
    What x₀ and x₁ share, what x₀ has alone, and what only one of them has:

    >>> S = [[1, 1, 0], [0, 1, 1]]
    >>> a, b = index_set(S, 0), index_set(S, 1)
    >>> sorted(a & b), sorted(a - b), sorted(a ^ b)
    ([1], [0], [0, 2])
    """
    matrix = as_support(support)
    rows = [observed] if isinstance(observed, int | np.integer) else sorted(set(observed))
    if not rows or not all(0 <= k < len(matrix) for k in rows):
        raise InputError(
            "observed",
            f"`observed` must name one or more of the {len(matrix)} observed variables, 0 to {len(matrix) - 1}, "
            f"got {observed!r}. Rows of the support are observed variables: is it transposed?",
        )
    return _members(matrix[rows].any(0))


def _members(indicator: ArrayLike) -> frozenset[int]:
    return frozenset(np.flatnonzero(indicator).tolist())


@dataclass(frozen=True)
class Parts:
    """How the latents behind two groups of observed variables overlap: a Venn diagram of two sets."""

    shared: frozenset[int]
    only_first: frozenset[int]
    only_second: frozenset[int]

    @property
    def unshared(self) -> frozenset[int]:
        """The symmetric difference: in one of the two, not in both."""
        return self.only_first | self.only_second

    @property
    def union(self) -> frozenset[int]:
        """All latents behind the two groups."""
        return self.shared | self.unshared


def parts(support: ArrayLike, first: int | Iterable[int], second: int | Iterable[int]) -> Parts:
    """Return the intersection and the two complements of the index sets of two groups of observed variables.

    These are the sets that do not mix in any model with the same distribution and as sparse a Jacobian (Zheng
    et al., *Diverse Dictionary Learning*, Def. 5 and Th. 1).

    Examples
    --------
    >>> found = parts([[1, 1, 0], [0, 1, 1], [0, 0, 1]], 0, [1, 2])
    >>> sorted(found.shared), sorted(found.only_first), sorted(found.only_second), sorted(found.unshared)
    ([1], [0], [2], [0, 2])
    """
    a, b = index_set(support, first), index_set(support, second)
    return Parts(a & b, a - b, b - a)


def splitting_variables(support: ArrayLike) -> Support:
    """Return the fewest extra observed variables after which every latent has an atomic region of its own.

    Each is a row to append to the support: the latents it has to depend on. One row splits every block in two halves,
    so that the largest block, of size b, needs ⌈log₂ b⌉ of them, and no fewer are enough; among
    these the rows with the fewest edges are taken. A variable that depends on a single latent of a block would separate
    only that one. Nothing is returned, shape (0, d), where all blocks are single.

    Examples
    --------
    Two blocks of two, {0, 1} and {2, 3}: a variable that depends on one latent of each splits both:

    >>> S = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]])
    >>> extra = splitting_variables(S)
    >>> extra.astype(int)
    array([[0, 1, 0, 1]])
    >>> len(atomic_regions(S)), len(atomic_regions(np.vstack([S, extra])))
    (2, 4)
    """
    matrix = as_support(support)
    blocks = [sorted(latents) for latents in atomic_regions(matrix).values()]
    n_extra = (max(map(len, blocks)) - 1).bit_length()
    patterns = sorted(range(2**n_extra), key=lambda pattern: (pattern.bit_count(), pattern))  # few edges first
    extra = np.zeros((n_extra, matrix.shape[1]), dtype=bool)
    for block in blocks:
        for latent, pattern in zip(block, patterns, strict=False):
            extra[:, latent] = [pattern >> bit & 1 for bit in range(n_extra)]
    return extra


# ---- latents that are recovered alone -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Witness:
    """Observed variables A that isolate one latent, and how.

    Parameters
    ----------
    latent : int
        The latent i that is left.
    condition : {"difference", "remainder", "intersection"}
        Which of the three conditions of `diversity` A meets.
    pivot : int or None
        The variable k of the formula; None in an intersection, which has none.
    others : tuple of int
        The other variables l of A; none of them can be spared.
    """

    latent: int
    condition: Condition
    pivot: int | None
    others: tuple[int, ...]

    @property
    def observed(self) -> tuple[int, ...]:
        """The whole set A, in order."""
        return tuple(sorted(self.others if self.pivot is None else (self.pivot, *self.others)))

    def isolated(self, support: ArrayLike) -> frozenset[int]:
        """Evaluate the formula on a support: the one latent, if this is a witness there."""
        matrix = as_support(support)
        others = matrix[list(self.others)]
        if self.condition == "difference":
            return _members(matrix[self.pivot] & ~others.any(0))
        return _members(others.all(0) if self.pivot is None else others.all(0) & ~matrix[self.pivot])

    def __str__(self) -> str:
        others = (" ∪ " if self.condition == "difference" else " ∩ ").join(f"I_{k}" for k in self.others)
        if len(self.others) > 1 and self.pivot is not None:
            others = f"({others})"
        if self.condition == "difference":
            others = f"I_{self.pivot} ∖ {others}" if others else f"I_{self.pivot}"
        elif self.pivot is not None:
            others += f" ∖ I_{self.pivot}"
        return f"{others} = {{{self.latent}}}"


def diversity(support: ArrayLike) -> tuple[tuple[Witness, ...], ...]:
    r"""Return, for each latent, a witness of each diversity condition that it meets; no witness where it meets none.

    Latent i is diverse when some set A of observed variables isolates it (Zheng et al., *Diverse Dictionary
    Learning*, Assumption 2; the formulas are reconstructed from the proof of Th. 3):

    1. *difference*: :math:`I_k \setminus \bigcup_{l \in A, l \ne k} I_l = \{i\}` for some k ∈ A;
    2. *remainder*: :math:`\bigcap_{l \in A, l \ne k} I_l \setminus I_k = \{i\}` for some k ∈ A;
    3. *intersection*: :math:`\bigcap_{k \in A} I_k = \{i\}`.

    No search over the sets A is needed. In condition 1 another l may only help, unless I_l contains i: so the best A is
    k and *all* variables that do not depend on i. In 2 and 3 it is all variables that depend on i, and k. With
    reach(j) the observed variables that latent j reaches (column j), the conditions become

    1. some k depends on i, and no other j that k depends on has reach(j) ⊆ reach(i);
    2. some k does not depend on i, and no other j that k does not depend on has reach(i) ⊆ reach(j);
    3. no other j has reach(i) ⊆ reach(j),

    exactly, in O(m d²). Condition 3 is the only one that does not rest on independent latents (see
    `identified_blocks`). Diversity is sufficient for an atomic region of one's own, not necessary.

    The result is exact for any number of variables. A witness has no variable to spare, but there may be smaller
    ones: the smallest is a set cover, which is hard to find, and a greedy cover is taken.

    Examples
    --------
    A chain, I_0 ⊂ I_1 ⊂ I_2. The innermost latent is a set of its own; the others are what a larger set adds:

    >>> for witnesses in diversity([[1, 0, 0], [1, 1, 0], [1, 1, 1]]):
    ...     print(*(f"{witness.condition}: {witness}" for witness in witnesses), sep="; ")
    difference: I_0 = {0}; intersection: I_0 = {0}
    difference: I_1 ∖ I_0 = {1}; remainder: I_1 ∖ I_0 = {1}
    difference: I_2 ∖ I_1 = {2}; remainder: I_2 ∖ I_1 = {2}
    """
    matrix = as_support(support)
    met = isolating_variables(matrix).items()
    return tuple(
        tuple(_witness(matrix, i, condition, pivots[:, i]) for condition, pivots in met if pivots[:, i].any())
        for i in range(matrix.shape[1])
    )


def _witness(matrix: Support, i: int, condition: Condition, serves: Support) -> Witness:
    """Return a witness, given which k serve; the k that leaves the fewest latents to the others is taken."""
    depends = matrix[:, i]
    pivot, unwanted = None, np.arange(matrix.shape[1]) != i
    if condition != "intersection":
        candidates = np.flatnonzero(serves)
        left = matrix if condition == "difference" else ~matrix
        pivot = int(candidates[left[candidates].sum(1).argmin()])
        unwanted &= left[pivot]
    usable = np.flatnonzero(~depends if condition == "difference" else depends)
    removes = matrix[usable] if condition == "difference" else ~matrix[usable]
    others = _cover(removes[:, unwanted], at_least=int(condition != "difference"))
    return Witness(i, condition, pivot, tuple(sorted(usable[others].tolist())))


def _cover(removes: Support, at_least: int) -> list[int]:
    """Return rows that together cover all columns, greedily; none can be spared, except to keep ``at_least``."""
    chosen: list[int] = []
    todo = np.ones(removes.shape[1], dtype=bool)
    while todo.any() or len(chosen) < at_least:
        chosen.append(int((removes & todo).sum(1).argmax()))
        todo &= ~removes[chosen[-1]]
    for row in tuple(chosen):
        rest = [other for other in chosen if other != row]
        if len(rest) >= at_least and removes[rest].any(0).all():
            chosen = rest
    return chosen
