"""What metrics are given: matrices of finite numbers, labels, halves of the samples; and sums that several share."""

from collections.abc import Sized
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.stats import rankdata
from sklearn.metrics import r2_score

from pindown.data.data import as_array
from pindown.errors import InputError

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]
RandomState = int | np.random.Generator | None
Method = Literal["pearson", "spearman"]


def read_pair(
    z_hat: ArrayLike, z: ArrayLike, *, square: bool = False, names: tuple[str, str] = ("z_hat", "z")
) -> tuple[Matrix, Matrix]:
    """Return an embedding and the latents that it is compared with, sample by sample, as matrices."""
    a_hat, a = read_matrix(names[0], z_hat), read_matrix(names[1], z)
    check_same_samples(names[0], a_hat, names[1], a)
    if square and a_hat.shape[1] != (d := a.shape[1]):
        raise InputError("z_hat", f"`z_hat` must have {d} columns as `z`, got {a_hat.shape[1]}. Or use linear_r2.")
    return a_hat, a


def read_matrix(name: str, values: ArrayLike) -> Matrix:
    """Return values as a finite matrix of doubles, or raise; columns that vary by rounding alone become constant."""
    try:
        a = as_array(values, name)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(name, f"`{name}` cannot be read as an array: {error}") from error
    if a.dtype.kind not in "buif":
        raise InputError(name, f"`{name}` must be a dense array of real numbers, got dtype {a.dtype}. Convert it.")
    if a.ndim != 2 or 0 in a.shape:
        remedy = f"For one feature pass {name}.reshape(-1, 1)." if a.ndim == 1 else "Give one row per sample."
        raise InputError(name, f"`{name}` must have shape (n_samples, n_features), got {a.shape}. {remedy}")
    bad = np.flatnonzero(~np.isfinite(a).all(axis=1))
    if bad.size:
        remedy = "Training may have diverged: see loss_curve_." if name == "z_hat" else "Drop these samples."
        raise InputError(name, f"`{name}` is not finite in {bad.size} sample(s), the first is {bad[0]}. {remedy}")
    eps = np.finfo(a.dtype if a.dtype.kind == "f" else np.float64).eps
    matrix = a.astype(np.float64)
    rounding = np.ptp(matrix, axis=0) <= 4 * eps * np.abs(matrix).max(axis=0)
    matrix[:, rounding] = matrix[0, rounding]
    return matrix


def row_keys(X: NDArray[Any]) -> NDArray[np.void]:
    """Return a value for each sample that can be compared and sorted; equal samples have equal ones."""
    flat = np.ascontiguousarray(X).reshape(len(X), -1)
    return flat.view((np.void, flat.dtype.itemsize * flat.shape[1])).ravel()


def check_same_samples(name: str, values: Sized, other: str, reference: Sized) -> None:
    """Raise if two arrays do not have equally many samples."""
    if len(values) != len(reference):
        sizes = f"`{name}` has {len(values)} samples and `{other}` has {len(reference)}"
        raise InputError(name, f"{sizes}, but sample i of both must be the same. Was one filtered or transposed?")


def in_halves(
    z_hat: Matrix, z: Matrix, needed: int, held_out: bool, random_state: RandomState = 0
) -> tuple[tuple[Matrix, Matrix], tuple[Matrix, Matrix]]:
    """Return the samples to fit and the samples to score, each as (z_hat, z); the same twice if not held out."""
    m, _ = part_sizes(len(z), needed, held_out)
    order = np.random.default_rng(random_state).permutation(len(z))
    fit, score = (order[:m], order[m:]) if held_out else (order, order)
    for part in (fit, score):
        check_varies("z", z[part], z, "there is nothing to recover")
    return (z_hat[fit], z[fit]), (z_hat[score], z[score])


def part_sizes(n: int, needed: int, held_out: bool) -> tuple[int, int]:
    """Return how many samples are fitted and how many are scored."""
    m, k = (n - n // 2, n // 2) if held_out else (n, n)
    if k < needed:
        why = f"{2 * needed} are needed, {needed} in each half" if held_out else f"{needed} are needed"
        remedy = f", or pass `held_out=False` ({needed} are then enough)" if held_out else ""
        raise InputError("z", f"{n} samples are too few, {why}. Give more samples{remedy}.")
    return m, k


def check_varies(name: str, part: Matrix, whole: Matrix, consequence: str) -> None:
    """Raise if a column of ``part``, which is some or all samples of ``whole``, does not vary."""
    constant = np.ptp(part, axis=0) == 0
    if not constant.any():
        return
    which = f"column(s) {np.flatnonzero(constant).tolist()} of `{name}` are constant"
    remedy = "Leave latents that do not vary out of `z`."
    if np.ptp(whole[:, constant], axis=0).any():
        which += " in half of the samples"
        remedy = "Other values are too rare: give more samples, or pass `held_out=False`."
    elif name == "z_hat":
        remedy = "The encoder has probably collapsed: see loss_curve_, or fit fewer latents."
    raise InputError(name, f"{which}, so {consequence}. {remedy}")


def check_positive(**counts: int) -> None:
    """Raise if a number that must be positive is not."""
    for name, count in counts.items():
        if count < 1:
            raise InputError(name, f"`{name}` must be at least 1, got {count}.")


# ---- what several metrics compute -----------------------------------------------------------------------------------


def standardise(values: Matrix) -> Matrix:
    """Shift and scale columns to mean 0 and variance 1; constant ones become 0."""
    centred = values - values.mean(axis=0)
    centred /= np.maximum(np.abs(centred).max(axis=0), 1e-300)  # or the squares of huge values would overflow
    return centred / np.maximum(centred.std(axis=0), 1e-300)


def correlations(a: Matrix, b: Matrix, method: Method = "pearson") -> Matrix:
    """Return the correlation of each column of one matrix with each of another; 0 where one is constant."""
    units = []
    for columns in (a, b) if method == "pearson" else (rankdata(a, axis=0), rankdata(b, axis=0)):
        centred = columns - columns.mean(axis=0)
        length = np.linalg.norm(centred, axis=0)
        units.append(centred / np.where(length > 1e-12 * np.abs(columns).max(axis=0, initial=0.0), length, np.inf))
    return np.clip(units[0].T @ units[1], -1, 1)  # rounding can carry a perfect match past 1


def whitening(centred: Matrix, smallest: float = 0.0) -> Matrix:
    """Return W such that the columns of ``centred @ W`` are uncorrelated, of variance 1, and sorted by their variance.

    What an encoder hides in a direction of little variance is as easy to predict from there as from any other. Columns
    of W are 0 for directions whose spread is at most ``smallest``, or a millionth of the largest.
    """
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    values, vectors = values[::-1], vectors[:, ::-1]
    varies = values > max(1e-12 * max(values[0], np.finfo(float).tiny), smallest**2)
    return vectors / np.where(varies, np.sqrt(np.abs(values)), np.inf)


def pooled_r2(truth: NDArray[np.floating], predicted: NDArray[np.floating]) -> float:
    """Return R², pooled over columns: the fraction of their variance that predictions explain."""
    return float(r2_score(truth, np.reshape(predicted, truth.shape), multioutput="variance_weighted"))


def matched_sum(similarity: Matrix, matched_by: Matrix | None = None) -> float:
    """Return the sum over the one-to-one matching that is best, by the similarity itself or by another one."""
    pairs = linear_sum_assignment(similarity if matched_by is None else matched_by, maximize=True)
    return float(similarity[pairs].sum())


def best_matching(similarity: Matrix) -> Labels:
    """Return for each column of ``similarity`` its row in the matching with the largest sum, or −1."""
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    matching = np.full(similarity.shape[1], -1)
    matching[columns] = rows
    return matching


def largest_positive(rows: Matrix) -> Matrix:
    """Make the largest entry of each row positive: decompositions leave the sign open."""
    return rows * np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])[:, None]


def sum_by_label(rows: Matrix, labels: Labels) -> Matrix:
    """Sum the rows of each label; (n, d) → (labels, d)."""
    return np.asarray(csr_array((np.ones(len(rows)), (labels, np.arange(len(rows))))) @ rows)


def mean_by_label(rows: Matrix, labels: Labels, weights: Matrix | Labels | None = None) -> Matrix:
    """Return the mean row of each label, perhaps weighted; (n, d) → (labels, d)."""
    weighted = rows if weights is None else rows * weights[:, None]
    return sum_by_label(weighted, labels) / np.bincount(labels, weights)[:, None]


def contingency(first: Labels, second: Labels) -> Matrix:
    """Count how often each pair of labels occurs; (levels of the first, levels of the second)."""
    shape = (first.max() + 1, second.max() + 1)
    return np.bincount(first * shape[1] + second, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
