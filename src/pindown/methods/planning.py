"""`plan`: which estimator suits the data, which theorem could apply, and what the data lack for it."""

from dataclasses import replace
from typing import cast

import numpy as np
from sklearn.base import clone

from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.plans import Count, Plan
from pindown.auditing.refits import can_split
from pindown.data.data import Data, as_array
from pindown.data.files import require_in_memory
from pindown.data.labels import read_labels
from pindown.methods.base import BaseEncoder
from pindown.methods.inputs import ArrayOrTensor, DataSummary, Prepared
from pindown.methods.registry import BUILT_IN, SIDES, suited
from pindown.networks import preprocessing

__all__ = ["Count", "Plan", "plan"]


def plan(
    X: ArrayOrTensor | Data,
    *,
    signal: ArrayOrTensor | None = None,
    nuisance: ArrayOrTensor | None = None,
    given: ArrayOrTensor | None = None,
    pairs: ArrayOrTensor | None = None,
    groups: ArrayOrTensor | None = None,
    n_components: int | None = None,
    estimator: type[BaseEncoder] | BaseEncoder | None = None,
) -> Plan:
    """Return which estimator suits the data, which theorem could apply, and what the data lack for it.

    A nuisance leads to `Forget`, pairs lead to `Contrast`, a label to `Classify`, and observations alone to
    `Dictionary`. If a signal depends on the nuisance, the plan is to remove the nuisance given the signal. Any other
    method can be named: its specification is used (``estimator.spec``).

    Parameters
    ----------
    X : array (n, n_features) or Data
        The observations; or `Data` with all of this.
    signal, nuisance : array (n,), optional
        A label to learn from, and one to remove.
    given : array (n,), optional
        A label within whose levels the nuisance is removed, as in ``Forget.fit``.
    pairs : array, optional
        Positives (n, n_features), or groups (n,) whose samples are positives of each other.
    groups : array (n,), optional
        Subjects, sessions …, whose samples an audit keeps together.
    n_components : int, optional
        Number of latents. By default as many as the side variable can identify.
    estimator : class or estimator, optional
        The estimator. By default one that uses the side variables.

    Examples
    --------
    Four classes whose means lie in a plane, but four latents:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(4), 200)
    >>> means = np.array([[0, 0, 0, 0], [4, 0, 0, 0], [0, 4, 0, 0], [4, 4, 0, 0]])
    >>> wanted = plan(means[labels] + rng.normal(size=(800, 4)), signal=labels, n_components=4)
    >>> wanted.estimator, wanted.outcome
    ('Classify(n_components=4)', 'fails')
    >>> wanted.needs
    ('two more classes in general position',)
    """
    if isinstance(X, Data):
        data = X
    else:
        require_in_memory("plan", X)
        read("X", X)  # raises if X is invalid
        data = Data(as_array(X), signal=signal, nuisance=nuisance, pairs=pairs, given=given, groups=groups)
    if estimator is None:  # the first that uses all side variables, or else one of them
        kind = suited([role for role in SIDES if role in data.side_variables])
        estimator = kind or next(kind for kind in BUILT_IN if kind.spec.roles.y in data.side_variables)
    est = cast("BaseEncoder", estimator() if isinstance(estimator, type) else clone(estimator))
    if est.random_state is None:
        est.set_params(random_state=0)
    return plan_for(est.set_params(n_components=n_components), data)


def plan_for(est: BaseEncoder, data: Data, prepared: Prepared | None = None, audited: Verdict | None = None) -> Plan:
    """Return the plan of an estimator; the other arguments are what is known of the data, or of these and others."""
    shape = np.shape(data.X)[1:]
    est, data = _as_vectors(est, data)
    spec = est.spec
    numbers = {"nuisance"} & {spec.roles.y} | ({"signal"} & {spec.roles.y} if not spec.roles.categorical else set())
    for role in {"signal", "nuisance", "given", "groups"} & {*data.side_variables} - numbers:
        read_labels(role, getattr(data, role), len(data))  # by the name that the caller knows
    notes, summary = [], DataSummary(est.n_components or 1)
    try:
        prepared = est.prepare(data.only(*spec.roles.used, "groups")) if prepared is None else prepared
    except ValueError:  # the verdicts say why
        shown = est.fitted_preprocessing(data.X).note
    else:
        shown, summary = prepared.preprocessing.note, prepared.summary
    found = spec.plan(est, data, summary)
    notes += [f"before training {shown}"] if shown else []
    aside = {*data.side_variables} & {*SIDES} - {*spec.roles.used, *spec.roles.plan_only}
    notes += [f"{role} is not used: plan for it alone, too." for role in SIDES if role in aside]
    audited = can_split(est, data) if audited is None else audited
    missing = () if audited.outcome == "holds" else (audited.why,)
    found = replace(found, needs=(*found.needs, *missing), notes=(*found.notes, *notes))
    return found if np.shape(data.X)[1:] == shape else _with_preprocessing(found, shape)


def _as_vectors(est: BaseEncoder, data: Data) -> tuple[BaseEncoder, Data]:
    """Return the estimator and data with samples as vectors, if it needs vectors."""
    if data.is_source or np.ndim(data.X) < 3 or est._reads(np.shape(data.X)[1:]):
        return est, data
    if "preprocess" not in est.get_params(deep=False):
        est._require_flat("X", np.shape(data.X), np.shape(data.X)[1:])
    est = clone(est).set_params(preprocess=preprocessing.whiten)
    return est, replace(data, X=np.reshape(data.X, (len(data), -1)))


def _with_preprocessing(found: Plan, shape: tuple[int, ...]) -> Plan:
    """Return a plan whose call makes samples vectors."""
    requested = f"n_components={found.n_components}"
    call = found.estimator.replace(requested, f"{requested}, preprocess=preprocessing.whiten", 1)
    note = f"samples of shape {shape} are made vectors: preprocess=preprocessing.whiten (from pindown.networks)."
    return replace(found, estimator=call, notes=(*found.notes, note))
