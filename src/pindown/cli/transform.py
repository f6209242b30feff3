"""`pindown transform`: the encoder of a run, applied to new data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pindown._names import counted, listed
from pindown.cli._answers import complain, refusing, say, say_json, stopping, without_formulas
from pindown.cli._choices import (
    BACKGROUND,
    CHANNELS,
    DATA,
    FOREIGN,
    JSON,
    QUOTE_FORMULAS,
    SIZE,
    SKIP_CORRUPT,
    pictures,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pindown.runs import Run
    from pindown.runs.inputs import ImageOptions, Images

RUN = Annotated[Path, typer.Argument(help="The folder that `pindown fit` wrote.", show_default=False)]


def transform_data(
    run: RUN,
    data: DATA,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File for the latents: .csv, .tsv, .npy or .npz.", show_default=False)
    ],
    size: SIZE = None,
    channels: CHANNELS = None,
    background: BACKGROUND = None,
    skip_corrupt: SKIP_CORRUPT = False,
    estimator: FOREIGN = None,
    quote_formulas: QUOTE_FORMULAS = False,
    as_json: JSON = False,
) -> None:
    """Encode new rows. Columns are found by their names, in any order; others are passed over.

    Codes that are told the nuisance of a row take it from its column, if the file has it. Pictures are read as those
    that were fitted, unless options say otherwise.
    """
    from scipy.sparse import issparse

    from pindown.data.tables import check_writable, write_latents
    from pindown.runs import Run

    with stopping("nothing was written."), refusing(ValueError, OSError, of_estimator=data.is_dir()):
        fitted = Run.open(run)
        check_writable(output)
        if output.exists() and output.samefile(data):
            raise ValueError(f"-o: {output} is the data file itself: give another name.")
        say_changes(fitted)
        asked = pictures(
            labels=None,
            size=size,
            channels=channels,
            background=background,
            skip_corrupt=skip_corrupt,
            skip_unlabelled=False,
        )
        names, latents, beside = _latents(fitted, data, asked, estimator)
        beside = without_formulas(beside) if quote_formulas else beside
        if issparse(latents) and output.suffix.lower() != ".npz":
            raise ValueError(
                f"-o: {output.name} cannot hold a sparse matrix, which codes of activations are: give a name in .npz."
            )
        write_latents(output, latents, names, beside)
    if as_json:
        say_json({"run": str(run), "output": str(output), "n_samples": latents.shape[0], "latents": names})
        return
    say(f"{counted(latents.shape[0], 'row')} in {counted(latents.shape[1], 'latent')}: {output}")


def say_changes(run: Run) -> None:
    """Say what of a run was made by another version, or has changed since."""
    if note := run.of_another_version:
        complain(note)
    if changed := [name for name in run.changed_parts() if name != "estimator.pindown"]:
        complain(f"{run.path}: changed since it was made: {listed(changed)}.")


Latents = tuple[list[str], Any, "dict[str, NDArray[Any]]"]


def _latents(run: Run, data: Path, asked: ImageOptions, kind: str | None) -> Latents:
    from pindown._names import nearest
    from pindown.data.tables import Columns, read_data
    from pindown.runs.inputs import Activations, Images, open_data

    source = open_data(data, asked)
    if isinstance(source, Activations):
        study, fitted = source.read(Columns()), run.load(estimator=kind)
        names = [str(name) for name in fitted.get_feature_names_out()]
        return names, fitted.spec.exported(fitted, study), {"input": study.groups}
    if isinstance(source, Images):
        return _of_images(run, source, kind)
    features = run.columns.features
    missing = [name for name in features if name not in source.names]
    if missing:
        raise ValueError(
            f"{data.name} lacks {len(missing)} of the {len(features)} columns that this run was fitted to: "
            f"{listed(missing)}. For {missing[0]!r}, {nearest(missing[0], source.names)}"
        )
    estimator, sides = run.load(estimator=kind), run.columns.nuisance
    known = all(name in source.names for name in sides)
    was = run.columns
    columns = Columns(
        features=features,
        nuisance=sides if known else (),
        id=was.id if was.id in source.names else None,
        impute=was.impute,
        counts=was.counts,
    )
    rows = read_data(source, columns, encoded=True, medians=run.record.get("medians"))
    if not known and estimator.spec.needs_side(estimator):
        complain(
            f"{data.name} has no column {listed(list(sides))}, so that rows are encoded by one map for all of its "
            "values, which may tell it where the map of each value would not."
        )
    names = [str(name) for name in estimator.get_feature_names_out()]
    return names, estimator.spec.latents(estimator, rows), {} if rows.ids is None else {rows.id_name: rows.ids}


def _of_images(run: Run, folder: Images, kind: str | None) -> Latents:
    """Encode pictures, read as those that were fitted unless it was asked otherwise, and say which were left out."""
    from pindown.data.tables import Columns
    from pindown.runs.inputs import ImageOptions, Images

    was = {**run.record.get("pictures", {}), "labels": None, "skip_unlabelled": False}
    options = ImageOptions.from_dict({**was, **folder.options.as_dict()})
    study = Images(folder.path, options).read(Columns(), encoded=True)
    for note in study.notes:
        complain(note)
    estimator, shape = run.load(estimator=kind), study.X.shape
    if len(estimator.shape_in_) == len(shape) and estimator.shape_in_ != shape:
        channels, height, width = estimator.shape_in_
        raise ValueError(
            f"{folder.path.name}: pictures are {' × '.join(map(str, shape))}, but this run was fitted to those of "
            f"{channels} × {height} × {width}. To make them alike: --size {height}x{width} --channels {channels}."
        )
    names = [str(name) for name in estimator.get_feature_names_out()]
    return names, estimator.spec.latents(estimator, study), {study.id_name: study.ids}
