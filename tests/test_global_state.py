"""Imports and fits leave the state of the process as they found it, and do not depend on it."""

import random
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from pindown import Classify, Contrast, Dictionary, Forget, Sparse, SparsePair
from pindown._random import torch_defaults
from pindown.methods.latent_action import InverseDynamics

pytestmark = pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 4))
LABELS = np.arange(120) % 3
QUICK = {"max_iter": 3, "random_state": 0, "verbose": False, "device": "cpu"}
MAP = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
FITS = {
    "contrast": lambda: Contrast(2, **QUICK).fit(X, X + 0.1).transform(X),
    "contrast in parts": lambda: Contrast(2, **QUICK).partial_fit(X, X + 0.1).partial_fit(X, X + 0.1).transform(X),
    "classify": lambda: Classify(2, **QUICK).fit(X, LABELS).transform(X),
    "forget": lambda: Forget(2, **QUICK).fit(X, LABELS).transform(X),
    "dictionary": lambda: Dictionary(2, n_restarts=1, **QUICK).fit(X).transform(X),
    "sparse": lambda: Sparse(6, **QUICK).fit(X).transform(X),
    "sparse pair": lambda: SparsePair(MAP, 6, n_jacobians=4, **QUICK).fit(X).transform(X),
    "inverse dynamics": lambda: InverseDynamics(2, **QUICK).fit(X, X[::-1]).transform(X, X[::-1]),
}
every_fit = pytest.mark.parametrize("name", FITS)


@pytest.fixture(scope="module")
def alone():
    return {name: fit() for name, fit in FITS.items()}


@pytest.mark.parametrize("name", ["contrast", "classify", "forget"])
def test_eight_fits_in_four_threads_give_the_same_bits(name, alone):
    with ThreadPoolExecutor(4) as pool:
        for latents in pool.map(lambda _: FITS[name](), range(8)):
            np.testing.assert_array_equal(latents, alone[name])


@every_fit
def test_a_fit_leaves_generators_settings_and_warning_filters_as_they_were(name):
    def state():
        generators = torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
        settings = torch.get_default_dtype(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        return generators, settings, np.geterr(), list(warnings.filters)

    before = state()
    FITS[name]()
    assert state() == before


@every_fit
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_fit_where_gradients_are_disabled_is_the_same(name, mode, alone):
    with mode():
        np.testing.assert_array_equal(FITS[name](), alone[name])


@every_fit
def test_a_fit_where_the_default_dtype_is_float64_is_the_same(name, alone):
    torch.set_default_dtype(torch.float64)
    try:
        latents = FITS[name]()
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal(latents, alone[name])


@every_fit
def test_a_fit_where_the_default_device_is_another_is_the_same(name, alone):
    with torch_defaults():
        first = FITS[name]()
    torch.set_default_device("meta")
    try:
        with torch_defaults():
            np.testing.assert_array_equal(FITS[name](), first)
    finally:
        torch.set_default_device(None)


def test_the_default_dtype_comes_back_after_the_last_of_several_threads():
    torch.set_default_dtype(torch.float64)
    try:
        first, second = torch_defaults(), torch_defaults()
        first.__enter__()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(second.__enter__).result()
            first.__exit__(None, None, None)
            assert torch.get_default_dtype() is torch.float32
            pool.submit(second.__exit__, None, None, None).result()
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


IMPORTS = """
import random, sys, warnings
before = random.getstate(), list(warnings.filters)
import pindown
for name in pindown.__all__:
    getattr(pindown, name)
sys.exit((random.getstate(), list(warnings.filters)) != before)
"""


def test_importing_everything_leaves_the_generator_of_python_and_the_warning_filters_as_they_were():
    assert subprocess.run([sys.executable, "-c", IMPORTS], timeout=120).returncode == 0
