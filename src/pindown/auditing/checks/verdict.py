"""Verdicts: what data say about one condition, with the number that it rests on."""

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

    Examples
    --------
    >>> from pindown.theory import CLASSIFY_FREE
    >>> print(Verdict(CLASSIFY_FREE.diversity, 3, 6, "fails", "3 classes, 6 are needed: give 3 more."))
    fails      at least d + 1 classes: 3 classes, 6 are needed: give 3 more.
    """

    assumption: Assumption | Diversity  # of a theorem, or of practice
    statistic: float  # what was measured; NaN if it could not be
    threshold: float  # what it was compared with
    outcome: Outcome
    why: str  # what was found, with the interval of the statistic, and what to do unless the condition holds
    advice: str = ""  # the latter alone

    @property
    def found(self) -> str:
        """What was found, without the advice."""
        return self.why.removesuffix(self.advice).rstrip(" .")

    @property
    def name(self) -> str:
        """The condition in a few words."""
        if isinstance(self.assumption, Assumption):
            return self.assumption.name
        return f"at least {self.assumption.formula} {self.assumption.unit}"

    def __str__(self) -> str:
        return f"{self.outcome:<10} {self.name}: {self.why}"


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


def with_better(verdicts: Iterable[Verdict], *better: Verdict) -> tuple[Verdict, ...]:
    """Return verdicts in their order, each replaced by a better one on the same assumption, if there is one."""
    known = {verdict.assumption: verdict for verdict in better}
    return tuple(known.get(verdict.assumption, verdict) for verdict in verdicts)


# ---- estimates and thresholds ---------------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A number with the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def percent(self) -> str:
        """The number and its interval in percent.

        >>> Estimate(0.33, 0.28, 0.38).percent
        '33 % (90 % CI 28–38 %)'
        """
        return f"{100 * self.value:.0f} % (90 % CI {100 * self.low:.0f}–{100 * self.high:.0f} %)"

    def __str__(self) -> str:
        return f"{self.value:.2g} [{self.low:.2g}, {self.high:.2g}]"


LEVEL = 0.9  # fraction of resamples inside an interval: chance passes each end once in twenty times
N_RESAMPLES = 50  # bootstrap samples of an interval


def estimate(resampled: Sequence[float] | NDArray[np.float64]) -> Estimate:
    """Return the median of resampled values, and the interval that contains 90 % of them."""
    low, middle, high = np.quantile(resampled, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    return Estimate(float(middle), float(low), float(high))


def bootstrap(
    statistic: Callable[[NDArray[np.int64]], float], n: int, rng: np.random.Generator, n_resamples: int = N_RESAMPLES
) -> Estimate:
    """Return a statistic of n samples drawn with replacement; it is called with their indices."""
    return estimate([statistic(rng.integers(n, size=n)) for _ in range(n_resamples)])


def at_least(
    assumption: Assumption | Diversity,
    measured: Estimate | float,
    threshold: float,
    found: str,
    *,
    fails: str = "",
    undecided: str | None = None,
    unless_below: float | None = None,
) -> Verdict:
    """Return a verdict: the condition holds if the whole interval reaches the threshold, and fails if none of it does.

    With ``unless_below`` it fails only below that lower threshold. ``found`` says what was found, ``fails`` and
    ``undecided`` (by default alike) what to do then.

    Examples
    --------
    >>> from pindown.theory import CLASSIFY_FREE
    >>> [at_least(CLASSIFY_FREE.diversity, Estimate(v, v - 1, v + 1), 3, "").outcome for v in (5, 3, 1)]
    ['holds', 'undecided', 'fails']
    >>> at_least(CLASSIFY_FREE.diversity, 2, 3, "there are 2.", fails="Give one more.").why
    'there are 2. Give one more.'
    """
    value, low, high = measured if isinstance(measured, Estimate) else (measured,) * 3
    outcome: Outcome = "undecided"
    if low >= threshold:
        outcome = "holds"
    elif not math.isnan(low) and high < (threshold if unless_below is None else unless_below):
        outcome = "fails"
    return judge(assumption, value, threshold, outcome, found, fails=fails, undecided=undecided)


def at_most(
    assumption: Assumption | Diversity,
    measured: Estimate | float,
    threshold: float,
    found: str,
    *,
    fails: str = "",
    undecided: str | None = None,
    surely: float | None = None,
) -> Verdict:
    """Return a verdict: the condition fails above the threshold, and holds up to it or, if given, up to ``surely``."""
    value, low, high = measured if isinstance(measured, Estimate) else (measured,) * 3
    least = -threshold if surely is None else -surely
    opposite = at_least(assumption, Estimate(-value, -high, -low), least, "", unless_below=-threshold)
    return judge(assumption, value, threshold, opposite.outcome, found, fails=fails, undecided=undecided)


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
    """Return a verdict whose reason is what was found, then what to do if it fails or is undecided; see `at_least`."""
    advice = {"holds": "", "fails": fails, "undecided": fails if undecided is None else undecided}[outcome]
    value = measured.value if isinstance(measured, Estimate) else measured
    return Verdict(assumption, value, threshold, outcome, f"{found} {advice}".rstrip(), advice)
