"""`pindown transform` and `pindown audit`: what a finished run is used for."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pindown._names import counted, listed
from pindown.cli.messages import formulas_checked, interruptible, print_json, print_text, print_warning, user_errors
from pindown.cli.options import ADDRESS, DATA, DEVICE, JSON, QUOTE_FORMULAS, RUN, ImageFolderOptions, with_options

if TYPE_CHECKING:
    from pindown.auditing.result import Audit
    from pindown.data.data import Data
    from pindown.runs import Run

NUMBERS = 1 << 28
"""Numbers of images that are read into memory, where all are wanted at once: a gigabyte."""


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
        _print_changes(fitted)
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


def audit_run(
    run: RUN,
    fits: Annotated[int, typer.Option(min=2, help="Refits with other seeds; three controls are fitted, too.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of splits, refits and permutations.")] = 0,
    truth: Annotated[
        list[str] | None, typer.Option(help="Columns with known latents, to compare with; repeatable.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the data file is now, if it was moved.", show_default=False)
    ] = None,
    device: DEVICE = None,
    estimator: ADDRESS = None,
    as_json: JSON = False,
) -> None:
    """Find out which claims a run supports: refit it, measure agreement and leakage, and write a page into the run."""
    from pindown.auditing.result import Names
    from pindown.runs import Run
    from pindown.runs.inputs import in_memory, read

    with interruptible(f"{run} is unchanged; audit it again at any time."), user_errors(ValueError, OSError):
        fitted = Run.open(run)
        _print_changes(fitted)
        columns = fitted.columns if not truth else replace(fitted.columns, truth=tuple(truth))
        whole = read(fitted.find_data(data), columns, measured=not fitted.kind(estimator).spec.roles.categorical)
        dataset = in_memory(whole, len(whole), NUMBERS) if whole.is_source else whole
        if len(dataset) < len(whole):
            print_warning(f"{len(dataset)} of {len(whole)} samples were taken, as many as fit into a gigabyte.")
        found = _audit(fitted, dataset, fits, seed, device, estimator)
        fitted.bind()  # raises if the folder was deleted meanwhile, before it would be made again
        page = run / "audit.html"
        roles = {role: columns.named(role) for role in ("signal", "nuisance", "pairs", "given", "group", "truth")}
        found = replace(found, names=Names(Path(fitted.record["data"]["path"]).name, roles))
        found.save(page)
        found.save(run / "audit.json")
        fitted.bind("audit.html", "audit.json")
        fitted.log(f"audited: {found.claim}")
    if as_json:
        print_json({"run": str(run), "page": str(page), **found.to_dict()})
        return
    print_text(str(found))
    print_text(f"\nThe page: {page}")


def _audit(run: Run, dataset: Data, fits: int, seed: int, device: str | None, address: str | None) -> Audit:
    import numpy as np

    from pindown.auditing.audit import audit

    estimator = run.load(device=device, estimator=address)
    if device is not None:
        estimator.set_params(device=device)  # of the refits
    if dataset.names:
        estimator.feature_names_in_ = np.array(dataset.names, dtype=object)  # for the page
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they are in their order
        return audit(estimator, dataset, n_fits=fits, random_state=seed)


def _print_changes(run: Run) -> None:
    """Print whether another version made a run, and which of its files have changed since."""
    if note := run.of_another_version:
        print_warning(note)
    if changed := [name for name in run.changed_parts() if name != "estimator.pindown"]:
        print_warning(f"{run.path}: changed since it was made: {listed(changed)}.")
