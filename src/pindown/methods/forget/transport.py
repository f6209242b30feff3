"""Candidates for the latents of images: one map for all levels, or one map and then a transport of each level."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pindown.metrics import Leakage

ONE_MAP, TRANSPORTED = "one map for all levels", "one map, then a transport per level"
"""Names of the candidates."""


def detectable(leak: Leakage) -> float:
    """Return two standard errors of a score of half of the samples, as a fraction of certainty."""
    return 2 * math.sqrt(0.25 / (leak.n_samples / 2)) / (1 - leak.chance)


@dataclass(frozen=True)
class Candidate:
    """Candidate latents: leakage of the nuisance, and explained variance."""

    name: str
    leak: Leakage | None
    explained: float

    def hides_as_much_as(self, other: Candidate) -> bool:
        """Return whether probes find no more leakage than in another candidate, up to sampling error."""
        if self.leak is None or other.leak is None:
            return False
        return self.leak.excess < other.leak.excess + detectable(self.leak)

    def __str__(self) -> str:
        if self.leak is None:
            return f"{self.name}: too few samples for probes"
        chance = f"(chance {self.leak.chance:.2f})"
        return f"{self.name}: nuisance {self.leak.worst:.2f} {chance}, explained variance {self.explained:.2f}"


@dataclass(frozen=True)
class Choice:
    """The chosen latents, and all candidates."""

    kept: Candidate
    compared: tuple[Candidate, ...]
    n_samples: int

    def __str__(self) -> str:
        others = [str(other) for other in self.compared if other.name != self.kept.name]
        against = f"; compared with {'; '.join(others)}" if others else ""
        return f"on {self.n_samples} held-out samples, {self.kept}{against}."
