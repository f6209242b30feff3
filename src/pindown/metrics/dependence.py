r"""Dependence without a probe: distance correlation, shared information of two labels, effective rank, group means.

They complement `pindown.metrics.leakage`: `distance_correlation` finds what no regression probe can, `confounding` says
what invariance costs when the label depends on the nuisance, `effective_rank` separates an invariant embedding from a
collapsed one, and `mean_differences` returns the directions in which the means of groups differ.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.spatial.distance import pdist, squareform
from scipy.stats import chi2, entropy
from sklearn.metrics import mutual_info_score

from pindown.data.data import as_array
from pindown.data.labels import as_numbers, is_quantity
from pindown.errors import InputError
from pindown.metrics.arrays import (
    Labels,
    Mask,
    Matrix,
    RandomState,
    check_same_samples,
    largest_positive,
    mean_by_label,
    read_matrix,
)

N_BINS = 8  # into which a quantity is cut when its information is counted
NEGLIGIBLE_BITS = 0.01
LEVEL = 1e-3  # of the test for one more direction in which means differ


def effective_rank(Z: ArrayLike) -> float:
    r"""Return how many dimensions an embedding fills: the exponential of the entropy of its normalised spectrum.

    .. math:: \exp\Bigl(-\sum_j p_j \log p_j\Bigr), \qquad p_j = \lambda_j \Big/ \sum_k \lambda_k

    with λ the eigenvalues of the covariance. Between 1 and the number of columns; 0 if all columns are constant (to a
    millionth of their size). Blind to rotations, shifts and one scale for all columns, not to a scale for each. Noise
    fills every dimension: full rank says that an embedding has not collapsed, not that it is useful. After Roy &
    Vetterli (2007), *The effective rank: a measure of effective dimensionality*.

    Examples
    --------
    A square's corners fill two dimensions; on a line there is one, and a point has none:

    >>> corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> [round(effective_rank(corners @ map), 6) for map in (np.eye(2), np.ones((2, 2)), np.zeros((2, 2)))]
    [2.0, 1.0, 0.0]
    """
    a = read_matrix("Z", Z)
    a = a[:, np.ptp(a, axis=0) > 1e-6 * np.abs(a).max(axis=0)]
    if not a.size:
        return 0.0
    a -= a.mean(axis=0)
    a /= np.abs(a).max()  # keeps the squares of very small or large values representable
    gram = a.T @ a if len(a) >= a.shape[1] else a @ a.T
    return float(np.exp(entropy(np.clip(np.linalg.eigvalsh(gram), 0, None))))


def distance_correlation(
    x: ArrayLike, y: ArrayLike, *, max_samples: int = 2000, random_state: RandomState = None
) -> float:
    r"""Return the distance correlation of x (n, p) and y (n, q), bias-corrected: 0 only if they are independent.

    .. math:: \mathcal R = \sqrt{\max(0, \langle A, B\rangle) \,/\, \sqrt{\langle A, A\rangle \langle B, B\rangle}}

    A and B are the matrices of distances between samples of x and of y, centred without bias, so that
    :math:`\langle A, B\rangle` averages 0 if x and y are independent, whatever their dimensions: chance is about 0,
    and exactly 0 half of the time. Blind to rotations, shifts and a common scale of x, and of y. It takes n × n
    memory, so at most ``max_samples`` random samples are used. After Székely & Rizzo (2013), *The distance correlation
    t-test of independence in high dimension*.

    Examples
    --------
    A line gives 1. A parabola has no linear correlation, but its distance correlation is positive:

    >>> x = np.linspace(-1, 1, 1001)[:, None]
    >>> round(distance_correlation(x, 3 - 2 * x), 6), round(distance_correlation(x, x**2), 2)
    (1.0, 0.49)
    """
    a, b = read_matrix("x", x), read_matrix("y", y)
    check_same_samples("x", a, "y", b)
    if (n := min(len(a), max_samples)) < 4:
        raise InputError("x", f"{n} samples are too few, 4 are needed. Give more, or a larger `max_samples`.")
    if len(a) > max_samples:
        chosen = np.random.default_rng(random_state).choice(len(a), max_samples, replace=False)
        a, b = a[chosen], b[chosen]
    return float(np.sqrt(max(0.0, squared_correlation(centred_distances(a), centred_distances(b)))))


def centred_distances(a: Matrix) -> Matrix:
    """Return the distances between samples, centred so that off the diagonal every row and column sums to 0."""
    distance = squareform(pdist(a))
    n = len(distance)
    rows = distance.sum(axis=0)
    centred = distance - rows[:, None] / (n - 2) - rows / (n - 2) + rows.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(centred, 0.0)
    return centred


def squared_correlation(a: Matrix, b: Matrix) -> float:
    """Return the cosine between two matrices of centred distances; 0 if one of them vanishes."""
    size = np.sqrt(np.vdot(a, a) * np.vdot(b, b))
    return float(np.vdot(a, b) / size) if size > 0 else 0.0


@dataclass(frozen=True)
class Confounding:
    """Bits that a label and a nuisance share, I(label; e), and their entropies H(label) and H(e)."""

    bits: float
    label_bits: float
    nuisance_bits: float

    @property
    def kept_bits(self) -> float:
        """The most that an embedding independent of the nuisance can hold of the label, H(label) − I(label; e)."""
        return max(0.0, self.label_bits - self.bits)

    def __str__(self) -> str:
        shared = f"The label and the nuisance share {self.bits:.3f} bits"
        if self.bits < NEGLIGIBLE_BITS:
            return f"{shared}, next to nothing: full invariance costs the label next to nothing."
        return (
            f"{shared}, so an embedding independent of the nuisance keeps at most {self.kept_bits:.2f} of the label's "
            f"{self.label_bits:.2f} bits, and one that determines the label leaks at least {self.bits:.2f} of the "
            f"nuisance's {self.nuisance_bits:.2f}. Ask for invariance given the label."
        )


def confounding(label: ArrayLike, e: ArrayLike) -> Confounding:
    r"""Return the information that a label (n,) and a nuisance (n,) share, before any of it is removed.

    .. math:: I(y; e) = \sum_{y, e} p(y, e) \log_2 \frac{p(y, e)}{p(y)\,p(e)}

    less its bias under independence, :math:`(|y| - 1)(|e| - 1) / (2 n \ln 2)` (Miller 1955, *Note on the bias of
    information estimates*), and at least 0. An embedding Z with I(Z; e) = 0 has I(Z; y) ≤ I(Z; y | e) ≤ H(y) − I(y; e);
    and if y is a function of Z then I(Z; e) ≥ I(y; e). Fractional numbers are cut into 8 bins with equally many
    samples, which can only lower the figure. Samples are assumed to be independent.

    Examples
    --------
    Two balanced labels that are one and the same share their one bit; invariance to one removes the other:

    >>> report = confounding([0, 0, 1, 1] * 50, ["a", "a", "b", "b"] * 50)
    >>> round(report.bits, 1), round(report.kept_bits, 1)
    (1.0, 0.0)
    >>> print(confounding([0, 0, 1, 1] * 50, ["a", "b", "a", "b"] * 50))
    The label and the nuisance share 0.000 bits, next to nothing: full invariance costs the label next to nothing.
    """
    y, u = _binned("label", label), _binned("e", e)
    check_same_samples("label", y, "e", u)
    label_bits, nuisance_bits = (float(entropy(np.bincount(labels), base=2)) for labels in (y, u))
    bias = y.max() * u.max() / (2 * len(y))  # (|y| − 1)(|e| − 1) / 2n, in nats as what it is taken from
    shared = (mutual_info_score(y, u) - bias) / np.log(2)
    return Confounding(float(np.clip(shared, 0, min(label_bits, nuisance_bits))), label_bits, nuisance_bits)


def _binned(name: str, labels: ArrayLike) -> Labels:
    values = as_array(labels)
    if values.ndim != 1:
        raise InputError(name, f"`{name}` must have one value per sample, shape (n_samples,), got {values.shape}.")
    if is_quantity(values):
        values = np.searchsorted(np.quantile(values, np.arange(1, N_BINS) / N_BINS), values, side="right")
    return as_numbers(values)


# ---- means of groups ------------------------------------------------------------------------------------------------


class Grouping(NamedTuple):
    """A label of each sample, to be compared within strata; samples with a negative label belong to no group."""

    labels: Labels  # (n,)
    strata: Labels  # (n,)

    def cells(self) -> tuple[Mask, Labels, Labels]:
        """Return which samples belong to a group, their cells (stratum and label), and the stratum of each cell."""
        used = self.labels >= 0
        pairs = np.stack([self.strata[used], self.labels[used]], 1)
        kinds, cell = np.unique(pairs, axis=0, return_inverse=True)
        return used, cell.reshape(-1), np.unique(kinds[:, 0], return_inverse=True)[1]


def mean_differences(x: Matrix, grouping: Grouping, *, level: float = LEVEL) -> Matrix:
    r"""Return an orthonormal basis, in rows, of the differences of group means that are more than noise; (r, d).

    With B the scatter of group means (within strata) and W that within groups, r is the least rank that Bartlett's test
    does not reject,

    .. math:: \Bigl(\nu_W + \nu_B - \tfrac{d + \nu_B + 1}{2}\Bigr) \sum_{j > r} \log(1 + \lambda_j)
              \sim \chi^2_{(d - r)(\nu_B - r)}

    with λ the eigenvalues of W⁻¹B and ν degrees of freedom. Bartlett, Multivariate analysis, 1947.

    Examples
    --------
    Three groups, whose means differ along the first axis only:

    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(3, size=600)
    >>> x = rng.normal(size=(600, 3)) + group[:, None] * [9, 0, 0]
    >>> mean_differences(x, Grouping(group, 0 * group)).round(1) + 0.0
    array([[1., 0., 0.]])
    """
    used, cell, stratum = grouping.cells()
    x = x[used]
    d, n_cells = x.shape[1], len(stratum)
    among = n_cells - (stratum.max() + 1 if n_cells else 0)
    if d == 0 or among == 0:
        return np.zeros((0, d))
    counts = np.bincount(cell)
    means = mean_by_label(x, cell)  # (cells, d)
    away = (means - mean_by_label(means, stratum, counts)[stratum]) * np.sqrt(counts)[:, None]  # (cells, d)
    centred = x - means[cell]
    within = centred.T @ centred
    within += 1e-9 * (np.trace(within) / d + 1e-300) * np.eye(d)
    values, vectors = linalg.eigh(away.T @ away, within)
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    freedom, most = len(x) - n_cells, min(d, among)
    rank = 0 if freedom > d else most  # where there is no noise to compare with, all differences count
    factor = freedom + among - (d + among + 1) / 2
    while rank < most and chi2.sf(factor * np.log1p(values[rank:]).sum(), (d - rank) * (among - rank)) <= level:
        rank += 1
    # W u, not u: the directions in which means differ, not those that separate them best.
    return largest_positive(np.linalg.qr(within @ vectors[:, :rank]).Q.T)


def complement(rows: Matrix) -> Matrix:
    """Return orthonormal rows that complete orthonormal rows (k, d) to a basis; (d − k, d)."""
    k, d = rows.shape
    return np.linalg.qr(rows.T, mode="complete").Q[:, k:].T if k else np.eye(d)
