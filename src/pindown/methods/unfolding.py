"""Folds of an encoder of pictures, found: more codes are given to it, to see whether it has use for them.

What turns, or goes around a circle of colours, can be laid on top of itself by as many codes as there are latents: the
encoder is *folded*, or has lost a latent, and its loss stays on a plateau however long it is trained. Among three times
as many codes there is room to lie flat. So a trained encoder is grown, and trained a little further. If its codes then
tell clearly more of partners, something had been folded or lost, and training starts anew from another seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from pindown.errors import warn
from pindown.networks import SkipMLP
from pindown.networks.encoder import Encoder
from pindown.training import TrainingLog
from pindown.training.callbacks import Callback, Report

if TYPE_CHECKING:
    from pindown.methods.base import BaseEncoder

WIDER = 3
"""Codes for each latent of an encoder that was grown."""

SHARE = 5
"""Of so many steps of the fit, one more is taken with more codes."""

LEAST_STEPS = 200
"""Steps below which a fit has not come far enough to be looked at."""

STARTS = 3
"""Starts at most."""

LEFT_OUT = 0.15
"""Nats by which more codes may tell more: a latent that is folded or lost costs half a nat or more."""

SMALL = 0.1
"""Size of the weights of new codes, relative to those that were there: at zero, distances would not move them."""

LAST = 100
"""Steps at the end whose mean loss is that of fresh rows."""

Make = Callable[["BaseEncoder", int], nn.Module]
"""Makes the objective of an estimator from a seed."""

Minimise = Callable[..., TrainingLog]


@dataclass(eq=False)
class Watch(Callback):
    """Says, while a fit goes on, that nothing was learned by the first quarter of its steps.

    Parameters
    ----------
    guessing, of_held_out
        Loss of codes that tell nothing: over a batch, and over the rows held out, which are fewer.
    tell
        Is called with the sentence, once.

    Examples
    --------
    >>> watch = Watch(4.16, 4.16, print)
    >>> for step in (25, 50, 75):
    ...     watch.report(Report("Contrast", step, 200, (4.15,), (1e-3,)))
    Contrast, step 50 of 200: the codes tell nothing of partners so far. They have collapsed, or partners share nothing.
    """

    guessing: float
    of_held_out: float
    tell: Callable[[str], None]
    said: bool = False

    def report(self, report: Report) -> None:
        """Look at the loss."""
        loss, guessing = float(np.mean(report.losses)), self.guessing
        if report.held_out is not None:
            loss, guessing = report.held_out, self.of_held_out
        if not self.said and 4 * report.step >= report.n_steps and loss > guessing - LEFT_OUT:
            self.said = True
            self.tell(
                f"{report.title}, step {report.step} of {report.n_steps}: the codes tell nothing of partners so far. "
                "They have collapsed, or partners share nothing."
            )


def final_loss(log: TrainingLog) -> float:
    """Return the loss at the end: on rows held out, or of the last steps, where rows were always new."""
    if log.held_out:
        losses = [loss for _, loss in log.held_out]
        return losses[-1] if log.rollback is None else min(losses)
    return float(np.mean(log.loss_curve[-LAST:]))


def can_be_grown(network: nn.Module) -> bool:
    """Say whether codes are a sum of linear layers, so that more can be added: those of our networks of pictures are.

    Examples
    --------
    >>> from pindown.networks import convolutional, mlp
    >>> can_be_grown(convolutional((3, 8, 8), 2)), can_be_grown(mlp(5, 2))
    (True, False)
    """
    return isinstance(network, SkipMLP)


@torch.no_grad()
def grown(narrow: nn.Module, wide: nn.Module) -> None:
    """Give a network, and all around it, the weights of one with fewer codes; those of the others are small.

    Examples
    --------
    >>> from pindown.networks import convolutional
    >>> narrow, wide, x = convolutional((1, 8, 8), 2), convolutional((1, 8, 8), 6), torch.rand(5, 1, 8, 8)
    >>> grown(narrow, wide)
    >>> torch.allclose(wide(x)[:, :2], narrow(x)), bool(wide(x)[:, 2:].abs().mean() < 0.5 * narrow(x).abs().mean())
    (True, True)
    """
    theirs = wide.state_dict()
    for name, ours in narrow.state_dict().items():
        if theirs[name].shape == ours.shape:
            theirs[name].copy_(ours)
        else:
            theirs[name].mul_(SMALL)[: len(ours)] = ours


@dataclass(frozen=True)
class Unfolding:
    """Fits an estimator, looks whether more codes would tell more, and if so starts anew.

    Parameters
    ----------
    est, wide
        The estimator, and the same with more codes.
    make
        Makes the objective of either, on the device.
    minimise
        Trains an objective; called as ``minimise(objective, seed, part, n_steps)``.
    """

    est: BaseEncoder
    wide: BaseEncoder
    make: Make
    minimise: Minimise

    def fitted(self, seed: int) -> tuple[nn.Module, TrainingLog]:
        """Return the objective of the best start, and how it went."""
        objective = self.make(self.est, seed)
        found = [(objective, self.minimise(objective, seed))]
        for number in range(2, STARTS + 1):
            objective, log = found[-1]
            if not can_be_grown(_body(objective)) or log.n_iter < LEAST_STEPS or log.shortfall:
                break  # where more steps would help, more codes would seem to
            wide = self.make(self.wide, seed + number)
            grown(objective, wide)
            told = self.minimise(wide, seed, f"look {number}", max(1, self.est._n_steps // SHARE))
            left_out = final_loss(log) - final_loss(told)
            if left_out <= LEFT_OUT:
                break
            warn(
                f"{type(self.est).__name__}: the encoder folds the pictures, or has lost a latent: {WIDER} times as "
                f"many codes tell {left_out:.2f} nats more of partners. It starts anew: start {number} of "
                f"at most {STARTS}. If all end so, ask for more latents."
            )
            objective = self.make(self.est, seed + number)
            found.append((objective, self.minimise(objective, seed + number, f"start {number}")))
        return min(found, key=lambda each: final_loss(each[1]))


def _body(objective: nn.Module) -> nn.Module:
    assert isinstance(objective.encoder, Encoder)
    return objective.encoder.body
