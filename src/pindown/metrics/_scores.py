"""From what probes say of the held-out rows to scores, bits, and the statistics that a permutation recomputes.

`LabelReading` and `QuantityReading` answer the same questions, of a nuisance with values and of one with a scale.
Statistics are functions of the nuisance alone once the probes have spoken: a permutation costs no training.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from pindown.metrics._exchange import margins
from pindown.metrics.dependence import centred_distances, squared_correlation

Matrix = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]

PRIOR_SHARE = 1e-3  # of the prior in every prediction: no probe may stake everything on one value
DISTANCE_ROWS = 800


@dataclass(frozen=True, eq=False)
class LabelReading:
    """Probabilities (p, n, k) that p probes give the k values of e (n,), within strata (n,).

    ``prior`` (s, k) is how often each value occurs in each stratum of the fit half; 0 where it does not.
    """

    said: Matrix
    e: Codes
    strata: Codes
    prior: Matrix

    measure = "balanced accuracy"
    kinds = ("balanced accuracy", "log-likelihood")  # of the statistics, p each
    distance_correlation = None

    @cached_property
    def ratio(self) -> Matrix:
        """Bits by which each probe raises each value over the prior, log2 p(e|z) / p(e); (p, n, k)."""
        prior = self.prior[self.strata]  # (n, k)
        possible = self.said * (prior > 0)
        posterior = (1 - PRIOR_SHARE) * possible / np.maximum(possible.sum(axis=2, keepdims=True), 1e-12)
        posterior += PRIOR_SHARE * prior
        impossible = np.float32(-50)
        return np.where(prior > 0, np.log2(posterior / np.maximum(prior, 1e-12) + 1e-12), impossible).astype(np.float32)

    @cached_property
    def guess(self) -> Codes:
        """Return the value each probe would name if all were equally frequent; (p, n)."""
        return self.ratio.argmax(axis=2)

    def _weights(self, e: Codes) -> Matrix:
        """Weight of each row in the mean over strata, by their rows, of the mean over values of the hit rate."""
        k = self.prior.shape[1]
        cell = self.strata * k + e
        rows = np.bincount(cell, minlength=self.prior.size).reshape(-1, k)
        values = np.maximum((rows > 0).sum(axis=1), 1)
        return (rows.sum(axis=1) / len(e) / values)[self.strata] / rows.ravel()[cell]

    @cached_property
    def nuisance_bits(self) -> float:
        """Entropy of the nuisance, within its stratum, over the held-out rows."""
        return float(-np.mean(np.log2(value_shares(self.e, self.strata)[self.strata, self.e])))

    @cached_property
    def chance(self) -> float:
        """One over the number of values, averaged over the strata by their rows."""
        here = [len(np.unique(self.e[self.strata == s])) for s in range(len(self.prior))]
        return float(np.mean(1 / np.asarray(here)[self.strata]))

    def statistics(self, order: Codes | slice = slice(None)) -> Matrix:
        """Balanced accuracies and mean log-ratios (2p,), with row i given the nuisance of row ``order[i]``."""
        e = self.e[order]
        hits = (self.guess == e).astype(np.float64) @ self._weights(e)
        return np.concatenate([hits, self.ratio[:, np.arange(len(e)), e].mean(axis=1)])

    def scores(self, groups: Codes, rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
        """Balanced accuracies with the lower and upper ends of simultaneous intervals; (p,) each."""
        weights, hit = self._weights(self.e), self.guess == self.e
        score = hit.astype(np.float64) @ weights
        cell = np.unique(self.strata * self.prior.shape[1] + self.e, return_inverse=True)[1]
        rate = np.stack([np.bincount(cell, h) for h in hit]) / np.bincount(cell)  # (p, cells)
        influence = ((hit - rate[:, cell]) * weights).T
        # As if each cell had one row more, of unknown outcome: ten hits in ten are not certainty.
        one_more = float(np.sum(weights[np.unique(cell, return_index=True)[1]] ** 2))
        margin = margins(influence, groups, rng, extra=one_more)
        return score, np.clip(score - margin, 0, 1), np.clip(score + margin, 0, 1)

    def bits(self, groups: Codes, rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
        """H(e) less the held-out cross-entropy, or both given the stratum, with simultaneous intervals; (p,) each.

        A probe that is too sure of itself would hide what it knows, so its log-ratios are scaled by a factor fitted
        on one half of the held-out groups and used on the other.
        """
        side = (rng.permutation(groups.max() + 1) % 2 == 0)[groups]
        gain = np.empty((len(self.said), len(self.e)))
        for p, part in ((p, part) for p in range(len(gain)) for part in (side, ~side)):
            factor = self._factor(p, ~part) if part.any() and not part.all() else 1.0
            gain[p, part] = self._gain(p, part, factor)
        # The gain is over the prior of the fit half; the entropy is that of the held-out half, which is smaller.
        here = value_shares(self.e, self.strata)
        gain += np.log2(self.prior[self.strata, self.e] / here[self.strata, self.e])
        mean = gain.mean(axis=1)
        margin = margins((gain - mean[:, None]).T / len(self.e), groups, rng)
        return mean, mean - margin, mean + margin

    def _gain(self, p: int, rows: NDArray[np.bool_], factor: float) -> Matrix:
        ratio = factor * self.ratio[p, rows].astype(np.float64)  # (rows, k)
        total = np.sum(self.prior[self.strata[rows]] * np.exp2(ratio), axis=1)
        return ratio[np.arange(len(ratio)), self.e[rows]] - np.log2(total)

    def _factor(self, p: int, rows: NDArray[np.bool_]) -> float:
        found = minimize_scalar(lambda f: -self._gain(p, rows, f).mean(), bounds=(0, 3), method="bounded")
        return float(found.x)


@dataclass(frozen=True, eq=False)
class QuantityReading:
    """Predictions (p, n) of a quantity e (n,) by p probes, within strata (n,).

    ``e_normal`` (n,) is e on the scale of a Gaussian, by its rank within its stratum of the fit half; ``code`` (m, d)
    and ``rows`` (m,) are some held-out codes, and which rows they are, for the distance correlation.
    """

    said: Matrix
    e: Matrix
    strata: Codes
    e_normal: Matrix
    code: Matrix
    rows: Codes

    measure = "R²"
    kinds = ("R²", "rank correlation")  # of the statistics, p each, before that of the distances
    chance = 0.0
    nuisance_bits = None

    @cached_property
    def said_normal(self) -> Matrix:
        """Predictions as Gaussian scores, of mean 0 and variance 1 in each probe; (p, n)."""
        scores = np.stack([normal_scores(said, self.strata) for said in self.said])
        return scores / np.maximum(scores.std(axis=1, keepdims=True), 1e-12)

    @cached_property
    def _near(self) -> list[tuple[Codes, Matrix]]:
        """Rows of each stratum that has enough of them, and the centred distances between their codes."""
        parts = [np.flatnonzero(self.strata[self.rows] == s) for s in np.unique(self.strata)]
        return [(self.rows[part], centred_distances(self.code[part])) for part in parts if len(part) >= 4]

    @cached_property
    def distance_correlation(self) -> float:
        """Bias-corrected distance correlation of code and nuisance, its square averaged over the strata by rows."""
        squares = [squared_correlation(a, centred_distances(self.e[rows, None])) for rows, a in self._near]
        return float(np.sqrt(max(0.0, np.average(squares, weights=[len(rows) for rows, _ in self._near]))))

    def statistics(self, order: Codes | slice = slice(None)) -> Matrix:
        """R², correlations of Gaussian scores, and distance covariance (2p + 1,), with row i given ``order[i]``."""
        e, e_normal = self.e[order], self.e_normal[order]
        variance = np.sum(deviations(e, self.strata) ** 2)
        r2 = 1 - np.sum((e - self.said) ** 2, axis=1) / variance
        correlation = self.said_normal @ (e_normal - e_normal.mean()) / (len(e) * max(e_normal.std(), 1e-12))
        # One side is centred already, so plain distances of the other give the same product.
        near = [np.vdot(a, np.abs(np.subtract.outer(e[rows], e[rows]))) / len(rows) for rows, a in self._near]
        return np.concatenate([r2, correlation, [np.sum(near)]])

    def scores(self, groups: Codes, rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
        """R² with the lower and upper ends of simultaneous intervals; (p,) each."""
        missed, deviation = (self.e - self.said) ** 2, deviations(self.e, self.strata) ** 2
        r2 = 1 - missed.sum(axis=1) / deviation.sum()
        influence = ((1 - r2)[:, None] * deviation - missed).T / deviation.sum()
        margin = margins(influence, groups, rng)
        return r2, r2 - margin, np.minimum(r2 + margin, 1)

    def bits(self, groups: Codes, rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
        """Information of two Gaussians correlated as e and the prediction are, on Gaussian scales; (p,) each.

        Ranks do not change the information, ties broken at random can only lose some, and for a Gaussian e no joint
        law with that correlation has less. More than log2 n bits cannot be seen in n rows.
        """
        e = normal_scores(self.e, self.strata, rng)
        e, said = e / e.std(), self.said_normal
        r = said @ e / len(e)
        influence = (said * e - r[:, None] * (said**2 + e**2) / 2).T / len(e)
        margin = margins(influence, groups, rng)
        most = np.sqrt(1 - len(e) ** -2.0)
        mean, low, high = (-0.5 * np.log2(1 - np.clip(a, 0, most) ** 2) for a in (r, r - margin, r + margin))
        return mean, low, high


def deviations(e: Matrix, strata: Codes) -> Matrix:
    """Take the mean of its stratum off each value."""
    return e - (np.bincount(strata, e) / np.maximum(np.bincount(strata), 1))[strata]


def value_shares(e: Codes, strata: Codes) -> Matrix:
    """Return how often each value occurs in each stratum; (strata, values)."""
    counts = np.zeros((strata.max() + 1, e.max() + 1))
    np.add.at(counts, (strata, e), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def normal_scores(values: Matrix, strata: Codes, rng: np.random.Generator | None = None) -> Matrix:
    """Replace values by the Gaussian quantiles of their ranks within their stratum; ties share, or are broken."""
    if rng is None:
        return normal_scale(values, strata, values, strata)
    scores = np.empty(len(values))
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        order = np.lexsort((rng.random(len(rows)), values[rows]))
        scores[rows[order]] = ndtri((np.arange(len(rows)) + 0.5) / len(rows))
    return scores


def normal_scale(values: Matrix, strata: Codes, reference: Matrix, reference_strata: Codes) -> Matrix:
    """Place values on a Gaussian scale, by the share of the reference of their stratum that is below them."""
    scores = np.empty(len(values))
    for stratum in np.unique(strata):
        rows, others = strata == stratum, np.sort(reference[reference_strata == stratum])
        below = (np.searchsorted(others, values[rows], "left") + np.searchsorted(others, values[rows], "right")) / 2
        scores[rows] = ndtri((below + 0.5) / (len(others) + 1))
    return scores
