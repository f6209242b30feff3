import math
import warnings

import numpy as np
import pytest
import torch
from descent import BlindAlley, checkpoint, draw, interrupting, run
from safetensors.torch import load_file

from pindown import Classify, Contrast, Dictionary, Forget, networks
from pindown.errors import IdentifiabilityWarning
from pindown.training import Trainer
from pindown.training.divergence import TrainingDivergedError, check_losses, check_weights


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def broken_at(step, value):
    def broken_draw(k, generator):
        return (draw(k, generator)[0] * (value if k == step else 1.0),)

    return broken_draw


def test_one_outlier_of_two_losses_is_no_divergence():
    check_losses([2.0, 9e9], n_new=1, max_iter=2, learning_rate=0.1)
    with pytest.raises(TrainingDivergedError, match="rose"):
        check_losses([2.0, 9e9, 8e9], n_new=2, max_iter=50, learning_rate=0.1)


def test_weights_that_are_not_trained_may_be_of_any_size():
    layer = torch.nn.Linear(2, 1)
    layer.weight.data.fill_(1e9)
    with pytest.raises(TrainingDivergedError, match="weights"):
        check_weights(layer, [0.5], max_iter=1, learning_rate=0.1)
    check_weights(layer.requires_grad_(False), [0.5], max_iter=1, learning_rate=0.1)


@pytest.mark.parametrize(("value", "name"), [(math.nan, "nan"), (math.inf, "nan|inf")])
def test_a_loss_that_is_no_number_stops_the_run_with_step_and_remedy(value, name):
    with pytest.raises(
        TrainingDivergedError,
        match=rf"the loss is ({name}) at step 30 of 60; it was 0\.\d+ a step before\. Try a smaller learning_rate "
        r"\(now 0\.05\), and look for extreme values in the data",
    ):
        run(broken_at(30, value))


def test_a_loss_that_never_was_a_number_is_reported_at_the_first_step():
    with pytest.raises(TrainingDivergedError, match="step 0"):
        run(broken_at(0, math.nan))


def test_after_divergence_the_checkpoint_is_still_the_last_good_one(path, tmp_path):
    with pytest.raises(TrainingDivergedError):
        run(broken_at(30, math.nan), checkpoint=checkpoint(path, seconds=0))
    good = tmp_path / "good.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(24), checkpoint=checkpoint(good))
    saved, expected = load_file(path), load_file(good)
    assert saved.keys() == expected.keys()
    assert all(torch.equal(saved[name], expected[name]) for name in expected)


@pytest.mark.parametrize("step", [24, 59])
def test_weights_that_are_no_numbers_are_neither_saved_nor_returned_though_the_loss_was_finite(path, step):
    def dead_end(k, generator):
        return (torch.full((1, 3), 0.0 if k >= step else 1.0),)

    with pytest.raises(TrainingDivergedError, match=f"weights are NaN or infinite after step {step} of 60"):
        run(dead_end, objective=BlindAlley(), learning_rate=1e-3, checkpoint=checkpoint(path, seconds=0))
    assert not path.exists() or load_file(path)["objective.level"].isfinite()
    with pytest.raises(TrainingDivergedError):
        run(dead_end, objective=BlindAlley(), learning_rate=1e-3)


# losses that stay finite


def times(factor, when):
    return lambda k, generator: (draw(k, generator)[0] * (factor if when(k) else 1.0),)


def test_a_loss_that_grew_a_thousandfold_stops_the_run_though_it_is_finite(path):
    with pytest.raises(TrainingDivergedError, match="rose"):
        run(times(1e4, lambda k: k >= 30), learning_rate=1e-9, checkpoint=checkpoint(path, seconds=0))
    assert len(load_file(path)["loss_curve"]) == 25


def test_a_few_outlying_batches_do_not_stop_a_run():
    log, _ = run(times(1e4, lambda k: k % 10 == 5), learning_rate=1e-9)
    assert log.n_iter == 60
    assert log.loss_curve.max() > 1e6 * np.median(log.loss_curve)


# estimators


def estimators(learning_rate, **more):
    options = {"max_iter": 60, "learning_rate": learning_rate, "random_state": 0, "verbose": False, **more}
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=300)
    X = rng.normal(size=(300, 5)) + 4 * np.eye(5)[y]
    yield Contrast(2, **options), (X, X + 0.1 * rng.normal(size=X.shape))
    yield Classify(2, **options), (X, y)
    yield Forget(2, encoder=networks.skip_mlp, **options), (X, y)
    yield Forget(2, encoder=networks.linear, **options), (X, y)
    yield Dictionary(2, **options), (X,)


@pytest.mark.parametrize("which", range(5))
@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_no_estimator_takes_an_absurd_learning_rate_in_silence(which, path):
    estimator, data = list(estimators(1e30, trainer=Trainer(checkpoint=path)))[which]
    with pytest.raises(TrainingDivergedError, match="learning_rate"):
        estimator.fit(*data)
    assert not hasattr(estimator, "encoder_")
    assert not list(path.parent.iterdir())


def one_code(n_in, n_out):
    return torch.nn.Sequential(torch.nn.Linear(n_in, n_out), torch.nn.Threshold(1e9, 0.5))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # of what else is wrong with them
def test_a_collapse_is_warned_of_with_the_learning_rate(which):
    # A rate at which rounding, all that codes without a difference give as gradient, cannot drive the temperature away.
    estimator, data = list(estimators(0.01))[which]
    estimator.set_params(encoder=one_code)
    with pytest.warns(IdentifiabilityWarning, match="collapsed"):
        estimator.fit(*data)
    assert estimator.transform(data[0]).std(0).max() < 1e-3


def test_rows_that_begin_alike_are_not_a_collapse():
    x = np.repeat(np.random.default_rng(0).normal(size=(300, 2)), [70_000] + [10] * 299, axis=0)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        Classify(2, max_iter=30, verbose=False, random_state=0, device="cpu").fit(x, (x[:, 0] > 0).astype(int))
    assert not any("collapsed" in str(warning.message) for warning in record)
