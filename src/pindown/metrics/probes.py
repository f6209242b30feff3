"""Probes: predictors trained from scratch on an embedding, in families that miss different things.

A linear probe sees only means; a sparse one a few features among thousands; a quadratic one also covariances; kernels
and neighbours see smooth shapes, trees see thresholds and outliers, a network sees what is spread over many features.
An embedding is as invariant as its best probe finds it. `smooth_regression` is the probe where one that needs no
tuning is enough.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectKBest, f_classif, f_regression
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler

from pindown._names import nearest
from pindown.errors import InputError
from pindown.metrics.arrays import Labels, Mask, Matrix, whitening

SPARSE_FEATURES = 5  # that predict best one by one, of the features and their squares
QUADRATIC_FEATURES = 40  # the leading directions whose products are formed: 860 features at most
MIN_SAMPLES_PER_FEATURE = 10  # with fewer, whitening would mostly amplify noise
STRENGTHS = (1.0, 10.0, 100.0, 1e3, 1e4)  # of a ridge, of which generalised cross-validation chooses one


@dataclass(frozen=True, eq=False)
class Views:
    """One embedding in several coordinates, learned on the samples to fit; columns that are constant there are dropped.

    ``one_hot`` (n, s) is the stratum, and has no columns where nothing is conditioned on. The first two have the mean
    of their stratum subtracted, so that a probe need not learn it.
    """

    standardised: Matrix
    whitened: Matrix
    one_hot: Matrix
    strata: Labels
    fit: Mask

    @classmethod
    def of(cls, Z: Matrix, strata: Labels, fit: Mask) -> "Views":
        """Learn the coordinates on the samples where ``fit`` is true, and express all samples in them."""
        one_hot = np.eye(strata.max() + 1)[strata]  # (n, s)
        means = one_hot[fit].T @ Z[fit] / one_hot[fit].sum(axis=0)[:, None]
        centred = Z - means[strata]
        spread = centred[fit].std(axis=0)
        alive = spread > 4 * np.finfo(np.float64).eps * np.abs(Z).max(axis=0)  # varies by more than rounding
        standardised = centred[:, alive] / spread[alive]
        enough = fit.sum() >= MIN_SAMPLES_PER_FEATURE * standardised.shape[1] > 0
        whitened = standardised
        if enough:
            matrix = whitening(standardised[fit])
            whitened = standardised @ matrix[:, matrix.any(axis=0)]
        return cls(standardised, whitened, one_hot if one_hot.shape[1] > 1 else one_hot[:, :0], strata, fit)

    def apart(self, coordinates: Matrix) -> Matrix:
        """Move the strata so far from each other that the nearest samples are samples of the same stratum."""
        return np.hstack([coordinates, 2 * np.sqrt(coordinates.shape[1]) * self.one_hot])


class Setting(NamedTuple):
    """What a probe may adapt to: the number of samples it is fitted on, the number of levels, and a seed."""

    n_samples: int
    n_levels: int  # 0 where a quantity is regressed
    seed: int


@dataclass(frozen=True)
class Probe:
    """A family of probes.

    ``build`` returns the coordinates that the family uses, for all samples, and an unfitted scikit-learn estimator: a
    classifier with ``predict_proba`` where there are levels, else a regressor. ``seeded`` says whether the seed makes a
    difference.
    """

    name: str
    build: Callable[[Views, Setting], tuple[Matrix, BaseEstimator]]
    seeded: bool = False


def _last(setting: Setting, strength: float) -> BaseEstimator:
    return LogisticRegression(C=strength, max_iter=300) if setting.n_levels else RidgeCV(STRENGTHS)


def _linear(views: Views, setting: Setting) -> tuple[Matrix, BaseEstimator]:
    return np.hstack([views.whitened, views.one_hot]), _last(setting, 0.1)


def _sparse(views: Views, setting: Setting) -> tuple[Matrix, BaseEstimator]:
    x, strata = np.hstack([views.standardised, views.standardised**2]), views.one_hot
    best = SelectKBest(f_classif if setting.n_levels else f_regression, k=min(SPARSE_FEATURES, x.shape[1]))
    chosen = ColumnTransformer([("best", best, slice(x.shape[1]))], remainder="passthrough")
    last = LogisticRegression(max_iter=300) if setting.n_levels else RidgeCV(STRENGTHS)
    return np.hstack([x, strata]), make_pipeline(chosen, StandardScaler(), last)


def _quadratic(views: Views, setting: Setting) -> tuple[Matrix, BaseEstimator]:
    x = np.hstack([views.one_hot, views.whitened])[:, :QUADRATIC_FEATURES]
    return x, make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler(), _last(setting, 0.01))


def _kernel(views: Views, setting: Setting) -> tuple[Matrix, BaseEstimator]:
    x, landmarks = views.apart(views.whitened), min(300, setting.n_samples)
    features = Nystroem(gamma=0.5 / x.shape[1], n_components=landmarks, random_state=setting.seed)
    return x, make_pipeline(features, StandardScaler(), _last(setting, 0.003))


def _neighbours(views: Views, setting: Setting) -> tuple[Matrix, BaseEstimator]:
    kind = KNeighborsClassifier if setting.n_levels else KNeighborsRegressor
    return views.apart(views.standardised), kind(int(np.ceil(setting.n_samples**0.5)))


def _boosting(views: Views, setting: Setting) -> tuple[Matrix, BaseEstimator]:
    kind = HistGradientBoostingClassifier if setting.n_levels else HistGradientBoostingRegressor
    x = np.hstack([views.standardised, views.whitened, views.one_hot])  # a tree splits along axes: two sets of them
    return x, kind(
        # Every iteration grows a tree per level: many levels get fewer iterations, so that the cost stays bounded.
        max_iter=max(10, min(60, 300 // max(setting.n_levels, 1))),
        max_leaf_nodes=8,
        l2_regularization=10.0,
        max_features=min(0.5, 64 / x.shape[1]),  # of each split: that is what the seeds change
        early_stopping=False,
        random_state=setting.seed,
    )


def _network(views: Views, setting: Setting) -> tuple[Matrix, BaseEstimator]:
    kind = MLPClassifier if setting.n_levels else MLPRegressor
    # Few epochs and a strong penalty: longer training fits noise, and with it less of the nuisance.
    network = kind(hidden_layer_sizes=(64, 64), alpha=1.0, learning_rate_init=3e-3, max_iter=30)
    return np.hstack([views.whitened, views.one_hot]), network.set_params(random_state=setting.seed)


PROBES = (
    Probe("linear", _linear),
    Probe("quadratic", _quadratic),
    Probe("kernel", _kernel, seeded=True),
    Probe("neighbours", _neighbours),
    Probe("boosting", _boosting, seeded=True),
    Probe("network", _network, seeded=True),
    Probe("sparse", _sparse),
)


def read_probes(probes: str | Probe | Sequence[str | Probe]) -> tuple[Probe, ...]:
    """Return families of probes, given by themselves or by name."""
    known = {probe.name: probe for probe in PROBES}
    chosen = [probes] if isinstance(probes, str | Probe) else list(probes)
    if not chosen:
        raise InputError("probes", "`probes` is empty. Leave it out for all families.")
    for probe in chosen:
        if not isinstance(probe, Probe) and probe not in known:
            raise InputError("probes", f"there is no probe {probe!r}: {nearest(str(probe), list(known))}")
    return tuple(probe if isinstance(probe, Probe) else known[probe] for probe in chosen)


def predictions(
    probes: Sequence[Probe],
    views: Views,
    target: Labels | Matrix,
    guess: Matrix,
    n_seeds: int,
    rng: np.random.Generator,
) -> tuple[list[str], Matrix]:
    """Train every probe on the samples to fit and return, probe by probe, its predictions for the others.

    ``guess`` is the prediction without the embedding: probabilities (n, levels) of labels, or numbers (n,). A seeded
    family is trained once per seed, and the average of its predictions, often the best of all, counts as one more
    probe. The p names, and predictions (p, n, levels) or (p, n).
    """
    if not views.standardised.shape[1]:
        return ["constant"], guess[None]
    seeds = rng.integers(2**31, size=n_seeds).tolist()
    n_levels = guess.shape[1] if guess.ndim == 2 else 0
    names: list[str] = []
    predicted: list[Matrix] = []
    for probe in probes:
        of_seeds = []
        for seed in seeds if probe.seeded else seeds[:1]:
            x, estimator = probe.build(views, Setting(int(views.fit.sum()), n_levels, seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # stopping early is on purpose: it regularises
                estimator.fit(x[views.fit], target[views.fit])
            held_out = x[~views.fit]
            of_seeds.append(estimator.predict_proba(held_out) if n_levels else estimator.predict(held_out))
        predicted += of_seeds if len(of_seeds) == 1 else [*of_seeds, np.mean(of_seeds, axis=0)]
        names += [probe.name] * (len(predicted) - len(names))
    return names, np.stack(predicted)


# ---- a smooth predictor that needs no tuning ------------------------------------------------------------------------


def smooth_features(last: BaseEstimator, gamma: float, n_landmarks: int) -> Pipeline:
    """Return an unfitted predictor on radial features of standardised features, around some of the samples to fit."""
    within = MinMaxScaler(clip=True)  # beyond the samples it was fitted on a smooth predictor is flat, and not wild
    landmarks = Nystroem(gamma=gamma, n_components=n_landmarks, random_state=0)
    return make_pipeline(within, StandardScaler(), landmarks, last)


def smooth_regression(inputs: Matrix, targets: Matrix, gamma: float, n_landmarks: int) -> Pipeline:
    """Fit a ridge regression on radial features, or on the features if that predicts left-out samples better.

    Few samples with many features are enough for a linear map, and for no other.

    Examples
    --------
    >>> x = np.random.default_rng(0).uniform(-2, 2, size=(400, 1))
    >>> nonlinear, linear = (smooth_regression(x, y, 0.3, 50) for y in (np.sin(2 * x), 3 * x + 1))
    >>> round(nonlinear.score(x, np.sin(2 * x)), 2), len(nonlinear), len(linear)
    (1.0, 4, 2)
    """
    strengths = np.logspace(-6, 2, 9)
    unfitted = (
        make_pipeline(StandardScaler(), RidgeCV(strengths)),
        smooth_features(RidgeCV(strengths), gamma, n_landmarks),
    )
    return max((fit.fit(inputs, targets) for fit in unfitted), key=lambda fit: fit[-1].best_score_)  # leave-one-out
