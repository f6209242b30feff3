"""How far the map from embedding to latents is from orthogonal, as in the tables of Reizinger et al. (2024)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.linear_model import LinearRegression

from pindown.errors import InputError
from pindown.metrics.arrays import Matrix, RandomState, check_positive, check_varies, in_halves, read_pair


@dataclass(frozen=True, eq=False)
class Orthogonality:
    """Singular values of a linear map, and their mean distance from a target: absolute and in its units."""

    absolute: float
    relative: float
    singular_values: Matrix
    target: float


def orthogonality_error(z_hat: ArrayLike, z: ArrayLike, *, target: float | None = 1.0) -> Orthogonality:
    r"""Return how far the best affine map from embedding to latents is from orthogonal × ``target``.

    .. math:: \frac1d \sum_j |\sigma_j(W) - t|, \qquad
              W, b = \arg\min \sum_i \lVert z_i - W^\top \hat z_i - b \rVert^2

    The target t is the scale the theory predicts, 1 where embedding and latents are both unit vectors; None takes
    the mean singular value, so that scale is free. Blind to rotations, reflections, shifts, and with None to
    how well the map predicts: report it with `linear_r2`. All samples are used, for the map itself is the result:
    noise spreads its singular values. Chance is about .5: see `chance_orthogonality_error`. After Reizinger
    et al. (2024), *Cross-Entropy Is All You Need To Invert the Data Generating Process*.

    Examples
    --------
    An embedding at twice the scale is mapped back by singular values of 1/2:

    >>> z = np.random.default_rng(0).normal(size=(100, 2))
    >>> fixed, free = (orthogonality_error(2 * z, z, target=target) for target in (1, None))
    >>> round(fixed.absolute, 6), round(free.absolute, 6)
    (0.5, 0.0)
    """
    if target is not None and not 0 < target < np.inf:
        raise InputError("target", f"`target` must be positive, got {target}; None leaves the scale free.")
    a_hat, a = read_pair(z_hat, z, square=True)
    in_halves(a_hat, a, a.shape[1] + 3, held_out=False)
    check_varies("z_hat", a_hat, a_hat, "no rotation turns them into latents")
    fit = LinearRegression().fit(a_hat, a)
    if target is None and fit.score(a_hat, a) < 1e-12:  # the singular values are rounding errors
        raise InputError("z_hat", "`z_hat` predicts nothing of `z`, so there is no scale. Pass a `target`.")
    values = np.linalg.svd(fit.coef_, compute_uv=False)
    goal = float(values.mean()) if target is None else float(target)
    absolute = float(np.abs(values - goal).mean())
    return Orthogonality(absolute, absolute / goal, values, goal)


def chance_orthogonality_error(
    d: int, *, target: float | None = 1.0, n_draws: int = 500, random_state: RandomState = 0
) -> float:
    r"""Return the mean *relative* `orthogonality_error` of a random linear map.

    Its entries are independent Gaussians, its root mean square singular value the target: what a theorem of
    linear recovery leaves undetermined. Being relative, it is the same for every number as
    ``target``; it differs for None, where the mean singular value takes that place.

    Examples
    --------
    The singular values of a large map follow the quarter-circle law on [0, 2], at mean distance .472 from 1:

    >>> round(chance_orthogonality_error(40), 1)
    0.5
    """
    check_positive(d=d, n_draws=n_draws)
    maps = np.random.default_rng(random_state).normal(scale=d**-0.5, size=(n_draws, d, d))
    values = np.linalg.svd(maps, compute_uv=False)  # (n_draws, d)
    goal = values.mean(axis=1, keepdims=True) if target is None else 1.0
    return float(np.mean(np.abs(values - goal) / goal))
