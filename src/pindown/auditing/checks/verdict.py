"""A verdict: what data say about one condition, with the number that it is based on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pindown.theory import Assumption, Diversity, Theorem

Outcome = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """What data say about one condition of a theorem: it holds, it fails, or these data cannot decide.

    "holds" means that a violation of the size of the threshold would have shown, and none did. No finite sample shows
    more.

    Parameters
    ----------
    assumption : Assumption or Diversity
        The condition: a theorem's assumption, a diversity count, or one of `pindown.auditing.checks.conditions`.
    statistic : float
        What was measured; NaN if it could not be.
    threshold : float
        What it was compared with.
    outcome : {"holds", "fails", "undecided"}
        The conclusion.
    why : str
        What was found, with the interval of the statistic, and what to do unless the condition holds.

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

    @property
    def percent(self) -> str:
        """The number and its interval in percent.

        >>> Estimate(0.33, 0.28, 0.38).percent
        '33 % [28, 38]'
        """
        return f"{100 * self.value:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}]"

    def __str__(self) -> str:
        return f"{self.value:.2g} [{self.low:.2g}, {self.high:.2g}]"


LEVEL = 0.9
"""Fraction of resamples inside an interval: chance passes each end once in twenty times."""

N_RESAMPLES = 50
"""Bootstrap samples of an interval."""


def estimate(resampled: Sequence[float] | NDArray[np.float64]) -> Estimate:
    """Return the median of resampled values, and the interval that contains 90 % of them.

    Examples
    --------
    >>> print(estimate(np.arange(101)))
    50 [5, 95]
    """
    low, middle, high = np.quantile(resampled, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    return Estimate(float(middle), float(low), float(high))


def bootstrap(statistic: Callable[[NDArray[np.int64]], float], n_samples: int, rng: np.random.Generator) -> Estimate:
    """Return a statistic of samples drawn with replacement; it is called with their indices."""
    return estimate([statistic(rng.integers(n_samples, size=n_samples)) for _ in range(N_RESAMPLES)])


def above(measured: Estimate | float, threshold: float, *, unless_below: float | None = None) -> Outcome:
    """Return "holds" if the whole interval reaches the threshold, "fails" if none of it does.

    With ``unless_below`` it fails only below that lower threshold, and is undecided between the two.

    Examples
    --------
    >>> [above(Estimate(v, v - 1, v + 1), 3) for v in (5, 3, 1)]
    ['holds', 'undecided', 'fails']
    """
    _, low, high = measured if isinstance(measured, Estimate) else (measured,) * 3
    if math.isnan(low + high):
        return "undecided"
    if low >= threshold:
        return "holds"
    return "fails" if high < (threshold if unless_below is None else unless_below) else "undecided"


def below(measured: Estimate | float, threshold: float, *, unless_above: float | None = None) -> Outcome:
    """Return "holds" if the whole interval is at most the threshold, "fails" if it is all above; see `above`.

    Examples
    --------
    >>> [below(Estimate(v, v - 1, v + 1), 3) for v in (5, 3, 1)]
    ['fails', 'undecided', 'holds']
    """
    value, low, high = measured if isinstance(measured, Estimate) else (measured,) * 3
    unless_below = None if unless_above is None else -unless_above
    return above(Estimate(-value, -high, -low), -threshold, unless_below=unless_below)


def judge(
    assumption: Assumption | Diversity,
    measured: Estimate | float,
    threshold: float,
    outcome: Outcome,
    found: str,
    *,
    fails: str = "",
    undecided: str | None = None,
) -> Verdict:
    """Return a verdict whose reason is what was found, then what to do if it fails or is undecided (by default alike).

    Examples
    --------
    >>> from pindown.theory import CLASSIFY_FREE
    >>> print(judge(CLASSIFY_FREE.diversity, 2, 3, above(2, 3), "there are 2 classes.", fails="Give one more."))
    fails      at least d + 1 classes: there are 2 classes. Give one more.
    """
    advice = {"holds": "", "fails": fails, "undecided": fails if undecided is None else undecided}[outcome]
    value = measured.value if isinstance(measured, Estimate) else measured
    return Verdict(assumption, value, threshold, outcome, f"{found} {advice}".rstrip())


def with_better(verdicts: Iterable[Verdict], *better: Verdict) -> tuple[Verdict, ...]:
    """Return verdicts in their order, each replaced by a better one on the same assumption, if there is one.

    Examples
    --------
    >>> from pindown.theory import CLASSIFY_FREE, VMF_CLUSTERS
    >>> few, many = (Verdict(CLASSIFY_FREE.diversity, n, 6, "fails", "") for n in (3, 5))
    >>> distribution = Verdict(VMF_CLUSTERS, 0.1, 0.3, "holds", "")
    >>> [verdict.statistic for verdict in with_better([few, distribution], many)]
    [5, 0.1]
    """
    known = {verdict.assumption: verdict for verdict in better}
    return tuple(known.get(verdict.assumption, verdict) for verdict in verdicts)


def unchecked(theorem: Theorem, verdicts: Iterable[Verdict]) -> tuple[Assumption, ...]:
    """Return the assumptions of a theorem that no verdict is about: they are taken on trust.

    Examples
    --------
    >>> from pindown.theory import CLASSIFY_FREE
    >>> [assumption.name for assumption in unchecked(CLASSIFY_FREE, [])]
    ['injective mixing', 'vMF clusters', 'affine generator system', 'global optimum reached']
    """
    checked = {verdict.assumption for verdict in verdicts}
    return tuple(assumption for assumption in theorem.assumes if assumption not in checked)
