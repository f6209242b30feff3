r"""Dependence without a probe: distance correlation, shared bits of two labels, effective rank of a code.

They stand beside `pindown.metrics.leakage`: the first sees what no regression probe was made for, the second says
what forgetting costs when the label depends on the nuisance, the third tells an invariant code from a dead one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist, squareform

from pindown.data.labels import is_quantity
from pindown.metrics.reading import Matrix, RandomState, read_matrix

N_BINS = 8  # into which a quantity is cut when its information is counted
NEGLIGIBLE_BITS = 0.01


def effective_rank(Z: ArrayLike) -> float:
    r"""Return how many dimensions a code fills: the exponential of the entropy of its normalised spectrum.

    .. math:: \exp\Bigl(-\sum_j p_j \log p_j\Bigr), \qquad p_j = \lambda_j \Big/ \sum_k \lambda_k

    with λ the eigenvalues of the covariance. Between 1 and the number of columns; 0 if all columns are constant (to a
    millionth of their size). Blind to rotations, shifts and one scale for all columns, not to a scale for each. Noise
    fills every dimension: full rank says that a code is alive, not that it is useful. After Roy & Vetterli (2007),
    *The effective rank: a measure of effective dimensionality*.

    Examples
    --------
    A square's corners fill two dimensions; on a line there is one, and a point has none:

    >>> corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> [round(effective_rank(corners @ map), 6) for map in (np.eye(2), np.ones((2, 2)), np.zeros((2, 2)))]
    [2.0, 1.0, 0.0]
    """
    a = read_matrix("effective_rank", "Z", Z).astype(np.float64)
    varies = np.ptp(a, axis=0) > 1e-6 * np.abs(a).max(axis=0)
    if not varies.any():
        return 0.0
    centred = a[:, varies] - a[:, varies].mean(axis=0)
    centred /= np.abs(centred).max()  # keeps the squares of very small or large codes representable
    gram = centred.T @ centred if len(centred) >= centred.shape[1] else centred @ centred.T
    share = np.clip(np.linalg.eigvalsh(gram), 0, None)
    share = share[share > 0] / share.sum()
    return float(np.exp(-np.sum(share * np.log(share))))


def distance_correlation(
    x: ArrayLike, y: ArrayLike, *, max_samples: int = 2000, random_state: RandomState = None
) -> float:
    r"""Distance correlation of x (n, p) and y (n, q), corrected for its bias: 0 only if they are independent.

    .. math:: \mathcal R = \sqrt{\max(0, \langle A, B\rangle) \,/\, \sqrt{\langle A, A\rangle \langle B, B\rangle}}

    A and B are the matrices of distances between rows of x and of y, centred without bias, so that
    :math:`\langle A, B\rangle` averages 0 if x and y are independent, whatever their dimensions: chance is about 0,
    and exactly 0 half of the time. Blind to rotations, shifts and a common scale of x, and of y. It takes n × n
    memory, so at most ``max_samples`` random rows are used. After Székely & Rizzo (2013), *The distance correlation
    t-test of independence in high dimension*.

    Examples
    --------
    A line gives 1. A parabola has no linear correlation, and is found all the same:

    >>> x = np.linspace(-1, 1, 1001)[:, None]
    >>> round(distance_correlation(x, 3 - 2 * x), 6), round(distance_correlation(x, x**2), 2)
    (1.0, 0.49)
    """
    a, b = read_matrix("distance_correlation", "x", x), read_matrix("distance_correlation", "y", y)
    if len(a) != len(b):
        raise ValueError(
            f"distance_correlation: x has {len(a)} rows and y has {len(b)}, but row i of both must be the same sample. "
            "Was one of them filtered?"
        )
    if min(len(a), max_samples) < 4:
        raise ValueError(
            f"distance_correlation: {min(len(a), max_samples)} rows are too few, 4 are needed for a correction of the "
            "bias. Give more rows, or a larger max_samples."
        )
    if len(a) > max_samples:
        rows = np.random.default_rng(random_state).choice(len(a), max_samples, replace=False)
        a, b = a[rows], b[rows]
    return float(np.sqrt(max(0.0, squared_correlation(centred_distances(a), centred_distances(b)))))


def centred_distances(a: Matrix) -> Matrix:
    """Return the distances between rows, centred so that off the diagonal every row and column sums to 0."""
    distance = squareform(pdist(a.astype(np.float64)))
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
    """What a label and a nuisance share, and so what forgetting the nuisance costs; all in bits.

    ``bits`` is I(label; e), ``label_bits`` H(label), ``nuisance_bits`` H(e).
    """

    bits: float
    label_bits: float
    nuisance_bits: float

    @property
    def kept_bits(self) -> float:
        """The most that a code independent of the nuisance can say of the label, H(label) − I(label; e)."""
        return max(0.0, self.label_bits - self.bits)

    @property
    def verdict(self) -> str:
        """What the shared bits imply, in a sentence or two."""
        shared = f"The label and the nuisance share {self.bits:.3f} bits"
        if self.bits < NEGLIGIBLE_BITS:
            return f"{shared}, next to nothing: full invariance costs the label next to nothing."
        return (
            f"{shared}, so a code independent of the nuisance keeps at most {self.kept_bits:.2f} of the label's "
            f"{self.label_bits:.2f} bits, and one that determines the label leaks at least {self.bits:.2f} of the "
            f"nuisance's {self.nuisance_bits:.2f}. Ask for invariance given the label."
        )

    def __str__(self) -> str:
        return self.verdict


def confounding(label: ArrayLike, e: ArrayLike) -> Confounding:
    r"""Report the information that a label (n,) and a nuisance (n,) share, before anything is forgotten.

    .. math:: I(y; e) = \sum_{y, e} p(y, e) \log_2 \frac{p(y, e)}{p(y)\,p(e)}

    less its bias under independence, :math:`(|y| - 1)(|e| - 1) / (2 n \ln 2)` (Miller 1955, *Note on the bias of
    information estimates*), and at least 0. A code Z with I(Z; e) = 0 has I(Z; y) ≤ I(Z; y | e) ≤ H(y) − I(y; e); and
    if y is a function of Z then I(Z; e) ≥ I(y; e). Fractional numbers are cut into 8 bins of equally many rows, which
    can only lower the figure. Rows are taken to be independent.

    Examples
    --------
    Two balanced labels that are one and the same share their one bit, and forgetting one forgets the other:

    >>> report = confounding([0, 0, 1, 1] * 50, ["a", "a", "b", "b"] * 50)
    >>> round(report.bits, 1), round(report.kept_bits, 1)
    (1.0, 0.0)
    >>> print(confounding([0, 0, 1, 1] * 50, ["a", "b", "a", "b"] * 50))
    The label and the nuisance share 0.000 bits, next to nothing: full invariance costs the label next to nothing.
    """
    y, u = (_binned(np.asarray(values)) for values in (label, e))
    if y.ndim != 1 or y.shape != u.shape:
        raise ValueError(
            f"confounding: label and e must have one value per row, (n,) both, got {y.shape} and {u.shape}. "
            "Pass one column of each, of the same rows."
        )
    joint = np.zeros((y.max() + 1, u.max() + 1))
    np.add.at(joint, (y, u), 1)
    n = joint.sum()
    label_bits, nuisance_bits, joint_bits = (entropy(c) for c in (joint.sum(axis=1), joint.sum(axis=0), joint.ravel()))
    bias = (joint.shape[0] - 1) * (joint.shape[1] - 1) / (2 * n * np.log(2))
    shared = label_bits + nuisance_bits - joint_bits - bias
    return Confounding(float(np.clip(shared, 0, min(label_bits, nuisance_bits))), label_bits, nuisance_bits)


def entropy(counts: NDArray[Any]) -> float:
    """Entropy in bits of the distribution that counts are proportional to."""
    share = counts[counts > 0] / counts.sum()
    return float(-np.sum(share * np.log2(share)))


def _binned(values: NDArray[Any]) -> NDArray[np.integer[Any]]:
    if is_quantity(values):
        values = np.searchsorted(np.quantile(values, np.arange(1, N_BINS) / N_BINS), values, side="right")
    return np.unique(values, return_inverse=True)[1].reshape(values.shape)
