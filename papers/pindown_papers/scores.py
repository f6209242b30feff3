r"""Disentanglement scores in addition to `mig` and `dci` of `pindown_papers.disentanglement`, and a table of all.

================ =========================================== ============================================
metric           asks whether                                hardly sees
================ =========================================== ============================================
`beta_vae`       pairs that share a factor reveal which      rotations
`factor_vae`     the steadiest latent reveals which          **rotations**: never alone
`mig`            one latent is more informative than others  what several latents contain together
`modularity`     a latent has information on one factor only what no latent contains; **noise**: never alone
`explicitness`   linear probes predict every level           rotations
`sap`            one latent predicts a factor better         nonlinear latents
`dci`            latents and factors belong to each other    (a booster decides: it is part of the definition)
`irs`            a latent stays while its factor is fixed    what no latent contains
`infomec`        as `modularity` and `explicitness`          modularity: what no latent contains
`udr`            several fits agree on axes; no factors      what all fits get wrong
================ =========================================== ============================================

`recovery_across_levels` compares levels of a nuisance with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import entropy, kendalltau, rankdata
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression
from sklearn.metrics import r2_score

from pindown.errors import InputError
from pindown.metrics.arrays import Labels, Mask, Matrix, RandomState, contingency, correlations, standardise
from pindown.metrics.recovery import Part, halves_by_level, smooth_r2
from pindown_papers.disentanglement import (
    DEFINITION,
    Continuous,
    FactorData,
    Information,
    Measured,
    Nearest,
    Score,
    Three,
    ThreeScores,
    TrueFactor,
    dci,
    gap,
    mean_of,
    mig,
    own_generator,
    read,
    read_latents,
    score,
    three_scores,
    typical_rotation,
)

__all__ = [
    "DEFINITION",
    "AcrossLevels",
    "EqualWidth",
    "InfoMEC",
    "Scores",
    "beta_vae",
    "dci",
    "explicitness",
    "factor_vae",
    "infomec",
    "irs",
    "mig",
    "modularity",
    "recovery_across_levels",
    "sap",
    "scores",
    "udr",
]

BATCH = 64  # samples, or pairs, that share a level
N_BATCHES = 2_400  # to fit, and as many to test
ALPHA = 0.1  # of the Lasso, in standardised units, as in the reference
SVM_C = 0.01  # of the reference
NEVER_ALONE = "noise scores high here, so report it next to mig or dci, never alone."
HARDLY_SEES = "it hardly sees a rotation of the factors, so report it next to mig or dci, never alone."


class Scores(tuple[Score, ...]):
    """Several scores that print as a table.

    Examples
    --------
    >>> a, b = Score("mig", 0.4, 0.003, 0.08), Score("modularity", 0.9, 0.66, 0.86, caveat="never alone.")
    >>> print(Scores((a, b)))
                          score   noise  rotated factors
    mig                   0.400   0.003            0.080
    modularity            0.900   0.660            0.860
    """

    def __str__(self) -> str:
        rows = [f"{s.name:<20} {s.value:6.3f}  {s.noise:6.3f}  {s.rotation:15.3f}" for s in self]
        return "\n".join([f"{'':<20} {'score':>6}  {'noise':>6}  {'rotated factors':>15}", *rows])


def scores(
    z_hat: ArrayLike, factors: ArrayLike, *, continuous: Continuous = None, random_state: RandomState = 0
) -> Scores:
    """Return all scores that need factors, as one table.

    Examples
    --------
    >>> import numpy as np
    >>> factors = np.random.default_rng(0).integers(0, 3, size=(400, 2))
    >>> table = scores(factors, factors)
    >>> [score.name for score in table][:3], len(table)
    (['beta_vae', 'factor_vae', 'mig'], 13)
    """
    metrics = (beta_vae, factor_vae, mig, modularity, explicitness, sap, dci, irs, infomec)
    found = (metric(z_hat, factors, continuous=continuous, random_state=random_state) for metric in metrics)
    return Scores(score for one in found for score in one)


# ---- information ----------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, eq=False)
class InfoMEC(ThreeScores):
    """Modularity of latents, compactness of factors, explicitness; and the information they come from.

    ``information`` is (latents that vary, factors): the fraction of a factor's information that a latent has.
    """

    modularity: Score
    compactness: Score
    explicitness: Score
    information: Matrix


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


# ---- probes ---------------------------------------------------------------------------------------------------------


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


# ---- samples that share the level of a factor -----------------------------------------------------------------------


def beta_vae(
    z_hat: ArrayLike, factors: ArrayLike, *, continuous: Continuous = None, random_state: RandomState = 0
) -> Score:
    r"""Return the BetaVAE score: whether the latents that differ least within pairs predict which factor they share.

    A point is the mean of :math:`|\hat z - \hat z'|` over 64 pairs of samples that share the level of one factor; a
    logistic regression on 2,400 points predicts that factor for as many others, from other samples. Blind to
    permutation, sign, scale and shift, and nearly to rotations; chance is 1/d. ``parts`` are the factors. Quantities
    share one of 20 bins with equally many samples. After Higgins et al. (2017), *beta-VAE: learning basic visual
    concepts with a constrained variational framework*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
    >>> found = beta_vae(factors, factors)
    >>> round(found.value, 2), found.noise < 0.5
    (1.0, True)
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> Measured:
        d = len(samples.factors)
        (points, shared), (others, shared_by_others) = (_differences(part, rng) for part in samples.halves(rng))
        fit, test = np.split(standardise(np.concatenate([points, others])), 2)
        target = TrueFactor(shared.astype(np.float64), shared, False, d)
        predicted = predict_linearly(FactorData(fit, (target,)), test)[0].argmax(axis=1)
        return _by_factor(predicted == shared_by_others, shared_by_others, d)

    return score("beta_vae", read(z_hat, factors, continuous).with_chance(measure, random_state))


def factor_vae(
    z_hat: ArrayLike, factors: ArrayLike, *, continuous: Continuous = None, random_state: RandomState = 0
) -> Score:
    r"""Return the FactorVAE score: whether the latent that varies least in a batch predicts which factor it shares.

    In each of 2,400 batches of 64 samples that share the level of one factor, the latent with the least variance
    (relative to its variance over all samples) votes for that factor; the score is how often the majority of a latent's
    votes is right for as many batches of other samples. Blind to permutation, sign, scale and shift; **it hardly sees a
    rotation**, which its print says, too. ``parts`` are the factors. Quantities share one of 20 bins with equally many
    samples. After Kim & Mnih (2018), *Disentangling by factorising*, without its threshold for dead latents: constant
    ones are left out.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
    >>> found = factor_vae(factors, factors)
    >>> round(found.value, 2), found.rotation > 0.6
    (1.0, True)
    >>> str(found).endswith("report it next to mig or dci, never alone.")
    True
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> Measured:
        d = len(samples.factors)
        (votes, shared), (steadiest, shared_by_others) = [_steadiest(part, rng) for part in samples.halves(rng)]
        counts = np.zeros((samples.z_hat.shape[1], d))
        np.add.at(counts, (votes, shared), 1)
        return _by_factor(counts.argmax(axis=1)[steadiest] == shared_by_others, shared_by_others, d)

    return score("factor_vae", read(z_hat, factors, continuous).with_chance(measure, random_state), HARDLY_SEES)


def irs(z_hat: ArrayLike, factors: ArrayLike, *, continuous: Continuous = None, random_state: RandomState = 0) -> Score:
    r"""Return the interventional robustness: how little a latent moves while one factor is fixed and the others vary.

    .. math:: \sum_i w_i \max_j \Bigl(1 - \frac{\operatorname{mean}_v q_{.99}\,|\hat z_i - \bar z_{i|f_j = v}|}{w_i}
              \Bigr) \Big/ \sum_i w_i, \qquad w_i = \max |\hat z_i - \bar z_i|

    with q the 99th percentile over samples that share a level of factor j (a quantity: one of 20 bins). Blind to
    permutation, sign, shift and a common scale; noise scores above 0, the more the heavier its tails. ``parts`` are the
    latents. After Suter et al. (2019), *Robustly disentangled causal mechanisms*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
    >>> found = irs(factors, factors)
    >>> round(found.value, 2), found.noise < 0.5
    (1.0, True)
    """

    def measure(samples: FactorData, rng: np.random.Generator) -> Measured:
        widest = np.abs(samples.z_hat - samples.z_hat.mean(axis=0)).max(axis=0)
        moves = np.stack([_moves(samples.z_hat, factor) for factor in samples.factors], axis=1)  # (d_hat, d)
        robust = 1 - moves.min(axis=1) / widest
        return Measured(float(np.average(robust, weights=widest)), robust)

    return score("irs", read(z_hat, factors, continuous).with_chance(measure, random_state))


def _moves(z_hat: Matrix, factor: TrueFactor) -> Matrix:
    """Return the 99th percentile of the distance from the mean of samples that share a level, averaged over levels."""
    order = np.argsort(factor.labels, kind="stable")
    groups = np.split(z_hat[order], np.cumsum(np.bincount(factor.labels))[:-1])
    return np.mean([np.percentile(np.abs(g - g.mean(axis=0)), 99, axis=0) for g in groups if len(g)], axis=0)


def _steadiest(samples: FactorData, rng: np.random.Generator) -> tuple[Labels, Labels]:
    """Return which latent varies least in each batch that shares a level of a factor, and the factor; (n,) each."""
    shared = np.arange(N_BATCHES) % len(samples.factors)
    steadiest = np.empty(N_BATCHES, dtype=np.int64)
    for j, factor in enumerate(samples.factors):
        mine = np.flatnonzero(shared == j)
        order = np.lexsort((rng.random(len(samples)), factor.labels))  # a batch is a run of samples of one level
        counts = np.bincount(factor.labels, minlength=factor.n_levels)
        label = factor.labels[_repeated(j, factor, counts, len(mine), rng)]  # the level is that of a random sample
        size = np.minimum(counts[label], BATCH)
        first = (np.cumsum(counts) - counts)[label] + (rng.random(len(mine)) * (counts[label] - size + 1)).astype(int)
        z = samples.z_hat[order]
        sums, squares = (np.concatenate([np.zeros_like(a[:1]), np.cumsum(a, axis=0)]) for a in (z, z**2))
        mean, square = ((a[first + size] - a[first]) / size[:, None] for a in (sums, squares))
        steadiest[mine] = (square - mean**2).argmin(axis=1)
    return steadiest, shared


def _differences(samples: FactorData, rng: np.random.Generator) -> tuple[Matrix, Labels]:
    """Return means of |z − z'| over pairs of samples that share the level of a factor, and which factor it is."""
    shared = np.arange(N_BATCHES) % len(samples.factors)
    points = np.empty((N_BATCHES, samples.z_hat.shape[1]))
    for j, factor in enumerate(samples.factors):
        mine = np.flatnonzero(shared == j)
        order, counts = np.argsort(factor.labels, kind="stable"), np.bincount(factor.labels, minlength=factor.n_levels)
        one = _repeated(j, factor, counts, len(mine) * BATCH, rng)
        label = factor.labels[one]
        other = order[(np.cumsum(counts) - counts)[label] + (rng.random(len(one)) * counts[label]).astype(int)]
        points[mine] = np.abs(samples.z_hat[one] - samples.z_hat[other]).reshape(len(mine), BATCH, -1).mean(axis=1)
    return points, shared


def _repeated(j: int, factor: TrueFactor, counts: Labels, n: int, rng: np.random.Generator) -> Labels:
    """Draw n samples, each of a level that another sample has."""
    repeated = np.flatnonzero(counts[factor.labels] > 1)
    if not len(repeated):
        remedy = "If it is a quantity, say so by `continuous`; else give more samples."
        raise InputError("factors", f"no two samples share a level of column {j} of `factors`. {remedy}")
    return repeated[rng.integers(len(repeated), size=n)]


def _by_factor(right: Mask, shared: Labels, d: int) -> Measured:
    return mean_of([right[shared == j].mean() for j in range(d)])


# ---- agreement of fits, without factors -----------------------------------------------------------------------------


UdrMethod = Literal["lasso", "spearman"]


def udr(embeddings: Sequence[ArrayLike], *, method: UdrMethod = "lasso", random_state: RandomState = 0) -> Score:
    r"""Return the unsupervised disentanglement ranking: how well several fits to the same samples agree, axis by axis.

    .. math:: \operatorname{mean}_s \operatorname{median}_{t \ne s} \tfrac12 \Bigl(\operatorname{mean}_i
              \frac{\max_j R_{ij}^2}{\sum_j R_{ij}} + \operatorname{mean}_j \frac{\max_i R_{ij}^2}{\sum_i R_{ij}}\Bigr)

    R are the absolute weights of a Lasso that predicts the latents of fit t from those of fit s, or Spearman's
    correlations. Blind to permutation, sign, shift and scale; sees rotations. Needs no truth, so it cannot say
    whether what the fits agree on is right. ``parts`` are the fits: the most trustworthy has the highest. Constant
    latents are left out; the reference leaves out those with a divergence below .01, which arrays do not contain: leave
    out yourself what your model does not use. ``rotation`` is what the first embedding scores, rotated at random for
    each fit. After Duan et al. (2020), *Unsupervised model selection for variational disentangled representation
    learning*.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(1_000, 4))
    >>> found = udr([z, -z[:, ::-1], 3 * z[:, [1, 0, 2, 3]]])
    >>> round(found.value, 1), found.noise < 0.1, found.rotation < 0.6
    (0.9, True, True)
    """
    if method not in get_args(UdrMethod):
        raise InputError("method", f"`method` must be 'lasso' or 'spearman', got {method!r}.")
    if isinstance(embeddings, np.ndarray) and embeddings.ndim == 2:
        raise InputError("embeddings", "`embeddings` must be a sequence of arrays, one per fit. Pass [z_1, z_2, …].")
    fits = [read_latents(f"embeddings[{number}]", one) for number, one in enumerate(embeddings)]
    sizes = [len(one) for one in fits]
    if len(fits) < 2 or len(set(sizes)) > 1:
        raise InputError("embeddings", f"two or more `embeddings` of the same samples are needed, got {sizes} samples.")
    rng = own_generator(random_state)
    noise = [standardise(rng.normal(size=one.shape)) for one in fits]
    rotated = [standardise(fits[0] @ typical_rotation(fits[0].shape[1], rng)) for _ in fits]
    return score("udr", [_agreement(some, method) for some in (fits, noise, rotated)])


def _agreement(fits: list[Matrix], method: UdrMethod) -> Measured:
    if method == "spearman":
        fits = [standardise(rankdata(one, axis=0)) for one in fits]
    starts = np.cumsum([one.shape[1] for one in fits])[:-1]
    both = np.concatenate(fits, axis=1)
    of_fits = []
    for s, one in enumerate(fits):
        if method == "spearman":
            related = np.abs(one.T @ both) / len(both)
        else:
            related = np.abs(Lasso(ALPHA, fit_intercept=False, precompute=True, tol=1e-7).fit(one, both).coef_.T)
        relations = [r for t, r in enumerate(np.split(related, starts, axis=1)) if t != s]
        of_fits.append(np.median([(_strength(r) + _strength(r.T)) / 2 for r in relations]))
    return mean_of(of_fits)


def _strength(relation: Matrix) -> float:
    """Return the mean over columns of the squared largest entry by the sum; 0 where nothing is related."""
    total = relation.sum(axis=0)
    return float(np.mean(np.divide(relation.max(axis=0) ** 2, total, out=np.zeros_like(total), where=total > 0)))


# ---- recovery across levels of a nuisance ---------------------------------------------------------------------------


class AcrossLevels(NamedTuple):
    """R² of regressions over several levels of a nuisance: see `recovery_across_levels`."""

    pooled: float
    elsewhere: float


def recovery_across_levels(
    z_hat: ArrayLike, z: ArrayLike, e: ArrayLike, *, max_samples: int = 10_000, random_state: RandomState = 0
) -> AcrossLevels:
    """Return the R² of the regression of `recovery_by_level` over all levels at once, and in levels it has not seen.

    ``pooled`` has one regression for all samples; ``elsewhere`` is the mean over levels of one fitted on all the
    *others*. Recovery within levels may be high and this one below 0: then the latents are recovered level by level,
    and the embedding is not aligned across levels. Chance is just below 0 for both.

    Examples
    --------
    An embedding whose sign depends on e recovers z within levels, not in the pool, and is wrong elsewhere:

    >>> from pindown.metrics import recovery_by_level
    >>> rng = np.random.default_rng(0)
    >>> z, e = rng.normal(size=(2000, 1)), rng.integers(2, size=2000)
    >>> z_hat = z * np.where(e == 1, 1, -1)[:, None]
    >>> min(recovery_by_level(z_hat, z, e).values()) > 0.99
    True
    >>> pooled, elsewhere = recovery_across_levels(z_hat, z, e)
    >>> round(pooled, 1) + 0.0, round(elsewhere) + 0
    (0.0, -3)
    """
    halves = halves_by_level(z_hat, z, e, max_samples, random_state)
    if len(halves) < 2:
        raise InputError("e", "`e` has one level only, so there is no other. Give two or more.")
    fits, scores = ({level: half[side] for level, half in halves.items()} for side in (0, 1))
    pooled = smooth_r2(_joined(fits.values()), _joined(scores.values()))
    others = {level: _joined(fits[other] for other in fits if other != level) for level in fits}
    return AcrossLevels(pooled, float(np.mean([smooth_r2(others[level], scores[level]) for level in fits])))


def _joined(parts: Iterable[Part]) -> Part:
    embeddings, latents = zip(*parts, strict=True)
    return np.concatenate(embeddings), np.concatenate(latents)
