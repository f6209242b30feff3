"""Anti-diversity: the sign decides the subspace, the cells what is hidden and kept."""

from dataclasses import fields, replace

import numpy as np
import pytest

from pindown import papers
from pindown.papers import antidiversity, antidiversity_bodies
from pindown.papers.antidiversity import SIGNS, SignRow
from pindown.papers.antidiversity_bodies import BODIES, CellRow

EXPERIMENTS = [*antidiversity.EXPERIMENTS, *antidiversity_bodies.EXPERIMENTS]
SHORT = replace(SIGNS.quick, name="short", n_samples=20_000, align_iter=400, forget_iter=200)
TINY = replace(BODIES.quick, name="tiny", n_samples=400, dynamics_iter=2, forget_iter=2, n_eval=400)
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4))]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_rows_are_numbered_and_have_a_cell_per_heading_and_no_number_of_a_paper(experiment):
    assert [row.number for row in experiment.rows] == list(range(1, len(experiment.rows) + 1))
    assert {len(row.setting) for row in experiment.rows} == {len(experiment.headings)}
    assert len({row.setting for row in experiment.rows}) == len(experiment.rows)
    assert {len(row.published) for row in experiment.rows} == {len(experiment.scores)}
    assert {str(score) for row in experiment.rows for score in row.published} == {"–"}


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_experiments_are_listed_and_all_settings_are_recorded(experiment):
    assert experiment in papers.EXPERIMENTS
    for profile in (experiment.quick, experiment.full):
        assert set(profile.settings) == {f.name for f in fields(profile)} - {"name", "seeds"}


def test_the_cells_are_the_four_of_the_ablation():
    assert [row.setting[1] for row in BODIES.rows] == ["none", "KL", "reversal", "both"]


@pytest.mark.parametrize(
    ("experiment", "profile"), [(SIGNS, replace(SHORT, align_iter=2, forget_iter=2)), (BODIES, TINY)]
)
def test_a_run_has_all_scores_and_can_be_repeated(experiment, profile):
    row = experiment.rows[-1]
    first, second = (next(papers.reproduce(experiment, profile, [(row, 3)], device="cpu")) for _ in range(2))
    assert set(experiment.scores) | set(experiment.beside) <= set(first.scores)
    assert first.scores == second.scores
    (line,) = papers.compare(experiment, profile, [first]).lines
    assert "–" not in line.ours


# The sign decides the subspace.


@pytest.mark.parametrize("seed", SEEDS)
def test_minimising_lands_in_v_and_maximising_in_its_complement(seed):
    align, forget = (
        100 * np.array(list(SignRow(1, 8, 4, aligns).measure(SHORT, seed, "cpu").values())) for aligns in (True, False)
    )
    assert align[0] < 6
    assert align[1] > 84
    assert forget[1] < 1.2 * forget[2] + 0.2  # of the closed form, in degrees
    assert forget[0] > 84


@pytest.mark.parametrize("seed", SEEDS)
def test_labels_that_say_nothing_land_anywhere(seed):
    align, forget = (SignRow(1, 8, 4, aligns, shuffled=True).measure(SHORT, seed, "cpu") for aligns in (True, False))
    assert 100 * align["to V"] > 30
    assert 100 * forget["to V⊥"] > 30


def test_angles_are_known_by_hand():
    x, y, z = np.eye(3)[:, :, None]
    assert antidiversity._angle(x, x) == pytest.approx(0, abs=1e-6)
    assert antidiversity._angle(x, y) == pytest.approx(90)
    assert antidiversity._angle(x + y, np.hstack([x, z])) == pytest.approx(45)
    spanned, rest = antidiversity._spanned(np.array([[3.0, 0, 0], [0, 2.0, 0]]), 2)
    assert antidiversity._angle(spanned, np.hstack([x, y])) == pytest.approx(0, abs=1e-6)
    assert antidiversity._angle(rest, z) == pytest.approx(0, abs=1e-6)


def test_shuffled_worlds_and_imbalanced_ones_say_so():
    assert [row.setting[1] for row in SIGNS.rows[::2]] == ["balanced", "balanced", "10 : 1", "labels shuffled"]
    assert [row.setting[3] for row in SIGNS.rows[::2]] == ["yes", "yes", "yes", "no"]
    u = SIGNS.rows[4].build(0).sample(20_000, random_state=0).u
    assert (u == 0).float().mean().item() == pytest.approx(10 / 13, abs=0.01)


# Two stages, on seeds that nothing was chosen on.


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_both_stages_hide_most_of_the_body_and_codes_need_pairs(seed):
    none, both = (CellRow(1, kl, reversal).measure(BODIES.quick, seed, "cpu") for kl, reversal in ((0, 0), (1, 1)))
    assert none["leakage"] > 0.9
    assert both["leakage"] < both["floor"] + 0.1
    assert both["transfer 0"] < 0 < both["transfer 50"]  # invariance is not unification
