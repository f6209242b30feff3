"""`DistributionMatcher`: the latents of all levels of a nuisance get one distribution, without pairs."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Mapping
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.methods.transport import SlicedTransport, matrix_power
from pindown.metrics.arrays import Matrix

Level = Hashable

N_KNOTS = 17  # quantiles along an axis; chosen on a recording of which nothing is reported
SAMPLES_PER_KNOT = 5  # samples of each level that a quantile needs


class DistributionMatcher(BaseEstimator):
    r"""Give the latents of all levels of a nuisance one distribution, with mean 0 and covariance I, without pairs.

    Latents of each level are whitened by the symmetric root of their covariance, which rotates them least. Then sliced
    optimal transport matches their quantiles along many axes (`pindown.methods.transport.SlicedTransport`). The maps
    are bijections close to linear ones, so the structure within a level stays. **The same distribution is not the same
    meaning**: latents that pairs have aligned stay aligned, and no others become so.

    Parameters
    ----------
    n_rounds : int
        Rounds of the transport. 0 whitens only.
    random_state : int, RandomState, Generator or None
        Seed of the axes.

    Attributes
    ----------
    levels_ : tuple
        The levels in ``fit``.
    n_features_in_ : int
        Number of latents.

    References
    ----------
    Pitié, Kokaram and Dahyot, Automated colour grading using colour distribution transfer, CVIU 2007.

    Examples
    --------
    Uniform and normal latents with one covariance differ in their tails, until their distributions are matched:

    >>> rng = np.random.default_rng(0)
    >>> latents = {"Panda": rng.uniform(-1, 1, size=(2_000, 2)), "UR5e": rng.normal(size=(2_000, 2))}
    >>> both = [DistributionMatcher(n, random_state=0).fit(latents).transform(latents) for n in (0, 80)]
    >>> tails = [{robot: (abs(z) > 1.7).mean() for robot, z in each.items()} for each in both]
    >>> [abs(float(tail["Panda"] - tail["UR5e"])) < 0.02 for tail in tails]
    [False, True]
    """

    def __init__(self, n_rounds: int = 80, *, random_state: RandomState = None) -> None:
        self.n_rounds = n_rounds
        self.random_state = random_state

    def fit(self, latents: Mapping[Level, ArrayLike], y: None = None) -> Self:
        """Fit the maps to latents (n, d) of each level."""
        check_scalar(self.n_rounds, "n_rounds", numbers.Integral, min_val=0)
        parts = _by_level(latents)
        if len(parts) < 2:
            raise InputError("latents", "DistributionMatcher: `latents` must have at least two levels.")
        self.n_features_in_ = next(iter(parts.values())).shape[1]
        self.levels_ = tuple(parts)
        least = max(SAMPLES_PER_KNOT * N_KNOTS, 2 * self.n_features_in_)
        for level, part in parts.items():
            self._check(level, part)
            if len(part) < least or not part.std(0).all():
                message = f"DistributionMatcher: {level} must have {least} samples, and no constant latent."
                raise InputError("latents", message)
        self.means_ = [part.mean(0) for part in parts.values()]
        self.whitening_ = [matrix_power(np.atleast_2d(np.cov(part.T)), -0.5) for part in parts.values()]
        z, level_numbers = self._whitened(parts), self._numbers(parts)
        self.transport_ = SlicedTransport.fitted(
            z, level_numbers, generator(self.random_state), n_rounds=self.n_rounds, n_knots=N_KNOTS, min_samples=0
        )
        return self

    def transform(self, latents: Mapping[Level, ArrayLike]) -> dict[Level, Matrix]:
        """Return latents of levels that occurred in ``fit``, with matched distributions."""
        parts = self._known(latents)
        return _split(self.transport_(self._whitened(parts), self._numbers(parts)), parts)

    def inverse_transform(self, latents: Mapping[Level, ArrayLike]) -> dict[Level, Matrix]:
        """Return the latents that `transform` maps to these."""
        parts = self._known(latents)
        white = _split(self.transport_.inverse(np.concatenate([*parts.values()]), self._numbers(parts)), parts)
        maps = ((self.whitening_[k], self.means_[k]) for k in map(self.levels_.index, parts))
        return {
            level: np.linalg.solve(whitening, part.T).T + mean
            for (level, part), (whitening, mean) in zip(white.items(), maps, strict=True)
        }

    def _known(self, latents: Mapping[Level, ArrayLike]) -> dict[Level, Matrix]:
        check_is_fitted(self)
        parts = _by_level(latents)
        for level, part in parts.items():
            self._check(level, part)
        return parts

    def _check(self, level: Level, part: Matrix) -> None:
        if level not in self.levels_:
            known = ", ".join(map(str, self.levels_))
            raise InputError("latents", f"DistributionMatcher: {level} did not occur in `fit`, only {known}.")
        if part.shape[1] != self.n_features_in_:
            message = f"DistributionMatcher: {level} has {part.shape[1]} latents, but must have {self.n_features_in_}."
            raise InputError("latents", message)

    def _whitened(self, parts: Mapping[Level, Matrix]) -> Tensor:
        numbers = map(self.levels_.index, parts)
        white = [(part - self.means_[k]) @ self.whitening_[k] for k, part in zip(numbers, parts.values(), strict=True)]
        return torch.as_tensor(np.concatenate(white))

    def _numbers(self, parts: Mapping[Level, Matrix]) -> Tensor:
        return torch.cat([torch.full((len(part),), self.levels_.index(level)) for level, part in parts.items()])


def _by_level(latents: Mapping[Level, ArrayLike]) -> dict[Level, Matrix]:
    if not isinstance(latents, Mapping):
        message = f"`latents` must map each level of the nuisance to an array, got {type(latents).__name__}"
        raise TypeError(f"DistributionMatcher: {message}.")
    return {level: check_array(part, dtype=np.float64, input_name=f"{level}") for level, part in latents.items()}


def _split(samples: Tensor, parts: Mapping[Level, Matrix]) -> dict[Level, Matrix]:
    """Return samples of all levels as a mapping from level, with as many of each as in ``parts``."""
    return dict(zip(parts, np.split(samples.numpy(), np.cumsum([len(p) for p in parts.values()])[:-1]), strict=True))
