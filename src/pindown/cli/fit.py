"""`pindown fit`: from a data file to a run."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pindown._names import counted
from pindown.cli.messages import (
    all_as_options,
    as_options,
    command_line,
    formulas_checked,
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
    DEVICE,
    JSON,
    QUOTE_FORMULAS,
    ColumnOptions,
    LabelledImageOptions,
    MethodOptions,
    Request,
    read_request,
    with_options,
)

if TYPE_CHECKING:
    from pindown.data.data import Data
    from pindown.runs import Place, Run


@with_options
def fit_data(
    data: DATA,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run, to be made.", show_default=False)],
    columns: ColumnOptions,
    images: LabelledImageOptions,
    method: MethodOptions,
    folds: Annotated[
        int, typer.Option(min=0, help="If there is a label, encode each sample by a refit without it; 0: by the fit.")
    ] = 4,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps. By default the estimator's.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same latents.")] = 0,
    device: DEVICE = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that exists.")] = False,
    quote_formulas: QUOTE_FORMULAS = False,
    as_json: JSON = False,
) -> None:
    """Fit an encoder, and write it with all that belongs to it to a folder.

    The side variable chooses the estimator: --nuisance leads to Forget, --pairs to Contrast, --signal to Classify, and
    none to Dictionary; --estimator names another, and --sparse N a sparse dictionary. After a kill at any moment,
    the same command resumes. With several GPUs: torchrun -m -- pindown fit …
    """
    hold = ExitStack()
    with interruptible("nothing was written."), user_errors(ValueError, OSError, of_estimator=data.is_dir()):
        request = read_request(data, columns, images, method, steps=steps, seed=seed)
        from pindown.runs import Place

        place = Place(output)
        with _first_process_decides() as first:
            if first:
                dataset, run = _begin(request, place, hold, device=device, force=force)
            else:
                dataset, run = read_dataset(request), place.under_way()
    with hold:
        n_folds = 0 if dataset.is_source else folds
        scores = _train(place, dataset, run, device, n_folds, quote_formulas=quote_formulas)
    if as_json:
        print_json({"run": str(output), **scores})
        return
    print_text(f"{scores['estimator']}: {counted(scores['n_components'], 'latent')} of {describe(dataset)}")
    n_samples, n_steps = counted(scores["n_samples"], "sample"), counted(scores["n_steps"], "step")
    print_text(f"{n_samples}, {n_steps}, loss {scores['loss']:.4g}")
    print_text(_describe_score(scores["score"]))
    print_text(f"The run: {output}. Which claims are supported: {shlex.join(['pindown', 'audit', str(output)])}")


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


def read_dataset(request: Request) -> Data:
    """Read the data of a command, and print what was left out."""
    from pindown.runs.inputs import read

    dataset = read(request.source, request.columns, measured=not request.kind.spec.roles.categorical)
    for note in dataset.notes:
        print_warning(note)
    return dataset


def describe(dataset: Data) -> str:
    """Return what the data are, in a few words: names of columns, or what a folder holds."""
    from pindown._names import listed

    if not dataset.is_source:
        return listed(dataset.names)
    shape = dataset.X.shape
    return f"images of {' × '.join(map(str, shape))}" if len(shape) > 1 else counted(shape[0], "activation")


def _begin(request: Request, place: Place, hold: ExitStack, *, device: str | None, force: bool) -> tuple[Data, Run]:
    """Check all that can be checked before training, then make and lock the folder, or the one to resume."""
    import numpy as np

    from pindown.errors import InputError
    from pindown.methods.parameters import INJECTIVE
    from pindown.runs import planned
    from pindown.runs.inputs import fingerprint
    from pindown.training import best_device

    recipe, columns, images = request.recipe, request.columns, request.image_options
    place.check(force=force)
    with user_errors(ValueError, of_estimator=True), warnings.catch_warnings(action="ignore"):  # the fit warns again
        theorem = recipe.build().guarantee
    if device is not None:
        best_device(device)
    dataset = read_dataset(request)
    injective = theorem is not None and INJECTIVE & {*theorem.assumes}
    if injective and recipe.n_components is not None and recipe.n_components > dataset.n_features:
        raise InputError(
            "n_components",
            f"`n_components={recipe.n_components}`, but there are {counted(dataset.n_features, 'observed variable')}. "
            "An injective mixing needs as many observed variables as latents: take at most as many.",
        )
    wanted = {"data": fingerprint(request.source), "columns": columns.as_dict(), **recipe.as_dict()}
    wanted |= {"pictures": images} if images else {}
    run = place.begun(wanted, force=force)
    if run is not None:
        hold.enter_context(place.held())
        if run.recipe.estimator != recipe.estimator:
            raise InputError("output", f"{run.path} is damaged: delete it.")
        print_warning(f"resuming {run.path}.")
        run.log("resumed")
        return dataset, run
    with spinner(f"Planning for {request.source.path.name}"):
        recipe, notes = planned(recipe, dataset)
    notes = tuple(map(all_as_options, notes))
    for note in notes:
        print_warning(note)
    medians = dict(zip(dataset.names, np.median(dataset.X, axis=0).tolist(), strict=True)) if columns.impute else {}
    record = {
        "command": command_line(),
        "data": {"path": str(request.source.path.resolve()), "sha256": wanted["data"], "n_samples": len(dataset)},
        "columns": {**columns.as_dict(), "features": list(dataset.names), "drop": []},
        "recipe": recipe.as_dict(),
        **({"pictures": images} if images else {}),
        **({"medians": medians} if medians else {}),
        "asked": wanted,
        "notes": [as_options(note) for note in (*dataset.notes, *notes)],
    }
    run = hold.enter_context(place.begun_alone(record, force=force))  # planning took seconds
    run.log(f"begun: {record['command']}")
    return dataset, run


def _train(
    place: Place, dataset: Data, run: Run, device: str | None, folds: int, *, quote_formulas: bool
) -> dict[str, Any]:
    """Train and, in the first process, write the result; a fit that fails leaves nothing behind."""
    from scipy.sparse import issparse

    from pindown._files import write_json
    from pindown.data.tables import write_latents
    from pindown.runs.folder import ESTIMATOR, LATENTS, SCORES, SPARSE_LATENTS
    from pindown.runs.recipe import fit, scores
    from pindown.training.divergence import TrainingDivergedError

    resumes = f"the same command resumes: {run.record['command']}"
    with (
        interruptible(resumes, diverged="Nothing was kept of this fit."),
        user_errors(ValueError, of_estimator=True),
        user_errors(OSError, then=f"When that is fixed, {resumes}"),
        _recorded_warnings(run) as recorded,
    ):
        try:
            estimator = run.recipe.build(checkpoint=run.checkpoint, device=device, verbose=True)
            fit(estimator, dataset)
        except (ValueError, TrainingDivergedError) as error:
            # A checkpoint is kept, unless the fit would only diverge again.
            if isinstance(error, TrainingDivergedError) or not any(run.checkpoint.parent.glob("*")):
                place.give_up()
            raise
        latents, beside = _encode(estimator, dataset, folds)
        found = {**scores(estimator, dataset), "warnings": recorded}
        if not is_first_process():
            return found
        estimator.save(run.path / ESTIMATOR)
        names = [str(name) for name in estimator.get_feature_names_out()]
        beside = formulas_checked(beside, quote=quote_formulas)
        write_latents(run.path / (SPARSE_LATENTS if issparse(latents) else LATENTS), latents, names, beside)
        write_json(run.path / SCORES, found)
        run.log("fitted")
        place.finish()
    return found


def _encode(estimator: Any, dataset: Data, folds: int) -> tuple[Any, dict[str, Any]]:
    """Return the latents of the samples, and the columns to write next to them: ids, and who encoded a sample.

    An encoder can memorise the labels it is fitted to. So where there are labels, refits encode samples that they have
    not seen.
    """
    import numpy as np

    from pindown.methods import out_of_fold

    beside = {} if dataset.ids is None else {dataset.id_name: dataset.ids}
    if folds and (dataset.signal is not None or dataset.given is not None):
        try:
            with spinner(f"Refitting {folds} times, to encode samples that were not seen"):
                latents, fold = out_of_fold(
                    estimator, dataset.only(*estimator.spec.roles.used, "groups"), n_folds=folds
                )
        except ValueError as error:
            print_warning(f"latents.csv has samples that the fit has seen: {all_as_options(str(error))}")
        else:
            print_warning(
                "the fit uses a label, so in latents.csv each sample is encoded by a refit that has not seen it "
                f"({folds} folds, --folds)."
            )
            return latents, {**beside, "fold": fold}
    return estimator.spec.latents(estimator, dataset), {**beside, "seen": np.ones(len(dataset), dtype=np.int64)}


@contextmanager
def _recorded_warnings(run: Run) -> Iterator[list[str]]:
    """Print the warnings of the estimator, log them, and yield the list of them."""
    from sklearn.exceptions import ConvergenceWarning

    from pindown.errors import IdentifiabilityWarning

    ours = IdentifiabilityWarning, ConvergenceWarning
    recorded: list[str] = []
    with warnings.catch_warnings():
        for kind in ours:
            warnings.simplefilter("always", kind)
        others = warnings.showwarning

        def record(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, ours):
                others(message, category, *where)
            elif str(message) not in recorded:
                recorded.append(str(message))
                print_warning(all_as_options(str(message)))
                run.log(f"warned: {message}")

        warnings.showwarning = record  # type: ignore[assignment]
        yield recorded


def _describe_score(score: dict[str, Any]) -> str:
    from pindown.auditing.page import shown

    if score["value"] is None:
        return f"{score['name']}: too few samples for a validation set. `pindown audit` measures it."
    chance = "" if score["chance"] is None else f" (chance {shown(score['chance'], 3)})"
    return f"{score['name']}, on samples {score['rows']}: {shown(score['value'], 3)}{chance}"
