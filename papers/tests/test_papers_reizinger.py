"""Reizinger et al.: tables are the paper's, simulations those of its code, and rows come out as they should."""

import math
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from xml.etree import ElementTree

import pindown_papers
import pytest
import torch
from pindown_papers import Published, Record, Results, _clusters, reizinger2024, reizinger2024_figures
from pindown_papers._clusters import FREE, UNIT
from pindown_papers._figure import nice_ticks
from pindown_papers.reizinger2024 import TABLE_2, TABLE_2_ROWS, TABLE_3_ROWS, TABLE_5_ROWS
from pindown_papers.reizinger2024_figures import FIGURE_4, FIGURE_5A, FIGURE_5B, FIGURE_5C
from pindown_papers.simulations import Instances, Projected

from pindown import theory
from pindown.networks.spaces import Box, Reals, Sphere
from pindown.simulate import Clusters
from pindown.simulate.distributions import GeneralizedNormal, Truncated, VonMisesFisher
from pindown.simulate.mixing import identity

EXPERIMENTS = [*reizinger2024.EXPERIMENTS, *reizinger2024_figures.EXPERIMENTS]
TINY = replace(TABLE_2.quick, name="tiny", batch_size=32, max_iter=2, width=4, most_instances=200, n_eval=200)


def built(row, seed=0):
    return row.simulation.build(n_layers=2, most_instances=1_000, seed=seed)


# The tables are the paper's.


@pytest.mark.parametrize(
    ("number", "numbers"),
    [
        (1, ["98.60", "99.90", "1.00", "99.00", "99.90"]),
        (2, ["98.20", "99.50", "0.00", "99.70", "99.80"]),
        (4, ["70.80", "97.10", "3.00", "81.90", "99.70"]),
        (5, ["88.60", "85.70", "2.00", "90.00", "99.00"]),
        (8, ["45.00", "49.70", "30.00", "72.50", "75.50"]),
        (9, ["85.20", "99.70", "1.00", "85.40", "99.50"]),
    ],
)
def test_table_2_has_the_numbers_of_the_paper(number, numbers):
    assert [str(score) for score in TABLE_2_ROWS[number - 1].published] == numbers


def test_table_3_has_the_numbers_of_the_paper():
    assert [row.published[0].mean for row in TABLE_3_ROWS] == [
        99.8, 97.2, 82.1, 97.5, 99.8, 99.8, 99.7, 65.5, 85.4, 99.6,
    ]  # fmt: skip


def test_table_5_claims_no_numbers_of_the_paper():
    assert {str(score) for row in TABLE_5_ROWS for score in row.published} == {"–"}


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_rows_are_numbered_and_have_a_cell_per_heading_and_a_number_per_score(experiment):
    assert [row.number for row in experiment.rows] == list(range(1, len(experiment.rows) + 1))
    assert {len(row.setting) for row in experiment.rows} == {len(experiment.headings)}
    assert {len(row.published) for row in experiment.rows} == {len(experiment.scores)}
    assert len({row.setting for row in experiment.rows}) == len(experiment.rows)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_the_table_agrees_with_the_assumptions_of_the_simulations(experiment):
    assumed = {theory.INJECTIVE_MIXING, theory.VMF_CLUSTERS, theory.AFFINE_GENERATORS}
    holds = {row.number: assumed <= built(row).assumptions for row in experiment.rows}
    assert holds == {row.number: row.assumptions_hold for row in experiment.rows}


def test_the_simulations_of_table_2_are_those_of_the_paper():
    def facts(row):
        simulation = built(row)
        return simulation.n_instances, simulation.d, simulation.clusters.n_classes, simulation.clusters.conditional

    kappa = VonMisesFisher
    assert [facts(row) for row in TABLE_2_ROWS] == [
        (1_000, 5, 100, kappa(10.0)),
        (1_000, 5, 100, kappa(10.0)),  # cut down
        (1_000, 10, 100, kappa(10.0)),
        (1_000, 20, 100, kappa(10.0)),
        (1_000, 5, 10, kappa(10.0)),
        (1_000, 5, 1_000, kappa(10.0)),
        (1_000, 5, 100, kappa(5.0)),
        (1_000, 5, 100, kappa(50.0)),
        (1_000, 5, 100, Projected(GeneralizedNormal(1.0, 1.0))),
        (1_000, 5, 100, Projected(GeneralizedNormal(2**0.5, 2.0))),  # a normal law of standard deviation 1
    ]
    assert TABLE_2_ROWS[1].simulation.build(n_layers=2, most_instances=10**6, seed=0).n_instances == 100_000


def test_table_3_labels_classes_where_table_2_labels_instances():
    assert all(isinstance(built(row), Clusters) for row in TABLE_3_ROWS)
    assert all(isinstance(built(row), Instances) for row in (*TABLE_2_ROWS, *TABLE_5_ROWS))


def test_simulations_of_a_seed_share_their_mixing_and_their_first_class_vectors():
    one, other = built(TABLE_2_ROWS[0], seed=5), built(TABLE_2_ROWS[8], seed=5)
    assert torch.equal(one.clusters.mixing.weights, other.clusters.mixing.weights)
    assert torch.equal(one.vectors, other.vectors)
    assert not torch.equal(one.vectors, built(TABLE_2_ROWS[0], seed=6).vectors)


def test_class_vectors_around_an_axis_lean_to_it_and_those_in_a_plane_lie_in_it():
    axis = [_clusters.around_axis(shape, 2_000, 5, 0) for shape in (1.0, 2.0)]
    assert all(Sphere().contains(v) and v[:, 0].mean() > 0.2 and v[:, 1:].mean(0).abs().max() < 0.05 for v in axis)
    assert not torch.equal(*axis)
    assert _clusters.in_plane(50, 5, 0).sum(1).abs().max() < 1e-12
    assert _clusters.uniform(2_000, 5, 0).mean(0).abs().max() < 0.05


def test_the_points_of_the_figures_that_have_numbers_are_rows_of_table_2():
    def known(experiment, score=0):
        return {row.cells[1:]: row.published[score].mean for row in experiment.rows if row.published[score].mean > 0}

    assert known(FIGURE_4) == {("α = 1", "β = 1"): 85.2}
    assert known(FIGURE_4, 1) == {("α = 1", "β = 1"): 99.7}
    assert known(FIGURE_5A) == {(f"κ = {k}", "batch = 1,024"): r for k, r in ((5, 98.6), (10, 98.6), (50, 45.0))}
    assert known(FIGURE_5B) == {
        ("d = 5", "classes = 10"): 88.6,
        ("d = 5", "classes = 100"): 98.6,
        ("d = 5", "classes = 1,000"): 99.3,
        ("d = 10", "classes = 100"): 92.5,
        ("d = 20", "classes = 100"): 70.8,
    }
    assert known(FIGURE_5C) == {}


def test_truncated_laplace_noise_is_cut_off_where_the_figure_says():
    row = FIGURE_5C.rows[5]
    assert row.cells[1:] == ("α = 1", "T = 2")
    assert built(row).clusters.conditional == Truncated(GeneralizedNormal(1.0, 1.0), Box(-2.0, 2.0))


def test_the_batch_of_a_row_goes_before_that_of_the_recipe():
    row = FIGURE_5A.rows[0]
    assert row.estimator(UNIT, TINY, 0, "cpu").batch_size == 64
    assert TABLE_2_ROWS[0].estimator(UNIT, TINY, 0, "cpu").batch_size == 32


def test_the_two_models_are_two_cases_of_the_theorem():
    unit, free = (TABLE_2_ROWS[0].estimator(model, TINY, 0, "cpu") for model in (UNIT, FREE))
    assert (unit.space, unit.vector_space, unit.guarantee) == (Sphere(), Sphere(), theory.CLASSIFY_NORMALISED)
    assert (free.space, free.vector_space, free.guarantee) == (Reals(), Reals(), theory.CLASSIFY_FREE)


def test_every_setting_of_a_recipe_is_recorded():
    assert set(TINY.settings) == {f.name for f in fields(TINY)} - {"name", "seeds"}


def test_list_has_the_new_experiments():
    names = [experiment.name for experiment in pindown_papers.EXPERIMENTS]
    assert {experiment.name for experiment in EXPERIMENTS} < set(names)
    assert len(set(names)) == len(names)


# Records.


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_a_run_has_all_scores_and_a_killed_reproduction_goes_on_where_it_was(experiment, tmp_path):
    results = Results(tmp_path / "r.jsonl")
    results.open()
    row = experiment.rows[1]
    runs = pindown_papers.pending(experiment, TINY, [], rows=[1, 2], seeds=[3])
    assert len(runs) == 2
    for record in pindown_papers.reproduce(experiment, TINY, [(row, 3)], device="cpu"):
        results.append(record)
    (kept,) = results.open()
    assert set(experiment.scores) | set(experiment.further) <= set(kept.scores)
    rest = pindown_papers.pending(experiment, TINY, [kept], rows=[1, 2], seeds=[3])
    assert [(row.number, seed) for row, seed in rest] == [(1, 3)]
    (line,) = pindown_papers.compare(experiment, TINY, [kept]).lines
    assert line.number == 2
    assert "–" not in line.ours


def test_a_measurement_can_be_repeated():
    first, second = (TABLE_2_ROWS[0].measure(TINY, 3, "cpu") for _ in range(2))
    assert first == second


def test_no_cell_breaks_a_markdown_table():
    assert not any("|" in cell for e in EXPERIMENTS for row in e.rows for cell in (*row.setting, *e.headings))


# The science, in four dimensions behind two layers. Bounds from seeds 0 to 4.

SMALL = replace(TINY, n_layers=2, batch_size=256, max_iter=300, width=64, n_eval=4_000)


def small(row, **changes):
    changes = {"d": 4, "n_classes": 30, "n_instances": 120} | changes
    return replace(row, simulation=replace(row.simulation, **changes))


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4))]


@pytest.mark.parametrize("seed", SEEDS)
def test_instances_recover_latents_and_class_vectors(seed):
    scores = small(TABLE_2_ROWS[0]).measure(SMALL, seed, "cpu")
    assert 1 - scores["unit z"] < (1 - scores["linear"]) / 3
    assert min(scores["unit z"], scores["unit w"]) > 0.985
    assert min(scores["free z"], scores["free w"]) > 0.96
    assert scores["unit MAE"] < 0.02
    assert 0 < scores["unit excess"] < 0.03
    assert scores["warned"] == 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_fewer_classes_than_dimensions_recover_less_and_the_fit_says_so(seed):
    scores = small(TABLE_5_ROWS[4], n_classes=3, n_instances=None).measure(SMALL, seed, "cpu")
    enough = small(TABLE_5_ROWS[4], n_instances=None).measure(SMALL, seed, "cpu")
    assert 1 - scores["unit z"] > 3 * (1 - enough["unit z"])
    assert scores["unit excess"] < 0.005  # though no classifier is much better
    assert scores["warned"] == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_labels_that_say_nothing_of_the_latents_recover_nothing(seed):
    strangers = small(TABLE_2_ROWS[0], conditional=partial(_clusters.vmf, 1e-3))
    scores = replace(strangers, models=(UNIT,)).measure(SMALL, seed, "cpu")
    assert 1 - scores["unit z"] > 0.03  # what starts as the observations keeps some; with labels that tell it is .01
    assert scores["unit w"] < 0.2


def test_the_excess_of_the_truth_is_zero_and_that_of_a_wrong_scale_is_not():
    class Truth:
        class_vectors_, scale_ = built(TABLE_3_ROWS[0]).vectors.numpy(), 10.0

    class Timid(Truth):
        scale_ = 8.0

    simulation = built(TABLE_3_ROWS[0])
    z = simulation.sample(500, random_state=0, dtype=torch.float64).z
    assert _clusters._excess(Truth(), simulation, z, z) == pytest.approx(0, abs=1e-9)
    found = _clusters._excess(Timid(), simulation, z, z)
    labels = simulation.sample(50_000, random_state=0, dtype=torch.float64)
    loss = {
        scale: torch.nn.functional.cross_entropy(scale * labels.z @ simulation.vectors.T, labels.u).item()
        for scale in (8.0, 10.0)
    }
    assert found == pytest.approx(loss[8.0] - loss[10.0], rel=0.1)  # it is a difference of cross-entropies


def test_the_spread_of_the_noise_is_known_by_hand():
    laplace, normal = (_clusters._spread(built(TABLE_2_ROWS[i]))["spread"] for i in (8, 9))
    assert laplace == pytest.approx(1.0)  # E|x| of a Laplace law is its scale
    assert normal == pytest.approx(math.sqrt(2 / math.pi))
    assert _clusters._spread(built(TABLE_2_ROWS[0])) == {}


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 5, 8])
def test_the_quick_profile_reaches_the_paper_or_nearly_so(number):
    row = replace(TABLE_2_ROWS[number - 1], models=(UNIT,))
    ours = [100 * row.measure(TABLE_2.quick, seed, "cpu")["unit z"] for seed in range(5)]
    assert sum(ours) / 5 > row.published[0].mean - 1  # theirs is a mean over simulations, too
    assert min(ours) > row.published[0].mean - 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_latents_that_separate_laplace_clusters_best_are_not_linear_in_the_true_ones(seed, monkeypatch):
    monkeypatch.setattr(_clusters, "_mixing", lambda d, n_layers, seed: identity(d))
    profile = replace(TABLE_2.quick, batch_size=2_048)
    laplace, normal = (replace(TABLE_3_ROWS[i], models=(UNIT,)).measure(profile, seed, "cpu") for i in (8, 9))
    assert laplace["linear"] == pytest.approx(1) == normal["linear"]
    assert 0.82 < laplace["unit z"] < 0.89
    assert normal["unit z"] > 0.99


# Figures.


def record(row, seed=0, **scores):
    return Record(FIGURE_5B.name, row, seed, "tiny", TINY.settings, scores, 1.0, "cpu", {"torch": "0"})


def drawn(*records):
    svg = pindown_papers.draw(FIGURE_5B, TINY, records)
    root = ElementTree.fromstring(svg)
    ours = {name: [e for e in root.iter() if e.tag.endswith(name)] for name in ("circle", "polyline", "text")}
    return ours, [element.text for element in ours["text"]]


def test_a_figure_has_a_line_per_series_a_dot_per_point_and_the_papers_numbers():
    parts, texts = drawn(*(record(row, **{"unit z": 0.9 + 0.01 * row}) for row in range(1, 7)))
    assert len(parts["polyline"]) == 2  # d = 5 and d = 10
    assert len(parts["circle"]) == 6 + 2  # and the legend's
    assert {"d = 5", "d = 10", "the paper", "10", "100", "1,000", "classes"} <= set(texts)
    assert "d = 20" not in texts


def test_higher_scores_are_drawn_higher_and_seeds_are_averaged():
    parts, _ = drawn(record(1, **{"unit z": 0.8}), record(2, 0, **{"unit z": 0.9}), record(2, 1, **{"unit z": 0.7}))
    first, second, *_ = (float(dot.get("cy")) for dot in parts["circle"])
    assert first == pytest.approx(second)
    parts, _ = drawn(record(1, **{"unit z": 0.8}), record(2, **{"unit z": 0.9}))
    low, high, *_ = (float(dot.get("cy")) for dot in parts["circle"])
    assert high < low  # y points down


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="figure"):
        pindown_papers.draw(TABLE_2, TINY, [])
    other = replace(TINY, width=8)
    with pytest.raises(ValueError, match="reproduce"):
        pindown_papers.draw(FIGURE_5B, other, [record(1, **{"unit z": 0.8})])


@pytest.mark.parametrize(("low", "high"), [(0.0, 100.0), (45.0, 99.7), (99.1, 99.2), (50.0, 50.0), (-3.0, 250.0)])
def test_ticks_are_few_even_and_enclose_the_values(low, high):
    ticks = nice_ticks(low, high)
    assert 3 <= len(ticks) <= 8
    assert ticks[0] <= low <= high <= ticks[-1]
    gaps = [b - a for a, b in pairwise(ticks)]
    assert gaps == pytest.approx(gaps[:1] * len(gaps))


def test_an_unknown_number_is_a_dash():
    assert str(Published(math.nan)) == "–"
