r"""Sets: whether parts of the latents that must not mix are separate in an embedding, and whether the support is found.

======================== =================================================== ====================================
metric                   blind to                                            chance is the score of
======================== =================================================== ====================================
`set_scores`             mixing inside a part; an embedding without          an embedding equal to ``z``
                         information (compare with ``reference``)            except for a rotation
`support_f1`, `shd`      order of the columns; the values of the latents     as many edges placed at random
`mcc_above_chance`       as `mcc`                                            0, by construction
======================== =================================================== ====================================

Columns of an embedding have no order, so each score rests on a *matching*: an array p in which column ``p[j]`` of the
embedding is matched to latent j, −1 where there is none. `match_latents` finds it from values, `match_supports` from
supports alone; the second is more lenient, as it need not agree with the values.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

from pindown.errors import InputError
from pindown.metrics.arrays import (
    Labels,
    Method,
    RandomState,
    best_matching,
    check_positive,
    check_varies,
    correlations,
    in_halves,
    matched_sum,
    read_pair,
)
from pindown.metrics.probes import STRENGTHS
from pindown.metrics.recovery import chance_mcc, mcc
from pindown.theory.structure import Support, as_support
from pindown_papers.supports import Parts, parts


@dataclass(frozen=True)
class SetScores:
    """R² between parts of the latents behind two groups of observed variables, A and B.

    The first four should be low, ``reference`` high. NaN where a part is empty, so that there is nothing to mix.
    """

    intersection: float
    symmetric_difference: float
    complement_a: float
    complement_b: float
    reference: float


def set_scores(
    z_hat: ArrayLike,
    z: ArrayLike,
    support: ArrayLike,
    group_a: int | Iterable[int],
    group_b: int | Iterable[int],
    *,
    matching: ArrayLike | None = None,
    regressor: BaseEstimator | None = None,
    random_state: RandomState = 0,
) -> SetScores:
    r"""Return how much of one part of the latents the estimate of another part explains, where theory says: nothing.

    With A, B the index sets of two groups of observed variables, and R²(target ← estimate) held-out, averaged over the
    target's latents:

    ========================= ================================================ ===========
    field                     R² of                                            the paper's
    ========================= ================================================ ===========
    ``intersection``          :math:`z_{A \cap B}` ← :math:`\hat z_{A △ B}`     Int
    ``symmetric_difference``  :math:`z_{A △ B}` ← :math:`\hat z_{A \cap B}`     SymDiff
    ``complement_a``          :math:`z_{A ∖ B}` ← :math:`\hat z_{B ∖ A}`        Comp A
    ``complement_b``          :math:`z_{B ∖ A}` ← :math:`\hat z_{A ∖ B}`        Comp B
    ``reference``             :math:`z_{A \cup B}` ← :math:`\hat z_{A \cup B}`  Ref
    ========================= ================================================ ===========

    "Not a function of" allows any function, so the regression is nonlinear. Blind to mixing inside a part, to columns
    of the embedding that are matched to no latent, and to an embedding without information, which scores 0
    throughout: a result is four low numbers *and* a high reference. Latents that depend on each other explain each
    other in a perfect embedding, too: ``set_scores(z, z, …)`` is the floor. Chance is high, see `chance_set_scores`.
    After Zheng et al., *Diverse Dictionary Learning*, Fig. 4; their regression and the exact Ref are not stated.

    Parameters
    ----------
    z_hat, z : array of shape (n, d_hat), (n, d)
    support : array of zeros and ones of shape (m, d)
        Which latent reaches which observed variable.
    group_a, group_b : int or iterable of int
        The observed variables of each group.
    matching : array of shape (d,), optional
        The column of the embedding for each latent; by default `match_latents` on the samples to fit.
    regressor : scikit-learn regressor, optional
        By default ridge regression on splines of each column, products of two, and 100 radial features.
    random_state : int, Generator or None
        Decides the halves, and the centres of the radial features.

    Examples
    --------
    x₀ = g₀(z₀, z₁), x₁ = g₁(z₁, z₂). An embedding that transforms each latent alone does not mix them. One that adds
    z₀/2 to the shared latent does: that column predicts a fifth of z₀ and nothing of z₂, so a tenth on average:

    >>> z = np.random.default_rng(0).normal(size=(2000, 3))
    >>> S = [[1, 1, 0], [0, 1, 1]]
    >>> abs(set_scores(np.sinh(z), z, S, 0, 1).symmetric_difference) < 0.02
    True
    >>> mixed = z + np.outer(z[:, 0], [0, 0.5, 0])
    >>> set_scores(mixed, z, S, 0, 1).symmetric_difference > 0.02
    True
    """
    a_hat, a = read_pair(z_hat, z)
    matrix = as_support(support)
    if matrix.shape[1] != a.shape[1]:
        sizes = f"`support` has {matrix.shape[1]} columns and `z` has {a.shape[1]}"
        raise InputError("support", f"{sizes}, but column j of both must be the same latent. Is it transposed?")
    rng = np.random.default_rng(random_state)
    (fit_hat, fit), (score_hat, score) = in_halves(a_hat, a, a_hat.shape[1] + 3, True, rng)
    check_varies("z_hat", fit_hat, a_hat, "they can be matched to no latent")
    if matching is None:
        columns = best_matching(np.abs(correlations(fit_hat, fit)))
    else:
        columns = _read_matching(matching, a_hat.shape[1], a.shape[1])
    if (missing := np.flatnonzero(columns < 0)).size:
        raise InputError("z_hat", f"latent(s) {missing.tolist()} have no column of `z_hat`. Fit more components.")
    probe = _smooth(len(fit), int(rng.integers(2**31))) if regressor is None else regressor

    def r2(target: list[int], part: list[int]) -> float:
        fitted = clone(probe).fit(fit_hat[:, columns[part]], fit[:, target])
        return float(r2_score(score[:, target], fitted.predict(score_hat[:, columns[part]]).reshape(len(score), -1)))

    return _scores(parts(matrix, group_a, group_b), r2)


def chance_set_scores(
    support: ArrayLike,
    group_a: int | Iterable[int],
    group_b: int | Iterable[int],
    *,
    n_draws: int = 500,
    random_state: RandomState = 0,
) -> SetScores:
    r"""Return the mean `set_scores` of a random rotation of white Gaussian latents: all is right except the axes.

    A latent's variance is distributed over the rotated columns as the squared entries of Q, uniform on the
    orthogonal group; for Gaussians no regression finds more than the linear one. So nothing is fitted: the columns are
    matched on Q, and the squares summed.

    Examples
    --------
    Two latents, each behind one variable: cos² of an angle goes to the matched column, and sin², on average
    1/2 − 1/π = .18 where the matching takes the larger, to the other:

    >>> round(chance_set_scores([[1, 0], [0, 1]], 0, 1, n_draws=4000).complement_a, 2)
    0.18
    """
    matrix = as_support(support)
    d = matrix.shape[1]
    check_positive(n_draws=n_draws)
    squares = np.linalg.qr(np.random.default_rng(random_state).normal(size=(n_draws, d, d))).Q ** 2
    # (columns of the embedding, latents); row j becomes the column that is matched to latent j
    mean = np.mean([q[best_matching(np.sqrt(q))] for q in squares], axis=0)
    return _scores(
        parts(matrix, group_a, group_b), lambda target, part: float(mean[np.ix_(part, target)].sum(axis=0).mean())
    )


def match_supports(support_hat: ArrayLike, support: ArrayLike) -> Labels:
    """Return for each column of the support the one of ``support_hat`` that is matched to it: most edges in common.

    Latents of one atomic region have equal columns, which no support distinguishes: their order is arbitrary.

    Examples
    --------
    >>> match_supports([[0, 1], [1, 1]], [[1, 0], [1, 1]])
    array([1, 0])
    """
    found, true = _read_supports(support_hat, support)
    return best_matching(found.T.astype(float) @ true)


def support_f1(support_hat: ArrayLike, support: ArrayLike, *, matching: ArrayLike | None = None) -> float:
    r"""Return the harmonic mean of precision and recall of the edges, after the columns are matched.

    .. math:: F_1 = \frac{2\,|\hat S \cap S|}{|\hat S| + |S|}

    Edges of columns left unmatched are wrong (in ``support_hat``) or missed (in ``support``). Without a matching,
    `match_supports` is used, which makes the score as large as any matching can. Blind to the order of the
    columns and to how strong an edge is. Chance is the higher the denser the support: see `chance_support_f1`.

    Examples
    --------
    Two of three edges found, and one that is not there:

    >>> round(support_f1([[1, 1], [0, 1]], [[1, 0], [1, 1]], matching=[0, 1]), 3)
    0.667
    """
    common, found, true = _edges(support_hat, support, matching)
    return 2 * common / (found + true)


def shd(support_hat: ArrayLike, support: ArrayLike, *, matching: ArrayLike | None = None) -> int:
    r"""Return the structural Hamming distance: edges to add or remove, after the columns are matched.

    .. math:: |\hat S \mathbin{△} S| = (|\hat S| + |S|)(1 - F_1)

    Otherwise as `support_f1`; it grows with the number of variables. Chance: see `chance_shd`.

    Examples
    --------
    >>> shd([[1, 1], [0, 1]], [[1, 0], [1, 1]], matching=[0, 1]), shd([[0, 1], [1, 1]], [[1, 0], [1, 1]])
    (2, 0)
    """
    common, found, true = _edges(support_hat, support, matching)
    return found + true - 2 * common


def chance_support_f1(
    support: ArrayLike,
    *,
    n_edges: int | None = None,
    rematched: bool = True,
    n_draws: int = 500,
    random_state: RandomState = 0,
) -> float:
    """Return the mean `support_f1` of a support whose edges were placed at random.

    Parameters
    ----------
    support : array of zeros and ones of shape (m, d)
        The true support.
    n_edges : int, optional
        How many edges are placed; by default as many as the true support has.
    rematched : bool
        Whether the columns are matched by the supports, as when no matching is passed. If not, the result is exact.
    n_draws : int
    random_state : int, Generator or None

    Examples
    --------
    Two edges in a 2×2 support can stand in six places. Two of these are the diagonal, up to order; the others share
    one edge with it: (2 · 1 + 4 · ½) / 6 = ⅔, and ½ in a fixed order:

    >>> eye = np.eye(2)
    >>> round(chance_support_f1(eye, n_draws=4000), 1), chance_support_f1(eye, rematched=False)
    (0.7, 0.5)
    """
    true = as_support(support)
    m, d = true.shape
    total = int(true.sum())
    n_edges = total if n_edges is None else n_edges
    check_positive(n_edges=n_edges, n_draws=n_draws)
    if n_edges > m * d:
        raise InputError("n_edges", f"`n_edges` must be at most {m * d}, the size of the support, got {n_edges}.")
    if not rematched:
        return 2 * n_edges * total / (m * d) / (n_edges + total)
    rng = np.random.default_rng(random_state)
    placed = np.tile(np.arange(m * d) < n_edges, (n_draws, 1))
    drawn = rng.permuted(placed, axis=1).reshape(n_draws, m, d)
    overlaps = np.swapaxes(drawn, 1, 2).astype(float) @ true  # (draws, d, d)
    return float(2 * np.mean([matched_sum(overlap) for overlap in overlaps]) / (n_edges + total))


def chance_shd(
    support: ArrayLike,
    *,
    n_edges: int | None = None,
    rematched: bool = True,
    n_draws: int = 500,
    random_state: RandomState = 0,
) -> float:
    """Return the mean `shd` of a support whose edges were placed at random; parameters of `chance_support_f1`.

    Examples
    --------
    >>> chance_shd(np.eye(2), rematched=False)
    2.0
    """
    total = int(as_support(support).sum())
    f1 = chance_support_f1(support, n_edges=n_edges, rematched=rematched, n_draws=n_draws, random_state=random_state)
    return (total + (total if n_edges is None else n_edges)) * (1 - f1)


def mcc_above_chance(
    z_hat: ArrayLike, z: ArrayLike, *, method: Method = "pearson", held_out: bool = True, random_state: RandomState = 0
) -> float:
    """Return `mcc` less `chance_mcc`, that of a random rotation of white latents: 0 where only the axes are wrong.

    At most 1 − chance, which is .17 at d = 3 and .41 at d = 10; negative where the embedding lacks information, too.
    Blind to what `mcc` is blind to.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(100, 3))
    >>> round(mcc_above_chance(z, z), 2)
    0.17
    """
    score = mcc(z_hat, z, method=method, held_out=held_out, random_state=random_state)
    (_, d_hat), (_, d) = (np.shape(values) for values in (z_hat, z))
    return score - chance_mcc(d, d_hat, method=method)


def _scores(found: Parts, r2: Callable[[list[int], list[int]], float]) -> SetScores:
    """Return R² of a part of the latents given the estimate of another, for the pairs that `set_scores` lists."""

    def explained(target: frozenset[int], part: frozenset[int]) -> float:
        return r2(sorted(target), sorted(part)) if target and part else float("nan")

    return SetScores(
        intersection=explained(found.shared, found.unshared),
        symmetric_difference=explained(found.unshared, found.shared),
        complement_a=explained(found.only_first, found.only_second),
        complement_b=explained(found.only_second, found.only_first),
        reference=explained(found.union, found.union),
    )


def _smooth(n_samples: int, seed: int) -> Pipeline:
    """Return ridge regression on splines of each column, products of two, and radial functions of all of them."""
    splines = SplineTransformer(8, extrapolation="linear", include_bias=False)
    products = PolynomialFeatures(2, interaction_only=True, include_bias=False)
    radial = Nystroem(n_components=min(100, n_samples), random_state=seed)
    features = make_union(splines, products, radial)
    return make_pipeline(StandardScaler(), features, StandardScaler(), RidgeCV(alphas=STRENGTHS))


def _read_matching(matching: ArrayLike, d_hat: int, d: int) -> Labels:
    columns = np.asarray(matching)
    valid = columns.dtype.kind in "iu" and columns.shape == (d,) and columns.min() >= -1 and columns.max() < d_hat
    if not valid or len(set(used := columns[columns >= 0].tolist())) < len(used):
        expected = f"a column of its own, 0 to {d_hat - 1}, or −1 for none"
        raise InputError("matching", f"`matching` must give each of {d} latents {expected}, got {matching!r}.")
    return columns


def _read_supports(support_hat: ArrayLike, support: ArrayLike) -> tuple[Support, Support]:
    found, true = as_support(support_hat, name="support_hat", allow_empty=True), as_support(support)
    if len(found) != len(true):
        sizes = f"`support_hat` has {len(found)} rows and `support` has {len(true)}"
        raise InputError("support_hat", f"{sizes}, but row k of both must be the same observed variable.")
    return found, true


def _edges(support_hat: ArrayLike, support: ArrayLike, matching: ArrayLike | None) -> tuple[int, int, int]:
    """Return how many edges the supports have in common, how many were found, and how many there are."""
    found, true = _read_supports(support_hat, support)
    if matching is None:
        columns = match_supports(found, true)
    else:
        columns = _read_matching(matching, found.shape[1], true.shape[1])
    matched = columns >= 0
    common = found[:, columns[matched]] & true[:, matched]
    return int(common.sum()), int(found.sum()), int(true.sum())
