"""`plan`: which estimator suits these data, which theorem would speak, and how much more diversity it would take."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from pindown.auditing.checks.arrays import read
from pindown.auditing.plans import Count, Plan
from pindown.auditing.refits import can_split
from pindown.data.data import Data, as_array
from pindown.data.files import require_in_memory
from pindown.data.labels import read_labels
from pindown.methods.base import BaseEncoder
from pindown.methods.registry import BUILT_IN, SIDES, suited
from pindown.networks import preprocessing

__all__ = ["Count", "Plan", "plan"]


def plan(
    X: Any,
    *,
    signal: Any = None,
    nuisance: Any = None,
    given: Any = None,
    pairs: Any = None,
    groups: Any = None,
    n_components: int | None = None,
    estimator: type[BaseEncoder] | BaseEncoder | None = None,
) -> Plan:
    """Say which estimator suits these data, which theorem would apply, and what is missing for it.

    A nuisance leads to `Forget`, otherwise partners lead to `Contrast`, a label to `Classify`, and nothing at all to
    `Dictionary`. If a signal is named beside a nuisance and goes with it, the nuisance is to be forgotten given it. Any
    other method can be named: its specification is used (``estimator.spec``).

    Parameters
    ----------
    X : array (n, n_features) or Data
        The observations; or all of this as one value.
    signal, nuisance : array (n,), optional
        A label to learn from, and one to forget.
    given : array (n,), optional
        A label within whose values the nuisance will be forgotten, as in ``Forget.fit``.
    pairs : array, optional
        Partners (n, n_features), or groups (n,) whose rows are partners of each other.
    groups : array (n,), optional
        Subjects, sessions …, whose rows an audit keeps together.
    n_components : int, optional
        How many latents one hopes for. By default as many as the side variable can pin down.
    estimator : class or estimator, optional
        What is to be fitted. By default what uses the side variables there are.

    Examples
    --------
    Four classes whose means lie in a plane, but four latents wanted:

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
        read("X", X)  # or say what is wrong with it
        data = Data(as_array(X), signal=signal, nuisance=nuisance, pairs=pairs, given=given, groups=groups)
    est: Any = _chosen(data) if estimator is None else estimator() if isinstance(estimator, type) else estimator
    shape = np.shape(data.X)[1:]
    est, data = _laid_out(est, data)
    spec = est.spec
    numbers = {"nuisance"} & {spec.roles.y} | ({"signal"} & {spec.roles.y} if not spec.roles.categorical else set())
    for role in {"signal", "nuisance", "given", "groups"} & {*data.side_variables} - numbers:
        read_labels(role, getattr(data, role), len(data))  # by the name that the caller knows
    found = spec.plan(est, data, n_components)
    aside = [
        role for role in SIDES if role in data.side_variables and role not in (*spec.roles.used, *spec.roles.plan_only)
    ]
    shown = est.fitted_preprocessing(data.X).note
    notes = [f"before training {shown}"] if shown else []
    notes += [f"{role} is left aside: plan for it alone, too." for role in aside]
    audited = can_split(est, data)
    missing = () if audited.outcome == "holds" else (audited.why,)
    found = replace(found, needs=(*found.needs, *missing), notes=(*found.notes, *notes))
    return found if np.shape(data.X)[1:] == shape else _saying_so(found, shape)


def _laid_out(est: Any, data: Data) -> tuple[Any, Data]:
    """Return the estimator and data with rows as vectors, where it wants such."""
    if data.is_source or np.ndim(data.X) < 3 or est._reads(np.shape(data.X)[1:]):
        return est, data
    if "preprocess" not in est.get_params(deep=False):
        est._require_flat("X", np.shape(data.X), np.shape(data.X)[1:])
    est = clone(est).set_params(preprocess=preprocessing.whiten)
    return est, replace(data, X=np.reshape(data.X, (len(data), -1)))


def _saying_so(found: Plan, shape: tuple[int, ...]) -> Plan:
    """Return a plan whose call lays rows out as vectors, as the fit that it speaks of does."""
    asked = f"n_components={found.n_components}"
    call = found.estimator.replace(asked, f"{asked}, preprocess=preprocessing.whiten", 1)
    note = f"rows of shape {shape} are laid out as vectors: preprocess=preprocessing.whiten (from pindown.networks)."
    return replace(found, estimator=call, notes=(*found.notes, note))


def _chosen(data: Data) -> BaseEncoder:
    """Return what uses all side variables there are, or else the first that uses one of them."""
    kind = suited([role for role in SIDES if role in data.side_variables])
    return (kind or next(kind for kind in BUILT_IN if kind.spec.roles.y in data.side_variables))()
