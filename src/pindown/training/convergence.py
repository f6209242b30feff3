"""Whether more steps would help, judged by a loss curve; and the number of steps of ``max_iter=None``.

A loss falls at the end of every schedule, because the learning rate and its noise do. So its decrease is measured in
the middle, while the learning rate is high, as a fraction of the total decrease. After many passes over the same
samples a falling training loss proves nothing, since the model may memorise them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pindown.networks.images import FIRST_ROUND

MOST_STEPS = 32_000
"""Maximum number of steps of ``max_iter=None``: four rounds after the first."""

EARLIER, LATER = (0.4, 0.55), (0.65, 0.8)
"""Parts of a schedule that are compared."""

LEAST_FALL = 0.03
"""More steps would help if the decrease from the earlier to the later part is more than this fraction of the total.

In simulations of `Contrast` and `Classify` the fraction minus three standard errors is at least .045 where twice the
steps raise the R² of the latents by .03, and at most .015 where they raise it by less than .005."""

LEAST_GAIN = 0.01
"""The same from one round to the next, where the learning rate is the same."""

CLEARLY = 3.0
"""Number of standard errors by which the decrease must exceed that."""

MOST_PASSES = 16
"""Number of passes over the same samples up to which a falling training loss is evidence of learning."""

LEAST_STEPS, BLOCKS, START = 200, 10, 10
"""Minimum number of steps; number of blocks per part, since neighbouring losses are correlated; and number of losses
whose mean is the loss at the start."""


@dataclass(frozen=True)
class Fall:
    """The decrease of a loss while the learning rate was high, as a fraction of the total, and its standard error."""

    fraction: float
    error: float
    least: float = LEAST_FALL

    @property
    def is_clear(self) -> bool:
        """Whether it is more than noise and a falling learning rate would make it."""
        return self.fraction - CLEARLY * self.error > self.least


def fall(curve: Sequence[float], last: int | None = None, first: int = 0) -> Fall:
    """Return the decrease of the loss in the middle of the last round, of ``last`` steps; by default, of all steps.

    If rounds came before, of which the first had ``first`` steps, it is the decrease from the round before, at the same
    learning rate.

    Examples
    --------
    A loss that halves every 10 of 200 steps is done long before the middle; one that falls evenly is not:

    >>> steps = np.arange(200)
    >>> [fall(curve).is_clear for curve in (2.0 ** (-steps / 10), 1 - steps / 200)]
    [False, True]
    >>> round(fall(1 - steps / 200).fraction, 2)  # a quarter of the steps, and of the fall
    0.27
    """
    start = float(np.mean(curve[:START]))
    values = np.asarray(curve, dtype=float)
    n = len(values) if last is None else last
    before, recent = values[:-n], values[-n:]
    if n < LEAST_STEPS:
        return Fall(0.0, 0.0)
    if len(before):
        before = before[-max(first or FIRST_ROUND, len(before) // 2) :]
        (a, var_a), (b, var_b) = (_mean(_part(round, LATER)) for round in (before, recent))
    else:
        (a, var_a), (b, var_b) = (_mean(_part(recent, part)) for part in (EARLIER, LATER))
    fallen = start - float(recent[-max(START, n // 10) :].mean())
    least = LEAST_GAIN if len(before) else LEAST_FALL
    return Fall((a - b) / fallen, math.sqrt(var_a + var_b) / fallen, least) if fallen > 0 else Fall(0.0, 0.0)


def _part(losses: np.ndarray, part: tuple[float, float]) -> np.ndarray:
    return losses[int(part[0] * len(losses)) : int(part[1] * len(losses))]


def _mean(losses: np.ndarray) -> tuple[float, float]:
    """Return the mean and its variance, from residuals of a line, since a slope is not noise."""
    blocks = np.array([block.mean() for block in np.array_split(losses, BLOCKS)])
    at = np.arange(BLOCKS)
    rest = blocks - np.polyval(np.polyfit(at, blocks, 1), at)
    return float(losses.mean()), float(rest @ rest / (BLOCKS - 2) / BLOCKS)


@dataclass(frozen=True)
class Length:
    """The number of steps of a training: fixed, or as many as help.

    Parameters
    ----------
    max_iter
        The number, or None: 2,000 steps, and as many again for as long as the loss clearly falls in the last round.
    epoch
        Steps after which the same samples come again; infinity if none does.
    falls
        Whether the loss falls as something is learned: that of adversarial training need not.
    first
        Steps of the first round of ``max_iter=None``; 0 takes 2,000.
    """

    max_iter: int | None
    epoch: float = math.inf
    falls: bool = True
    first: int = 0

    @property
    def most(self) -> int:
        """The maximum number of steps."""
        return MOST_STEPS if self.max_iter is None else self.max_iter

    def may_end(self, step: int) -> bool:
        """Return whether a round can end after so many steps, whatever the loss curve.

        Examples
        --------
        >>> [step for step in range(0, 9_000, 25) if Length(None).may_end(step)], Length(500).may_end(500)
        ([2000, 4000, 8000], True)
        """
        if self.max_iter is not None:
            return step == self.max_iter
        rounds, rest = divmod(step, self.first or FIRST_ROUND)
        return rest == 0 and rounds > 0 and rounds & (rounds - 1) == 0

    def rounds(self, curve: Sequence[float]) -> list[int]:
        """Return the numbers of steps of the rounds that follow from the loss curve so far.

        Examples
        --------
        >>> even = list(1 - np.arange(4_000) / 4_000)
        >>> [Length(None).rounds(even[:n]) for n in (0, 2_000, 4_000)]
        [[2000], [2000, 2000], [2000, 2000, 4000]]
        >>> Length(None, epoch=150).rounds(even[:2_000]), Length(500).rounds(even[:500])
        ([2000, 2000], [500])
        """
        if self.max_iter is not None:
            return [self.max_iter]
        rounds = [self.first or FIRST_ROUND]
        while (total := sum(rounds)) <= len(curve) and total < self.most and self._helps(curve[:total], rounds[-1]):
            rounds.append(total)
        return rounds

    def shortfall(self, curve: Sequence[float]) -> str:
        """Return a sentence that says that more steps would help, else an empty one."""
        last = self.rounds(curve)[-1]
        if not self._helps(curve, last):
            return ""
        remedy = "a larger max_iter" + (", or None, which takes as many steps as help" if self.max_iter else "")
        where = (
            f"in the middle of {len(curve):,} steps the loss still fell, within a quarter of them,"
            if last == len(curve)
            else f"in the last {last:,} of {len(curve):,} steps the loss still fell, at the same learning rate,"
        )
        decrease = fall(curve, last, self.first).fraction
        return f"{where} by {decrease:.0%} of its total decrease. Take {remedy}."

    def _helps(self, curve: Sequence[float], last: int) -> bool:
        is_evidence = self.falls and len(curve) <= MOST_PASSES * self.epoch
        return is_evidence and fall(curve, last, self.first).is_clear
