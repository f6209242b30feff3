"""Would more steps help? What a loss curve says, and a length that chooses itself."""

import numpy as np
import pytest
import torch
from descent import assert_identical, checkpoint, draw, interrupting, run
from safetensors.torch import load_file
from sklearn.exceptions import ConvergenceWarning
from test_trainer import Reports
from torch import nn

from pindown.networks import images
from pindown.training import cosine, early_stopping
from pindown.training.early_stopping import Length, decrease
from pindown.training.trainer import Trainer


def noise(seed, n, memory):
    """Noise of unit variance in which neighbours are alike, as losses of one epoch are."""
    shocks = np.random.default_rng(seed).normal(size=n) * (1 - memory**2) ** 0.5
    values = np.zeros(n)
    for k in range(1, n):
        values[k] = memory * values[k - 1] + shocks[k]
    return values


# the curve


@pytest.mark.parametrize("memory", [0.0, 0.8])
@pytest.mark.parametrize("seed", range(20))
def test_a_converged_loss_is_not_reported_as_falling(seed, memory):
    # Soon at its floor, plus what the rate adds to it: a twentieth of what it has fallen, as large as the noise.
    progress = np.arange(1_000) / 1_000
    rate = np.array([cosine(p) for p in progress])
    curve = 1 + np.exp(-progress / 0.02) + 0.05 * np.sqrt(rate) + 0.05 * noise(seed, 1_000, memory)
    assert not decrease(curve).is_clear


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_that_falls_as_fast_as_it_is_let_is_seen_through_noise(seed):
    progress = np.arange(1_000) / 1_000
    travelled = np.cumsum([cosine(p) for p in progress]) / 1_000
    assert decrease(1 - travelled + 0.025 * noise(seed, 1_000, 0.5)).is_clear


def test_the_scale_of_a_loss_and_its_floor_do_not_matter():
    curve = np.exp(-np.arange(400) / 150)
    assert decrease(1e6 + 1e3 * curve).fraction == pytest.approx(decrease(curve).fraction)


def test_a_curve_that_is_short_or_has_risen_says_nothing():
    falling = 1 - np.arange(400) / 400
    assert decrease(falling).is_clear
    assert not decrease(falling[:199]).is_clear
    assert not decrease(-falling).is_clear


def test_samples_seen_many_times_show_no_convergence_and_neither_does_adversarial_training():
    falling = 1 - np.arange(400) / 400
    assert "steps the loss still fell" in Length(400, epoch=25).shortfall(falling)  # sixteen passes
    assert Length(400, epoch=24).shortfall(falling) == ""
    assert Length(400, falls=False).shortfall(falling) == ""
    assert Length(None, falls=False).rounds(1 - np.arange(2_000) / 2_000) == [2_000]


# trained


class Distant(nn.Module):
    """A goal so far away that Adam, which moves by the rate, needs several rounds to come near it."""

    def __init__(self, goal):
        super().__init__()
        self.goal, self.level = goal, nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return (self.goal - self.level).square() + 0.01 * x.mean()


@pytest.fixture
def short_rounds(monkeypatch):
    """Of 100 steps, in which Adam at a rate of .05 moves by about 2.6; at most 800 in all."""
    monkeypatch.setattr(early_stopping, "FIRST_ROUND", 100)
    monkeypatch.setattr(early_stopping, "MAX_STEPS", 800)
    monkeypatch.setattr(early_stopping, "MIN_STEPS", 100)


def test_a_given_number_of_steps_is_taken_and_the_log_says_that_more_would_help():
    log, _ = run(objective=Distant(10.0), max_iter=200)
    assert log.n_iter == 200
    assert log.shortfall.startswith("in the middle of 200 steps the loss still fell, within a quarter of them, by ")
    assert log.shortfall.endswith("Take a larger max_iter, or None, which takes as many steps as help.")
    assert run(objective=Distant(0.5), max_iter=200)[0].shortfall == ""


def test_a_run_stopped_early_is_not_reported_as_short():
    log, _ = run(objective=Distant(10.0), max_iter=400, patience=50, tol=1e9)
    assert (log.stopped_on_plateau, log.shortfall) == (True, "")


@pytest.mark.usefixtures("short_rounds")
@pytest.mark.parametrize(("goal", "steps"), [(0.5, 100), (3.0, 400), (1_000.0, 800)])
def test_a_length_that_is_not_given_grows_until_the_loss_stops_falling(goal, steps):
    log, weights = run(objective=Distant(goal), max_iter=None)
    assert log.n_iter == steps
    if goal < 1_000:
        assert weights["level"].item() == pytest.approx(goal, abs=0.05)
        assert log.shortfall == ""
    else:
        assert "in the last 400 of 800 steps" in log.shortfall
        assert log.shortfall.endswith("Take a larger max_iter.")


@pytest.mark.usefixtures("short_rounds")
def test_a_loss_that_is_soon_done_takes_the_very_steps_of_the_first_round():
    assert_identical(run(objective=Distant(0.5), max_iter=None), run(objective=Distant(0.5), max_iter=100))


@pytest.mark.usefixtures("short_rounds")
def test_the_schedule_begins_again_in_every_round_and_callbacks_get_the_new_length():
    reports = Reports()
    run(objective=Distant(9.0), max_iter=None, callbacks=(reports,))
    rates = {report.step: report.rates[0] for report in reports.seen}
    assert rates[100] == pytest.approx(0.05 * cosine(0.99))
    assert rates[125] == pytest.approx(0.05 * cosine(0.24))
    assert rates[400] == pytest.approx(0.05 * cosine(0.995))
    assert [report.n_steps for report in reports.seen[2:5]] == [100, 200, 200]


@pytest.mark.usefixtures("short_rounds")
@pytest.mark.parametrize("at", [30, 99, 100, 240, 399])
def test_a_run_of_its_own_length_goes_on_where_it_was_interrupted(tmp_path, at):
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(at), objective=Distant(9.0), max_iter=None, checkpoint=checkpoint(path))
    assert len(load_file(path)["loss_curve"]) == at + 1
    resumed = run(objective=Distant(9.0), max_iter=None, checkpoint=checkpoint(path))
    assert_identical(resumed, run(objective=Distant(9.0), max_iter=None))


def test_a_trainer_can_be_called_as_the_function_that_it_is():
    objective = Distant(0.5)
    log = Trainer()(objective, draw, max_iter=60, learning_rate=0.05, seed=0)
    assert np.array_equal(log.loss_curve, run(objective=Distant(0.5), weight_decay=0.0)[0].loss_curve)


# estimators


IGNORED = "ignore::pindown.errors.IdentifiabilityWarning"  # a linear encoder of what is not linear


def pairs(n):
    """Pairs so far apart that an encoder learns for long."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 4))
    mix = np.linalg.qr(rng.normal(size=(4, 4))).Q
    x, x_pos = (np.sinh(zs @ mix) for zs in (z, z + 0.05 * rng.normal(size=z.shape)))
    return x, x_pos


def fitted(learning_rate, rows=20_000, **options):
    from pindown import Contrast, networks

    options = {"max_iter": 200, "batch_size": 64, "random_state": 0, "verbose": False, "device": "cpu"} | options
    contrast = Contrast(4, encoder=networks.linear, learning_rate=learning_rate, **options)
    return contrast.fit(*pairs(rows))


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # that linear latents know more, too
def test_a_fit_that_was_too_short_warns_as_scikit_learn_does_with_steps_fall_and_remedy():
    with pytest.warns(ConvergenceWarning, match="middle"):
        fitted(1e-3)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning", IGNORED)
@pytest.mark.parametrize("options", [{"learning_rate": 0.1}, {"learning_rate": 1e-3, "rows": 500}])
@pytest.mark.slow
def test_a_fit_that_was_long_enough_or_has_seen_its_rows_often_does_not_warn(options):
    fitted(**options)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning", IGNORED)
@pytest.mark.slow
def test_a_fit_takes_as_many_steps_as_help(monkeypatch):
    for module in (early_stopping, images):
        monkeypatch.setattr(module, "FIRST_ROUND", 200)
    # At most, since held-out samples may have been read best within the round.
    assert fitted(0.1, max_iter=None).n_iter_ <= 200 < fitted(3e-3, max_iter=None).n_iter_
