"""Papers on images: every row runs, on the simulations that it says, and theirs are the paper's."""

from dataclasses import replace

import numpy as np
import pytest
from pindown_papers import (
    Record,
    compare,
    reizinger2024_images,
    zheng2025_images,
    zheng2025_penalties,
    zimmermann2021_images,
)
from pindown_papers.reizinger2024_images import PICTURES
from pindown_papers.zheng2025_images import TABLE_1
from pindown_papers.zheng2025_penalties import TABLE_7, TABLE_8
from pindown_papers.zimmermann2021_images import ROOMS, SIZES, SPRITES

EXPERIMENTS = (
    *zimmermann2021_images.EXPERIMENTS,
    *reizinger2024_images.EXPERIMENTS,
    *zheng2025_images.EXPERIMENTS,
    *zheng2025_penalties.EXPERIMENTS,
)


def test_theirs_are_the_papers_and_the_notes_say_that_the_data_differ():
    assert [str(score) for score in SPRITES.rows[5].published] == ["100.00", "94.50", "17.40", "54.00", "94.70", "7.00"]
    assert str(SPRITES.rows[8].published[0]) == "–"
    assert "not comparable" in SPRITES.notes[0]
    assert all("cannot be had" in experiment.notes[0] for experiment in (ROOMS, PICTURES, TABLE_1, TABLE_7, TABLE_8))


def test_positives_are_by_uni_and_lap_on_the_grid():
    for row in (SPRITES.rows[0], SPRITES.rows[5]):
        sample = row.simulation(8).sample(200, random_state=0)
        changed = (sample.z != sample.z_pos).float().mean(0)
        assert sample.z.shape == (200, len(SIZES))
        assert (changed[0] == 0) == (row.positives == "LAP")  # the shape is a category
        assert (changed[1:] > 0.2).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("experiment", "number"),
    [(SPRITES, 2), (SPRITES, 9), (SPRITES, 11), (ROOMS, 9), (PICTURES, 3)],
    ids=lambda e: getattr(e, "name", e),
)
@pytest.mark.slow
def test_rows_run_small(experiment, number):
    tiny = replace(experiment.quick, name="tiny", pixels=8, batch_size=32, max_iter=2, n_eval=400)
    scores = experiment.rows[number - 1].measure(tiny, 0, "cpu")
    assert [*experiment.scores, *experiment.further] == [*scores]
    assert np.isfinite([*scores.values()]).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("table", "number"), [(TABLE_1, 3), (TABLE_1, 12), (TABLE_1, 15), (TABLE_1, 18), (TABLE_7, 4)])
@pytest.mark.slow
def test_generators_of_images_run_small(table, number):
    if "EncDiff" in table.rows[number - 1].setting[1]:
        pytest.importorskip("diffusers")
    tiny = replace(table.quick, name="tiny", pixels=8, n_samples=100, n_eval=300, batch_size=32, max_iter=2)
    scores = table.rows[number - 1].measure(tiny, 0, "cpu")
    assert {*table.scores, *table.further} == {*scores}
    assert np.isfinite([*scores.values()]).all()


def test_every_seed_is_shown_so_that_one_that_collapsed_is_seen():
    def run(seed, score):
        scores = {"FactorVAE score": score, "DCI": 0.5}
        return Record(TABLE_8.name, 1, seed, "quick", TABLE_8.quick.settings, scores, 1.0, "cpu", {})

    (line,) = compare(TABLE_8, TABLE_8.quick, [run(1, 0.0), run(0, 0.9)]).lines
    assert line.ours == ("45.00±63.64 (90.0, 0.0)", "50.00±0.00")


def test_every_generator_of_images_can_be_built():
    assert [str(score) for score in TABLE_1.rows[2].published] == ["87.10±5.30", "57.50±3.20"]
    for row in TABLE_1.rows:
        assert row.generator(TABLE_1.quick, 0, "cpu").n_components == row.renderer(8).d == 5
    for row in TABLE_8.rows:
        n_factors = {"sprites": 3, "arm": 5}[row.simulation]
        assert row.pictures.generator(TABLE_8.quick, 0, "cpu").n_components == n_factors


def test_settings_distinguish_rows():
    for experiment in EXPERIMENTS:
        assert len({row.setting for row in experiment.rows}) == len(experiment.rows)
        assert [row.number for row in experiment.rows] == list(range(1, len(experiment.rows) + 1))
        assert all(len(row.setting) == len(experiment.headings) for row in experiment.rows)
