"""Labels: the levels that there are, the level of each sample, and which samples have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown.data.data import as_array
from pindown.errors import InputError

IntArray = NDArray[np.int64]  # whole numbers, such as the number of each sample's level; (n,)


class Numbered(NamedTuple):
    """The levels of a label, sorted; the number of each sample's level; and how many samples each level has."""

    values: NDArray[Any]
    labels: IntArray
    counts: IntArray


def read_labels(name: str, values: ArrayLike, n_samples: int) -> IntArray:
    """Return the number of each sample's level, or raise if a label is missing, or is a quantity; (n,).

    >>> read_labels("batch", ["b", "a", "b"], 3).tolist()
    [1, 0, 1]
    >>> read_labels("batch", [0.5, 1.0, 1.5], 3)
    Traceback (most recent call last):
    pindown.errors.InputError: batch has fractions such as 0.5, so it is no label. Cut it into a few bins.
    """
    array = as_array(values, name)
    if array.shape not in ((n_samples,), (n_samples, 1)):
        raise InputError(name, f"{name} must have one label for each of the {n_samples} samples, got {array.shape}.")
    array = array.reshape(-1)
    _require_complete(name, array)
    if is_quantity(array):
        fraction = array[array != array.round()][0]
        raise InputError(name, f"{name} has fractions such as {fraction:g}, so it is no label. Cut it into a few bins.")
    return as_numbers(array)


def numbered(values: ArrayLike, name: str = "y", noun: str = "label") -> Numbered:
    """Return the levels of a label and the number of each sample's level, or raise if one is missing.

    >>> numbered(["b", "a", "b"])
    Numbered(values=array(['a', 'b'], dtype='<U1'), labels=array([1, 0, 1]), counts=array([1, 2]))
    >>> numbered([1.0, float("nan")], "batch")
    Traceback (most recent call last):
    pindown.errors.InputError: batch is missing for 1 of 2 samples (NaN or None). Label them 'unknown', or leave ...
    """
    column = as_array(values, name)
    _require_complete(name, column)
    try:
        found, labels, counts = np.unique(column, return_inverse=True, return_counts=True)
    except TypeError as error:
        why = f"mixes types that cannot be compared ({error}). Make them all text or all numbers"
        raise InputError(name, f"{name} (the {noun}s) {why}.") from error
    return Numbered(found, labels.reshape(-1), counts)


def _require_complete(name: str, labels: NDArray[np.generic]) -> None:
    if (unknown := missing(labels)).any():
        n = f"{unknown.sum()} of {len(labels)} samples"
        remedy = "Label them 'unknown', or leave these samples out"
        raise InputError(name, f"{name} is missing for {n} (NaN or None). {remedy}.")


def as_numbers(values: ArrayLike) -> IntArray:
    """Return the number of each sample's level, whatever it is: objects are compared as text; (n,)."""
    column = np.asarray(values)
    return np.unique(column.astype(str) if column.dtype.kind == "O" else column, return_inverse=True)[1].reshape(-1)


def combined(*columns: NDArray[np.generic]) -> IntArray:
    """Return the number of each sample's combination of levels; (n,) each → (n,).

    >>> combined(np.array([0, 0, 1]), np.array(["a", "b", "a"])).tolist()
    [0, 1, 2]
    """
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, inverse = np.unique(column, return_inverse=True)
        _, number = np.unique(number * (inverse.max() + 1) + inverse, return_inverse=True)
    return number


def missing(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return which samples have no value: None, NaN, or another library's missing value; (n,).

    >>> missing(np.array(["a", None, float("nan"), "nan"], dtype=object)).tolist()
    [False, True, True, False]
    """
    if values.dtype.kind == "O":
        return np.array([v is None or (not isinstance(v, str) and str(v) in ("nan", "NaT", "<NA>")) for v in values])
    return np.asarray(values != values)


def is_quantity(values: NDArray[np.generic]) -> bool:
    """Return whether values are numbers with fractions: whole numbers, also as floats, are labels."""
    return values.dtype.kind == "f" and bool(np.any(values != np.rint(values)))


def as_label(texts: Sequence[str]) -> NDArray[np.generic]:
    """Return text as whole numbers if all of it are, as numbers if all are, or as the text it is; (n,).

    >>> as_label(["3", "12"]), as_label(["0.5", "1"]), as_label(["01", "b"])
    (array([ 3, 12]), array([0.5, 1. ]), array(['01', 'b'], dtype='<U2'))
    """
    distinct = list(dict.fromkeys(texts))
    for kind in (int, float):
        try:
            known = {text: kind(text) for text in distinct}
        except ValueError:
            continue
        if len(set(known.values())) == len(known):  # 1 and 01 are two names, not one number
            return np.array([known[text] for text in texts])
    return np.array(texts)
