"""`pindown audit`: which claims a run supports, or what can be said of the embedding of any method."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pindown.cli.messages import fail, interruptible, print_json, print_text, print_warning, user_errors
from pindown.cli.options import ADDRESS, DEVICE, JSON, with_options
from pindown.cli.transform import print_changes

if TYPE_CHECKING:
    from pindown.auditing.result import Audit
    from pindown.data.data import Data
    from pindown.runs import Run

NUMBERS = 1 << 28  # numbers of images that are read into memory, where all are wanted at once: a gigabyte


@dataclass(frozen=True)
class EmbeddingOptions:
    """An embedding of any method, instead of a run."""

    embedding: Annotated[
        Path | None, typer.Option(help="File of the embedding, a row per sample; --data is the data.")
    ] = None
    nuisance: Annotated[list[str] | None, typer.Option(help="Columns that should not be decodable; repeatable.")] = None
    labels: Annotated[list[str] | None, typer.Option(help="Columns that should be decodable; repeatable.")] = None
    group: Annotated[str | None, typer.Option(help="Column whose rows of one value stay together.")] = None
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Page (.html) or numbers (.json).")] = None


@dataclass(frozen=True)
class RefitOptions:
    """How a run is refitted, and what its latents are compared with."""

    fits: Annotated[int, typer.Option(min=2, help="Refits with other seeds; three controls are fitted, too.")] = 3
    seed: Annotated[int, typer.Option(min=0, help="Of splits, refits and permutations.")] = 0
    truth: Annotated[
        list[str] | None, typer.Option(help="Columns with known latents, to compare with; repeatable.")
    ] = None


@with_options
def audit_run(
    run: Annotated[Path | None, typer.Argument(help="The folder that `pindown fit` wrote.", show_default=False)] = None,
    *,
    embedding: EmbeddingOptions,
    refits: RefitOptions,
    data: Annotated[
        Path | None, typer.Option(help="Where the data file is now, if it was moved.", show_default=False)
    ] = None,
    device: DEVICE = None,
    estimator: ADDRESS = None,
    as_json: JSON = False,
) -> None:
    """Find out which claims a run supports: refit it, measure agreement and leakage, and write a page into the run.

    With --embedding, measure what can be decoded from the embedding of any method, and how much of the data it keeps.
    """
    if (run is None) == (embedding.embedding is None):
        fail("give either the folder of a run, or a file by --embedding.")
    if run is None:
        _audit_embedding(embedding, data, as_json=as_json)
        return
    from pindown.auditing.result import Names
    from pindown.runs import Run
    from pindown.runs.inputs import in_memory, read

    with interruptible(f"{run} is unchanged; audit it again at any time."), user_errors(ValueError, OSError):
        fitted = Run.open(run)
        print_changes(fitted)
        columns = fitted.columns if not refits.truth else replace(fitted.columns, truth=tuple(refits.truth))
        whole = read(fitted.find_data(data), columns, measured=not fitted.kind(estimator).spec.roles.categorical)
        dataset = in_memory(whole, len(whole), NUMBERS) if whole.is_source else whole
        if len(dataset) < len(whole):
            print_warning(f"{len(dataset)} of {len(whole)} samples were taken, as many as fit into a gigabyte.")
        found = _audit(fitted, dataset, refits, device, estimator)
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


def _audit_embedding(options: EmbeddingOptions, data: Path | None, *, as_json: bool) -> None:
    with interruptible("nothing was written."), user_errors(ValueError, OSError):
        import numpy as np

        from pindown.auditing.embedding import audit_alone
        from pindown.auditing.page import check_writable
        from pindown.data.tables import Columns, open_table, read_data
        from pindown.errors import InputError

        assert options.embedding is not None
        if options.output is not None:
            check_writable(options.output)
        names = {"nuisance": tuple(options.nuisance or ()), "signal": tuple(options.labels or ())}
        columns = Columns(nuisance=names["nuisance"], signal=names["signal"], group=options.group)
        file, table = open_table(options.embedding), open_table(data or options.embedding)
        found = read_data(table, columns, measured=True)
        latents = [name for name in file.numeric if data is not None or name in found.names]
        z = file.read(latents, [])[0]
        if len(z) != len(found):
            raise InputError("data", f"`data`: {table.path.name} has {len(found)} rows, the embedding {len(z)}.")
        named = {
            role: dict(zip(names[role], np.reshape(side, (len(z), -1)).T, strict=True))
            for role, side in found.side_variables.items()
            if role in names
        }
        audit = audit_alone(
            z,
            None if data is None else found.X,
            nuisance=named.get("nuisance"),
            labels=named.get("signal"),
            groups=found.groups,
            name=options.embedding.name,
        )
        if options.output is not None:
            audit.save(options.output)
    print_json(audit.to_dict()) if as_json else print_text(str(audit))


def _audit(run: Run, dataset: Data, refits: RefitOptions, device: str | None, address: str | None) -> Audit:
    import numpy as np

    from pindown.auditing.audit import audit

    estimator = run.load(device=device, estimator=address)
    if device is not None:
        estimator.set_params(device=device)  # of the refits
    if dataset.names:
        estimator.feature_names_in_ = np.array(dataset.names, dtype=object)  # for the page
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they are in their order
        return audit(estimator, dataset, n_fits=refits.fits, random_state=refits.seed)
