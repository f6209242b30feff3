"""Rows that no step sees: training goes back to their best moment, and a run that was broken off does the same."""

import numpy as np
import pytest
import torch
from descent import assert_identical, checkpoint, interrupting, run
from torch import nn

from pindown.training import Validation
from pindown.training.early_stopping import (
    MIN_ANNEALING,
    EarlyStopping,
    Length,
    Phase,
    Rollback,
    StepPlan,
    find_rollback,
)


class Drifting(nn.Module):
    """A number that steps carry from 0 to 1 and beyond; held-out samples want it at .5."""

    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return (self.level - x.mean()).square()


HALF_WAY = Validation(((torch.full((4, 1), 0.5),),))


def towards_one(step, generator):
    return (torch.ones(4, 1) + 1e-3 * torch.randn(4, 1, generator=generator),)


def drifted(draw=towards_one, **options):
    how = {"max_iter": 1_000, "learning_rate": 5e-3, "weight_decay": 0.0, "validation": HALF_WAY}
    return run(draw, objective=Drifting(), **(how | options))


def test_training_goes_back_to_the_moment_that_was_best_on_rows_held_out():
    log, weights = drifted()
    assert log.rollback is not None
    assert log.rollback.best < log.rollback.at < 1_000
    assert abs(float(weights["level"]) - 0.5) < 0.05
    losses = dict(log.held_out)
    assert min(losses.values()) == pytest.approx(HALF_WAY.loss(as_drifting(weights)), abs=1e-12)
    assert log.n_iter == sum(phase.taken for phase in log.step_plan) < 1_000


def as_drifting(weights):
    objective = Drifting()
    objective.load_state_dict(weights)
    return objective


def test_without_a_validation_set_all_steps_are_taken():
    log, weights = drifted(validation=None)
    assert (log.rollback, log.held_out, log.n_iter) == (None, (), 1_000)
    assert abs(float(weights["level"]) - 1) < 0.05


def test_rows_that_improve_to_the_end_change_no_step():
    agreeing = Validation(((torch.ones(4, 1),),))
    assert_identical(drifted(validation=agreeing), drifted(validation=None))


@pytest.mark.parametrize("fraction", [0.5, 0.99, 1.02])
def test_a_run_broken_off_before_or_after_it_went_back_ends_where_an_unbroken_one_does(tmp_path, fraction):
    unbroken = drifted()
    at = int(fraction * unbroken[0].rollback.at)

    def pressed(step, generator):
        interrupting(at)(step, generator)
        return towards_one(step, generator)

    # The other draw takes numbers from the generator, too: both runs must.
    def alike(step, generator):
        interrupting(None)(step, generator)
        return towards_one(step, generator)

    file = checkpoint(tmp_path / "run.safetensors")
    with pytest.raises(KeyboardInterrupt):
        drifted(pressed, checkpoint=file)
    resumed, whole = drifted(alike, checkpoint=file), drifted(alike)
    assert_identical(resumed, whole)
    assert resumed[0].held_out == whole[0].held_out


def test_a_finished_run_is_loaded_at_the_moment_that_was_kept(tmp_path):
    file = checkpoint(tmp_path / "run.safetensors")
    first = drifted(checkpoint=file)

    def never(step, generator):
        raise AssertionError("a step was taken")

    assert_identical(drifted(never, checkpoint=file), first)


def test_a_known_schedule_is_taken_step_by_step():
    log, weights = drifted()
    again, same = drifted(validation=None, step_plan=StepPlan(log.step_plan, 1.0, 0.0))
    assert np.array_equal(again.loss_curve, log.loss_curve)
    assert torch.equal(same["level"], weights["level"])


def test_rows_that_only_get_worse_leave_the_weights_as_they_were():
    log, weights = drifted(validation=Validation(((torch.full((4, 1), -1.0),),)))
    assert (log.rollback.best, log.n_iter) == (0, 1)
    assert float(weights["level"]) == 0


def test_a_loss_that_clearly_rises_is_waited_for_half_as_long_as_it_fell():
    rises = [(25 * k, abs(k - 20) / 20) for k in range(81)]
    assert find_rollback(rises, Length(2_000)) == Rollback(950, 500)
    step_plan = EarlyStopping(HALF_WAY, Length(2_000), rises).phases
    assert step_plan == [Phase(2_000, 950), Phase(250, 250, 500)]
    assert MIN_ANNEALING < 250


def test_a_loss_that_falls_to_the_end_or_rises_at_the_end_of_a_round():
    falls, rises = [(25 * k, 1 / (1 + k)) for k in range(41)], [(25 * k, abs(k - 8) / 8) for k in range(41)]
    assert find_rollback(falls, Length(1_000)) is None
    assert find_rollback(rises, Length(300)) == Rollback(300, 200)


def test_a_loss_that_rose_to_a_plateau_is_waited_for_as_long_as_it_fell():
    noise = np.random.default_rng(0).uniform(-0.05, 0.05, size=81)
    stays = [(25 * k, abs(k - 20) / 20 if k <= 20 else 0.2 + noise[k]) for k in range(81)]
    assert find_rollback(stays, Length(2_000)) == Rollback(1_200, 500)


def test_a_rise_that_is_noise_is_none():
    flat = [(0, 1.0), *((25 * k, 0.01 * (k % 2)) for k in range(1, 81))]
    assert find_rollback(flat, Length(2_000)) is None


def test_whether_a_round_ends_is_decided_only_where_one_can(monkeypatch):
    asked = []
    rounds = Length.rounds
    monkeypatch.setattr(Length, "rounds", lambda self, curve: asked.append(len(curve)) or rounds(self, curve))
    log, _ = drifted(lambda step, generator: (torch.full((4, 1), 0.5 + 0.5 * (step < 100)),), max_iter=None)
    assert len(asked) < 10 < 40 < len(log.held_out)


def test_one_rise_of_the_loss_at_a_high_rate_does_not_exhaust_patience():
    # Three of four factors of sprites are learned in 200 steps, and the last, which tells little, only after 600.
    slow = [(0, 4.4), *((25 * k, 3.75 + (0.015 if k % 3 == 0 else 0.0)) for k in range(1, 41))]
    assert find_rollback(slow, Length(2_000)) is None
    by_heart = [(step, loss + 2e-5 * max(step - 200, 0)) for step, loss in slow]
    assert find_rollback(by_heart, Length(2_000)).at > 600
