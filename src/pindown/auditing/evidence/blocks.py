"""What is claimed of a part: directions that partners share, that labels tell most, or features that leave X untold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pindown import theory
from pindown._names import counted
from pindown._numbers import printed
from pindown.auditing.checks.arrays import held_out_r2
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.evidence.agreement import Matrix, along_canonical, canonical, shared_correlations
from pindown.theory import Theorem

SHARED = 0.5
"""Squared correlation between partners, relative to the largest, from which a direction counts as shared; and what a
direction must hold that partners share and that those before it do not tell, as a share of its variance."""

POWER = 0.02
"""By how much a direction may correlate more than the square of the largest correlation, and be a power of others."""

WARPED = replace(theory.ELEMENTWISE, name="an increasing or decreasing function", statement="ẑ = φ(z), φ invertible")
"""What is left open where fits put rows in the same order, and differ in how far apart."""

N_SHUFFLES = 20
"""Times that partners are exchanged to see what strangers share."""


@dataclass(frozen=True, eq=False)
class SharedBlock:
    """A block of directions of the codes that partners share; the others hold nothing that they do.

    Parameters
    ----------
    n_shared, n_codes : int
        Directions that are shared, and all.
    least, most_left : float
        The least correlation between partners inside the block, and the largest outside.
    strangers : float
        The largest correlation between rows that are no partners.
    """

    n_shared: int
    n_codes: int
    least: float
    most_left: float
    strangers: float

    def __str__(self) -> str:
        return (
            f"partners share {counted(self.n_shared, 'direction')} of {self.n_codes} of the codes: along these they "
            f"correlate by {printed(self.least)} or more; along the others by {printed(self.most_left)} at most, most "
            f"of which the block tells, too; and strangers by {printed(self.strangers)}"
        )

    @property
    def theorem(self) -> Theorem:
        """What speaks of the block."""
        subject = f"the block of {counted(self.n_shared, 'direction')} of the codes that partners share is recovered"
        return replace(theory.CONTRAST_CONTENT, subject=subject)

    @property
    def rest(self) -> str:
        """What is not recovered."""
        left = self.n_codes - self.n_shared
        return f"the other {counted(left, 'direction')} of the codes {'is' if left == 1 else 'are'} not recovered"

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """That there is such a block, as far as correlations show."""
        return (Verdict(theory.SHARED_CONTENT, self.least, self.strangers, "holds", f"{self}."),)

    def part(self, codes: Matrix, anchors: Matrix, partners: Matrix) -> Matrix:
        """Return the block of a fit's codes, whose directions show in codes of partners; (n, n_shared)."""
        return (codes - anchors.mean(0)) @ canonical(anchors, partners)[0][:, : self.n_shared]


@dataclass(frozen=True, eq=False)
class Features:
    """What is spoken of where codes leave part of X untold: features, of which fits agree, and no latents behind X.

    Parameters
    ----------
    theorem : Theorem
        What speaks of them.
    verdicts : tuple of Verdict
        On what it assumes, and others do not.
    rest : str
        What is not claimed.
    """

    theorem: Theorem
    verdicts: tuple[Verdict, ...]
    rest: str = "the latents behind X are not claimed, for X holds more than the codes tell"

    def leading(self, n_kept: int, n_codes: int, *, warped: bool) -> Features:
        """Speak of the directions alone in which classes differ most: up to a linear map, or one of them, warped.

        Examples
        --------
        >>> Features(theory.ROEDER, ()).leading(1, 3, warped=False).theorem.subject
        'of the directions in which features tell classes apart the first is recovered'
        """
        first = "the first is" if n_kept == 1 else f"the first {n_kept} are"
        subject = f"of the directions in which features tell classes apart {first} recovered"
        free = WARPED if warped else self.theorem.indeterminacy
        theorem = replace(self.theorem, subject=subject, indeterminacy=free)
        left = n_codes - n_kept
        rest = f"fits differ in the other {counted(left, 'direction')}; " if left else ""
        return replace(self, theorem=theorem, rest=f"{rest}no latents behind X are claimed")

    def told_alone(self) -> Features:
        """Speak of what codes tell of the label, and not of the codes: all that sure labels can decide.

        Examples
        --------
        >>> Features(theory.ROEDER, ()).told_alone().theorem.subject
        'what X tells of the label, p(label | X), is recovered'
        """
        subject = "what X tells of the label, p(label | X), is recovered"
        rest = "the codes are not: beyond what they tell of the label, fits differ in them"
        assumes = tuple(each for each in self.theorem.assumes if each != theory.INDEPENDENT_DIFFERENCES)
        told = replace(self.theorem, subject=subject, indeterminacy=theory.IDENTITY, assumes=assumes, diversity=None)
        return Features(told, (), rest)


def shared_block(pairs: Sequence[tuple[Matrix, Matrix]], rng: np.random.Generator) -> SharedBlock | None:
    """Count the directions that partners share, in the codes of each refit; None if they share all, or none for sure.

    None, too, if refits differ in their number.

    Parameters
    ----------
    pairs : sequence of (anchors, partners)
        Codes (n, d) of rows and their partners, by each refit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> content, style, other = rng.normal(size=(3, 800, 2))
    >>> shared_block([(np.hstack([content, style]), np.hstack([content, other]))], rng).n_shared
    2
    >>> shared_block([(content, content + 0.3 * style)], rng) is None
    True
    """
    found = [_counted(anchors, partners, rng) for anchors, partners in pairs]
    least = min(found, key=lambda block: block.least - block.strangers)
    if least.n_shared == least.n_codes or least.least <= least.strangers:
        return None
    return least if len({block.n_shared for block in found}) == 1 else None


def _counted(anchors: Matrix, partners: Matrix, rng: np.random.Generator) -> SharedBlock:
    together = shared_correlations(anchors, partners)
    orders = (rng.permutation(len(partners)) for _ in range(N_SHUFFLES))
    strangers = max(float(shared_correlations(anchors, partners[order]).max()) for order in orders)
    along, _ = along_canonical(anchors, partners)
    k = next((j for j in range(1, len(together)) if not _is_new(j, together, along)), len(together))
    return SharedBlock(k, len(together), float(together[:k].min()), float(together[k:].max(initial=0.0)), strangers)


def _is_new(j: int, together: Matrix, along: Matrix) -> bool:
    """Say whether partners share direction j, and it is no bent image of those before it, such as a square."""
    most = together[0]
    if most == 0 or together[j] ** 2 < SHARED * most**2:
        return False
    if together[j] > most**2 + POWER:  # squares and products of what correlates by ρ correlate by ρ² at most
        return True
    told = held_out_r2(along[:, :j], along[:, j : j + 1], np.random.default_rng(0)).value
    return bool(together[j] / most - max(told, 0.0) >= SHARED)


def encoded_pairs(fit: Any, anchors: Any, partners: Any) -> tuple[Matrix, Matrix]:
    """Return codes of rows and of their partners."""
    first, second = (np.asarray(fit.transform(part), dtype=np.float64) for part in (anchors, partners))
    return first, second
