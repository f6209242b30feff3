"""The settings of the suite take effect."""

import subprocess
import sys

import numpy as np  # noqa: F401 (its threads are counted)
import sklearn.cluster  # noqa: F401
import torch
from threadpoolctl import threadpool_info


def test_no_library_has_threads_that_wait_for_each_other():
    assert torch.get_num_threads() == 1
    pools = threadpool_info()
    assert {pool["user_api"] for pool in pools} == {"blas", "openmp"}
    assert [pool for pool in pools if pool["num_threads"] != 1] == []


def test_a_process_that_a_test_starts_has_one_thread_too():
    code = "import numpy, threadpoolctl; print(*(p['num_threads'] for p in threadpoolctl.threadpool_info()))"
    assert set(subprocess.check_output([sys.executable, "-c", code], text=True).split()) == {"1"}
