"""The settings of the suite take effect."""

import os
import subprocess
import sys

import numpy as np
import pytest
import sklearn.cluster  # noqa: F401
import torch
from threadpoolctl import threadpool_info

DRAWN: list[list[list[float]]] = []
RNG = np.random.default_rng(0)
THREADS = int(os.environ["OMP_NUM_THREADS"])  # one, unless whoever runs the suite says otherwise


def test_no_library_has_more_threads_than_requested():
    assert torch.get_num_threads() == THREADS
    pools = threadpool_info()
    assert {pool["user_api"] for pool in pools} == {"blas", "openmp"}
    assert [pool for pool in pools if pool["num_threads"] != THREADS] == []


def test_a_process_that_a_test_starts_has_as_many():
    code = "import numpy, threadpoolctl; print(*(p['num_threads'] for p in threadpoolctl.threadpool_info()))"
    assert set(subprocess.check_output([sys.executable, "-c", code], text=True).split()) == {str(THREADS)}


def test_one_thread_is_the_default():
    code = "import os, runpy, sys; runpy.run_path(sys.argv[1]); print(os.environ['OMP_NUM_THREADS'])"
    settings = os.path.join(os.path.dirname(__file__), os.pardir, "conftest.py")
    unsaid = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    assert subprocess.check_output([sys.executable, "-c", code, settings], text=True, env=unsaid).strip() == "1"


@pytest.mark.parametrize("order", ["first", "second"])
def test_networks_without_a_seed_do_not_depend_on_what_ran_before(order):
    DRAWN.append(torch.nn.Linear(3, 2).weight.tolist())
    assert all(weights == DRAWN[0] for weights in DRAWN)


@pytest.mark.parametrize("order", ["first", "second"])
def test_what_a_generator_of_a_module_draws_does_not_depend_on_what_ran_before(order):
    assert RNG.integers(1_000_000) == np.random.default_rng(0).integers(1_000_000)
