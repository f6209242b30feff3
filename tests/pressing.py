"""An encoder that presses Ctrl-C while it is trained, for tests of fits that are broken off."""

import os
import signal

import pytest
import torch
from torch import nn

from pindown import networks

AT = None
"""Number of the step at which it is pressed; None: never."""


class Pressing(nn.Module):
    """An encoder during whose training Ctrl-C is pressed, at step number `AT`."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.inner = networks.skip_mlp(n_in, n_out, hidden=(16,))
        self.passes = 0

    def forward(self, x):
        """Encode (n, n_in) to (n, n_out)."""
        global AT
        if self.passes == AT and torch.is_grad_enabled():
            AT = None
            os.kill(os.getpid(), signal.SIGINT)
        self.passes += torch.is_grad_enabled()
        return self.inner(x)


def broken_off(fit, monkeypatch, at=12):
    """Start a fit of 30 steps and press Ctrl-C in the middle of one of them."""
    monkeypatch.setattr("pressing.AT", at)
    with pytest.raises(KeyboardInterrupt, match=rf"stopped at step {at + 1} of 30; the same fit will resume from"):
        fit()
    monkeypatch.setattr("pressing.AT", None)
