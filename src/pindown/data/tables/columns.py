"""Which column is what: observed variables, and labels that are signal, nuisance, or say who is whose partner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._counts import log_counts
from pindown._names import counted, listed
from pindown.data.data import NEXT, Data
from pindown.data.labels import is_quantity
from pindown.data.tables.mending import MEDIAN, filled, names_rows, refuse_huge, row_names
from pindown.data.tables.source import Matrix, TableFile
from pindown.errors import InputError

FEW_VALUES = 20
"""Whole numbers that a column has at most if it looks like a label, among others that have fractions."""

MOST_COMPARED, COPIES = 100_000, 0.01
"""Rows among which copies are looked for; and their share from which they are spoken of."""


@dataclass(frozen=True)
class Columns:
    """The part that each column plays, by name.

    Parameters
    ----------
    features : tuple of str
        Observed variables: names, shell patterns such as ``gene_*``, or names of blocks. Empty: the block ``X`` if
        there is one, otherwise all columns of numbers that play no other part.
    drop : tuple of str
        Names or patterns to leave out of these.
    signal, nuisance : tuple of str
        A label to learn from, or several measurements; what is to be forgotten. A single name may stand alone.
    given, group : str or None
        A label within whose values a nuisance is forgotten; rows that belong together.
    pairs : str or None
        A column whose equal values are partners, a block of partners, or ``next``.
    truth : tuple of str
        Known latents: names, patterns or blocks. They are never observed variables.
    id : str or None
        What the rows are called. None: what the file has for it, or the first column of text with a value per row.
    impute : {"median", "drop-rows"} or None
        What is done where observed variables are missing. None: it is refused.
    counts : bool
        Whether observed variables are counts: each row is brought to the same number, and log(1 + x) is taken.
    """

    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    signal: tuple[str, ...] = ()
    nuisance: tuple[str, ...] = ()
    pairs: str | None = None
    group: str | None = None
    given: str | None = None
    truth: tuple[str, ...] = ()
    id: str | None = None
    impute: str | None = None
    counts: bool = False

    def __post_init__(self) -> None:
        for part in ("signal", "nuisance"):
            object.__setattr__(self, part, self._named(part))

    def check(self, source: TableFile) -> None:
        """Raise if a column is not there."""
        for option in ("signal", "given", "group", "nuisance", "pairs", "id"):
            for name in self._named(option):
                if option == "pairs" and (name in source.blocks or (name == NEXT and NEXT not in source.names)):
                    continue
                source.require(name, option)

    def refuse_two_parts(self) -> None:
        """Raise if a column plays two parts that exclude each other."""
        for first, second in (("signal", "nuisance"), ("given", "nuisance"), ("pairs", "nuisance")):
            for name in set(self._named(first)) & set(self._named(second)):
                raise InputError(
                    first,
                    f"`{first}` and `{second}` are both {name!r}, but a variable is kept or forgotten. Leave one of "
                    "them out.",
                )
        if self.counts and self.impute == MEDIAN:
            raise InputError(
                "impute", "`counts` and `impute='median'`: a median is no count. Take `impute='drop-rows'`."
            )
        for part in ("signal", "nuisance"):
            if len(set(named := self._named(part))) < len(named):
                raise InputError(part, f"`{part}` names a column twice. Give each once.")

    def labels(self) -> tuple[str, ...]:
        """Return the columns that are no numbers to compute with, each once."""
        parts = [name for part in ("signal", "nuisance", "pairs", "group", "given") for name in self._named(part)]
        return tuple(dict.fromkeys(parts))

    def as_dict(self) -> dict[str, Any]:
        """Return the parts that are played, as JSON has them."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        parts |= {"signal": self.signal[0]} if len(self.signal) == 1 else {}  # as records have it: mostly there is one
        return {name: list(part) if isinstance(part, tuple) else part for name, part in parts.items() if part}

    @classmethod
    def from_dict(cls, parts: dict[str, Any]) -> Columns:
        """Return what `as_dict` was made from."""
        values: dict[str, Any] = {name: tuple(p) if isinstance(p, list) else p for name, p in parts.items()}
        return cls(**values)

    def _named(self, part: str) -> tuple[str, ...]:
        value = getattr(self, part)
        return value if isinstance(value, tuple) else () if value is None else (value,)


def read_data(
    source: TableFile,
    columns: Columns,
    *,
    measured: bool = False,
    encoded: bool = False,
    medians: Mapping[str, float] | None = None,
) -> Data:
    """Read the columns that play a part, or say what is wrong with them.

    Parameters
    ----------
    source : TableFile
        The file.
    columns : Columns
        Which column plays which part.
    measured : bool
        Whether the signal may be measurements, with fractions, rather than a label.
    encoded : bool
        Whether nothing is learned from these rows, so that all of them may have one value.
    medians : mapping of str to float, optional
        What missing numbers of each column are filled with; None: with the medians of these rows.

    Raises
    ------
    ValueError
        Which column is wrong, why, and what to do.
    """
    columns.refuse_two_parts()
    columns.check(source)
    if len(columns.signal) > 1 and not measured:
        raise InputError(
            "signal",
            f"`signal`: a label is one column, but {listed(columns.signal)} were named. If they are measurements, name "
            "a method that learns from such: `estimator`.",
        )
    truth = _expanded(source, columns.truth, "truth")
    features = _features(source, columns, truth)
    partners = source.blocks.get(columns.pairs or "", ())
    if partners and len(partners) != len(features):
        raise InputError(
            "pairs",
            f"`pairs`: {columns.pairs} has {len(partners)} columns, but there are {len(features)} observed variables. "
            "Row i of it must be the partner of row i, in the same columns.",
        )
    consecutive = columns.pairs == NEXT and NEXT not in source.names
    labels = [name for name in columns.labels() if not (name == columns.pairs and (partners or consecutive))]
    numbers, values = source.read((*features, *truth, *partners), labels)
    X, truth_values, pairs = np.split(numbers, [len(features), len(features) + len(truth)], axis=1)
    X, features, notes = _looked_over(X, features) if not columns.features else (X, features, ())
    id_name, ids = row_names(source, columns.id, _spare_text(source, columns, truth))
    ids = ids if ids is not None and len(ids) == len(X) else None
    if partners:
        pairs = pairs[:, [j for j, name in enumerate(_features(source, columns, truth)) if name in features]]
        _require_finite(source, pairs, partners)
    X, keep, filling = filled(X, features, columns.impute, medians)
    if not keep.all():
        X, truth_values, pairs = (part[keep] for part in (X, truth_values, pairs))
        values, ids = {name: part[keep] for name, part in values.items()}, None if ids is None else ids[keep]
    _require_finite(source, X, features, or_drop=not columns.features)
    refuse_huge(source, X, features)
    if columns.counts:
        X, pairs = log_counts(X, features), log_counts(pairs, features) if partners else pairs
    _require_finite(source, truth_values, truth)
    for option in ("signal", "nuisance", "pairs", "group", "given"):
        for name in columns._named(option):
            if name in values and not encoded:
                check_label(option, name, values[name], measured=measured)
    return Data(
        X,
        signal=_side_by_side([values[name] for name in columns.signal]),
        nuisance=_side_by_side([values[name] for name in columns.nuisance]),
        pairs=NEXT if consecutive else pairs if partners else values.get(columns.pairs or ""),
        groups=values.get(columns.group or ""),
        given=values.get(columns.given or ""),
        truth=truth_values if truth else None,
        names=features,
        notes=(*_left_out(source, columns, truth, id_name), *notes, *filling, *_copied(X)),
        ids=ids,
        id_name=id_name or "id",
    )


def _features(source: TableFile, columns: Columns, truth: Sequence[str]) -> tuple[str, ...]:
    used = {*columns.labels(), *truth, *([columns.id] if columns.id else [])}
    if columns.features:
        chosen = _expanded(source, columns.features, "features")
        literal = set(columns.features) & used
        if literal:
            raise InputError(
                "features",
                f"`features`: {listed(sorted(literal))} plays another part, too. Leave it out of one of them: an "
                "encoder can keep whatever it is shown.",
            )
    else:
        chosen = source.default_block() or source.names
    dropped = set(_expanded(source, columns.drop, "drop"))
    kept = tuple(name for name in chosen if name not in used | dropped)
    numeric = tuple(name for name in kept if name in source.numeric)
    if not numeric:
        why = [f"{listed(sorted(used | dropped))} play another part or were dropped"] if used | dropped else []
        why += [f"{listed(kept)} hold text"] if kept else []
        raise InputError(
            "features",
            f"{source.path.name}: no observed variables are left, since {', and '.join(why)}. Name columns of numbers "
            "by `features`.",
        )
    for name in kept:
        if columns.features and name not in source.numeric and name in columns.features:
            raise InputError(
                "features", f"`features`: column {name!r} of {source.path.name} holds text, not numbers. Leave it out."
            )
    return numeric


def _expanded(source: TableFile, patterns: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the columns that names, patterns and blocks stand for, each once."""
    found: dict[str, None] = {}
    for pattern in patterns:
        if pattern in source.names:
            matched: tuple[str, ...] = (pattern,)
        elif pattern in source.blocks:
            matched = source.blocks[pattern]
        else:
            matched = tuple(name for name in source.names if fnmatchcase(name, pattern))
        if not matched:
            raise source.lacks(pattern, option, (*source.names, *source.blocks))
        found |= dict.fromkeys(matched)
    return tuple(found)


def _looked_over(X: Matrix, names: tuple[str, ...]) -> tuple[Matrix, tuple[str, ...], tuple[str, ...]]:
    """Leave out columns that never change, or that count the rows; say so, and which of the others look like labels."""
    constant = [j for j, column in enumerate(X.T) if len(X) > 1 and (column == column[0]).all()]
    counting = [j for j, column in enumerate(X.T) if len(X) > 2 and j not in constant and _counts(column)]
    naming = [j for j, column in enumerate(X.T) if len(X) > 2 and j not in counting and names_rows(names[j], column)]
    keep = [j for j in range(len(names)) if j not in {*constant, *counting, *naming}]
    if not keep:
        raise InputError("features", f"{listed(names)} only count rows, or never change: name others by `features`.")
    whole = [j for j in keep if (X[:, j] == np.rint(X[:, j])).all()]
    few = min(FEW_VALUES, len(X) // 3)
    labels = [j for j in whole if len(whole) < len(keep) and len(np.unique(X[:, j])) <= few]
    said = {
        "left out, since it never changes (name it in `features` to keep it)": constant,
        "left out, since it counts rows or time (name it in `features` to keep it)": counting,
        "left out, since it names rows, each its own (name it in `features` to keep it)": naming,
        "observed, although it looks like a label (leave it out by `drop` if it is one)": labels,
    }
    notes = [f"{what}: {listed([names[j] for j in columns])}." for what, columns in said.items() if columns]
    return (X if len(keep) == len(names) else X[:, keep]), tuple(names[j] for j in keep), tuple(notes)


def _copied(X: Matrix) -> tuple[str, ...]:
    """Say how many rows are copies of others, where numbers have fractions, so that this is no chance."""
    some = X[:MOST_COMPARED]
    if (some == np.rint(some)).all():
        return ()
    n_copies = len(some) - len({row.tobytes() for row in np.ascontiguousarray(some)})
    if n_copies < COPIES * len(some):
        return ()
    copies = f"of {counted(len(some), 'row')} {n_copies} are exact copies of others"
    return (f"{copies}: leave these out, or an audit will hold out what it has learned from.",)


def _counts(column: NDArray[np.float64]) -> bool:
    """Say whether a column goes on by equal steps, but for a few new starts: an index, a trial, a clock."""
    with np.errstate(invalid="ignore"):  # infinity is refused later, with its row
        steps = np.diff(column)
    step = np.median(steps)
    return bool(step != 0 and np.isclose(steps, step, rtol=1e-3, atol=0.0).mean() > 0.9)


def _spare_text(source: TableFile, columns: Columns, truth: Sequence[str]) -> list[str]:
    """Return the columns of text that play no part."""
    parts = {*columns.labels(), *truth, *_expanded(source, columns.drop, "drop")}
    return [name for name in source.names if name not in source.numeric and name not in parts]


def _left_out(source: TableFile, columns: Columns, truth: Sequence[str], id_name: str | None) -> tuple[str, ...]:
    text = [] if columns.features or source.blocks else _spare_text(source, columns, truth)
    notes = [f"rows are called by {id_name}."] if id_name in text else []
    others = [name for name in text if name != id_name]
    return (*notes, *([f"left out, since it holds text: {listed(others)}."] if others else []))


def _require_finite(source: TableFile, numbers: Matrix, names: Sequence[str], *, or_drop: bool = False) -> None:
    bad = ~np.isfinite(numbers)
    if not bad.any():
        return
    j = int(bad.any(0).argmax())
    rows = np.flatnonzero(bad[:, j])
    others = int(bad.any(0).sum()) - 1
    also = f" (and {others} more column{'s' if others > 1 else ''})" if others else ""
    raise InputError(
        names[j],
        f"{source.path.name}: column {names[j]!r}{also} has NaN, an empty cell or infinity in {len(rows)} of "
        f"{len(numbers)} rows, first in row {rows[0] + 1}. Fill these cells, or take `impute='median'` or "
        f"`impute='drop-rows'`" + (f", or leave the column out: `drop={names[j]!r}`." if or_drop else "."),
    )


def check_label(option: str, name: str, values: NDArray[Any], *, measured: bool) -> None:
    """Raise if a column cannot play its part: one value only, another in every row, fractions in a label."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) == 1 and option != "group":
        raise InputError(
            option,
            f"`{option}`: column {name!r} has one value only, {distinct[0]}, so that there is nothing to compare. Were "
            "the rows filtered by it? Give rows of at least two values, or another column.",
        )
    if len(distinct) == len(values) > 1 and values.dtype.kind in "UO" and option in ("signal", "nuisance", "given"):
        raise InputError(
            option,
            f"`{option}`: column {name!r} has another value in every row, so that it names rows, and is no label. Give "
            "a column whose values come again.",
        )
    if is_quantity(values) and (option == "given" or (option == "signal" and not measured)):
        raise InputError(
            option,
            f"`{option}`: column {name!r} has fractions such as {values[values != values.round()][0]:g}, so it is no "
            "label. Cut it into a few bins, in a column of its own.",
        )
    if option == "pairs" and (counts > 1).sum() < 2:
        which = "no value" if counts.max() == 1 else "one value only"
        raise InputError(
            "pairs",
            f"`pairs`: column {name!r} has {which} twice, so that there are no pairs to compare with. Give related "
            "rows the same value, or take `pairs='next'`.",
        )


def _side_by_side(columns: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    if len(columns) < 2:
        return columns[0] if columns else None
    kinds = {column.dtype.kind for column in columns}
    return np.stack([column if len(kinds) == 1 else column.astype(object) for column in columns], axis=1)
