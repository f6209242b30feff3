"""The tables of Zheng et al.: what stands in them, and a row in small."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pindown_papers
import pytest
from pindown_papers import zheng2025
from pindown_papers.supports import parts
from pindown_papers.zheng2025 import EXPERIMENTS, FIGURE_4, FIGURE_5, QUICK, TABLE_4, TABLE_5, TABLE_6
from scipy.stats import ttest_1samp

from pindown.theory.structure import identified_blocks

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
        (TABLE_6, ("d = 3", "diverse", "noise = 0", "none", "no"), "67.89±3.64"),
    ],
)
def test_the_papers_numbers_stand_next_to_the_simulations_they_belong_to(experiment, setting, printed):
    (row,) = (row for row in experiment.rows if row.setting == setting)
    assert str(row.published[0]) == printed


@pytest.mark.parametrize("seed", range(5))
def test_a_diverse_simulation_has_a_block_per_latent_and_a_dense_one_has_one(seed):
    diverse, dense = (FIGURE_5.rows[i].simulation(seed) for i in (0, 4))
    assert len(identified_blocks(diverse.support)) == diverse.d == 3
    assert len(identified_blocks(dense.support)) == 1
    for simulation in (diverse, dense):
        for groups in zheng2025._overlapping_groups(simulation.support):
            found = parts(simulation.support, *groups)
            assert found.shared
            assert found.only_first
            assert found.only_second


def test_runs_that_tables_share_are_lent_and_no_others():
    lent = [
        pindown_papers.Record(
            FIGURE_5.name, row, 3, "quick", QUICK.settings, {"mcc": row / 10}, 1.0, "cpu", {"torch": "0"}
        )
        for row in (1, 2, 4)  # d = 3, 4, 10: the last is in no other table
    ]
    assert [(r.experiment, r.row, r.scores["mcc"]) for r in pindown_papers.shared(lent, FIGURE_5, TABLE_4)] == [
        ("zheng2025/table4", 1, 0.1),
        ("zheng2025/table4", 5, 0.2),
    ]
    assert pindown_papers.shared(lent, FIGURE_4, TABLE_4) == []  # none of them is of Figure 4
    with pytest.raises(ValueError, match="different headings"):
        pindown_papers.shared(lent, FIGURE_5, pindown_papers.zimmermann2021.TABLE_1)


def test_groups_that_overlap_are_found_if_there_are_any():
    nested = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert next(zheng2025._overlapping_groups(nested), None) is None
    assert next(zheng2025._overlapping_groups(np.vstack([nested, [0, 1, 1]]))) == ((1,), (3,))


@pytest.mark.slow
def test_a_diverse_simulation_is_recovered_in_small_and_the_same_simulation_without_a_penalty_is_not():
    with_count = FIGURE_4.rows[0].measure(replace(SMALL, n_restarts=3), 2, "cpu")  # one start may be a poor one
    without = FIGURE_4.rows[3].measure(SMALL, 2, "cpu")
    assert with_count["supervised"] > 0.97
    assert with_count["mcc"] > with_count["chance"] + 0.08
    assert 1 - with_count["mcc"] < (1 - without["mcc"]) / 5
    mixed, unmixed = (max(s[part] for part in ("Int", "SymDiff", "Comp A", "Comp B")) for s in (without, with_count))
    assert unmixed < min(0.2, mixed)
    assert with_count["Ref"] > 0.9
    table = pindown_papers.compare(
        FIGURE_4,
        SMALL,
        [pindown_papers.Record(FIGURE_4.name, 1, 2, "small", SMALL.settings, with_count, 1.0, "cpu", {"torch": "0"})],
    )
    assert "chance Int" in table.markdown()
    assert np.isfinite(list(with_count.values())).all()


# ---- what is on record --------------------------------------------------------------------------------

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def on_record(experiment, number, score):
    """The score of each simulation of a row, by seed."""
    records = pindown_papers.Results(RESULTS / f"{experiment.name.replace('/', '-')}-quick.jsonl").read()
    found = {r.seed: r.scores[score] for r in records if r.row == number and r.answers(experiment, QUICK)}
    assert sorted(found) == list(range(10))
    return np.array([found[seed] for seed in range(10)])


@pytest.mark.parametrize(
    ("row", "least_mcc", "least_f1"), [(1, 0.95, 0.95), (2, 0.95, 0.95), (3, 0.93, 0.93), (4, 0.88, 0.9)]
)
def test_latents_and_graph_of_diverse_simulations_are_recovered_on_record(row, least_mcc, least_f1):
    assert on_record(FIGURE_5, row, "mcc").mean() >= least_mcc
    assert on_record(FIGURE_5, row, "support f1").mean() >= least_f1


@pytest.mark.parametrize("row", [1, 2, 3])
def test_on_record_the_penalty_gains_more_than_a_tenth_on_the_same_simulations(row):
    gain = on_record(FIGURE_4, row, "mcc") - on_record(FIGURE_4, row + 3, "mcc")
    assert ttest_1samp(gain, 0.1, alternative="greater").pvalue < 0.05


@pytest.mark.parametrize("row", [5, 6, 7])
def test_on_record_the_penalty_does_not_help_where_the_structure_is_dense(row):
    gain = on_record(FIGURE_5, row, "mcc") - on_record(FIGURE_5, row, "chance")
    assert ttest_1samp(gain, 0.0, alternative="greater").pvalue > 0.05


@pytest.mark.parametrize("row", [1, 2, 3])
def test_on_record_noise_of_a_tenth_costs_at_most_three_hundredths(row):
    assert (on_record(TABLE_5, row, "mcc") - on_record(TABLE_5, row + 3, "mcc")).mean() <= 0.03
