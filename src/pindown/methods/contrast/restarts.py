"""Restarts of `Contrast` on images whose encoder is folded.

An encoder of images may be folded, or may have lost a latent: its loss then stays on a plateau however long it is
trained. With three times as many latents there is room to be injective. So a trained encoder is widened and trained a
little further. If its loss then falls clearly, the encoder was folded, and training restarts from another seed.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from pindown.errors import warn
from pindown.methods.fitting import Trained, Training
from pindown.networks import SkipMLP
from pindown.networks.encoder import Encoder
from pindown.training import TrainingLog

WIDER, WIDE_STEPS, MIN_STEPS, MAX_STARTS = 3, 5, 200, 3
"""Factor by which the number of latents is increased; the widened encoder is trained for so many times fewer steps;
number of steps below which a fit is too short to be checked; maximum number of starts."""

GAIN = 0.15
"""The encoder was folded if more latents lower the loss by so many nats: a folded or lost latent costs half a nat."""

SMALL, LAST = 0.1, 100
"""Size of the weights of new latents, relative to the others: from zero they would not start to grow; number of steps
at the end whose mean loss counts, where samples are always new."""


def final_loss(log: TrainingLog) -> float:
    """Return the loss at the end: of the validation set, or of the last steps if samples are always new."""
    return log.validation_loss if log.held_out else float(np.mean(log.loss_curve[-LAST:]))


@torch.no_grad()
def widen(narrow: nn.Module, wide: nn.Module) -> None:
    """Copy the weights of a network, and of all around it, into one with more latents; in place."""
    theirs = wide.state_dict()
    for name, ours in narrow.state_dict().items():
        if theirs[name].shape == ours.shape:
            theirs[name].copy_(ours)
        else:
            theirs[name].mul_(SMALL)[: len(ours)] = ours


def train_with_restarts(training: Training, seed: int) -> Trained:
    """Return the best start of a training, which restarts while more latents would lower the loss."""
    est, n_wide = training.est, WIDER * training.summary.n_components
    objective = training.new_objective(seed)
    found = [training.trained(objective, training.minimise(objective, seed))]
    for number in range(2, MAX_STARTS + 1):
        objective, log = found[-1].objective, found[-1].log
        assert isinstance(objective.encoder, Encoder)
        widens = isinstance(objective.encoder.body, SkipMLP)  # its outputs are sums of linear layers
        if not widens or log.n_iter < MIN_STEPS or log.shortfall:
            break  # where more steps would help, more latents would seem to
        wide = training.new_objective(seed + number, n_wide).to(training.prepared.device)
        widen(objective, wide)
        wide_log = training.minimise(wide, seed, f"wide {number}", max(1, est._n_steps // WIDE_STEPS))
        gain = final_loss(log) - final_loss(wide_log)
        if gain <= GAIN:
            break
        warn(
            f"{type(est).__name__}: the encoder is folded, or has lost a latent: {WIDER} times as many latents lower "
            f"the loss by {gain:.2f} nats. Training restarts: start {number} of at most {MAX_STARTS}. If all starts "
            "end so, ask for more latents."
        )
        objective = training.new_objective(seed + number)
        found.append(training.trained(objective, training.minimise(objective, seed + number, f"start {number}")))
    return min(found, key=lambda each: final_loss(each.log))
