"""`Data`: observations with all that belongs to them, row by row. The one container, from files to audits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown.data.labels import as_numbers

NEXT = "next"
"""In place of partners: each row's partner is the next row, of the same group if there are groups."""

LARGEST = 1e150
"""Numbers beyond it have no square in float64; numbers below its inverse have none above zero."""

ROLES = ("signal", "nuisance", "pairs", "given", "groups", "truth", "floor")
"""What may belong to observations."""


@dataclass(frozen=True, eq=False)
class Data:
    """Observations, and the part that each side variable plays.

    Parameters
    ----------
    X : array (n, …) or Source
        The observations: vectors, images (n, c, h, w), sequences (n, t, c), or what gives them in batches.
    signal : array (n,) or (n, k), optional
        A label, or measurements, to learn from.
    nuisance : array (n,) or (n, k), optional
        What is to be forgotten: one column, or several.
    pairs : array like X, array (n,), or "next", optional
        The partner of each row; or groups whose rows are partners of each other; or the next row.
    given : array (n,), optional
        A label that must survive: a nuisance is forgotten within its values.
    groups : array (n,), optional
        Subjects, sessions, episodes …: rows of one group are never on both sides of a division.
    truth : array (n, d), optional
        Latents, where they are known: no fit sees them.
    floor : array (n, k), optional
        What a code that is blind to the nuisance would be: what is read off it is what may be read off codes.
    names : tuple of str
        Of the observed variables, if they have any.
    notes : tuple of str
        What was left out on the way here, and why.
    ids : array (n,), optional
        What the rows are called: no fit sees it.
    id_name : str
        What that is called.

    Examples
    --------
    >>> data = Data(np.zeros((4, 2)), nuisance=["a", "a", "b", "b"], groups=[1, 1, 2, 2])
    >>> len(data), sorted(data.side_variables), len(data.take([0, 2]))
    (4, ['groups', 'nuisance'], 2)
    >>> Data(np.zeros((4, 2)), signal=[1, 2])
    Traceback (most recent call last):
    ValueError: signal has 2 rows, but X has 4. Row i of signal must belong to row i of X.
    """

    X: Any
    signal: Any = None
    nuisance: Any = None
    pairs: Any = None
    given: Any = None
    groups: Any = None
    truth: Any = None
    floor: Any = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ids: Any = None
    id_name: str = "id"

    def __post_init__(self) -> None:
        for role in (*ROLES, "ids"):
            values = getattr(self, role)
            if values is None or isinstance(values, str):
                continue
            array = as_array(values)
            object.__setattr__(self, role, array)
            n = len(array) if array.ndim else 0
            if self.n_samples is not None and n != self.n_samples:
                raise ValueError(
                    f"{role} has {n} rows, but X has {self.n_samples}. Row i of {role} must belong to row i of X."
                )
        if isinstance(self.pairs, str) and self.pairs != NEXT:
            raise ValueError(f"pairs must be an array or {NEXT!r}, got {self.pairs!r}.")

    def __len__(self) -> int:
        if self.n_samples is None:
            raise TypeError("Data: nobody knows how many rows this source has.")
        return self.n_samples

    @property
    def n_samples(self) -> int | None:
        """Number of rows; None if a source does not know."""
        return self.X.n_samples if self.is_source else len(self.X)

    @property
    def is_source(self) -> bool:
        """Whether X gives its rows when they are asked for."""
        return hasattr(self.X, "n_samples")

    @property
    def n_features(self) -> int:
        """Number of observed variables: of images, pixels times channels."""
        return math.prod(self.X.shape if self.is_source else np.shape(self.X)[1:])

    @property
    def side_variables(self) -> dict[str, Any]:
        """Side variables that are there, by the part they play."""
        return {role: getattr(self, role) for role in ROLES if getattr(self, role) is not None}

    def take(self, rows: Any) -> Data:
        """Return these rows."""
        rows = np.asarray(rows)
        parts = {"X": self.X, **{role: side for role, side in self.side_variables.items() if not isinstance(side, str)}}
        parts |= {} if self.ids is None else {"ids": self.ids}
        return replace(self, **{name: part[rows] for name, part in parts.items()})

    def paired(self) -> Data:
        """Return the rows that have a next row in their group, with it as partner, if that is how rows are paired.

        Examples
        --------
        >>> data = Data(np.arange(5.0)[:, None], pairs="next", groups=[1, 1, 1, 2, 2]).paired()
        >>> data.X.ravel().tolist(), data.pairs.ravel().tolist()
        ([0.0, 1.0, 3.0], [1.0, 2.0, 4.0])
        """
        if not isinstance(self.pairs, str):
            return self
        rows = with_next_row(len(self), self.groups)
        return replace(self.take(rows), pairs=self.X[rows + 1])

    def sample(self, n_samples: int) -> Data:
        """Return about so many rows, drawn at random, or all if there are fewer; partners stay together."""
        data = self.paired()
        if len(data) <= n_samples:
            return data
        rng = np.random.default_rng(0)
        if data.pairs is None or data.pairs.ndim > 1:
            return data.take(np.sort(rng.permutation(len(data))[:n_samples]))
        number = as_numbers(data.pairs)
        counts = np.bincount(number)
        order = rng.permutation(len(counts))
        some = order[: max(2, int((counts[order].cumsum() <= n_samples).sum()))]
        return data.take(np.flatnonzero(np.isin(number, some)))

    def only(self, *roles: str) -> Data:
        """Return the same rows with these side variables alone."""
        none: dict[str, Any] = {role: None for role in ROLES if role not in roles}
        return replace(self, **none)


def with_next_row(n_samples: int, groups: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Return the numbers of the rows that have a next row, of the same group if there are groups.

    Examples
    --------
    >>> with_next_row(5, np.array([1, 1, 1, 2, 2])).tolist()
    [0, 1, 3]
    """
    rows = np.arange(n_samples - 1) if groups is None else np.flatnonzero(groups[:-1] == groups[1:])
    if len(rows) < 2:
        raise ValueError(
            f"There is {len(rows)} pair in n_samples={n_samples}, but a partner must be told from the partners of "
            "other rows: give at least 2 pairs. Are the rows in order?"
        )
    return rows


def as_array(values: Any) -> NDArray[Any]:
    """Return values as a numpy array: of a tensor its numbers, of text beside numbers both as they are.

    Examples
    --------
    >>> as_array(["a", 1]).tolist()
    ['a', 1]
    """
    values = from_torch(values)
    if isinstance(values, list | tuple) and any(isinstance(value, str) for value in values):
        mixed = not all(isinstance(value, str) for value in values)
        return np.asarray(values, dtype=object if mixed else None)  # numpy would make text of the numbers
    return np.asarray(values)


def from_torch(values: Any) -> Any:
    """Return a tensor's numbers as a numpy array, anything else as it is."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()  # numpy has no bfloat16
