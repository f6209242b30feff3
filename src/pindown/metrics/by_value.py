r"""Recovery within each value of a nuisance: what is promised where codes are latents up to a map per value."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown.metrics._nuisance import read_labels
from pindown.metrics.recovery import Matrix, RandomState, _read_pair, _split

LANDMARKS = 300
MIN_ROWS = 20


def recovery_by_value(
    z_hat: ArrayLike, z: ArrayLike, e: ArrayLike, *, max_rows: int = 10_000, random_state: RandomState = 0
) -> dict[Any, float]:
    r"""R² of a smooth nonlinear regression from code to latents, fitted within each value of a nuisance.

    .. math:: R^2_e = 1 - \frac{\sum_i \lVert z_i - \hat\Phi_e(\hat z_i) \rVert^2}{\sum_i \lVert z_i - \bar z \rVert^2},
              \qquad i \text{ held out, } e_i = e

    with :math:`\hat\Phi_e` a kernel ridge regression (Gaussian kernel, 300 landmarks), learned on half of the rows of
    value e and scored on the other half, all latents pooled. Blind to any smooth invertible map of the code, *another
    one for each value*: a high score says nothing of whether one code means the same for two values. Chance is just
    below 0. With few rows, or many columns, a perfect code scores below 1, since the map has to be learned: compare
    with the score of the observations themselves.

    Examples
    --------
    Each value bends the latent in its own way; a line through all of them explains little:

    >>> rng = np.random.default_rng(0)
    >>> z, e = rng.normal(size=(2000, 1)), rng.integers(2, size=2000)
    >>> code = np.where(e == 0, 1, -1)[:, None] * np.sinh(z)
    >>> {value: round(score, 1) for value, score in recovery_by_value(code, z, e).items()}
    {0: 1.0, 1: 1.0}
    >>> round(recovery_by_value(code, z, np.zeros(2000, dtype=int))[0], 1)
    -0.0
    """
    name = "recovery_by_value"
    code, truth = _read_pair(name, z_hat, z)
    values = np.asarray(e.detach() if hasattr(e, "detach") else e)
    number = read_labels(name, "e", values, len(code))
    scores = {}
    for which, value in enumerate(np.unique(values).tolist()):
        rows = np.flatnonzero(number == which)[:max_rows]
        parts = _split(f"{name} (e = {value!r})", code[rows], truth[rows], MIN_ROWS // 2, True, random_state)
        scores[value] = _smooth_r2(*parts)
    return scores


def _smooth_r2(fit: tuple[Matrix, Matrix], score: tuple[Matrix, Matrix]) -> float:
    (fit_hat, fit_z), (score_hat, score_z) = fit, score
    kernel = Nystroem(gamma=0.3 / fit_hat.shape[1], n_components=min(LANDMARKS, len(fit_hat)), random_state=0)
    model = make_pipeline(StandardScaler(), kernel, RidgeCV(np.logspace(-6, 2, 9)))
    missed = score_z - model.fit(fit_hat, fit_z).predict(score_hat).reshape(score_z.shape)
    return float(1 - np.sum(missed**2) / np.sum((score_z - score_z.mean(axis=0)) ** 2))
