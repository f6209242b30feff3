"""Scores made of mutual information: `mig`, `modularity`, `infomec`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pindown.metrics.disentanglement.information import Information, Nearest
from pindown.metrics.disentanglement.linear import predictive_shares
from pindown.metrics.disentanglement.result import InfoMEC, Measured, MeasuredPairs, Score, mean_of, score, three_scores
from pindown.metrics.disentanglement.rows import Rows, read
from pindown.metrics.reading import Matrix, RandomState

NEVER_ALONE = "noise scores high here, so read it beside mig or dci, never alone."


def mig(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    information: Information = Nearest(),  # noqa: B008, a frozen value
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> Score:
    r"""Mutual information gap: how much more the best code knows of a factor than the second best.

    .. math:: \frac1d \sum_j S_{(1)j} - S_{(2)j}, \qquad S_{ij} = I(\hat z_i; f_j) / H(f_j)

    Blind to permutation and strictly monotone maps of codes and to dead ones; sees rotations, and duplicated codes,
    which score 0. ``parts`` are the gaps of the factors. After Chen et al. (2018), *Isolating sources of
    disentanglement in VAEs*; ``information=EqualWidth(20)`` is its usual implementation.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(2_000, 3))
    >>> perfect = mig(np.exp(factors[:, ::-1]), factors)
    >>> perfect.value > 0.97, perfect.noise < 0.05, perfect.rotation < 0.5
    (True, True, True)
    """

    def measure(rows: Rows, rng: np.random.Generator) -> Measured:
        best = -np.sort(-_with_nothing(information.shares(rows, rng)), axis=0)
        return mean_of(best[0] - best[1])

    return score("mig", read("mig", z_hat, factors, continuous).levels(measure, random_state))


def modularity(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    information: Information = Nearest(),  # noqa: B008
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> Score:
    r"""Modularity: whether each code knows of one factor only.

    .. math:: \frac1{\hat d} \sum_i 1 - \frac{\sum_{j \ne m_i} I_{ij}^2}{(d - 1)\, I_{i m_i}^2}, \qquad
              m_i \text{ the factor that code } i \text{ knows most of}

    Blind to what no code knows, and to how many know the same; noise scores .6 to .9, because the largest of several
    small numbers is still much larger than the others: **never to be read alone**, which its print says, too. Codes
    without any information are left out. ``parts`` are the values of the codes; with one factor it is 1. After
    Ridgeway & Mozer (2018), *Learning deep disentangled embeddings with the F-statistic loss*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(2_000, 3))
    >>> found = modularity(factors, factors)
    >>> round(found.value, 2), found.noise > 0.4
    (1.0, True)
    >>> str(found).endswith("read it beside mig or dci, never alone.")
    True
    """

    def measure(rows: Rows, rng: np.random.Generator) -> Measured:
        squares = information.nats(rows, rng) ** 2
        most = squares.max(axis=1)
        others = squares.sum(axis=1) - most
        n_others = max(1, squares.shape[1] - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return mean_of(np.where(most > 0, 1 - others / (most * n_others), np.nan))

    levels = read("modularity", z_hat, factors, continuous).levels(measure, random_state)
    return score("modularity", levels, NEVER_ALONE)


def infomec(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    information: Information = Nearest(),  # noqa: B008
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> InfoMEC:
    r"""InfoM, InfoE, InfoC: modularity, explicitness and compactness, all made of information.

    .. math:: \text{modularity} = \operatorname{mean}_i \frac{\max_j S_{ij} / \sum_j S_{ij} - 1/d}{1 - 1/d}, \qquad
              \text{explicitness} = \operatorname{mean}_j \frac{H(f_j) - H(f_j \mid \text{a linear reader})}{H(f_j)}

    Compactness is the modularity of Sᵀ. S is the share of a factor's information that a code has. What linear readers
    know is measured on held-out rows: the cross-entropy of a logistic regression, for quantities the R² of a linear
    one. Blind to permutation and sign; modularity and compactness to monotone maps. Codes without any information are
    left out. After Hsu et al. (2023), *Disentanglement via latent quantization*.

    Examples
    --------
    >>> factors = np.random.default_rng(0).integers(0, 4, size=(2_000, 3))
    >>> found = infomec(np.c_[factors, factors[:, 0]], factors)
    >>> round(found.modularity.value, 1), found.compactness.value < 0.95, found.explicitness.value > 0.8
    (1.0, True, True)
    """

    def measure(rows: Rows, rng: np.random.Generator) -> MeasuredPairs:
        shares = information.shares(rows, rng)
        explicit = mean_of(predictive_shares(rows, rng))
        return MeasuredPairs((mean_of(_peaks(shares)), mean_of(_peaks(shares.T)), explicit), shares)

    levels = read("infomec", z_hat, factors, continuous).levels(measure, random_state)
    names = ("infomec modularity", "infomec compactness", "infomec explicitness")
    return InfoMEC(*three_scores(names, levels), levels[0].of_pairs)


def _peaks(shares: Matrix) -> Matrix:
    """Return how far the largest number of each row is from an equal share (0) to all (1); NaN where there is none."""
    n = shares.shape[1]
    if n == 1:
        return np.ones(len(shares))
    with np.errstate(invalid="ignore"):
        return (shares.max(axis=1) / shares.sum(axis=1) - 1 / n) / (1 - 1 / n)


def _with_nothing(shares: Matrix) -> Matrix:
    """Add a code that knows nothing, so that a single code has a second best."""
    return np.concatenate([shares, np.zeros((1, shares.shape[1]))])
