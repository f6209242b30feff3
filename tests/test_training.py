import io
import itertools
import os
import random
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from descent import Regression, assert_identical, checkpoint, interrupting, run
from torch import nn

from pindown.training import best_device, constant, cosine, devices, trainer
from pindown.training.callbacks import ProgressBar

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


def test_the_schedule_depends_on_the_fraction_of_steps_done():
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
    assert trainer.REPORT_EVERY == 25
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


# progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_no_progress_is_shown_where_there_is_no_terminal(capfd):
    run(callbacks=(ProgressBar(),), title="my fit")
    assert capfd.readouterr() == ("", "")


def test_progress_with_the_loss_is_shown_on_a_terminal_if_wanted(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    run(title="my fit")
    assert sys.stderr.getvalue() == ""
    run(callbacks=(ProgressBar(),), title="my fit")
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
    import descent as t

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


@pytest.mark.slow
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

    with pytest.raises(ValueError, match="process"):
        run(checkpoint=checkpoint(tmp_path / "c"))


def test_a_gpu_without_float64_is_passed_over_for_the_cpu(monkeypatch):
    monkeypatch.setattr(devices, "processes", lambda: SimpleNamespace(device=torch.device("mps")))
    assert best_device() == torch.device("cpu")
