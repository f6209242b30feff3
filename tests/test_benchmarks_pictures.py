"""The benchmark of pictures, small: every row runs on a CPU, and says what it must."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pindown.distributions import Truncated, laplace

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from pictures import ROWS, Partly, Scale, measured

TINY = Scale(size=8, max_iter=3, n_rows=240, n_test=120)
AUDITS = [name for name in ROWS if name.startswith("Audit")]


@pytest.mark.parametrize("name", [name for name in ROWS if name not in AUDITS])
def test_every_row_runs_small(name):
    row = measured(name, TINY, 1)
    assert row["name"] == name
    assert row["seed"] == 1
    assert row["seconds"] > 0
    numbers = [value for value in row.values() if isinstance(value, float)]
    assert np.isfinite(numbers).all()
    if "not_covered" in row:
        assert sorted([*row["covered"], *row["not_covered"]]) == sorted(row["pearson_r"])


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
def test_every_audit_runs_small_and_nothing_is_claimed_of_unrelated_partners(name):
    row = measured(name, Scale(size=16, max_iter=20, n_rows=600, n_test=400), 0)
    assert row["claim"]
    if "shuffled" in name:
        assert not row["claims"]


def test_partners_stay_and_are_drawn_anew_where_that_was_said():
    z = torch.full((2_000, 3), 0.5)
    moved = Partly(Truncated(laplace(0.05)), stay=(0,), anew=(2,)).sample(z, random_state=0)
    assert (moved[:, 0] == 0.5).all()
    assert 0.04 < moved[:, 1].std() < 0.1
    assert abs(moved[:, 2].std().item() - 12**-0.5) < 0.02  # uniform
