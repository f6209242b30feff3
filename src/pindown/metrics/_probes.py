"""Probes: readers trained from scratch to tell a nuisance from a code, in families with different blind spots.

A linear probe sees means only; a quadratic one covariances too; kernels and neighbours see smooth shapes, trees
see thresholds and outliers, a network what is spread over many columns. A code is as invariant as its worst
reader finds it.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from pindown._names import nearest

Matrix = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]

QUADRATIC_COLUMNS = 40  # the leading directions whose products are formed: 860 features at most
MIN_ROWS_PER_COLUMN = 10  # with fewer, whitening would mostly amplify noise


@dataclass(frozen=True, eq=False)
class Views:
    """One code in several coordinates, all learned on the rows to fit; columns that do not vary there are left out.

    ``stratum`` (n, s) is one-hot, and has no columns where nothing is conditioned on. The other two have the mean
    of their stratum taken off, so that a probe need not learn it.
    """

    standardised: Matrix
    whitened: Matrix
    stratum: Matrix

    @classmethod
    def of(cls, Z: Matrix, strata: Codes, fit: NDArray[np.bool_]) -> "Views":
        """Learn the coordinates on the rows where ``fit`` is true, and express all rows in them."""
        one_hot = np.eye(strata.max() + 1)[strata]  # (n, s)
        means = one_hot[fit].T @ Z[fit].astype(np.float64) / one_hot[fit].sum(axis=0)[:, None]
        centred = Z - means[strata]
        spread = centred[fit].std(axis=0)
        varies = spread > 4 * np.finfo(Z.dtype).eps * np.abs(Z).max(axis=0)  # by more than rounding
        standardised = centred[:, varies] / spread[varies]
        enough = fit.sum() >= MIN_ROWS_PER_COLUMN * standardised.shape[1] > 0
        whitened = standardised @ _whitening(standardised[fit]) if enough else standardised
        return cls(standardised, whitened, one_hot if one_hot.shape[1] > 1 else one_hot[:, :0])

    def apart(self, coordinates: Matrix) -> Matrix:
        """Place the strata so far from each other that near rows are rows of one stratum."""
        return np.hstack([coordinates, 2 * np.sqrt(coordinates.shape[1]) * self.stratum])


def _whitening(a: Matrix) -> Matrix:
    """Return W such that the columns of ``a @ W`` are uncorrelated, of variance 1, and sorted by what they hold.

    What an encoder hides in a direction of little variance is as easy to read there as anywhere else.
    """
    values, vectors = np.linalg.eigh(a.T @ a / len(a))
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > 1e-12 * max(values[0], np.finfo(float).tiny)
    return vectors[:, kept] / np.sqrt(values[kept])


class Setting(NamedTuple):
    """What a probe may adapt itself to: rows and columns it is fitted on, values to tell apart, and a seed."""

    rows: int
    columns: int
    values: int  # 0 where a quantity is regressed
    seed: int


@dataclass(frozen=True)
class Probe:
    """A family of readers: which coordinates it looks at, and how it classifies or regresses.

    Both ways return an unfitted scikit-learn estimator; the classifier must have ``predict_proba``. ``seeded`` says
    whether the seed makes a difference.
    """

    name: str
    look: Callable[[Views], Matrix]
    classifier: Callable[[Setting], Any]
    regressor: Callable[[Setting], Any]
    seeded: bool = False


def _logistic(strength: float) -> Any:
    return LogisticRegression(C=strength, max_iter=300)


def _ridge() -> Any:
    return RidgeCV(alphas=(1.0, 10.0, 100.0, 1e3, 1e4))


def _squares(last: Any) -> Any:
    return make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler(), last)


def _radial(setting: Setting, last: Any) -> Any:
    landmarks = min(300, setting.rows)
    kernel = Nystroem(gamma=0.5 / setting.columns, n_components=landmarks, random_state=setting.seed)
    return make_pipeline(kernel, StandardScaler(), last)


def _several(setting: Setting) -> int:
    return int(np.ceil(setting.rows**0.5))


def _trees(setting: Setting) -> dict[str, Any]:
    return {
        # Every round grows a tree per value: many values get fewer rounds, so that the cost stays bounded.
        "max_iter": max(10, min(60, 300 // max(setting.values, 1))),
        "max_leaf_nodes": 8,
        "l2_regularization": 10.0,
        # Half of the columns per split, less of a wide code: that is what the seeds change.
        "max_features": min(0.5, 64 / setting.columns),
        "early_stopping": False,
        "random_state": setting.seed,
    }


def _layers(setting: Setting) -> dict[str, Any]:
    # Few passes and a strong penalty: longer training reads noise, and with it less of the nuisance.
    return {
        "hidden_layer_sizes": (64, 64),
        "alpha": 1.0,
        "learning_rate_init": 3e-3,
        "max_iter": 30,
        "random_state": setting.seed,
    }


PROBES = (
    Probe(
        "linear",
        look=lambda v: np.hstack([v.whitened, v.stratum]),
        classifier=lambda s: _logistic(0.1),
        regressor=lambda s: _ridge(),
    ),
    Probe(
        "quadratic",
        look=lambda v: np.hstack([v.stratum, v.whitened])[:, :QUADRATIC_COLUMNS],
        classifier=lambda s: _squares(_logistic(0.01)),
        regressor=lambda s: _squares(_ridge()),
    ),
    Probe(
        "kernel",
        look=lambda v: v.apart(v.whitened),
        classifier=lambda s: _radial(s, _logistic(0.003)),
        regressor=lambda s: _radial(s, _ridge()),
        seeded=True,
    ),
    Probe(
        "neighbours",
        look=lambda v: v.apart(v.standardised),
        classifier=lambda s: KNeighborsClassifier(_several(s)),
        regressor=lambda s: KNeighborsRegressor(_several(s)),
    ),
    Probe(
        "boosting",
        look=lambda v: np.hstack([v.standardised, v.whitened, v.stratum]),  # a tree cuts along columns: two sets
        classifier=lambda s: HistGradientBoostingClassifier(**_trees(s)),
        regressor=lambda s: HistGradientBoostingRegressor(**_trees(s)),
        seeded=True,
    ),
    Probe(
        "network",
        look=lambda v: np.hstack([v.whitened, v.stratum]),
        classifier=lambda s: MLPClassifier(**_layers(s)),
        regressor=lambda s: MLPRegressor(**_layers(s)),
        seeded=True,
    ),
)


def read_probes(caller: str, probes: str | Probe | Sequence[str | Probe]) -> tuple[Probe, ...]:
    """Return the families that are meant, by themselves or by name.

    Examples
    --------
    >>> [probe.name for probe in read_probes("leakage", ["linear", PROBES[2]])]
    ['linear', 'kernel']
    >>> read_probes("leakage", "bosting")
    Traceback (most recent call last):
    ValueError: leakage: there is no probe 'bosting': did you mean 'boosting'?
    """
    known = {probe.name: probe for probe in PROBES}
    chosen = []
    for probe in [probes] if isinstance(probes, str | Probe) else probes:
        if isinstance(probe, str) and probe not in known:
            raise ValueError(f"{caller}: there is no probe {probe!r}: {nearest(probe, list(known))}")
        if not isinstance(probe, str | Probe):
            raise TypeError(f"{caller}: probes must be names such as 'linear', or of type Probe, got {probe!r}.")
        chosen.append(known[probe] if isinstance(probe, str) else probe)
    return tuple(chosen)


def predictions(
    probes: Sequence[Probe],
    views: Views,
    target: NDArray[Any],
    fit: NDArray[np.bool_],
    *,
    n_values: int,
    seeds: Sequence[int],
) -> tuple[list[str], Matrix]:
    """Train every probe on the rows to fit and return, probe by probe, what they say of the other rows.

    A family that draws is trained once per seed, and their average, often the hardest reader of all, counts as one
    more. Probabilities (p, n, n_values) for labels; predictions (p, n) if ``n_values`` is 0; and the p names.
    """
    names: list[str] = []
    said: list[Matrix] = []
    for probe in probes:
        seen = probe.look(views)
        fitted = [
            _reading(probe, seen, target, fit, Setting(int(fit.sum()), seen.shape[1], n_values, seed))
            for seed in (seeds if probe.seeded else seeds[:1])
        ]
        said += fitted if len(fitted) == 1 else [*fitted, np.mean(fitted, axis=0)]
        names += [probe.name] * (len(said) - len(names))
    return names, np.stack(said)


def _reading(probe: Probe, seen: Matrix, target: NDArray[Any], fit: NDArray[np.bool_], setting: Setting) -> Matrix:
    is_label = setting.values > 0
    estimator = (probe.classifier if is_label else probe.regressor)(setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # stopping early is on purpose: it regularises
        estimator.fit(seen[fit], target[fit])
    return estimator.predict_proba(seen[~fit]) if is_label else estimator.predict(seen[~fit])
