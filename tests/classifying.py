"""What the tests of Classify share: a small simulation, data from it, and fits to them."""

from functools import cache

import torch

from pindown.methods import Classify
from pindown.simulate import Clusters, Sample

KAPPA = 10.0


def quick(n_components=3, **parameters):
    return Classify(n_components, **{"max_iter": 30, "random_state": 0, "device": "cpu"} | parameters)


def thorough(n_components=3, **parameters):
    return quick(n_components, **{"max_iter": 300, "batch_size": 128} | parameters)


@cache
def world(n_classes=12, random_state=0):
    return Clusters.on_sphere(3, n_classes, KAPPA, random_state=random_state)


@cache
def data(n=400, seed=1):
    return Sample(*(t if t is None else t.numpy() for t in world().sample(n, random_state=seed)))


@cache
def trained():
    return thorough(max_iter=600, batch_size=256).fit(data(20_000).x, data(20_000).u)


def codes(estimator, x=None):
    return estimator.transform(data().x if x is None else x)


def jitter(x, generator):
    return x + 0.01 * torch.randn(x.shape, generator=generator, device=x.device)
