"""`pindown fit`: from a data file to a run."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pindown._names import counted
from pindown.cli._answers import (
    complain,
    in_our_words,
    in_shell,
    is_first_process,
    observed,
    refusing,
    say,
    say_json,
    stopping,
    waiting,
    without_formulas,
)
from pindown.cli._choices import (
    BACKGROUND,
    CHANNELS,
    COMPONENTS,
    COUNTS,
    DATA,
    DEVICE,
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
    QUOTE_FORMULAS,
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

if TYPE_CHECKING:
    from pindown.data.data import Data
    from pindown.data.tables import Columns
    from pindown.runs import Place, Recipe, Run
    from pindown.runs.inputs import Source

NO_COUNT = (
    "n_components: say how many latents to look for, such as n_components=5: directions of pictures are no count of "
    "them."
)
"""Said of pictures where nobody said how many latents there are."""


def fit_data(
    data: DATA,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run, to be made.", show_default=False)],
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
    folds: Annotated[
        int,
        typer.Option(
            min=0,
            help="Refits that encode rows they have not seen, where a label was given; 0: the fit encodes all.",
        ),
    ] = 4,
    truth: Annotated[
        list[str] | None,
        typer.Option(help="Known latents: never shown to the fit, compared with by the audit; repeatable."),
    ] = None,
    components: COMPONENTS = None,
    sparse: SPARSE = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the training. By default the estimator's.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the fit: the same seed gives the same latents.")] = 0,
    estimator: ESTIMATOR = None,
    option: OPTION = None,
    device: DEVICE = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is there.")] = False,
    quote_formulas: QUOTE_FORMULAS = False,
    as_json: JSON = False,
) -> None:
    """Fit an encoder, and keep all that belongs to it in a folder.

    The side variable chooses the estimator: --nuisance leads to Forget, --pairs to Contrast, --signal to Classify, and
    nothing to Dictionary; --estimator names another, and --sparse N a sparse dictionary. After a kill at any moment,
    the same command resumes. With several GPUs: torchrun -m -- pindown fit …
    """
    chosen = columns(
        signal=signal,
        nuisance=nuisance,
        pairs=pairs,
        group=group,
        given=given,
        features=features,
        drop=drop,
        truth=truth,
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
    hold = ExitStack()
    with stopping("nothing was written."), refusing(ValueError, OSError, of_estimator=data.is_dir()):
        source = named(data, chosen, options)
        estimator, components = in_full(sparse, estimator, components)
        from pindown.methods.registry import find
        from pindown.runs import Place, Recipe, estimator_for, read_options

        name = estimator_for(chosen, estimator)
        asked = Recipe(name, components, steps, seed, read_options(parameters(option, pca), find(name)))
        place = Place(output)
        with _first_decides() as first:
            if first:
                study, run = _begun(source, chosen, asked, place, hold, device=device, force=force)
            else:
                study, run = _joined(source, chosen, asked, place)
    with hold:
        scores = _fitted(place, study, run, device, 0 if study.is_source else folds, quote_formulas=quote_formulas)
    if as_json:
        say_json({"run": str(output), **scores})
        return
    say(f"{scores['estimator']}: {counted(scores['n_components'], 'latent')} of {observed(study)}")
    say(f"{counted(scores['n_samples'], 'row')}, {counted(scores['n_steps'], 'step')}, loss {scores['loss']:.4g}")
    say(_in_words(scores["score"]))
    say(f"The run: {output}. What may be claimed: {shlex.join(['pindown', 'audit', str(output)])}")


@contextmanager
def _first_decides() -> Iterator[bool]:
    """Yield whether this is the first process; others wait for it, and end if it does not begin."""
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
        broadcast_object_list(["refused"])
        raise
    broadcast_object_list(["begun"])


def _joined(source: Source, chosen: Columns, asked: Recipe, place: Place) -> tuple[Data, Run]:
    """Return what the first process has begun, to another one."""
    from pindown.methods.registry import find
    from pindown.runs.inputs import read

    study = read(source, chosen, measured=not find(asked.estimator).spec.labels)
    return study, place.under_way()


def _begun(
    source: Source,
    chosen: Columns,
    asked: Recipe,
    place: Place,
    hold: ExitStack,
    *,
    device: str | None,
    force: bool,
) -> tuple[Data, Run]:
    """Check all that can be checked before training, then make and hold the folder, or the one to resume."""
    import numpy as np

    from pindown.methods.parameters import INJECTIVE
    from pindown.methods.registry import find
    from pindown.runs import planned
    from pindown.runs.inputs import Images, fingerprint, read
    from pindown.training import best_device

    place.check(force=force)
    with refusing(ValueError, of_estimator=True), warnings.catch_warnings(action="ignore"):  # the fit warns again
        theorem = asked.build().guarantee
    if device is not None:
        best_device(device)
    study = read(source, chosen, measured=not find(asked.estimator).spec.labels)
    injective = theorem is not None and INJECTIVE & {*theorem.assumes}
    if isinstance(source, Images) and asked.n_components is None:
        raise ValueError(NO_COUNT)
    if injective and asked.n_components is not None and asked.n_components > study.n_features:
        raise ValueError(
            f"-d {asked.n_components}: there are {counted(study.n_features, 'observed variable')}, and no injective "
            "mixing makes fewer of these than hidden ones: ask for at most as many."
        )
    for note in study.notes:
        complain(note)
    digest, options = fingerprint(source), source.options.as_dict() if isinstance(source, Images) else {}
    wishes = {"data": digest, "columns": chosen.as_dict(), **asked.as_dict()}
    wishes |= {"pictures": options} if options else {}
    run = place.begun(wishes, force=force)
    if run is not None:
        hold.enter_context(place.held())
        if run.recipe.estimator != asked.estimator:
            raise ValueError(f"{run.path} is damaged: delete it.")
        complain(f"resuming {run.path}.")
        run.log("resumed")
        return study, run
    with waiting(f"Planning for {source.path.name}"):
        recipe, notes = planned(asked, study)
    notes = tuple(map(in_our_words, notes))
    for note in notes:
        complain(note)
    medians = dict(zip(study.names, np.median(study.X, axis=0).tolist(), strict=True)) if chosen.impute else {}
    record = {
        "command": shlex.join(["pindown", *sys.argv[1:]]),
        "data": {"path": str(source.path.resolve()), "sha256": digest, "n_samples": len(study)},
        "columns": {**chosen.as_dict(), "features": list(study.names), "drop": []},
        "recipe": recipe.as_dict(),
        **({"pictures": options} if isinstance(source, Images) else {}),
        **({"medians": medians} if medians else {}),
        "asked": wishes,
        "notes": [in_shell(note) for note in (*study.notes, *notes)],
    }
    run = hold.enter_context(place.begun_alone(record, force=force))  # planning took seconds
    run.log(f"begun: {record['command']}")
    return study, run


def _fitted(
    place: Place, study: Data, run: Run, device: str | None, folds: int, *, quote_formulas: bool
) -> dict[str, Any]:
    """Train, and write the result, in the first process; what cannot be trained leaves nothing behind."""
    from scipy.sparse import issparse

    from pindown._files import write_json
    from pindown.data.tables import write_latents
    from pindown.runs.folder import ESTIMATOR, LATENTS, SCORES, SPARSE_LATENTS
    from pindown.runs.recipe import fit, scores
    from pindown.training.divergence import TrainingDivergedError

    go_on = f"the same command resumes: {run.record['command']}"
    broken = refusing(OSError, then=f"When that is fixed, {go_on}")
    refused = refusing(ValueError, of_estimator=True)
    with stopping(go_on, diverged="Nothing was kept of this fit."), refused, broken, _noting(run) as noted:
        try:
            estimator = run.recipe.build(checkpoint=run.checkpoint, device=device, verbose=True)
            fit(estimator, study)
        except (ValueError, TrainingDivergedError) as error:
            # What was learned so far is kept, unless it would only diverge again.
            if isinstance(error, TrainingDivergedError) or not any(run.checkpoint.parent.glob("*")):
                place.give_up()
            raise
        latents, beside = _exported(estimator, study, folds)
        found = {**scores(estimator, study), "warnings": noted}
        if not is_first_process():
            return found
        estimator.save(run.path / ESTIMATOR)
        names = [str(name) for name in estimator.get_feature_names_out()]
        beside = without_formulas(beside) if quote_formulas else beside
        write_latents(run.path / (SPARSE_LATENTS if issparse(latents) else LATENTS), latents, names, beside)
        write_json(run.path / SCORES, found)
        run.log("fitted")
        place.finish()
    return found


def _exported(estimator: Any, study: Data, folds: int) -> tuple[Any, dict[str, Any]]:
    """Return the latents of the rows that were fitted, and what stands beside them: their names, and who encoded them.

    A label that was given can be learned by heart, row by row; so these are encoded by refits that have not seen them.
    """
    import numpy as np

    from pindown.methods import out_of_fold

    beside = {} if study.ids is None else {study.id_name: study.ids}
    if folds and (study.signal is not None or study.given is not None):
        try:
            with waiting(f"Refitting {folds} times, to encode rows that were not seen"):
                codes, fold = out_of_fold(estimator, study.only(*estimator.spec.roles, "groups"), n_folds=folds)
        except ValueError as error:
            complain(f"latents are those of rows that the fit has seen, since {in_our_words(str(error))}")
        else:
            complain(
                f"a label was given, so latents.csv has each row as a refit encodes it that has not seen it ({folds} "
                "folds, --folds)."
            )
            return codes, {**beside, "fold": fold}
    return estimator.spec.exported(estimator, study), {**beside, "seen": np.ones(len(study), dtype=np.int64)}


@contextmanager
def _noting(run: Run) -> Iterator[list[str]]:
    """Print what the estimator warns of, and keep it."""
    from sklearn.exceptions import ConvergenceWarning

    from pindown.errors import IdentifiabilityWarning

    ours = IdentifiabilityWarning, ConvergenceWarning
    noted: list[str] = []
    with warnings.catch_warnings():
        for kind in ours:
            warnings.simplefilter("always", kind)
        others = warnings.showwarning

        def note(message, category, *where):
            if not issubclass(category, ours):
                others(message, category, *where)
            elif str(message) not in noted:
                noted.append(str(message))
                complain(in_our_words(str(message)))
                run.log(f"warned: {message}")

        warnings.showwarning = note
        yield noted


def _in_words(score: dict[str, Any]) -> str:
    from pindown.auditing.page import shown

    if score["value"] is None:
        return f"{score['name']}: too few rows to hold some out here; the audit says."
    chance = "" if score["chance"] is None else f" (chance {shown(score['chance'], 3)})"
    return f"{score['name']}, on rows {score['rows']}: {shown(score['value'], 3)}{chance}"
