"""A run: its request, its start or resumption, the training, the files of the result, and latents of new samples."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from pindown._files import atomic_path, write_json
from pindown._names import counted, listed, nearest
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.refits import can_split
from pindown.auditing.result import plain
from pindown.auditing.spec import ChosenParameters, FitScore
from pindown.data.data import Data
from pindown.data.tables import Columns, TableFile, read_data, write_latents
from pindown.errors import InputError
from pindown.methods import out_of_fold
from pindown.methods.base import BaseEncoder
from pindown.methods.inputs import Prepared
from pindown.methods.planning import Plan, plan_for
from pindown.methods.registry import find
from pindown.runs.folder import ANNOTATED, ESTIMATOR, LATENTS, SCORES, SPARSE_LATENTS, Place, Run
from pindown.runs.inputs import Activations, Images, Source, fingerprint, in_memory, read
from pindown.runs.recipe import Recipe
from pindown.training.divergence import TrainingDivergedError

PLANNED_SAMPLES, PLANNED_NUMBERS, LAST_STEPS = 20_000, 1 << 25, 25
"""Samples that a plan is based on, numbers that they hold at most if they are images, and steps at the end over which
the loss is averaged."""


@dataclass(frozen=True)
class FitRequest:
    """What to fit to what. The data are read once, and the estimator is built once, when they are needed."""

    source: Source
    columns: Columns
    recipe: Recipe

    @cached_property
    def data(self) -> Data:
        """The samples with their side variables."""
        return read(self.source, self.columns, measured=not find(self.recipe.estimator).spec.roles.categorical)

    @cached_property
    def estimator(self) -> BaseEncoder:
        """The estimator, not fitted, with the parameters that the data decide."""
        return self.recipe.build().set_params(**self.chosen.parameters)

    @cached_property
    def chosen(self) -> ChosenParameters:
        """Parameters that the data decide, of those that the user left open."""
        est = self.recipe.build()
        return est.spec.choose(est, self.data)

    @cached_property
    def prepared(self) -> Prepared:
        """What the fit decides before its first step; next samples are positives within their group."""
        data = self.data.paired() if self.data.groups is not None else self.data
        return self.estimator.prepare(data.only(*self.estimator.spec.roles.used, "groups"))

    @cached_property
    def sample(self) -> Data:
        """The samples that a plan and the checks are based on, in memory."""
        return _sample(self.data)

    @cached_property
    def audited(self) -> Verdict:
        """Whether an audit can split all samples."""
        return can_split(self.estimator, self.data)

    @cached_property
    def plan(self) -> Plan:
        """The plan, from a sample if there are many."""
        try:
            prepared = self.prepared
        except ValueError:  # the plan says why
            prepared = None
        return plan_for(self.estimator, self.sample, prepared, self.audited)

    def planned(self) -> tuple[Recipe, tuple[str, ...]]:
        """Return the recipe with what the data decide, and notes that say why and which conditions fail."""
        notes, summary = self.chosen.notes, self.prepared.summary
        recipe = self.recipe.having({**self.chosen.parameters, "n_components": summary.n_components})
        if self.recipe.n_components is None and summary.notes:
            why = summary.notes[0].rstrip(".")
            notes += (f"{counted(summary.n_components, 'latent')}: {why} (n_components asks for another number).",)
            notes += self.plan.failing
        return recipe, (*notes, *(() if self.audited.outcome == "holds" else (self.audited.why,)))

    @property
    def image_options(self) -> Mapping[str, Any]:
        """The options of a folder of images that were given."""
        return self.source.options if isinstance(self.source, Images) else {}

    @contextmanager
    def begun(self, place: Place, command: str, *, force: bool) -> Iterator[tuple[Run, bool]]:
        """Begin a run, or resume the unfinished one of the same request; yield it and whether it was resumed."""
        data, columns = self.data, self.columns.as_dict()
        images = {"pictures": dict(self.image_options)} if self.image_options else {}
        requested = {"data": fingerprint(self.source), "columns": columns, **asdict(self.recipe), **images}
        run = place.begun(requested, force=force)
        if run is not None:
            with place.held():
                if run.recipe.estimator != self.recipe.estimator:
                    raise InputError("output", f"{run.path} is damaged: delete it.")
                run.log("resumed")
                yield run, True
            return
        recipe, notes = self.planned()
        medians = dict(zip(data.names, np.median(data.X, axis=0).tolist(), strict=True)) if self.columns.impute else {}
        record = {
            "command": command,
            "data": {"path": str(self.source.path.resolve()), "sha256": requested["data"], "n_samples": len(data)},
            "columns": {**columns, "features": list(data.names), "drop": []},
            "recipe": asdict(recipe),
            **images,
            **({"medians": medians} if medians else {}),
            "asked": requested,
            "notes": [*data.notes, *notes],
        }
        with place.begun_alone(record, force=force) as run:
            run.log(f"begun: {command}")
            yield run, False


def _sample(data: Data) -> Data:
    return in_memory(data, PLANNED_SAMPLES, PLANNED_NUMBERS)


def train(place: Place, run: Run, request: FitRequest, *, device: str | None) -> BaseEncoder:
    """Train the estimator of a request; a failure leaves nothing behind unless a checkpoint can be resumed."""
    try:
        parameters = run.recipe.parameters(checkpoint=run.checkpoint, device=device, verbose=True)
        return request.estimator.set_params(**parameters).fit(request.prepared)
    except (ValueError, TrainingDivergedError) as error:
        if isinstance(error, TrainingDivergedError) or not any(run.checkpoint.parent.glob("*")):
            place.give_up()
        raise


def scores(estimator: BaseEncoder, data: Data) -> dict[str, Any]:
    """Return what was fitted to how many samples, and how well, for JSON; a score comes with its chance level."""
    held_out = getattr(estimator, "held_out_", None)
    if held_out is None:
        score = estimator.spec.score(estimator, _sample(data))
    else:
        score = FitScore(held_out.name, held_out.score, held_out.chance, held_out.rows)
    return plain(
        {
            "estimator": type(estimator).__name__,
            "n_components": estimator.n_components_,
            "n_samples": len(data),
            "n_features": data.n_features,
            "n_steps": estimator.n_iter_,
            "max_steps": estimator.max_iter,
            "n_restarts": getattr(estimator, "n_restarts", None) or 1,
            "loss": float(np.mean(estimator.loss_curve_[-LAST_STEPS:])),
            "score": score._asdict(),
        }
    )


@dataclass(frozen=True)
class Encoded:
    """Latents of the samples of a fit, the columns to write next to them, and what the user should know."""

    latents: Any  # array or sparse matrix (n, d)
    columns: Mapping[str, NDArray[Any]]
    notes: tuple[str, ...] = ()


def encode(estimator: BaseEncoder, data: Data, n_folds: int) -> Encoded:
    """Encode the samples of a fit; where there are labels, each by a refit that has not seen it."""
    columns = {} if data.ids is None else {data.id_name: data.ids}
    notes: tuple[str, ...] = ()
    if n_folds and (data.signal is not None or data.given is not None):
        try:
            latents, fold = out_of_fold(estimator, data.only(*estimator.spec.roles.used, "groups"), n_folds=n_folds)
        except ValueError as error:
            notes = (f"the latents are of samples that the fit has seen: {error}",)
        else:
            why = f"each sample is encoded by a refit that has not seen it ({n_folds} folds)."
            return Encoded(latents, {**columns, "fold": fold}, (f"the fit uses a label, so {why}",))
    seen = np.ones(len(data), dtype=np.int64)
    return Encoded(estimator.spec.latents(estimator, data), {**columns, "seen": seen}, notes)


def finish(
    place: Place, run: Run, source: Source, estimator: BaseEncoder, encoded: Encoded, scores: Mapping[str, Any]
) -> None:
    """Write the parts of a run, and move its folder into place."""
    estimator.save(run.path / ESTIMATOR)
    names = [str(name) for name in estimator.get_feature_names_out()]
    latents = SPARSE_LATENTS if issparse(encoded.latents) else LATENTS
    write_latents(run.path / latents, encoded.latents, names, dict(encoded.columns))
    if isinstance(source, TableFile) and source.path.suffix.lower() == ".h5ad":
        _write_annotated(run, source, encoded, scores)
    write_json(run.path / SCORES, scores)
    run.log("fitted")
    place.finish()


def _write_annotated(run: Run, source: TableFile, encoded: Encoded, scores: Mapping[str, Any]) -> None:
    """Copy an h5ad file, with the latents in ``obsm`` and what they are in ``uns``; samples left out are NaN."""
    names = np.asarray(source.sample_names())
    fitted = np.isin(names, encoded.columns["id"])
    latents = np.full((len(names), encoded.latents.shape[1]), np.nan)
    latents[fitted] = encoded.latents
    about = {"estimator": run.recipe.estimator, "columns": run.record["asked"]["columns"], "scores": scores}
    with atomic_path(run.path / ANNOTATED) as temporary:
        shutil.copyfile(source.path, temporary)
        with import_module("h5py").File(temporary, "a") as file:
            for group, name, values, kind in (
                ("obsm", "X_pindown", latents, "array"),
                ("uns", "pindown", json.dumps(about), "string"),
            ):
                place = file.require_group(group)
                place.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
                place.pop(name, None)
                written = place.create_dataset(name, data=values)
                written.attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})


# ---- new samples ----------------------------------------------------------------------------------------------------


def encode_new(run: Run, source: Source, address: str | None = None) -> tuple[list[str], Encoded]:
    """Return the names of the latents, and latents of new data; ``address`` is that of an estimator not installed."""
    was, estimator, missing = run.columns, run.load(estimator=address), ""
    match source:
        case Activations():
            data = source.read(Columns())
            columns = {"input": data.groups}
        case Images():
            options = {**run.record.get("pictures", {}), **source.options}
            read_alike = {name: value for name, value in options.items() if name not in ("labels", "skip_unlabelled")}
            data = Images(source.path, read_alike).read(Columns(), encoded=True)
            shape, fitted = data.X.shape, estimator.shape_in_
            if len(fitted) == len(shape) and fitted != shape:
                channels, height, width = fitted
                raise InputError(
                    "data",
                    f"{source.path.name}: images are {' × '.join(map(str, shape))}, but this run was fitted to those "
                    f"of {channels} × {height} × {width}. To convert them: --size {height}x{width} --channels "
                    f"{channels}.",
                )
            columns = {data.id_name: data.ids}
        case TableFile():
            if unknown := [name for name in was.features if name not in source.names]:
                raise InputError(
                    "data",
                    f"{source.path.name} lacks {len(unknown)} of the {len(was.features)} columns that this run was "
                    f"fitted to: {listed(unknown)}. For {unknown[0]!r}, {nearest(unknown[0], source.names)}",
                )
            if unknown := [name for name in was.nuisance if name not in source.names]:
                missing = f"{source.path.name} has no column {listed(unknown)}. "
            wanted = Columns(
                features=was.features,
                nuisance=() if unknown else was.nuisance,
                id=was.id if was.id in source.names else None,
                impute=was.impute,
                counts=was.counts,
            )
            data = read_data(source, wanted, encoded=True, medians=run.record.get("medians"))
            columns = {} if data.ids is None else {data.id_name: data.ids}
    with warnings.catch_warnings(record=True, action="always") as caught:
        latents = estimator.spec.latents(estimator, data)
    warned = tuple(f"{missing}{warning.message}" for warning in caught)
    names = [str(name) for name in estimator.get_feature_names_out()]
    return names, Encoded(latents, columns, (*(data.notes if isinstance(source, Images) else ()), *warned))
