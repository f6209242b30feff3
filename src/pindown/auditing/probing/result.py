"""What probes found, as plain data that prints, draws and saves itself."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pindown._names import listed, printed
from pindown.auditing.page import check_writable, write_whole

LEVEL = 0.05
"""Corrected p-value up to which something is called found."""


@dataclass(frozen=True)
class Probed:
    """How well a linear probe reads one factor off the features of one model.

    Attributes
    ----------
    model, factor : str
        Whose features, and of what.
    measure : str
        Balanced accuracy of a label, or R² of a quantity, on rows of groups that the probe has not seen.
    score, error : float
        Mean over resamples, and its standard error, corrected for rows that resamples share.
    chance : float
        What labels that were permuted score.
    p_value, holm, bonferroni : float
        Of a score as high by permutation, and corrected for all models and factors.
    control, selectivity : float
        What random labels of the groups score, and how much more the factor does.
    n_samples, n_groups, least : int
        Rows and groups that probes were made of, and rows of the rarest class.
    """

    model: str
    factor: str
    measure: str
    score: float
    error: float
    chance: float
    p_value: float
    holm: float
    bonferroni: float
    control: float
    selectivity: float
    n_samples: int
    n_groups: int
    least: int

    @property
    def found(self) -> bool:
        """Whether chance is ruled out, after Holm's correction."""
        return self.holm <= LEVEL


@dataclass(frozen=True)
class Compared:
    """The difference of two models in one factor, on the same resamples; positive if the first reads it better."""

    factor: str
    first: str
    second: str
    difference: float
    error: float
    p_value: float
    holm: float

    @property
    def decided(self) -> bool:
        """Whether one is better, after Holm's correction."""
        return self.holm <= LEVEL


@dataclass(frozen=True)
class Probing:
    """What probes of some models found. Prints as a table; `save` writes a page, a table or the numbers.

    Attributes
    ----------
    probed : tuple of Probed
        One for each factor and model.
    compared : tuple of Compared
        The first model against each other one, factor by factor.
    notes : tuple of str
        Factors that could not be asked about, and why; and permutations that are too few.
    """

    probed: tuple[Probed, ...]
    compared: tuple[Compared, ...]
    notes: tuple[str, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, in their order."""
        return tuple(dict.fromkeys(each.model for each in self.probed))

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the factors that were asked about."""
        return tuple(dict.fromkeys(each.factor for each in self.probed))

    @property
    def sentence(self) -> str:
        """What may be written: what the first model tells beyond chance, and where others tell more or less."""
        first = self.models[0]
        own = [each for each in self.probed if each.model == first]
        told = [each.factor for each in own if each.found]
        text = (
            f"a linear probe reads {len(told)} of {len(own)} factors off {first} beyond chance"
            + (f" ({listed(told)})" if told else "")
            + f", on groups it has not seen (permutation tests, Holm, {LEVEL})"
        )
        for other in self.models[1:]:
            pairs = [each for each in self.compared if each.second == other]
            better = [each.factor for each in pairs if each.decided and each.difference > 0]
            worse = [each.factor for each in pairs if each.decided and each.difference < 0]
            text += f"; better than off {other} in {_counted(better)}, worse in {_counted(worse)}"
        if len(self.models) == 1:
            text += ". Nothing says that training put it there: give features of a random network, and raw inputs, too"
        return text[0].upper() + text[1:] + "."

    def __str__(self) -> str:
        parts = [_aligned([HEAD, *map(_line, self.probed)])]
        if self.compared:
            parts.append(_aligned([DIFFERENCE, *map(_difference, self.compared)]))
        if self.notes:
            parts.append("\n".join(self.notes))
        return "\n\n".join([*parts, self.sentence])

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as dictionaries, lists, text and numbers."""
        return {"sentence": self.sentence, **dataclasses.asdict(self)}

    def save(self, path: str | Path) -> Path:
        """Write a page with a picture (``.html``), a table (``.csv``) or the numbers (``.json``); return the path."""
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in (".html", ".csv", ".json"):
            raise ValueError(f"save: {path.name!r} must end in .html, .csv or .json, not in {ending or 'nothing'!r}.")
        check_writable(path)
        if ending == ".json":
            text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        elif ending == ".csv":
            text = self._csv()
        else:
            from pindown.auditing.probing.picture import page

            text = page(self)
        write_whole(text, path)
        return path

    def _csv(self) -> str:
        out = io.StringIO()
        names = [field.name for field in dataclasses.fields(Probed)]
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(each, name) for name in names] for each in self.probed)
        return out.getvalue()


HEAD = ("factor", "model", "score", "±", "chance", "p", "Holm", "Bonf.", "control", "rows", "least")
DIFFERENCE = ("factor", "difference of", "", "±", "p", "Holm")


def _line(each: Probed) -> tuple[str, ...]:
    numbers = (each.score, each.error, each.chance, each.p_value, each.holm, each.bonferroni, each.control)
    star = "*" if each.found else ""
    return each.factor, each.model + star, *map(printed, numbers), str(each.n_samples), str(each.least)


def _difference(each: Compared) -> tuple[str, ...]:
    star = "*" if each.decided else ""
    numbers = (each.difference, each.error, each.p_value, each.holm)
    return each.factor, f"{each.first} − {each.second}{star}", *map(printed, numbers)


def _counted(factors: Sequence[str]) -> str:
    return f"{len(factors)} ({listed(list(factors))})" if factors else "none"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return lines with words to the left of their columns, and numbers to the right."""
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]

    def cell(k: int, text: str) -> str:
        return text.ljust(widths[k]) if k < 2 else text.rjust(widths[k])

    return "\n".join("  ".join(cell(k, text) for k, text in enumerate(line)).rstrip() for line in lines)
