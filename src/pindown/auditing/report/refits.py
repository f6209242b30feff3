"""Independent fits of one estimator: with other seeds, to halves of the rows, and to shuffled side information.

An estimator may have seen all the rows it is audited on. So the rows are divided: every fit made here learns from three
quarters of them, or from half of these, and all that is measured is measured on the last quarter.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from pindown.auditing.checks.noise import noise_left
from pindown.auditing.checks.values import MIN_AUDITED_GROUPS, MIN_AUDITED_ROWS, N_PARTS
from pindown.auditing.evidence.rows import Refits, Rows
from pindown.auditing.refitting import refitted
from pindown.auditing.spec import check_roles, encoder_of
from pindown.data.data import Data, as_array
from pindown.data.files import require_in_memory
from pindown.data.labels import Codes, as_numbers
from pindown.data.splits import hold_out
from pindown.errors import IdentifiabilityWarning

MAX_HELD_OUT = 4_000
"""Held-out rows that are used: with more, what is measured would change little."""


def gathered(est: Any, X: Any, y: Any, given: Any, groups: Any, truth: Any, floor: Any = None) -> Data:
    """Return rows and what belongs to them as one value, ``y`` in the part that it plays for an estimator."""
    require_in_memory("audit", X)
    role, n = est.spec.side, len(X)
    parts = {"y": None if role is None else y, "given": given, "groups": groups, "truth": truth, "floor": floor}
    arrays = {name: as_array(part) for name, part in parts.items() if part is not None}
    for name, array in arrays.items():
        if len(array) != n:
            raise ValueError(
                f"audit: {name} has {len(array)} rows, but X has {n}. Row i of {name} must belong to row i of X."
            )
    sides: dict[str, Any] = {role if name == "y" and role is not None else name: part for name, part in arrays.items()}
    return Data(X, **sides)


def read(est: Any, data: Data) -> Rows:
    """Bring data into the form in which an estimator divides them, or say what is wrong with them."""
    role, roles = est.spec.side, est.spec.roles
    check_roles(type(est).__name__, data.side_variables, roles)
    X = est._validated(data.X, reset=False)
    if role is not None and role not in data.side_variables and est.__sklearn_tags__().target_tags.required:
        raise ValueError(f"audit: y is missing. Give the {role} that the estimator was fitted to.")
    if data.floor is not None and role != "nuisance":
        raise ValueError("audit: floor is what a blind code tells of a nuisance, and there is none. Leave it out.")
    used = {name: side for name, side in data.side_variables.items() if name in (*roles, "floor")}
    truth = None if data.truth is None else data.truth.reshape(len(X), -1).astype(np.float64)
    units = None if data.groups is None else as_numbers(data.groups.reshape(-1))
    return est.spec.prepare_audit(est, Rows(Data(X, truth=truth, **used), role, units=units))


def divide(rows: Rows, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Return the rows to learn from and the rows to hold out, about one in four, evenly within strata.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 40)
    >>> rows = Rows(Data(np.zeros((80, 1)), signal=labels), "signal", labels)
    >>> learn, hold = divide(rows, np.random.default_rng(0))
    >>> np.bincount(labels[hold]).tolist(), len(set(learn) & set(hold))
    ([10, 10], 0)
    """
    if len(rows) < MIN_AUDITED_ROWS:
        few = f"audit: {len(rows)} rows are too few to hold some out and halve the rest"
        raise ValueError(f"{few}: give {MIN_AUDITED_ROWS}.")
    if rows.units is not None and (n_groups := len(np.unique(rows.units))) < MIN_AUDITED_GROUPS:
        raise ValueError(
            f"audit: rows come in {n_groups} groups, too few to hold some out and to halve the rest: at least "
            f"{MIN_AUDITED_GROUPS} are needed. Without groups rows are taken to be independent."
        )
    held = _drawn(1 / N_PARTS, rows, rng)
    return np.flatnonzero(~held), np.flatnonzero(held)


def _drawn(fraction: float, rows: Rows, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose a fraction of the samples of each stratum, or of the units; no stratum as a whole."""
    if rows.units is not None:
        return hold_out(as_numbers(rows.units), fraction, rng)
    return hold_out(np.arange(len(rows)), fraction, rng, rows.strata)


def refit(est: Any, rows: Rows, *, n_fits: int, rng: np.random.Generator, begin: Callable[[str], None]) -> Refits:
    """Fit clones of an estimator: ``n_fits`` with other seeds, two to halves, and one that can learn nothing.

    Not all methods have the last: see `MethodSpec.null`. ``begin`` is told what comes next.
    """
    learn, hold = divide(rows, rng)
    train, held_out = rows.take(learn), rows.take(hold)
    held_out = held_out.take(np.sort(rng.permutation(len(held_out))[:MAX_HELD_OUT]))
    held_out = est.spec.measurable(train, held_out)

    def fitted(est: Any, rows: Rows, *, elsewhere: bool = False) -> Any:
        return refitted(est, rows.data, seed=int(rng.integers(2**31)), elsewhere=elsewhere)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IdentifiabilityWarning)
        others = []
        for k in range(n_fits):
            begin("fit with another seed")
            others.append(fitted(est, train, elsewhere=k > 0))
    half = _drawn(0.5, train, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # fewer rows, or none that say anything
        warnings.simplefilter("ignore", ConvergenceWarning)  # the fit itself said so
        halves, null = [], None
        for some in (half, ~half):
            begin("fit to half of the rows")
            halves.append(fitted(est, train.take(np.flatnonzero(some))))
        if (nothing := est.spec.null(est, train, rng)) is not None:
            begin("fit to shuffled data, as a control")
            null = fitted(*nothing)
    warned = (str(w.message) for w in caught if issubclass(w.category, IdentifiabilityWarning))
    noise = noise_left(encoder_of(others[0], held_out.data), held_out.X)
    return Refits(tuple(others), tuple(halves), null, held_out, train, tuple(dict.fromkeys(warned)), noise)
