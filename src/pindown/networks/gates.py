"""Gates of a sparse autoencoder: values for `pindown.Sparse` that decide which features of a sample are active.

========================= ================================================== ================================
gate                      active features                                    sparsity is set by
========================= ================================================== ================================
`TopK`                    the k largest of each sample                       k
`BatchTopK`               k per sample on average over a batch               k
`Matryoshka`              the same, with nested reconstructions              k
`JumpReLU`                all above a learned threshold per feature          k, the target of the thresholds
`L1`                      all positive ones, with an L1 penalty              the weight of the penalty
========================= ================================================== ================================

No theorem covers them. What can be reported about their dictionaries is how well seeds agree, compared with chance.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.utils import check_scalar
from torch import Tensor, nn

from pindown.errors import InputError
from pindown.networks.sparse_sums import chosen, combined, scattered

__all__ = ["L1", "BatchTopK", "Gate", "JumpReLU", "Matryoshka", "TopK", "chosen", "combined", "scattered"]

MAX_DEFAULT_K, FEATURES_PER_ACTIVE = 32, 32
"""The default k: at most 32, and at most one active feature in 32."""

THRESHOLD_MOMENTUM = 0.99
"""Weight of the old value in the running mean of the BatchTopK threshold."""


class Gate(ABC):
    """Abstract gate: called with the number of features, it returns the module that is trained."""

    @abstractmethod
    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features, or raise."""


@dataclass(frozen=True)
class TopK(Gate):
    """The k largest features of each sample, if positive (Gao et al., 2024).

    Parameters
    ----------
    k : int or None
        Active features per sample. None takes 32, or 1/32 of the features if that is fewer.

    Examples
    --------
    >>> TopK(2)(8)(torch.tensor([[3.0, -1.0]]))
    tensor([[3., 0.]])
    """

    k: int | None = None

    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features."""
        return TopKModule(count(self, self.k, n_features))


@dataclass(frozen=True)
class BatchTopK(Gate):
    """The n·k largest features of a batch of n samples, at most 4 k of one sample (Bussmann et al., 2024).

    After training a threshold replaces the batch, so that the features of a sample do not depend on other samples.

    Parameters
    ----------
    k : int or None
        Mean number of active features per sample. None takes 32, or 1/32 of the features if that is fewer.
    """

    k: int | None = None

    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features."""
        k = count(self, self.k, n_features)
        return BatchTopKModule(k, min(4 * k, n_features))


@dataclass(frozen=True)
class Matryoshka(Gate):
    """`BatchTopK` with nested dictionaries: the first 1/16, 1/8, 1/4, 1/2 of the features reconstruct samples, too.

    General features are then found as a whole among the first ones. Without nesting, hierarchical features tend to be
    split into special cases to save activations (Bussmann et al., 2025).

    Parameters
    ----------
    k : int or None
        Mean number of active features per sample. None takes 32, or 1/32 of the features if that is fewer.
    shares : tuple of float
        Sizes of the nested dictionaries, as fractions of all features.
    """

    k: int | None = None
    shares: tuple[float, ...] = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)

    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features."""
        if not self.shares or not all(0 < share <= 1 for share in self.shares) or max(self.shares) < 1:
            raise InputError("shares", f"Matryoshka: `shares` must be in (0, 1] and include 1, got {self.shares}.")
        k = count(self, self.k, n_features)
        return BatchTopKModule(k, min(4 * k, n_features), tuple(self.shares))


@dataclass(frozen=True)
class JumpReLU(Gate):
    """Features above a threshold each, learned such that k per sample are active (Rajamanoharan et al., 2024).

    Parameters
    ----------
    k : int or None
        Mean number of active features per sample. None takes 32, or 1/32 of the features if that is fewer.
    bandwidth : float
        Width of the kernel that replaces the jump in gradients. The unit is the standard deviation of the scores of
        random directions.
    weight : float
        Penalty for a relative deviation of 1 from k, as a fraction of the variance of x.
    """

    k: int | None = None
    bandwidth: float = 1.0
    weight: float = 1.0

    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features."""
        for name in ("bandwidth", "weight"):
            _check_positive(self, name)
        return JumpReLUModule(count(self, self.k, n_features), n_features, self.bandwidth, self.weight)


@dataclass(frozen=True)
class L1(Gate):
    """All positive features, with an L1 penalty. It shrinks activations, and its weight has to be tuned.

    Parameters
    ----------
    weight : float
        Weight of the penalty. A feature pays off if it removes more than this from the squared norm of a sample, where
        the mean squared norm is the number of input dimensions.
    """

    weight: float = 2.0

    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features."""
        _check_positive(self, "weight")
        return L1Module(self.weight, max(1.0, min(MAX_DEFAULT_K, n_features / FEATURES_PER_ACTIVE)))


def count(gate: Any, k: int | None, n_features: int) -> int:
    """Return the number of active features per sample, or raise if there are not that many features.

    Examples
    --------
    >>> count(TopK(), None, 4_096), count(TopK(), None, 64), count(TopK(5), 5, 64)
    (32, 2, 5)
    """
    if k is None:
        return max(1, min(MAX_DEFAULT_K, n_features // FEATURES_PER_ACTIVE))
    check_scalar(k, f"{type(gate).__name__}: k", numbers.Integral, min_val=1)
    if k > n_features:
        raise InputError(
            "k",
            f"{type(gate).__name__}: `k={k}` is more than the {n_features} features. Take a smaller `k`, or a larger "
            "`n_components`.",
        )
    return int(k)


def _check_positive(gate: Gate, name: str) -> None:
    label = f"{type(gate).__name__}: {name}"
    check_scalar(getattr(gate, name), label, numbers.Real, min_val=0, include_boundaries="neither")


class GateModule(nn.Module, ABC):
    """Maps scores to feature activations, which are not negative.

    With ``n_candidates`` it gets the largest scores of each sample, (n, n_candidates). With None it gets all scores,
    (n, n_features).
    """

    n_candidates: int | None
    n_expected: float  # approximate number of active features per sample

    def levels(self, n_features: int) -> tuple[int, ...]:
        """Return the sizes of the nested dictionaries, each of which reconstructs the sample."""
        return (n_features,)

    def penalty(self, scores: Tensor, activations: Tensor, n_inputs: int) -> Tensor | None:
        """Return what is added to the fraction of unexplained variance; None for nothing."""
        return None

    @abstractmethod
    def forward(self, scores: Tensor) -> Tensor:
        """Return activations in the shape of the scores."""


class TopKModule(GateModule):
    """Keeps the k largest scores of each sample, if positive."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.n_candidates, self.n_expected = k, k

    def forward(self, scores: Tensor) -> Tensor:
        """Return activations."""
        return scores.relu()


class BatchTopKModule(GateModule):
    """Keeps k scores per sample on average over a batch; after training, those above the mean threshold of training."""

    threshold: Tensor

    def __init__(self, k: int, n_candidates: int, shares: tuple[float, ...] = (1.0,)) -> None:
        super().__init__()
        self.n_candidates, self.n_expected, self.k, self.shares = n_candidates, k, k, shares
        self.register_buffer("threshold", torch.zeros(()))

    def levels(self, n_features: int) -> tuple[int, ...]:
        """Return the sizes of the nested dictionaries, each of which reconstructs the sample."""
        return tuple(sorted({max(1, math.ceil(share * n_features)) for share in self.shares}))

    def forward(self, scores: Tensor) -> Tensor:
        """Return activations."""
        positive = scores.relu()
        if not self.training:
            return positive * (positive > self.threshold)
        least = positive.detach().reshape(-1).topk(len(scores) * self.k, sorted=False).values.min()
        with torch.no_grad():
            mean = THRESHOLD_MOMENTUM * self.threshold + (1 - THRESHOLD_MOMENTUM) * least
            self.threshold.copy_(torch.where(self.threshold > 0, mean, least))
        return positive * (positive >= least)


class L1Module(GateModule):
    """Keeps all positive scores, with an L1 penalty."""

    n_candidates = None

    def __init__(self, weight: float, n_expected: float) -> None:
        super().__init__()
        self.weight, self.n_expected = weight, n_expected

    def penalty(self, scores: Tensor, activations: Tensor, n_inputs: int) -> Tensor:
        """Return the weighted L1 norm."""
        return self.weight * activations.sum(1).mean() / n_inputs

    def forward(self, scores: Tensor) -> Tensor:
        """Return activations."""
        return scores.relu()


class JumpReLUModule(GateModule):
    """Keeps scores above a threshold per feature, which is learned such that k per sample are active on average."""

    n_candidates = None

    def __init__(self, k: int, n_features: int, bandwidth: float, weight: float) -> None:
        super().__init__()
        self.k, self.bandwidth, self.weight, self.n_expected = k, bandwidth, weight, k
        # At initialisation the scores of random directions are standard normal: k of them exceed this quantile.
        quantile = math.sqrt(2) * torch.erfinv(torch.tensor(1 - 2 * min(k / n_features, 0.49)))
        self.threshold = nn.Parameter(torch.full((n_features,), float(quantile)).clamp(min=bandwidth / 2))

    def penalty(self, scores: Tensor, activations: Tensor, n_inputs: int) -> Tensor:
        """Return the weighted squared relative deviation of the number of active features from k."""
        n_active = _Step.apply(scores, self.threshold, self.bandwidth).sum(1).mean()
        return self.weight * (n_active / self.k - 1).square()

    def forward(self, scores: Tensor) -> Tensor:
        """Return activations."""
        return _JumpReLU.apply(scores, self.threshold, self.bandwidth)


class _JumpReLU(torch.autograd.Function):
    """Scores above a threshold; scores within the bandwidth contribute to the gradient of the threshold."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, threshold: Tensor, bandwidth: float) -> Tensor:
        ctx.save_for_backward(scores, threshold)
        ctx.bandwidth = bandwidth
        return scores * (scores > threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scores, threshold = ctx.saved_tensors
        near = (scores - threshold).abs() < ctx.bandwidth / 2
        of_threshold = -(threshold / ctx.bandwidth) * (gradients[0] * near).sum(0)
        return gradients[0] * (scores > threshold), of_threshold, None


class _Step(torch.autograd.Function):
    """1 above a threshold and 0 below; the gradient of the threshold is that of a slope over the bandwidth."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, threshold: Tensor, bandwidth: float) -> Tensor:
        ctx.save_for_backward(scores, threshold)
        ctx.bandwidth = bandwidth
        return (scores > threshold).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scores, threshold = ctx.saved_tensors
        near = (scores - threshold).abs() < ctx.bandwidth / 2
        return None, -(gradients[0] * near).sum(0) / ctx.bandwidth, None
