"""A verdict: what data say of one condition, with the number it rests on."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pindown.theory import Assumption, Diversity, Theorem

Outcome = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """What data say of one condition of a theorem: it holds, it fails, or these data cannot decide.

    "holds" means that the data show no break of a condition where a break of the size of the threshold would have
    shown. No finite sample shows more.

    Parameters
    ----------
    assumption : Assumption or Diversity
        The condition: a theorem's assumption, a diversity count, or one of `pindown.auditing.checks.conditions`.
    statistic : float
        What was measured; NaN if it could not be.
    threshold : float
        What it was compared with.
    outcome : {"holds", "fails", "undecided"}
        What follows.
    why : str
        The reason in a sentence or two, with the interval of the statistic, and the next step unless it holds.

    Examples
    --------
    >>> from pindown.theory import CLASSIFY_FREE
    >>> print(Verdict(CLASSIFY_FREE.diversity, 3, 6, "fails", "3 classes, 6 are needed: give 3 more."))
    fails      at least d + 1 classes: 3 classes, 6 are needed: give 3 more.
    """

    assumption: Assumption | Diversity
    statistic: float
    threshold: float
    outcome: Outcome
    why: str

    @property
    def name(self) -> str:
        """The condition in a few words."""
        if isinstance(self.assumption, Assumption):
            return self.assumption.name
        return f"at least {self.assumption.formula} {self.assumption.unit}"

    def __str__(self) -> str:
        return f"{self.outcome:<10} {self.name}: {self.why}"


class Estimate(NamedTuple):
    """A number with the ends of its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2g} [{self.low:.2g}, {self.high:.2g}]"


LEVEL = 0.9
"""Share of resamples inside an interval: each of its ends is passed by chance once in twenty times."""


def estimate(resampled: Sequence[float] | NDArray[np.floating[Any]]) -> Estimate:
    """Return the median of resampled values, and the interval that holds 90 % of them.

    Examples
    --------
    >>> print(estimate(np.arange(101)))
    50 [5, 95]
    """
    low, middle, high = np.quantile(resampled, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    return Estimate(float(middle), float(low), float(high))


def above(measured: Estimate, threshold: float, *, unless_below: float | None = None) -> Outcome:
    """Decide that a number is above a threshold, if its whole interval is; that it is not, if none of it is.

    With ``unless_below`` it fails only below that lower threshold, and is undecided between the two.

    Examples
    --------
    >>> [above(Estimate(v, v - 1, v + 1), 3) for v in (5, 3, 1)]
    ['holds', 'undecided', 'fails']
    """
    if any(map(math.isnan, measured)):
        return "undecided"
    if measured.low > threshold:
        return "holds"
    return "fails" if measured.high < (threshold if unless_below is None else unless_below) else "undecided"


def below(measured: Estimate, threshold: float) -> Outcome:
    """Decide that a number is below a threshold, if its whole interval is; that it is not, if none of it is.

    Examples
    --------
    >>> [below(Estimate(v, v - 1, v + 1), 3) for v in (5, 3, 1)]
    ['fails', 'undecided', 'holds']
    """
    return above(Estimate(-measured.value, -measured.high, -measured.low), -threshold)


def with_better(verdicts: Iterable[Verdict], *better: Verdict) -> tuple[Verdict, ...]:
    """Return verdicts in their order, each replaced by a better one on the same assumption, if there is one.

    Examples
    --------
    >>> from pindown.theory import CLASSIFY_FREE, VMF_CLUSTERS
    >>> few, many = (Verdict(CLASSIFY_FREE.diversity, n, 6, "fails", "") for n in (3, 5))
    >>> law = Verdict(VMF_CLUSTERS, 0.1, 0.3, "holds", "")
    >>> [verdict.statistic for verdict in with_better([few, law], many)]
    [5, 0.1]
    """
    known = {verdict.assumption: verdict for verdict in better}
    return tuple(known.get(verdict.assumption, verdict) for verdict in verdicts)


def unchecked(theorem: Theorem, verdicts: Iterable[Verdict]) -> tuple[Assumption, ...]:
    """Return the assumptions of a theorem that no verdict speaks of: they are taken on trust.

    Examples
    --------
    >>> from pindown.theory import CLASSIFY_FREE
    >>> [assumption.name for assumption in unchecked(CLASSIFY_FREE, [])]
    ['injective mixing', 'vMF clusters', 'affine generator system', 'global optimum reached']
    """
    compared_part = {verdict.assumption for verdict in verdicts}
    return tuple(assumption for assumption in theorem.assumes if assumption not in compared_part)
