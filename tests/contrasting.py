"""What the tests of Contrast share: a small simulation, pairs from it, and fits to them."""

from functools import cache

from pindown.methods import Contrast
from pindown.simulate import Pairs, Sample


def quick(n_components=3, **parameters):
    return Contrast(n_components, **{"max_iter": 30, "random_state": 0, "device": "cpu"} | parameters)


def thorough(n_components=3, **parameters):
    return quick(n_components, **{"max_iter": 300, "batch_size": 128} | parameters)


@cache
def world(random_state=0):
    return Pairs.on_sphere(3, 10.0, random_state=random_state)


@cache
def pairs(n=400, seed=1):
    return Sample(*(t if t is None else t.numpy() for t in world().sample(n, random_state=seed)))


@cache
def trained():
    return thorough().fit(pairs(3_000).x, pairs(3_000).x_pos)


def codes(estimator, x=None):
    return estimator.transform(pairs().x if x is None else x)
