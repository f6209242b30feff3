import io
import itertools
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pindown import checkpoints, training
from pindown.checkpoints import Checkpoint
from pindown.training import TrainingDivergedError, best_device, constant, cosine, train


class Regression(nn.Module):
    """Distance of an affine map's output from a bent one: a loss that falls but never reaches zero."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(3))
        self.offset = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return (x @ self.matrix + self.offset - x.abs()).square().mean()


def draw(step, generator):
    return (torch.randn(8, 3, generator=generator),)


def interrupting(at, *, times=1):
    """The same draw, with Ctrl-C pressed during one step."""

    def interrupting_draw(step, generator):
        for _ in range(times if step == at else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return draw(step, generator)

    return interrupting_draw


def run(draw=draw, *, objective=None, max_iter=60, **options):
    """Train; return the log and a copy of the weights."""
    objective = Regression() if objective is None else objective
    options = {"learning_rate": 0.05, "seed": 0, "weight_decay": 0.1, "device": "cpu"} | options
    log = train(objective, draw, max_iter=max_iter, **options)
    return log, {name: w.clone() for name, w in objective.state_dict().items()}


def assert_identical(ours, theirs):
    (log, weights), (other_log, other_weights) = ours, theirs
    assert np.array_equal(log.loss_curve, other_log.loss_curve)
    assert all(torch.equal(weights[name], other_weights[name]) for name in other_weights)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def checkpoint(path, *, seconds=1e9, **settings):
    return Checkpoint(path, settings, seconds=seconds)


# descent


def test_the_mean_is_found_as_the_minimiser_of_squared_distances():
    class Distance(nn.Module):
        def __init__(self):
            super().__init__()
            self.centre = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return (x - self.centre).square().mean()

    log, weights = run(
        lambda step, generator: (torch.tensor([1.0, 3.0]),),
        objective=Distance(), max_iter=300, learning_rate=0.1, weight_decay=0.0,
    )  # fmt: skip
    assert weights["centre"].item() == pytest.approx(2, abs=1e-3)
    assert log.loss_curve[0] == pytest.approx(5)  # (1 + 9) / 2
    assert log.loss_curve[-1] == pytest.approx(1, abs=1e-3)
    assert (log.n_iter, log.stopped_on_plateau) == (300, False)
    assert log.seconds > 0


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    first, again, other = run(), run(), run(seed=1)
    assert_identical(first, again)
    assert not np.array_equal(first[0].loss_curve, other[0].loss_curve)


def test_the_objective_trains_in_training_mode_and_is_left_in_evaluation_mode():
    objective = Regression().eval()
    modes = []
    objective.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    run(objective=objective, max_iter=2)
    assert modes == [True, True]
    assert not objective.training


def test_the_first_step_of_adam_moves_every_weight_by_the_scheduled_learning_rate():
    def first_move(schedule):
        _, weights = run(max_iter=1, schedule=schedule, learning_rate=0.05, weight_decay=0.0)
        return (weights["matrix"] - torch.eye(3)).abs()

    torch.testing.assert_close(first_move(constant), torch.full((3, 3), 0.05), rtol=1e-3, atol=0)
    torch.testing.assert_close(first_move(lambda progress: 0.1), torch.full((3, 3), 0.005), rtol=1e-3, atol=0)
    assert first_move(cosine).max() == 0  # the warm-up starts at zero


def test_the_schedule_is_asked_at_the_share_of_steps_done():
    asked = set()
    run(max_iter=4, schedule=lambda progress: asked.add(progress) or 1.0)
    assert asked == {0, 0.25, 0.5, 0.75}


def test_cosine_warms_up_then_falls_to_zero():
    values = [cosine(t / 1000) for t in range(1001)]
    assert values[0] == 0
    assert values[50] == pytest.approx(1)  # after a twentieth
    assert values[525] == pytest.approx(0.5)  # half way down
    assert values[1000] == pytest.approx(0)
    assert all(b > a for a, b in itertools.pairwise(values[:51]))
    assert all(b < a for a, b in itertools.pairwise(values[51:]))


def test_weight_decay_takes_its_share_of_matrices_and_nothing_of_vectors():
    # Without gradient only the decay is left: 1 − .1 × .5 = .95 per step.
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix, self.vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))

        def forward(self, x):
            return 0 * (self.matrix.sum() + self.vector.sum())

    _, weights = run(objective=Idle(), max_iter=2, schedule=constant, learning_rate=0.1, weight_decay=0.5)
    torch.testing.assert_close(weights["matrix"], torch.full((2, 2), 0.95**2))
    assert weights["vector"].tolist() == [1, 1]


def test_training_leaves_the_global_generators_alone():
    def states():
        return torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002

    before = states()
    run(max_iter=30)
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(3))
    after = states()
    assert torch.equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]


def test_a_run_in_another_thread_equals_one_in_the_main_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(run()))
    thread.start()
    thread.join()
    assert_identical(results[0], run())


# stopping


def test_a_flat_loss_stops_at_the_first_report_with_enough_steps_behind_it():
    # Patience 30 compares 30 steps with 30 before: 60 steps, and reports come every 25, so at 75.
    assert training.REPORT_EVERY == 25
    log, _ = run(max_iter=1_000, learning_rate=1e-9, patience=30, tol=1.0)
    assert log.n_iter == 75
    assert log.stopped_on_plateau


def test_without_patience_a_flat_loss_runs_to_the_end():
    log, _ = run(max_iter=80, learning_rate=1e-9)
    assert (log.n_iter, log.stopped_on_plateau) == (80, False)


def test_a_falling_loss_is_not_stopped():
    class Falling(nn.Module):
        def __init__(self):
            super().__init__()
            self.level = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return 1 * self.level  # Adam lowers it by the learning rate a step

    options = {"objective": Falling(), "max_iter": 100, "patience": 20, "schedule": constant, "learning_rate": 0.1}
    log, _ = run(**options, tol=1.9)  # means over 20 steps, 20 steps apart, differ by 20 × .1 = 2
    assert (log.n_iter, log.stopped_on_plateau) == (100, False)
    log, _ = run(**options | {"objective": Falling()}, tol=2.1)
    assert (log.n_iter, log.stopped_on_plateau) == (50, True)


# checkpoints


@pytest.mark.parametrize("at", [0, 7, 24, 25, 58, 59])
def test_an_interrupted_and_resumed_run_equals_an_unbroken_one_bit_for_bit(path, at):
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(at), checkpoint=checkpoint(path))
    assert len(load_file(path)["loss_curve"]) == at + 1
    assert_identical(run(checkpoint=checkpoint(path)), run())


def test_resuming_without_the_generators_state_would_give_another_run(path):
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(30), checkpoint=checkpoint(path, a=1))
    named = load_file(path)
    named["generators"] = torch.Generator().manual_seed(0).get_state()[None]
    save_file(named, path, metadata={"format": "1", "settings": '{"a": 1}'})
    (resumed, _), (unbroken, _) = run(checkpoint=checkpoint(path, a=1)), run()
    assert np.array_equal(resumed.loss_curve[:31], unbroken.loss_curve[:31])
    assert not np.array_equal(resumed.loss_curve[31:], unbroken.loss_curve[31:])


def test_a_run_interrupted_twice_equals_an_unbroken_one(path):
    for at in (13, 41):
        with pytest.raises(KeyboardInterrupt):
            run(interrupting(at), checkpoint=checkpoint(path))
    assert_identical(run(checkpoint=checkpoint(path)), run())


def test_a_run_that_stops_on_a_plateau_stops_at_the_same_step_when_it_was_interrupted(path):
    options = {"max_iter": 1_000, "learning_rate": 1e-9, "patience": 30, "tol": 1.0}
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(63), checkpoint=checkpoint(path), **options)
    assert_identical(run(checkpoint=checkpoint(path), **options), run(**options))


@pytest.mark.parametrize("options", [{}, {"max_iter": 1_000, "learning_rate": 1e-9, "patience": 30, "tol": 1.0}])
def test_a_finished_run_is_loaded_without_taking_a_step(path, options):
    def never(step, generator):
        raise AssertionError("a step was taken")

    finished = run(checkpoint=checkpoint(path), **options)
    loaded = run(never, checkpoint=checkpoint(path), **options)
    assert_identical(loaded, finished)
    assert loaded[0].stopped_on_plateau == finished[0].stopped_on_plateau


def test_a_checkpoint_is_written_when_due_and_at_the_end(path, monkeypatch):
    lengths = []
    write = Checkpoint.write
    monkeypatch.setattr(Checkpoint, "write", lambda self, state, curve: [lengths.append(len(curve)), write(self, state, curve)])  # noqa: E501  # fmt: skip
    run(checkpoint=checkpoint(path, seconds=0))
    assert lengths == [25, 50, 60]
    lengths.clear()
    path.unlink()
    run(checkpoint=checkpoint(path, seconds=1e9))
    assert lengths == [60]


KILLED = """
    import os, signal, sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    import torch
    torch.set_num_threads(1)
    import test_training as t

    def kill(*args):
        os.kill(os.getpid(), signal.SIGKILL)

    def draw(step, generator):
        if step == 60 and sys.argv[2] == "between":
            kill()
        if step == 60 and sys.argv[2] == "within":
            os.replace = kill  # the file beside is written, but not yet moved into place
        return t.draw(step, generator)

    t.run(draw, max_iter=90, checkpoint=t.checkpoint(Path(sys.argv[1]), seconds=0))
"""


@pytest.mark.parametrize("when", ["between", "within"])
def test_a_run_killed_between_or_within_two_saves_goes_on_from_the_last_one(path, when):
    script = textwrap.dedent(KILLED).format(tests=os.path.dirname(__file__))
    killed = subprocess.run([sys.executable, "-c", script, str(path), when], capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(load_file(path)["loss_curve"]) == 50  # saved at 25 and 50
    assert_identical(run(max_iter=90, checkpoint=checkpoint(path)), run(max_iter=90))


def test_nothing_but_the_checkpoint_is_left_in_its_folder_which_is_made_if_need_be(tmp_path):
    run(checkpoint=checkpoint(tmp_path / "deep" / "down" / "run.safetensors", seconds=0))
    assert [p.name for p in (tmp_path / "deep" / "down").iterdir()] == ["run.safetensors"]


def test_a_save_that_fails_leaves_the_old_file_and_nothing_beside_it(path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(30), checkpoint=checkpoint(path))
    old = path.read_bytes()

    def full_disk(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoints.os, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        run(checkpoint=checkpoint(path))
    assert path.read_bytes() == old
    assert list(path.parent.iterdir()) == [path]


def test_tied_weights_can_be_saved_and_resumed(path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second = nn.Linear(3, 3)
            self.second.weight = self.first.weight
            nn.init.eye_(self.first.weight)
            nn.init.zeros_(self.first.bias)
            nn.init.zeros_(self.second.bias)

        def forward(self, x):
            return (self.second(self.first(x).tanh()) - x.abs()).square().mean()

    with pytest.raises(KeyboardInterrupt):
        run(interrupting(30), objective=Tied(), checkpoint=checkpoint(path))
    assert_identical(run(objective=Tied(), checkpoint=checkpoint(path)), run(objective=Tied()))


# Ctrl-C


def test_ctrl_c_says_where_the_run_will_go_on(path):
    with pytest.raises(KeyboardInterrupt, match=r"stopped at step 8 of 60; the same fit will go on from .*run\.safe"):
        run(interrupting(7), checkpoint=checkpoint(path))


def test_ctrl_c_without_checkpoint_says_how_to_get_one():
    with pytest.raises(KeyboardInterrupt, match="stopped at step 8 of 60; give checkpoint=… to be able to go on"):
        run(interrupting(7))


def test_a_second_ctrl_c_stops_at_once_without_finishing_the_step(path):
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(interrupting(7, times=2), checkpoint=checkpoint(path))
    assert str(stopped.value) == ""
    assert not path.exists()


def test_ctrl_c_during_the_last_save_is_not_swallowed(path, monkeypatch):
    write = Checkpoint.write

    def write_and_interrupt(self, state, curve):
        write(self, state, curve)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Checkpoint, "write", write_and_interrupt)
    with pytest.raises(KeyboardInterrupt, match="stopped at step 60 of 60"):
        run(checkpoint=checkpoint(path))
    monkeypatch.undo()
    assert_identical(run(checkpoint=checkpoint(path)), run())


def test_the_signal_handler_is_given_back_however_the_run_ends():
    before = signal.getsignal(signal.SIGINT)
    run(max_iter=2)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(1))
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(TrainingDivergedError):
        run(lambda step, generator: (torch.full((1, 3), math.nan),))
    assert signal.getsignal(signal.SIGINT) is before


# divergence


def broken_at(step, value):
    def broken_draw(k, generator):
        return (draw(k, generator)[0] * (value if k == step else 1.0),)

    return broken_draw


@pytest.mark.parametrize(("value", "name"), [(math.nan, "nan"), (math.inf, "nan|inf")])
def test_a_loss_that_is_no_number_stops_the_run_with_step_and_remedy(value, name):
    with pytest.raises(
        TrainingDivergedError,
        match=rf"the loss is ({name}) at step 30 of 60; it was 0\.\d+ a step before\. Try a smaller learning_rate "
        r"\(now 0\.05\), and look for extreme values in the data",
    ):
        run(broken_at(30, value))


def test_a_loss_that_never_was_a_number_is_said_to_be_so_from_the_start():
    with pytest.raises(TrainingDivergedError, match="at step 0 of 60; it was so from the start"):
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


class BlindAlley(nn.Module):
    """A finite loss with an infinite gradient: the square root at zero."""

    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return (self.level * x[0, 0]).sqrt()


@pytest.mark.parametrize("step", [24, 59])
def test_weights_that_are_no_numbers_are_neither_saved_nor_returned_though_the_loss_was_finite(path, step):
    def dead_end(k, generator):
        return (torch.full((1, 3), 0.0 if k >= step else 1.0),)

    with pytest.raises(TrainingDivergedError, match=f"weights are NaN or infinite after step {step} of 60"):
        run(dead_end, objective=BlindAlley(), learning_rate=1e-3, checkpoint=checkpoint(path, seconds=0))
    assert not path.exists() or load_file(path)["objective.level"].isfinite()
    with pytest.raises(TrainingDivergedError):
        run(dead_end, objective=BlindAlley(), learning_rate=1e-3)


# checkpoints that do not fit


def test_a_checkpoint_with_other_settings_is_refused_by_name_and_kept(path):
    run(checkpoint=checkpoint(path, p=2, batch_size=64, seed=0))
    old = path.read_bytes()
    with pytest.raises(
        ValueError,
        match=r"written by a different fit: batch_size \(64 there, 32 here\), p \(2 there, 1 here\)\. "
        "Delete the file to start anew, or give another path",
    ):
        run(checkpoint=checkpoint(path, p=1, batch_size=32, seed=0))
    assert path.read_bytes() == old


def test_a_checkpoint_of_another_network_is_refused_and_kept(path):
    run(checkpoint=checkpoint(path))
    old = path.read_bytes()
    with pytest.raises(ValueError, match="written by a different network"):
        run(objective=BlindAlley(), checkpoint=checkpoint(path))
    assert path.read_bytes() == old


def truncated(path):
    run(checkpoint=checkpoint(path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path):
    path.write_bytes(b"not a checkpoint at all, but a letter to my aunt")


def empty(path):
    path.touch()


def foreign(path):
    save_file({"weight": torch.ones(2)}, path, metadata={"format": "pt"})


@pytest.mark.parametrize("spoil", [truncated, garbage, empty, foreign])
def test_a_file_that_is_no_checkpoint_is_refused_and_kept(path, spoil):
    spoil(path)
    old = path.read_bytes()
    with pytest.raises(ValueError, match=r"run\.safetensors cannot be read \(.+\)\. Delete it to start anew, or give"):
        run(checkpoint=checkpoint(path))
    assert path.read_bytes() == old


def test_a_folder_in_place_of_the_file_is_refused(path):
    path.mkdir()
    with pytest.raises(IsADirectoryError, match=r"run\.safetensors is a folder\. Give a file in it"):
        run(checkpoint=checkpoint(path))


def test_a_folder_that_cannot_be_made_is_found_out_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()

    def never(step, generator):
        raise AssertionError("a step was taken")

    with pytest.raises(OSError, match=r"cannot be written \(.+\)\. Give a path in a folder you may write to"):
        run(never, checkpoint=checkpoint(tmp_path / "file" / "run.safetensors"))


# progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_no_progress_is_shown_where_there_is_no_terminal(capfd):
    run(verbose=True, title="my fit")
    assert capfd.readouterr() == ("", "")


def test_progress_with_the_loss_is_shown_on_a_terminal_if_wanted(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    run(verbose=False, title="my fit")
    assert sys.stderr.getvalue() == ""
    run(verbose=True, title="my fit")
    assert "my fit" in sys.stderr.getvalue()
    assert "loss" in sys.stderr.getvalue()


# several processes


TOGETHER = """
    import faulthandler, os, signal, sys, time
    faulthandler.dump_traceback_later(60, exit=True)  # processes that wait for each other say where
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    import torch
    torch.set_num_threads(1)
    import test_training as t

    rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
    batches = []

    def draw(step, generator):
        batches.append(t.draw(step, generator)[0])
        return batches[-1:]

    unbroken = t.run(draw)
    torch.save((batches[0], unbroken[0].loss_curve, unbroken[1]), folder / f"unbroken{{rank}}.pt")

    replace = os.replace
    os.replace = lambda *paths: (time.sleep(0.5), replace(*paths))  # a slow disk: the other must not read too early

    # Only one process is interrupted, and only one finds that it is time to save: both must act as one.
    try:
        t.run(t.interrupting(30) if rank == 1 else t.draw, checkpoint=t.checkpoint(folder / "c", seconds=1e9 * (1 - rank)))
        raise SystemExit("not interrupted")
    except KeyboardInterrupt as stopped:
        (folder / f"message{{rank}}").write_text(str(stopped))
    resumed = t.run(t.draw, checkpoint=t.checkpoint(folder / "c"))
    torch.save((resumed[0].loss_curve, resumed[1]), folder / f"resumed{{rank}}.pt")
    torch.distributed.destroy_process_group()
"""  # noqa: E501


def test_two_processes_draw_different_batches_keep_the_same_weights_and_resume_as_one(tmp_path):
    script = tmp_path / "together.py"
    script.write_text(textwrap.dedent(TOGETHER).format(tests=os.path.dirname(__file__)))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", script, tmp_path]
    local = {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    launched = subprocess.run(launch, env=os.environ | local, capture_output=True, timeout=120)
    assert launched.returncode == 0, launched.stderr.decode()[-3000:]

    (batch, curve, weights), (other_batch, other_curve, other_weights) = (
        torch.load(tmp_path / f"unbroken{rank}.pt", weights_only=False) for rank in (0, 1)
    )
    assert not torch.equal(batch, other_batch)
    assert np.array_equal(curve, other_curve)  # the mean over both
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)
    alone = run()
    assert not torch.equal(weights["matrix"], alone[1]["matrix"])  # the second process had its say
    with torch.no_grad():
        first = [Regression()(b).item() for b in (batch, other_batch)]
    assert curve[0] == pytest.approx(sum(first) / 2, rel=1e-6)

    for rank in (0, 1):
        assert "stopped at step 50 of 60" in (tmp_path / f"message{rank}").read_text()  # the next report after step 30
        resumed_curve, resumed_weights = torch.load(tmp_path / f"resumed{rank}.pt", weights_only=False)
        assert np.array_equal(resumed_curve, curve)
        assert all(torch.equal(resumed_weights[name], weights[name]) for name in weights)

    with pytest.raises(ValueError, match=r"was written by 2 process\(es\), and this fit has 1"):
        run(checkpoint=checkpoint(tmp_path / "c"))


def test_a_gpu_without_float64_is_passed_over_for_the_cpu(monkeypatch):
    monkeypatch.setattr(training, "processes", lambda: SimpleNamespace(device=torch.device("mps")))
    assert best_device() == torch.device("cpu")
