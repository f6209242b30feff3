"""Reading a nuisance: labels or quantities, one column or several, perhaps within the values of a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_consistent_length
from torch import Tensor
from torch.nn.functional import one_hot

from pindown.data.labels import numbered, read_labels
from pindown.metrics.dependence import Grouping
from pindown.simulate.process import placed

MIN_ROWS = 3
"""Rows of a value below which nothing of it can be learned, let alone forgotten."""


@dataclass(frozen=True)
class Column:
    """One column of a nuisance: the values of a label, or the mean and spread of a quantity and where it is cut."""

    values: np.ndarray  # of a label: sorted; of a quantity: the inner edges of its bins
    centre: float = 0.0
    spread: float = 0.0  # 0 for a label

    @property
    def is_label(self) -> bool:
        """Whether values are names rather than amounts."""
        return self.spread == 0

    def numbers(self, column: np.ndarray) -> np.ndarray:
        """Return the number of each row's value, or of its bin; (n,)."""
        if not self.is_label:
            return np.searchsorted(self.values, column, side="right")
        number = np.searchsorted(self.values, column)
        known = self.values[np.minimum(number, len(self.values) - 1)] == column
        if not np.all(known):
            unseen = np.unique(np.asarray(column)[~known])
            raise ValueError(
                f"Forget: y has value(s) that were not there in fit: {', '.join(map(str, unseen[:5]))}. "
                f"It knows {', '.join(map(str, self.values[:5]))}{', …' if len(self.values) > 5 else ''}. Rows of "
                "other values are encoded without y, by the one map that all values share."
            )
        return number

    def seen(self, column: np.ndarray) -> np.ndarray:
        """Return what a decoder is shown of it: one-hot, or the quantity in standard units; (n, k)."""
        if self.is_label:
            return np.eye(len(self.values), dtype=np.float32)[self.numbers(column)]
        return ((column.astype(float) - self.centre) / self.spread).astype(np.float32)[:, None]


def read_columns(y: Any, n_samples: int, n_bins: int | None) -> tuple[list[np.ndarray], list[Column]]:
    """Split y into columns, and say of each what it is: labels if n_bins is None, else quantities."""
    table = as_table(y, n_samples)
    columns = [table[:, j] for j in range(table.shape[1])]
    columns = [np.array(c.tolist()) if c.dtype.kind == "O" and not _mixed(c) else c for c in columns]
    return columns, [_column(c, n_bins) for c in columns]


def as_table(y: Any, n_samples: int) -> np.ndarray:
    """Return y as (n, k), or say what is wrong with its shape."""
    if y is None:
        raise ValueError(
            "Forget: this estimator requires y to be passed, but the target y is None. It is the nuisance: the value "
            "of each row that is to be forgotten."
        )
    if isinstance(y, list | tuple) and any(isinstance(v, str) for v in y):
        y = np.asarray(y, dtype=object)  # numpy would make text of the numbers
    table = np.asarray(y)
    if table.ndim not in (1, 2) or table.size == 0:
        raise ValueError(f"Forget: y (the nuisance) must have shape (n,) or (n, columns), got {table.shape}.")
    check_consistent_length(np.empty(n_samples), table)
    return table.reshape(len(table), -1)


def read_strata(given: Any, n_samples: int, *, may_miss: bool = False) -> np.ndarray:
    """Return the number of each sample's given label, 0 without any, −1 where it is missing; (n,)."""
    if given is None:
        return np.zeros(n_samples, dtype=np.int64)
    column = np.asarray(given)
    if not may_miss or column.ndim != 1 or len(column) != n_samples:
        return read_labels("given", given, n_samples)
    missing = pd.isna(column)
    if not missing.any():
        return read_labels("given", given, n_samples)
    known = column[~missing]
    if column.dtype.kind == "f" and (known == known.round()).all():
        known = known.astype(np.int64)
    elif column.dtype.kind == "O":
        known = np.array(known.tolist())
    strata = np.full(n_samples, -1, dtype=np.int64)
    strata[~missing] = read_labels("given", known, len(known))
    return strata


def _mixed(column: np.ndarray) -> bool:
    return len({isinstance(v, str) for v in column}) > 1 or any(v is None or v != v for v in column)


def _column(column: np.ndarray, n_bins: int | None) -> Column:
    values, _, counts = numbered(column, "y", "nuisance value")
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise ValueError("Forget: y (the nuisance) contains infinity. Leave these rows out.")
    if len(values) == 1:
        raise ValueError(
            f"Forget: y has one value only, {values[0]}, in 1 class: there is nothing to forget. Were the rows "
            "filtered by it? Give rows of at least two values."
        )
    if n_bins is not None:
        if column.dtype.kind not in "buif":
            raise ValueError(
                f"Forget: n_bins={n_bins} makes y a quantity, but it holds text such as '{column[0]}'. Leave it out."
            )
        edges = np.unique(np.quantile(column, np.linspace(0, 1, n_bins + 1)[1:-1]))
        return Column(edges, float(column.mean()), float(column.std()))
    if column.dtype.kind == "f" and (column != column.round()).any():
        raise ValueError(
            "Unknown label type: continuous. Forget: y (the nuisance) has fractions. If it is a quantity say so by "
            "n_bins=8; if its values are names, turn them into text."
        )
    if counts.max() < MIN_ROWS:
        raise ValueError(
            f"Forget: no value of y has {MIN_ROWS} rows: with {len(values)} values in {len(column)} rows it names rows "
            "rather than groups of them. If it is a quantity say so by n_bins=8."
        )
    return Column(values)


@dataclass(frozen=True)
class NuisanceTable:
    """A nuisance, sample by sample: what a classifier predicts, and what each sample counts.

    A classifier has a head for each column, and for all of them together if there are several; ``groups`` has the
    number of a row's value for each head, ``weights`` what the row counts there. Within a stratum, a value of the given
    label, all values count the same; rows of values that are too rare, or alone in their stratum, count nothing.
    """

    groups: np.ndarray  # (n, heads) int64
    weights: np.ndarray  # (n, heads) float32
    strata: np.ndarray  # (n,) int64
    shown: np.ndarray  # (n, k) float32, what the decoder sees of it
    sizes: tuple[int, ...]  # values of each head

    @property
    def n_strata(self) -> int:
        """Number of values of the given label; 1 if there is none."""
        return int(self.strata.max()) + 1

    @property
    def n_rare(self) -> int:
        """Number of rows that count nothing for some column."""
        return int((self.weights[:, : len(self.sizes)] == 0).sum(0).max())

    def refuse_identical(self) -> None:
        """Raise if no two values can be compared in any stratum."""
        if not self.weights.any():
            if self.n_strata == 1:
                raise ValueError("Forget: y has one common value, and others too rare to compare. Merge rare values.")
            raise ValueError(
                "Forget: within every value of given y has one value, or others too rare, so that hiding y would hide "
                "given, and nothing can be compared. Collect rows that cross them. To forget both, leave given out."
            )

    def groupings(self) -> list[Grouping]:
        """Return the heads as groups to compare."""
        used = self.weights > 0
        return [
            Grouping(np.where(use, g, -1), np.where(use, self.strata, -1))
            for g, use in zip(self.groups.T, used.T, strict=True)
        ]

    def label_weights(self) -> np.ndarray:
        """Return what a row counts where its given label is told, by its value and its stratum; (values, n_strata).

        Of each value (of all columns together) the labels it goes with count the same. Among these the nuisance tells
        nothing of the label, so that telling the one is no reason to tell the other.
        """
        value = self.groups[:, -1]
        table = np.zeros((self.sizes[-1], self.n_strata), dtype=np.float32)
        table[value, self.strata] = balanced(self.strata, value)
        return table

    def take(self, rows: np.ndarray) -> NuisanceTable:
        """Return these rows."""
        return NuisanceTable(self.groups[rows], self.weights[rows], self.strata[rows], self.shown[rows], self.sizes)

    def chance_loss(self) -> float:
        """Return the loss of a classifier that knows nothing: the mean over heads of log(values in the stratum)."""
        return float(np.mean([_chance(g.labels, g.strata) for g in self.groupings()]))


def assemble(columns: Sequence[np.ndarray], kinds: Sequence[Column], strata: np.ndarray) -> NuisanceTable:
    """Give numbers to the values of all columns and to their combinations, and weigh the rows."""
    numbers = [kind.numbers(column) for kind, column in zip(kinds, columns, strict=True)]
    if len(numbers) > 1:
        numbers.append(np.unique(np.stack(numbers, 1), axis=0, return_inverse=True)[1].reshape(-1))
    return NuisanceTable(
        np.stack(numbers, 1).astype(np.int64),
        np.stack([balanced(labels, strata) for labels in numbers], 1),
        strata,
        np.hstack([kind.seen(column) for kind, column in zip(kinds, columns, strict=True)]),
        tuple(int(labels.max()) + 1 for labels in numbers),
    )


def balanced(labels: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Return weights of mean 1 with which all values of a stratum count the same, and a stratum as its rows do; (n,).

    Examples
    --------
    Of nine rows six have one value; the other stratum has but one value, and tells nothing:

    >>> balanced(np.array([0] * 6 + [1] * 6), np.array([0] * 9 + [1] * 3)).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0]
    """
    kinds, cell, counts = np.unique(np.stack([strata, labels], 1), axis=0, return_inverse=True, return_counts=True)
    cell = cell.reshape(-1)
    common = counts >= MIN_ROWS
    stratum = kinds[:, 0]
    n_values = np.bincount(stratum, common)[stratum]
    rows = np.bincount(stratum, counts * common)[stratum]
    weight = np.where(common & (n_values > 1), rows / (np.maximum(n_values, 1) * counts), 0.0)[cell]
    return (weight * len(weight) / max(weight.sum(), 1e-300)).astype(np.float32)


def _chance(labels: np.ndarray, strata: np.ndarray) -> float:
    used = labels >= 0
    kinds = np.unique(np.stack([strata[used], labels[used]], 1), axis=0)
    n_values, rows = np.bincount(kinds[:, 0]), np.bincount(strata[used])
    return float((rows * np.log(np.maximum(n_values, 1))).sum() / max(rows.sum(), 1))


@dataclass(frozen=True, eq=False)
class NuisanceReader:
    """Turns side variables of any rows into what a game is about, as `assemble` did with those that were looked at."""

    kinds: tuple[Column, ...]
    labels: np.ndarray  # of the given label, sorted; one if there is none
    combinations: np.ndarray  # of the numbers of all columns, (n, columns), sorted
    tables: tuple[np.ndarray, ...]  # of each head: what a row counts, (n_strata, values)

    @classmethod
    def of(cls, nuisance: NuisanceTable, kinds: Sequence[Column], given: Any, strata: np.ndarray) -> NuisanceReader:
        """Take names and weights from rows that were looked at."""
        labels = np.zeros(1) if given is None or (strata < 0).any() else np.unique(given)
        tables = []
        for head, size in enumerate(nuisance.sizes):
            table = np.zeros((nuisance.n_strata, size), dtype=np.float32)
            table[nuisance.strata, nuisance.groups[:, head]] = nuisance.weights[:, head]
            tables.append(table)
        seen = np.unique(nuisance.groups[:, : len(kinds)], axis=0)
        return cls(tuple(kinds), labels, seen, tuple(tables))

    def read(self, side: Any, given: Any) -> tuple[Any, ...]:
        """Return groups, weights, strata, and what a decoder is shown, of rows with these values."""
        table = as_table(side, len(side))
        numbers = [kind.numbers(column) for kind, column in zip(self.kinds, table.T, strict=True)]
        if len(numbers) > 1:
            numbers.append(self.combined(np.stack(numbers, 1)))
        strata = np.zeros(len(table), dtype=np.int64) if given is None else self._strata(np.asarray(given))
        weights = [weight[strata, number] for weight, number in zip(self.tables, numbers, strict=True)]
        shown = np.hstack([kind.seen(column) for kind, column in zip(self.kinds, table.T, strict=True)])
        return np.stack(numbers, 1).astype(np.int64), np.stack(weights, 1), strata, shown

    @cached_property
    def _first_table(self) -> Tensor:
        return torch.as_tensor(self.tables[0])

    def read_numbers(self, u: Tensor, label: Tensor | None) -> tuple[Tensor, ...]:
        """Return the same of a world's values, which are numbers already; waits for no device."""
        strata = torch.zeros_like(u) if label is None else label
        weights = placed(self._first_table, u.device)[strata, u][:, None]
        return u[:, None], weights, strata, one_hot(u, len(self.kinds[0].values)).float()

    def combined(self, numbers: np.ndarray) -> np.ndarray:
        """Return one number for the values of all columns, (n, columns) → (n,); or say that rows go together anew."""
        place = {tuple(row): k for k, row in enumerate(self.combinations.tolist())}
        found = [place.get(tuple(row), -1) for row in numbers.tolist()]
        if min(found) < 0:
            raise ValueError(
                "Forget: y has a combination of values that was not there in the rows that fit looked at. Rows of such "
                "are encoded without y, by the one map that all values share."
            )
        return np.array(found)

    def _strata(self, given: np.ndarray) -> np.ndarray:
        number = np.minimum(np.searchsorted(self.labels, given), len(self.labels) - 1)
        if (self.labels[number] != given).any():
            raise ValueError("Forget: given has a label that was not there in the rows looked at first.")
        return number
