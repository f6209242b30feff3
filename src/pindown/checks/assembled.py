"""The checks that speak of a theorem, together: before training on data alone, after training on an estimator."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pindown import theory
from pindown.checks.arrays import Matrix, read, read_labels
from pindown.checks.conditionals import (
    even_conditional,
    lp_conditional,
    matching_model,
    related_partners,
    vmf_clusters,
    vmf_conditional,
)
from pindown.checks.encoders import (
    enough_directions,
    live_codes,
    many_negatives,
    rebuilt_observations,
    unfolded_codes,
)
from pindown.checks.marginals import uniform_on_body, uniform_on_sphere
from pindown.checks.nuisances import (
    invariant_codes,
    overlapping_values,
    same_spread,
    surviving_dimensions,
    unconfounded,
)
from pindown.checks.supports import diverse_support, sufficient_nonlinearity
from pindown.checks.values import common_values, diverse_values, divisible_rows, enough_rows, enough_values
from pindown.checks.verdict import Verdict
from pindown.estimators.base import BaseEncoder, as_array
from pindown.estimators.classify import Classify
from pindown.estimators.contrast import Contrast
from pindown.estimators.dictionary import Dictionary
from pindown.estimators.forget import Forget
from pindown.folding import look_for_folds
from pindown.sources.pairing import pair_up
from pindown.spaces import Sphere

JACOBIAN_ROWS = 1_000


def before(
    X: Any, n_components: int, *, signal: Any = None, nuisance: Any = None, pairs: Any = None, groups: Any = None
) -> tuple[Verdict, ...]:
    """Say of data what can be said before anything is trained: whether a theorem can apply.

    Parameters
    ----------
    X : array (n, n_features)
        The observations.
    n_components : int
        How many latents one hopes for.
    signal, nuisance : array (n,), optional
        A label to learn from, and one to forget.
    pairs : array, optional
        Partners (n, n_features), or groups (n,) whose rows are partners of each other.
    groups : array (n,), optional
        Subjects, sessions …, whose rows an audit keeps together.

    Returns
    -------
    tuple of Verdict
        About the observations, then about each side variable that was given.

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
    rows = read("X", as_array(X))
    for name, labels in {"signal": signal, "nuisance": nuisance, "groups": groups}.items():
        if labels is not None:
            read_labels(name, as_array(labels), len(rows))  # by the name that the caller knows
    verdicts = [enough_directions(rows, n_components), enough_rows(len(rows), n_components, as_array(signal))]
    if pairs is not None:
        verdicts.append(related_partners(*partners_of(rows, pairs)))
    if signal is not None:
        verdicts.append(enough_values(as_array(signal), theory.CLASSIFY_NORMALISED, n_components))
        verdicts.append(diverse_values(rows, as_array(signal), d=n_components, encoded=False))
    if nuisance is not None:
        verdicts.append(common_values(as_array(nuisance)))
        verdicts.append(surviving_dimensions(rows, nuisance, n_components))
        verdicts.append(same_spread(rows, nuisance))
        verdicts.append(overlapping_values(rows, nuisance))
    if signal is not None and nuisance is not None:
        verdicts.append(unconfounded(as_array(signal), nuisance))
    if groups is not None:
        verdicts.append(divisible_rows(len(rows), groups=as_array(groups), nuisance=nuisance))
    return tuple(verdicts)


def after(est: BaseEncoder, X: Any, y: Any = None, *, given: Any = None) -> tuple[Verdict, ...]:
    """Say of a fitted estimator and data, best such as it has not seen, which assumptions its codes bear out.

    Parameters
    ----------
    est : Contrast, Classify, Forget or Dictionary
        Fitted.
    X, y
        Observations and side variable, as in ``est.fit``.
    given : array (n,), optional
        For `Forget`: the label within whose values the nuisance was to be forgotten.

    Examples
    --------
    >>> from pindown.processes import Clusters
    >>> world = Clusters.on_sphere(3, 12, 10.0, random_state=0)
    >>> train, test = (world.sample(3_000, random_state=s) for s in (1, 2))
    >>> classify = Classify(3, max_iter=200, random_state=0).fit(train.x, train.u)
    >>> for verdict in after(classify, test.x, test.u):
    ...     print(verdict.outcome, verdict.name)
    holds at least d + 1 classes
    holds affine generator system
    holds vMF clusters
    holds unfolded codes
    holds injective mixing
    """
    rows = read("X", as_array(X))
    match est:
        case Contrast():
            return _after_contrast(est, rows, y)
        case Classify():
            return _after_classify(est, rows, as_array(y))
        case Forget():
            return _after_forget(est, rows, as_array(y), as_array(given))
        case Dictionary():
            return _after_dictionary(est, rows)
    raise TypeError(f"after: est must be a Contrast, Classify, Forget or Dictionary, got {type(est).__name__}.")


def _after_contrast(est: Contrast, rows: Matrix, y: Any) -> tuple[Verdict, ...]:
    anchors, partners = partners_of(rows, y)
    codes, others = est.transform(anchors), est.transform(partners)
    if est.space == Sphere():
        laws = [vmf_conditional(codes, others), uniform_on_sphere(codes)]
    else:
        laws = [matching_model(codes, others, est.p), even_conditional(codes, others), uniform_on_body(codes)]
        laws += [lp_conditional(codes, others)] if est.p != 2 else []
    n_negatives = est.batch_size or min(est._default_batch_size, len(anchors))
    return (*laws, many_negatives(est.score(rows, y), n_negatives), *_of_encoder(est, rows))


def _after_classify(est: Classify, rows: Matrix, y: Any) -> tuple[Verdict, ...]:
    if y is None:
        return _of_encoder(est, rows)
    codes, labels = est.transform(rows), np.asarray(y).reshape(-1)
    _check_known(labels, est.classes_)
    verdicts = [
        enough_values(labels, est.guarantee, est.n_components_),
        diverse_values(codes, labels, est.guarantee),
    ]
    if est.space == Sphere():
        verdicts.append(_vmf_around_vectors_or_means(codes, labels, est))
    return (*verdicts, *_of_encoder(est, rows))


def _vmf_around_vectors_or_means(codes: Matrix, labels: NDArray[Any], est: Classify) -> Verdict:
    """Return the better of two verdicts, since a law that is not vMF shows in both.

    A vector that is not yet in its place makes tails seem light, and codes that are off make them seem heavy around
    their mean.
    """
    around_vectors = vmf_conditional(
        codes, est.class_vectors_[np.searchsorted(est.classes_, labels)], theory.VMF_CLUSTERS
    )
    around_means = vmf_clusters(codes, labels)
    return min(around_vectors, around_means, key=lambda v: math.inf if math.isnan(v.statistic) else v.statistic)


def _after_forget(est: Forget, rows: Matrix, y: Any, given: Any) -> tuple[Verdict, ...]:
    codes = est.transform(rows)
    invariant = invariant_codes(codes, y, given)
    if est.guarantee == theory.FORGET:
        return (invariant, live_codes(codes))
    labels = read_labels("y", y, len(rows))
    beside = np.hstack([codes, np.eye(labels.max() + 1)[labels]])  # the decoder is told the nuisance
    return (invariant, rebuilt_observations(beside, rows, theory.EXACT_REBUILDING))


def _after_dictionary(est: Dictionary, rows: Matrix) -> tuple[Verdict, ...]:
    return (
        diverse_support(est.dependence_, est.threshold_),
        sufficient_nonlinearity(est.jacobian(rows[:JACOBIAN_ROWS]), est.support_),
        rebuilt_observations(est.transform(rows), rows),
    )


def _of_encoder(est: BaseEncoder, rows: Matrix) -> tuple[Verdict, ...]:
    folding = look_for_folds(est.transform, torch.as_tensor(rows), est.encoder_.space)
    return (unfolded_codes(folding), rebuilt_observations(est.transform(rows), rows))


def partners_of(rows: Matrix, pairs: Any) -> tuple[Matrix, Matrix]:
    """Return rows and a partner of each, from partners, groups, or None for the next row, as `Contrast` reads them."""
    pairing = pair_up(rows, as_array(pairs))
    generator = torch.Generator().manual_seed(0)
    anchors, partners = pairing.take(torch.arange(len(pairing)), generator)
    return anchors.numpy(), partners.numpy()


def _check_known(labels: NDArray[Any], classes: NDArray[Any]) -> None:
    if len(unknown := np.setdiff1d(labels, classes)):
        some = unknown[:5].tolist()
        raise ValueError(f"after: y has class(es) that were not there in fit: {some}. Leave these rows out.")
