"""Which column is what: observed variables, and labels that are signal, nuisance, or say who is whose partner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import counted, listed, nearest
from pindown.tables.source import Matrix, Source, dropping

FEW_VALUES = 20
"""Whole numbers that a column has at most if it looks like a label, among others that have fractions."""

MOST_COMPARED, COPIES = 100_000, 0.01
"""Rows among which copies are looked for; and their share from which they are spoken of."""

NEXT = "next"
"""Instead of a column of partners: each row's partner is the next row."""


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
    signal, given, group : str or None
        A label to learn from; a label within whose values a nuisance is forgotten; rows that belong together.
    nuisance : tuple of str
        What is to be forgotten.
    pairs : str or None
        A column whose equal values are partners, a block of partners, or ``next``.
    truth : tuple of str
        Known latents: names, patterns or blocks. They are never observed variables.
    """

    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    signal: str | None = None
    nuisance: tuple[str, ...] = ()
    pairs: str | None = None
    group: str | None = None
    given: str | None = None
    truth: tuple[str, ...] = ()

    def check(self, source: Source) -> None:
        """Raise if a column is not there."""
        for option in ("signal", "given", "group", "nuisance", "pairs"):
            for name in self._named(option):
                if option == "pairs" and (name in source.blocks or (name == NEXT and NEXT not in source.names)):
                    continue
                source.require(name, f"--{option}")

    def refuse_two_parts(self) -> None:
        """Raise if a column plays two parts that exclude each other."""
        for first, second in (("signal", "nuisance"), ("given", "nuisance"), ("pairs", "nuisance")):
            for name in set(self._named(first)) & set(self._named(second)):
                raise ValueError(
                    f"--{first} and --{second} are both {name!r}, but a variable is kept or forgotten. Leave one "
                    "of them out."
                )
        if len(set(self.nuisance)) < len(self.nuisance):
            raise ValueError("--nuisance names a column twice. Give each once.")

    def labels(self) -> tuple[str, ...]:
        """Return the columns that are no numbers to compute with, each once."""
        parts = [name for part in ("signal", "nuisance", "pairs", "group", "given") for name in self._named(part)]
        return tuple(dict.fromkeys(parts))

    def as_dict(self) -> dict[str, Any]:
        """Return the parts that are played, as JSON has them."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(part) if isinstance(part, tuple) else part for name, part in parts.items() if part}

    @classmethod
    def from_dict(cls, parts: dict[str, Any]) -> Columns:
        """Return what `as_dict` was made from."""
        values: dict[str, Any] = {name: tuple(p) if isinstance(p, list) else p for name, p in parts.items()}
        return cls(**values)

    def _named(self, part: str) -> tuple[str, ...]:
        value = getattr(self, part)
        return value if isinstance(value, tuple) else () if value is None else (value,)


@dataclass(frozen=True, eq=False)
class Study:
    """Rows with all that belongs to them, as arrays.

    Parameters
    ----------
    X : array (n, n_features)
        Observed variables, finite.
    names : tuple of str
        Their names.
    signal, given, groups : array (n,) or None
        See `Columns`.
    nuisance : array (n,) or (n, columns) or None
        One column, or several.
    pairs : array (n,) or (n, n_features) or None
        Groups of partners, or partners.
    consecutive : bool
        Whether each row's partner is the next row.
    truth : array (n, d) or None
        Known latents.
    notes : tuple of str
        What was left out, and why.
    """

    X: Matrix
    names: tuple[str, ...]
    signal: NDArray[Any] | None = None
    nuisance: NDArray[Any] | None = None
    pairs: NDArray[Any] | None = None
    consecutive: bool = False
    groups: NDArray[Any] | None = None
    given: NDArray[Any] | None = None
    truth: Matrix | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.X)

    def paired(self) -> Study:
        """Return the rows that have a next row in their group, with it as partner, if that is how rows are paired."""
        if not self.consecutive:
            return self
        last = len(self) - 1
        rows = np.arange(last) if self.groups is None else np.flatnonzero(self.groups[:-1] == self.groups[1:])
        if len(rows) < 2:
            raise ValueError("--pairs next: hardly a row has a next row in its --group. Are the rows in order?")
        return replace(self.take(rows), pairs=self.X[rows + 1], consecutive=False)

    def take(self, rows: NDArray[np.int64]) -> Study:
        """Return these rows."""
        parts = ("X", "signal", "nuisance", "pairs", "groups", "given", "truth")
        taken = {name: getattr(self, name) for name in parts}
        return replace(self, **{name: part[rows] for name, part in taken.items() if part is not None})

    def sample(self, n_rows: int) -> Study:
        """Return about so many rows, drawn at random, or all if there are fewer; partners stay together."""
        study = self.paired()
        if len(study) <= n_rows:
            return study
        rng = np.random.default_rng(0)
        if study.pairs is None or study.pairs.ndim == 2:
            return study.take(np.sort(rng.permutation(len(study))[:n_rows]))
        number = np.unique(study.pairs, return_inverse=True)[1]
        counts = np.bincount(number)
        order = rng.permutation(len(counts))
        some = order[: max(2, int((counts[order].cumsum() <= n_rows).sum()))]
        return study.take(np.flatnonzero(np.isin(number, some)))


def read_study(source: Source, columns: Columns) -> Study:
    """Read the columns that play a part, or say what is wrong with them.

    Raises
    ------
    ValueError
        Which column is wrong, why, and what to do.
    """
    columns.refuse_two_parts()
    columns.check(source)
    truth = _expanded(source, columns.truth, "--truth")
    features = _features(source, columns, truth)
    partners = source.blocks.get(columns.pairs or "", ())
    if partners and len(partners) != len(features):
        raise ValueError(
            f"--pairs: {columns.pairs} has {len(partners)} columns, but there are {len(features)} observed variables. "
            "Row i of it must be the partner of row i, in the same columns."
        )
    consecutive = columns.pairs == NEXT and NEXT not in source.names
    labels = [name for name in columns.labels() if not (name == columns.pairs and (partners or consecutive))]
    numbers, values = source.read((*features, *truth, *partners), labels)
    X, truth_values, pairs = np.split(numbers, [len(features), len(features) + len(truth)], axis=1)
    X, features, notes = _looked_over(X, features) if not columns.features else (X, features, ())
    if partners:
        pairs = pairs[:, [j for j, name in enumerate(_features(source, columns, truth)) if name in features]]
        _require_finite(source, pairs, partners)
    _require_finite(source, X, features, or_drop=not columns.features)
    _require_finite(source, truth_values, truth)
    for option in ("signal", "nuisance", "pairs", "group", "given"):
        for name in columns._named(option):
            if name in values:
                _check_label(option, name, values[name])
    return Study(
        X,
        features,
        signal=values.get(columns.signal or ""),
        nuisance=_side_by_side([values[name] for name in columns.nuisance]),
        pairs=pairs if partners else values.get(columns.pairs or ""),
        consecutive=consecutive,
        groups=values.get(columns.group or ""),
        given=values.get(columns.given or ""),
        truth=truth_values if truth else None,
        notes=(*_left_out(source, columns, truth), *notes, *_copied(X)),
    )


def _features(source: Source, columns: Columns, truth: Sequence[str]) -> tuple[str, ...]:
    used = {*columns.labels(), *truth}
    if columns.features:
        chosen = _expanded(source, columns.features, "--features")
        literal = set(columns.features) & used
        if literal:
            raise ValueError(
                f"--features: {listed(sorted(literal))} plays another part, too. Leave it out of one of them: what an "
                "encoder is shown, it can tell."
            )
    else:
        chosen = source.default_block() or source.names
    dropped = set(_expanded(source, columns.drop, "--drop"))
    kept = tuple(name for name in chosen if name not in used | dropped)
    numeric = tuple(name for name in kept if name in source.numeric)
    if not numeric:
        why = [f"{listed(sorted(used | dropped))} play another part or were dropped"] if used | dropped else []
        why += [f"{listed(kept)} hold text"] if kept else []
        raise ValueError(
            f"{source.path.name}: no observed variables are left, since {', and '.join(why)}. Name columns of numbers "
            "by --features."
        )
    for name in kept:
        if columns.features and name not in source.numeric and name in columns.features:
            raise ValueError(
                f"--features: column {name!r} of {source.path.name} holds text, not numbers. Leave it out."
            )
    return numeric


def _expanded(source: Source, patterns: Sequence[str], option: str) -> tuple[str, ...]:
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
            hint = nearest(pattern, (*source.names, *source.blocks))
            raise ValueError(f"{option}: {source.path.name} has no column {pattern!r}: {hint}")
        found |= dict.fromkeys(matched)
    return tuple(found)


def _looked_over(X: Matrix, names: tuple[str, ...]) -> tuple[Matrix, tuple[str, ...], tuple[str, ...]]:
    """Leave out columns that never change, or that count the rows; say so, and which of the others look like labels."""
    constant = [j for j, column in enumerate(X.T) if len(X) > 1 and (column == column[0]).all()]
    counting = [j for j, column in enumerate(X.T) if len(X) > 2 and j not in constant and _counts(column)]
    keep = [j for j in range(len(names)) if j not in {*constant, *counting}]
    if not keep:
        raise ValueError(f"{listed(names)} only count rows, or never change: name others by --features.")
    whole = [j for j in keep if (X[:, j] == np.rint(X[:, j])).all()]
    few = min(FEW_VALUES, len(X) // 3)
    labels = [j for j in whole if len(whole) < len(keep) and len(np.unique(X[:, j])) <= few]
    said = {
        "left out, since it never changes (name it in --features to keep it)": constant,
        "left out, since it counts rows or time (name it in --features to keep it)": counting,
        "observed, although it looks like a label (leave it out by --drop if it is one)": labels,
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


def _left_out(source: Source, columns: Columns, truth: Sequence[str]) -> tuple[str, ...]:
    if columns.features or source.blocks:
        return ()
    parts = {*columns.labels(), *truth, *_expanded(source, columns.drop, "--drop")}
    text = [name for name in source.names if name not in source.numeric and name not in parts]
    return (f"left out, since it holds text: {listed(text)}.",) if text else ()


def _require_finite(source: Source, numbers: Matrix, names: Sequence[str], *, or_drop: bool = False) -> None:
    bad = ~np.isfinite(numbers)
    if not bad.any():
        return
    j = int(bad.any(0).argmax())
    rows = np.flatnonzero(bad[:, j])
    others = int(bad.any(0).sum()) - 1
    also = f" (and {others} more column{'s' if others > 1 else ''})" if others else ""
    raise ValueError(
        f"{source.path.name}: column {names[j]!r}{also} has NaN, an empty cell or infinity in {len(rows)} of "
        f"{len(numbers)} rows, first in row {rows[0] + 1}. Fill or leave out these rows"
        + (f", or leave the column out: {dropping(names[j])}." if or_drop else ".")
    )


def _check_label(option: str, name: str, values: NDArray[Any]) -> None:
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) == 1 and option != "group":
        raise ValueError(
            f"--{option}: column {name!r} has one value only, {distinct[0]}, so that nothing can be told apart. Were "
            "the rows filtered by it? Give rows of at least two values, or another column."
        )
    fractions = values.dtype.kind == "f" and bool((values != values.round()).any())
    if fractions and option in ("signal", "given"):
        raise ValueError(
            f"--{option}: column {name!r} has fractions such as {values[values != values.round()][0]:g}, so it is no "
            "label. Cut it into a few bins, in a column of its own."
        )
    if option == "pairs" and (counts > 1).sum() < 2:
        raise ValueError(
            f"--pairs: column {name!r} has {'no value' if counts.max() == 1 else 'one value only'} twice, so that "
            "there are no partners to tell from strangers. Give related rows the same value, or take --pairs next."
        )


def _side_by_side(columns: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    if len(columns) < 2:
        return columns[0] if columns else None
    kinds = {column.dtype.kind for column in columns}
    return np.stack([column if len(kinds) == 1 else column.astype(object) for column in columns], axis=1)
