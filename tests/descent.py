"""A small descent to train, interrupt and compare."""

import os
import signal
from dataclasses import fields

import numpy as np
import torch
from torch import nn

from pindown.training import FitPart, Trainer, TrainingDefaults


class Regression(nn.Module):
    """Distance of an affine map's output from a nonlinear one: a loss that falls but never reaches zero."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(3))
        self.offset = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return (x @ self.matrix + self.offset - x.abs()).square().mean()


class BlindAlley(nn.Module):
    """A finite loss with an infinite gradient: the square root at zero."""

    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return (self.level * x[0, 0]).sqrt()


def draw(step, generator):
    return (torch.randn(8, 3, generator=generator),)


def interrupting(at, *, times=1):
    """The same draw, with Ctrl-C pressed during one step."""

    def interrupting_draw(step, generator):
        for _ in range(times if step == at else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return draw(step, generator)

    return interrupting_draw


def run(draw=draw, *, objective=None, max_iter=60, checkpoint=None, **options):
    """Train; return the log and a copy of the weights. Each option goes where it belongs: Trainer, FitPart, `train`."""
    objective = Regression() if objective is None else objective
    options = {"learning_rate": 0.05, "seed": 0, "weight_decay": 0.1} | options | (checkpoint or {})

    def taken(kind):
        return kind(**{f.name: options.pop(f.name) for f in fields(kind) if f.name in options})

    trainer, part, defaults = taken(Trainer), taken(FitPart), taken(TrainingDefaults)
    log = trainer.train(objective, draw, max_iter=max_iter, part=part, defaults=defaults, **options)
    return log, {name: w.clone() for name, w in objective.state_dict().items()}


def assert_identical(ours, theirs):
    (log, weights), (other_log, other_weights) = ours, theirs
    assert np.array_equal(log.loss_curve, other_log.loss_curve)
    assert all(torch.equal(weights[name], other_weights[name]) for name in other_weights)


def checkpoint(path, *, seconds=1e9, **settings):
    """A file to save to, in the words of `run`."""
    return {"checkpoint": path, "save_every": seconds, "settings": settings}
