"""The parts of a theorem: assumptions, indeterminacies, diversity counts, and the theorem itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import Literal

from pindown.errors import InputError


@dataclass(frozen=True)
class Assumption:
    """A condition of a theorem on the data or on the fitted model.

    ``about`` says what it concerns: the mixing g, the marginal p(z), the conditional p(z̃|z) or p(z|u), the
    labels, the structure of D_z g, or the model that was fitted.

    >>> UNIFORM_SPHERE.about
    'marginal'
    """

    name: str
    about: Literal["mixing", "marginal", "conditional", "labels", "structure", "model"]
    statement: str


class Freedom(Enum):
    """An elementary transformation that recovery may leave undetermined."""

    PERMUTATION = "order of the coordinates"
    SIGN = "sign of each coordinate"
    SCALE = "one common scale"
    COORDINATE_SCALE = "scale of each coordinate"
    SHIFT = "shift of the origin"
    ROTATION = "rotation across coordinates"
    COORDINATE_WARP = "invertible function of each coordinate"
    FOLD = "non-invertible function of each coordinate, such as a square"
    BLOCK_WARP = "invertible mixing inside a block of coordinates"
    WARP = "invertible mixing of all coordinates"
    PER_LEVEL = "a different map for every level of the auxiliary variable"


@dataclass(frozen=True)
class Indeterminacy:
    """What recovery leaves undetermined: the set of all elementary transformations that it allows.

    The set lists *every* transformation that the maps contain. A rotation by 90° swaps two axes, so orthogonal maps
    list ``PERMUTATION``. Inclusion of maps is then inclusion of sets.

    >>> [move.name for move in Freedom if move in ORTHOGONAL.allows]
    ['PERMUTATION', 'SIGN', 'SCALE', 'ROTATION']
    """

    name: str
    statement: str
    allows: frozenset[Freedom]

    def within(self, coarser: Indeterminacy) -> bool:
        """Return whether ``coarser`` allows everything that this allows: this recovery is stronger, or equal.

        A separate scale for each coordinate changes angles, so it is affine but not orthogonal:

        >>> SCALED_PERMUTATION.within(AFFINE), SCALED_PERMUTATION.within(ORTHOGONAL)
        (True, False)
        """
        return self.allows <= coarser.allows


@dataclass(frozen=True)
class Diversity:
    """The number of values of the side information that a theorem needs: necessary, but not sufficient.

    ``k_means`` names the second dimension where the formula has one.

    >>> IVAE.diversity.needed(5, k=2)
    11
    """

    formula: str
    unit: str
    count: Callable[[int, int], int]
    k_means: str = ""

    def needed(self, d: int, k: int | None = None) -> int:
        """Return the value of the formula for ``d`` dimensions (and ``k``, where ``k_means`` says what it is).

        Raise `InputError` if ``d`` or ``k`` is not a positive integer, or ``k`` is missing, superfluous or too large.
        """
        if (k is None) != (not self.k_means):
            remedy = f"Pass k, {self.k_means}" if self.k_means else "Leave it out"
            raise InputError("k", f"{self.formula!r} has {'a' if self.k_means else 'no'} k, but `k` is {k}. {remedy}.")
        for name, value, meaning in (("d", d, "the number of dimensions"), ("k", k, self.k_means)):
            if meaning and not (isinstance(value, Integral) and value >= 1):
                raise InputError(name, f"`{name}`, {meaning}, must be a positive integer, got {value!r}.")
        count = self.count(d, 1 if k is None else k)
        if count < 1:
            raise InputError("k", f"`k`, {self.k_means}, must be at most d={d}, got {k}.")
        return count


@dataclass(frozen=True)
class Theorem:
    """An identifiability result: what it assumes, what it promises, and what it does not.

    ``subject`` is what is recovered; ``diversity`` is ``None`` if the theorem counts nothing.

    >>> CONTRAST_LP.indeterminacy.within(CONTRAST_METRIC.indeterminacy)
    True
    """

    name: str
    source: str
    side_information: str
    assumes: tuple[Assumption, ...]
    promises: str
    indeterminacy: Indeterminacy
    not_promised: tuple[str, ...]
    diversity: Diversity | None = None
    subject: str = "the latents are recovered"

    def claim(self) -> str:
        """Return the sentence that is supported if every assumption holds."""
        conditions = [assumption.name for assumption in self.assumes]
        if self.diversity is not None:
            conditions.append(f"at least {self.diversity.formula} {self.diversity.unit}")
        *first, last = conditions
        held = f"{', '.join(first)}, and {last}"
        return f"If these hold: {held}, then {self.subject} up to {self.indeterminacy.name} ({self.source})."


@dataclass(frozen=True)
class Weakening:
    """What remains of a theorem if ``assumes`` replaces x = g(z).

    >>> print(NOISY.promises)
    the signal g(z), and the latents up to noise: R² is at most 1 − tr(Σ_c⁻¹ Σ_ε) / d.
    """

    assumes: Assumption
    promises: str
    not_promised: tuple[str, ...]
