"""What is done to numbers on their way from a file, because it was asked for: missing cells, counts, names of rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import counted
from pindown.data.tables.source import Matrix, TableFile
from pindown.errors import InputError

MEDIAN, DROP_ROWS = "median", "drop-rows"

LARGEST = 1e150
"""Numbers beyond have no square."""

_NAMES_ROWS = re.compile(r"(?:^|[_ .-])(?:id|ids|index|idx|barcode|uuid|key)$|^id[_ .-]", re.IGNORECASE)


def filled(
    X: Matrix, names: Sequence[str], how: str | None, medians: Mapping[str, float] | None = None
) -> tuple[Matrix, NDArray[np.bool_], tuple[str, ...]]:
    """Fill missing numbers by the median of their column, or say which rows have none missing; say so.

    Parameters
    ----------
    X : array (n, d)
        Numbers; NaN is missing, infinity is not.
    names : sequence of str
        Of the columns.
    how : "median", "drop-rows" or None
        What to do.
    medians : mapping of str to float, optional
        Of the rows that an encoder has learned from; None: of these.

    Examples
    --------
    >>> x = np.array([[1.0, 5.0], [np.nan, 7.0], [3.0, 9.0]])
    >>> filled(x, ["a", "b"], "median")[0].tolist()
    [[1.0, 5.0], [2.0, 7.0], [3.0, 9.0]]
    >>> filled(x, ["a", "b"], "drop-rows")[1].tolist()
    [True, False, True]
    """
    missing = np.isnan(X)
    keep: NDArray[np.bool_] = np.ones(len(X), dtype=bool)
    if how is None or not missing.any():
        return X, keep, ()
    if how not in (MEDIAN, DROP_ROWS):
        raise InputError("impute", f"`impute` must be median or drop-rows, got {how!r}.")
    if how == DROP_ROWS:
        keep = np.asarray(~missing.any(1))
        if not keep.any():
            raise InputError(
                "impute", "`impute='drop-rows'` leaves no row: something is missing in each. Take `impute='median'`."
            )
        return X, keep, (f"{counted(int((~keep).sum()), 'row')} left out, since something is missing there.",)
    if (empty := missing.all(0)).any() and medians is None:
        name = names[int(empty.argmax())]
        raise InputError(
            "impute", f"`impute='median'`: column {name!r} has no number at all. Leave it out: `drop={name!r}`."
        )
    middle = np.nanmedian(X, axis=0) if medians is None else np.array([medians[name] for name in names])
    n, d = int(missing.sum()), int(missing.any(0).sum())
    said = f"{counted(n, 'cell')} of {counted(d, 'column')} filled by the median of the column."
    return np.where(missing, middle, X), keep, (said,)


def refuse_huge(source: TableFile, X: Matrix, names: Sequence[str]) -> None:
    """Raise if a number is too large to compute with, and say which."""
    huge = np.abs(X) > LARGEST
    if huge.any():
        i, j = (int(k) for k in np.argwhere(huge)[0])
        raise InputError(
            names[j],
            f"{source.path.name}: column {names[j]!r} holds {X[i, j]:g} in row {i + 1}, which is too large to compute "
            "with. If it stands for a missing value, empty the cell and take `impute='median'`; or leave the column "
            f"out: `drop={names[j]!r}`.",
        )


def names_rows(name: str, column: NDArray[Any]) -> bool:
    """Say whether a column of numbers names rows: whole, each its own, and called so.

    Examples
    --------
    >>> numbers = np.array([104.0, 22.0, 57.0])
    >>> names_rows("patient_id", numbers), names_rows("n_counts", numbers), names_rows("id", numbers / 3)
    (True, False, False)
    """
    if not _NAMES_ROWS.search(name) or not np.isfinite(column).all():
        return False
    return bool((column == np.rint(column)).all()) and len(np.unique(column)) == len(column)


def row_names(source: TableFile, asked: str | None, others: Sequence[str]) -> tuple[str | None, NDArray[Any] | None]:
    """Return what names the rows, and its name: as asked, as the file has it, or the first text that does.

    Parameters
    ----------
    source : TableFile
        The file.
    asked : str or None
        The column that was asked for.
    others : sequence of str
        Columns of text that play no other part.
    """
    if asked is not None:
        source.require(asked, "id")
        return asked, source.read((), (asked,))[1][asked]
    own = source.row_names()
    if own is not None:
        return "id", own
    for name in others:
        try:
            values = source.read((), (name,))[1][name]
        except ValueError:  # empty cells
            continue
        if len(np.unique(values)) == len(values) > 1:
            return name, values
    return None, None
