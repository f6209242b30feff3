"""What a method finds of itself whose data are no rows of one table: sections of scores, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pindown.auditing.evidence.scores import Control, Score


@dataclass(frozen=True, eq=False)
class Strip:
    """Pictures side by side, bytes (height, width, 3), and what they show."""

    picture: NDArray[np.uint8]
    caption: str


@dataclass(frozen=True)
class Section:
    """A part of what was found: a sentence or two, scores beside chance, points, and strips of pictures on the page.

    Examples
    --------
    >>> print(Section("Transfer", "By pairs.", (Score("50 pairs (R²)", 0.91, 0.0),)))
    Transfer
      50 pairs (R²): 0.910 (chance 0.000)
    """

    title: str
    text: str
    scores: tuple[Score, ...] = ()
    points: tuple[str, ...] = ()
    strips: tuple[Strip, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {entry}" for entry in (*self.scores, *self.points))])


@dataclass(frozen=True)
class Findings:
    """All that was found.

    Attributes
    ----------
    estimator : str
        What was audited.
    promise : str
        What its theorem would promise.
    claim : str
        The sentence that may be quoted; empty if there is none.
    reasons : tuple of str
        What stands against it; empty if nothing does.
    sections : tuple of Section
        What was measured.
    controls : tuple of Control
        Trials whose outcome is known beforehand.
    not_shown : tuple of str
        What was left open.
    n_samples, n_held_out, n_fits : int
        Rows given, rows that all is measured on, and fits made.
    """

    estimator: str
    promise: str
    claim: str
    reasons: tuple[str, ...]
    sections: tuple[Section, ...]
    controls: tuple[Control, ...]
    not_shown: tuple[str, ...]
    n_samples: int
    n_held_out: int
    n_fits: int

    @property
    def claims(self) -> bool:
        """Whether anything is claimed."""
        return not self.reasons

    @property
    def said(self) -> str:
        """The claim, or that there is none, and why."""
        return self.claim if self.claims else f"Nothing is claimed: {'; '.join(self.reasons)}."

    def score(self, name: str) -> Score:
        """Return the score of this name; a KeyError names those there are."""
        found = {score.name: score for section in self.sections for score in section.scores}
        if name not in found:
            raise KeyError(f"There is no score {name!r}, but {', '.join(map(repr, found))}.")
        return found[name]

    def __str__(self) -> str:
        head = f"Audit of {self.estimator}, {self.n_samples:,} rows, {self.n_held_out:,} held out, {self.n_fits} fits"
        controls = ["controls", *(f"  {control}" for control in self.controls)]
        left = ["not shown", *(f"  {text}" for text in self.not_shown)]
        return "\n".join([head, *map(str, self.sections), *controls, "claim", f"  {self.said}", *left])
