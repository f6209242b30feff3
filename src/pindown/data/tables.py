"""Tables as data: which column plays which role, and what is wrong with a column."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown._names import counted, listed, quoted
from pindown.data.data import LARGEST, NEXT, Data
from pindown.data.labels import is_quantity, missing
from pindown.data.table_files import WRITABLE, Matrix, TableFile, check_writable, open_table, write_latents
from pindown.errors import InputError

__all__ = [
    "WRITABLE",
    "Columns",
    "TableFile",
    "check_label",
    "check_writable",
    "log_counts",
    "open_table",
    "read_data",
    "write_latents",
]

FEW_VALUES = 20  # most distinct whole numbers of a column that looks like a label, if other columns have fractions
MOST_COMPARED, COPIES = 100_000, 0.01  # samples among which copies are counted; the fraction that a note mentions
COUNTS = 1e4  # to which every sample is scaled


@dataclass(frozen=True)
class Columns:
    """The role of each column, by name; of signal and nuisance, a single name may be passed as text."""

    features: tuple[str, ...] = ()  # names, shell patterns or blocks; empty: the block X, or all numbers without a role
    drop: tuple[str, ...] = ()  # names or patterns of columns to leave out of these
    signal: tuple[str, ...] = ()  # a label to learn from, or several measurements
    nuisance: tuple[str, ...] = ()  # what to remove
    pairs: str | None = None  # a column whose equal values are positives, a block of positives, or "next"
    group: str | None = None  # samples that belong together
    given: str | None = None  # a label that must survive the removal of a nuisance
    truth: tuple[str, ...] = ()  # known latents: names, patterns or blocks, never observed variables
    id: str | None = None  # names of samples; None: those of the file, or the first column of distinct texts
    impute: str | None = None  # where observed variables are missing: "median", "drop-rows", or None to raise
    counts: bool = False  # whether observed variables are counts: see `log_counts`

    def __post_init__(self) -> None:
        for role in ("signal", "nuisance"):
            object.__setattr__(self, role, self.named(role))

    def named(self, role: str) -> tuple[str, ...]:
        """Return the columns of a role."""
        value = getattr(self, role)
        return value if isinstance(value, tuple) else () if value is None else (value,)

    def check(self, table: TableFile) -> None:
        """Raise if a column does not exist."""
        for role in (*_SIDES, "id"):
            for name in self.named(role):
                if role != "pairs" or (name not in table.blocks and name != NEXT):
                    table.require(name, role)

    def check_roles(self) -> None:
        """Raise if options exclude each other, such as a column that is kept and removed."""
        for role in ("signal", "given", "pairs"):
            if both := set(self.named(role)) & set(self.nuisance):
                name = quoted(both.pop())
                raise InputError(role, f"`{role}` and `nuisance` are both {name}. Leave one of them out.")
        if self.impute not in (None, "median", "drop-rows"):
            raise InputError("impute", f"`impute` must be median or drop-rows, got {self.impute!r}.")
        if self.counts and self.impute == "median":
            raise InputError("impute", "With `counts`, take `impute='drop-rows'`: a median is no count.")
        for role in ("signal", "nuisance"):
            if len(set(named := self.named(role))) < len(named):
                raise InputError(role, f"`{role}` names a column twice. Give each once.")

    def labels(self) -> tuple[str, ...]:
        """Return the columns that are labels or measurements, each once."""
        return tuple(dict.fromkeys(name for role in _SIDES for name in self.named(role)))

    def as_dict(self) -> dict[str, Any]:
        """Return the roles that are in use, for JSON."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        parts |= {"signal": self.signal[0]} if len(self.signal) == 1 else {}  # as in the records of earlier versions
        return {name: list(part) if isinstance(part, tuple) else part for name, part in parts.items() if part}

    @classmethod
    def from_dict(cls, parts: Mapping[str, Any]) -> Columns:
        """Return the columns that `as_dict` was made from."""
        values: dict[str, Any] = {name: tuple(p) if isinstance(p, list) else p for name, p in parts.items()}
        return cls(**values)


_SIDES = ("signal", "nuisance", "pairs", "group", "given")


def read_data(
    table: TableFile,
    columns: Columns,
    *,
    measured: bool = False,
    encoded: bool = False,
    medians: Mapping[str, float] | None = None,
) -> Data:
    """Read the columns that have a role, or raise an error that names the column at fault.

    If the signal is ``measured``, it may have fractions. If samples are only ``encoded``, a label may have a single
    value. Missing cells are filled with ``medians`` by column, by default those of these samples.
    """
    columns.check_roles()
    columns.check(table)
    if len(columns.signal) > 1 and not measured:
        named = listed(columns.signal)
        remedy = "For measurements, name an `estimator` that learns from such"
        raise InputError("signal", f"`signal`: a label is one column, but {named} were named. {remedy}.")
    truth, dropped = _expand(table, columns.truth, "truth"), _expand(table, columns.drop, "drop")
    used = {*columns.labels(), *truth}
    features = _features(table, columns, used | {*columns.named("id")}, dropped)
    positives = table.blocks.get(columns.pairs or "", ())
    if positives and len(positives) != len(features):
        counts = f"{columns.pairs} has {len(positives)} columns, but there are {len(features)} observed variables"
        raise InputError("pairs", f"`pairs`: {counts}. Row i of it must be the positive of row i.")
    is_next = columns.pairs == NEXT and NEXT not in table.names
    labels = [name for name in columns.labels() if not (name == columns.pairs and (positives or is_next))]
    not_text = {*table.numeric, *used, *dropped}
    spare = [name for name in table.names if name not in not_text]
    texts = spare if columns.id is None else [columns.id]
    numbers, values = table.read((*features, *truth, *positives), list(dict.fromkeys((*labels, *texts))))
    for name in labels if columns.id is None else [*labels, columns.id]:
        _require_complete(table, name, values[name])
    id_name, ids = (columns.id, values[columns.id]) if columns.id else _ids(table, spare, values)
    X, known, pairs = np.split(numbers, [len(features), len(features) + len(truth)], axis=1)
    keep, notes = ([*range(len(features))], ()) if columns.features else _informative(X, features)
    if len(keep) < len(features):
        X, features = X[:, keep], tuple(features[j] for j in keep)
        pairs, positives = (pairs[:, keep], tuple(positives[j] for j in keep)) if positives else (pairs, ())
    _require_finite(table, pairs, positives)
    X, complete, filling = _filled(X, features, columns.impute, medians)
    if not complete.all():
        X, known, pairs = (part[complete] for part in (X, known, pairs))
        values = {name: part[complete] for name, part in values.items()}
        ids = None if ids is None else ids[complete]
    _require_finite(table, X, features, can_drop=not columns.features)
    _require_finite(table, known, truth)
    if columns.counts:
        X, pairs = log_counts(X, features), log_counts(pairs, features) if positives else pairs
    if not encoded:
        for role in _SIDES:
            for name in set(columns.named(role)) & set(labels):
                check_label(role, name, values[name], measured=measured)
    if not columns.features and not table.blocks:
        others = [name for name in spare if name != id_name]
        notes = ((f"left out, since it holds text: {listed(others)}.",) if others else ()) + notes
        notes = ((f"samples are named by {id_name}.",) if id_name in spare else ()) + notes
    return Data(
        X,
        signal=_together([values[name] for name in columns.signal]),
        nuisance=_together([values[name] for name in columns.nuisance]),
        pairs=NEXT if is_next else pairs if positives else values.get(columns.pairs or ""),
        groups=values.get(columns.group or ""),
        given=values.get(columns.given or ""),
        truth=known if truth else None,
        names=features,
        notes=(*notes, *filling, *_copies(X)),
        ids=ids,
        id_name=id_name or "id",
    )


# ---- which columns --------------------------------------------------------------------------------------------------


def _expand(table: TableFile, patterns: Sequence[str], argument: str) -> tuple[str, ...]:
    """Return the columns that names, patterns and blocks stand for, each once."""
    found: dict[str, None] = {}
    for pattern in patterns:
        matched = (pattern,) if pattern in table.names else table.blocks.get(pattern)
        if matched := matched or tuple(name for name in table.names if fnmatchcase(name, pattern)):
            found |= dict.fromkeys(matched)
        else:
            raise table.lacks(pattern, argument, (*table.names, *table.blocks))
    return tuple(found)


def _features(table: TableFile, columns: Columns, used: set[str], dropped: Sequence[str]) -> tuple[str, ...]:
    """Return the observed variables: those that were named, or all numbers that have no other role."""
    if twice := set(columns.features) & used:
        named = listed(sorted(twice))
        raise InputError("features", f"`features`: {named} has another role, too. Leave it out of one of them.")
    chosen = _expand(table, columns.features, "features") or table.default_block() or table.names
    left_out, numbers = {*used, *dropped}, set(table.numeric)
    kept = [name for name in chosen if name not in left_out]
    numeric = tuple(name for name in kept if name in numbers)
    if not numeric:
        gone = listed(sorted({*used, *dropped}))
        why = f"{listed(kept)} hold text" if kept else f"{gone} have another role or were dropped"
        message = f"{table.path.name}: no observed variables are left, since {why}. Name columns of numbers"
        raise InputError("features", f"{message} by `features`.")
    if text := [name for name in columns.features if name in kept and name not in numbers]:
        where = f"column {quoted(text[0])} of {table.path.name}"
        raise InputError("features", f"`features`: {where} holds text, not numbers.")
    return numeric


def _ids(
    table: TableFile, texts: Sequence[str], values: Mapping[str, NDArray[np.generic]]
) -> tuple[str | None, NDArray[np.generic] | None]:
    """Return what names the samples: as the file has it, or the first text of distinct values."""
    if (own := table.sample_names()) is not None:
        return "id", own
    for name in texts:
        column = values[name]
        if not missing(column).any() and len(np.unique(column)) == len(column) > 1:
            return name, column
    return None, None


def _informative(X: Matrix, names: tuple[str, ...]) -> tuple[list[int], tuple[str, ...]]:
    """Return the columns that are neither constant, nor an index, nor names of samples; and notes on the others."""
    n, few = len(X), min(FEW_VALUES, len(X) // 3)
    found: dict[str, list[str]] = {"never changes": [], "counts rows or time": [], "names samples": []}
    keep = []
    for j, column in enumerate(X.T):
        if n > 1 and (column == column[0]).all():
            found["never changes"].append(names[j])
        elif n > 2 and _is_index(column):
            found["counts rows or time"].append(names[j])
        elif n > 2 and names_samples(names[j], column):
            found["names samples"].append(names[j])
        else:
            keep.append(j)
    if not keep:
        raise InputError("features", f"{listed(names)} only count rows, or never change. Name others by `features`.")
    notes = [
        f"left out, since it {why} (name it in `features` to keep it): {listed(which)}."
        for why, which in found.items()
        if which
    ]
    whole = [j for j in keep if (X[:, j] == np.rint(X[:, j])).all()]
    labels = [names[j] for j in whole if len(whole) < len(keep) and len(np.unique(X[:, j])) <= few]
    if labels:
        notes.append(
            f"observed, although it looks like a label (leave it out by `drop` if it is one): {listed(labels)}."
        )
    return keep, tuple(notes)


def _is_index(column: NDArray[np.float64]) -> bool:
    """Whether a column goes on by equal steps, except for a few new starts: an index, a trial, a clock."""
    with np.errstate(invalid="ignore"):  # infinity raises later
        steps = np.diff(column)
    step = np.median(steps)
    return bool(step != 0 and np.isclose(steps, step, rtol=1e-3, atol=0.0).mean() > 0.9)


def names_samples(name: str, column: NDArray[np.float64]) -> bool:
    """Whether a column of numbers names samples: distinct whole numbers under a name such as ``patient_id``."""
    is_name = re.search(r"(?:^|[_ .-])(?:id|ids|index|idx|barcode|uuid|key)$|^id[_ .-]", name, re.IGNORECASE)
    return is_name is not None and bool((column == np.rint(column)).all()) and len(np.unique(column)) == len(column)


def _copies(X: Matrix) -> tuple[str, ...]:
    """Return a note on samples that are copies of others, unless all numbers are whole, so that it may be chance."""
    some = np.ascontiguousarray(X[:MOST_COMPARED])
    n_copies = len(some) - len({hash(sample.tobytes()) for sample in some})
    if n_copies < COPIES * len(some) or (some == np.rint(some)).all():
        return ()
    copies = f"of {counted(len(some), 'sample')} {n_copies} are exact copies of others"
    return (f"{copies}: leave these out, or an audit will hold out samples that the fit has seen.",)


# ---- what is wrong with a column ------------------------------------------------------------------------------------


def _filled(
    X: Matrix, names: Sequence[str], how: str | None, medians: Mapping[str, float] | None
) -> tuple[Matrix, NDArray[np.bool_], tuple[str, ...]]:
    """Return X with missing numbers filled, which samples are complete, and a note."""
    empty = np.isnan(X)
    complete = np.asarray(~empty.any(1))
    if how is None or complete.all():
        return X, np.ones_like(complete), ()
    if how == "drop-rows":
        if not complete.any():
            raise InputError("impute", "`impute='drop-rows'` leaves no sample. Take `impute='median'`.")
        return X, complete, (f"{counted(int((~complete).sum()), 'sample')} left out, with missing numbers.",)
    if medians is None and (without := empty.all(0)).any():
        name = quoted(names[int(without.argmax())])
        raise InputError("impute", f"Column {name} has no number at all, so no median. Leave it out: `drop={name}`.")
    middle = np.nanmedian(X, axis=0) if medians is None else np.array([medians[name] for name in names])
    cells, filled = counted(int(empty.sum()), "cell"), counted(int(empty.any(0).sum()), "column")
    note = f"{cells} of {filled} filled by the median of the column."
    return np.where(empty, middle, X), np.ones_like(complete), (note,)


def _require_finite(table: TableFile, X: Matrix, names: Sequence[str], *, can_drop: bool = False) -> None:
    """Raise if a number is missing, infinite, or too large to compute with."""
    if X.size == 0 or max(X.max(), -X.min()) <= LARGEST:  # false for NaN
        return
    bad = ~(np.abs(X) <= LARGEST)
    j = int(bad.any(0).argmax())
    name, rows = quoted(names[j]), np.flatnonzero(bad[:, j])
    drop = f", or leave the column out: `drop={name}`" if can_drop else ""
    if np.isfinite(X[rows[0], j]):
        what, remedy = f"{X[rows[0], j]:g} in row {rows[0] + 1}, which is too large to compute with", "Empty such cells"
    else:
        others = int(bad.any(0).sum()) - 1
        name += f" (and {others} more column{'s' if others > 1 else ''})" if others else ""
        what = f"NaN, an empty cell or infinity in {len(rows)} of {len(X)} rows, first in row {rows[0] + 1}"
        remedy = "Fill these cells"
    remedy += f", or take `impute='median'` or `impute='drop-rows'`{drop}"
    raise InputError("features", f"{table.path.name}: column {name} has {what}. {remedy}.")


def _require_complete(table: TableFile, name: str, values: NDArray[np.generic]) -> None:
    """Raise if a label is missing."""
    if (empty := missing(values)).any():
        where = (
            f"{empty.sum()} of {len(values)} rows, first in row {int(empty.argmax()) + 1} (none and NA count as empty)"
        )
        remedy = "Fill it, such as with 'unknown', or leave these rows out"
        raise InputError(name, f"{table.path.name}: column {quoted(name)} is empty in {where}. {remedy}.")


def check_label(role: str, name: str, values: NDArray[np.generic], *, measured: bool) -> None:
    """Raise if a column is not fit for its role: one value only, another in every row, fractions in a label."""
    distinct, counts = np.unique(values, return_counts=True)
    problem = None
    if len(distinct) == 1 and role != "group":
        problem = f"has one value only, {distinct[0]}. Were the rows filtered by it? Give rows of at least two values"
    elif len(distinct) == len(values) > 1 and values.dtype.kind in "UO" and role in ("signal", "nuisance", "given"):
        problem = "has another value in every row, so it names samples, and is no label. Give one whose values recur"
    elif is_quantity(values) and (role == "given" or (role == "signal" and not measured)):
        fraction = values[values != values.round()][0]
        problem = f"has fractions such as {fraction:g}, so it is no label. Cut it into a few bins, in a new column"
    elif role == "pairs" and (counts > 1).sum() < 2:
        which = "no value" if counts.max() == 1 else "one value only"
        problem = f"has {which} twice. Give related rows the same value, or take `pairs='next'`"
    if problem is not None:
        raise InputError(role, f"`{role}`: column {quoted(name)} {problem}.")


def _together(columns: Sequence[NDArray[np.generic]]) -> NDArray[np.generic] | None:
    """Return one column as it is, several as (n, k)."""
    if len(columns) < 2:
        return columns[0] if columns else None
    mixed = len({column.dtype.kind for column in columns}) > 1
    return np.stack([column.astype(object) if mixed else column for column in columns], axis=1)


def log_counts(X: ArrayLike, names: Sequence[str] | None = None) -> Matrix:
    """Scale each sample to ten thousand counts, and take log(1 + x), as is usual for counts of molecules.

    Every sample is treated by itself, so nothing is learned from others.

    Parameters
    ----------
    X : array (n, d)
        Whole numbers, none below zero.
    names : sequence of str, optional
        Names of the columns, for messages.

    Examples
    --------
    >>> log_counts([[1.0, 0.0], [3.0, 1.0]]).round(2).tolist()
    [[9.21, 0.0], [8.92, 7.82]]
    >>> log_counts([[1.0, 0.5]], ["a", "b"])
    Traceback (most recent call last):
    pindown.errors.InputError: `counts`: column 'b' has 0.5 in row 1, which is no count. Leave `counts` out, ...
    """
    counts = np.asarray(X)
    if counts.ndim != 2 or counts.dtype.kind not in "buif":
        raise InputError("X", f"X must be a table of counts, (n, d), got shape {counts.shape}, {counts.dtype}.")
    if (wrong := ~((counts >= 0) & (np.rint(counts) == counts))).any():
        i, j = (int(k) for k in np.argwhere(wrong)[0])
        name = quoted(str(j) if names is None else names[j])
        where = f"column {name} has {counts[i, j]:g} in row {i + 1}, which is no count"
        raise InputError("counts", f"`counts`: {where}. Leave `counts` out, or the column: `drop={name}`.")
    total = counts.sum(1, keepdims=True)
    if not total.all():
        row = int((total[:, 0] == 0).argmax()) + 1
        raise InputError("counts", f"`counts`: row {row} has no counts at all. Leave such rows out.")
    logs: Matrix = np.log1p(COUNTS * counts / total)
    return logs
