"""Restarts of `Contrast` on images whose encoder is folded; and the warning that nothing has been learned.

An encoder of images may be folded, or may have lost a latent: its loss then stays on a plateau however long it is
trained. With three times as many latents there is room to be injective. So a trained encoder is widened and trained a
little further. If its loss then falls clearly, the encoder was folded, and training restarts from another seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from pindown.errors import warn
from pindown.methods.fitting import Trained, Training
from pindown.networks import SkipMLP
from pindown.networks.encoder import Encoder
from pindown.training import TrainingLog
from pindown.training.callbacks import Callback, Report

WIDER = 3
"""Factor by which the number of latents is increased."""

WIDE_STEPS = 5
"""The widened encoder is trained for the steps of the fit divided by this number."""

MIN_STEPS = 200
"""Number of steps below which a fit is too short to be checked."""

MAX_STARTS = 3
"""Maximum number of starts."""

GAIN = 0.15
"""The encoder was folded if more latents lower the loss by so many nats: a folded or lost latent costs half a nat."""

SMALL = 0.1
"""Size of the weights of new latents, relative to the others: from zero they would not start to grow."""

LAST = 100
"""Number of steps at the end whose mean loss counts, where samples are always new."""


@dataclass(eq=False)
class ChanceWatch(Callback):
    """Warns, during training, if nothing is learned in the first quarter of the steps.

    Parameters
    ----------
    chance, chance_held_out
        Loss at chance level: of a batch, and of the validation set.
    warn
        Is called with the message, once.

    Examples
    --------
    >>> watch = ChanceWatch(4.16, 4.16, print)
    >>> for step in (25, 50, 75):
    ...     watch.report(Report("Contrast", step, 200, (4.15,), (1e-3,)))
    Contrast, step 50 of 200: no information about positives so far. The latents have collapsed, or positives share
    nothing.
    """

    chance: float
    chance_held_out: float
    warn: Callable[[str], None] = warn
    has_warned: bool = False

    def report(self, report: Report) -> None:
        """Compare the loss with chance."""
        loss, chance = float(np.mean(report.losses)), self.chance
        if report.held_out is not None:
            loss, chance = report.held_out, self.chance_held_out
        if not self.has_warned and 4 * report.step >= report.n_steps and loss > chance - GAIN:
            self.has_warned = True
            self.warn(
                f"{report.title}, step {report.step} of {report.n_steps}: no information about positives so far. "
                "The latents have collapsed, or positives share nothing."
            )


def final_loss(log: TrainingLog) -> float:
    """Return the loss at the end: of the validation set, or of the last steps if samples are always new."""
    if log.held_out:
        losses = [loss for _, loss in log.held_out]
        return losses[-1] if log.rollback is None else min(losses)
    return float(np.mean(log.loss_curve[-LAST:]))


@torch.no_grad()
def widen(narrow: nn.Module, wide: nn.Module) -> None:
    """Copy the weights of a network, and of all around it, into one with more latents; in place.

    Examples
    --------
    >>> from pindown.networks import convolutional
    >>> narrow, wide, x = convolutional((1, 8, 8), 2), convolutional((1, 8, 8), 6), torch.rand(5, 1, 8, 8)
    >>> widen(narrow, wide)
    >>> torch.allclose(wide(x)[:, :2], narrow(x)), bool(wide(x)[:, 2:].abs().mean() < 0.5 * narrow(x).abs().mean())
    (True, True)
    """
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
