"""Codes and factors as the metrics see them, the codes that chance is measured on, and how rows are divided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from pindown.data.labels import Codes, is_quantity, numbered
from pindown.metrics.reading import Matrix, RandomState, read_matrix

T = TypeVar("T")

SALT = 0x5C0135
N_BINS = 20  # into which a quantity is cut where a metric needs rows that share a value
MIN_ROWS = 40
FIT_ROWS, TEST_ROWS = 10_000, 5_000  # of the reference: more would cost time, and change little


@dataclass(frozen=True, eq=False)
class Factor:
    """One true factor: numbers, and the labels 0, 1, … of its values, or of bins of equally many rows if continuous."""

    values: Matrix  # (n,), standardised
    labels: Codes  # (n,)
    continuous: bool
    n_values: int  # or bins

    def entropy(self) -> float:
        """Entropy of the labels, in nats."""
        share = np.bincount(self.labels) / len(self.labels)
        share = share[share > 0]
        return float(-np.sum(share * np.log(share)))

    def of(self, rows: NDArray[np.int64]) -> Factor:
        """Return the factor on some rows."""
        return replace(self, values=self.values[rows], labels=self.labels[rows])


@dataclass(frozen=True, eq=False)
class Rows:
    """Standardised codes that vary, and the factors of the same rows."""

    codes: Matrix  # (n, d_hat)
    factors: tuple[Factor, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def of(self, rows: NDArray[np.int64]) -> Rows:
        """Return some rows."""
        return Rows(self.codes[rows], tuple(factor.of(rows) for factor in self.factors))

    def halves(self, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Return rows to fit and rows to test, at random."""
        order, n = rng.permutation(len(self)), len(self)
        m = min(n - n // 2, FIT_ROWS)
        return self.of(order[:m]), self.of(order[m : m + TEST_ROWS])

    def levels(self, measure: Callable[[Rows, np.random.Generator], T], random_state: RandomState) -> tuple[T, T, T]:
        """Measure the code, noise of as many columns, and a rotation of the factors, on the same rows."""
        draws = own_generator(random_state)
        seed = int(draws.integers(2**63))
        noise = draws.normal(size=self.codes.shape)
        truth = np.stack([factor.values for factor in self.factors], axis=1)
        turn = typical_rotation(truth.shape[1], draws)
        # The same generator for all three, so that they differ in nothing but the codes.
        one, two, three = (
            measure(Rows(codes, self.factors), np.random.default_rng(seed))
            for codes in (self.codes, standardised(noise), standardised(truth @ turn))
        )
        return one, two, three


def read(caller: str, z_hat: ArrayLike, factors: ArrayLike, continuous: Sequence[bool] | bool | None) -> Rows:
    """Read codes and factors, or say in a sentence what is wrong with them."""
    codes, truth = read_codes(caller, "z_hat", z_hat), read_matrix(caller, "factors", factors)
    if len(codes) != len(truth):
        raise ValueError(
            f"{caller}: z_hat has {len(codes)} rows and factors has {len(truth)}, but row i of both must be the same "
            "sample. Was one of them filtered or transposed?"
        )
    if single := [j for j in range(truth.shape[1]) if np.ptp(truth[:, j]) == 0]:
        raise ValueError(
            f"{caller}: column(s) {single} of factors have one value, so there is nothing to recover. Leave them out."
        )
    d = truth.shape[1]
    kinds = [continuous] * d if continuous is None or isinstance(continuous, bool) else list(continuous)
    if len(kinds) != d:
        raise ValueError(f"{caller}: continuous must be a bool, or one for each of {d} factors, got {len(kinds)}.")
    return Rows(codes, tuple(_factor(column, kind) for column, kind in zip(truth.T, kinds, strict=True)))


def read_codes(caller: str, name: str, values: ArrayLike) -> Matrix:
    """Return the columns that vary, standardised; dead ones are left out, as if nobody had made them."""
    codes = read_matrix(caller, name, values)
    if len(codes) < MIN_ROWS:
        raise ValueError(f"{caller}: {len(codes)} rows are too few, {MIN_ROWS} are needed. Give more rows.")
    # Up to the rounding of the precision they came in: the outputs of a dead unit may differ in the last bit.
    alive = np.ptp(codes, axis=0) > 4 * np.finfo(codes.dtype).eps * np.abs(codes).max(axis=0)
    if not alive.any():
        raise ValueError(
            f"{caller}: all columns of {name} are constant, so they say nothing of any factor. The encoder has "
            "probably collapsed: look at loss_curve_."
        )
    return standardised(codes[:, alive].astype(np.float64))


def own_generator(random_state: RandomState) -> np.random.Generator:
    """Return a generator whose numbers are not those that made the data: people seed these with 0, too."""
    return np.random.default_rng((SALT, random_state) if isinstance(random_state, int) else random_state)


def typical_rotation(d: int, rng: np.random.Generator) -> Matrix:
    """Return the one of 101 random rotations whose axes are matched with the old ones neither well nor badly.

    Of few factors one rotation may be nearly none, and the next a full turn: the median stands for them all.
    """
    turns = np.linalg.qr(rng.normal(size=(101, d, d))).Q
    matched = [np.abs(turn)[linear_sum_assignment(np.abs(turn), maximize=True)].sum() for turn in turns]
    return turns[np.argsort(matched)[50]]


def standardised(values: Matrix) -> Matrix:
    """Shift and scale columns to mean 0 and variance 1; constant ones become 0."""
    centred = values - values.mean(axis=0)
    for size in (lambda a: np.abs(a).max(axis=0), lambda a: a.std(axis=0)):  # the squares of huge codes would overflow
        scale = size(centred)
        centred /= np.where(scale > 0, scale, 1.0)
    return centred


def _factor(column: Matrix, continuous: bool | None) -> Factor:
    values = standardised(column.astype(np.float64)[:, None])[:, 0]
    cut = is_quantity(column) if continuous is None else continuous
    edges = np.unique(np.quantile(column, np.arange(1, N_BINS) / N_BINS)) if cut else ()
    found = numbered(np.searchsorted(edges, column, side="right") if cut else column, "factors", "value")
    return Factor(values, found.labels, cut, len(found.values))
