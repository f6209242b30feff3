r"""Which latent reaches which observed variable, and what that alone decides about recovery; numpy only.

A support S is an m×d matrix of zeros and ones, S_kj = 1 where latent j reaches observed variable k. It is read
in both directions: row k is the index set I_k, the latents that x_k depends on; column j is the *reach* of
latent j. Index sets are frozensets, so the set algebra is Python's own: ``&``, ``-``, ``^``, ``|``.

`identified_blocks` says which latents are recovered together. `diversity` says which latents are recovered alone,
each with a witness. `pindown.theory.random_supports` draws supports, `pindown.theory.drawing` pictures them.

>>> S = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
>>> is_diverse(S), [sorted(block.latents) for block in identified_blocks(S)]
(True, [[0], [1], [2]])
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown.errors import InputError

Support = NDArray[np.bool_]


def as_support(support: ArrayLike, *, name: str = "support", allow_empty: bool = False) -> Support:
    """Return the support as a matrix of booleans; raise `InputError` where it is none, or has empty rows or columns.

    Parameters
    ----------
    support : array of zeros and ones, or of booleans, of shape (m, d)
        Entry (k, j) says whether latent j reaches observed variable k.
    name : str
        What an error calls it.
    allow_empty : bool
        Whether a row or a column may be empty, as in the support of a fitted model with a dead latent.

    Examples
    --------
    >>> as_support([[1, 0], [1, 1]]).tolist()
    [[True, False], [True, True]]
    """
    matrix = np.asarray(support)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(name, f"`{name}` must be a matrix (observed × latent), got shape {matrix.shape}.")
    if not np.isin(matrix, (0, 1)).all():
        raise InputError(name, f"`{name}` must hold only zeros and ones. Threshold it first, e.g. (abs(J) > 1e-3).")
    matrix = matrix.astype(bool)
    if allow_empty:
        return matrix
    for axis, what, why in (
        (0, "column", "these latents would reach nothing. Leave them out: nothing shows what they are."),
        (
            1,
            "row",
            "these observed variables would be constant. Leave them out, or lower the threshold of the support.",
        ),
    ):
        if len(empty := np.flatnonzero(~matrix.any(axis))):
            raise InputError(name, f"{what}(s) {empty.tolist()} of `{name}` are empty: {why}")
    return matrix


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


# ---- blocks that are recovered together -----------------------------------------------------------------------------


def atomic_regions(support: ArrayLike) -> dict[frozenset[int], frozenset[int]]:
    """Return the non-empty regions of the Venn diagram of all index sets: reach → the latents with that reach.

    Two latents are in one region when the same observed variables depend on them, so that no union,
    intersection or complement of index sets separates them. The regions partition the latents; they come
    in the order of their smallest latent.

    Examples
    --------
    The same two variables depend on latents 1 and 2:

    >>> for reach, latents in atomic_regions([[1, 1, 1], [0, 1, 1]]).items():
    ...     print(f"latents {sorted(latents)} reach observed {sorted(reach)}")
    latents [0] reach observed [0]
    latents [1, 2] reach observed [0, 1]
    """
    regions: dict[frozenset[int], set[int]] = {}
    for j, column in enumerate(as_support(support).T):
        regions.setdefault(_members(column), set()).add(j)
    return {reach: frozenset(latents) for reach, latents in regions.items()}


@dataclass(frozen=True)
class Block:
    """Latents that are recovered together, and what their recovery rests on.

    Parameters
    ----------
    latents : frozenset of int
        The members; inside the block they may be mixed freely.
    reach : frozenset of int
        The observed variables that depend on them.
    above : frozenset of int
        Latents of other blocks that reach all of these variables, and more. The supports alone allow the estimate
        of this block to contain a part of them; only independence of the blocks rules it out.
    """

    latents: frozenset[int]
    reach: frozenset[int]
    above: frozenset[int]

    @property
    def is_single(self) -> bool:
        """Whether the block is one latent, recovered up to an invertible function of it."""
        return len(self.latents) == 1

    @property
    def needs_independence(self) -> bool:
        """Whether the claim rests on independent blocks, and not on the supports alone."""
        return bool(self.above)


def identified_blocks(support: ArrayLike) -> tuple[Block, ...]:
    r"""Return which latents are recovered from data with this support, as blocks: the atomic regions.

    It presumes the assumptions of `theory.DICTIONARY_BLOCKS`, an injective map among them. A fit with the same
    distribution and as sparse a Jacobian then has S up to the order of its columns, and z = h(ẑ) with (Zheng et al.,
    *Diverse Dictionary Learning*, proof of Th. 1)

    .. math:: \partial z_i / \partial \hat z_j \ne 0 \text{ only if reach}(i) \subseteq \text{reach}(j)

    Hence the supports alone recover a block if no other latent reaches all of its variables and more. Any other block
    may contain a part of the latents `Block.above` it, unless these are independent of it in the data and in the model.
    Then a single latent is free of them; a larger block may still be rotated by an angle that depends on them, for
    example when its latents are Gaussian.

    Examples
    --------
    With x₀ = g₀(z₀, z₁) and x₁ = g₁(z₁), z₁ is recovered; z₀ + φ(z₁) would do as well as z₀, were it not
    for independence:

    >>> for block in identified_blocks([[1, 1], [0, 1]]):
    ...     print(sorted(block.latents), block.is_single, sorted(block.above))
    [0] True [1]
    [1] True []
    """
    regions = atomic_regions(support)
    return tuple(
        Block(latents, reach, frozenset().union(*(other for wider, other in regions.items() if reach < wider)))
        for reach, latents in regions.items()
    )


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

Condition = Literal["difference", "remainder", "intersection"]


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
    met = _met(matrix).items()
    return tuple(
        tuple(_witness(matrix, i, condition, pivots[:, i]) for condition, pivots in met if pivots[:, i].any())
        for i in range(matrix.shape[1])
    )


def is_diverse(support: ArrayLike) -> bool:
    """Return whether every latent meets a condition of `diversity`, so that all are recovered alone (Th. 3).

    Examples
    --------
    Diverse is not sparse: each of three latents may miss one variable only. But it is not dense, either:

    >>> is_diverse([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), is_diverse([[1, 1, 1], [1, 1, 1], [1, 1, 0]])
    (True, False)
    """
    met = _met(as_support(support))
    return bool(np.any([pivots.any(0) for pivots in met.values()], axis=0).all())


def _met(matrix: Support) -> dict[Condition, Support]:
    """Return for each condition which k (rows) serve which latents i (columns); the third has no k, and one row."""
    counts = matrix.astype(np.int64)
    within = (counts.T @ (1 - counts)) == 0  # (d, d): reach(i) ⊆ reach(j)
    np.fill_diagonal(within, False)
    inside = within.astype(np.int64)
    return {
        # (m, d): how many j that k depends on have reach(j) ⊆ reach(i); that it does not, reach(i) ⊆ reach(j)
        "difference": matrix & (counts @ inside == 0),
        "remainder": ~matrix & ((1 - counts) @ inside.T == 0),
        "intersection": ~within.any(1)[None, :],
    }


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
