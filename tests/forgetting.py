"""Data with a nuisance, and estimators that forget it, for the tests of `Forget`."""

from functools import partial

import numpy as np
import torch
from pindown_papers.simulations import Confounded

from pindown import Forget, networks
from pindown.metrics import Effort, leakage
from pindown.simulate.mixing import leaky_relu_mlp
from pindown.training import Trainer

linear = partial(
    Forget, encoder=networks.linear, random_state=0, device="cpu", trainer=Trainer(validation_fraction=0.0)
)
small = partial(networks.skip_mlp, hidden=(16,))
READERS = ["linear", "quadratic"]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def moved(n=600, seed=0):
    """Three values that move the first two of five columns."""
    e = np.random.default_rng(seed).integers(3, size=n)
    centres = np.array([[0, 0], [4, 0], [0, 4]])
    return normal(n, 5, seed=seed) + np.hstack([centres[e], np.zeros((n, 3))]), e


def told(Z, e, **options):
    return leakage(Z, e, probes=READERS, effort=Effort(n_permutations=99), random_state=0, **options)


def confounded(seed=0):
    joint = torch.tensor([[8.0, 1.0], [1.0, 8.0]])
    labels = torch.tensor([[-1.5, 0.0, 0.0], [1.5, 0.0, 0.0]])
    mixing = leaky_relu_mlp(4, n_layers=1, random_state=seed)
    return Confounded(labels, torch.tensor([[-2.0], [2.0]]), joint, mixing).sample(6_000, random_state=seed + 1)
