r"""Supports and the sets they define: latent index sets, atomic regions, and the blocks that may be claimed.

A support S is an m×d matrix of zeros and ones, S_kj = 1 where latent j reaches observed variable k. It is read
in both directions: row k is the index set I_k, the latents that x_k depends on; column j is the *reach* of
latent j. Index sets are frozensets, so the set algebra is Python's own: ``&``, ``-``, ``^``, ``|``.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Support = NDArray[np.bool_]


def as_support(support: ArrayLike, *, name: str = "support", allow_empty: bool = False) -> Support:
    """Return the support as a matrix of booleans, or say what is wrong with it.

    Parameters
    ----------
    support : array of zeros and ones, or of booleans, of shape (m, d)
        Entry (k, j) says whether latent j reaches observed variable k.
    name : str
        What an error calls it.
    allow_empty : bool
        Whether a row or a column may be empty, as in the support of a fitted model with a dead latent.

    Raises
    ------
    ValueError
        If it is no matrix, holds something else than zeros and ones, or has an empty row or column.

    Examples
    --------
    >>> as_support([[1, 0], [1, 1]]).tolist()
    [[True, False], [True, True]]
    """
    matrix = np.asarray(support)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be a matrix (observed × latent), got shape {matrix.shape}.")
    if not np.isin(matrix, (0, 1)).all():
        raise ValueError(f"{name} must hold zeros and ones only. Threshold it first, e.g. (abs(J) > 1e-3).")
    matrix = matrix.astype(bool)
    if allow_empty:
        return matrix
    if len(rows := np.flatnonzero(~matrix.any(1))):
        raise ValueError(
            f"{name} row(s) {rows.tolist()} are empty: these observed variables would be constant. "
            "Leave them out, or lower the threshold that made the support."
        )
    if len(columns := np.flatnonzero(~matrix.any(0))):
        raise ValueError(
            f"{name} column(s) {columns.tolist()} are empty: these latents would reach nothing. "
            "Leave them out: nothing can be said of a latent that nothing depends on."
        )
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
        raise ValueError(
            f"observed must name one or more of the {len(matrix)} observed variables, 0 to {len(matrix) - 1}, "
            f"got {observed!r}. Rows of the support are observed variables: is it transposed?"
        )
    return _members(np.any(matrix[rows], axis=0))


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


def atomic_regions(support: ArrayLike) -> dict[frozenset[int], frozenset[int]]:
    """Return the non-empty regions of the Venn diagram of all index sets: reach → the latents with that reach.

    Two latents are in one region when the same observed variables depend on them, so that no union,
    intersection or complement of index sets can tell them apart. The regions partition the latents; they come
    in the order of their smallest latent.

    Examples
    --------
    Latents 1 and 2 are seen by the same two variables:

    >>> for reach, latents in atomic_regions([[1, 1, 1], [0, 1, 1]]).items():
    ...     print(f"observed {sorted(reach)} see latents {sorted(latents)}")
    observed [0] see latents [0]
    observed [0, 1] see latents [1, 2]
    """
    regions: dict[frozenset[int], set[int]] = {}
    for j, column in enumerate(as_support(support).T):
        regions.setdefault(_members(column), set()).add(j)
    return {reach: frozenset(latents) for reach, latents in regions.items()}


@dataclass(frozen=True)
class Block:
    """Latents that are recovered together, and what their recovery leans on.

    Parameters
    ----------
    latents : frozenset of int
        The members; inside the block they may be mixed freely.
    reach : frozenset of int
        The observed variables that depend on them.
    above : frozenset of int
        Latents of other blocks that reach all of these variables, and more. The supports alone allow the code
        of this block to carry a part of them; independence of the blocks is what rules it out.
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
    r"""Return what is recovered of a world with this support, as blocks of latents: its atomic regions.

    It presumes what `theory.DICTIONARY_BLOCKS` assumes, an injective map among it. A fit with the same distribution
    and as sparse a Jacobian then has S up to the order of its columns, and z = h(ẑ) with (Zheng et al., *Diverse
    Dictionary Learning*, proof of Th. 1)

    .. math:: \partial z_i / \partial \hat z_j \ne 0 \text{ only if reach}(i) \subseteq \text{reach}(j)

    Hence a block that no other reaches beyond is recovered by the supports alone. Any other may carry a part of
    the latents `Block.above` it unless these are independent of it, in the world and in the model. Then a
    single latent is free of them; a larger block may still be turned by an angle that depends on them, as when
    its latents are Gaussian.

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

    Each is a row to append to the support: the latents it has to see. One row tells apart two halves of every
    block at once, so that the largest block, of size b, needs ⌈log₂ b⌉ of them, and no fewer will do; among
    these the rows with the fewest edges are taken. A variable that sees a single latent of a block would split
    off that one. Nothing is returned, shape (0, d), where all blocks are single.

    Examples
    --------
    Two blocks of two, {0, 1} and {2, 3}: a variable that sees one latent of each splits both:

    >>> S = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]])
    >>> extra = splitting_variables(S)
    >>> extra.astype(int)
    array([[0, 1, 0, 1]])
    >>> len(atomic_regions(S)), len(atomic_regions(np.vstack([S, extra])))
    (2, 4)
    """
    matrix = as_support(support)
    blocks = [sorted(latents) for latents in atomic_regions(matrix).values()]
    n_samples = (max(map(len, blocks)) - 1).bit_length()
    codes = sorted(range(2**n_samples), key=lambda code: (code.bit_count(), code))  # few edges first
    extra = np.zeros((n_samples, matrix.shape[1]), dtype=bool)
    for block in blocks:
        for latent, code in zip(block, codes, strict=False):
            extra[:, latent] = [code >> bit & 1 for bit in range(n_samples)]
    return extra


def _members(indicator: Support) -> frozenset[int]:
    return frozenset(np.flatnonzero(indicator).tolist())
