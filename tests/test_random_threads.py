"""Seeds hold in threads, and a fit leaves the global generators as they were."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from pindown import Classify, Contrast, Forget

pytestmark = pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 4))
LABELS = np.arange(120) % 3
QUICK = {"max_iter": 3, "random_state": 0, "verbose": False, "device": "cpu"}
FITS = {
    "contrast": lambda: Contrast(2, **QUICK).fit(X, X + 0.1),
    "classify": lambda: Classify(2, **QUICK).fit(X, LABELS),
    "forget": lambda: Forget(2, **QUICK).fit(X, LABELS),
}


@pytest.mark.parametrize("name", FITS)
def test_eight_fits_in_four_threads_give_the_same_bits(name):
    alone = FITS[name]().transform(X)
    with ThreadPoolExecutor(4) as pool:
        for latents in pool.map(lambda _: FITS[name]().transform(X), range(8)):
            np.testing.assert_array_equal(latents, alone)


@pytest.mark.parametrize("name", FITS)
def test_a_fit_leaves_the_global_generators_as_they_were(name):
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    FITS[name]()
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]
