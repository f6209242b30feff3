"""Scores from predictions of factors: `sap` by one latent, `explicitness` by all in a linear map, `dci` by trees."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import entropy, kendalltau, rankdata
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score

from pindown.metrics.arrays import Labels, Matrix, RandomState, correlations
from pindown.metrics.disentanglement.boosting import boost
from pindown.metrics.disentanglement.scoring import (
    DCI,
    Continuous,
    FactorData,
    Measured,
    Score,
    Three,
    TrueFactor,
    mean_of,
    read,
    score,
    three_scores,
)

SVM_C = 0.01  # of the reference


def dci(z_hat: ArrayLike, factors: ArrayLike, *, continuous: Continuous = None, random_state: RandomState = 0) -> DCI:
    r"""Return disentanglement, completeness and informativeness, from the importances R of boosted trees.

    .. math:: D = \sum_i \rho_i \Bigl(1 - \frac{H(R_{i\cdot} / \textstyle\sum_j R_{ij})}{\log d}\Bigr), \qquad
              C = \frac1d \sum_j 1 - \frac{H(R_{\cdot j})}{\log \hat d}

    with ρ the fraction of all importance that a latent has; informativeness is the held-out accuracy, for quantities
    R². D asks whether a latent serves one factor, C whether a factor needs one latent. Blind to permutation and (up to
    the place of a threshold) strictly monotone maps of latents; sees rotations, C also duplicates. The booster decides
    the number, so it is part of the definition: see `pindown.metrics.disentanglement.boosting`. Noise has D and C of
    about 0, and the informativeness of a guess. ``parts`` are those of latents (D) and factors. After Eastwood &
    Williams (2018), *A framework for the quantitative evaluation of disentangled representations*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
    >>> found = dci(factors, factors)
    >>> [round(part.value, 2) for part in found], found.disentanglement.rotation < 0.5
    ([1.0, 1.0, 1.0], True)
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> tuple[Three, Matrix]:
        boosted = boost(*samples.halves(rng))
        importance = np.stack([one.importance for one in boosted], axis=1)  # (d_hat, d)
        weight, of_latents = importance.sum(axis=1), _concentration(importance)
        value = float(np.sum(weight * np.nan_to_num(of_latents)) / weight.sum()) if weight.any() else 0.0
        complete = mean_of(np.nan_to_num(_concentration(importance.T)))
        return (Measured(value, of_latents), complete, mean_of([one.score for one in boosted])), importance

    found = read(z_hat, factors, continuous).with_chance(measure, random_state)
    names = ("dci disentanglement", "dci completeness", "dci informativeness")
    return DCI(*three_scores(names, [measured for measured, _ in found]), found[0][1])


def _concentration(importance: Matrix) -> Matrix:
    """Return 1 less the entropy of each row, in units of the largest possible; NaN where a row is 0."""
    n = importance.shape[1]
    with np.errstate(invalid="ignore"):
        spread = entropy(importance, axis=1)
    return np.maximum(1 - spread / np.log(n), 0) if n > 1 else 1 - spread  # rounding can carry an equal split below 0


def sap(z_hat: ArrayLike, factors: ArrayLike, *, continuous: Continuous = None, random_state: RandomState = 0) -> Score:
    r"""Return the separated attribute predictability: how much better the best latent predicts than the second best.

    .. math:: \frac1d \sum_j A_{(1)j} - A_{(2)j}

    with A the held-out accuracy of a linear support vector machine of one latent (C = .01), for quantities the squared
    correlation. Blind to permutation, sign, scale and shift; sees rotations, and duplicates, which score 0, as noise
    does. ``parts`` are the gaps of the factors. One latent and a linear map predict a factor with many levels badly, so
    that even a perfect embedding may score low: compare with what rotated factors score. After Kumar et al. (2018),
    *Variational inference of disentangled latent concepts from unlabeled observations*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).normal(size=(1_000, 3))
    >>> found = sap(-2 * factors, factors)
    >>> round(found.value, 1), found.noise < 0.02
    (1.0, True)
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> Measured:
        fit, test = samples.halves(rng)
        columns = [
            _predicted_by_one(fit.z_hat, test.z_hat, *pair) for pair in zip(fit.factors, test.factors, strict=True)
        ]
        return mean_of(gap(np.stack(columns, axis=1)))

    return score("sap", read(z_hat, factors, continuous).with_chance(measure, random_state))


def _predicted_by_one(z_hat: Matrix, new: Matrix, fit: TrueFactor, test: TrueFactor) -> Matrix:
    """Return how well each latent predicts a factor; (d_hat,)."""
    if fit.continuous:
        return correlations(z_hat, fit.values[:, None])[:, 0] ** 2
    pairs = zip(z_hat.T, new.T, strict=True)
    return np.array([np.mean(highest_line(one_latent_svms(a, fit), b) == test.labels) for a, b in pairs])


def gap(of_pairs: Matrix) -> Matrix:
    """Return how far the largest number of each column is above the second largest; a single one is above 0."""
    best = -np.sort(-np.concatenate([of_pairs, np.zeros((1, of_pairs.shape[1]))]), axis=0)
    return best[0] - best[1]


def explicitness(
    z_hat: ArrayLike, factors: ArrayLike, *, continuous: Continuous = None, random_state: RandomState = 0
) -> Score:
    r"""Return the explicitness: how well a linear probe of all latents separates each level of a factor from the rest.

    The mean, over the levels of a factor and over the factors, of the area under the ROC curve of a logistic
    regression on held-out samples; for a quantity the probability that a linear one orders two samples correctly.
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

    def measure(samples: FactorData, rng: np.random.Generator) -> Measured:
        fit, test = samples.halves(rng)
        predicted = predict_linearly(fit, test.z_hat)
        return mean_of([_concordance(*pair) for pair in zip(predicted, test.factors, strict=True)])

    return score("explicitness", read(z_hat, factors, continuous).with_chance(measure, random_state))


def _concordance(predicted: Matrix, factor: TrueFactor) -> float:
    """Return how often two held-out samples are ordered correctly, mean over the levels of a factor."""
    if factor.continuous:  # an area under a ROC curve is the probability to order two samples correctly, and so is this
        return (1 + float(np.nan_to_num(kendalltau(predicted[:, 0], factor.values).statistic))) / 2
    hot = factor.labels[:, None] == np.arange(predicted.shape[1])
    inside, outside = hot.sum(axis=0), (~hot).sum(axis=0)
    ordered = (rankdata(predicted, axis=0) * hot).sum(axis=0) - inside * (inside + 1) / 2
    seen = (inside > 0) & (outside > 0)
    return float(np.mean(ordered[seen] / (inside * outside)[seen])) if seen.any() else 0.5


def predicted_fractions(samples: FactorData, rng: np.random.Generator) -> Matrix:
    """Return how much of each factor linear probes predict on held-out samples: of its entropy, or R²; at least 0."""
    fit, test = samples.halves(rng)
    predicted = predict_linearly(fit, test.z_hat)
    return np.array([_fraction(*one) for one in zip(predicted, fit.factors, test.factors, strict=True)])


def _fraction(predicted: Matrix, fit: TrueFactor, test: TrueFactor) -> float:
    if test.continuous:
        return max(0.0, float(r2_score(test.values, predicted[:, 0])))
    prior = (np.bincount(fit.labels, minlength=fit.n_levels) + 1) / (len(fit.labels) + fit.n_levels)
    likelihood = predicted[np.arange(len(test.labels)), test.labels].mean()
    return max(0.0, float(1 - likelihood / np.log(prior[test.labels]).mean()))


def predict_linearly(fit: FactorData, z_hat: Matrix) -> list[Matrix]:
    """Fit a linear probe of each factor, and apply it: log-probabilities (n, levels), or numbers (n, 1).

    Labels by logistic regression with the reference's penalty (C = 1), quantities by least squares.
    """
    found = []
    for factor in fit.factors:
        if factor.continuous:
            found.append(LinearRegression().fit(fit.z_hat, factor.values[:, None]).predict(z_hat))
            continue
        predicted = np.full((len(z_hat), factor.n_levels), np.log(1 / (len(fit) + 1)))  # for levels that the fit lacks
        seen, probe = np.unique(factor.labels), LogisticRegression(max_iter=1_000)
        several = len(seen) > 1
        predicted[:, seen] = probe.fit(fit.z_hat, factor.labels).predict_log_proba(z_hat) if several else 0.0
        found.append(predicted)
    return found


# ---- support vector machines of one latent --------------------------------------------------------------------------


class _Sums:
    """Sums of 1, x and x² over the samples below any threshold."""

    def __init__(self, x: Matrix) -> None:
        self.x = np.sort(x)
        powers = np.stack([np.ones_like(x), self.x, self.x**2])
        self.running = np.concatenate([np.zeros((3, 1)), np.cumsum(powers, axis=1)], axis=1)  # (3, n + 1)

    def where_below(self, w: float, b: float) -> Matrix:
        """Sum over samples with w x + b < 1; (3,)."""
        total = self.running[:, -1]
        if w == 0:
            return total if b < 1 else 0 * total
        below = self.running[:, np.searchsorted(self.x, (1 - b) / w)]
        return below if w > 0 else total - below


def one_latent_svms(latent: Matrix, factor: TrueFactor) -> Matrix:
    r"""Minimise ½(w² + b²) + C Σ cᵢ max(0, 1 − yᵢ(w xᵢ + b))² for each level against the rest; (levels, 2), w and b.

    Samples within the margin are those before, or after, a threshold. So running sums give the objective's curvature
    at any (w, b), and Newton's method needs no pass over the samples.
    """
    everything = _Sums(latent)
    # Weights as liblinear has them: "balanced" for the level, 1 for the rest, unless the rest is one level, too.
    balanced = len(latent) / (factor.n_levels * np.maximum(np.bincount(factor.labels, minlength=factor.n_levels), 1))
    of_rest = balanced[::-1] if factor.n_levels == 2 else np.ones(factor.n_levels)
    lines = np.zeros((factor.n_levels, 2))
    for level in range(factor.n_levels):
        own, w, b = _Sums(latent[factor.labels == level]), 0.0, 0.0
        for _ in range(30):
            inside = own.where_below(w, b) * SVM_C * balanced[level]
            outside = (everything.where_below(-w, -b) - own.where_below(-w, -b)) * SVM_C * of_rest[level]
            n, s, q = inside + outside
            # At the optimum of this piece: (I + 2 Σ c (x, 1)(x, 1)ᵀ) (w, b) = 2 Σ c y (x, 1).
            curvature, pull = np.array([[1 + 2 * q, 2 * s], [2 * s, 1 + 2 * n]]), 2 * (inside - outside)
            before, (w, b) = (w, b), np.linalg.solve(curvature, pull[[1, 0]])
            if np.abs(np.subtract((w, b), before)).max() < 1e-7:
                break
        lines[level] = w, b
    return lines


def highest_line(lines: Matrix, x: Matrix) -> Labels:
    """Return which of the lines is the highest at each x."""
    return (x[:, None] * lines[:, 0] + lines[:, 1]).argmax(axis=1)
