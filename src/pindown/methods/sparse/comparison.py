"""Comparison of fitted dictionaries: how many atoms they share, next to chance and to a noise floor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from pindown import __version__
from pindown._files import atomic_path
from pindown.errors import InputError
from pindown.methods.sparse.audit import SAME_ATOM
from pindown.methods.transport import matrix_power
from pindown.metrics.arrays import Matrix
from pindown.metrics.dictionaries import (
    ENTRIES,
    AtomMatch,
    FiringBand,
    by_frequency,
    chance_pw_mcc,
    match_atoms,
    pw_mcc,
)

FORMAT, VERSION = "pindown.compare", 1
MAX_DRAWS = 20  # of random directions for the noise floor
N_ROUNDS, RIDGE = 10, 1e-3  # of the fit of a distribution of directions, and fraction of I, which few atoms need


@dataclass(frozen=True, eq=False)
class ComparedPair:
    """Two dictionaries, and the match of each atom of the smaller one, ``second``, in ``first``.

    The floor is what two dictionaries share because both lie along the directions in which activations vary.
    """

    first: str
    second: str
    pw_mcc: float  # mean cosine of matched atoms
    chance: float  # the same for as many random directions
    floor: float  # the same if atoms of ``first`` are drawn from the angular central Gaussian that fits them
    match: AtomMatch  # the atom of ``first`` for each of ``second``, and the cosine of both
    bands: tuple[FiringBand, ...]  # mean cosine by how often features of ``second`` fire; empty without activations

    @property
    def found(self) -> float:
        """Fraction of atoms that are the same in both, with a cosine of at least .9."""
        return float((self.match.cosine >= SAME_ATOM).mean())

    def __str__(self) -> str:
        lines = [
            f"{self.first} and {self.second}: PW-MCC {self.pw_mcc:.3f} (chance {self.chance:.3f}, noise floor "
            f"{self.floor:.3f}); {self.found:.0%} of {len(self.match.cosine):,} atoms are in both"
        ]
        return "\n".join([*lines, *(f"  {band}" for band in self.bands)])


@dataclass(frozen=True, eq=False)
class DictionaryComparison:
    """Each two of several dictionaries, compared. Agreement is consistency, not recovery: all of them may be wrong."""

    pairs: tuple[ComparedPair, ...]
    signed: bool

    def to_dict(self, provenance: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
        """Return plain values: what is known of each dictionary, every pair, and its whole matching."""
        pairs = [
            {
                **{name: getattr(pair, name) for name in ("first", "second", "pw_mcc", "chance", "floor", "found")},
                "matching": pair.match.matching.tolist(),
                "cosine": pair.match.cosine.tolist(),
                "bands": [band._asdict() for band in pair.bands],
            }
            for pair in self.pairs
        ]
        head = {"format": FORMAT, "version": VERSION, "pindown": __version__, "signed": self.signed}
        return {**head, "dictionaries": {name: dict(known) for name, known in provenance.items()}, "pairs": pairs}

    def save(self, path: str | Path, provenance: Mapping[str, Mapping[str, object]]) -> Path:
        """Write `to_dict` as JSON; return its path."""
        with atomic_path(Path(path)) as temporary:
            temporary.write_text(json.dumps(self.to_dict(provenance), indent=1, allow_nan=False), "utf-8")
        return Path(path)

    def __str__(self) -> str:
        return "\n".join(map(str, self.pairs))


def compare_dictionaries(
    dictionaries: Mapping[str, NDArray[np.floating]],
    frequency: Mapping[str, Matrix] | None = None,
    *,
    signed: bool = True,
    random_state: int = 0,
) -> DictionaryComparison:
    """Compare each two of several dictionaries by name; of two sizes the smaller is searched in the larger.

    Parameters
    ----------
    dictionaries : mapping from name to array of shape (k, m)
        Atoms in rows; k may differ.
    frequency : mapping from name to array of shape (k,), optional
        How often each feature fires: see `pindown.metrics.firing`.
    signed : bool
        Whether an atom and its negative are two atoms.
    random_state : int
        Seed of chance and noise floor.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> atoms = rng.normal(size=(60, 20))
    >>> half = np.vstack([atoms[:30], rng.normal(size=(30, 20))])  # shares 30 atoms
    >>> print(compare_dictionaries({"a": atoms, "b": half}))
    a and b: PW-MCC 0.7... (chance 0.4..., noise floor 0.4...); 50% of 60 atoms are in both
    """
    if len(dictionaries) < 2:
        raise InputError("dictionaries", "compare: there must be two dictionaries or more.")
    rng, pairs = np.random.default_rng([random_state, len(dictionaries)]), []  # no stream that made dictionaries
    for one, other in combinations(dictionaries, 2):
        first, second = (one, other) if len(dictionaries[one]) >= len(dictionaries[other]) else (other, one)
        larger, smaller = (np.asarray(dictionaries[name], dtype=np.float64) for name in (first, second))
        match = match_atoms(larger, smaller, signed=signed)
        spread, n_draws = (
            matrix_power(_shape(larger), 0.5),
            max(1, min(MAX_DRAWS, ENTRIES // (len(larger) * len(smaller)))),
        )
        drawn = [pw_mcc(rng.normal(size=larger.shape) @ spread, smaller, signed=signed) for _ in range(n_draws)]
        pairs.append(
            ComparedPair(
                first,
                second,
                float(match.cosine.mean()),
                chance_pw_mcc(len(smaller), smaller.shape[1], len(larger), signed=signed, random_state=random_state),
                float(np.mean(drawn)),
                match,
                () if frequency is None else by_frequency(match.cosine, frequency[second]),
            )
        )
    return DictionaryComparison(tuple(pairs), signed)


def _shape(atoms: Matrix) -> Matrix:
    """Return the matrix of the angular central Gaussian distribution that fits directions (Tyler, 1987)."""
    unit = normalize(atoms)
    shape = np.eye(unit.shape[1])
    for _ in range(N_ROUNDS):
        weights = 1 / np.maximum(((unit @ np.linalg.inv(shape)) * unit).sum(1), 1e-300)
        shape = (unit * weights[:, None]).T @ unit
        shape = (1 - RIDGE) * shape * len(shape) / np.trace(shape) + RIDGE * np.eye(len(shape))
    return shape
