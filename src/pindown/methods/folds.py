"""Latents of training samples from refits that have not seen them, aligned to the fit."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown import theory
from pindown.auditing.refits import latent_matrix, refitted
from pindown.data.data import Data, as_array
from pindown.data.labels import as_numbers, combined
from pindown.data.splits import assign_folds
from pindown.methods.base import BaseEncoder
from pindown.metrics import match_latents, procrustes
from pindown.metrics.arrays import Matrix
from pindown.theory import Indeterminacy

N_FOLDS, FEW = 4, 10
"""Default number of refits; groups of positives of at most this median size are kept in one fold."""


class OutOfFold(NamedTuple):
    """Latents of each sample by a refit that has not seen it, and the number of its fold."""

    latents: Matrix  # (n, k)
    fold: NDArray[np.int64]  # (n,)


def out_of_fold(
    est: BaseEncoder,
    X: ArrayLike | Data,
    y: ArrayLike | None = None,
    *,
    given: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    n_folds: int = N_FOLDS,
    random_state: int = 0,
) -> OutOfFold:
    """Return latents of training samples, each from a refit that has not seen the sample.

    An encoder can memorise the side variable of its training samples: even a random label can then be predicted from
    their latents. So the samples are split into folds, the estimator is fitted again without each fold, and encodes it.
    The latents of a refit are mapped to those of the fit by what the theorem leaves free (a rotation and a scale, a
    signed permutation, or an affine map), estimated on samples that both have learned from.

    Parameters
    ----------
    est : estimator
        Fitted.
    X : array (n, …) or Data
        The observations that it was fitted to; or these with all their side variables.
    y, given : array (n, …), optional
        Side variables, as in ``est.fit``.
    groups : array (n,), optional
        Samples of one group are in one fold.
    n_folds : int
        Number of refits.
    random_state : int
        Seed of the folds and of the refits.

    Examples
    --------
    A random label can be predicted from latents of training samples, but not from these:

    >>> from pindown import Classify
    >>> from pindown.networks.spaces import Reals
    >>> from pindown.training import Trainer
    >>> rng = np.random.default_rng(0)
    >>> x, coin = rng.normal(size=(200, 20)), rng.integers(2, size=200)
    >>> line = {"space": Reals(), "vector_space": Reals(), "verbose": False, "trainer": Trainer(validation_fraction=0)}
    >>> classify = Classify(1, max_iter=100, random_state=0, **line).fit(x, coin)
    >>> latents, fold = out_of_fold(classify, x, coin, n_folds=2)
    >>> [bool(abs(np.corrcoef(z[:, 0], coin)[0, 1]) > 0.25) for z in (classify.transform(x), latents)]
    [True, False]
    """
    side: dict[str, Any] = {} if y is None or est.spec.roles.y is None else {est.spec.roles.y: y}
    data = X if isinstance(X, Data) else Data(as_array(X), given=given, groups=groups, **side)
    if isinstance(data.pairs, str):
        raise ValueError("out_of_fold: with pairs='next' positives would be in other folds. Give them, or groups.")
    fold = folds_of(data, n_folds, random_state)
    own = latent_matrix(est, data)
    latents = np.empty_like(own)
    free = theory.AFFINE if est.guarantee is None else est.guarantee.indeterminacy
    for k in range(int(fold.max()) + 1):
        learned, left_out = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        with warnings.catch_warnings(action="ignore"):  # the fit has warned already
            refit = refitted(est, data.take(learned), seed=random_state + k)
        known, new = (latent_matrix(refit, data.take(rows)) for rows in (learned, left_out))
        latents[left_out] = aligned(known, own[learned], new, free)
    return OutOfFold(latents, fold)


def folds_of(data: Data, n_folds: int, random_state: int = 0) -> NDArray[np.int64]:
    """Return the fold of each sample: groups and positives stay together, combinations of labels are split evenly."""
    groups, strata = None if data.groups is None else as_numbers(data.groups), None
    if groups is None and data.pairs is not None and np.ndim(data.pairs) == 1:
        positives = as_numbers(data.pairs)
        groups = positives if np.median(np.bincount(positives)) <= FEW else None
    if groups is None:
        labels = [data.side_variables.get(role) for role in ("signal", "nuisance", "given")]
        columns = [as_numbers(one) for each in labels if each is not None for one in np.atleast_2d(np.asarray(each).T)]
        few = [column for column in columns if len(np.unique(column)) <= len(data) // 4]
        groups, strata = np.arange(len(data)), combined(*few) if few else np.zeros(len(data), dtype=np.int64)
    fold = assign_folds(groups, n_folds, np.random.default_rng(random_state), strata)
    if n_folds < 2 or len(np.unique(fold)) < n_folds:
        raise ValueError(f"out_of_fold: n_folds must be at least 2 and at most the number of groups, got {n_folds}.")
    return fold


def aligned(known: Matrix, own: Matrix, new: Matrix, free: Indeterminacy) -> Matrix:
    """Return ``new`` latents of a refit in the frame of the fit, given what both make of the same other samples.

    The map is what the theorem leaves ``free``; if that is more than an affine map, it is an affine map. It is so, too,
    if fewer samples support fewer latents.
    """
    if (known.std(0) < 1e-9 * np.abs(known).max(initial=1e-300)).any() or (own.std(0) == 0).any():
        return new  # a collapsed latent cannot be aligned
    alike = known.shape == own.shape
    if alike and free.within(theory.SCALED_PERMUTATION):
        order = match_latents(known, own)
        known, new = known[:, order], new[:, order]
        slope = ((known - known.mean(0)) * (own - own.mean(0))).mean(0) / known.var(0)
        return (new - known.mean(0)) * slope + own.mean(0)
    if alike and free.within(theory.ORTHOGONAL):
        found = procrustes(known, own, held_out=False)
        return found.scale * new @ found.rotation + found.shift
    design = np.column_stack([known, np.ones(len(known))])
    return np.column_stack([new, np.ones(len(new))]) @ np.linalg.lstsq(design, own, rcond=None)[0]
