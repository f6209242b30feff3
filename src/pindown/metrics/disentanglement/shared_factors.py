"""Scores from samples that share the level of a factor, `beta_vae`, `factor_vae`, `irs`; and `udr`, without factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.linear_model import Lasso

from pindown.errors import InputError
from pindown.metrics.arrays import Labels, Mask, Matrix, RandomState, standardise
from pindown.metrics.disentanglement.predictability import predict_linearly
from pindown.metrics.disentanglement.scoring import (
    Continuous,
    FactorData,
    Measured,
    Score,
    TrueFactor,
    mean_of,
    own_generator,
    read,
    read_latents,
    score,
    typical_rotation,
)

BATCH = 64  # samples, or pairs, that share a level
N_BATCHES = 2_400  # to fit, and as many to test
HARDLY_SEES = "it hardly sees a rotation of the factors, so report it next to mig or dci, never alone."
ALPHA = 0.1  # of the Lasso, in standardised units, as in the reference


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
