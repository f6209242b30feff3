"""Checks: can a theorem apply to these data, and do the latents support it? Each returns a `Verdict`.

`before` takes data alone, `after` a fitted estimator. Every check is a function of arrays that can be called by itself,
and says what it is blind to: see the modules `samples`, `distributions`, `encoders`, `nuisances`, `supports` and
`dictionaries`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pindown import theory
from pindown.auditing.checks.arrays import paired_samples, read, signal_coordinates
from pindown.auditing.checks.distributions import related_pairs
from pindown.auditing.checks.encoders import enough_directions
from pindown.auditing.checks.nuisances import (
    overlapping_levels,
    same_covariance,
    surviving_dimensions,
    unconfounded,
)
from pindown.auditing.checks.samples import (
    common_levels,
    diverse_levels,
    enough_levels,
    enough_samples,
    splittable_samples,
)
from pindown.auditing.checks.verdict import Verdict
from pindown.data.data import Data, as_array
from pindown.data.labels import read_labels

if TYPE_CHECKING:
    from pindown.auditing.spec import Estimator


def before(
    X: ArrayLike,
    n_components: int,
    *,
    signal: ArrayLike | None = None,
    nuisance: ArrayLike | None = None,
    pairs: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> tuple[Verdict, ...]:
    """Return what data show before anything is trained: whether a theorem can apply.

    Verdicts are about the observations X (n, n_features), then about each side variable that is given: ``signal``, a
    label (n,) to learn from; ``nuisance``, one to remove; ``pairs``, positives (n, n_features) or groups (n,) whose
    samples are positives of each other; ``groups`` (n,), subjects or sessions that an audit does not divide.

    Examples
    --------
    Four classes of points in the plane, where two latents need three:

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(4, size=1_000)
    >>> X = np.array([[0, 0], [3, 0], [0, 3], [3, 3]])[labels] + rng.normal(size=(1_000, 2))
    >>> for verdict in before(X, 2, signal=labels):
    ...     print(verdict.outcome, verdict.name)
    holds injective mixing
    holds enough samples
    holds at least d + 1 classes
    holds affine generator system
    """
    rows, found = signal_coordinates(X)
    for name, labels in {"signal": signal, "nuisance": nuisance, "groups": groups}.items():
        if labels is not None:
            read_labels(name, labels, len(rows))  # raises by the name that the caller knows
    verdicts = [enough_directions(X, n_components), enough_samples(len(rows), n_components, signal)]
    if pairs is not None:
        positives = pairs if np.ndim(pairs) < 2 else found.coordinates(as_array(pairs).reshape(len(rows), -1))
        verdicts.append(related_pairs(*paired_samples(rows, positives)))
    if signal is not None:
        verdicts.append(enough_levels(signal, theory.CLASSIFY_NORMALISED, n_components))
        verdicts.append(diverse_levels(rows, signal, d=n_components, encoded=False))
    if nuisance is not None:
        verdicts.append(common_levels(nuisance))
        verdicts.append(surviving_dimensions(rows, nuisance, n_components))
        verdicts.append(same_covariance(rows, nuisance))
        verdicts.append(overlapping_levels(rows, nuisance))
    if signal is not None and nuisance is not None:
        verdicts.append(unconfounded(signal, nuisance))
    if groups is not None:
        verdicts.append(splittable_samples(len(rows), groups=groups, nuisance=nuisance))
    return tuple(verdicts)


def after(
    est: Estimator, X: ArrayLike, y: ArrayLike | None = None, *, given: ArrayLike | None = None
) -> tuple[Verdict, ...]:
    """Return what latents of a fitted estimator show, best of new data: which assumptions they support.

    ``X`` and ``y`` are as in ``est.fit``; for `Forget`, ``given`` is the label within whose levels the nuisance was to
    be removed.

    Examples
    --------
    >>> from pindown import Classify
    >>> from pindown.simulate import Clusters
    >>> simulation = Clusters.on_sphere(3, 12, 10.0, random_state=0)
    >>> train, test = (simulation.sample(3_000, random_state=s) for s in (1, 2))
    >>> classify = Classify(3, max_iter=200, random_state=0).fit(train.x, train.u)
    >>> for verdict in after(classify, test.x, test.u):
    ...     print(verdict.outcome, verdict.name)
    holds at least d + 1 classes
    holds affine generator system
    holds vMF clusters
    holds injective encoder
    holds structure kept
    """
    from pindown.auditing.spec import spec_of  # which imports the checks

    spec = spec_of(est, "after")
    side: dict[str, Any] = {} if y is None or spec.roles.y is None else {spec.roles.y: y}
    read("X", X)  # or raise
    return spec.checks_after(est, Data(as_array(X), given=given, **side))
