"""Scores made of predictions: `dci`, `sap`, `explicitness`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pindown.metrics.disentanglement.boosting import boost
from pindown.metrics.disentanglement.linear import concordances, squared_correlations, svm_accuracies
from pindown.metrics.disentanglement.result import DCI, Measured, MeasuredPairs, Score, mean_of, score, three_scores
from pindown.metrics.disentanglement.rows import Rows, read
from pindown.metrics.reading import Matrix, RandomState


def dci(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> DCI:
    r"""Disentanglement, completeness and informativeness, from the importances R of boosted trees.

    .. math:: D = \sum_i \rho_i \Bigl(1 - \frac{H(R_{i\cdot} / \textstyle\sum_j R_{ij})}{\log d}\Bigr), \qquad
              C = \frac1d \sum_j 1 - \frac{H(R_{\cdot j})}{\log \hat d}

    with ρ the share of all importance that a code has; informativeness is the held-out accuracy, for quantities R².
    D asks whether a code serves one factor, C whether a factor needs one code. Blind to permutation and (up to the
    place of a threshold) strictly monotone maps of codes; sees rotations, C also duplicates. The booster decides the
    number, so it is part of the definition: see `pindown.metrics.disentanglement.boosting`. ``parts`` are those of
    codes (D) and factors. After Eastwood & Williams (2018), *A framework for the quantitative evaluation of
    disentangled representations*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
    >>> found = dci(factors, factors)
    >>> [round(part.value, 2) for part in found], found.disentanglement.rotation < 0.5
    ([1.0, 1.0, 1.0], True)
    """

    def measure(rows: Rows, rng: np.random.Generator) -> MeasuredPairs:
        boosted = boost(*rows.halves(rng))
        importance = np.stack([one.importance for one in boosted], axis=1)  # (d_hat, d)
        weight = importance.sum(axis=1)
        of_codes = _concentration(importance)
        total = weight.sum()
        value = float(np.sum(weight * np.nan_to_num(of_codes)) / total) if total > 0 else 0.0
        informed = mean_of([one.score for one in boosted])
        complete = mean_of(np.nan_to_num(_concentration(importance.T)))
        return MeasuredPairs((Measured(value, of_codes), complete, informed), importance)

    levels = read("dci", z_hat, factors, continuous).levels(measure, random_state)
    names = ("dci disentanglement", "dci completeness", "dci informativeness")
    return DCI(*three_scores(names, levels), levels[0].of_pairs)


def sap(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> Score:
    r"""Separated attribute predictability: how much better the best code predicts a factor than the second best.

    .. math:: \frac1d \sum_j A_{(1)j} - A_{(2)j}

    with A the held-out accuracy of a linear support vector machine of one code (C = .01), for quantities the squared
    correlation. Blind to permutation, sign, scale and shift; sees rotations, and duplicates, which score 0. ``parts``
    are the gaps of the factors. A factor of many values is badly told by one linear code, so that even perfect codes
    may score low: compare with what rotated factors score. After Kumar et al. (2018), *Variational inference of
    disentangled latent concepts from unlabeled observations*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).normal(size=(1_000, 3))
    >>> found = sap(-2 * factors, factors)
    >>> round(found.value, 1), found.noise < 0.02
    (1.0, True)
    """

    def measure(rows: Rows, rng: np.random.Generator) -> Measured:
        fit, test = rows.halves(rng)
        squares = squared_correlations(fit)
        told = svm_accuracies(fit, test)
        of_pairs = np.where([factor.continuous for factor in fit.factors], squares, told)
        best = -np.sort(-np.concatenate([of_pairs, np.zeros((1, of_pairs.shape[1]))]), axis=0)
        return mean_of(best[0] - best[1])

    return score("sap", read("sap", z_hat, factors, continuous).levels(measure, random_state))


def explicitness(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> Score:
    r"""Explicitness: how well linear readers of all codes tell each value of a factor from the rest.

    The mean, over the values of a factor and over the factors, of the area under the ROC curve of a logistic
    regression on held-out rows; for a quantity the same probability, to order two rows rightly, by a linear one.
    Blind to invertible linear maps, rotations among them: it asks for information, not for axes. Noise scores .5.
    ``parts`` are the factors. After Ridgeway & Mozer (2018), *Learning deep disentangled embeddings with the
    F-statistic loss*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 2, size=(1_000, 3))
    >>> found = explicitness(factors, factors)
    >>> round(found.value, 2), round(found.rotation, 2), abs(found.noise - 0.5) < 0.1
    (1.0, 1.0, True)
    """

    def measure(rows: Rows, rng: np.random.Generator) -> Measured:
        return mean_of(concordances(rows, rng))

    return score("explicitness", read("explicitness", z_hat, factors, continuous).levels(measure, random_state))


def _concentration(importance: Matrix) -> Matrix:
    """Return 1 less the entropy of each row, in units of the largest possible; NaN where a row is 0."""
    n = importance.shape[1]
    total = importance.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        share = importance / total
    if n == 1:
        return np.where(total[:, 0] > 0, 1.0, np.nan)
    logs = np.log(np.where(share > 0, share, 1.0))
    return np.maximum(1 + np.sum(share * logs, axis=1) / np.log(n), 0)  # rounding can carry an equal share below 0
