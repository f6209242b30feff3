"""Counts, of molecules or of words, as numbers that means and covariances suit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.errors import InputError

LIBRARY = 1e4
"""Counts that each row is brought to."""


def log_counts(X: Any, names: Sequence[str] | None = None) -> NDArray[Any]:
    """Bring each row to ten thousand counts, and take log(1 + x), as is usual for counts of molecules.

    Every row by itself, so that nothing is learned from others, and new rows are treated alike.

    Parameters
    ----------
    X : array (n, d)
        Whole numbers, none below zero.
    names : sequence of str, optional
        Of columns, to name one that has no counts.

    Examples
    --------
    >>> log_counts([[1.0, 0.0], [3.0, 1.0]]).round(2).tolist()
    [[9.21, 0.0], [8.92, 7.82]]
    >>> log_counts([[1.0, 0.5]], ["a", "b"])
    Traceback (most recent call last):
    pindown.errors.InputError: `counts`: column 'b' has 0.5 in row 1, which is no count. Leave `counts` out if ...
    """
    counts = np.asarray(X)
    if counts.ndim != 2 or counts.dtype.kind not in "buif":
        raise ValueError(f"counts: X must be a table of numbers, (n, d), got shape {counts.shape}, {counts.dtype}.")
    bad = ~((counts >= 0) & (np.rint(counts) == counts))
    if bad.any():
        i, j = (int(k) for k in np.argwhere(bad)[0])
        name = str(j) if names is None else names[j]
        raise InputError(
            "counts",
            f"`counts`: column {name!r} has {counts[i, j]:g} in row {i + 1}, which is no count. Leave `counts` out if "
            f"these are other numbers, or the column: `drop={name!r}`.",
        )
    total = counts.sum(1, keepdims=True)
    if not total.all():
        row = int((total[:, 0] == 0).argmax()) + 1
        raise InputError("counts", f"`counts`: row {row} has no counts at all. Leave such rows out.")
    return np.log1p(LIBRARY * counts / total)
