"""`pindown check`, `pindown plan` and `pindown fit`: from a data file to a run."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pindown._names import counted, listed
from pindown.cli.messages import (
    command_line,
    console,
    formulas_checked,
    grid,
    interruptible,
    is_first_process,
    print_json,
    print_text,
    print_warning,
    spinner,
    user_errors,
)
from pindown.cli.options import (
    DATA,
    JSON,
    ColumnOptions,
    LabelledImageOptions,
    MethodOptions,
    OutputOptions,
    TrainingOptions,
    read_request,
    with_options,
)

if TYPE_CHECKING:
    from pindown.data.data import Data
    from pindown.runs import FitRequest, Place, Run

    Scores = dict[str, Any]


@with_options
def check_data(
    data: DATA, columns: ColumnOptions, images: LabelledImageOptions, method: MethodOptions, as_json: JSON = False
) -> None:
    """Check before training whether a theorem can apply to the data: a verdict for each condition."""
    request = _unfitted(data, columns, images, method)
    from pindown.auditing.result import plain

    with interruptible("nothing was written."), user_errors(ValueError), spinner(f"Checking {data.name}"):
        estimator, sample = request.estimator, request.sample
        d = request.plan.n_components
        verdicts = (*estimator.spec.checks_before(estimator, sample, d, sample), request.audited)
        notes = [note for note in request.plan.notes if note.startswith("before training")]
    if as_json:
        found = [{"condition": verdict.name, **plain(verdict)} for verdict in verdicts]
        print_json({**_summary(data, request), "n_components": d, "verdicts": found})
        return
    _introduce(data, request)
    for note in notes:
        print_text(note)
    console().print(grid([(verdict.outcome, f"{verdict.name}: {verdict.why}") for verdict in verdicts]))


@with_options
def plan_fit(
    data: DATA, columns: ColumnOptions, images: LabelledImageOptions, method: MethodOptions, as_json: JSON = False
) -> None:
    """Name the estimator that suits the data, the theorem that applies to it, and what is missing."""
    request = _unfitted(data, columns, images, method)
    from pindown.auditing.result import plain

    with interruptible("nothing was written."), user_errors(ValueError), spinner(f"Planning for {data.name}"):
        found = request.plan
    command = _fit_command(data, request, method.name, found.n_components)
    if as_json:
        print_json({**_summary(data, request), "outcome": found.outcome, **plain(found), "command": command})
        return
    _introduce(data, request)
    print_text(found.described(f"{type(request.estimator).__name__}, {counted(found.n_components, 'latent')}"))
    if command is not None:
        print_text(f"To fit it: {command}")


def _unfitted(data: Path, columns: ColumnOptions, images: LabelledImageOptions, method: MethodOptions) -> FitRequest:
    """Return what to check or plan for, with the number of latents left open, and print the notes on the data."""
    with interruptible("nothing was written."), user_errors(ValueError, OSError):
        request = read_request(data, columns, images, method, fitted=False)
        for note in request.data.notes:
            print_warning(note)
        _ = request.estimator
    return request


def _summary(path: Path, request: FitRequest) -> dict[str, Any]:
    return {"data": str(path), "n_samples": len(request.sample), "n_features": request.sample.n_features}


def _introduce(path: Path, request: FitRequest) -> None:
    of = describe(request.data) if request.data.is_source else f"observed variables {describe(request.data)}"
    print_text(f"{path}: {counted(len(request.sample), 'sample')}, {of}")


def describe(data: Data) -> str:
    """Return what the data are, in a few words: names of columns, or what a folder holds."""
    if not data.is_source:
        return listed(data.names)
    shape = data.X.shape
    return f"images of {' × '.join(map(str, shape))}" if len(shape) > 1 else counted(shape[0], "activation")


def _fit_command(path: Path, request: FitRequest, estimator: str | None, n_components: int) -> str | None:
    """Return the fit that a plan leads to; None if a side variable has to be chosen first."""
    from pindown.runs import estimator_for

    try:
        estimator_for(request.columns, estimator)
    except ValueError:
        return None
    words = ["pindown", "fit", str(path), *([] if estimator is None else ["--estimator", estimator])]
    options = [f"{name}={text}" for name, text in request.recipe.options.items()]
    for name, value in {**request.columns.as_dict(), **request.image_options, "option": options}.items():
        values = ["x".join(map(str, value))] if name == "size" else value if isinstance(value, list) else [value]
        for part in values:
            words += [f"--{name.replace('_', '-')}", *([] if part is True else [str(part)])]
    return shlex.join([*words, "-d", str(n_components), "-o", "run"])


@with_options
def fit_data(
    data: DATA,
    output: OutputOptions,
    columns: ColumnOptions,
    images: LabelledImageOptions,
    method: MethodOptions,
    training: TrainingOptions,
    as_json: JSON = False,
) -> None:
    """Fit an encoder, and write it with all that belongs to it to a folder.

    The side variable chooses the estimator: --nuisance leads to Forget, --pairs to Contrast, --signal to Classify, and
    none to Dictionary; --estimator names another, and --sparse N a sparse dictionary. After a kill at any moment,
    the same command resumes. With several GPUs: torchrun -m -- pindown fit …
    """
    with ExitStack() as hold:
        with interruptible("nothing was written."), user_errors(ValueError, OSError):
            request = read_request(data, columns, images, method, steps=training.steps, seed=training.seed)
            from pindown.runs import Place

            place = Place(output.output)
            with _first_process_decides() as first:
                run = _begin(request, place, training, output, hold) if first else place.under_way()
        scores = _fit(place, request, run, training, output)
    if as_json:
        print_json({"run": str(output.output), **scores})
        return
    print_text(f"{scores['estimator']}: {counted(scores['n_components'], 'latent')} of {describe(request.data)}")
    print_text(f"{counted(scores['n_samples'], 'sample')}, {_describe_steps(scores)}")
    print_text(_describe_score(scores["score"]))
    command = shlex.join(["pindown", "audit", str(output.output)])
    print_text(f"The run: {output.output}. Which claims are supported: {command}")


@contextmanager
def _first_process_decides() -> Iterator[bool]:
    """Yield whether this is the first process; the others wait for it, and exit if it fails."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield True
        return
    from accelerate.utils import broadcast_object_list

    from pindown.training.devices import processes

    processes()  # makes them one group
    if not is_first_process():
        if broadcast_object_list([None]) != ["begun"]:
            raise typer.Exit(2)
        yield False
        return
    try:
        yield True
    except BaseException:
        broadcast_object_list(["failed"])
        raise
    broadcast_object_list(["begun"])


def _begin(request: FitRequest, place: Place, training: TrainingOptions, output: OutputOptions, hold: ExitStack) -> Run:
    """Check all that can be checked before training, then begin or resume the run; ``hold`` keeps its place."""
    from pindown.training import best_device

    place.check(force=output.force)
    with warnings.catch_warnings(action="ignore"):  # the fit warns again
        _ = request.estimator.guarantee
    if training.device is not None:
        best_device(training.device)
    for note in request.data.notes:
        print_warning(note)
    with spinner(f"Planning for {request.source.path.name}"):
        run, resumed = hold.enter_context(request.begun(place, command_line(), force=output.force))
    for note in [f"resuming {run.path}."] if resumed else run.record["notes"][len(request.data.notes) :]:
        print_warning(note)
    return run


def _fit(place: Place, request: FitRequest, run: Run, training: TrainingOptions, output: OutputOptions) -> Scores:
    """Train and, in the first process, write the result."""
    from pindown.runs.fitting import encode, finish, scores, train

    resumes = f"the same command resumes: {run.record['command']}"
    with (
        interruptible(resumes, diverged="Nothing was kept of this fit."),
        user_errors(ValueError),
        user_errors(OSError, then=f"When that is fixed, {resumes}"),
        _recorded_warnings(run, request.columns.nuisance) as recorded,
    ):
        estimator, data = train(place, run, request, device=training.device), request.data
        with spinner("Encoding the samples"):
            encoded = encode(estimator, data, 0 if data.is_source else training.folds)
        for note in encoded.notes:
            print_warning(note)
        found = {**scores(estimator, data), "warnings": recorded}
        if is_first_process():
            columns = formulas_checked(encoded.columns, quote=output.quote_formulas)
            finish(place, run, request.source, estimator, replace(encoded, columns=columns), found)
    return found


@contextmanager
def _recorded_warnings(run: Run, columns: Sequence[str]) -> Iterator[list[str]]:
    """Print the warnings of the estimator in the names of the file, log them, and yield the list of them."""
    from sklearn.exceptions import ConvergenceWarning

    from pindown.errors import IdentifiabilityWarning

    ours = IdentifiabilityWarning, ConvergenceWarning
    recorded: list[str] = []
    nuisance = listed(columns) if columns else "the nuisance"
    with warnings.catch_warnings():
        for kind in ours:
            warnings.simplefilter("always", kind)
        others = warnings.showwarning

        def record(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, ours):
                others(message, category, *where)
            elif (text := str(message).replace("the nuisance", nuisance)) not in recorded:
                recorded.append(text)
                print_warning(text)
                run.log(f"warned: {text}")

        warnings.showwarning = record  # type: ignore[assignment]
        yield recorded


def _describe_steps(scores: Scores) -> str:
    """Return how many steps a fit made, how many it could have made, and the loss; a closed form takes no steps.

    Examples
    --------
    >>> _describe_steps({"n_steps": 75, "max_steps": 300, "n_restarts": 1, "loss": 0.5})
    '75 of 300 steps, loss 0.5'
    >>> _describe_steps({"n_steps": 402, "max_steps": 300, "n_restarts": 2, "loss": 0.5})
    '402 steps in 2 restarts of at most 300, loss 0.5'
    """
    made, most, loss = scores["n_steps"], scores["max_steps"], f", loss {scores['loss']:.4g}"
    if made == 1 and most != 1:
        return "in closed form"
    if most is not None and made < most:
        return f"{made:,} of {counted(most, 'step')}{loss}"
    restarts = "" if made == most or most is None else f" in {scores['n_restarts']} restarts of at most {most:,}"
    return f"{counted(made, 'step')}{restarts}{loss}"


def _describe_score(score: Scores) -> str:
    from pindown.auditing.page import shown

    if score["value"] is None:
        return f"{score['name']}: too few samples for a validation set. `pindown audit` measures it."
    chance = "" if score["chance"] is None else f" (chance {shown(score['chance'], 3)})"
    return f"{score['name']}, on samples {score['rows']}: {shown(score['value'], 3)}{chance}"
