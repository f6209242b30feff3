r"""The three diversity conditions under which a latent is recovered alone, each with a witness.

Latent i is diverse when some set A of observed variables isolates it (Zheng et al., *Diverse Dictionary
Learning*, Assumption 2; the formulas are reconstructed from the proof of Th. 3):

1. *difference*: :math:`I_k \setminus \bigcup_{l \in A, l \ne k} I_l = \{i\}` for some k ∈ A;
2. *remainder*: :math:`\bigcap_{l \in A, l \ne k} I_l \setminus I_k = \{i\}` for some k ∈ A;
3. *intersection*: :math:`\bigcap_{k \in A} I_k = \{i\}`.

No search over the sets A is needed. In condition 1 another l may only help, unless it contains i: so the best A is k
and *all* variables that do not see i. In 2 and 3 it is, beside k, all variables that see i. With reach(j) the
observed variables that latent j reaches (column j), the conditions become

1. some k sees i, and no other j that k sees has reach(j) ⊆ reach(i);
2. some k does not see i, and no other j that k does not see has reach(i) ⊆ reach(j);
3. no other j has reach(i) ⊆ reach(j),

exactly, in O(m d²). Condition 3 is the only one that does not lean on independent latents (see
`identified_blocks`). Diversity is sufficient for an atomic region of one's own, not necessary.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown.theory.structure.sets import Support, as_support

Condition = Literal["difference", "remainder", "intersection"]


@dataclass(frozen=True)
class Witness:
    """Observed variables A that isolate one latent, and how.

    Parameters
    ----------
    latent : int
        The latent i that is left.
    condition : {"difference", "remainder", "intersection"}
        Which of the three conditions A meets.
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
        any_other, all_others = (f(matrix[list(self.others)], axis=0) for f in (np.any, np.all))  # (d,) each
        match self.condition:
            case "difference":
                left = matrix[self.pivot] & ~any_other
            case "remainder":
                left = all_others & ~matrix[self.pivot]
            case "intersection":
                left = all_others
        return frozenset(np.flatnonzero(left).tolist())

    def __str__(self) -> str:
        sign = "∪" if self.condition == "difference" else "∩"
        others = f" {sign} ".join(f"I_{k}" for k in self.others)
        if len(self.others) > 1 and self.pivot is not None:
            others = f"({others})"
        match self.condition:
            case "difference":
                formula = f"I_{self.pivot} ∖ {others}" if others else f"I_{self.pivot}"
            case "remainder":
                formula = f"{others} ∖ I_{self.pivot}"
            case _:
                formula = others
        return f"{formula} = {{{self.latent}}}"


@dataclass(frozen=True)
class LatentDiversity:
    """Which conditions a latent meets, one witness for each; none where it meets none."""

    latent: int
    witnesses: tuple[Witness, ...]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that are met, in the order of the paper."""
        return tuple(witness.condition for witness in self.witnesses)

    @property
    def is_met(self) -> bool:
        """Whether at least one condition is met."""
        return bool(self.witnesses)


def diversity(support: ArrayLike) -> tuple[LatentDiversity, ...]:
    """Return, for each latent, which diversity conditions it meets and through which observed variables.

    The answer is exact for any number of variables. A witness has no variable to spare, but there may be smaller
    ones: the smallest is a set cover, which is hard to find, and a greedy cover is taken.

    Examples
    --------
    A chain, I_0 ⊂ I_1 ⊂ I_2. The innermost latent is a set of its own; the others are what a larger set adds:

    >>> for latent in diversity([[1, 0, 0], [1, 1, 0], [1, 1, 1]]):
    ...     print(*(f"{witness.condition}: {witness}" for witness in latent.witnesses), sep="; ")
    difference: I_0 = {0}; intersection: I_0 = {0}
    difference: I_1 ∖ I_0 = {1}; remainder: I_1 ∖ I_0 = {1}
    difference: I_2 ∖ I_1 = {2}; remainder: I_2 ∖ I_1 = {2}
    """
    matrix = as_support(support)
    met = _met(matrix).items()
    return tuple(
        LatentDiversity(i, tuple(_witness(matrix, i, name, pivots[:, i]) for name, pivots in met if pivots[:, i].any()))
        for i in range(matrix.shape[1])
    )


def is_diverse(support: ArrayLike) -> bool:
    """Return whether every latent meets a condition, so that all are recovered alone (Th. 3).

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
    stays_in_difference = counts @ inside  # (m, d): how many j that k sees have reach(j) ⊆ reach(i)
    stays_in_remainder = (1 - counts) @ inside.T  # (m, d): how many j that k does not see have reach(i) ⊆ reach(j)
    return {
        "difference": matrix & (stays_in_difference == 0),
        "remainder": ~matrix & (stays_in_remainder == 0),
        "intersection": ~within.any(1)[None, :],
    }


def _witness(matrix: Support, i: int, condition: Condition, serves: NDArray[np.bool_]) -> Witness:
    """Return a witness, given which k serve; the k that leaves the fewest latents to the others is taken."""
    sees = matrix[:, i]
    not_i = np.arange(matrix.shape[1]) != i
    if condition == "intersection":
        pivot, unwanted = None, not_i
    else:
        candidates = np.flatnonzero(serves)
        left = matrix if condition == "difference" else ~matrix
        pivot = int(candidates[left[candidates].sum(1).argmin()])
        unwanted = left[pivot] & not_i
    usable = np.flatnonzero(~sees if condition == "difference" else sees)
    removes = matrix[usable] if condition == "difference" else ~matrix[usable]
    others = _cover(removes[:, unwanted], at_least=0 if condition == "difference" else 1)
    return Witness(i, condition, pivot, tuple(sorted(usable[others].tolist())))


def _cover(removes: Support, at_least: int) -> list[int]:
    """Return rows that together have all columns, none to spare but for ``at_least`` so many; greedily."""
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
