"""Scores made of rows that share the value of one factor: `beta_vae`, `factor_vae`, `irs`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pindown.data.labels import Codes
from pindown.metrics.disentanglement.linear import read_linearly
from pindown.metrics.disentanglement.result import Measured, Score, mean_of, score
from pindown.metrics.disentanglement.rows import Factor, Rows, read, standardised
from pindown.metrics.reading import Matrix, RandomState

BATCH = 64  # rows, or pairs, that share a value
FIT_BATCHES, TEST_BATCHES = 2_400, 2_400
HARDLY_SEES = "it hardly sees a rotation of the factors, so read it beside mig or dci, never alone."


def beta_vae(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> Score:
    r"""BetaVAE score: whether the codes that differ least in pairs tell which factor the pairs share.

    A point is the mean of :math:`|\hat z - \hat z'|` over 64 pairs of rows that share the value of one factor; a
    logistic regression of 2,400 points is to name that factor on as many others, from other rows. Blind to
    permutation, sign, scale and shift, and nearly to rotations; chance is 1/d. ``parts`` are the factors. Quantities
    share one of 20 bins of equally many rows. After Higgins et al. (2017), *beta-VAE: learning basic visual concepts
    with a constrained variational framework*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
    >>> found = beta_vae(factors, factors)
    >>> round(found.value, 2), found.noise < 0.5
    (1.0, True)
    """

    def measure(rows: Rows, rng: np.random.Generator) -> Measured:
        (one, shared_in_fit), (other, shared) = (
            _differences(part, n, rng) for part, n in zip(rows.halves(rng), (FIT_BATCHES, TEST_BATCHES), strict=True)
        )
        fit, test = np.split(standardised(np.concatenate([one, other])), 2)
        known = Factor(shared_in_fit.astype(np.float64), shared_in_fit, False, len(rows.factors))
        said = read_linearly(Rows(fit, (known,)), test)[0].argmax(axis=1)
        return _by_factor(said == shared, shared, len(rows.factors))

    return score("beta_vae", read("beta_vae", z_hat, factors, continuous).levels(measure, random_state))


def factor_vae(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> Score:
    r"""FactorVAE score: whether the code that varies least among rows tells which factor they share.

    In each of 2,400 batches of 64 rows that share the value of one factor, the code with the least variance (in units
    of its own over all rows) votes for that factor; the score is how often the majority of a code's votes is right on
    as many batches of other rows. Blind to permutation, sign, scale and shift; **it hardly sees a rotation**, which
    its print says, too. ``parts`` are the factors. Quantities share one of 20 bins of equally many rows. After Kim &
    Mnih (2018), *Disentangling by factorising*, without its threshold for dead codes: constant ones are left out.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
    >>> found = factor_vae(factors, factors)
    >>> round(found.value, 2), found.rotation > 0.6
    (1.0, True)
    >>> str(found).endswith("read it beside mig or dci, never alone.")
    True
    """

    def measure(rows: Rows, rng: np.random.Generator) -> Measured:
        halves, d = rows.halves(rng), len(rows.factors)
        votes = []
        for part, n in zip(halves, (FIT_BATCHES, TEST_BATCHES), strict=True):
            votes.append(_steadiest(part, n, rng))
        counts = np.zeros((rows.codes.shape[1], d))
        np.add.at(counts, votes[0], 1)
        steady, shared = votes[1]
        return _by_factor(counts.argmax(axis=1)[steady] == shared, shared, d)

    levels = read("factor_vae", z_hat, factors, continuous).levels(measure, random_state)
    return score("factor_vae", levels, HARDLY_SEES)


def irs(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> Score:
    r"""Interventional robustness: how little a code moves while one factor is held, whatever the others do.

    .. math:: \sum_i w_i \max_j \Bigl(1 - \frac{\operatorname{mean}_v q_{.99}\,|\hat z_i - \bar z_{i|f_j = v}|}{w_i}
              \Bigr) \Big/ \sum_i w_i, \qquad w_i = \max |\hat z_i - \bar z_i|

    with q the 99th percentile over rows that share a value of factor j (a quantity: one of 20 bins). Blind to
    permutation, sign, shift and a common scale; noise scores above 0, the more the heavier its tails. ``parts`` are the
    codes. After Suter et al. (2019), *Robustly disentangled causal mechanisms*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
    >>> found = irs(factors, factors)
    >>> round(found.value, 2), found.noise < 0.5
    (1.0, True)
    """

    def measure(rows: Rows, rng: np.random.Generator) -> Measured:
        widest = np.abs(rows.codes - rows.codes.mean(axis=0)).max(axis=0)
        moves = np.stack([_moves(rows.codes, factor) for factor in rows.factors], axis=1)  # (d_hat, d)
        robust = 1 - moves.min(axis=1) / widest
        return Measured(float(np.average(robust, weights=widest)), robust)

    return score("irs", read("irs", z_hat, factors, continuous).levels(measure, random_state))


def _moves(codes: Matrix, factor: Factor) -> Matrix:
    """Return the 99th percentile of the distance from the mean of rows that share a value, averaged over values."""
    order = np.argsort(factor.labels, kind="stable")
    groups = np.split(codes[order], np.cumsum(np.bincount(factor.labels))[:-1])
    far = [np.percentile(np.abs(group - group.mean(axis=0)), 99, axis=0) for group in groups if len(group)]
    return np.mean(far, axis=0)


def _steadiest(rows: Rows, n: int, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Return of n batches with one value of one factor which code varies least, and which factor it is; (n,) each.

    A batch is a run of rows in a random order within their value, so that running sums give all variances.
    """
    shared = np.arange(n) % len(rows.factors)
    steady = np.empty(n, dtype=np.int64)
    for j, factor in enumerate(rows.factors):
        mine = np.flatnonzero(shared == j)
        order = np.lexsort((rng.random(len(rows)), factor.labels))
        counts = np.bincount(factor.labels, minlength=factor.n_values)
        label = factor.labels[_repeated(j, factor, counts, len(mine), rng)]  # the value is that of a random row
        size = np.minimum(counts[label], BATCH)
        first = (np.cumsum(counts) - counts)[label] + (rng.random(len(mine)) * (counts[label] - size + 1)).astype(int)
        codes = rows.codes[order]
        sums, squares = (np.concatenate([np.zeros_like(a[:1]), np.cumsum(a, axis=0)]) for a in (codes, codes**2))
        mean, square = ((a[first + size] - a[first]) / size[:, None] for a in (sums, squares))
        steady[mine] = (square - mean**2).argmin(axis=1)
    return steady, shared


def _differences(rows: Rows, n: int, rng: np.random.Generator) -> tuple[Matrix, Codes]:
    """Return n means of |z − z'| over pairs of rows that share the value of a factor, and which factor it is."""
    shared = np.arange(n) % len(rows.factors)
    points = np.empty((n, rows.codes.shape[1]))
    for j, factor in enumerate(rows.factors):
        mine = np.flatnonzero(shared == j)
        order, counts = np.argsort(factor.labels, kind="stable"), np.bincount(factor.labels, minlength=factor.n_values)
        one = _repeated(j, factor, counts, len(mine) * BATCH, rng)
        label = factor.labels[one]
        other = order[(np.cumsum(counts) - counts)[label] + (rng.random(len(one)) * counts[label]).astype(int)]
        points[mine] = np.abs(rows.codes[one] - rows.codes[other]).reshape(len(mine), BATCH, -1).mean(axis=1)
    return points, shared


def _repeated(j: int, factor: Factor, counts: Codes, n: int, rng: np.random.Generator) -> Codes:
    """Draw n rows whose value others have, too."""
    rows = np.flatnonzero(counts[factor.labels] > 1)
    if not len(rows):
        raise ValueError(
            f"column {j} of factors has values that occur once each, so that no rows share one. Say by continuous that "
            "it is a quantity, or give more rows."
        )
    return rows[rng.integers(len(rows), size=n)]


def _by_factor(right: Matrix, shared: Codes, d: int) -> Measured:
    return mean_of([right[shared == j].mean() for j in range(d)])
