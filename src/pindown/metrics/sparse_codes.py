"""Sparse codes: how many fire, how often, at which rows, and how much they rebuild.

Codes have a column for each atom, (n, k), dense or as a scipy matrix; for atoms see `pindown.metrics.dictionaries`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csc_array, issparse

from pindown.metrics.reading import Matrix, read_matrix


def firing(codes: Any) -> NDArray[np.float64]:
    """Return the share of rows at which each code is not 0; (k,).

    Examples
    --------
    >>> firing([[0, 1.5], [0, -1], [0, 0], [2, 1]]).tolist()
    [0.25, 0.75]
    """
    fires = _fires("firing", "codes", codes)
    return np.diff(fires.indptr) / fires.shape[0]


def l0(codes: Any) -> float:
    """Return the mean number of codes of a row that are not 0.

    Examples
    --------
    >>> l0([[0, 1.5], [0, -1], [0, 0], [2, 1]])
    1.0
    """
    return float(firing(codes).sum())


def firing_f1(codes_hat: Any, codes: Any, partner: ArrayLike) -> float:
    r"""F1 of the rows at which codes fire, mean over the true codes that fire at all.

    .. math:: F_1 = \frac{2\,|\hat S \cap S|}{|\hat S| + |S|}, \qquad S = \{i : z_{ij} \ne 0\}

    Blind to how strongly a code fires. Chance is about the frequency itself: see `chance_firing_f1`.

    Parameters
    ----------
    codes_hat, codes : array or sparse matrix of shape (n, k_hat), (n, k)
        Codes of the same rows.
    partner : array of shape (k,)
        The column of ``codes_hat`` for each of ``codes``, −1 where there is none, which counts as 0: that of
        `match_atoms`. Matched by atoms, and not by the codes themselves, the score does not choose its own best case.

    Examples
    --------
    >>> firing_f1([[1, 0], [1, 0], [0, 5]], [[0, 1], [0, 2], [3, 4]], [1, 0])
    0.9
    """
    hat, true = _fires("firing_f1", "codes_hat", codes_hat), _fires("firing_f1", "codes", codes)
    if hat.shape[0] != true.shape[0]:
        raise ValueError(
            f"firing_f1: codes_hat has {hat.shape[0]} rows and codes has {true.shape[0]}, but row i of both must be "
            "the same sample."
        )
    of = np.asarray(partner)
    if of.shape != true.shape[1:] or of.max(initial=-1) >= hat.shape[1]:
        raise ValueError(
            f"firing_f1: partner must have a column of codes_hat (at most {hat.shape[1] - 1}) for each of the "
            f"{true.shape[1]} codes, got shape {of.shape} and values up to {of.max(initial=-1)}."
        )
    counts = np.diff(true.indptr)
    if not (seen := counts > 0).any():
        raise ValueError("firing_f1: no code fires in these rows, so that there is nothing to find. Give more rows.")
    matched = seen & (of >= 0)
    both = np.asarray(hat[:, of[matched]].multiply(true[:, matched]).sum(axis=0)).reshape(-1)
    total = np.diff(hat.indptr)[of[matched]] + counts[matched]
    return float((2 * both / total).sum() / seen.sum())


def feature_mcc(codes_hat: ArrayLike, codes: ArrayLike) -> float:
    """Mean correlation of codes that are matched one to one, over those of ``codes`` that fire at all.

    As `pindown.metrics.mcc`, for codes of which some are silent, in these rows or in a half of them: they correlate
    with nothing. The matching is found in every other row and scored in the others. The sign of a code matters.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(200, 2)) * [1, 0]
    >>> round(feature_mcc(3 * z[:, ::-1], z), 6)
    1.0
    """
    a, b = read_matrix("feature_mcc", "codes_hat", codes_hat), read_matrix("feature_mcc", "codes", codes)
    if len(a) != len(b) or len(a) < 6:
        raise ValueError(f"feature_mcc: codes must be of the same rows, six at least, got {len(a)} and {len(b)} rows.")
    fires = b.std(axis=0) > 0
    if not fires.any():
        raise ValueError("feature_mcc: no code varies in these rows, so that there is nothing to find. Give more rows.")
    fit, score = (_correlations(a[part::2], b[part::2, fires]) for part in (0, 1))
    return float(score[linear_sum_assignment(fit, maximize=True)].sum() / fires.sum())


def _correlations(a: Matrix, b: Matrix) -> Matrix:
    """Return correlations of columns; 0 where one does not vary."""
    parts = []
    for columns in (a, b):
        centred = columns - columns.mean(axis=0)
        size = np.linalg.norm(centred, axis=0)
        parts.append(centred / np.where(size > 0, size, 1))
    return parts[0].T @ parts[1]


def chance_firing_f1(frequency_hat: ArrayLike, frequency: ArrayLike, partner: ArrayLike) -> float:
    """Return about the mean `firing_f1` of codes that fire as often, at rows that have nothing to do with the truth.

    Examples
    --------
    Two coins: both show heads in a quarter of the throws, and each in a half.

    >>> chance_firing_f1([0.5], [0.5], [0])
    0.5
    """
    of, true = np.asarray(partner), np.asarray(frequency, dtype=np.float64)
    hat = np.where(of >= 0, np.asarray(frequency_hat, dtype=np.float64)[of], 0.0)
    seen = true > 0
    return float((2 * hat * true / np.maximum(hat + true, 1e-300))[seen].mean())


def sparsity(codes: ArrayLike) -> float:
    r"""Return how sparse codes with signs are: :math:`1 - \frac\pi2 (\mathrm E|z|)^2 / \mathrm E z^2`, mean over codes.

    1 at most; 0, the level of chance, for normal ones; below 0 for codes that are spread evenly. Blind to the scale of
    each.

    Examples
    --------
    A code that is a standard normal number one time in ten, and 0 otherwise, has .9:

    >>> rng = np.random.default_rng(0)
    >>> round(sparsity(rng.normal(size=(9_000, 5)) * (rng.random((9_000, 5)) < 0.1)), 1)
    0.9
    """
    rows = read_matrix("sparsity", "codes", codes).astype(np.float64)
    power = (rows**2).mean(axis=0)
    return float((1 - np.pi / 2 * np.abs(rows).mean(axis=0) ** 2 / np.where(power > 0, power, np.inf)).mean())


class DeadFraction(NamedTuple):
    """The share of codes that are silent, and in how many rows (tokens) they were looked for; prints as a sentence."""

    share: float
    n_codes: int
    n_samples: int
    by_chance: float | None

    def __str__(self) -> str:
        chance = "" if self.by_chance is None else f" (by chance {self.by_chance:.2%})"
        return f"{self.share:.2%} of {self.n_codes:,} codes are silent in {self.n_samples:,} tokens{chance}"


def dead_fraction(codes: Any, *, frequency: ArrayLike | None = None) -> DeadFraction:
    """Return the share of codes that never fire in these rows, with the number of rows: without it a share says little.

    "Dead" means silent for ten million tokens to some and for eight thousand to others. A code that fires at a share p
    of all rows is silent in n of them with probability :math:`(1 - p)^n`.

    Parameters
    ----------
    codes : array or sparse matrix of shape (n, k)
        Codes of n tokens.
    frequency : array of shape (k,), optional
        How often each truly fires, where that is known: then the share that is silent by chance stands beside.

    Examples
    --------
    >>> print(dead_fraction([[0, 1.5], [0, -1]], frequency=[0.5, 0.5]))
    50.00% of 2 codes are silent in 2 tokens (by chance 25.00%)
    """
    fires = _fires("dead_fraction", "codes", codes)
    n, k = fires.shape
    expected = None
    if frequency is not None:
        expected = float(((1 - np.asarray(frequency, dtype=np.float64)) ** n).mean())
    return DeadFraction(float((np.diff(fires.indptr) == 0).mean()), k, n, expected)


# ---- what is rebuilt ------------------------------------------------------------------------------------------------


def fvu(x: ArrayLike, x_hat: ArrayLike) -> float:
    r"""Fraction of variance that is unexplained.

    .. math:: \sum_j \mathrm{var}(x_j - \hat x_j) \, / \, \sum_j \mathrm{var}\, x_j

    Blind to a shift of each column. The mean of the rows scores 1, a random code about 1 or more. A low value does not
    show that the dictionary is right: matching pursuit has the lowest of all on worlds in which it recovers least.

    Examples
    --------
    >>> fvu([[0.0, 0.0], [2.0, 2.0]], [[0.5, 0.0], [1.5, 2.0]])
    0.125
    """
    a, b = read_matrix("fvu", "x", x), read_matrix("fvu", "x_hat", x_hat)
    if a.shape != b.shape:
        raise ValueError(f"fvu: x has shape {a.shape} and x_hat {b.shape}, but both must be the same rows and columns.")
    total = float(a.var(axis=0, dtype=np.float64).sum())
    if total == 0:
        raise ValueError("fvu: all rows of x are the same, so that there is no variance to explain.")
    return float((a.astype(np.float64) - b).var(axis=0).sum() / total)


def ce_recovered(rebuilt: float, original: float, ablated: float) -> float:
    """Share of what a layer is worth to a model that survives when its activations are replaced by their rebuilt ones.

    Of three cross-entropies, in any unit: with rebuilt activations, with the original ones, and with zeros in their
    place. 1 if nothing is lost; 0, the level of chance, if rebuilt activations are worth as little as zeros.

    Examples
    --------
    >>> ce_recovered(rebuilt=3.5, original=3.0, ablated=8.0)
    0.9
    """
    if not ablated > original:
        raise ValueError(
            f"ce_recovered: without the layer the cross-entropy must be larger than with it, got {ablated} and "
            f"{original}: the model does not need this layer, so that there is nothing to recover."
        )
    return (ablated - rebuilt) / (ablated - original)


def _fires(caller: str, name: str, codes: Any) -> Any:
    """Return where codes are not 0, as a sparse matrix of zeros and ones by columns."""
    if not issparse(codes):
        codes = read_matrix(caller, name, codes)
    elif not np.isfinite(codes.data).all():
        raise ValueError(f"{caller}: {name} is not finite. Training may have diverged: look at loss_curve_.")
    fires = csc_array(codes)
    fires.eliminate_zeros()
    if not fires.shape[0]:
        raise ValueError(f"{caller}: {name} has no rows.")
    return csc_array((np.ones(fires.nnz, dtype=np.int32), fires.indices, fires.indptr), shape=fires.shape)
