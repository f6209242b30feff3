"""Whether features of a sparse dictionary fire at the samples at which the true features do."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csc_array

from pindown.errors import InputError
from pindown.metrics.arrays import check_same_samples
from pindown.metrics.dictionaries import Activations


def firing_f1(activations_hat: Activations, activations: Activations, matching: ArrayLike) -> float:
    r"""Return the F1 of the samples at which features fire, mean over the true features that fire at all.

    .. math:: F_1 = \frac{2\,|\hat S \cap S|}{|\hat S| + |S|}, \qquad S = \{i : z_{ij} \ne 0\}

    Blind to how strongly a feature fires. Features that fire as often, at unrelated samples, score about their
    frequency.

    Parameters
    ----------
    activations_hat, activations : array or sparse matrix of shape (n, k_hat), (n, k)
        Feature activations of the same samples.
    matching : array of shape (k,)
        The column of ``activations_hat`` for each of ``activations``, −1 where there is none, which counts as 0: that
        of `match_atoms`. Matched by atoms, and not by the activations themselves, the score does not choose its own
        best case.

    Examples
    --------
    >>> firing_f1([[1, 0], [1, 0], [0, 5]], [[0, 1], [0, 2], [3, 4]], [1, 0])
    0.9
    """
    hat, true = (csc_array(values, dtype=np.float64) != 0 for values in (activations_hat, activations))
    check_same_samples("activations_hat", range(hat.shape[0]), "activations", range(true.shape[0]))
    of = np.asarray(matching)
    if of.shape != true.shape[1:] or of.max(initial=-1) >= hat.shape[1]:
        expected = f"{true.shape[1]} columns of `activations_hat`, at most {hat.shape[1] - 1}"
        raise InputError("matching", f"`matching` must have {expected}, got {of.shape} up to {of.max(initial=-1)}.")
    counts = np.diff(true.indptr)
    if not (seen := counts > 0).any():
        raise InputError("activations", "no feature fires in these samples, so there is nothing to find. Give more.")
    matched = seen & (of >= 0)
    both = np.asarray(hat[:, of[matched]].multiply(true[:, matched]).astype(np.int64).sum(axis=0)).reshape(-1)
    total = np.diff(hat.indptr)[of[matched]] + counts[matched]
    return float((2 * both / total).sum() / seen.sum())
