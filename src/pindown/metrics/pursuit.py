"""Orthogonal matching pursuit: the codes that a dictionary gives to those who search, one atom after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from pindown.metrics.reading import read_matrix

AT_ONCE = 256
"""Rows that are searched at once."""

FAINT = 1e-9
"""Squared length of what is left of a row, relative to it, below which it is rebuilt."""


def matching_pursuit(x: ArrayLike, atoms: ArrayLike, k: int) -> csr_array:
    """Return codes of rows, k of them at most: the atom nearest to what is left, then all strengths anew, and again.

    What an encoder of one pass can be compared with: on the same dictionary a search finds codes that are as sparse and
    rebuild more. Only atoms that point towards what is left are taken, as by a gate; strengths may turn negative.

    Parameters
    ----------
    x : array of shape (n, m)
        Rows, centred.
    atoms : array of shape (d, m)
        In rows, of unit length.
    k : int
        Number of codes of a row.

    Examples
    --------
    >>> matching_pursuit([[3.0, 0.5]], [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], 2).toarray()
    array([[3. , 0.5, 0. ]])
    """
    rows, directions = read_matrix("matching_pursuit", "x", x), read_matrix("matching_pursuit", "atoms", atoms)
    if rows.shape[1] != directions.shape[1]:
        raise ValueError(
            f"matching_pursuit: rows of x have {rows.shape[1]} entries, atoms {directions.shape[1]}: both must live in "
            "the same space."
        )
    if not 1 <= k <= len(directions):
        raise ValueError(f"matching_pursuit: k must be 1 to {len(directions)}, the number of atoms, got {k}.")
    values, at = np.zeros((len(rows), k)), np.zeros((len(rows), k), dtype=np.int64)
    for first in range(0, len(rows), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        values[part], at[part] = _searched(rows[part].astype(np.float64), directions.astype(np.float64), k)
    row = np.repeat(np.arange(len(rows)), k)
    found = csr_array((values.reshape(-1), (row, at.reshape(-1))), shape=(len(rows), len(directions)))
    found.eliminate_zeros()
    return found


def _searched(x: np.ndarray, atoms: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    n = len(x)
    products, taken = x @ atoms.T, np.zeros((n, len(atoms)), dtype=bool)
    at, strength, left = np.zeros((n, k), dtype=np.int64), np.zeros((n, k)), x.copy()
    size = np.maximum((x**2).sum(1), 1e-300)
    everyone = np.arange(n)
    for step in range(k):
        scores = np.where(taken, -np.inf, left @ atoms.T)
        best = scores.argmax(1)
        goes_on = (scores[everyone, best] > 0) & ((left**2).sum(1) > FAINT * size)
        at[:, step] = best
        taken[everyone, best] |= goes_on
        some = np.flatnonzero(goes_on)
        if not len(some):
            break
        chosen = at[some, : step + 1]
        basis = atoms[chosen]  # (rows, step + 1, m)
        gram = basis @ basis.transpose(0, 2, 1) + 1e-9 * np.eye(step + 1)
        right = np.take_along_axis(products[some], chosen, axis=1)
        solved = np.linalg.solve(gram, right[:, :, None])[:, :, 0]
        strength[some, : step + 1] = solved
        left[some] = x[some] - np.einsum("ns,nsm->nm", solved, basis)
        # A row that is rebuilt keeps the strengths it has: what it did not take counts as 0.
    return strength, at
