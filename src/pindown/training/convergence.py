"""Would more steps help? What a loss curve says about it, and a length of training that chooses itself.

A loss falls at the end of every schedule, for the rate does, and so does the noise that it makes. So the curve is
looked at in the middle, while the rate is still high; and what it falls there is compared with all that it has fallen,
since the scale of a loss is its own. Nor does it say anything once the same rows have come many times: then it falls
because they are learned by heart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pindown.networks.images import FIRST_ROUND

MOST_STEPS = 32_000
"""Steps at which such a training ends though its loss falls: four rounds after the first."""

EARLIER, LATER = (0.4, 0.55), (0.65, 0.8)
"""Parts of a schedule that are compared."""

LEAST_FALL = 0.03
"""Fall from the earlier to the later part, as a share of all the loss has fallen, from which more steps would help.

In known worlds of `Contrast` and `Classify`, where twice the steps raise the R² of the latents by .03, the share less
three standard errors is .045 or more; where they raise it by less than .005, it is .015 or less."""

LEAST_GAIN = 0.01
"""The same from one round to the next: there the rate is the same, and makes nothing fall."""

CLEARLY = 3.0
"""Standard errors by which the fall must exceed that."""

MOST_PASSES = 16
"""Passes over the same rows up to which a falling loss says that something is learned about others, too."""

LEAST_STEPS, BLOCKS, START = 200, 10, 10
"""Steps of which a curve can be judged; blocks that a part is cut into, so that neighbouring losses, which are alike,
count once; and losses whose mean is that of the start."""


@dataclass(frozen=True)
class Fall:
    """How much the loss fell while the rate was high, as a share of all it has fallen, and its standard error."""

    share: float
    error: float
    least: float = LEAST_FALL

    @property
    def is_clear(self) -> bool:
        """Whether it is more than chance and a falling rate would make it."""
        return self.share - CLEARLY * self.error > self.least


def fall(curve: Sequence[float], last: int | None = None, first: int = 0) -> Fall:
    """Return how much the loss fell in the middle of the schedule of the last so many steps; by default, of all.

    If as many came before, in a round or several of which the first had so many steps, it is how far the later part
    lies below that of the round before, in which the rate was the same.

    Examples
    --------
    A loss that halves every 10 of 200 steps is done long before the middle; one that falls evenly is not:

    >>> steps = np.arange(200)
    >>> [fall(curve).is_clear for curve in (2.0 ** (-steps / 10), 1 - steps / 200)]
    [False, True]
    >>> round(fall(1 - steps / 200).share, 2)  # a quarter of the steps, and of the fall
    0.27
    """
    start = float(np.mean(curve[:START]))
    values = np.asarray(curve, dtype=float)
    n = len(values) if last is None else last
    before, lately = values[:-n], values[-n:]
    if n < LEAST_STEPS:
        return Fall(0.0, 0.0)
    if len(before):
        before = before[-max(first or FIRST_ROUND, len(before) // 2) :]
        (a, var_a), (b, var_b) = (_mean(_part(round, LATER)) for round in (before, lately))
    else:
        (a, var_a), (b, var_b) = (_mean(_part(lately, part)) for part in (EARLIER, LATER))
    fallen = start - float(lately[-max(START, n // 10) :].mean())
    least = LEAST_GAIN if len(before) else LEAST_FALL
    return Fall((a - b) / fallen, math.sqrt(var_a + var_b) / fallen, least) if fallen > 0 else Fall(0.0, 0.0)


def _part(losses: np.ndarray, part: tuple[float, float]) -> np.ndarray:
    return losses[int(part[0] * len(losses)) : int(part[1] * len(losses))]


def _mean(losses: np.ndarray) -> tuple[float, float]:
    """Return the mean, and the variance that it has."""
    # Around their line, for a slope is not noise.
    blocks = np.array([block.mean() for block in np.array_split(losses, BLOCKS)])
    at = np.arange(BLOCKS)
    rest = blocks - np.polyval(np.polyfit(at, blocks, 1), at)
    return float(losses.mean()), float(rest @ rest / (BLOCKS - 2) / BLOCKS)


@dataclass(frozen=True)
class Length:
    """How many steps a training takes: those it was told, or as many as help.

    Parameters
    ----------
    max_iter
        The number, or None: 2,000 steps, and as many again for as long as the loss clearly falls in the last round.
    epoch
        Steps after which the same rows come again; infinity if none does.
    falls
        Whether there is a loss that falls as something is learned: in a game there is none.
    first
        Steps of the first round of a length that chooses itself; 0 takes 2,000.
    """

    max_iter: int | None
    epoch: float = math.inf
    falls: bool = True
    first: int = 0

    @property
    def most(self) -> int:
        """Steps that there can be."""
        return MOST_STEPS if self.max_iter is None else self.max_iter

    def may_end(self, step: int) -> bool:
        """Say whether a round can end after so many steps, whatever the curve.

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
        """Return the numbers of steps of the rounds that a curve, as far as it goes, has led to.

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
        """Return a sentence that says that more steps would help, or nothing."""
        last = self.rounds(curve)[-1]
        if not self._helps(curve, last):
            return ""
        remedy = "a larger max_iter" + (", or None, which takes as many steps as help" if self.max_iter else "")
        where = (
            f"in the middle of {len(curve):,} steps the loss still fell, within a quarter of them,"
            if last == len(curve)
            else f"in the last {last:,} of {len(curve):,} steps the loss still fell, at the same rate as before,"
        )
        return f"{where} by {fall(curve, last, self.first).share:.0%} of all that it has fallen. Take {remedy}."

    def _helps(self, curve: Sequence[float], last: int) -> bool:
        may_tell = self.falls and len(curve) <= MOST_PASSES * self.epoch
        return may_tell and fall(curve, last, self.first).is_clear
