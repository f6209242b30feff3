"""`pindown transform`: apply the encoder of a run to new data."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pindown._names import counted, listed, nearest
from pindown.cli.messages import formulas_checked, interruptible, print_json, print_text, print_warning, user_errors
from pindown.cli.options import ADDRESS, DATA, JSON, QUOTE_FORMULAS, RUN, ImageFolderOptions, with_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pindown.runs import Run
    from pindown.runs.inputs import ImageOptions, Images


@with_options
def transform_data(
    run: RUN,
    data: DATA,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File for the latents: .csv, .tsv, .npy or .npz.", show_default=False)
    ],
    images: ImageFolderOptions,
    estimator: ADDRESS = None,
    quote_formulas: QUOTE_FORMULAS = False,
    as_json: JSON = False,
) -> None:
    """Encode new samples. Columns are found by name, in any order; other columns are ignored.

    Encoders with batch-specific maps take the batch of a sample from its column, if the file has it. Images are read
    like those of the fit, unless options say otherwise.
    """
    from scipy.sparse import issparse

    from pindown.data.tables import check_writable, write_latents
    from pindown.errors import InputError
    from pindown.runs import Run

    with interruptible("nothing was written."), user_errors(ValueError, OSError, of_estimator=data.is_dir()):
        fitted = Run.open(run)
        check_writable(output)
        if output.exists() and output.samefile(data):
            raise InputError("output", f"`output`: {output} is the data file itself: give another name.")
        print_changes(fitted)
        names, latents, beside = _encode(fitted, data, images.read(), estimator)
        if issparse(latents) and output.suffix.lower() != ".npz":
            raise InputError(
                "output",
                f"`output`: {output.name} cannot hold feature activations, a sparse matrix. Give a name in .npz.",
            )
        write_latents(output, latents, names, formulas_checked(beside, quote=quote_formulas))
    if as_json:
        print_json({"run": str(run), "output": str(output), "n_samples": latents.shape[0], "latents": names})
        return
    print_text(f"{counted(latents.shape[0], 'sample')}, {counted(latents.shape[1], 'latent')}: {output}")


def print_changes(run: Run) -> None:
    """Print whether another version made a run, and which of its files have changed since."""
    if note := run.of_another_version:
        print_warning(note)
    if changed := [name for name in run.changed_parts() if name != "estimator.pindown"]:
        print_warning(f"{run.path}: changed since it was made: {listed(changed)}.")


Encoded = tuple[list[str], Any, "dict[str, NDArray[Any]]"]


def _encode(run: Run, data: Path, options: ImageOptions, address: str | None) -> Encoded:
    """Return the names of latents, the latents, and the columns to write next to them."""
    from pindown.data.tables import Columns, read_data
    from pindown.errors import InputError
    from pindown.runs.inputs import Activations, Images, open_data

    source = open_data(data, options)
    if isinstance(source, Activations):
        dataset, fitted = source.read(Columns()), run.load(estimator=address)
        return _names(fitted), fitted.spec.latents(fitted, dataset), {"input": dataset.groups}
    if isinstance(source, Images):
        return _encode_images(run, source, address)
    was = run.columns
    if missing := [name for name in was.features if name not in source.names]:
        raise InputError(
            "data",
            f"{data.name} lacks {len(missing)} of the {len(was.features)} columns that this run was fitted to: "
            f"{listed(missing)}. For {missing[0]!r}, {nearest(missing[0], source.names)}",
        )
    estimator = run.load(estimator=address)
    known = all(name in source.names for name in was.nuisance)
    columns = Columns(
        features=was.features,
        nuisance=was.nuisance if known else (),
        id=was.id if was.id in source.names else None,
        impute=was.impute,
        counts=was.counts,
    )
    samples = read_data(source, columns, encoded=True, medians=run.record.get("medians"))
    beside = {} if samples.ids is None else {samples.id_name: samples.ids}
    with warnings.catch_warnings(record=True, action="always") as caught:
        latents = estimator.spec.latents(estimator, samples)
    lacking = "" if known else f"{data.name} has no column {listed(was.nuisance)}. "
    for warning in caught:
        print_warning(f"{lacking}{warning.message}")
    return _names(estimator), latents, beside


def _encode_images(run: Run, folder: Images, address: str | None) -> Encoded:
    """Encode images, read like those of the fit unless options say otherwise, and print which were left out."""
    from pindown.data.tables import Columns
    from pindown.errors import InputError
    from pindown.runs.inputs import ImageOptions, Images

    was = {**run.record.get("pictures", {}), "labels": None, "skip_unlabelled": False}
    options = ImageOptions.from_dict({**was, **folder.options.as_dict()})
    dataset = Images(folder.path, options).read(Columns(), encoded=True)
    for note in dataset.notes:
        print_warning(note)
    estimator, shape = run.load(estimator=address), dataset.X.shape
    if len(estimator.shape_in_) == len(shape) and estimator.shape_in_ != shape:
        channels, height, width = estimator.shape_in_
        raise InputError(
            "data",
            f"{folder.path.name}: images are {' × '.join(map(str, shape))}, but this run was fitted to those of "
            f"{channels} × {height} × {width}. To convert them: --size {height}x{width} --channels {channels}.",
        )
    return _names(estimator), estimator.spec.latents(estimator, dataset), {dataset.id_name: dataset.ids}


def _names(estimator: Any) -> list[str]:
    return [str(name) for name in estimator.get_feature_names_out()]
