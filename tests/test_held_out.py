"""What a fit says of rows that it has not seen."""

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

from pindown import Classify, Contrast, Data, Dictionary
from pindown.auditing.refits import refitted
from pindown.errors import IdentifiabilityWarning
from pindown.methods import fitting
from pindown.methods.fitting import Trained, train_by_plan
from pindown.methods.held_out import HeldOut
from pindown.methods.inputs import DataSummary
from pindown.networks.spaces import Reals
from pindown.simulate import Pairs
from pindown.training import Trainer, TrainingLog

QUIET = {"verbose": False, "random_state": 0, "device": "cpu"}


def labelled(n, d=20, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.integers(0, 3, n)


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.slow
def test_uninformative_labels_are_not_reported_as_recognised():
    held_out = Classify(2, max_iter=150, **QUIET).fit(*labelled(300)).held_out_
    assert held_out.score < 0.45  # a third, by chance
    assert held_out.n_samples == 300


@pytest.mark.slow
def test_scores_of_a_small_table_hold_for_other_samples():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:120], order[120:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        fitted = Classify(2, max_iter=300, **QUIET).fit(X[train], y[train])
    assert (fitted.held_out_.n_samples, fitted.held_out_.n_folds) == (120, 5)
    assert fitted.score(X[test], y[test]) > 0.85
    assert abs(fitted.held_out_.score - fitted.score(X[test], y[test])) < 0.12  # three errors of 58 rows


def test_sessions_are_held_out_whole_and_the_score_is_theirs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_500, 6)).cumsum(0)[:, :6] * 0.1 + rng.normal(size=(1_500, 6))
    groups = np.arange(1_500) // 150
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = Contrast(2, max_iter=50, **QUIET).fit(Data(X, pairs="next", groups=groups))
    assert fitted.held_out_.n_samples == 150
    assert fitted.held_out_.chance == 0


def test_refits_to_few_samples_take_the_schedule_of_the_fit():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 150)
    X = rng.normal(size=(150, 4)) + 3 * np.eye(4)[y]
    fitted = Classify(2, max_iter=100, **QUIET).fit(X, y)
    again = refitted(fitted, Data(X[:120], signal=y[:120]), seed=1)
    assert again.n_iter_ == sum(phase.taken for phase in fitted.held_out_.step_plan.phases) == fitted.n_iter_
    assert again.held_out_ is None


def test_simulations_and_a_validation_fraction_of_zero_hold_nothing_out():
    world = Pairs.on_sphere(3, 10.0, random_state=0)
    assert Contrast(3, max_iter=20, **QUIET).fit_process(world).held_out_ is None
    sample = world.sample(400, random_state=1)
    assert (
        Contrast(3, max_iter=20, trainer=Trainer(validation_fraction=0), **QUIET).fit(sample.x, sample.x_pos).held_out_
        is None
    )


@pytest.mark.slow
def test_a_linear_simulation_keeps_a_linear_encoder_and_a_nonlinear_one_does_not():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    X = rng.normal(size=(200, 10)) + 2 * np.eye(10)[y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        # At this rate a bend soon knows its rows from memory: it is worse by 14 % of the loss and more.
        fitted = Classify(2, max_iter=200, learning_rate=1e-2, **QUIET).fit(X, y)
        assert fitted.held_out_.linear
        for elsewhere in (False, True):  # made again, it is straight, too: twice a latent is the code of twice a row
            again = refitted(
                fitted.set_params(max_iter=2, space=Reals()), Data(X, signal=y), seed=1, elsewhere=elsewhere
            )
            rows = X[:3] - X.mean(0)
            away = again.transform(X.mean(0) + 2 * rows) - again.transform(X.mean(0) + rows)
            np.testing.assert_allclose(
                away, again.transform(X.mean(0) + rows) - again.transform(X.mean(0)[None]), atol=1e-5
            )
        X = rng.normal(size=(600, 3))
        ring = np.linalg.norm(X[:, :2], axis=1) > 1.2
        assert not Classify(2, max_iter=200, **QUIET).fit(X, ring.astype(int)).held_out_.linear


def test_restarts_of_a_dictionary_are_compared_by_the_rows_held_out():
    X = np.random.default_rng(0).normal(size=(400, 4))
    fitted = Dictionary(2, n_restarts=1, max_iter=20, **QUIET).fit(X)
    assert fitted.held_out_.n_samples == 40
    assert fitted.held_out_.chance == -2


@pytest.mark.parametrize("fraction", [-0.1, 0.6, "a"])
def test_a_validation_fraction_outside_its_range_is_refused(fraction):
    X, y = labelled(50)
    with pytest.raises((ValueError, TypeError), match="validation_fraction"):
        Classify(2, trainer=Trainer(validation_fraction=fraction), **QUIET).fit(X, y)


def test_it_overfits_where_a_quarter_of_what_it_shows_is_not_there():
    whole = HeldOut("R²", 0.9, 1.0, 0.0, n_samples=100, n_folds=1, n_steps=10)
    assert not whole.overfits
    assert whole.warning == ""
    half = HeldOut("R²", 0.5, 1.0, 0.0, n_samples=100, n_folds=1, n_steps=10)
    assert half.overfits
    assert "0.500 on 100 held-out samples, 1.000 on training samples" in half.warning
    assert not HeldOut("R²", 0.0, 0.04, 0.0, n_samples=100, n_folds=1, n_steps=10).overfits


def learned(first, end, chance=0.0):
    curve = chance + np.repeat([first, end], 20)
    return Trained(torch.nn.Identity(), TrainingLog(curve, 0.0, False), DataSummary(1), chance=chance)


def test_a_fit_to_all_samples_that_gets_stuck_where_the_folds_did_not_is_restarted(monkeypatch):
    monkeypatch.setattr(fitting, "training_batches", lambda *_: None)

    def tried(*ends):
        seeds, left = [], list(ends)
        est = SimpleNamespace(_optimise=lambda _, seed: seeds.append(seed) or learned(1.0, left.pop(0)))
        found = train_by_plan(est, SimpleNamespace(seed=0, samples=None), learned(1.0, 0.05).step_plan)
        return [seed // fitting.SEED_STRIDE for seed in seeds], found.final_loss

    assert tried(0.1) == ([0], pytest.approx(0.1))
    assert tried(0.5, 0.4, 0.01, 0.0) == ([0, 1, 2], pytest.approx(0.01))
    assert tried(0.5, 0.4, 0.6, 0.7) == ([0, 1, 2, 3], pytest.approx(0.4))


def test_losses_are_compared_relative_to_chance_when_a_fit_is_checked_for_being_stuck():
    in_folds = learned(0.0, -0.5, math.log(24))
    assert not learned(0.0, -0.48, math.log(30)).is_stuck(in_folds.step_plan)
    assert learned(0.0, -0.4, math.log(30)).is_stuck(in_folds.step_plan)
    assert not learned(0.0, 0.2, math.log(30)).is_stuck(learned(0.0, 0.1, math.log(24)).step_plan)
