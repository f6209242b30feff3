"""Plans: what to fit, what could be claimed of it, what is missing; and the parts that plans of all methods share."""

from dataclasses import dataclass
from typing import Any

from pindown import theory
from pindown._names import counted
from pindown.auditing.checks import Outcome, Verdict, conditions, unchecked
from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.conditions import needed
from pindown.auditing.checks.encoders import FAINT
from pindown.networks.spectrum import spectrum
from pindown.theory import Theorem


@dataclass(frozen=True)
class Count:
    """How many values of a label a theorem needs, and how many there are."""

    theorem: Theorem
    needed: int
    present: int

    @property
    def missing(self) -> int:
        """How many more it would take."""
        return max(0, self.needed - self.present)

    def __str__(self) -> str:
        unit = self.theorem.diversity.unit if self.theorem.diversity else "values"
        return f"{self.theorem.name:<22} {self.present} of {self.needed} {unit}"


@dataclass(frozen=True)
class Plan:
    """What to fit, what could be claimed of it, and what stands in the way; prints as text.

    Parameters
    ----------
    estimator : str
        The call to make.
    theorem : Theorem or None
        What would speak of its codes.
    n_components : int
        The number of latents it is about.
    verdicts : tuple of Verdict
        What the data say before training.
    needs : tuple of str
        What would have to be added; empty if nothing was found missing.
    counts : tuple of Count
        For a label that is signal: all theorems that count its values.
    notes : tuple of str
        What was assumed in making the plan.
    """

    estimator: str
    theorem: Theorem | None
    n_components: int
    verdicts: tuple[Verdict, ...]
    needs: tuple[str, ...] = ()
    counts: tuple[Count, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Whether the theorem can apply: fails if a condition that it needs does, holds if all that were checked do."""
        outcomes = {verdict.outcome for verdict in self._asked()}
        return "fails" if "fails" in outcomes else "undecided" if "undecided" in outcomes else "holds"

    def against(self) -> tuple[str, ...]:
        """Return what stands against the theorem before anything is trained."""
        return tuple(f"{verdict.name} fails: {verdict.why}" for verdict in self._asked() if verdict.outcome == "fails")

    def _asked(self) -> tuple[Verdict, ...]:
        """Return the verdicts that the theorem needs; the others are for information, as they are in an audit."""
        return self.verdicts if self.theorem is None else needed(self.theorem, self.verdicts)

    def __str__(self) -> str:
        return self.told_of(self.estimator)

    def told_of(self, estimator: str) -> str:
        """Return the text, with the estimator in other words than those of Python."""
        says = {"holds": "can apply", "fails": "cannot apply as things are", "undecided": "may apply"}[self.outcome]
        theorem = "no theorem" if self.theorem is None else f"{self.theorem.name} ({self.theorem.source})"
        lines = [f"{estimator}: {theorem} {says}."]
        lines += [f"  {verdict}" for verdict in self.verdicts]
        unseen = () if self.theorem is None else unchecked(self.theorem, self.verdicts)
        trusted = ", ".join(assumption.name for assumption in unseen)
        lines.append(f"  not looked at before training: {trusted}" if trusted else "  all assumptions were looked at")
        lines += [f"  needed: {need}" for need in self.needs]
        if self.counts:
            lines.append("  values that each theorem counts on:")
            lines += [f"    {count}" for count in self.counts]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def count_directions(est: Any, X: Any, n_components: int | None) -> tuple[int, tuple[str, ...]]:
    """Return the number of latents, or of directions of the data that an encoder would see, with a note on it."""
    if n_components is not None:
        return n_components, ()
    found = spectrum(read("X", X))
    shown = est.fitted_preprocessing(X)
    kept = found.variances[: shown.shape_out[0] if len(shown.shape_out) == 1 else found.n_kept]
    d = max(1, int((kept > FAINT**2 * found.variances.max(initial=0.0)).sum()))
    return d, (
        f"the data vary in {counted(d, 'direction')}, the most latents there can be if the mixing is nearly linear.",
    )


def missing_in_general(verdicts: tuple[Verdict, ...]) -> tuple[str, ...]:
    """Return what is missing whatever the estimator."""
    needs: tuple[str, ...] = ()
    if outcome_of(verdicts, conditions.ENOUGH_SAMPLES) != "holds":
        needs += ("more samples",)
    if outcome_of(verdicts, theory.INJECTIVE_MIXING) == "fails":
        needs += ("more observed variables, or fewer latents",)
    return needs


def outcome_of(verdicts: tuple[Verdict, ...], assumption: Any) -> Outcome:
    """Return what verdicts say of an assumption: that it holds, if none speaks of it."""
    return next((verdict.outcome for verdict in verdicts if verdict.assumption == assumption), "holds")


def why_of(verdicts: tuple[Verdict, ...], assumption: Any) -> str:
    """Return the reason of the verdict on an assumption."""
    return next(verdict.why for verdict in verdicts if verdict.assumption == assumption)


def in_words(number: int) -> str:
    """Return a small number in words.

    Examples
    --------
    >>> in_words(2), in_words(12)
    ('two', '12')
    """
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number] if number < len(words) else str(number)
