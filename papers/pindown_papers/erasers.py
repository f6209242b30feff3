"""Erasers of a nuisance in closed form that tables compare `Forget` with, all with ``fit(X, y)``.

All of them use means alone, or means and variances; see also `pindown.methods.forget.LinearErasure`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from pindown.data.data import from_torch
from pindown.methods.forget.nuisance import NuisanceTable, as_table, assemble, read_columns
from pindown.metrics.dependence import Grouping
from pindown.saving import Saves


class _Eraser(Saves, BaseEstimator, ABC):
    """Reads X and y; a final class says what to learn of them."""

    @abstractmethod
    def _learn(self, X: np.ndarray, nuisance: NuisanceTable) -> None:
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
    """An eraser with latents M (x − mean), with orthonormal rows M in ``components_``."""

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


class ComponentRemoval(_Projection):
    r"""Drop the principal components that depend most on the nuisance, as many do with batches of expression.

    They are ranked by :math:`\eta^2`, the fraction of their variance that lies between the levels of e.

    Parameters
    ----------
    n_removed : int or None
        Components to drop; None takes the number of levels less one. One component at least stays.

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

    def _learn(self, X: np.ndarray, nuisance: NuisanceTable) -> None:
        self.mean_ = X.mean(0, dtype=np.float64)
        components = np.linalg.svd(X - self.mean_, full_matrices=False)[2]
        latents = (X - self.mean_) @ components.T
        eta = np.max([_between(latents, grouping) for grouping in nuisance.groupings()], axis=0)
        n_removed = sum(nuisance.sizes[: len(self.columns_)]) - len(self.columns_)
        n_removed = min(self.n_removed or n_removed, len(components) - 1)
        self.components_ = components[np.sort(np.argsort(eta)[: len(components) - n_removed])]


class Untouched(OneToOneFeatureMixin, TransformerMixin, _Eraser):
    """No eraser: X as it is, to compare the others with.

    Examples
    --------
    >>> Untouched().fit_transform([[1.0], [2.0], [1.0], [2.0], [3.0], [1.0]], [0, 0, 0, 1, 1, 1]).ravel().tolist()
    [1.0, 2.0, 1.0, 2.0, 3.0, 1.0]
    """

    def _learn(self, X: np.ndarray, nuisance: NuisanceTable) -> None:
        """Nothing to learn."""

    def transform(self, X) -> np.ndarray:
        """Return X."""
        check_is_fitted(self)
        return self._validated(X, reset=False)


class Leace(OneToOneFeatureMixin, TransformerMixin, _Eraser):
    """Least-squares concept erasure: the smallest change of X after which no linear probe does better than chance.

    Needs the package ``concept-erasure``: ``pip install 'pindown[erasure]'``. Belrose et al., LEACE: perfect linear
    concept erasure in closed form, NeurIPS 2023.
    """

    def _learn(self, X: np.ndarray, nuisance: NuisanceTable) -> None:
        try:
            from concept_erasure import LeaceEraser
        except ImportError as error:
            raise ImportError(
                f"Leace needs the package concept-erasure, which cannot be imported here ({error}). "
                "Install it with: pip install 'pindown[erasure]'. LinearErasure needs nothing, and removes the same."
            ) from error
        shown = np.hstack([np.eye(size)[g] for size, g in zip(nuisance.sizes, nuisance.groups.T, strict=True)])
        self.eraser_ = LeaceEraser.fit(torch.as_tensor(X).double(), torch.as_tensor(shown))

    def transform(self, X) -> np.ndarray:
        """Erase."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        return self.eraser_(torch.as_tensor(X).double()).numpy().astype(X.dtype)


class PerValueStandardiser(_Eraser):
    """Standardise the samples of each level by their own mean and spread.

    Cheap and strong where all levels have the same composition. It needs the nuisance of every sample it transforms, so
    that it is no scikit-learn transformer, and cannot transform samples of a level that was not in `fit`.

    Examples
    --------
    >>> X, e = np.array([[1.0], [3.0], [2.0], [10.0], [30.0], [20.0]]), np.array([0, 0, 0, 1, 1, 1])
    >>> PerValueStandardiser().fit(X, e).transform(X, e).round(2).ravel().tolist()
    [-1.22, 1.22, 0.0, -1.22, 1.22, 0.0]
    """

    def _learn(self, X: np.ndarray, nuisance: NuisanceTable) -> None:
        if len(self.columns_) > 1:
            raise ValueError(f"PerValueStandardiser: y has {len(self.columns_)} columns. Join them into one label.")
        group = nuisance.groups[:, 0]
        parts = [X[group == value].astype(np.float64) for value in range(nuisance.sizes[0])]
        self.means_ = np.stack([part.mean(0) for part in parts])
        spread = np.stack([part.std(0) for part in parts])
        self.scales_ = np.where(spread > 0, spread, 1.0)

    def transform(self, X, y) -> np.ndarray:
        """Standardise each sample by the mean and spread of its level."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        group = self.columns_[0].numbers(as_table(from_torch(y), len(X))[:, 0])
        return ((X - self.means_[group]) / self.scales_[group]).astype(X.dtype)

    def fit_transform(self, X, y) -> np.ndarray:
        """Fit, and transform the same samples."""
        return self.fit(X, y).transform(X, y)


def _between(latents: np.ndarray, grouping: Grouping) -> Any:
    """Return η² of each feature: the fraction of its variance that lies between groups."""
    used, cell, _ = grouping.cells()
    latents = latents[used]
    total = latents.var(0) * len(latents)
    means = np.stack([latents[cell == value].mean(0) for value in range(cell.max() + 1)])
    return ((means[cell] - latents.mean(0)) ** 2).sum(0) / np.where(total > 0, total, 1.0)
