"""A score that needs no factors: `udr`, whether several fits agree on their axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from pindown.metrics.disentanglement.result import Measured, Score, mean_of, score
from pindown.metrics.disentanglement.rows import own_generator, read_codes, standardised, typical_rotation
from pindown.metrics.reading import Matrix, RandomState

Method = Literal["lasso", "spearman"]
ALPHA = 0.1  # of the Lasso, in standardised units, as in the reference


def udr(codes: Sequence[ArrayLike], *, method: Method = "lasso", random_state: RandomState = 0) -> Score:
    r"""Unsupervised disentanglement ranking: how well the codes of several fits to the same rows agree, axis by axis.

    .. math:: \operatorname{mean}_s \operatorname{median}_{t \ne s} \tfrac12 \Bigl(\operatorname{mean}_i
              \frac{\max_j R_{ij}^2}{\sum_j R_{ij}} + \operatorname{mean}_j \frac{\max_i R_{ij}^2}{\sum_i R_{ij}}\Bigr)

    R are the absolute weights of a Lasso that predicts the codes of fit t from those of fit s, or Spearman's
    correlations. Blind to permutation, sign, shift and scale; sees rotations. Needs no truth, so it cannot say
    whether what the fits agree on is right. ``parts`` are the fits: the most trustworthy has the highest. Constant
    codes are left out; the reference leaves out those with a divergence below .01, which arrays do not know: leave
    out yourself what your model does not use. ``rotation`` is what the first code, turned at random for each fit,
    would score. After Duan et al. (2020), *Unsupervised model selection for variational disentangled representation
    learning*.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(1_000, 4))
    >>> found = udr([z, -z[:, ::-1], 3 * z[:, [1, 0, 2, 3]]])
    >>> round(found.value, 1), found.noise < 0.1, found.rotation < 0.6
    (0.9, True, True)
    """
    if method not in get_args(Method):
        raise ValueError(f"udr: method must be 'lasso' or 'spearman', got {method!r}.")
    if isinstance(codes, np.ndarray) and codes.ndim == 2:
        raise ValueError("udr: codes must be a sequence of arrays, one per fit, got one array. Pass [z_1, z_2, …].")
    fits = [read_codes("udr", f"codes[{number}]", one) for number, one in enumerate(codes)]
    if len(fits) < 2:
        raise ValueError(f"udr: at least two fits are needed to compare, got {len(fits)}. Fit with other seeds, too.")
    if len(sizes := {len(one) for one in fits}) > 1:
        raise ValueError(
            f"udr: the codes have {sorted(sizes)} rows, but row i of all must be the same sample. Encode the same rows."
        )
    rng = own_generator(random_state)
    noise = [standardised(rng.normal(size=one.shape)) for one in fits]
    d = fits[0].shape[1]
    turned = [standardised(fits[0] @ typical_rotation(d, rng)) for _ in fits]
    return score("udr", [_agreement(some, method) for some in (fits, noise, turned)])


def _agreement(fits: list[Matrix], method: Method) -> Measured:
    if method == "spearman":
        fits = [standardised(rankdata(one, axis=0)) for one in fits]
    sizes = np.cumsum([one.shape[1] for one in fits])[:-1]
    both = np.concatenate(fits, axis=1)
    products = both.T @ both / len(both)
    of_fits = []
    for s, part in enumerate(np.split(np.arange(len(products)), sizes)):
        cross = products[part]
        related = np.abs(cross if method == "spearman" else _lasso(cross[:, part], cross))
        relations = [r for t, r in enumerate(np.split(related, sizes, axis=1)) if t != s]
        of_fits.append(np.median([(_strength(r) + _strength(r.T)) / 2 for r in relations]))
    return mean_of(of_fits)


def _lasso(gram: Matrix, cross: Matrix) -> Matrix:
    """Minimise ½ wᵀ G w − cᵀ w + α ‖w‖₁ for all columns c at once, a coordinate at a time; (d, k)."""
    w = np.zeros_like(cross)
    for _ in range(1_000):
        before = w.copy()
        for i in range(len(w)):
            pull = cross[i] - gram[i] @ w + gram[i, i] * w[i]
            w[i] = np.sign(pull) * np.maximum(np.abs(pull) - ALPHA, 0) / gram[i, i]
        if np.abs(w - before).max() < 1e-6:
            break
    return w


def _strength(relation: Matrix) -> float:
    """Return the mean over columns of the squared largest entry by the sum; 0 where nothing relates."""
    total = relation.sum(axis=0)
    return float(np.mean(np.divide(relation.max(axis=0) ** 2, total, out=np.zeros_like(total), where=total > 0)))
