"""The tables of Zheng et al.: what stands in them, and a row in small."""

from dataclasses import replace

import numpy as np
import pytest

from pindown import papers
from pindown.papers import zheng2025
from pindown.papers.zheng2025 import EXPERIMENTS, FIGURE_4, FIGURE_5, QUICK, TABLE_4, TABLE_5, TABLE_6
from pindown.structure import identified_blocks, parts

SMALL = replace(QUICK, n_samples=4_000, n_restarts=1, max_iter=400, supervised_iter=300, n_eval=4_000)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_row_has_a_cell_for_every_heading_and_a_number_for_every_score(experiment):
    assert [row.number for row in experiment.rows] == list(range(1, len(experiment.rows) + 1))
    for row in experiment.rows:
        assert len(row.setting) == len(experiment.headings)
        assert len(row.published) == len(experiment.scores)
    assert len({row.setting for row in experiment.rows}) == len(experiment.rows)


@pytest.mark.parametrize(
    ("experiment", "setting", "printed"),
    [
        (FIGURE_5, ("d = 3", "diverse", "noise = 0", "count", "yes"), "82.58±0.85"),
        (FIGURE_5, ("d = 5", "dense", "noise = 0", "count", "no"), "45.76±10.75"),
        (TABLE_4, ("d = 4", "diverse", "noise = 0", "OroJAR", "no"), "63.01±8.10"),
        (TABLE_4, ("d = 5", "diverse", "noise = 0", "Hessian", "no"), "77.89±1.74"),
        (TABLE_5, ("d = 4", "diverse", "noise = 0.1", "count", "yes"), "83.81±0.93"),
        (TABLE_6, ("d = 5", "diverse", "noise = 0", "L1, λ = 0.001", "yes"), "75.13±0.07"),
        (TABLE_6, ("d = 3", "diverse", "noise = 0", "L1, λ = 0", "no"), "67.89±3.64"),
    ],
)
def test_the_papers_numbers_stand_beside_the_worlds_they_belong_to(experiment, setting, printed):
    (row,) = (row for row in experiment.rows if row.setting == setting)
    assert str(row.published[0]) == printed


@pytest.mark.parametrize("seed", range(5))
def test_a_diverse_world_has_a_block_per_latent_and_a_dense_one_has_one(seed):
    diverse, dense = (FIGURE_5.rows[i].world(seed) for i in (0, 4))
    assert len(identified_blocks(diverse.support)) == diverse.d == 3
    assert len(identified_blocks(dense.support)) == 1
    for world in (diverse, dense):
        for groups in zheng2025._overlapping_groups(world.support):
            found = parts(world.support, *groups)
            assert found.shared
            assert found.only_first
            assert found.only_second


def test_groups_that_overlap_are_found_if_there_are_any():
    nested = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert next(zheng2025._overlapping_groups(nested), None) is None
    assert next(zheng2025._overlapping_groups(np.vstack([nested, [0, 1, 1]]))) == ((1,), (3,))


def test_a_diverse_world_is_recovered_in_small_and_the_same_world_without_a_penalty_is_not():
    with_count, without = (FIGURE_4.rows[i].measure(SMALL, 2, "cpu") for i in (0, 3))
    assert with_count["supervised"] > 0.97
    assert with_count["mcc"] > 0.95 > with_count["chance"] + 0.1
    assert without["mcc"] < with_count["mcc"] - 0.1
    for part in ("Int", "SymDiff", "Comp A", "Comp B"):
        assert with_count[part] < 0.1
    assert with_count["Ref"] > 0.9
    assert max(without["Int"], without["SymDiff"], without["Comp A"], without["Comp B"]) > 0.1
    table = papers.compare(
        FIGURE_4,
        SMALL,
        [papers.Record(FIGURE_4.name, 1, 2, "small", SMALL.settings, with_count, 1.0, "cpu", {"torch": "0"})],
    )
    assert "chance Int" in table.markdown()
    assert np.isfinite(list(with_count.values())).all()
