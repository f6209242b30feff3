"""`plan`: which estimator suits these data, which theorem would speak, and how much more diversity it would take."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch

from pindown import networks, theory
from pindown._names import counted
from pindown.checks import (
    Outcome,
    Verdict,
    before,
    conditions,
    divisible_rows,
    same_spread,
    spanned_dimensions,
    unchecked,
    unconfounded,
)
from pindown.checks.arrays import Matrix, read, read_labels
from pindown.checks.encoders import FAINT, principal_spreads
from pindown.checks.nuisances import touched_dimensions
from pindown.estimators import Forget, IdentifiabilityWarning
from pindown.estimators.base import as_array
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
        return self.told_of(self.estimator)

    def told_of(self, estimator: str) -> str:
        """Return the text, with the estimator in other words than those of Python."""
        says = {"holds": "can apply", "fails": "cannot apply as things are", "undecided": "may apply"}[self.outcome]
        lines = [f"{estimator}: {self.theorem.name} ({self.theorem.source}) {says}."]
        lines += [f"  {verdict}" for verdict in self.verdicts]
        trusted = ", ".join(assumption.name for assumption in unchecked(self.theorem, self.verdicts))
        lines.append(f"  not looked at before training: {trusted}" if trusted else "  all assumptions were looked at")
        lines += [f"  needed: {need}" for need in self.needs]
        if self.counts:
            lines.append("  values that each theorem counts on:")
            lines += [f"    {count}" for count in self.counts]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def plan(
    X: Any,
    *,
    signal: Any = None,
    nuisance: Any = None,
    given: Any = None,
    pairs: Any = None,
    groups: Any = None,
    n_components: int | None = None,
) -> Plan:
    """Say which estimator suits these data, which theorem would apply, and what is missing for it.

    A nuisance leads to `Forget`, otherwise partners lead to `Contrast`, a label to `Classify`, and nothing at all to
    `Dictionary`. If a signal is named beside a nuisance and goes with it, the nuisance is to be forgotten given it.

    Parameters
    ----------
    X : array (n, n_features)
        The observations.
    signal, nuisance : array (n,), optional
        A label to learn from, and one to forget.
    given : array (n,), optional
        A label within whose values the nuisance will be forgotten, as in ``Forget.fit``.
    pairs : array, optional
        Partners (n, n_features), or groups (n,) whose rows are partners of each other.
    groups : array (n,), optional
        Subjects, sessions …, whose rows an audit keeps together.
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
    signal, nuisance, given, pairs, groups = (as_array(side) for side in (signal, nuisance, given, pairs, groups))
    for name, labels in {"signal": signal, "nuisance": nuisance, "given": given, "groups": groups}.items():
        if labels is not None:
            read_labels(name, labels, len(rows))  # by the name that the caller knows
    if nuisance is not None:
        found = _beside(_to_forget(rows, signal, nuisance, given, n_components), pairs=pairs)
    elif pairs is not None:
        found = _beside(_to_contrast(rows, pairs, n_components), signal=signal)
    elif signal is not None:
        found = _to_classify(rows, signal, n_components)
    else:
        found = _to_find_structure(rows, n_components)
    audited = divisible_rows(len(rows), groups=groups, nuisance=nuisance)
    return found if audited.outcome == "holds" else replace(found, needs=(*found.needs, audited.why))


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
    span = f"the means of {counted(n_values, 'class')} span {counted(spanned, 'dimension')}"
    notes = () if n_components else (f"{span}: {'so many latents' if spanned else 'a single latent is looked for'}.",)
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


def _to_forget(rows: Matrix, signal: Any, nuisance: Any, given: Any, n_components: int | None) -> Plan:
    linear = same_spread(rows, nuisance).outcome != "fails"
    n_directions, touched = touched_dimensions(rows, nuisance)
    confounded = given is None and signal is not None and unconfounded(signal, nuisance).outcome == "fails"
    told, d = (touched, 0), n_components
    if d is None:
        found = _as_fitted(rows, nuisance, signal if confounded else given, linear=linear)
        told, d = (found.n_told_, found.n_components_) if found else (told, max(1, n_directions - touched))
    seen = before(rows, d, signal=signal if given is None else None, nuisance=nuisance)
    theorem = theory.FORGET if linear else theory.FORGET_NONLINEAR
    beside = _OF_CLASSES if linear else (*_OF_CLASSES, theory.NUISANCE_VMF, theory.LINEAR_ENCODER)
    verdicts = tuple(verdict for verdict in seen if verdict.assumption not in beside)
    needs: tuple[str, ...] = ()
    if confounded:
        needs += ("rows in which label and nuisance are crossed, or invariance given the label",)
    if _outcome(verdicts, theory.LINEAR_ENCODER) == "fails":
        most = (
            f"at most {counted(n_directions - touched, 'component')}" if touched < n_directions else "other variables"
        )
        needs += (f"{most}, since the nuisance moves {counted(touched, 'dimension')}",)
    if _outcome(verdicts, conditions.OVERLAPPING_VALUES) == "fails":
        needs += ("pairs across values of the nuisance, to carry a latent from one to another",)
    estimator = f"Forget(n_components={d}{', encoder=networks.linear' if linear else ''})"
    estimator += ".fit(X, nuisance, given=label)" if confounded or given is not None else ""
    notes: tuple[str, ...] = ()
    if n_components is None:
        notes = (_left(n_directions, *told, d),)
    if linear:
        notes += ("the nuisance moves means at most, as far as can be seen: a linear encoder will do.",)
    else:
        notes += ("a linear code cannot be blind, since " + _why(seen, theory.NUISANCE_VMF),)
    return Plan(estimator, theorem, d, verdicts, (*needs, *_general(verdicts)), notes=notes)


def _as_fitted(rows: Matrix, nuisance: Any, given: Any, *, linear: bool) -> Forget | None:
    """Return the estimator as it is before its first step, when it has counted its codes; None if it would refuse."""
    forget = Forget(encoder=networks.linear if linear else networks.unfolded, verbose=False, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # the verdicts say it
        try:
            forget._draw(rows, (nuisance, given), torch.device("cpu"))
        except ValueError:  # and this
            return None
    return forget


def _left(n_directions: int, n_means: int, n_spreads: int, d: int) -> str:
    told = f"the means of the nuisance differ in {n_means or 'none'} of {counted(n_directions, 'dimension')}"
    told += f", covariances in {n_spreads} more" if n_spreads else ""
    left = max(0, n_directions - n_means - n_spreads)
    if d <= left:
        return f"{told}, and {d} {'is' if d == 1 else 'are'} left."
    kept = f"{counted(d, 'code')} {'is' if d == 1 else 'are'} kept that may tell it"
    return f"{told}: {left or 'none'} {'is' if left < 2 else 'are'} left, and {kept}."


def _to_find_structure(rows: Matrix, n_components: int | None) -> Plan:
    d, notes = _or_directions(rows, n_components)
    notes += ("whether the support is diverse, and its variables bent enough, shows after training: see the audit.",)
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
    return d, (
        f"the data vary in {counted(d, 'direction')}, the most latents there can be if the mixing is nearly linear.",
    )


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
