"""A run: its request, its start or resumption, the training, the files of the result, and latents of new samples."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from pindown._files import write_json
from pindown._names import listed, nearest
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.refits import can_split
from pindown.data.data import Data
from pindown.data.tables import Columns, TableFile, read_data, write_latents
from pindown.errors import InputError
from pindown.methods import out_of_fold
from pindown.methods.base import BaseEncoder
from pindown.methods.planning import Plan, plan_for
from pindown.methods.registry import find
from pindown.runs import recipe as recipes
from pindown.runs.folder import ESTIMATOR, LATENTS, SCORES, SPARSE_LATENTS, Place, Run
from pindown.runs.inputs import Activations, ImageOptions, Images, Source, fingerprint, read
from pindown.runs.recipe import Recipe, planned
from pindown.training.divergence import TrainingDivergedError


@dataclass(frozen=True)
class FitRequest:
    """What to fit to what. The data are read once, and the estimator is built once, when they are needed."""

    source: Source
    columns: Columns
    recipe: Recipe

    @cached_property
    def data(self) -> Data:
        """The samples with their side variables."""
        measured = not find(self.recipe.estimator).spec.roles.categorical
        return read(self.source, self.columns, measured=measured)

    @cached_property
    def estimator(self) -> BaseEncoder:
        """The estimator, not fitted, with what the user left open at its default."""
        return self.recipe.build()

    @cached_property
    def sample(self) -> Data:
        """The samples that a plan and the checks are based on, in memory."""
        return recipes.sample_of(self.data)

    @cached_property
    def audited(self) -> Verdict:
        """Whether an audit can split all samples."""
        return can_split(self.estimator, self.data)

    def plan(self, n_components: int | None) -> Plan:
        """Return the plan, from a sample if there are many."""
        return plan_for(self.estimator, self.sample, n_components, self.audited)

    @property
    def image_options(self) -> dict[str, Any]:
        """The options of a folder of images that were given, for JSON."""
        return self.source.options.as_dict() if isinstance(self.source, Images) else {}

    @contextmanager
    def begun(self, place: Place, command: str, *, force: bool) -> Iterator[tuple[Run, bool]]:
        """Begin a run, or resume the unfinished one of the same request; yield it and whether it was resumed.

        What is left open is planned before. The place is held until the end of the block.
        """
        data, images = self.data, self.image_options
        requested = {"data": fingerprint(self.source), "columns": self.columns.as_dict(), **self.recipe.as_dict()}
        requested |= {"pictures": images} if images else {}
        run = place.begun(requested, force=force)
        if run is not None:
            with place.held():
                if run.recipe.estimator != self.recipe.estimator:
                    raise InputError("output", f"{run.path} is damaged: delete it.")
                run.log("resumed")
                yield run, True
            return
        recipe, notes = planned(self.recipe, self.estimator, data)
        medians = dict(zip(data.names, np.median(data.X, axis=0).tolist(), strict=True)) if self.columns.impute else {}
        record = {
            "command": command,
            "data": {"path": str(self.source.path.resolve()), "sha256": requested["data"], "n_samples": len(data)},
            "columns": {**self.columns.as_dict(), "features": list(data.names), "drop": []},
            "recipe": recipe.as_dict(),
            **({"pictures": images} if images else {}),
            **({"medians": medians} if medians else {}),
            "asked": requested,
            "notes": [*data.notes, *notes],
        }
        with place.begun_alone(record, force=force) as run:
            run.log(f"begun: {command}")
            yield run, False


def train(place: Place, run: Run, request: FitRequest, *, device: str | None) -> BaseEncoder:
    """Train the estimator of a request by the recipe of its run.

    A failure leaves nothing behind, unless there is a checkpoint from which the same command resumes.
    """
    try:
        parameters = run.recipe.parameters(checkpoint=run.checkpoint, device=device, verbose=True)
        return recipes.fit(request.estimator.set_params(**parameters), request.data)
    except (ValueError, TrainingDivergedError) as error:
        if isinstance(error, TrainingDivergedError) or not any(run.checkpoint.parent.glob("*")):
            place.give_up()
        raise


@dataclass(frozen=True)
class Encoded:
    """Latents of the samples of a fit, the columns to write next to them, and what the user should know."""

    latents: Any  # array or sparse matrix (n, d)
    columns: Mapping[str, NDArray[Any]]
    notes: tuple[str, ...] = ()


def encode(estimator: BaseEncoder, data: Data, n_folds: int) -> Encoded:
    """Encode the samples of a fit; where there are labels, each by a refit that has not seen it.

    An encoder can memorise the labels of its samples.
    """
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


def finish(place: Place, run: Run, estimator: BaseEncoder, encoded: Encoded, scores: Mapping[str, Any]) -> None:
    """Write the parts of a run, and move its folder into place."""
    estimator.save(run.path / ESTIMATOR)
    names = [str(name) for name in estimator.get_feature_names_out()]
    latents = SPARSE_LATENTS if issparse(encoded.latents) else LATENTS
    write_latents(run.path / latents, encoded.latents, names, dict(encoded.columns))
    write_json(run.path / SCORES, scores)
    run.log("fitted")
    place.finish()


# ---- new samples ----------------------------------------------------------------------------------------------------


def encode_new(run: Run, source: Source, address: str | None = None) -> tuple[list[str], Encoded]:
    """Encode what `open_data` opened by the encoder of a run; return the names of the latents, and the latents.

    ``address`` is that of the estimator, if it is not installed as a method. Columns are found by name; images are read
    like those of the fit, unless options say otherwise.
    """
    missing = ""
    match source:
        case Activations():
            estimator, data = run.load(estimator=address), source.read(Columns())
            columns = {"input": data.groups}
        case Images():
            estimator, data = run.load(estimator=address), _like_those_of(run, source)
            columns, shape, fitted = {data.id_name: data.ids}, data.X.shape, estimator.shape_in_
            if len(fitted) == len(shape) and fitted != shape:
                channels, height, width = fitted
                raise InputError(
                    "data",
                    f"{source.path.name}: images are {' × '.join(map(str, shape))}, but this run was fitted to those "
                    f"of {channels} × {height} × {width}. To convert them: --size {height}x{width} --channels "
                    f"{channels}.",
                )
        case TableFile():
            wanted = _columns_for(run, source)
            estimator = run.load(estimator=address)
            data = read_data(source, wanted, encoded=True, medians=run.record.get("medians"))
            columns = {} if data.ids is None else {data.id_name: data.ids}
            if unknown := [name for name in run.columns.nuisance if name not in source.names]:
                missing = f"{source.path.name} has no column {listed(unknown)}. "
    with warnings.catch_warnings(record=True, action="always") as caught:
        latents = estimator.spec.latents(estimator, data)
    warned = tuple(f"{missing}{warning.message}" for warning in caught)
    names = [str(name) for name in estimator.get_feature_names_out()]
    return names, Encoded(latents, columns, (*(data.notes if isinstance(source, Images) else ()), *warned))


def _columns_for(run: Run, table: TableFile) -> Columns:
    """Return the columns of a table that an encoder takes; raise if one of its features is missing."""
    was = run.columns
    if missing := [name for name in was.features if name not in table.names]:
        raise InputError(
            "data",
            f"{table.path.name} lacks {len(missing)} of the {len(was.features)} columns that this run was fitted to: "
            f"{listed(missing)}. For {missing[0]!r}, {nearest(missing[0], table.names)}",
        )
    return Columns(
        features=was.features,
        nuisance=was.nuisance if all(name in table.names for name in was.nuisance) else (),
        id=was.id if was.id in table.names else None,
        impute=was.impute,
        counts=was.counts,
    )


def _like_those_of(run: Run, folder: Images) -> Data:
    was = {**run.record.get("pictures", {}), "labels": None, "skip_unlabelled": False}
    return Images(folder.path, ImageOptions.from_dict({**was, **folder.options.as_dict()})).read(
        Columns(), encoded=True
    )
