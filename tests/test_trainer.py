"""The trainer as a value: what it does with precision, batches per step, schedules, callbacks; and bad parameters."""

import logging
import math
import os
import shutil
import sys
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from descent import Regression, assert_identical, checkpoint, interrupting, run
from pindown_papers.muon import Muon
from safetensors.torch import load_file
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn

from pindown import Classify, Contrast, Dictionary, Forget, Sparse, SparseBasis, networks
from pindown.training import Callback, CallbackError, Trainer, constant
from pindown.training.callbacks import Log, Report, TensorBoard, WeightsAndBiases
from pindown.training.divergence import TrainingDivergedError
from pindown.training.optimizers import adam
from pindown.training.steps import LARGEST_SCALE

# a value


def test_equal_trainers_are_equal_values_and_survive_a_clone():
    trainer = Trainer(precision=torch.bfloat16, callbacks=(Log(),), checkpoint=Path("fit.safetensors"), patience=3)
    assert clone(trainer, safe=False) == trainer
    assert hash(Trainer()) == hash(Trainer())
    assert Trainer() != Trainer(accumulate=2)
    assert repr(Trainer(patience=3)) == repr(Trainer(patience=3))
    assert "0x" not in repr(trainer)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"precision": "bf16"}, ValueError, r"precision must be torch\.float32, torch\.bfloat16.* got 'bf16'"),
        ({"precision": torch.float64}, ValueError, "got torch.float64"),
        ({"accumulate": 0}, ValueError, "accumulate == 0, must be >= 1"),
        ({"accumulate": 1.5}, TypeError, "accumulate must be an instance of int"),
        ({"patience": 0}, ValueError, "patience == 0, must be >= 1"),
        ({"save_every": -1.0}, ValueError, "save_every == -1.0, must be >= 0"),
        ({"callbacks": [Log()]}, TypeError, "callbacks must be a tuple of pindown.training.callbacks.Callback"),
        ({"callbacks": (print,)}, TypeError, r"callbacks must be a tuple .* such as \(Log\(\),\), got"),
        ({"checkpoint": 3}, TypeError, "checkpoint must be the path of a file, or None, got 3"),
    ],
)
def test_a_bad_parameter_is_refused_before_the_first_step_and_not_when_it_is_stored(parameters, error, message):
    trainer = Trainer(**parameters)

    def never(step, generator):
        raise AssertionError("a step was taken")

    with pytest.raises(error, match=message):
        trainer.train(Regression(), never, max_iter=1, learning_rate=0.1, seed=0)


def test_a_learning_rate_that_is_no_tensor_is_refused_with_the_remedy():
    with pytest.raises(TypeError, match="tensor"):
        run(optimizer=lambda objective, rate, decay: torch.optim.SGD(objective.parameters(), rate))


# batches per step


def test_gradients_are_averaged_over_the_batches_of_a_step():
    # Eight rows at once, or twice four of them: the same mean, the same step.
    rows = torch.randn(16 * 4, 3, generator=torch.Generator().manual_seed(0))

    def at_a_time(size):
        return lambda step, generator: (rows[size * step : size * (step + 1)],)

    whole, weights = run(at_a_time(8), max_iter=8)
    halves, others = run(at_a_time(4), max_iter=8, accumulate=2)
    np.testing.assert_allclose(halves.loss_curve, whole.loss_curve, rtol=1e-5)
    torch.testing.assert_close(others, weights, rtol=1e-4, atol=1e-6)


def test_a_resumed_run_with_several_batches_a_step_equals_an_unbroken_one(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(61), checkpoint=checkpoint(path), accumulate=2)
    assert len(load_file(path)["loss_curve"]) == 31
    assert_identical(run(checkpoint=checkpoint(path), accumulate=2), run(accumulate=2))
    with pytest.raises(ValueError, match="accumulate"):
        run(checkpoint=checkpoint(path))


def test_adversarial_training_with_several_batches_a_step_counts_its_steps():
    rng = np.random.default_rng(0)
    e = rng.integers(2, size=300)
    x = rng.normal(size=(300, 4)) + e[:, None] * np.eye(4)[0]
    options = {
        "encoder": networks.linear,
        "max_iter": 25,
        "batch_size": 32,
        "random_state": 0,
    }
    forget = Forget(
        2, trainer=Trainer(accumulate=2, validation_fraction=0), device="cpu", verbose=False, **options
    ).fit(x, e)
    assert (forget.n_iter_, len(forget.history_.classifier_loss)) == (25, 25)
    assert (forget.history_.classifier_loss > 0).all()


# precision


class Watched(Regression):
    """Remembers in what precision its products come out."""

    def forward(self, x):
        self.seen = (x @ self.matrix).dtype
        return super().forward(x)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_products_have_the_requested_precision_and_weights_stay_in_float32(precision):
    objective = Watched()
    log, weights = run(objective=objective, precision=precision)
    assert objective.seen == precision
    assert all(weight.dtype == torch.float32 for weight in weights.values())
    exact, _ = run()
    assert not np.array_equal(log.loss_curve, exact.loss_curve)
    assert log.loss_curve[-10:].mean() == pytest.approx(exact.loss_curve[-10:].mean(), rel=0.05)


def test_gradients_below_float16s_least_number_still_move_weights():
    class Faint(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, 1))

        def forward(self, x):
            return 1e-9 * (x @ self.weight).sum()  # 1e-9 is zero in float16

    _, weights = run(lambda *_: (torch.ones(1, 1),), objective=Faint(), precision=torch.float16, weight_decay=0.0)
    assert weights["weight"].item() < 0.95  # to Adam, too, it is near nothing, but not nothing


def test_steps_whose_gradients_overflow_in_float16_are_left_out_and_the_run_resumes_as_one(tmp_path):
    class Steep(Regression):
        def forward(self, x):
            return 300 * super().forward(x)

    options = {"precision": torch.float16, "weight_decay": 0.0}
    whole = run(objective=Steep(), **options)
    assert whole[0].loss_curve[0] > 20
    assert whole[0].loss_curve[-10:].mean() < 0.9 * whole[0].loss_curve[:10].mean()
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(30), objective=Steep(), checkpoint=checkpoint(path), **options)
    assert load_file(path)["scale"] < LARGEST_SCALE
    assert_identical(run(objective=Steep(), checkpoint=checkpoint(path), **options), whole)


# compiled


COMPILER = [
    pytest.mark.slow,  # half a minute
    pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler"),
    pytest.mark.skipif(
        os.environ.get("ATEN_CPU_CAPABILITY") == "default",
        reason="PyTorch's compiler then writes code for vectors, and leaves out what declares them",
    ),
]


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=COMPILER)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of one part of PyTorch by another
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")
def test_a_compiled_objective_learns_the_same_and_keeps_its_names(tmp_path, monkeypatch, backend):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    path = tmp_path / "run.safetensors"
    compiled, weights = run(max_iter=30, compile=True, checkpoint=checkpoint(path))
    plain, others = run(max_iter=30)
    np.testing.assert_allclose(compiled.loss_curve, plain.loss_curve, rtol=1e-4)
    assert weights.keys() == others.keys() == {"matrix", "offset"}
    assert {"objective.matrix", "objective.offset"} < load_file(path).keys()
    assert_identical(run(max_iter=30, checkpoint=checkpoint(path)), (compiled, weights))  # finished, by either


# schedules and rates of groups


def two_groups(objective, learning_rate, weight_decay):
    optimizer = adam(objective, learning_rate, weight_decay)
    optimizer.param_groups[1] |= {"peak": 0.5, "schedule": lambda progress: 1.0 if progress < 0.5 else 0.1}
    return optimizer


def test_a_group_follows_a_schedule_and_a_peak_of_its_own():
    reports = Reports()
    run(optimizer=two_groups, schedule=constant, learning_rate=0.25, max_iter=50, callbacks=(reports,))
    assert [report.rates for report in reports.seen] == [(0.25, 0.5), (0.25, 0.05)]


def test_the_first_step_moves_each_group_by_its_own_rate():
    _, weights = run(optimizer=two_groups, schedule=constant, learning_rate=0.25, max_iter=1, weight_decay=0.0)
    torch.testing.assert_close((weights["matrix"] - torch.eye(3)).abs(), torch.full((3, 3), 0.25), rtol=1e-3, atol=0)
    torch.testing.assert_close(weights["offset"].abs(), torch.full((3,), 0.5), rtol=1e-3, atol=0)


def test_a_resumed_run_with_a_group_of_its_own_rate_equals_an_unbroken_one(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(40), optimizer=two_groups, checkpoint=checkpoint(path))
    assert_identical(run(optimizer=two_groups, checkpoint=checkpoint(path)), run(optimizer=two_groups))


def test_counters_that_muon_loads_lie_next_to_their_weights():
    # On a GPU a counter that stayed on the CPU would stop the next step; "meta" is a device that every machine has.
    here, there = (nn.Parameter(torch.zeros(2, 2, device=device)) for device in ("cpu", "meta"))
    group = {"orthogonal": False, "weight_decay": 0.0}
    saved = Muon([{"params": [here], **group}], lr=torch.tensor(0.1)).state_dict()
    optimizer = Muon([{"params": [there], **group}], lr=torch.tensor(0.1))
    optimizer.load_state_dict({"state": saved["state"], "param_groups": optimizer.state_dict()["param_groups"]})
    assert {value.device.type for value in optimizer.state[there].values()} == {"meta"}


# callbacks


class Reports(Callback):
    """Keeps what it is given."""

    def __init__(self):
        self.seen, self.events = [], []

    def begin(self, title, n_steps):
        self.events.append(("begin", title, n_steps))

    def report(self, report):
        self.seen.append(report)

    def end(self):
        self.events.append("end")


class Raising(Callback):
    """Breaks at a moment."""

    def __init__(self, when):
        self.when = when

    def __repr__(self):
        return "Raising()"

    def begin(self, title, n_steps):
        if self.when == "begin":
            raise ValueError("no such project")

    def report(self, report):
        if report.step == self.when:
            raise ValueError("the disk is full")

    def end(self):
        if self.when == "end":
            raise ValueError("the line is dead")


def test_callbacks_see_every_loss_once_with_the_step_and_the_rate_and_training_is_as_without():
    reports = Reports()
    log, weights = run(callbacks=(reports,), title="mine", schedule=constant)
    assert reports.events == [("begin", "mine", 60), "end"]
    assert [(r.title, r.step, r.n_steps) for r in reports.seen] == [
        ("mine", 25, 60),
        ("mine", 50, 60),
        ("mine", 60, 60),
    ]
    assert np.array_equal(np.concatenate([r.losses for r in reports.seen]), log.loss_curve)
    assert reports.seen[-1].loss == log.loss_curve[-1]
    assert {r.rates for r in reports.seen} == {(0.05, 0.05)}
    assert_identical((log, weights), run(schedule=constant))


def test_callbacks_are_ended_after_an_interruption():
    reports = Reports()
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(7), callbacks=(reports,))
    assert reports.events[-1] == "end"
    assert [report.step for report in reports.seen] == [8]


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("begin", r"^fit: the callback Raising raised ValueError before the first step: no such project\."),
        (50, r"^fit: the callback Raising raised ValueError at step 50 of 60: the disk is full\."),
        ("end", r"^fit: the callback Raising raised ValueError after the last step: the line is dead\."),
    ],
)
def test_a_callback_that_raises_is_named_with_the_step_and_the_checkpoint_is_whole(tmp_path, when, message):
    path, others = tmp_path / "run.safetensors", Reports()
    with pytest.raises(CallbackError, match=message) as raised:
        run(callbacks=(others, Raising(when)), checkpoint=checkpoint(path, seconds=0))
    assert isinstance(raised.value.__cause__, ValueError)
    assert others.events[-1] == "end"
    saved = {"begin": None, 50: 50, "end": 60}[when]
    assert (len(load_file(path)["loss_curve"]) if path.exists() else None) == saved
    assert [p.name for p in tmp_path.iterdir()] == (["run.safetensors"] if saved else [])
    assert_identical(run(checkpoint=checkpoint(path)), run())


def test_the_logger_gets_a_line_per_report(caplog):
    with caplog.at_level(logging.INFO, logger="my.study"):
        run(callbacks=(Log("my.study"),), title="mine", schedule=constant)
    first, *_ = lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert first.startswith("mine: step 25 of 60, loss 0.")
    assert first.endswith("rate 5.00e-02")


def test_weights_and_biases_gets_loss_and_rates_of_a_run_that_is_closed(monkeypatch):
    logged = []
    fake = SimpleNamespace(log=lambda values, step: logged.append((step, values)), finish=lambda: logged.append("end"))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **about: logged.append(about) or fake))
    run(callbacks=(WeightsAndBiases("mine"),), title="fit 3", schedule=constant, max_iter=25)
    about, (step, values), end = logged
    assert (about["project"], about["name"], step, end) == ("mine", "fit 3", 25, "end")
    assert values == {"loss": pytest.approx(values["loss"]), "rate/0": 0.05, "rate/1": 0.05}
    assert math.isfinite(values["loss"])


def test_tensorboard_gets_loss_and_rates_in_a_folder_of_the_run(monkeypatch, tmp_path):
    written = []
    writer = SimpleNamespace(add_scalar=lambda *row: written.append(row), close=lambda: written.append("end"))
    fake = SimpleNamespace(SummaryWriter=lambda folder: written.append(folder) or writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    run(callbacks=(TensorBoard(tmp_path),), title="fit 3", max_iter=25, schedule=constant)
    assert written[0] == str(tmp_path / "fit-3")
    assert [(name, step) for name, _, step in written[1:-1]] == [("loss", 25), ("rate/0", 25), ("rate/1", 25)]
    assert written[-1] == "end"


@pytest.mark.parametrize(("callback", "module"), [(WeightsAndBiases("p"), "wandb"), (TensorBoard("f"), "torch.utils.tensorboard")])  # noqa: E501  # fmt: skip
def test_a_package_that_is_not_there_is_missed_when_training_begins_and_not_before(monkeypatch, callback, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CallbackError, match=rf"raised ModuleNotFoundError before the first step: .*{module}"):
        run(callbacks=(callback,))


def test_a_callback_must_say_what_it_does_with_a_report():
    with pytest.raises(TypeError, match="abstract"):
        Callback()
    assert Report("fit", 1, 2, (3.0, 4.0), (0.1,)).loss == 4.0


@pytest.mark.parametrize("est", [Contrast(2), Forget(2)])
def test_a_fit_whose_trainer_is_wrong_says_so_in_the_trainers_sentence(est):
    x = np.random.default_rng(0).normal(size=(300, 6))
    with pytest.raises(TypeError, match="callbacks"):
        est.set_params(trainer=Trainer(callbacks=Log())).fit(x, np.arange(300) % 3)


def test_a_fit_that_a_callback_or_a_rate_ends_is_called_by_its_estimator():
    x = np.random.default_rng(0).normal(size=(300, 6))
    options = {"max_iter": 60, "random_state": 0, "verbose": False}
    with pytest.raises(CallbackError, match="ValueError"):
        Contrast(2, trainer=Trainer(callbacks=(Raising(50),), validation_fraction=0), **options).fit(x, x)
    with pytest.raises(TrainingDivergedError, match="the loss"):
        Contrast(2, learning_rate=1e30, trainer=Trainer(validation_fraction=0), **options).fit(x, x)


# parameters of estimators


def test_the_parameters_of_a_trainer_are_parameters_of_its_estimator():
    est = Contrast(trainer=Trainer(weight_decay=0.5))
    assert est.get_params()["trainer__weight_decay"] == 0.5
    assert clone(est).trainer == est.trainer
    before = est.trainer
    est.set_params(trainer__weight_decay=0.1, max_iter=7)
    assert (est.trainer.weight_decay, est.max_iter) == (0.1, 7)
    assert before.weight_decay == 0.5  # frozen: replaced, never changed
    assert Contrast().trainer == Trainer()
    est.set_params(trainer=Trainer(tol=0.5), trainer__patience=3)
    assert (est.trainer.tol, est.trainer.patience) == (0.5, 3)
    with pytest.raises(ValueError, match="Invalid parameter"):
        est.set_params(trainer__no_such=1)


def test_a_grid_search_reaches_the_trainer():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    grid = {"trainer__weight_decay": [0.0, 0.3], "trainer__validation_fraction": [0.0]}
    search = GridSearchCV(Contrast(2, max_iter=3, verbose=False, device="cpu", random_state=0), grid, cv=2)
    search.fit(x, x + 0.01)
    assert search.best_estimator_.trainer.weight_decay in (0.0, 0.3)
    assert search.best_estimator_.held_out_ is None


@pytest.mark.parametrize(
    "est",
    [Contrast(), Classify(), Dictionary(), Sparse(8), Forget(encoder=networks.skip_mlp), SparseBasis()],
    ids=lambda est: type(est).__name__,
)
def test_a_trainer_overrides_what_the_method_takes(est):
    decays = []

    def seen(objective, learning_rate, weight_decay):
        decays.append(weight_decay)
        return adam(objective, learning_rate, weight_decay)

    x = np.random.default_rng(0).normal(size=(300, 4))
    trainer = Trainer(weight_decay=0.07, optimizer=seen, validation_fraction=0.2)
    options = {"max_iter": 2, "device": "cpu", "verbose": False, "random_state": 0, "trainer": trainer}
    with warnings.catch_warnings(action="ignore"):
        est.set_params(**options).fit(x, None if est.spec.roles.y in (None, "pairs") else np.arange(300) % 3)
    assert decays
    assert {*decays} == {0.07}
