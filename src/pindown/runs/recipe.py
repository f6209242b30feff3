"""From data and wishes to an estimator: which one, with how many components, in which space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown import theory
from pindown._names import counted
from pindown.checks import Verdict, divisible_rows
from pindown.data import Data
from pindown.estimators import Classify, Contrast, Dictionary, Forget
from pindown.estimators.base import BaseEncoder
from pindown.planning import Plan, plan
from pindown.report.refits import joint_label
from pindown.runs.options import read_value
from pindown.tables import Columns

ESTIMATORS: Mapping[str, type[BaseEncoder]] = {kind.__name__: kind for kind in (Contrast, Classify, Forget, Dictionary)}

LOOKED_AT = 20_000
"""Rows that a plan looks at: more would take minutes, and change little."""

ON_A_LINE = {
    "Contrast": {"space": "Reals()"},
    "Classify": {"space": "Reals()", "vector_space": "Reals()"},
}
"""Options for one component: the sphere of one dimension is two points."""

BINS = 8
"""Bins of a nuisance that is a quantity, where nothing else is said."""


@dataclass(frozen=True)
class Recipe:
    """An estimator and its parameters, as text and numbers.

    Parameters
    ----------
    estimator : str
        Its name.
    n_components, max_iter : int or None
        None: what the plan says, or the estimator's own default.
    seed : int
        Its random state.
    options : mapping of str to str
        Other parameters, as `options.read_value` reads them.
    """

    estimator: str
    n_components: int | None = None
    max_iter: int | None = None
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    def build(self, *, checkpoint: Path | None = None, device: str | None = None, verbose: bool = False) -> BaseEncoder:
        """Return the estimator, not fitted; raise if a parameter is wrong."""
        numbers = {"n_components": self.n_components, "max_iter": self.max_iter}
        parameters = {name: number for name, number in numbers.items() if number is not None}
        parameters |= {name: read_value(name, text) for name, text in self.options.items()}
        where = {"checkpoint": checkpoint, "device": device, "verbose": verbose, "random_state": self.seed}
        estimator = ESTIMATORS[self.estimator](**parameters, **where)
        try:
            estimator._checked_space()
        except TypeError as error:  # text for a number, or a network where there must be an optimiser
            raise ValueError(f"--option: {error}") from error
        return estimator

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, as JSON has them."""
        return asdict(self)


def estimator_for(columns: Columns) -> str:
    """Return the name of the estimator that these columns lead to, as `pindown.plan` does.

    Examples
    --------
    >>> estimator_for(Columns(nuisance=("batch",))), estimator_for(Columns())
    ('Forget', 'Dictionary')
    """
    columns.refuse_two_parts()
    given = [name for name in ("nuisance", "pairs", "signal") if getattr(columns, name)]
    if columns.given and not columns.nuisance:
        raise ValueError(
            f"--given {columns.given} is a label within which a nuisance is forgotten, but there is no --nuisance. "
            "Name one, or take --signal if the label is to be learned from."
        )
    if given[:2] == ["nuisance", "signal"]:
        raise ValueError(
            "a fit that forgets --nuisance learns nothing from --signal. If it must survive, take --given "
            f"{columns.signal[0]}; otherwise leave it out. (check and plan look at both.)"
        )
    if len(given) > 1:
        both = " and ".join(f"--{name}" for name in given)
        raise ValueError(f"a fit learns from one side variable, but {both} were given: choose one.")
    return {"nuisance": "Forget", "pairs": "Contrast", "signal": "Classify"}[given[0]] if given else "Dictionary"


def planned(recipe: Recipe, study: Data) -> tuple[Recipe, tuple[str, ...]]:
    """Return the recipe with what was left open filled in, and notes that say what was decided.

    A nuisance with fractions is a quantity, cut into bins. An encoder of `Forget` is linear where the data do not speak
    against it. The number of components is the one of `pindown.plan`, but for `Forget`, which counts by itself. A
    single one is looked for on a line. If an audit would refuse the rows, it is said before they are fitted to.
    """
    recipe, notes = _decided(recipe, study)
    audited = rows_to_audit(study, recipe)
    return recipe, notes if audited.outcome == "holds" else (*notes, audited.why)


def _decided(recipe: Recipe, study: Data) -> tuple[Recipe, tuple[str, ...]]:
    notes: tuple[str, ...] = ()
    if recipe.estimator == "Forget":
        recipe, notes = _with_bins(recipe, study)
        if "encoder" in recipe.options:
            return recipe, notes
        found = look(study, recipe)
        if found.theorem is theory.FORGET:
            recipe = replace(recipe, options={**recipe.options, "encoder": "linear"})
            notes += (
                "the nuisance moves means at most, as far as can be seen: a linear encoder (--option encoder=…).",
            )
        return recipe, (*notes, *_against(found))
    if recipe.n_components is None:
        found = look(study, recipe)
        recipe = replace(recipe, n_components=found.n_components)
        number = counted(found.n_components, "component")
        notes += (f"{number}: {found.notes[0].rstrip('.')} (-d asks for another number).",)
        notes += _against(found)
    if recipe.n_components == 1 and recipe.estimator in ON_A_LINE and "space" not in recipe.options:
        recipe = replace(recipe, options=ON_A_LINE[recipe.estimator] | {**recipe.options})
        notes += ("one component is looked for on a line, since the sphere of one dimension is two points.",)
    return recipe, notes


def _against(found: Plan) -> tuple[str, ...]:
    """Return what stands against a theorem before anything is trained."""
    return tuple(f"{verdict.name} fails: {verdict.why}" for verdict in found.verdicts if verdict.outcome == "fails")


def look(study: Data, recipe: Recipe) -> Plan:
    """Return the plan for a study, from a sample of its rows if there are many; an audit divides all of them."""
    some = study.sample(LOOKED_AT)
    found = plan(some.X, **sides(some, recipe), given=some.given, groups=some.groups, n_components=recipe.n_components)
    audited = rows_to_audit(study, recipe)
    needs = [need for need in found.needs if need != rows_to_audit(some, recipe).why]
    return replace(found, needs=(*needs, *([audited.why] if audited.outcome != "holds" else [])))


def rows_to_audit(study: Data, recipe: Recipe) -> Verdict:
    """Say whether an audit can divide the rows of a study: count them all, a sample has fewer of each value."""
    nuisance = None if study.nuisance is None else sides(study, recipe)["nuisance"]
    return divisible_rows(len(study), groups=study.groups, nuisance=nuisance)


def sides(study: Data, recipe: Recipe) -> dict[str, NDArray[Any] | None]:
    """Return the side variables as `pindown.plan` takes them: several columns of a nuisance as one label."""
    nuisance = study.nuisance
    if nuisance is not None:
        forget = _with_bins(recipe, study)[0].build()
        assert isinstance(forget, Forget)
        nuisance = joint_label(forget, nuisance, len(study))
    signal = study.signal if study.signal is not None else study.given
    return {"signal": signal, "nuisance": nuisance, "pairs": study.paired().pairs}


def fit(estimator: BaseEncoder, study: Data) -> BaseEncoder:
    """Fit an estimator to the side variable that it learns from, or forgets."""
    if isinstance(estimator, Forget):
        return estimator.fit(study.X, study.nuisance, study.given)
    paired = study.paired() if study.groups is not None else study  # no partners across groups
    return estimator.fit(paired.X, side(estimator, paired))


def side(estimator: BaseEncoder, study: Data) -> NDArray[Any] | None:
    """Return what an estimator is given as ``y``; None also where each row's partner is the next row."""
    match estimator:
        case Forget():
            return study.nuisance
        case Contrast():
            return None if isinstance(study.pairs, str) else study.pairs
        case Classify():
            return study.signal
    return None


def _with_bins(recipe: Recipe, study: Data) -> tuple[Recipe, tuple[str, ...]]:
    columns = [np.array(column.tolist()) for column in np.atleast_2d(np.asarray(study.nuisance).T)]
    if "n_bins" in recipe.options or not any(map(_has_fractions, columns)):
        return recipe, ()
    if any(column.dtype.kind not in "buif" for column in columns):
        raise ValueError(
            "--nuisance: one column has fractions, another holds text, but a fit forgets quantities or labels. Cut "
            "the quantity into a few bins, in a column of its own."
        )
    note = f"the nuisance has fractions: a quantity, cut into {BINS} bins (--option n_bins={BINS})."
    return replace(recipe, options={**recipe.options, "n_bins": str(BINS)}), (note,)


def _has_fractions(column: NDArray[Any]) -> bool:
    return column.dtype.kind == "f" and bool((column != column.round()).any())
