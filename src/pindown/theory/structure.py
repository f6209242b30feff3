r"""Which latent reaches which observed variable, and what that alone decides about recovery; numpy only.

A support S is an m×d matrix of zeros and ones, S_kj = 1 where latent j reaches observed variable k. It is read
in both directions: row k is the index set I_k, the latents that x_k depends on; column j is the *reach* of
latent j.

`identified_blocks` says which latents are recovered together, `is_diverse` whether all are recovered alone.
`pindown.theory.drawing` pictures supports.

>>> S = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
>>> is_diverse(S), [sorted(block.latents) for block in identified_blocks(S)]
(True, [[0], [1], [2]])
"""

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
    for axis, what in enumerate(("column(s) (latents)", "row(s) (observed variables)")):
        if len(empty := np.flatnonzero(~matrix.any(axis))):
            remedy = "Leave them out, or lower the threshold of the support."
            raise InputError(name, f"{what} {empty.tolist()} of `{name}` are empty. {remedy}")
    return matrix


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
        regions.setdefault(frozenset(np.flatnonzero(column).tolist()), set()).add(j)
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


def is_diverse(support: ArrayLike) -> bool:
    r"""Return whether every latent is isolated by some set A of observed variables, so that all are recovered alone.

    Latent i is isolated by one of three formulas (Zheng et al., *Diverse Dictionary Learning*, Assumption 2 and Th. 3;
    reconstructed from the proof), each of which is decided exactly, in O(m d²), from what each latent reaches:

    1. :math:`I_k \setminus \bigcup_{l \in A, l \ne k} I_l = \{i\}` for some k ∈ A: some k depends on i, and no other
       j that k depends on has reach(j) ⊆ reach(i);
    2. :math:`\bigcap_{l \in A, l \ne k} I_l \setminus I_k = \{i\}` for some k ∈ A: some k does not depend on i, and no
       other j that k does not depend on has reach(i) ⊆ reach(j);
    3. :math:`\bigcap_{k \in A} I_k = \{i\}`: no other j has reach(i) ⊆ reach(j).

    Only the third does not rest on independent latents (see `identified_blocks`). Diversity is sufficient for an atomic
    region of one's own, not necessary. `pindown_papers.supports.diversity` returns the sets A.

    Examples
    --------
    Diverse is not sparse: each of three latents may miss one variable only. But it is not dense, either:

    >>> is_diverse([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), is_diverse([[1, 1, 1], [1, 1, 1], [1, 1, 0]])
    (True, False)
    """
    return bool(np.any([pivots.any(0) for pivots in isolating_variables(support).values()], axis=0).all())


Condition = Literal["difference", "remainder", "intersection"]


def isolating_variables(support: ArrayLike) -> dict[Condition, Support]:
    """Return for each condition of `is_diverse` which k (rows) meet it for which latents i (columns).

    The third has no k, and one row.
    """
    matrix = as_support(support)
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
