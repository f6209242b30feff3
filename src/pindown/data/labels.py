"""Labels as numbers: the one way to read them. Which rows have none, whether they are a quantity, how many of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


class Numbered(NamedTuple):
    """Distinct values, sorted; the number in them of each row's value; the rows of each value."""

    values: NDArray[Any]
    labels: Codes  # (n,)
    counts: Codes


def numbered(values: Any, name: str = "y", noun: str = "label") -> Numbered:
    """Give a number from 0 to each value of a 1-d array, each of which is a ``noun``, or say what is wrong with them.

    Examples
    --------
    >>> numbered(["b", "a", "b"])
    Numbered(values=array(['a', 'b'], dtype='<U1'), labels=array([1, 0, 1]), counts=array([1, 2]))
    >>> numbered([1.0, float("nan")], "batch")
    Traceback (most recent call last):
    ValueError: batch (the labels) contains NaN or None. Give each row a label, or leave the row out.
    """
    column = np.asarray(values)
    if missing(column).any():
        raise ValueError(f"{name} (the {noun}s) contains NaN or None. Give each row a {noun}, or leave the row out.")
    try:
        found, labels, counts = np.unique(column, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise ValueError(
            f"{name} (the {noun}s) mixes types that cannot be compared ({error}). Make them all text or all numbers."
        ) from error
    return Numbered(found, labels.reshape(-1), counts)


def as_numbers(values: Any) -> Codes:
    """Give a number from 0 to each value, whatever it is: objects count as the text they print as; (n,).

    Examples
    --------
    >>> as_numbers(np.array(["b", 1, None, 1], dtype=object)).tolist()
    [2, 0, 1, 0]
    """
    column = np.asarray(values)
    return np.unique(column.astype(str) if column.dtype.kind == "O" else column, return_inverse=True)[1].reshape(-1)


def combined(*columns: NDArray[Any]) -> Codes:
    """Give a number from 0 to each combination of values; (n,) each → (n,).

    Examples
    --------
    >>> combined(np.array([0, 0, 1]), np.array(["a", "b", "a"])).tolist()
    [0, 1, 2]
    """
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, inverse = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (inverse.max() + 1) + inverse, return_inverse=True)
    return code


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Say of each row whether it has no value: None, NaN, or another library's word for it; (n,).

    Examples
    --------
    >>> missing(np.array(["a", None, float("nan"), "nan"], dtype=object)).tolist()
    [False, True, True, False]
    """
    if values.dtype.kind == "O":
        return np.array([v is None or (not isinstance(v, str) and str(v) in ("nan", "NaT", "<NA>")) for v in values])
    return np.asarray(values != values)


def is_quantity(values: NDArray[Any]) -> bool:
    """Whether values are numbers with a fractional part: whole numbers, also as floats, are labels.

    Examples
    --------
    >>> is_quantity(np.array([1.0, 2.0])), is_quantity(np.array([1.0, 2.5])), is_quantity(np.array(["1.5"]))
    (False, True, False)
    """
    return values.dtype.kind == "f" and bool(np.any(values != np.rint(values)))


def as_label(values: Sequence[str]) -> NDArray[Any]:
    """Return text as whole numbers if all of it are, as numbers if all are, or as the text it is; (n,).

    Examples
    --------
    >>> as_label(["3", "12"]), as_label(["0.5", "1"]), as_label(["01", "b"])
    (array([ 3, 12]), array([0.5, 1. ]), array(['01', 'b'], dtype='<U2'))
    """
    distinct = list(dict.fromkeys(values))
    for kind in (int, float):
        try:
            known = {text: kind(text) for text in distinct}
        except ValueError:
            continue
        if len(set(known.values())) == len(known):  # 1 and 01 are two names, not one number
            return np.array([known[text] for text in values])
    return np.array(values)
