"""What a disentanglement score is: a number beside what noise and a rotation would have scored on the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pindown.metrics.reading import Matrix

DEFINITION = 1
"""Number of these definitions: it grows when the same arrays would give another number."""


class Measured(NamedTuple):
    """A value, and what it is the mean of: one number per factor or per code."""

    value: float
    parts: Matrix


class MeasuredPairs(NamedTuple):
    """Three values that come from one matrix of codes by factors, and that matrix."""

    values: tuple[Measured, Measured, Measured]
    of_pairs: Matrix  # (d_hat, d)


@dataclass(frozen=True)
class Score:
    """A score beside its chance levels.

    ``float(score)`` is its value. Printed by itself, a score that noise or a rotation hardly lowers says so; in a
    `Scores` table the others stand beside it, and it does not.

    Attributes
    ----------
    name : str
        Of the metric.
    value : float
        The score.
    noise : float
        What Gaussian noise of as many columns scores on the same rows.
    rotation : float
        What the true factors, standardised and turned by a typical random rotation, score: all is known but the axes.
    parts : tuple of float
        What the value averages: one number per factor or per live code (the docstring of the metric says which).
    caveat : str
        Why the score must not stand alone; empty if it may.
    definition : int
        `DEFINITION` when it was computed.

    Examples
    --------
    >>> print(Score("mig", 0.4, noise=0.003, rotation=0.08))
    mig 0.400 (noise 0.003, rotated factors 0.080)
    """

    name: str
    value: float
    noise: float
    rotation: float
    parts: tuple[float, ...] = ()
    caveat: str = ""
    definition: int = DEFINITION

    def __float__(self) -> float:
        return self.value

    def __iter__(self) -> Iterator[Score]:
        yield self

    def __str__(self) -> str:
        levels = f"{self.name} {self.value:.3f} (noise {self.noise:.3f}, rotated factors {self.rotation:.3f})"
        return f"{levels}: {self.caveat}" if self.caveat else levels


@dataclass(frozen=True, eq=False)
class DCI:
    """Disentanglement of codes, completeness of factors, informativeness; and the importances they come from.

    ``importance`` is (live codes, factors): how much of what a booster learns of a factor it learns from a code. The
    columns sum to 1.
    """

    disentanglement: Score
    completeness: Score
    informativeness: Score
    importance: Matrix

    def __iter__(self) -> Iterator[Score]:
        yield from (self.disentanglement, self.completeness, self.informativeness)

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@dataclass(frozen=True, eq=False)
class InfoMEC:
    """Modularity of codes, compactness of factors, explicitness; and the information they come from.

    ``information`` is (live codes, factors): the share of a factor's information that a code has.
    """

    modularity: Score
    compactness: Score
    explicitness: Score
    information: Matrix

    def __iter__(self) -> Iterator[Score]:
        yield from (self.modularity, self.compactness, self.explicitness)

    def __str__(self) -> str:
        return "\n".join(map(str, self))


class Scores(tuple[Score, ...]):
    """Several scores, printed as a table: the one way in which none of them stands alone.

    Examples
    --------
    >>> a, b = Score("mig", 0.4, 0.003, 0.08), Score("modularity", 0.9, 0.66, 0.86, caveat="never alone.")
    >>> print(Scores((a, b)))
                          score   noise  rotated factors
    mig                   0.400   0.003            0.080
    modularity            0.900   0.660            0.860
    """

    def __str__(self) -> str:
        rows = [f"{s.name:<20} {s.value:6.3f}  {s.noise:6.3f}  {s.rotation:15.3f}" for s in self]
        return "\n".join([f"{'':<20} {'score':>6}  {'noise':>6}  {'rotated factors':>15}", *rows])


def score(name: str, levels: Sequence[Measured], caveat: str = "") -> Score:
    """Make a score of what was measured on the code, on noise and on a rotation."""
    found, noise, rotation = levels
    parts = tuple(float(part) for part in found.parts)
    return Score(name, float(found.value), float(noise.value), float(rotation.value), parts, caveat)


def three_scores(names: tuple[str, str, str], levels: Sequence[MeasuredPairs]) -> tuple[Score, Score, Score]:
    """Make three scores of what was measured on the code, on noise and on a rotation."""
    one, two, three = (score(name, [level.values[part] for level in levels]) for part, name in enumerate(names))
    return one, two, three


def mean_of(parts: Any) -> Measured:
    """Average the parts that are defined; 0 if none is."""
    values = np.asarray(parts, dtype=np.float64)
    defined = values[np.isfinite(values)]
    return Measured(float(defined.mean()) if defined.size else 0.0, values)
