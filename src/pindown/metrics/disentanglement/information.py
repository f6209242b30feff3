r"""Scores from mutual information, `mig`, `modularity`, `infomec`, and two estimators of it.

`Nearest` takes no bins: it uses ranks, so that monotone maps of a latent and outliers change nothing, and is nearly
unbiased, so that noise has about no information. `EqualWidth` is what the reference implementations do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.special import digamma
from scipy.stats import entropy

from pindown.metrics.arrays import Labels, Matrix, RandomState, contingency
from pindown.metrics.disentanglement.predictability import gap, predicted_fractions
from pindown.metrics.disentanglement.scoring import (
    Continuous,
    FactorData,
    InfoMEC,
    Measured,
    Score,
    Three,
    mean_of,
    read,
    score,
    three_scores,
)

NEVER_ALONE = "noise scores high here, so report it next to mig or dci, never alone."


@dataclass(frozen=True)
class Nearest:
    r"""Information by the k nearest neighbours, on ranks.

    For labels after Ross (2014), *Mutual information between discrete and continuous data sets*; for quantities after
    Kraskov et al. (2004), *Estimating mutual information*. The fraction of a label's information is I / H. A quantity
    has no finite H; its fraction is :math:`1 - e^{-2I}`, which is the R² of Gaussians with that information.
    """

    k: int = 10

    def nats(self, samples: FactorData, rng: np.random.Generator) -> Matrix:
        """Return I(latent; factor) of all pairs, at least 0; (d_hat, d)."""
        latents = [Ranked.of(latent, rng) for latent in samples.z_hat.T]
        found = np.zeros((len(latents), len(samples.factors)))
        for j, factor in enumerate(samples.factors):
            if factor.continuous:
                other = Ranked.of(factor.values, rng)
                found[:, j] = [self._of_quantity(latent, other) for latent in latents]
            else:
                found[:, j] = [self._of_labels(latent, factor.labels) for latent in latents]
        return np.maximum(found, 0)

    def fractions(self, samples: FactorData, rng: np.random.Generator) -> Matrix:
        """Return it as a fraction, from 0 to 1, of the information in each factor; (d_hat, d)."""
        nats = self.nats(samples, rng)
        columns = [
            -np.expm1(-2 * column) if factor.continuous else column / factor.entropy()
            for column, factor in zip(nats.T, samples.factors, strict=True)
        ]
        return np.minimum(np.stack(columns, axis=1), 1)

    def _of_labels(self, latent: Ranked, labels: Labels) -> float:
        # FactorData are in order of the latent: a stable sort by label leaves each label's in order, too.
        order = latent.order[np.argsort(labels[latent.order].astype(np.int32), kind="stable")]
        parts = np.split(latent.position[order], np.cumsum(np.bincount(labels))[:-1])
        parts = [part for part in parts if len(part) > 1]  # a label that occurs once has no neighbour
        if not parts:
            return 0.0
        counts = np.array([len(part) for part in parts])
        k = np.minimum(self.k, counts - 1)
        distance = [_neighbour_distance(*one) for one in zip(parts, k, strict=True)]
        near = latent.within(np.concatenate(parts), np.concatenate(distance))
        psi = _digamma(len(latent.position) + 1)
        return float(psi[len(near)] + np.sum(counts * (psi[k] - psi[counts])) / len(near) - np.mean(psi[near]))

    def _of_quantity(self, latent: Ranked, other: Ranked) -> float:
        n, k = len(latent.position), min(self.k, len(latent.position) - 1)
        both = np.stack([latent.position, other.position], axis=1)
        distance = cKDTree(both).query(both, k=[k + 1], p=np.inf)[0][:, 0] * (1 - 1e-9)  # closer than the k-th
        near = [one.within(one.position, distance) for one in (latent, other)]
        psi = _digamma(n + 1)
        return float(psi[k] + psi[n] - np.mean(psi[near[0] + 1] + psi[near[1] + 1]))


class Ranked(NamedTuple):
    """Numbers as ranks, ties at random, each moved up at random by less than 1, so that no distance occurs twice."""

    position: Matrix  # (n,), of each sample
    order: Labels  # (n,), the sample of each rank
    ascending: Matrix  # (n,), the position of each rank

    @classmethod
    def of(cls, values: Matrix, rng: np.random.Generator) -> Ranked:
        """Rank numbers; (n,)."""
        n = len(values)
        order, ascending = np.lexsort((rng.random(n), values)), np.arange(n) + rng.random(n)
        position = np.empty(n)
        position[order] = ascending
        return cls(position, order, ascending)

    def within(self, position: Matrix, distance: Matrix) -> Labels:
        """Count the others that are no further from these positions than a distance."""
        reach = distance * (1 + 1e-12)
        first = np.searchsorted(self.ascending, position - reach, "left")
        return np.searchsorted(self.ascending, position + reach, "right") - first - 1


def _neighbour_distance(position: Matrix, k: int) -> Matrix:
    """Return the distance of each of sorted positions to its k-th neighbour."""
    distance, n = np.full(len(position), np.inf), len(position) - k
    for left in range(k + 1):  # so many of the other members of a window of k + 1 are to the left
        middle = position[left : left + n]
        reach = np.maximum(middle - position[:n], position[k:] - middle)
        np.minimum(distance[left : left + n], reach, out=distance[left : left + n])
    return distance


@lru_cache(maxsize=8)
def _digamma(n: int) -> Matrix:
    """Return the digamma function of 0 (taken as that of 1), 1, …, n − 1, computed once."""
    return digamma(np.maximum(np.arange(n), 1))


@dataclass(frozen=True)
class EqualWidth:
    """Plug-in information of latents cut into bins of equal width, as the reference implementations have it.

    Noise has about (n_bins − 1)(levels − 1) / 2n nats of any factor, and one outlier empties all bins except two.
    Quantities are cut, too.
    """

    n_bins: int = 20

    def nats(self, samples: FactorData, rng: np.random.Generator) -> Matrix:
        """Return I(latent; factor) of all pairs; (d_hat, d)."""
        latents, factors = [self._cut(latent) for latent in samples.z_hat.T], self._labels(samples)
        return np.array([[_shared(contingency(latent, factor)) for factor in factors] for latent in latents])

    def fractions(self, samples: FactorData, rng: np.random.Generator) -> Matrix:
        """Return I(latent; factor) / H(factor); (d_hat, d)."""
        return self.nats(samples, rng) / np.array([entropy(np.bincount(one)) for one in self._labels(samples)])

    def _labels(self, samples: FactorData) -> list[Labels]:
        return [self._cut(factor.values) if factor.continuous else factor.labels for factor in samples.factors]

    def _cut(self, values: Matrix) -> Labels:
        low, high = values.min(), values.max()
        return np.minimum(((values - low) / (high - low) * self.n_bins).astype(np.int64), self.n_bins - 1)


def _shared(counts: Matrix) -> float:
    """Return the information that the rows and columns of a table share."""
    return float(entropy(counts.sum(axis=0)) + entropy(counts.sum(axis=1)) - entropy(counts.ravel()))


Information = Nearest | EqualWidth
"""How the information of latents about factors is estimated."""


# ---- scores ---------------------------------------------------------------------------------------------------------


def mig(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    information: Information = Nearest(),  # noqa: B008, a frozen value
    continuous: Continuous = None,
    random_state: RandomState = 0,
) -> Score:
    r"""Return the mutual information gap: how much more information on a factor the best latent has than the second.

    .. math:: \frac1d \sum_j S_{(1)j} - S_{(2)j}, \qquad S_{ij} = I(\hat z_i; f_j) / H(f_j)

    Blind to permutation and strictly monotone maps of latents and to dead ones; sees rotations, and duplicated latents,
    which score 0. Noise scores about 0. ``parts`` are the gaps of the factors. After Chen et al. (2018), *Isolating
    sources of disentanglement in VAEs*; ``information=EqualWidth(20)`` is its usual implementation.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(2_000, 3))
    >>> perfect = mig(np.exp(factors[:, ::-1]), factors)
    >>> perfect.value > 0.97, perfect.noise < 0.05, perfect.rotation < 0.5
    (True, True, True)
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> Measured:
        return mean_of(gap(information.fractions(samples, rng)))

    return score("mig", read(z_hat, factors, continuous).with_chance(measure, random_state))


def modularity(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    information: Information = Nearest(),  # noqa: B008
    continuous: Continuous = None,
    random_state: RandomState = 0,
) -> Score:
    r"""Return the modularity: whether each latent has information on one factor only.

    .. math:: \frac1{\hat d} \sum_i 1 - \frac{\sum_{j \ne m_i} I_{ij}^2}{(d - 1)\, I_{i m_i}^2}, \qquad
              m_i \text{ the factor of which latent } i \text{ has most}

    Blind to what no latent contains, and to how many contain the same; noise scores .6 to .9, because the largest of
    several small numbers is still much larger than the others: **never to be reported alone**, which its print says,
    too. Latents without any information are left out. ``parts`` are the values of the latents; with one factor it is 1.
    After Ridgeway & Mozer (2018), *Learning deep disentangled embeddings with the F-statistic loss*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(2_000, 3))
    >>> found = modularity(factors, factors)
    >>> round(found.value, 2), found.noise > 0.4
    (1.0, True)
    >>> str(found).endswith("report it next to mig or dci, never alone.")
    True
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> Measured:
        squares = information.nats(samples, rng) ** 2
        most = squares.max(axis=1)
        others = squares.sum(axis=1) - most
        with np.errstate(divide="ignore", invalid="ignore"):
            return mean_of(np.where(most > 0, 1 - others / (most * max(1, squares.shape[1] - 1)), np.nan))

    return score("modularity", read(z_hat, factors, continuous).with_chance(measure, random_state), NEVER_ALONE)


def infomec(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    information: Information = Nearest(),  # noqa: B008
    continuous: Continuous = None,
    random_state: RandomState = 0,
) -> InfoMEC:
    r"""Return InfoM, InfoE, InfoC: modularity, explicitness and compactness, all from information.

    .. math:: \text{modularity} = \operatorname{mean}_i \frac{\max_j S_{ij} / \sum_j S_{ij} - 1/d}{1 - 1/d}, \qquad
              \text{explicitness} = \operatorname{mean}_j \frac{H(f_j) - H(f_j \mid \text{a linear probe})}{H(f_j)}

    Compactness is the modularity of Sᵀ. S is the fraction of a factor's information that a latent has. What linear
    probes predict is measured on held-out samples: the cross-entropy of a logistic regression, for quantities the R² of
    a linear one. Blind to permutation and sign; modularity and compactness to monotone maps. Latents without any
    information are left out. Noise has an explicitness of 0, but a modularity and compactness of about .5 or more: read
    all three together. After Hsu et al. (2023), *Disentanglement via latent quantization*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(2_000, 3))
    >>> found = infomec(np.c_[factors, factors[:, 0]], factors)
    >>> round(found.modularity.value, 1), found.compactness.value < 0.95, found.explicitness.value > 0.8
    (1.0, True, True)
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> tuple[Three, Matrix]:
        fractions = information.fractions(samples, rng)
        explicit = mean_of(predicted_fractions(samples, rng))
        return (mean_of(_peaks(fractions)), mean_of(_peaks(fractions.T)), explicit), fractions

    found = read(z_hat, factors, continuous).with_chance(measure, random_state)
    names = ("infomec modularity", "infomec compactness", "infomec explicitness")
    return InfoMEC(*three_scores(names, [measured for measured, _ in found]), found[0][1])


def _peaks(fractions: Matrix) -> Matrix:
    """Return how far the largest number of each row is from an equal split (0) to all (1); NaN where there is none."""
    n = fractions.shape[1]
    if n == 1:
        return np.ones(len(fractions))
    with np.errstate(invalid="ignore"):
        return (fractions.max(axis=1) / fractions.sum(axis=1) - 1 / n) / (1 - 1 / n)
