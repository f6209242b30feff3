"""Errors where a training has diverged, found when losses are read back, so that no step waits for it."""

import math
from collections.abc import Sequence
from statistics import median_low

import torch
from torch import nn

RUNAWAY, RECENT = 1e3, 25
"""Training has diverged if the median of the latest losses, of which there are so many, is larger by this factor than
the first, which counts as at least 1."""

COARSE = 2.0**24
"""Size of weights above which float32 cannot distinguish neighbouring integers."""


class TrainingDivergedError(RuntimeError):
    """The loss or the weights diverged. A checkpoint, if any, is from an earlier step at which they had not."""


def check_losses(curve: Sequence[float], n_new: int, max_iter: int, learning_rate: float, title: str = "fit") -> None:
    """Raise if one of the new losses is not finite, or if the median of the latest is a thousand times the first.

    The loss of a single batch may be that of an outlier, so that one large loss is no divergence.
    """
    for step in range(len(curve) - n_new, len(curve)):
        if not math.isfinite(curve[step]):
            before = f"it was {curve[step - 1]:.4g} a step before" if step else "it was so from the start"
            raise _diverged(title, f"the loss is {curve[step]} at step {step} of {max_iter}; {before}", learning_rate)
    typical = median_low(curve[-RECENT:])
    if typical - curve[0] > RUNAWAY * max(1.0, abs(curve[0])):
        rose = f"the loss rose from {curve[0]:.4g} to about {typical:.4g} by step {len(curve) - 1} of {max_iter}"
        raise _diverged(title, rose, learning_rate)


def check_weights(
    objective: nn.Module, curve: Sequence[float], max_iter: int, learning_rate: float, title: str = "fit"
) -> None:
    """Raise if weights are not finite or too large, though the loss was finite; waits for the device."""
    trained = [weight for weight in objective.parameters() if weight.requires_grad and weight.numel()]
    largest = float(torch.stack([weight.detach().abs().max() for weight in trained]).max()) if trained else 0.0
    if largest < COARSE:  # false of NaN, too
        return
    where = f"after step {len(curve) - 1} of {max_iter}, though its loss was {curve[-1]:.4g}"
    if math.isfinite(largest):
        raise _diverged(title, f"weights are as large as {largest:.2g} {where}", learning_rate)
    raise _diverged(title, f"weights are NaN or infinite {where}: a gradient was not finite", learning_rate)


def _diverged(title: str, what: str, learning_rate: float) -> TrainingDivergedError:
    remedy = f"Try a smaller learning_rate (now {learning_rate:g}), and look for extreme values in the data."
    return TrainingDivergedError(f"{title}: {what}. {remedy}")
