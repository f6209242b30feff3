"""The benchmark of images, small: every row runs on a CPU, and says what it must."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from _measure import write
from pictures import ROWS, Scale, in_order, measured, on_record

TINY = Scale(size=8, max_iter=3, n_samples=240, n_test=120)
AUDITS = [name for name in ROWS if name.startswith("Audit")]


@pytest.mark.parametrize("name", [name for name in ROWS if name not in AUDITS])
@pytest.mark.slow
def test_every_row_runs_small(name):
    row = measured(name, TINY, 1)
    assert row["name"] == name
    assert row["seed"] == 1
    assert row["seconds"] >= 0
    numbers = [value for value in row.values() if isinstance(value, float)]
    assert np.isfinite(numbers).all()
    if "not_covered" in row:
        assert sorted([*row["covered"], *row["not_covered"]]) == sorted(row["pearson_r"])


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
def test_every_audit_runs_small_and_nothing_is_claimed_of_unrelated_positives(name):
    row = measured(name, Scale(size=16, max_iter=20, n_samples=600, n_test=400), 0)
    assert row["claim"]
    if "shuffled" in name:
        assert not row["claims"]


def test_a_row_takes_the_place_of_the_one_of_its_name_and_seed(tmp_path):
    def row(name, seed, mcc):
        return {"name": name, "seed": seed, "mcc": mcc}

    path, (first, second, *_) = tmp_path / "record.json", ROWS
    write(path, [row(first, 0, 0.1), row(second, 0, 0.2), row("a row of old", 0, 0.3)])
    write(path, in_order(on_record(path) | {(second, 1): row(second, 1, 0.4)} | {(first, 0): row(first, 0, 0.5)}))
    assert [found["mcc"] for found in on_record(path).values()] == [0.5, 0.2, 0.4]
    assert on_record(tmp_path / "none.json") == {}
