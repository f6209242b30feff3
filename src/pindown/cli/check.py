"""`pindown check` and `pindown plan`: what can be said of data before anything is trained."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pindown._names import counted
from pindown.cli._answers import complain, console, grid, observed, refusing, say, say_json, stopping, waiting
from pindown.cli._choices import (
    BACKGROUND,
    CHANNELS,
    COMPONENTS,
    COUNTS,
    DATA,
    DROP,
    ESTIMATOR,
    FEATURES,
    GIVEN,
    GROUP,
    ID,
    IMPUTE,
    JSON,
    LABELS,
    NUISANCE,
    OPTION,
    PAIRS,
    PCA,
    SIGNAL,
    SIZE,
    SKIP_CORRUPT,
    SKIP_UNLABELLED,
    SPARSE,
    columns,
    in_full,
    named,
    parameters,
)
from pindown.cli.fit import NO_COUNT

if TYPE_CHECKING:
    from pathlib import Path

    from pindown.data.data import Data
    from pindown.data.tables import Columns
    from pindown.methods.base import BaseEncoder
    from pindown.methods.planning import Plan
    from pindown.runs import Recipe


Answer = Callable[["_Seen", int | None, bool], None]
"""What a command says of data: given what was looked at, the number of latents asked for, and whether as JSON."""


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
        id: ID = None,
        impute: IMPUTE = None,
        counts: COUNTS = False,
        pca: PCA = None,
        labels: LABELS = None,
        size: SIZE = None,
        channels: CHANNELS = None,
        background: BACKGROUND = None,
        skip_corrupt: SKIP_CORRUPT = False,
        skip_unlabelled: SKIP_UNLABELLED = False,
        components: COMPONENTS = None,
        sparse: SPARSE = None,
        estimator: ESTIMATOR = None,
        option: OPTION = None,
        as_json: JSON = False,
    ) -> None:
        chosen = columns(
            signal=signal,
            nuisance=nuisance,
            pairs=pairs,
            group=group,
            given=given,
            features=features,
            drop=drop,
            id=id,
            impute=impute,
            counts=counts,
        )
        options = {
            "labels": labels,
            "size": size,
            "channels": channels,
            "background": background,
            "skip_corrupt": skip_corrupt,
            "skip_unlabelled": skip_unlabelled,
        }
        with refusing(ValueError):
            estimator, components = in_full(sparse, estimator, components)
        answer(_look(data, chosen, options, estimator, parameters(option, pca), components), components, as_json)

    command.__doc__ = answer.__doc__
    return command


@_of_data
def check_data(seen: _Seen, components: int | None, as_json: bool) -> None:
    """Say before training whether a theorem can apply to these data: a verdict for each condition."""
    with stopping("nothing was written."), refusing(ValueError), waiting(f"Checking {seen.data.name}"):
        est = seen.estimator
        d = seen.plan(None).n_components if components is None else components
        verdicts = (*est.spec.checks_before(est, seen.some, d, seen.some), est.spec.can_audit(est, seen.study))
    if as_json:
        from pindown.auditing.result import plain

        named = [{"condition": verdict.name, **plain(verdict)} for verdict in verdicts]
        say_json({**seen.summary(), "n_components": d, "verdicts": named})
        return
    seen.introduce()
    if done := seen.estimator.shown(seen.some.X).note:
        say(f"before training {done}")
    console().print(grid([(verdict.outcome, f"{verdict.name}: {verdict.why}") for verdict in verdicts]))


@_of_data
def plan_fit(seen: _Seen, components: int | None, as_json: bool) -> None:
    """Say which estimator suits these data, which theorem would speak of it, and what is missing."""
    with stopping("nothing was written."), refusing(ValueError), waiting(f"Planning for {seen.data.name}"):
        found = seen.plan(components)
    command = seen.command(found.n_components)
    if as_json:
        from pindown.auditing.result import plain

        say_json({**seen.summary(), "outcome": found.outcome, **plain(found), "command": command})
        return
    seen.introduce()
    say(found.told_of(f"{type(seen.estimator).__name__}, {counted(found.n_components, 'latent')}"))
    if command is not None:
        say(f"To fit it: {command}")


@dataclass(frozen=True, eq=False)
class _Seen:
    """A study, and the sample of its rows that is looked at."""

    data: Path
    asked: str | None  # estimator
    columns: Columns
    recipe: Recipe
    estimator: BaseEncoder
    study: Data
    some: Data
    pictures: dict[str, Any]

    def plan(self, n_components: int | None) -> Plan:
        from pindown.runs.recipe import look

        return look(self.study, self.estimator, n_components)

    def summary(self) -> dict[str, Any]:
        return {"data": str(self.data), "n_samples": len(self.some), "n_features": self.some.n_features}

    def introduce(self) -> None:
        what = observed(self.study)
        of = what if self.study.is_source else f"observed variables {what}"
        say(f"{self.data}: {counted(len(self.some), 'row')} looked at, {of}")

    def command(self, n_components: int) -> str | None:
        """Return the fit that a plan leads to; None if a side variable has to be chosen first."""
        from pindown.runs import estimator_for

        try:
            estimator_for(self.columns, self.asked)
        except ValueError:
            return None
        words = ["pindown", "fit", str(self.data)]
        words += [] if self.asked is None else ["--estimator", self.asked]
        for name, value in self.columns.as_dict().items():
            for part in value if isinstance(value, list) else [value]:
                words += [f"--{name}"] if part is True else [f"--{name}", part]
        for name, value in self.pictures.items():
            shown = "x".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [shown])
        for name, text in self.recipe.options.items():
            words += ["--option", f"{name}={text}"]
        return shlex.join([*words, "-d", str(n_components), "-o", "run"])


def _look(
    data: Path,
    chosen: Columns,
    options: dict[str, Any],
    asked: str | None,
    option: list[str] | None,
    components: int | None,
) -> _Seen:
    with stopping("nothing was written."), refusing(ValueError, OSError, of_estimator=data.is_dir()):
        source = named(data, chosen, options)
        from pindown.methods.registry import find
        from pindown.runs import Recipe, estimator_for, read_options
        from pindown.runs.inputs import Images, read
        from pindown.runs.recipe import looked_at, readable

        name = estimator_for(chosen, asked, fitted=False)
        kind = find(name)
        recipe = Recipe(name, options=read_options(option or (), kind))
        study = read(source, chosen, measured=not kind.spec.labels)
        if isinstance(source, Images) and components is None:
            raise ValueError(NO_COUNT)
        for note in study.notes:
            complain(note)
        estimator = readable(recipe, study)[0].build()
        some = study.sample(looked_at(study))
        some = some.take(range(len(some))) if some.is_source else some
        asked_of = source.options.as_dict() if isinstance(source, Images) else {}
        return _Seen(data, asked, chosen, recipe, estimator, study, some, asked_of)
