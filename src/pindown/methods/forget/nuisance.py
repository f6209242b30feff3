"""Encode a nuisance: labels or quantities, in one column or several, optionally within the classes of a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_consistent_length
from torch import Tensor
from torch.nn.functional import one_hot

from pindown.data.labels import combined, missing, numbered, read_labels
from pindown.metrics.dependence import Grouping
from pindown.simulate.process import placed

MIN_LEVEL_SAMPLES = 3  # samples that a level needs to be used for training


@dataclass(frozen=True)
class Column:
    """One column of a nuisance: the levels of a label, or the mean, spread and bin edges of a quantity."""

    values: np.ndarray  # sorted levels of a label; inner bin edges of a quantity
    centre: float = 0.0
    spread: float = 0.0  # 0 for a label

    @property
    def is_label(self) -> bool:
        """Whether the column holds labels rather than a quantity."""
        return self.spread == 0

    def numbers(self, column: np.ndarray) -> np.ndarray:
        """Return the index of each sample's level, or of its bin; (n,)."""
        if not self.is_label:
            return np.searchsorted(self.values, column, side="right")
        number = np.searchsorted(self.values, column)
        known = self.values[np.minimum(number, len(self.values) - 1)] == column
        if not np.all(known):
            unseen = np.unique(np.asarray(column)[~known])
            raise ValueError(
                f"Forget: y has level(s) that were not there in fit: {', '.join(map(str, unseen[:5]))}. Levels of fit: "
                f"{', '.join(map(str, self.values[:5]))}{', …' if len(self.values) > 5 else ''}. Encode samples of "
                "other levels without y, by the map that all levels share."
            )
        return number

    def seen(self, column: np.ndarray) -> np.ndarray:
        """Return the input of the decoder: one-hot levels, or the quantity in standard units; (n, k)."""
        if self.is_label:
            return np.eye(len(self.values), dtype=np.float32)[self.numbers(column)]
        return ((column.astype(float) - self.centre) / self.spread).astype(np.float32)[:, None]


def read_columns(y: Any, n_samples: int, n_bins: int | None) -> tuple[list[np.ndarray], list[Column]]:
    """Split y into columns, and describe each: labels if n_bins is None, otherwise quantities."""
    table = as_table(y, n_samples)
    columns = [np.array(c.tolist()) if c.dtype.kind == "O" and not _mixed(c) else c for c in table.T]
    return columns, [_column(c, n_bins) for c in columns]


def as_table(y: Any, n_samples: int) -> np.ndarray:
    """Return y as (n, k), or raise if its shape is wrong."""
    if y is None:
        raise ValueError("Forget requires y to be passed, but the target y is None. Pass the batch of each sample.")
    if isinstance(y, list | tuple) and any(isinstance(v, str) for v in y):
        y = np.asarray(y, dtype=object)  # numpy would turn the numbers into text
    table = np.asarray(y)
    if table.ndim not in (1, 2) or table.size == 0:
        raise ValueError(f"Forget: y (the nuisance) must have shape (n,) or (n, columns), got {table.shape}.")
    check_consistent_length(np.empty(n_samples), table)
    return table.reshape(len(table), -1)


def read_strata(given: Any, n_samples: int, *, may_miss: bool = False) -> np.ndarray:
    """Return the number of each sample's given label, 0 without any, −1 where it is missing; (n,)."""
    if given is None:
        return np.zeros(n_samples, dtype=np.int64)
    column, strata = np.asarray(given), np.full(n_samples, -1, dtype=np.int64)
    if not may_miss or column.shape != (n_samples,) or not (known := ~missing(column)).any():
        return read_labels("given", given, n_samples)
    strata[known] = read_labels("given", np.array(column[known].tolist()), int(known.sum()))
    return strata


def _mixed(column: np.ndarray) -> bool:
    return len({isinstance(v, str) for v in column}) > 1 or any(v is None or v != v for v in column)


def _column(column: np.ndarray, n_bins: int | None) -> Column:
    values, _, counts = numbered(column, "y", "nuisance value")
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise ValueError("Forget: y (the nuisance) contains infinity. Leave these samples out.")
    if len(values) == 1:
        raise ValueError(
            f"Forget: y has one level only, {values[0]} (1 class), so there is nothing to remove. Pass samples of at "
            "least two levels."
        )
    if n_bins is not None:
        if column.dtype.kind not in "buif":
            text = f"it holds text such as '{column[0]}'"
            raise ValueError(f"Forget: n_bins={n_bins} makes y a quantity, but {text}. Leave n_bins out.")
        edges = np.unique(np.quantile(column, np.linspace(0, 1, n_bins + 1)[1:-1]))
        return Column(edges, float(column.mean()), float(column.std()))
    if column.dtype.kind == "f" and (column != column.round()).any():
        raise ValueError(
            "Unknown label type: continuous. Forget: y (the nuisance) has fractions. If it is a quantity, pass "
            "n_bins=8. If its values are names, turn them into text."
        )
    if counts.max() < MIN_LEVEL_SAMPLES:
        raise ValueError(
            f"Forget: no level of y has {MIN_LEVEL_SAMPLES} samples. With {len(values)} levels in {len(column)} "
            "samples, y names samples rather than groups of them. If it is a quantity, pass n_bins=8."
        )
    return Column(values)


@dataclass(frozen=True)
class NuisanceTable:
    """The nuisance of each sample: the targets of a classifier, and the weights of samples.

    A classifier has one head per column, and one for the combination of columns if there are several. Within a stratum
    all levels have the same total weight. Samples of levels that are too rare, or alone in their stratum, have none.
    """

    groups: np.ndarray  # index of a sample's level for each head, (n, heads)
    weights: np.ndarray  # weight of a sample for each head, (n, heads) float32
    strata: np.ndarray  # class of the given label, (n,)
    shown: np.ndarray  # (n, k) float32, input of the decoder
    sizes: tuple[int, ...]  # number of levels of each head

    @property
    def level(self) -> np.ndarray:
        """The index of each sample's level, of all columns together; (n,)."""
        return self.groups[:, -1]

    @property
    def n_levels(self) -> int:
        """Number of levels, of all columns together."""
        return self.sizes[-1]

    @property
    def n_strata(self) -> int:
        """Number of classes of the given label; 1 if there is none."""
        return int(self.strata.max()) + 1

    @property
    def n_rare(self) -> int:
        """Number of samples that have weight zero for some column."""
        return int((self.weights == 0).sum(0).max())

    def refuse_identical(self) -> None:
        """Raise if no two levels can be compared in any stratum."""
        if self.weights.any():
            return
        if self.n_strata == 1:
            raise ValueError("Forget: all levels of y but one are too rare to compare. Merge rare levels.")
        raise ValueError(
            "Forget: within every class of given, y has one level (others are too rare), so y cannot be removed "
            "without given. Collect samples that cross them. To remove both, leave given out."
        )

    def groupings(self) -> list[Grouping]:
        """Return the heads as groups to compare."""
        used = self.weights > 0
        return [
            Grouping(np.where(use, g, -1), np.where(use, self.strata, -1))
            for g, use in zip(self.groups.T, used.T, strict=True)
        ]

    def label_weights(self) -> np.ndarray:
        """Return weights by which no level predicts the given label, of equal totals; (levels, n_strata)."""
        table = np.zeros((self.n_levels, self.n_strata), dtype=np.float32)
        table[self.level, self.strata] = balanced(self.strata, self.level)
        return table

    def take(self, rows: np.ndarray) -> NuisanceTable:
        """Return these samples."""
        return NuisanceTable(self.groups[rows], self.weights[rows], self.strata[rows], self.shown[rows], self.sizes)

    def chance_loss(self) -> float:
        """Return the loss of a classifier at chance: the mean over heads of log(levels in the stratum)."""
        losses = []
        for grouping in self.groupings():
            _, cell, stratum = grouping.cells()
            n_levels = np.maximum(np.bincount(stratum), 1)
            losses.append(np.log(n_levels[stratum[cell]]).sum() / max(len(cell), 1))
        return float(np.mean(losses))


def assemble(columns: Sequence[np.ndarray], kinds: Sequence[Column], strata: np.ndarray) -> NuisanceTable:
    """Index the levels of all columns and their combinations, and weight the samples."""
    numbers = [kind.numbers(column) for kind, column in zip(kinds, columns, strict=True)]
    if len(numbers) > 1:
        numbers.append(combined(*numbers))
    return NuisanceTable(
        np.stack(numbers, 1).astype(np.int64),
        np.stack([balanced(labels, strata) for labels in numbers], 1),
        strata,
        np.hstack([kind.seen(column) for kind, column in zip(kinds, columns, strict=True)]),
        tuple(int(labels.max()) + 1 for labels in numbers),
    )


def balanced(labels: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Return weights of mean 1: equal totals for levels of a stratum, and strata in proportion to their size; (n,).

    Examples
    --------
    One stratum has six samples of one level and three of another. The other stratum has one level only, and no weight:

    >>> balanced(np.array([0] * 6 + [1] * 6), np.array([0] * 9 + [1] * 3)).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0]
    """
    kinds, cell, counts = np.unique(np.stack([strata, labels], 1), axis=0, return_inverse=True, return_counts=True)
    common = counts >= MIN_LEVEL_SAMPLES
    stratum = kinds[:, 0]
    n_values = np.bincount(stratum, common)[stratum]
    rows = np.bincount(stratum, counts * common)[stratum]
    weight = np.where(common & (n_values > 1), rows / (np.maximum(n_values, 1) * counts), 0.0)[cell.reshape(-1)]
    return (weight * len(weight) / max(weight.sum(), 1e-300)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class NuisanceReader:
    """Encode the nuisance of new samples with the levels and weights of the data summary."""

    kinds: tuple[Column, ...]
    labels: np.ndarray  # of the given label, sorted; one if there is none
    combinations: np.ndarray  # level indices of all columns, (n, columns), sorted
    tables: tuple[np.ndarray, ...]  # weights for each head, (n_strata, levels)

    @classmethod
    def of(cls, nuisance: NuisanceTable, kinds: Sequence[Column], given: Any) -> NuisanceReader:
        """Take levels and weights from the samples of the data summary."""
        tables = [np.zeros((nuisance.n_strata, size), dtype=np.float32) for size in nuisance.sizes]
        for table, level, weight in zip(tables, nuisance.groups.T, nuisance.weights.T, strict=True):
            table[nuisance.strata, level] = weight
        labels = np.zeros(1) if given is None else np.unique(given)
        return cls(tuple(kinds), labels, np.unique(nuisance.groups[:, : len(kinds)], axis=0), tuple(tables))

    def read(self, side: Any, given: Any) -> tuple[Any, ...]:
        """Return groups, weights, strata and decoder inputs of samples with these levels."""
        table = as_table(side, len(side))
        numbers = [kind.numbers(column) for kind, column in zip(self.kinds, table.T, strict=True)]
        if len(numbers) > 1:
            numbers.append(self.combined(np.stack(numbers, 1)))
        strata = np.zeros(len(table), dtype=np.int64)
        if given is not None:
            strata = np.searchsorted(self.labels, given).clip(max=len(self.labels) - 1)
            if (self.labels[strata] != np.asarray(given)).any():
                raise ValueError("Forget: given has a label that the first samples did not have. Leave them out.")
        weights = [weight[strata, number] for weight, number in zip(self.tables, numbers, strict=True)]
        shown = np.hstack([kind.seen(column) for kind, column in zip(self.kinds, table.T, strict=True)])
        return np.stack(numbers, 1).astype(np.int64), np.stack(weights, 1), strata, shown

    def name(self, level: int) -> str:
        """Return the name of a level, of all columns together; bins of a quantity have numbers."""
        parts = zip(self.kinds, self.combinations[level], strict=True)
        return ", ".join(str(kind.values[number]) if kind.is_label else f"bin {number}" for kind, number in parts)

    @cached_property
    def _first_table(self) -> Tensor:
        return torch.as_tensor(self.tables[0])

    def read_numbers(self, u: Tensor, label: Tensor | None) -> tuple[Tensor, ...]:
        """Return the same for a simulation, whose levels are indices already; without synchronising the device."""
        strata = torch.zeros_like(u) if label is None else label
        weights = placed(self._first_table, u.device)[strata, u][:, None]
        return u[:, None], weights, strata, one_hot(u, len(self.kinds[0].values)).float()

    def combined(self, numbers: np.ndarray) -> np.ndarray:
        """Return the index of each combination of levels, (n, columns) → (n,); raise if it was not there in fit."""
        place = {tuple(row): k for k, row in enumerate(self.combinations.tolist())}
        found = [place.get(tuple(row), -1) for row in numbers.tolist()]
        if min(found) < 0:
            unseen = "y has a combination of levels that was not there in fit"
            raise ValueError(f"Forget: {unseen}. Encode its samples without y, by the map that all levels share.")
        return np.array(found)
