"""`pindown audit`: what may be said of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pindown.cli._answers import complain, refusing, say, say_json, stopping
from pindown.cli._choices import DEVICE, FOREIGN, JSON
from pindown.cli.transform import RUN, say_changes

if TYPE_CHECKING:
    from pindown.auditing.result import Audit, MethodAudit
    from pindown.data.data import Data
    from pindown.runs import Run


def audit_run(
    run: RUN,
    fits: Annotated[int, typer.Option(min=2, help="Refits with other seeds; beside them three controls.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the divisions, the refits and the permutations.")] = 0,
    truth: Annotated[
        list[str] | None, typer.Option(help="Columns with known latents, to compare with; repeatable.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the data file is now, if it was moved.", show_default=False)
    ] = None,
    device: DEVICE = None,
    estimator: FOREIGN = None,
    as_json: JSON = False,
) -> None:
    """Find out what a run may claim: refit it, measure what agrees and what leaks, and write a page into the run."""
    from pindown.runs import Run
    from pindown.runs.inputs import in_memory, read

    with stopping(f"{run} is as it was; audit it again at any time."), refusing(ValueError, OSError):
        fitted = Run.open(run)
        say_changes(fitted)
        columns = fitted.columns if not truth else replace(fitted.columns, truth=tuple(truth))
        measured = not fitted.kind(estimator).spec.labels
        whole = read(fitted.find_data(data), columns, measured=measured)
        study = in_memory(whole)
        for note in study.notes[len(whole.notes) :]:
            complain(note)
        found = _audited(fitted, study, fits, seed, device, estimator)
        fitted.bind()  # or a folder that was deleted meanwhile would be made again
        pages = [found.save(run / name) for name in ("audit.html", "audit.json")]
        fitted.bind("audit.html", "audit.json")
        fitted.log(f"audited: {found.claim}")
    if as_json:
        say_json({"run": str(run), "page": str(pages[0]), **found.to_dict()})
        return
    say(str(found))
    say(f"\nThe page: {pages[0]}")


def _audited(run: Run, study: Data, fits: int, seed: int, device: str | None, kind: str | None) -> Audit | MethodAudit:
    import warnings

    import numpy as np

    from pindown.auditing.audit import audit

    estimator = run.load(device=device, estimator=kind)
    if device is not None:
        estimator.set_params(device=device)  # of the refits
    if study.names:
        estimator.feature_names_in_ = np.array(study.names, dtype=object)  # what the page calls them
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they are in their order
        return audit(estimator, study, n_fits=fits, random_state=seed)
