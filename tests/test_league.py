"""The league of batch correction: baselines by hand, scores, and a page that says where we lose."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def league(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import league_batches

    yield league_batches
    for name in ("league_batches", "peers", "studies", "scores"):
        sys.modules.pop(name, None)


def shifted():
    rng = np.random.default_rng(0)
    batch = rng.integers(3, size=900)
    x = rng.normal(size=(900, 6)) @ rng.normal(size=(6, 6)) + 3 * np.eye(3, 6)[batch]
    return x, batch


def test_leace_removes_differences_of_means_and_nothing_where_there_are_none(league):
    from peers import leace

    x, batch = shifted()
    means = [leace({"x": x, "batch": batch})[batch == e].mean(0) for e in range(3)]
    assert np.ptp(means, axis=0).max() < 1e-8
    within = x - np.stack([x[batch == e].mean(0) for e in range(3)])[batch]
    z = leace({"x": within + 1e-3 * np.eye(3, 6)[batch], "batch": batch})
    assert np.linalg.matrix_rank(z - z.mean(0), tol=1e-6 * len(z)) == 4  # two directions of three means are gone


def test_a_z_score_gives_batches_one_mean_and_one_spread(league):
    from peers import z_scored

    x, batch = shifted()
    z = z_scored(x * np.array([1.0, 2.0, 5.0])[batch, None], batch)
    for part in (np.mean, np.std):
        assert np.ptp([part(z[batch == e], axis=0) for e in range(3)], axis=0).max() < 1e-8


def test_the_batch_is_recognised_before_a_correction_and_not_after(league):
    from peers import z_scored
    from scores import batch_within_types

    x, batch = shifted()
    kind = np.arange(900) % 2
    assert batch_within_types(x, batch, kind) > 0.5
    assert abs(batch_within_types(z_scored(x, batch), batch, kind)) < 0.1
    assert batch_within_types(x, batch, batch) is None  # no type has two batches


def test_the_page_says_first_where_we_lose(league, tmp_path, monkeypatch):
    monkeypatch.setattr(league, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(league, "PAGE", tmp_path / "page.md")
    common = {"seed": 0, "seconds": 1.0, "megabytes": 100.0, "latents": 3, "samples": 900}
    rows = [
        {"study": study, "method": method, **common, **dict.fromkeys(league.SCORES, total), "carried": None}
        for study, totals in (("blood, three donors", (0.7, 0.6)), ("digesters, five dates", (0.5, 0.6)))
        for method, total in zip(("Harmony", "pindown"), totals, strict=True)
    ]
    (tmp_path / "record.json").write_text(json.dumps({"rows": rows}))
    league.page()
    text = (tmp_path / "page.md").read_text()
    verdict = text.splitlines()[2]
    assert "1 of 2 studies" in verdict
    assert "blood, three donors (Harmony .70, pindown .60)" in verdict
    assert "digesters, five dates" not in verdict
    assert "| **pindown** | .60 ± .00 |" in text
