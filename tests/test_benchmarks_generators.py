"""The benchmark of generators: what it compares with, and how its record grows."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from generators import add, as_noisy, scores


def test_noisy_factors_correlate_as_latents_do_and_score_as_low_by_value():
    rng = np.random.default_rng(0)
    z = rng.random((2_000, 3))
    codes = (z + [0.02, 0.1, 0.15] * rng.normal(size=z.shape))[:, ::-1]
    alike = np.abs([np.corrcoef(codes[:, 2 - j], z[:, j])[0, 1] for j in range(3)])
    noisy = [np.corrcoef(as_noisy(codes, z)[:, j], z[:, j])[0, 1] for j in range(3)]
    np.testing.assert_allclose(noisy, alike, atol=0.02)
    told = scores(codes, z)
    assert told["dci"] > 0.85  # single latents, each of one factor
    assert told["dci_by_value"] < 0.5  # the same latents, by ten values: rows near the edge of one
    assert told["dci_by_value"] == pytest.approx(told["dci_by_value_of_noisy_factors"], abs=0.1)


def test_a_row_takes_the_place_of_the_same_run_and_rows_stand_by_seed(tmp_path):
    def row(seed, mcc):
        return {"name": "a", "seed": seed, "pixels": 8, "steps": 1, "restarts": 1, "mcc": mcc}

    for each in (row(0, 0.1), row(1, 0.2), row(0, 0.3)):
        add(tmp_path / "record.json", each)
    assert [r["mcc"] for r in json.loads((tmp_path / "record.json").read_text())["rows"]] == [0.3, 0.2]
