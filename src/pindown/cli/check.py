"""`pindown check` and `pindown plan`: what can be said of data before anything is trained."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pindown._names import counted
from pindown.cli.fit import describe, read_dataset
from pindown.cli.messages import console, grid, interruptible, print_json, print_text, spinner, user_errors
from pindown.cli.options import (
    DATA,
    JSON,
    ColumnOptions,
    LabelledImageOptions,
    MethodOptions,
    Request,
    read_request,
    with_options,
)

if TYPE_CHECKING:
    from pindown.data.data import Data
    from pindown.methods.base import BaseEncoder
    from pindown.methods.planning import Plan


@with_options
def check_data(
    data: DATA,
    columns: ColumnOptions,
    images: LabelledImageOptions,
    method: MethodOptions,
    as_json: JSON = False,
) -> None:
    """Check before training whether a theorem can apply to the data: a verdict for each condition."""
    seen = _read(data, columns, images, method)
    from pindown.auditing.refits import can_split

    with interruptible("nothing was written."), user_errors(ValueError), spinner(f"Checking {data.name}"):
        est = seen.estimator
        d = seen.plan(None).n_components if seen.n_components is None else seen.n_components
        verdicts = (*est.spec.checks_before(est, seen.sample, d, seen.sample), can_split(est, seen.dataset))
    if as_json:
        from pindown.auditing.result import plain

        found = [{"condition": verdict.name, **plain(verdict)} for verdict in verdicts]
        print_json({**seen.summary(), "n_components": d, "verdicts": found})
        return
    seen.introduce()
    if preprocessing := est.fitted_preprocessing(seen.sample.X).note:
        print_text(f"before training {preprocessing}")
    console().print(grid([(verdict.outcome, f"{verdict.name}: {verdict.why}") for verdict in verdicts]))


@with_options
def plan_fit(
    data: DATA,
    columns: ColumnOptions,
    images: LabelledImageOptions,
    method: MethodOptions,
    as_json: JSON = False,
) -> None:
    """Name the estimator that suits the data, the theorem that applies to it, and what is missing."""
    seen = _read(data, columns, images, method)
    with interruptible("nothing was written."), user_errors(ValueError), spinner(f"Planning for {data.name}"):
        found = seen.plan(seen.n_components)
    command = seen.fit_command(found.n_components)
    if as_json:
        from pindown.auditing.result import plain

        print_json({**seen.summary(), "outcome": found.outcome, **plain(found), "command": command})
        return
    seen.introduce()
    print_text(found.described(f"{type(seen.estimator).__name__}, {counted(found.n_components, 'latent')}"))
    if command is not None:
        print_text(f"To fit it: {command}")


@dataclass(frozen=True, eq=False)
class _Seen:
    """Data that were read, the sample of them that is checked, and the estimator."""

    path: Path
    request: Request
    n_components: int | None
    asked: str | None  # the estimator that the user named
    estimator: BaseEncoder
    dataset: Data
    sample: Data

    def plan(self, n_components: int | None) -> Plan:
        from pindown.runs.recipe import look

        return look(self.dataset, self.estimator, n_components)

    def summary(self) -> dict[str, Any]:
        return {"data": str(self.path), "n_samples": len(self.sample), "n_features": self.sample.n_features}

    def introduce(self) -> None:
        what = describe(self.dataset)
        of = what if self.dataset.is_source else f"observed variables {what}"
        print_text(f"{self.path}: {counted(len(self.sample), 'sample')}, {of}")

    def fit_command(self, n_components: int) -> str | None:
        """Return the fit that a plan leads to; None if a side variable has to be chosen first."""
        from pindown.runs import estimator_for

        try:
            estimator_for(self.request.columns, self.asked)
        except ValueError:
            return None
        words = ["pindown", "fit", str(self.path)]
        words += [] if self.asked is None else ["--estimator", self.asked]
        for name, value in {**self.request.columns.as_dict(), **self.request.image_options}.items():
            option = f"--{name.replace('_', '-')}"
            if name == "size":
                words += [option, "x".join(map(str, value))]
            elif value is True:
                words += [option]
            else:
                for part in value if isinstance(value, list) else [value]:
                    words += [option, str(part)]
        for name, text in self.request.recipe.options.items():
            words += ["--option", f"{name}={text}"]
        return shlex.join([*words, "-d", str(n_components), "-o", "run"])


def _read(data: Path, columns: ColumnOptions, images: LabelledImageOptions, method: MethodOptions) -> _Seen:
    with interruptible("nothing was written."), user_errors(ValueError, OSError, of_estimator=data.is_dir()):
        request = read_request(data, columns, images, method, fitted=False)
        from pindown.runs.recipe import looked_at

        dataset = read_dataset(request)
        recipe = replace(request.recipe, n_components=None)
        sample = dataset.sample(looked_at(dataset))
        sample = sample.take(range(len(sample))) if sample.is_source else sample
        asked = method.resolved().estimator
        estimator = recipe.build()
        return _Seen(data, request, request.recipe.n_components, asked, estimator, dataset, sample)
