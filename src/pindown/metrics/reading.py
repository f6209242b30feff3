"""How metrics read what they are handed: matrices of finite numbers, as many rows of each, and halves that vary."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.floating[Any]]
RandomState = int | np.random.Generator | None


def read_pair(caller: str, z_hat: ArrayLike, z: ArrayLike, *, square: bool = False) -> tuple[Matrix, Matrix]:
    """Read a code and the latents that it is compared with, row by row."""
    a_hat, a = read_matrix(caller, "z_hat", z_hat), read_matrix(caller, "z", z)
    (n_hat, d_hat), (n, d) = a_hat.shape, a.shape
    if n_hat != n:
        raise ValueError(
            f"{caller}: z_hat has {n_hat} rows and z has {n}, but row i of both must be the same sample. "
            "Was one of them filtered or transposed?"
        )
    if square and d_hat != d:
        raise ValueError(
            f"{caller}: z_hat has {d_hat} columns and z has {d}, but an orthogonal map needs equally many. "
            f"Fit a code of {d} components, or score this one with linear_r2."
        )
    return a_hat, a


def read_matrix(caller: str, name: str, values: Any) -> Matrix:
    """Read a matrix of finite numbers, or say in a sentence what is wrong with it."""
    try:
        # A tensor in a graph refuses numpy; detaching it by duck typing spares the import of torch.
        a = np.asarray(values.detach() if hasattr(values, "detach") else values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{caller}: {name} cannot be read as an array: {error}") from error
    if a.dtype.kind not in "buif":
        raise ValueError(
            f"{caller}: {name} must be a dense array of real numbers, got dtype {a.dtype}. "
            "Encode categories as numbers, or convert with .astype(float)."
        )
    if a.ndim != 2 or a.shape[1] == 0:
        remedy = f"For one column pass {name}.reshape(-1, 1)." if a.ndim == 1 else "Give one row per sample."
        raise ValueError(f"{caller}: {name} must have shape (n, columns), got {a.shape}. {remedy}")
    bad = np.flatnonzero(~np.isfinite(a).all(axis=1))
    if bad.size:
        remedy = "Training may have diverged: look at loss_curve_." if name == "z_hat" else "Drop these rows."
        raise ValueError(f"{caller}: {name} is not finite in {bad.size} row(s), first row {bad[0]}. {remedy}")
    return a if a.dtype.kind == "f" else a.astype(np.float64)


def in_halves(
    caller: str, z_hat: Matrix, z: Matrix, needed: int, held_out: bool, random_state: RandomState = 0
) -> tuple[tuple[Matrix, Matrix], tuple[Matrix, Matrix]]:
    """Return the rows to fit and the rows to score, each as (z_hat, z); the same twice if not held out."""
    m, _ = part_sizes(caller, len(z), needed, held_out)
    order = np.random.default_rng(random_state).permutation(len(z))
    rows = (order[:m], order[m:]) if held_out else (order, order)
    for part in rows:
        refuse_constant(caller, "z", z[part], z, "there is nothing to recover")
    fit, score = ((z_hat[part].astype(np.float64), z[part].astype(np.float64)) for part in rows)
    return fit, score


def part_sizes(caller: str, n: int, needed: int, held_out: bool) -> tuple[int, int]:
    """Return how many rows are fitted and how many are scored."""
    m, k = (n - n // 2, n // 2) if held_out else (n, n)
    if k < needed:
        why = f"{2 * needed} are needed, {needed} in each half" if held_out else f"{needed} are needed"
        remedy = f", or pass held_out=False ({needed} will do)" if held_out else ""
        raise ValueError(f"{caller}: {n} rows are too few, {why}. Give more rows{remedy}.")
    return m, k


def refuse_constant(caller: str, name: str, part: Matrix, whole: Matrix, consequence: str) -> None:
    """Raise if a column of ``part``, which is some or all of the rows of ``whole``, does not vary."""
    # Up to the rounding of the precision they came in: the outputs of a dead unit may differ in the last bit.
    eps = np.finfo(whole.dtype).eps
    constant, always = (np.ptp(a, axis=0) <= 4 * eps * np.abs(a).max(axis=0) for a in (part, whole))
    if not constant.any():
        return
    which = f"column(s) {np.flatnonzero(constant).tolist()} of {name} are constant"
    remedy = "Leave latents that do not vary out of z."
    if not always[constant].all():
        which += " on half of the rows"
        remedy = "Other values are too rare: give more rows, or pass held_out=False."
    elif name == "z_hat":
        remedy = "The encoder has probably collapsed: look at loss_curve_, or ask for fewer latents."
    raise ValueError(f"{caller}: {which}, so {consequence}. {remedy}")


def require_positive(caller: str, **counts: int) -> None:
    """Raise if a number that must be positive is not."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{caller}: {name} must be at least 1, got {count}.")
