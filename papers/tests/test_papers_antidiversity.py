"""Anti-diversity: the sign decides the subspace, the cells what is hidden and kept."""

from dataclasses import fields, replace

import numpy as np
import pindown_papers
import pytest
from pindown_papers import _robots, antidiversity, antidiversity_bodies, antidiversity_robots, antidiversity_worlds
from pindown_papers.antidiversity import SIGNS, SignRow
from pindown_papers.antidiversity_bodies import BODIES
from pindown_papers.antidiversity_robots import ROBOTS
from pindown_papers.antidiversity_worlds import WORLDS

EXPERIMENTS = [
    *antidiversity.EXPERIMENTS,
    *antidiversity_bodies.EXPERIMENTS,
    *antidiversity_robots.EXPERIMENTS,
    *antidiversity_worlds.EXPERIMENTS,
]
SHORT = replace(SIGNS.quick, name="short", n_samples=20_000, align_iter=1_000, forget_iter=200)
FEW = replace(WORLDS.quick, name="few", n_samples=600, n_eval=600, max_iter=2)
TINY = replace(BODIES.quick, name="tiny", n_samples=400, dynamics_iter=2, forget_iter=2, n_eval=400)
IN_HASTE = replace(ROBOTS.quick, name="in haste", dynamics_iter=2, forget_iter=2)
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
    assert experiment in pindown_papers.EXPERIMENTS
    for profile in (experiment.quick, experiment.full):
        assert set(profile.settings) == {f.name for f in fields(profile)} - {"name", "seeds"}


def test_the_cells_are_the_four_of_the_ablation():
    assert [row.setting[1] for row in BODIES.rows[:4]] == ["none", "KL", "reversal", "both"]
    assert [row.setting[1] for row in BODIES.rows[4:]] == ["reversal, late", "both, late"]
    assert [row.setting[2] for row in BODIES.rows] == ["no", "no", "no", "yes", "no", "no"]


@pytest.mark.parametrize(
    ("experiment", "row", "profile"),
    [(SIGNS, -1, replace(SHORT, align_iter=2, forget_iter=2)), (BODIES, -1, TINY), (WORLDS, 0, FEW)],
)
@pytest.mark.slow
def test_a_run_has_all_scores_and_can_be_repeated(experiment, row, profile):
    run = [(experiment.rows[row], 3)]
    first, second = (next(pindown_papers.reproduce(experiment, profile, run, device="cpu")) for _ in range(2))
    of_extras = {"LEACE"}
    assert set(experiment.scores) | set(experiment.further) - of_extras <= set(first.scores)
    scores, again = ({name: score for name, score in r.scores.items() if name != "fit, s"} for r in (first, second))
    assert scores == again
    (line,) = pindown_papers.compare(experiment, profile, [first]).lines
    assert "–" not in line.ours


# Six arms, from the recording that comes with the package.


def two_arms(seed):
    arms = _robots.small(seed)
    learned, held = ({r: part[r] for r in ("Panda", "UR5e")} for part in (arms.learned, arms.held))
    return _robots.Arms(learned, held, arms.n_pairs)


BRIEF = replace(IN_HASTE, arms=two_arms)


@pytest.mark.parametrize("row", [ROBOTS.rows[k] for k in (0, 10)], ids=lambda row: row.name)
def test_a_run_of_robots_has_all_scores_and_can_be_repeated(row):
    first, second = (next(pindown_papers.reproduce(ROBOTS, BRIEF, [(row, 3)], device="cpu")).scores for _ in range(2))
    assert first == second
    of_some = {"adopted", "codes", "second stage", *(f"labels {k}, one line" for k in _robots.LABELS)}
    assert {*ROBOTS.scores, *ROBOTS.further} - of_some <= set(first)


def test_episodes_of_robots_are_held_out_whole_and_pairs_are_the_same_commands():
    arms = _robots.small(0)
    assert arms.n_pairs == 20 * 20
    assert [len(moves.hand) for moves in arms.held.values()] == [20 * 20] * 6
    assert [len(moves.hand) for moves in arms.learned.values()] == [60 * 20] * 6
    for part in (arms.held, {r: moves.take(np.arange(arms.n_pairs)) for r, moves in arms.learned.items()}):
        panda = part["Panda"].hand
        assert all(np.corrcoef(panda[:, 0], moves.hand[:, 0])[0, 1] > 0.8 for moves in part.values())
    own = {r: moves.hand[arms.n_pairs :] for r, moves in arms.learned.items()}
    assert abs(np.corrcoef(own["Panda"][:, 0], own["UR5e"][:, 0])[0, 1]) < 0.3
    starts = {tuple(row) for row in arms.held["Panda"].before}
    assert not starts & {tuple(row) for row in arms.learned["Panda"].before}


@pytest.mark.slow
def test_fifty_pairs_tie_robots_together_and_changes_of_joints_are_not():
    changes, tied = (ROBOTS.rows[k].measure(ROBOTS.quick, 3, "cpu") for k in (3, 13))
    assert changes["leakage"] > 0.5 > 0.25 > tied["leakage"]
    assert tied["transfer 0"] > 0.75 > 0 > changes["transfer 0"]
    assert tied["within"] > 0.85
    assert tied["adopted"] > 0.7


def test_without_recordings_the_full_table_says_how_to_make_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PINDOWN_ROBOTS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no recording of robots in .*record.py .*PINDOWN_ROBOTS"):
        ROBOTS.rows[0].measure(ROBOTS.full, 0, "cpu")


# The sign decides the subspace.


@pytest.mark.parametrize("seed", SEEDS)
def test_minimising_lands_in_v_and_maximising_in_its_complement(seed):
    align, forget = (
        100 * np.array(list(SignRow(1, 8, 4, aligns).measure(SHORT, seed, "cpu").values())) for aligns in (True, False)
    )
    assert align[0] < 10
    assert align[1] > 80
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


def test_shuffled_and_imbalanced_simulations_are_marked():
    assert [row.setting[1] for row in SIGNS.rows[::2]] == ["balanced", "balanced", "10 : 1", "labels shuffled"]
    assert [row.setting[3] for row in SIGNS.rows[::2]] == ["yes", "yes", "yes", "no"]
    u = SIGNS.rows[4].build(0).sample(20_000, random_state=0).u
    assert (u == 0).float().mean().item() == pytest.approx(10 / 13, abs=0.01)


# Simulations and two stages, at full length, on seeds that nothing was chosen on.


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("row", WORLDS.rows[:3], ids=lambda row: row.setting[0])
def test_a_linear_encoder_is_as_near_to_the_complement_as_the_closed_form(row, seed):
    found = row.measure(WORLDS.quick, seed, "cpu")
    assert 100 * found["angle"] <= 1.2 * 100 * found["angle, means"] + 0.2
    assert found["above floor"] < 0.03
    assert found["recovery"] > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_where_only_spreads_differ_closed_forms_leak_and_adversarial_training_does_not(seed):
    found = WORLDS.rows[3].measure(WORLDS.quick, seed, "cpu")
    assert found["above floor"] < 0.03
    assert 100 * found["angle"] <= 5
    assert found["class means"] > 0.15
    assert found.get("LEACE", 1.0) > 0.15


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("row", WORLDS.rows[4:], ids=lambda row: row.setting[0])
def test_behind_a_nonlinear_mixing_adversarial_training_removes_the_nuisance_and_keeps_the_rest(row, seed):
    found = row.measure(WORLDS.quick, seed, "cpu")
    assert found["above floor"] < 0.05
    # Of eight dimensions and four values no more is kept than the directions without differences of means hold.
    assert found["recovery"] >= (0.9 if row.d < 8 else found["recovery from class means"] - 0.05)
    assert found["dimensions filled"] > 0.8
    assert found["class means"] > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_two_stages_hide_the_body_keep_the_action_and_need_pairs(seed):
    none, reversal, both = (BODIES.rows[k].measure(BODIES.quick, seed, "cpu") for k in (0, 2, 3))
    assert none["leakage"] > none["floor"] + 0.05
    for hidden in (reversal, both):
        assert hidden["leakage"] < hidden["floor"] + 0.05
        assert hidden["recovery"] > 0.9
        assert hidden["transfer 50"] > 0.85
        assert hidden["transfer 0"] < 0  # invariance is not unification
