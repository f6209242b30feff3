"""What a gate is while it is trained: modules that turn scores of codes into codes, with what they have learned."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

KEPT = 0.99
"""Share of the old value in the running mean of a threshold."""


class Opening(nn.Module, ABC):
    """Turns scores into codes that are not negative.

    With ``n_candidates`` it is shown the largest scores of a row, (n, n_candidates), and opens for some of them; with
    None it is shown all, (n, n_codes).
    """

    n_candidates: int | None
    n_expected: float  # codes of a row that fire, about

    def levels(self, n_codes: int) -> tuple[int, ...]:
        """Return the numbers of leading codes that each have to rebuild a row."""
        return (n_codes,)

    def penalty(self, scores: Tensor, codes: Tensor, n_features: int) -> Tensor | None:
        """Return what is added to the share of variance that is not rebuilt, in units of that; None: nothing."""
        return None

    @abstractmethod
    def forward(self, scores: Tensor) -> Tensor:
        """Return codes, in the shape of the scores."""


class Largest(Opening):
    """Lets the largest scores of each row through, as far as they are positive."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.n_candidates, self.n_expected = k, k

    def forward(self, scores: Tensor) -> Tensor:
        """Return codes."""
        return scores.relu()


class LargestOfBatch(Opening):
    """Lets k scores per row through, on average over a batch: some rows have more, up to a bound, and some fewer.

    Afterwards those through that exceed the mean threshold of the training, so that a row's codes are its own.
    """

    threshold: Tensor

    def __init__(self, k: int, n_candidates: int, shares: tuple[float, ...] = (1.0,)) -> None:
        super().__init__()
        self.n_candidates, self.n_expected, self.k, self.shares = n_candidates, k, k, shares
        self.register_buffer("threshold", torch.zeros(()))

    def levels(self, n_codes: int) -> tuple[int, ...]:
        """Return the numbers of leading codes that each have to rebuild a row."""
        return tuple(sorted({max(1, math.ceil(share * n_codes)) for share in self.shares}))

    def forward(self, scores: Tensor) -> Tensor:
        """Return codes."""
        open_ = scores.relu()
        if not self.training:
            return open_ * (open_ > self.threshold)
        least = open_.detach().reshape(-1).topk(len(scores) * self.k, sorted=False).values.min()
        with torch.no_grad():
            known = KEPT * self.threshold + (1 - KEPT) * least
            self.threshold.copy_(torch.where(self.threshold > 0, known, least))
        return open_ * (open_ >= least)


class Ramp(Opening):
    """Lets all positive scores through, at a price for each unit of them."""

    n_candidates = None

    def __init__(self, weight: float, n_expected: float) -> None:
        super().__init__()
        self.weight, self.n_expected = weight, n_expected

    def penalty(self, scores: Tensor, codes: Tensor, n_features: int) -> Tensor:
        """Return the price."""
        return self.weight * codes.sum(1).mean() / n_features

    def forward(self, scores: Tensor) -> Tensor:
        """Return codes."""
        return scores.relu()


class Jump(Opening):
    """Lets scores above a threshold of each code through, which is learned so that k of a row fire on average."""

    n_candidates = None

    def __init__(self, k: int, n_codes: int, bandwidth: float, weight: float) -> None:
        super().__init__()
        self.k, self.bandwidth, self.weight, self.n_expected = k, bandwidth, weight, k
        # Scores of random directions are standard normal at the start: then k of them pass.
        start = math.sqrt(2) * torch.erfinv(torch.tensor(1 - 2 * min(k / n_codes, 0.49)))
        self.threshold = nn.Parameter(torch.full((n_codes,), float(start)).clamp(min=bandwidth / 2))

    def penalty(self, scores: Tensor, codes: Tensor, n_features: int) -> Tensor:
        """Return how far the number of codes that fire is from what is asked, squared, in units of that."""
        n_active = _Step.apply(scores, self.threshold, self.bandwidth).sum(1).mean()
        return self.weight * (n_active / self.k - 1).square()

    def forward(self, scores: Tensor) -> Tensor:
        """Return codes."""
        return _JumpReLU.apply(scores, self.threshold, self.bandwidth)


class _JumpReLU(torch.autograd.Function):
    """Scores above a threshold; its gradient by the threshold is that of scores within a bandwidth of it."""

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
    """1 above a threshold and 0 below, with the gradient by the threshold of a slope as wide as the bandwidth."""

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
