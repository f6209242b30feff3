"""What `Forget` must earn its place against: closed-form erasers of a nuisance, with the same ``fit(X, y)``.

All of them look at means alone, or at means and variances; none needs training. Where a nuisance only moves things,
they do as well as anything: start here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from pindown.data.data import from_torch
from pindown.methods.forget.nuisance import Nuisance, as_table, assemble, read_columns
from pindown.metrics.dependence import Grouping, complement, mean_differences
from pindown.saving import Saves


class _Eraser(Saves, BaseEstimator, ABC):
    """Reads X and y; a final class says what to learn of them."""

    @abstractmethod
    def _learn(self, X: np.ndarray, nuisance: Nuisance) -> None:
        """Store what was learned."""

    def fit(self, X, y=None) -> Self:
        """Learn what to remove: X of shape (n_samples, n_features), y the nuisance, labels in one column or several."""
        X = self._validated(X, reset=True)
        columns, self.columns_ = read_columns(from_torch(y), len(X), None)
        self._learn(X, assemble(columns, self.columns_, np.zeros(len(X), dtype=np.int64)))
        return self

    def _validated(self, X, *, reset: bool) -> np.ndarray:
        return validate_data(
            self, from_torch(X), reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=2 if reset else 1
        )

    def __sklearn_tags__(self):
        """Say what scikit-learn may expect."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class _Projection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Eraser):
    """An eraser whose code is M (x − mean), with orthonormal rows M in ``components_``."""

    components_: np.ndarray
    mean_: np.ndarray

    def transform(self, X) -> np.ndarray:
        """Project observations."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        return ((X - self.mean_) @ self.components_.T).astype(X.dtype)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


class MeanProjection(_Projection):
    r"""Project off the differences of the means of all nuisance values: the closed form of anti-diversity.

    Under vMF clusters :math:`E[\tilde a \mid e] = A_d(\kappa)\, v_e`, so that the differences of means span V, and the
    orthonormal rows M of its complement are the best linear code. What values differ in besides means stays.

    Attributes
    ----------
    components_ : ndarray of shape (n_features − dim V, n_features)
        The rows of M; one at least.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=1000)
    >>> X = rng.normal(size=(1000, 3)) + e[:, None] * [5, 0, 0]
    >>> MeanProjection().fit(X, e).components_.shape
    (2, 3)
    """

    def _learn(self, X: np.ndarray, nuisance: Nuisance) -> None:
        self.mean_ = X.mean(0, dtype=np.float64)
        told = np.zeros((0, X.shape[1]))
        for grouping in nuisance.groupings():
            rest = complement(told)
            # Every difference counts, noise or not: a level of 1 rejects no direction.
            told = np.vstack([told, mean_differences((X - self.mean_) @ rest.T, grouping, level=1.0) @ rest])
        self.components_ = complement(told[: X.shape[1] - 1])


class ComponentRemoval(_Projection):
    r"""Drop the principal components that tell most of the nuisance, as is often done with batches of expression data.

    A component tells :math:`\eta^2`, the share of its variance that lies between the values of e.

    Parameters
    ----------
    n_removed : int or None
        Components to drop; None takes the number of values less one. One component at least stays.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=1000)
    >>> X = rng.normal(size=(1000, 3)) + e[:, None] * [5, 0, 0]
    >>> ComponentRemoval().fit(X, e).components_.shape
    (2, 3)
    """

    def __init__(self, n_removed: int | None = None) -> None:
        self.n_removed = n_removed

    def _learn(self, X: np.ndarray, nuisance: Nuisance) -> None:
        self.mean_ = X.mean(0, dtype=np.float64)
        components = np.linalg.svd(X - self.mean_, full_matrices=False)[2]
        codes = (X - self.mean_) @ components.T
        tells = np.max([_between(codes, grouping) for grouping in nuisance.groupings()], axis=0)
        n_removed = sum(nuisance.sizes[: len(self.columns_)]) - len(self.columns_)
        n_removed = min(self.n_removed or n_removed, len(components) - 1)
        self.components_ = components[np.sort(np.argsort(tells)[: len(components) - n_removed])]


class Untouched(OneToOneFeatureMixin, TransformerMixin, _Eraser):
    """No eraser: X as it is. The level that the others are to be compared with.

    Examples
    --------
    >>> Untouched().fit_transform([[1.0], [2.0], [1.0], [2.0], [3.0], [1.0]], [0, 0, 0, 1, 1, 1]).ravel().tolist()
    [1.0, 2.0, 1.0, 2.0, 3.0, 1.0]
    """

    def _learn(self, X: np.ndarray, nuisance: Nuisance) -> None:
        """Nothing to learn."""

    def transform(self, X) -> np.ndarray:
        """Return X."""
        check_is_fitted(self)
        return self._validated(X, reset=False)


class Leace(OneToOneFeatureMixin, TransformerMixin, _Eraser):
    """Least-squares concept erasure: the smallest change of X after which no linear reader does better than chance.

    Needs the package ``concept-erasure``: ``pip install 'pindown[erasure]'``. Belrose et al., LEACE: perfect linear
    concept erasure in closed form, NeurIPS 2023.
    """

    def _learn(self, X: np.ndarray, nuisance: Nuisance) -> None:
        try:
            from concept_erasure import LeaceEraser
        except ImportError as error:
            raise ImportError(
                f"Leace needs the package concept-erasure, which cannot be imported here ({error}). "
                "Install it with: pip install 'pindown[erasure]'. MeanProjection needs nothing, and hides the same."
            ) from error
        shown = np.hstack([np.eye(size)[g] for size, g in zip(nuisance.sizes, nuisance.groups.T, strict=True)])
        self.eraser_ = LeaceEraser.fit(torch.as_tensor(X).double(), torch.as_tensor(shown))

    def transform(self, X) -> np.ndarray:
        """Erase."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        return self.eraser_(torch.as_tensor(X).double()).numpy().astype(X.dtype)


class PerValueStandardiser(_Eraser):
    """Take off each nuisance value's own mean, and divide by its own spread: per-domain standardisation.

    Cheap and strong where all values see the same mixture of everything else. It must be told the nuisance of every row
    it transforms, so it is no scikit-learn transformer, and says nothing of rows from a value it has not met.

    Examples
    --------
    >>> X, e = np.array([[1.0], [3.0], [2.0], [10.0], [30.0], [20.0]]), np.array([0, 0, 0, 1, 1, 1])
    >>> PerValueStandardiser().fit(X, e).transform(X, e).round(2).ravel().tolist()
    [-1.22, 1.22, 0.0, -1.22, 1.22, 0.0]
    """

    def _learn(self, X: np.ndarray, nuisance: Nuisance) -> None:
        if len(self.columns_) > 1:
            raise ValueError(f"PerValueStandardiser: y has {len(self.columns_)} columns. Join them into one label.")
        group = nuisance.groups[:, 0]
        parts = [X[group == value].astype(np.float64) for value in range(nuisance.sizes[0])]
        self.means_ = np.stack([part.mean(0) for part in parts])
        spread = np.stack([part.std(0) for part in parts])
        self.scales_ = np.where(spread > 0, spread, 1.0)

    def transform(self, X, y) -> np.ndarray:
        """Standardise each row by the mean and spread of its nuisance value."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        group = self.columns_[0].numbers(as_table(from_torch(y), len(X))[:, 0])
        return ((X - self.means_[group]) / self.scales_[group]).astype(X.dtype)

    def fit_transform(self, X, y) -> np.ndarray:
        """Fit, and transform the same rows."""
        return self.fit(X, y).transform(X, y)


def _between(codes: np.ndarray, grouping: Grouping) -> Any:
    """Return η² of each column: the share of its variance that lies between groups."""
    used, cell, _ = grouping.cells()
    codes = codes[used]
    total = codes.var(0) * len(codes)
    means = np.stack([codes[cell == value].mean(0) for value in range(cell.max() + 1)])
    return ((means[cell] - codes.mean(0)) ** 2).sum(0) / np.where(total > 0, total, 1.0)
