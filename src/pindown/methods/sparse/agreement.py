"""Do dictionaries of several seeds agree? Atom by atom, beside chance, and by how often codes fire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pindown.metrics.dictionaries import FiringBand, by_frequency, chance_pw_mcc, match_atoms

FOUND = 0.9
"""Cosine from which on two atoms are called the same."""


@dataclass(frozen=True, eq=False)
class SeedAgreement:
    """How well dictionaries of several seeds agree. It is no recovery: seeds may agree on what is wrong.

    Attributes
    ----------
    values : tuple of float
        Mean cosine of matched atoms (PW-MCC) for each pair of seeds.
    chance : float
        That of random directions, as many.
    cosine : array of shape (n_components,)
        For each atom of the fit, the least cosine with its match in another seed.
    bands : tuple of FiringBand
        The mean of these, by how often codes fire; empty if no rows were given.

    Examples
    --------
    >>> print(agreement_of([np.eye(4), np.eye(4)[::-1]], None))
    seeds agree by PW-MCC 1.000 at least (chance ...); 100% of the atoms are found by all 2
    """

    values: tuple[float, ...]
    chance: float
    cosine: NDArray[np.float64]
    bands: tuple[FiringBand, ...]
    n_seeds: int

    @property
    def worst(self) -> float:
        """The least over pairs."""
        return min(self.values)

    @property
    def found(self) -> float:
        """Share of atoms of the fit that all other seeds have found, with a cosine of at least .9."""
        return float((self.cosine >= FOUND).mean())

    def __str__(self) -> str:
        lines = [
            f"seeds agree by PW-MCC {self.worst:.3f} at least (chance {self.chance:.3f}); {self.found:.0%} of the "
            f"atoms are found by all {self.n_seeds}"
        ]
        for band in self.bands:
            often = f"that fire at {band.low:.2%} to {band.high:.2%} of rows" if band.high else "silent"
            lines.append(f"  {band.n} {often}: {band.mean:.3f}")
        return "\n".join(lines)


def agreement_of(dictionaries: Sequence[NDArray[np.floating]], frequency: NDArray[np.float64] | None) -> SeedAgreement:
    """Compare all dictionaries with each other, and the atoms of the first with all others."""
    first, *others = dictionaries
    of_first = [match_atoms(other, first).cosine for other in others]
    of_others = [match_atoms(b, a).cosine for a, b in combinations(others, 2)]
    values = tuple(float(cosine.mean()) for cosine in of_first + of_others)
    least = np.min(of_first, axis=0)
    bands = () if frequency is None else by_frequency(least, frequency)
    return SeedAgreement(values, chance_pw_mcc(*first.shape), least, bands, len(dictionaries))
