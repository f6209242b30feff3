r"""Recovery per value of a nuisance: how much of the latents is in a code within each value, across, and elsewhere.

A blind code is promised up to a bijection for each value e of the nuisance, :math:`\hat z = \Phi_e(z)`. So within a
value a flexible regression finds z (`recovery_by_level`); over all values at once, or in a value it was not fitted on,
only if the :math:`\Phi_e` agree (`recovery_across_levels`).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from pindown.metrics._nuisance import read_labels
from pindown.metrics.reading import Matrix, RandomState, in_halves, read_pair
from pindown.metrics.smooth import smooth_regression

LANDMARKS = 300
MIN_ROWS = 20

Part = tuple[Matrix, Matrix]
"""Codes and latents of some rows."""


def recovery_by_level(
    z_hat: ArrayLike, z: ArrayLike, e: ArrayLike, *, max_samples: int = 10_000, random_state: RandomState = 0
) -> dict[Any, float]:
    r"""R² of a smooth nonlinear regression from code to latents, fitted within each value of a nuisance.

    .. math:: R^2_e = 1 - \frac{\sum_i \lVert z_i - \hat\Phi_e(\hat z_i) \rVert^2}{\sum_i \lVert z_i - \bar z \rVert^2},
              \qquad i \text{ held out, } e_i = e

    with :math:`\hat\Phi_e` a kernel ridge regression (Gaussian kernel, 300 landmarks), or a linear one if that tells
    rows it leaves out better, learned on half of the rows of value e and scored on the other half, all latents pooled.
    Blind to any smooth invertible map of the code, *another one for each value*: a high score says nothing of whether
    one code means the same for two values. Chance is just below 0. With few rows, or many columns, a perfect code that
    is bent scores below 1, since the map has to be learned: compare with the score of the observations themselves.

    Examples
    --------
    Each value bends the latent in its own way; a line through all of them explains little:

    >>> rng = np.random.default_rng(0)
    >>> z, e = rng.normal(size=(2000, 1)), rng.integers(2, size=2000)
    >>> code = np.where(e == 0, 1, -1)[:, None] * np.sinh(z)
    >>> {value: round(score, 1) for value, score in recovery_by_level(code, z, e).items()}
    {0: 1.0, 1: 1.0}
    >>> round(recovery_by_level(code, z, np.zeros(2000, dtype=int))[0], 1)
    -0.0
    """
    halves = _halves("recovery_by_level", z_hat, z, e, max_samples, random_state)
    return {value: _r2(_fitted(*fit), score) for value, (fit, score) in halves.items()}


class AcrossLevels(NamedTuple):
    """R² of regressions over several values of a nuisance: see `recovery_across_levels`."""

    pooled: float
    elsewhere: float


def recovery_across_levels(
    z_hat: ArrayLike, z: ArrayLike, e: ArrayLike, *, max_samples: int = 10_000, random_state: RandomState = 0
) -> AcrossLevels:
    """R² of the regression of `recovery_by_level` over all values at once, and in values it was not fitted on.

    ``pooled`` has one regression for all rows; ``elsewhere`` is the mean over values of one fitted on all the *others*.
    Recovery within values may be high and this one below 0: then the code is recovered value by value, and not unified.

    Examples
    --------
    A code whose sign depends on e is all there within values, gone in the pool, and wrong elsewhere:

    >>> rng = np.random.default_rng(0)
    >>> z, e = rng.normal(size=(2000, 1)), rng.integers(2, size=2000)
    >>> code = z * np.where(e == 1, 1, -1)[:, None]
    >>> min(recovery_by_level(code, z, e).values()) > 0.99
    True
    >>> pooled, elsewhere = recovery_across_levels(code, z, e)
    >>> round(pooled, 1) + 0.0, round(elsewhere) + 0
    (0.0, -3)
    """
    halves = _halves("recovery_across_levels", z_hat, z, e, max_samples, random_state)
    if len(halves) < 2:
        raise ValueError("recovery_across_levels: e has one value only, so that there is no other. Give two or more.")
    fits, scores = ({value: half[side] for value, half in halves.items()} for side in (0, 1))
    pooled = _r2(_fitted(*_joined(fits.values())), _joined(scores.values()))
    others = {value: _joined(fits[other] for other in fits if other != value) for value in fits}
    return AcrossLevels(pooled, float(np.mean([_r2(_fitted(*others[value]), scores[value]) for value in fits])))


def _halves(
    name: str, z_hat: ArrayLike, z: ArrayLike, e: ArrayLike, max_samples: int, random_state: RandomState
) -> dict[Any, tuple[Part, Part]]:
    """Return, for each value, the rows to fit a regression on, and those to score it on."""
    code, truth = read_pair(name, z_hat, z)
    values = np.asarray(e.detach() if hasattr(e, "detach") else e)
    number = read_labels(name, "e", values, len(code))
    halves = {}
    for which, value in enumerate(np.unique(values).tolist()):
        rows = np.flatnonzero(number == which)[:max_samples]
        name_of_part = f"{name} (e = {value!r})"
        halves[value] = in_halves(name_of_part, code[rows], truth[rows], MIN_ROWS // 2, True, random_state)
    return halves


def _joined(parts: Any) -> Part:
    codes, latents = zip(*parts, strict=True)
    return np.concatenate(codes), np.concatenate(latents)


def _fitted(code: Matrix, latents: Matrix) -> Pipeline:
    return smooth_regression(code, latents, 0.3 / code.shape[1], min(LANDMARKS, len(code)))


def _r2(model: Pipeline, part: Part) -> float:
    code, latents = part
    missed = latents - model.predict(code).reshape(latents.shape)
    return float(1 - np.sum(missed**2) / np.sum((latents - latents.mean(axis=0)) ** 2))
