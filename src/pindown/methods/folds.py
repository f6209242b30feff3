"""Codes of rows that a fit has seen, as if it had not: from refits on folds, brought into the frame of the fit."""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pindown import theory
from pindown.auditing.refits import latent_matrix, refitted
from pindown.data.data import Data, as_array
from pindown.data.labels import as_numbers, combined
from pindown.data.splits import assign_folds
from pindown.metrics import match_latents, procrustes
from pindown.theory import Indeterminacy

Matrix = NDArray[np.float64]

N_FOLDS = 4
"""Refits by default: each learns from three quarters of the rows."""

FEW = 10
"""Typical number of partners of one group, up to which they stay together."""


class OutOfFold(NamedTuple):
    """Codes of each row by a refit that has not seen it, and the number of its fold."""

    codes: Matrix  # (n, k)
    fold: NDArray[np.int64]  # (n,)


def out_of_fold(
    est: Any,
    X: Any,
    y: Any = None,
    *,
    given: Any = None,
    groups: Any = None,
    n_folds: int = N_FOLDS,
    random_state: int = 0,
) -> OutOfFold:
    """Return codes of rows that a fit has seen, each from a refit that has not.

    What an encoder is told of a row it can learn by heart: a label that was given and says nothing of the rows is then
    read off their codes by anyone. So rows are divided into folds, the estimator is refitted to all but one, and
    encodes that one. A refit's codes are brought into the frame of the fit by the map that its theorem leaves free (a
    rotation and a scale, an order with signs, or an affine map), found on rows that both have learned from.

    Parameters
    ----------
    est : estimator
        Fitted.
    X : array (n, …) or Data
        The observations it was fitted to; or these with all their side variables.
    y, given : array (n, …), optional
        Its side variables, as in ``est.fit``.
    groups : array (n,), optional
        Rows of one group are in one fold.
    n_folds : int
        Number of refits.
    random_state : int
        Of the division, and of the refits.

    Examples
    --------
    Classes that were tossed: the fit tells them from the rows that it has learned by heart, and from no others.

    >>> from pindown import Classify
    >>> from pindown.networks.spaces import Reals
    >>> from pindown.training import Trainer
    >>> rng = np.random.default_rng(0)
    >>> x, coin = rng.normal(size=(200, 20)), rng.integers(2, size=200)
    >>> line = {"space": Reals(), "vector_space": Reals(), "verbose": False, "trainer": Trainer(validation_fraction=0)}
    >>> classify = Classify(1, max_iter=100, random_state=0, **line).fit(x, coin)
    >>> codes, fold = out_of_fold(classify, x, coin, n_folds=2)
    >>> [bool(abs(np.corrcoef(z[:, 0], coin)[0, 1]) > 0.25) for z in (classify.transform(x), codes)]
    [True, False]
    """
    data = X if isinstance(X, Data) else Data(as_array(X), given=given, groups=groups, **_side(est, y))
    if isinstance(data.pairs, str):
        raise ValueError(
            "out_of_fold: partners are the next rows, which would be in other folds. Give an array of them, or groups."
        )
    fold = folds_of(data, n_folds, random_state)
    own = latent_matrix(est, data)
    codes = np.empty_like(own)
    # With what the fit has found, how long to train and whether to bend, which refits would look for in folds again.
    like = copy.copy(est).set_params(n_components=est.n_components_)
    free = theory.AFFINE if est.guarantee is None else est.guarantee.indeterminacy
    for k in range(int(fold.max()) + 1):
        learned, left = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        with warnings.catch_warnings(action="ignore"):  # the fit has warned already
            other = refitted(like, data.take(learned), seed=random_state + k)
        seen, new = (latent_matrix(other, data.take(rows)) for rows in (learned, left))
        codes[left] = carried(seen, own[learned], new, free)
    return OutOfFold(codes, fold)


def _side(est: Any, y: Any) -> dict[str, Any]:
    return {} if y is None or est.spec.roles.y is None else {est.spec.roles.y: y}


def folds_of(data: Data, n_folds: int, random_state: int = 0) -> NDArray[np.int64]:
    """Divide rows: groups, and partners, stay together; of others each combination of labels is divided evenly; (n,).

    Examples
    --------
    >>> fold = folds_of(Data(np.zeros((12, 1)), signal=["a", "b", "c"] * 4), 4)
    >>> sorted(fold[::3].tolist())
    [0, 1, 2, 3]
    >>> fold = folds_of(Data(np.zeros((6, 1)), groups=[1, 1, 2, 2, 3, 3]), 3)
    >>> bool((fold[::2] == fold[1::2]).all())
    True
    """
    rng = np.random.default_rng(random_state)
    units = data.groups
    if units is None and data.pairs is not None and np.ndim(data.pairs) == 1:
        partners = as_numbers(data.pairs)
        units = partners if np.median(np.bincount(partners)) <= FEW else None
    if units is None:
        return _checked(assign_folds(np.arange(len(data)), n_folds, rng, _kinds(data)), n_folds)
    return _checked(assign_folds(as_numbers(units), n_folds, rng), n_folds)


def _kinds(data: Data) -> NDArray[np.int64]:
    labels = [
        np.asarray(data.side_variables[role]) for role in ("signal", "nuisance", "given") if role in data.side_variables
    ]
    columns = [column for label in labels for column in np.atleast_2d(label.T)]
    few = [as_numbers(column) for column in columns if len(np.unique(as_numbers(column))) <= len(data) // 4]
    return combined(*few) if few else np.zeros(len(data), dtype=np.int64)


def _checked(fold: NDArray[np.int64], n_folds: int) -> NDArray[np.int64]:
    if n_folds < 2 or len(np.unique(fold)) < n_folds:
        raise ValueError(
            f"out_of_fold: {n_folds} folds cannot be made of these rows, or groups of rows. Ask for at least 2, and "
            "for no more than there are groups."
        )
    return fold


def carried(seen: Matrix, own: Matrix, new: Matrix, free: Indeterminacy) -> Matrix:
    """Return new codes of another fit in the frame of one's own, by the map that fits rows that both have encoded.

    Parameters
    ----------
    seen, own : array (n, k)
        Codes of the same rows by the other fit, and by one's own.
    new : array (m, k)
        Codes of others by the other fit.
    free : Indeterminacy
        What a theorem leaves open; where that is more than an affine map, an affine one is taken.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(50, 2))
    >>> found = carried(z[:, ::-1] * -2, z, z[:5, ::-1] * -2, theory.SCALED_PERMUTATION)
    >>> np.allclose(found, z[:5])
    True
    """
    if (seen.std(0) < 1e-9 * np.abs(seen).max(initial=1e-300)).any() or (own.std(0) == 0).any():
        return new  # a code that has died goes nowhere
    if free.within(theory.SCALED_PERMUTATION):
        order = match_latents(seen, own)
        seen, new = seen[:, order], new[:, order]
        slope = ((seen - seen.mean(0)) * (own - own.mean(0))).mean(0) / seen.var(0)
        return (new - seen.mean(0)) * slope + own.mean(0)
    if free.within(theory.ORTHOGONAL):
        found = procrustes(seen, own, held_out=False)
        return found.scale * new @ found.rotation + found.shift
    beside = np.column_stack([seen, np.ones(len(seen))])
    return np.column_stack([new, np.ones(len(new))]) @ np.linalg.lstsq(beside, own, rcond=None)[0]
