"""`plan`: which estimator suits these data, which theorem would speak, and how much more diversity it would take."""

from dataclasses import dataclass, replace
from typing import Any

from pindown import theory
from pindown.checks import Outcome, Verdict, before, conditions, spanned_dimensions, unchecked
from pindown.checks.arrays import Matrix, read, read_labels
from pindown.checks.encoders import FAINT, principal_spreads
from pindown.checks.nuisances import touched_dimensions
from pindown.estimators._base import as_array
from pindown.theory import Theorem

K_STATISTICS = 2
"""Sufficient statistics per latent that `theory.IVAE` is counted with: mean and variance, as in a normal law."""


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
    theorem : Theorem
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
    theorem: Theorem
    n_components: int
    verdicts: tuple[Verdict, ...]
    needs: tuple[str, ...] = ()
    counts: tuple[Count, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Whether the theorem can apply: fails if a condition does, holds if all that were checked do."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        return "fails" if "fails" in outcomes else "undecided" if "undecided" in outcomes else "holds"

    def __str__(self) -> str:
        says = {"holds": "can apply", "fails": "cannot apply as things are", "undecided": "may apply"}[self.outcome]
        lines = [f"{self.estimator}: {self.theorem.name} ({self.theorem.source}) {says}."]
        lines += [f"  {verdict}" for verdict in self.verdicts]
        trusted = ", ".join(assumption.name for assumption in unchecked(self.theorem, self.verdicts))
        lines.append(f"  not looked at before training: {trusted}" if trusted else "  all assumptions were looked at")
        lines += [f"  needed: {need}" for need in self.needs]
        if self.counts:
            lines.append("  values that each theorem counts on:")
            lines += [f"    {count}" for count in self.counts]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def plan(
    X: Any, *, signal: Any = None, nuisance: Any = None, pairs: Any = None, n_components: int | None = None
) -> Plan:
    """Say which estimator suits these data, which theorem would apply, and what is missing for it.

    A nuisance leads to `Forget` (given the label, if signal is given, too), otherwise partners lead to `Contrast`, a
    label to `Classify`, and nothing at all to `Dictionary`.

    Parameters
    ----------
    X : array (n, n_features)
        The observations.
    signal, nuisance : array (n,), optional
        A label to learn from, and one to forget.
    pairs : array, optional
        Partners (n, n_features), or groups (n,) whose rows are partners of each other.
    n_components : int, optional
        How many latents one hopes for. By default as many as the side variable can pin down.

    Examples
    --------
    Four classes whose means lie in a plane, but four latents wanted:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(4), 200)
    >>> means = np.array([[0, 0, 0, 0], [4, 0, 0, 0], [0, 4, 0, 0], [4, 4, 0, 0]])
    >>> wanted = plan(means[labels] + rng.normal(size=(800, 4)), signal=labels, n_components=4)
    >>> wanted.estimator, wanted.outcome
    ('Classify(n_components=4)', 'fails')
    >>> wanted.needs
    ('two more classes in general position',)
    """
    rows = read("X", as_array(X))
    signal, nuisance, pairs = (as_array(side) for side in (signal, nuisance, pairs))
    if nuisance is not None:
        return _beside(_to_forget(rows, signal, nuisance, n_components), pairs=pairs)
    if pairs is not None:
        return _beside(_to_contrast(rows, pairs, n_components), signal=signal)
    if signal is not None:
        return _to_classify(rows, signal, n_components)
    return _to_find_structure(rows, n_components)


def _beside(chosen: Plan, **unused: Any) -> Plan:
    """Note which side variables the plan leaves aside: they deserve one of their own."""
    notes = tuple(
        f"{name} is left aside: plan for it alone, too." for name, given in unused.items() if given is not None
    )
    return replace(chosen, notes=(*chosen.notes, *notes))


# One latent on the sphere is a sign: it is looked for on a line.
_ON_A_LINE = theory.CLASSIFY_FREE, ", space=Reals(), vector_space=Reals()"


def _to_classify(rows: Matrix, signal: Any, n_components: int | None) -> Plan:
    spanned = spanned_dimensions(rows, signal, encoded=False)
    d = max(1, spanned) if n_components is None else n_components
    theorem, where = _ON_A_LINE if d == 1 else (theory.CLASSIFY_NORMALISED, "")
    verdicts = before(rows, d, signal=signal)
    n_values = int(read_labels("signal", signal, len(rows)).max()) + 1
    counts = tuple(_count(counted, n_values, d) for counted in _COUNTED)
    more = max(counts[0].missing, d - spanned if _outcome(verdicts, theory.AFFINE_GENERATORS) != "holds" else 0)
    needs = (f"{_in_words(more)} more {'class' if more == 1 else 'classes'} in general position",) if more else ()
    notes = () if n_components else (f"the means of {n_values} classes span {spanned} dimensions: so many latents.",)
    estimator = f"Classify(n_components={d}{where})"
    return Plan(estimator, theorem, d, verdicts, (*needs, *_general(verdicts)), counts, notes)


def _to_contrast(rows: Matrix, pairs: Any, n_components: int | None) -> Plan:
    d, notes = _or_directions(rows, n_components)
    verdicts = before(rows, d, pairs=pairs)
    unrelated = _outcome(verdicts, conditions.RELATED_PARTNERS) == "fails"
    needs = ("partners that have to do with each other",) if unrelated else ()
    notes += (
        "with latents that fill a box or ℝ^d rather than a sphere take space=Reals(): theorem contrast-metric, and"
        " contrast-lp with p=1 if differences between partners are sparse.",
    )
    theorem, where = (theory.CONTRAST_METRIC, ", space=Reals()") if d == 1 else (theory.CONTRAST_SPHERE, "")
    estimator = f"Contrast(n_components={d}{where})"
    return Plan(estimator, theorem, d, verdicts, (*needs, *_general(verdicts)), notes=notes)


def _to_forget(rows: Matrix, signal: Any, nuisance: Any, n_components: int | None) -> Plan:
    n_directions, touched = touched_dimensions(rows, nuisance)
    d = max(1, n_directions - touched) if n_components is None else n_components
    seen = before(rows, d, signal=signal, nuisance=nuisance)
    linear = _outcome(seen, theory.NUISANCE_VMF) != "fails"
    theorem = theory.FORGET if linear else theory.FORGET_NONLINEAR
    beside = _OF_CLASSES if linear else (*_OF_CLASSES, theory.NUISANCE_VMF, theory.LINEAR_ENCODER)
    verdicts = tuple(verdict for verdict in seen if verdict.assumption not in beside)
    confounded = _outcome(verdicts, theory.NUISANCE_INDEPENDENT) == "fails"
    needs: tuple[str, ...] = ()
    if confounded:
        needs += ("rows in which label and nuisance are crossed, or invariance given the label",)
    if _outcome(verdicts, theory.LINEAR_ENCODER) == "fails":
        needs += (f"at most {n_directions - touched} components, since the nuisance moves {touched} dimensions",)
    if _outcome(verdicts, conditions.OVERLAPPING_VALUES) == "fails":
        needs += ("pairs across values of the nuisance, to carry a latent from one to another",)
    estimator = f"Forget(n_components={d}{', encoder=networks.linear' if linear else ''})"
    estimator += ".fit(X, nuisance, given=label)" if confounded else ""
    notes: tuple[str, ...] = ()
    if n_components is None:
        notes = (f"the means of the nuisance differ in {touched} of {n_directions} dimensions, and {d} are left.",)
    if not linear:
        notes += ("a linear code cannot be blind, since " + _why(seen, theory.NUISANCE_VMF),)
    return Plan(estimator, theorem, d, verdicts, (*needs, *_general(verdicts)), notes=notes)


def _to_find_structure(rows: Matrix, n_components: int | None) -> Plan:
    d, notes = _or_directions(rows, n_components)
    notes += ("whether the support is diverse, and its variables bent enough, shows after training: checks.after.",)
    verdicts = before(rows, d)
    return Plan(f"Dictionary(n_components={d})", theory.DICTIONARY_BLOCKS, d, verdicts, _general(verdicts), notes=notes)


_OF_CLASSES = (theory.CLASSIFY_NORMALISED.diversity, theory.AFFINE_GENERATORS)
_COUNTED = (
    theory.CLASSIFY_NORMALISED,
    theory.ROEDER,
    theory.TCL,
    theory.IVAE,
    theory.AUXILIARY_ICA,
    theory.INTERVENTIONS,
    theory.INTERVENTIONS_UNKNOWN,
)


def _count(theorem: Theorem, n_values: int, d: int) -> Count:
    assert theorem.diversity is not None
    return Count(theorem, theorem.diversity.needed(d, K_STATISTICS if theorem.diversity.k_means else None), n_values)


def _or_directions(rows: Matrix, n_components: int | None) -> tuple[int, tuple[str, ...]]:
    """Return the number of components, or of directions in which the data vary, with a note that says so."""
    if n_components is not None:
        return n_components, ()
    d = max(1, int((principal_spreads(rows) > FAINT).sum()))
    return d, (f"the data vary in {d} directions, the most latents there can be if the mixing is nearly linear.",)


def _general(verdicts: tuple[Verdict, ...]) -> tuple[str, ...]:
    """Return what is missing whatever the estimator."""
    needs: tuple[str, ...] = ()
    if _outcome(verdicts, conditions.ENOUGH_ROWS) != "holds":
        needs += ("more samples",)
    if _outcome(verdicts, theory.INJECTIVE_MIXING) == "fails":
        needs += ("more observed variables, or fewer components",)
    return needs


def _outcome(verdicts: tuple[Verdict, ...], assumption: Any) -> Outcome:
    return next((verdict.outcome for verdict in verdicts if verdict.assumption == assumption), "holds")


def _why(verdicts: tuple[Verdict, ...], assumption: Any) -> str:
    return next(verdict.why for verdict in verdicts if verdict.assumption == assumption)


def _in_words(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number] if number < len(words) else str(number)
