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

No theorem covers them. What can be reported is how well the dictionaries of several seeds agree, compared with chance.

The active features of a sample have ``indices`` (n, c) and ``values`` (n, c). `chosen` finds them block by block,
`combined` sums their atoms, and `scattered` is its transpose and the gradient of both. None forms a samples × features
matrix, and all sum by `torch.nn.functional.embedding_bag` in a fixed order, so that results repeat exactly.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from pindown.errors import InputError

MAX_DEFAULT_K, FEATURES_PER_ACTIVE = 32, 32  # the default k: at most 32, and at most one active feature in 32
THRESHOLD_MOMENTUM = 0.99  # weight of the old value in the running mean of the BatchTopK threshold
AT_ONCE = 1 << 24  # scores, samples × features, in a block


class Gate(ABC):
    """Abstract gate: called with the number of features, it returns the module that is trained."""

    @abstractmethod
    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features, or raise."""


@dataclass(frozen=True)
class _CountGate(Gate):
    """A gate that lets k features of a sample through."""

    k: int | None = None

    def count(self, n_features: int) -> int:
        """Return k, or raise if there are not that many features."""
        if self.k is None:
            return max(1, min(MAX_DEFAULT_K, n_features // FEATURES_PER_ACTIVE))
        name = type(self).__name__
        if isinstance(self.k, bool) or not isinstance(self.k, numbers.Integral):
            raise TypeError(f"{name}: `k` must be an integer, got {self.k!r}.")
        if not 1 <= self.k <= n_features:
            raise InputError("k", f"{name}: `k={self.k}` must be at least 1 and at most the {n_features} features.")
        return int(self.k)


@dataclass(frozen=True)
class TopK(_CountGate):
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

    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features."""
        return TopKModule(self.count(n_features))


@dataclass(frozen=True)
class BatchTopK(_CountGate):
    """The n·k largest features of a batch of n samples, at most 4 k of one sample (Bussmann et al., 2024).

    After training a threshold replaces the batch, so that the features of a sample do not depend on other samples.

    Parameters
    ----------
    k : int or None
        Mean number of active features per sample. None takes 32, or 1/32 of the features if that is fewer.
    """

    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features."""
        k = self.count(n_features)
        return BatchTopKModule(k, min(4 * k, n_features))


@dataclass(frozen=True)
class Matryoshka(_CountGate):
    """`BatchTopK` with nested dictionaries: the first 1/16, 1/8, 1/4, 1/2 of the features reconstruct samples, too.

    General features are then found as a whole among the first ones. Without nesting, hierarchical features tend to be
    split into special cases to save activations (Bussmann et al., 2025).

    Parameters
    ----------
    k : int or None
        As in `BatchTopK`.
    fractions : tuple of float
        Sizes of the nested dictionaries, as fractions of all features.
    """

    fractions: tuple[float, ...] = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)

    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features."""
        if not self.fractions or not all(0 < f <= 1 for f in self.fractions) or max(self.fractions) < 1:
            raise InputError(
                "fractions", f"Matryoshka: `fractions` must be in (0, 1] and include 1, got {self.fractions}."
            )
        k = self.count(n_features)
        return BatchTopKModule(k, min(4 * k, n_features), tuple(self.fractions))


@dataclass(frozen=True)
class JumpReLU(_CountGate):
    """Features above a threshold each, learned such that k per sample are active (Rajamanoharan et al., 2024).

    Parameters
    ----------
    k : int or None
        As in `BatchTopK`.
    bandwidth : float
        Width of the kernel that replaces the jump in gradients. The unit is the standard deviation of the scores of
        random directions.
    weight : float
        Penalty for a relative deviation of 1 from k, as a fraction of the variance of x.
    """

    bandwidth: float = 1.0
    weight: float = 1.0

    def __call__(self, n_features: int) -> GateModule:
        """Return the module for this many features."""
        _check_positive(self, "bandwidth", "weight")
        return JumpReLUModule(self.count(n_features), n_features, self.bandwidth, self.weight)


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


def _check_positive(gate: Gate, *names: str) -> None:
    for name in names:
        if not getattr(gate, name) > 0:
            raise InputError(name, f"{type(gate).__name__}: `{name}` must be positive, got {getattr(gate, name)}.")


class GateModule(nn.Module, ABC):
    """Abstract module that maps scores to feature activations, which are not negative."""

    n_candidates: int | None  # scores that it gets of each sample, the largest; None for all
    n_expected: float  # approximate number of active features per sample

    def levels(self, n_features: int) -> tuple[int, ...]:
        """Return the sizes of the nested dictionaries, each of which reconstructs the sample."""
        return (n_features,)

    def penalty(self, scores: Tensor, activations: Tensor, n_inputs: int) -> Tensor | None:
        """Return what is added to the fraction of unexplained variance; None for nothing."""
        return None

    def forward(self, scores: Tensor) -> Tensor:
        """Return activations in the shape of the scores."""
        return scores.relu()


class TopKModule(GateModule):
    """Keeps the k largest scores of each sample, if positive."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.n_candidates, self.n_expected = k, k


class BatchTopKModule(GateModule):
    """Keeps k scores per sample on average over a batch; after training, those above the mean threshold of training."""

    threshold: Tensor

    def __init__(self, k: int, n_candidates: int, fractions: tuple[float, ...] = (1.0,)) -> None:
        super().__init__()
        self.n_candidates, self.n_expected, self.k, self.fractions = n_candidates, k, k, fractions
        self.register_buffer("threshold", torch.zeros(()))

    def levels(self, n_features: int) -> tuple[int, ...]:
        """Return the sizes of the nested dictionaries."""
        return tuple(sorted({max(1, math.ceil(fraction * n_features)) for fraction in self.fractions}))

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


class JumpReLUModule(GateModule):
    """Keeps scores above a threshold per feature, which is learned such that k per sample are active on average.

    A jump has no derivative: the gradient of the threshold is that of a slope over the bandwidth.
    """

    n_candidates = None

    def __init__(self, k: int, n_features: int, bandwidth: float, weight: float) -> None:
        super().__init__()
        self.k, self.bandwidth, self.weight, self.n_expected = k, bandwidth, weight, k
        # At initialisation the scores of random directions are standard normal: k of them exceed this quantile.
        quantile = math.sqrt(2) * torch.erfinv(torch.tensor(1 - 2 * min(k / n_features, 0.49)))
        self.threshold = nn.Parameter(torch.full((n_features,), float(quantile)).clamp(min=bandwidth / 2))

    def penalty(self, scores: Tensor, activations: Tensor, n_inputs: int) -> Tensor:
        """Return the weighted squared relative deviation of the number of active features from k."""
        fires = (scores > self.threshold).to(scores.dtype) + self._slope(scores, 1 / self.bandwidth)
        return self.weight * (fires.sum(1).mean() / self.k - 1).square()

    def forward(self, scores: Tensor) -> Tensor:
        """Return activations."""
        return scores * (scores > self.threshold) + self._slope(scores, self.threshold.detach() / self.bandwidth)

    def _slope(self, scores: Tensor, slope: Tensor | float) -> Tensor:
        """Return zeros whose derivative in the threshold is minus the slope, for scores within the bandwidth."""
        near = (scores.detach() - self.threshold.detach()).abs() < self.bandwidth / 2
        return near * (slope * (self.threshold.detach() - self.threshold))


def chosen(x: Tensor, weight: Tensor, bias: Tensor, n_chosen: int) -> tuple[Tensor, Tensor]:
    r"""Return the largest entries of each row of :math:`x W^\top + b`, and their indices; (n, c) each.

    Differentiable with respect to x, W and b, in bounded memory.
    """
    return _Chosen.apply(x, weight, bias, n_chosen)


def combined(values: Tensor, indices: Tensor, atoms: Tensor) -> Tensor:
    r"""Return :math:`\sum_j v_{ij}\, d_{\pi(i, j)}` for each sample i; (n, c), (n, c) and (k, m) → (n, m)."""
    return _Combined.apply(values, indices, atoms)


def scattered(values: Tensor, indices: Tensor, rows: Tensor, n_features: int) -> Tensor:
    r"""Return :math:`\sum_{ij : \pi(i, j) = k} v_{ij}\, r_i` for each feature k; (n, c), (n, c) and (n, m) → (k, m)."""
    flat = indices.reshape(-1)
    order = flat.argsort(stable=True)
    first = torch.searchsorted(flat[order], torch.arange(n_features, device=flat.device))
    row = torch.div(order, indices.shape[1], rounding_mode="floor")
    return embedding_bag(row, rows, first, mode="sum", per_sample_weights=values.reshape(-1)[order])


class _Chosen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, n_chosen: int) -> tuple[Tensor, Tensor]:
        parts = []
        for rows in x.split(max(1, AT_ONCE // len(weight))):
            scores = torch.addmm(bias.to(rows.dtype), rows, weight.T)
            parts.append(scores.topk(n_chosen, dim=1, sorted=False))
        values = torch.cat([part.values for part in parts]).to(weight.dtype)  # they may be bfloat16
        indices = torch.cat([part.indices for part in parts])
        ctx.save_for_backward(x, weight, indices)
        ctx.mark_non_differentiable(indices)
        return values, indices

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0]
        x, weight, indices = ctx.saved_tensors
        of_x = combined(gradient, indices, weight) if ctx.needs_input_grad[0] else None
        of_bias = scattered(gradient, indices, x.new_ones(len(x), 1), len(weight))[:, 0]
        return of_x, scattered(gradient, indices, x, len(weight)), of_bias, None


class _Combined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, indices: Tensor, atoms: Tensor) -> Tensor:
        ctx.save_for_backward(values, indices, atoms)
        return embedding_bag(indices, atoms, per_sample_weights=values, mode="sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, indices, atoms = ctx.saved_tensors
        of_values = None
        if ctx.needs_input_grad[0]:
            with torch.enable_grad():  # torch's gradient of the weights needs no (n, c, m)
                weights = values.detach().requires_grad_()
                again = embedding_bag(indices, atoms.detach(), per_sample_weights=weights, mode="sum")
                (of_values,) = torch.autograd.grad(again, weights, gradient)
        of_atoms = scattered(values, indices, gradient, len(atoms)) if ctx.needs_input_grad[2] else None
        return of_values, None, of_atoms
