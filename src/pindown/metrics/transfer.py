r"""Recovery per value of a nuisance: how much of the latents is in a code within each value, across, and elsewhere.

A blind code is promised up to a bijection for each value e of the nuisance, :math:`\hat z = \Phi_e(z)`. So within a
value a flexible regression finds z; over all values at once, or in a value it was not fitted on, only if the
:math:`\Phi_e` agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from pindown.metrics._nuisance import read_labels
from pindown.metrics.recovery import RandomState, _read_pair

LEAST_ROWS = 40
"""Rows of a value, half of them to fit and half to score, below which nothing is said of it."""


@dataclass(frozen=True)
class ValueRecovery:
    """Held-out R² of a nonlinear regression from code to latents.

    ``by_value`` within each value of the nuisance; ``pooled`` with one regression for all; ``elsewhere`` the mean over
    values of a regression fitted on all the *others*. The first may be high and the last below 0: then the code is
    recovered value by value, and not unified.
    """

    by_value: Mapping[Any, float]
    pooled: float
    elsewhere: float

    @property
    def worst(self) -> float:
        """The least R² within a value."""
        return min(self.by_value.values())

    def __str__(self) -> str:
        lines = [f"  within {value!s:<12} {score:7.3f}" for value, score in self.by_value.items()]
        others = (("pooled", self.pooled), ("elsewhere", self.elsewhere))
        lines += [f"  {name:<19} {score:7.3f}" for name, score in others]
        return "\n".join(["Recovery, R² (0: a guess)", *lines])


def value_recovery(z_hat: ArrayLike, z: ArrayLike, e: ArrayLike, *, random_state: RandomState = 0) -> ValueRecovery:
    r"""R² of a kernel regression from the code to the latents, within each value of the nuisance and across them.

    Each regression, affine and Gaussian kernel features with a ridge penalty, is fitted on one half of the rows and
    scored on the other. Blind to smooth invertible maps of ``z_hat``, as far as the rows can follow them; within
    values, to another such map for each. Chance is just below 0.

    Examples
    --------
    A code whose sign depends on e is all there within values, gone in the pool, and wrong elsewhere:

    >>> rng = np.random.default_rng(0)
    >>> z, e = rng.normal(size=(2000, 1)), rng.integers(2, size=2000)
    >>> found = value_recovery(z * np.where(e == 1, 1, -1)[:, None], z, e)
    >>> round(found.worst, 2), round(found.pooled, 1) + 0.0, round(found.elsewhere) + 0
    (1.0, 0.0, -3)
    """
    code, latents = (a.astype(np.float64) for a in _read_pair("value_recovery", z_hat, z))
    values = np.asarray(e)
    labels = read_labels("value_recovery", "e", e, len(code))
    counts = np.bincount(labels)
    if len(counts) < 2 or counts.min() < LEAST_ROWS:
        raise ValueError(
            f"value_recovery: e needs at least two values with {LEAST_ROWS} rows each, got {counts.tolist()} rows. "
            "Leave rare values out."
        )
    rng = np.random.default_rng(random_state)
    fit = rng.permutation(len(code)) % 2 == 0
    seed = int(rng.integers(2**31))

    def score(used: NDArray[np.bool_], scored: NDArray[np.bool_]) -> float:
        model = _regression(code.shape[1], seed).fit(code[used], latents[used])
        return float(model.score(code[scored], latents[scored]))

    own = [labels == label for label in range(len(counts))]
    names = [values[mask][0] for mask in own]
    return ValueRecovery(
        {name: score(fit & mask, ~fit & mask) for name, mask in zip(names, own, strict=True)},
        score(fit, ~fit),
        float(np.mean([score(fit & ~mask, ~fit & mask) for mask in own])),
    )


def _regression(n_columns: int, seed: int) -> Pipeline:
    # Random features, not those of Nyström: in one or two dimensions a kernel matrix has a low rank, and those of no
    # weight would be blown up.
    kernel = RBFSampler(gamma=1 / n_columns, n_components=200, random_state=seed)
    features = make_union(FunctionTransformer(), kernel)
    return make_pipeline(StandardScaler(), features, RidgeCV(np.logspace(-3, 3, 4), cv=3))
