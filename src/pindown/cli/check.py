"""`pindown check` and `pindown plan`: what can be said of data before anything is trained."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pindown._names import counted, listed
from pindown.cli._answers import complain, console, grid, refusing, say, say_json, stopping, waiting
from pindown.cli._choices import (
    COMPONENTS,
    DATA,
    DROP,
    FEATURES,
    GIVEN,
    GROUP,
    JSON,
    NUISANCE,
    OPTION,
    PAIRS,
    SIGNAL,
    columns,
    named,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pindown.data import Data
    from pindown.planning import Plan
    from pindown.runs import Recipe
    from pindown.tables import Columns


Answer = Callable[["_Seen", int | None, bool], None]
"""What a command says of data: given what was looked at, the number of components asked for, and whether as JSON."""


def _of_data(answer: Answer) -> Callable[..., None]:
    """Turn an answer into a command, with the options that say which column is what."""

    def command(
        data: DATA,
        signal: SIGNAL = None,
        nuisance: NUISANCE = None,
        pairs: PAIRS = None,
        group: GROUP = None,
        given: GIVEN = None,
        features: FEATURES = None,
        drop: DROP = None,
        components: COMPONENTS = None,
        option: OPTION = None,
        as_json: JSON = False,
    ) -> None:
        chosen = columns(
            signal=signal, nuisance=nuisance, pairs=pairs, group=group, given=given, features=features, drop=drop
        )
        answer(_look(data, chosen, option), components, as_json)

    command.__doc__ = answer.__doc__
    return command


@_of_data
def check_data(seen: _Seen, components: int | None, as_json: bool) -> None:
    """Say before training whether a theorem can apply to these data: a verdict for each condition."""
    with stopping("nothing was written."), refusing(ValueError), waiting(f"Checking {seen.data.name}"):
        from pindown.checks import before
        from pindown.runs.recipe import rows_to_audit, sides

        d = seen.plan(None).n_components if components is None else components
        verdicts = (
            *before(seen.some.X, d, **sides(seen.some, seen.recipe)),
            rows_to_audit(seen.study, seen.recipe),
        )
    if as_json:
        from pindown.report.audit import plain

        named = [{"condition": verdict.name, **plain(verdict)} for verdict in verdicts]
        say_json({**seen.summary(), "n_components": d, "verdicts": named})
        return
    seen.introduce()
    console().print(grid([(verdict.outcome, f"{verdict.name}: {verdict.why}") for verdict in verdicts]))


@_of_data
def plan_fit(seen: _Seen, components: int | None, as_json: bool) -> None:
    """Say which estimator suits these data, which theorem would speak of it, and what is missing."""
    with stopping("nothing was written."), refusing(ValueError), waiting(f"Planning for {seen.data.name}"):
        found = seen.plan(components)
    command = seen.command(found.n_components)
    if as_json:
        from pindown.report.audit import plain

        say_json({**seen.summary(), "outcome": found.outcome, **plain(found), "command": command})
        return
    seen.introduce()
    say(found.told_of(f"{seen.recipe.estimator}, {counted(found.n_components, 'component')}"))
    if command is not None:
        say(f"To fit it: {command}")


@dataclass(frozen=True, eq=False)
class _Seen:
    """A study, and the sample of its rows that is looked at."""

    data: Path
    columns: Columns
    recipe: Recipe
    study: Data
    some: Data

    def plan(self, n_components: int | None) -> Plan:
        from pindown.runs.recipe import look

        return look(self.study, replace(self.recipe, n_components=n_components))

    def summary(self) -> dict[str, Any]:
        return {"data": str(self.data), "n_rows": len(self.some), "n_features": self.some.X.shape[1]}

    def introduce(self) -> None:
        say(f"{self.data}: {counted(len(self.some), 'row')} looked at, observed variables {listed(self.study.names)}")

    def command(self, n_components: int) -> str | None:
        """Return the fit that a plan leads to; None if a side variable has to be chosen first."""
        from pindown.runs import estimator_for

        try:
            estimator_for(self.columns)
        except ValueError:
            return None
        words = ["pindown", "fit", str(self.data)]
        for name, value in self.columns.as_dict().items():
            for part in value if isinstance(value, list) else [value]:
                words += [f"--{name}", part]
        for name, text in self.recipe.options.items():
            words += ["--option", f"{name}={text}"]
        return shlex.join([*words, "-d", str(n_components), "-o", "run"])


def _look(data: Path, chosen: Columns, option: list[str] | None) -> _Seen:
    with stopping("nothing was written."), refusing(ValueError, OSError):
        source = named(data, chosen)
        from pindown.runs import Recipe, estimator_for, read_options
        from pindown.runs.recipe import ESTIMATORS, LOOKED_AT
        from pindown.tables import read_data

        # Beside a nuisance a signal is looked at, too; a fit would ask to choose.
        name = "Forget" if chosen.nuisance else "Contrast" if chosen.pairs else estimator_for(chosen)
        recipe = Recipe(name, options=read_options(option or (), ESTIMATORS[name]))
        study = read_data(source, chosen)
        for note in study.notes:
            complain(note)
        return _Seen(data, chosen, recipe, study, study.sample(LOOKED_AT))
