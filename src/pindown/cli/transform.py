"""`pindown transform`: encode new samples with a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pindown._names import counted, listed
from pindown.cli.messages import formulas_checked, interruptible, print_json, print_text, print_warning, user_errors
from pindown.cli.options import ADDRESS, DATA, JSON, QUOTE_FORMULAS, RUN, ImageFolderOptions, with_options

if TYPE_CHECKING:
    from pindown.runs import Run


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
    with interruptible("nothing was written."), user_errors(ValueError, OSError):
        from scipy.sparse import issparse

        from pindown.data.tables import check_writable, write_latents
        from pindown.errors import InputError
        from pindown.runs import Run
        from pindown.runs.fitting import encode_new
        from pindown.runs.inputs import open_data

        fitted = Run.open(run)
        check_writable(output)
        if output.exists() and output.samefile(data):
            raise InputError("output", f"`output`: {output} is the data file itself: give another name.")
        print_changes(fitted)
        names, encoded = encode_new(fitted, open_data(data, images.read()), estimator)
        for note in encoded.notes:
            print_warning(note)
        if issparse(encoded.latents) and output.suffix.lower() != ".npz":
            why = "cannot hold feature activations, a sparse matrix. Give a name in .npz."
            raise InputError("output", f"`output`: {output.name} {why}")
        write_latents(output, encoded.latents, names, formulas_checked(encoded.columns, quote=quote_formulas))
    n_samples, n_latents = encoded.latents.shape
    if as_json:
        print_json({"run": str(run), "output": str(output), "n_samples": n_samples, "latents": names})
        return
    print_text(f"{counted(n_samples, 'sample')}, {counted(n_latents, 'latent')}: {output}")


def print_changes(run: Run) -> None:
    """Print whether another version made a run, and which of its files have changed since."""
    if note := run.of_another_version:
        print_warning(note)
    if changed := [name for name in run.changed_parts() if name != "estimator.pindown"]:
        print_warning(f"{run.path}: changed since it was made: {listed(changed)}.")
