r"""Information that a code has of a factor: by nearest neighbours of ranks, or by the bins of the reference.

`Nearest` takes no bins: it looks at ranks, so that monotone maps of a code and outliers change nothing, and is nearly
without bias, so that noise has about no information. `EqualWidth` is what the reference implementations do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import digamma

from pindown.data.labels import Codes
from pindown.metrics.disentanglement.rows import Factor, Rows
from pindown.metrics.reading import Matrix


class Information(Protocol):
    """How the information of codes about factors is estimated."""

    def nats(self, rows: Rows, rng: np.random.Generator) -> Matrix:
        """Return I(code; factor) of all pairs, at least 0; (d_hat, d)."""

    def shares(self, rows: Rows, rng: np.random.Generator) -> Matrix:
        """Return it as a share, from 0 to 1, of what there is to know of each factor; (d_hat, d)."""


@dataclass(frozen=True)
class Nearest:
    r"""Information by the k nearest neighbours, on ranks.

    For labels after Ross (2014), *Mutual information between discrete and continuous data sets*; for quantities after
    Kraskov et al. (2004), *Estimating mutual information*. The share of a label's information is I / H. A quantity
    has no finite H; its share is :math:`1 - e^{-2I}`, which is the R² of Gaussians with that information.
    """

    k: int = 10

    def nats(self, rows: Rows, rng: np.random.Generator) -> Matrix:
        """Return I(code; factor) of all pairs; (d_hat, d)."""
        codes = [Scattered.of(code, rng) for code in rows.codes.T]
        found = np.zeros((len(codes), len(rows.factors)))
        for j, factor in enumerate(rows.factors):
            if factor.continuous:
                other = Scattered.of(factor.values, rng)
                found[:, j] = [self._of_quantity(code, other) for code in codes]
            else:
                found[:, j] = [self._of_labels(code, factor.labels) for code in codes]
        return np.maximum(found, 0)

    def shares(self, rows: Rows, rng: np.random.Generator) -> Matrix:
        """Return it as a share of what there is to know of each factor; (d_hat, d)."""
        nats = self.nats(rows, rng)
        columns = [
            -np.expm1(-2 * column) if factor.continuous else column / factor.entropy()
            for column, factor in zip(nats.T, rows.factors, strict=True)
        ]
        return np.minimum(np.stack(columns, axis=1), 1)

    def _of_labels(self, code: Scattered, labels: Codes) -> float:
        counts = np.bincount(labels)
        # Rows are in order of the code: a stable sort by label leaves each label's in order, too.
        order = code.order[np.argsort(labels[code.order].astype(np.int32), kind="stable")]
        order = order[counts[labels[order]] > 1]  # a label that occurs once has no neighbour
        if not len(order):
            return 0.0
        position, labels = code.position[order], labels[order]
        k = np.minimum(self.k, counts - 1)
        near = code.within(position, _neighbour(position, labels, k[labels]))
        of_whole = _digamma(len(code.position) + 1)
        of_label = np.where(counts > 1, of_whole[np.maximum(k, 1)] - of_whole[counts], 0.0)  # ψ(k) − ψ(n of the label)
        return float(of_whole[len(order)] + np.sum(counts * of_label) / len(order) - np.mean(of_whole[near]))

    def _of_quantity(self, code: Scattered, other: Scattered) -> float:
        n, k = len(code.position), min(self.k, len(code.position) - 1)
        both = np.stack([code.position, other.position], axis=1)
        distance = cKDTree(both).query(both, k=[k + 1], p=np.inf)[0][:, 0] * (1 - 1e-9)  # closer than the k-th
        near = [one.within(one.position, distance) for one in (code, other)]
        of_whole = _digamma(n + 1)
        return float(of_whole[k] + of_whole[n] - np.mean(of_whole[near[0] + 1] + of_whole[near[1] + 1]))


@dataclass(frozen=True, eq=False)
class Scattered:
    """Numbers as ranks, ties at random, each moved up at random by less than 1, so that no distance comes twice."""

    position: Matrix  # (n,), of each row
    moved: Matrix  # (n,), of each rank
    order: Codes  # (n,), the row of each rank

    @classmethod
    def of(cls, values: Matrix, rng: np.random.Generator) -> Scattered:
        """Scatter numbers; (n,)."""
        order, moved = np.lexsort((rng.random(len(values)), values)), rng.random(len(values))
        position = np.empty(len(values))
        position[order] = np.arange(len(values)) + moved
        return cls(position, moved, order)

    def within(self, position: Matrix, distance: Matrix) -> Codes:
        """Count the others that are no further from these positions than a distance: every rank is taken once."""
        n = len(self.moved)
        low, high = position - distance * (1 + 1e-12), position + distance * (1 + 1e-12)
        first, last = np.floor(low).astype(np.int64), np.floor(high).astype(np.int64)
        inner_first, inner_last = np.clip(first, 0, n - 1), np.clip(last, 0, n - 1)
        below = np.where(first < 0, 0, first + (self.moved[inner_first] < low - first))  # ranks that are too low
        upto = np.where(last >= n, n, last + (self.moved[inner_last] <= high - last))
        return upto - below - 1


@dataclass(frozen=True)
class EqualWidth:
    """Plug-in information of codes cut into bins of equal width, as the reference implementations have it.

    Noise has about (n_bins − 1)(values − 1) / 2n nats of any factor, and one outlier empties all bins but two.
    Quantities are cut, too.
    """

    n_bins: int = 20

    def nats(self, rows: Rows, rng: np.random.Generator) -> Matrix:
        """Return I(code; factor) of all pairs; (d_hat, d)."""
        codes = [self._cut(code) for code in rows.codes.T]
        return np.array([[_plug_in(code, self._labels(factor)) for factor in rows.factors] for code in codes])

    def shares(self, rows: Rows, rng: np.random.Generator) -> Matrix:
        """Return I(code; factor) / H(factor); (d_hat, d)."""
        labels = [self._labels(factor) for factor in rows.factors]
        return self.nats(rows, rng) / np.array([_plug_in(one, one) for one in labels])

    def _labels(self, factor: Factor) -> Codes:
        return self._cut(factor.values) if factor.continuous else factor.labels

    def _cut(self, values: Matrix) -> Codes:
        low, high = values.min(), values.max()
        return np.minimum(((values - low) / (high - low) * self.n_bins).astype(np.int64), self.n_bins - 1)


def _neighbour(position: Matrix, labels: Codes, k: Codes) -> Matrix:
    """Return the distance to the k-th neighbour of the same label, of positions sorted by label, then size."""
    distance = np.full(len(position), np.inf)
    for steps in np.unique(k):  # all the same, but for labels that hardly occur
        some = np.flatnonzero(k == steps)
        place, label = position[some], labels[some]
        width = np.where(label[steps:] == label[: len(label) - steps], 0.0, np.inf)  # of a window of one label
        nearest = np.full(len(some), np.inf)
        for left in range(steps + 1):  # so many of the window's other members are to the left
            middle = place[left : len(place) - steps + left]
            reach = np.maximum(middle - place[: len(middle)], place[steps:] - middle) + width
            np.minimum(nearest[left : left + len(middle)], reach, out=nearest[left : left + len(middle)])
        distance[some] = nearest
    return distance


@lru_cache(maxsize=8)
def _digamma(n: int) -> Matrix:
    """Return the digamma function of 0 (taken as that of 1), 1, …, n − 1, computed once."""
    return digamma(np.maximum(np.arange(n), 1))


def _plug_in(one: Codes, other: Codes) -> float:
    width = int(other.max()) + 1
    joint = np.bincount(one * width + other, minlength=(int(one.max()) + 1) * width).reshape(-1, width) / len(one)
    outer = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    held = joint > 0
    return float(max(0.0, np.sum(joint[held] * np.log(joint[held] / outer[held]))))
