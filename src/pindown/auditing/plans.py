"""Plans: what to fit, which claim could be supported, and what is missing; and what plans of all methods share."""

from dataclasses import dataclass
from typing import Protocol

from numpy.typing import ArrayLike

from pindown import theory
from pindown._names import counted
from pindown.auditing.checks import conditions
from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.conditions import needed
from pindown.auditing.checks.encoders import FAINT
from pindown.auditing.checks.verdict import Outcome, Verdict, unchecked
from pindown.networks.preprocessing import Preprocessing, spectrum
from pindown.theory import Assumption, Theorem


@dataclass(frozen=True)
class Count:
    """How many levels of a label a theorem needs, and how many there are."""

    theorem: Theorem
    needed: int
    present: int

    @property
    def missing(self) -> int:
        """How many more it takes."""
        return max(0, self.needed - self.present)

    def __str__(self) -> str:
        unit = self.theorem.diversity.unit if self.theorem.diversity else "values"
        return f"{self.theorem.name:<22} {self.present} of {self.needed} {unit}"


@dataclass(frozen=True)
class Plan:
    """What to fit, which claim could be supported, and what is missing; prints as text."""

    estimator: str  # the call to make
    theorem: Theorem | None  # the one that would apply
    n_components: int
    verdicts: tuple[Verdict, ...]  # what the data say before training
    needs: tuple[str, ...] = ()  # what is missing; empty if nothing is
    counts: tuple[Count, ...] = ()  # for a label that is signal: all theorems that count its levels
    notes: tuple[str, ...] = ()  # what the plan assumes

    @property
    def outcome(self) -> Outcome:
        """Whether the theorem can apply: fails if a condition that it needs does, holds if all that were checked do."""
        outcomes = {verdict.outcome for verdict in self._needed()}
        return "fails" if "fails" in outcomes else "undecided" if "undecided" in outcomes else "holds"

    @property
    def failing(self) -> tuple[str, ...]:
        """The conditions of the theorem that fail before training."""
        return tuple(f"{verdict.name} fails: {verdict.why}" for verdict in self._needed() if verdict.outcome == "fails")

    def _needed(self) -> tuple[Verdict, ...]:
        return self.verdicts if self.theorem is None else needed(self.theorem, self.verdicts)

    def __str__(self) -> str:
        return self.described(self.estimator)

    def described(self, estimator: str) -> str:
        """Return the text, with the estimator in these words instead of Python's."""
        says = {"holds": "can apply", "fails": "cannot apply as things are", "undecided": "may apply"}[self.outcome]
        theorem = "no theorem" if self.theorem is None else f"{self.theorem.name} ({self.theorem.source})"
        open_ones = () if self.theorem is None else unchecked(self.theorem, self.verdicts)
        trusted = ", ".join(assumption.name for assumption in open_ones)
        return "\n".join(
            [
                f"{estimator}: {theorem} {says}.",
                *(f"  {verdict}" for verdict in self.verdicts),
                f"  not checked before training: {trusted}" if trusted else "  all assumptions were checked",
                *(f"  needed: {need}" for need in self.needs),
                *(["  levels that each theorem needs:"] if self.counts else []),
                *(f"    {count}" for count in self.counts),
                *(f"  note: {note}" for note in self.notes),
            ]
        )


class Summary(Protocol):
    """What a fit reads off the data before its first step, as far as plans use it."""

    @property
    def n_components(self) -> int:
        """Number of latents."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was counted, and how."""


def count_directions(X: ArrayLike, preprocessing: Preprocessing) -> tuple[int, str]:
    """Return the number of directions of the data that an encoder would see, with a note on it."""
    found, shape = spectrum(read("X", X)), preprocessing.shape_out
    kept = found.variances[: shape[0] if len(shape) == 1 else found.n_kept]
    d = max(1, int((kept > FAINT**2 * found.variances.max(initial=0.0)).sum()))
    note = f"the data vary in {counted(d, 'direction')}, the most latents there can be if the mixing is nearly linear."
    return d, note


def missing_in_general(verdicts: tuple[Verdict, ...]) -> tuple[str, ...]:
    """Return what is missing whatever the estimator."""
    needs: tuple[str, ...] = ()
    if outcome_of(verdicts, conditions.ENOUGH_SAMPLES) != "holds":
        needs += ("more samples",)
    if outcome_of(verdicts, theory.INJECTIVE_MIXING) == "fails":
        needs += ("more observed variables, or fewer latents",)
    return needs


def outcome_of(verdicts: tuple[Verdict, ...], assumption: Assumption) -> Outcome:
    """Return the outcome of the verdict on an assumption; "holds" if there is none."""
    return next((verdict.outcome for verdict in verdicts if verdict.assumption == assumption), "holds")


def in_words(number: int) -> str:
    """Return a small number in words."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number] if number < len(words) else str(number)
