import math
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from descent import BlindAlley, assert_identical, checkpoint, interrupting, run
from safetensors.torch import load_file, save_file
from torch import nn

from pindown import _files
from pindown._files import pack_tensors, unpack_tensors
from pindown.training.checkpoints import Checkpoint
from pindown.training.divergence import TrainingDivergedError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def edited(path, change):
    """Rewrite a checkpoint with its tensors or entry changed, and a checksum that agrees."""
    named, entry = unpack_tensors(path.read_bytes())
    change(named, entry)
    path.write_bytes(pack_tensors(named, entry))


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
    edited(path, lambda named, entry: named.update(generators=torch.Generator().manual_seed(0).get_state()[None]))
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
    import descent as t

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
@pytest.mark.slow
def test_a_run_killed_between_or_within_two_saves_goes_on_from_the_last_one(path, when):
    script = textwrap.dedent(KILLED).format(tests=os.path.dirname(__file__))
    killed = subprocess.run([sys.executable, "-c", script, str(path), when], capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(load_file(path)["loss_curve"]) == 50  # saved at 25 and 50
    assert_identical(run(max_iter=90, checkpoint=checkpoint(path)), run(max_iter=90))


def test_nothing_but_the_checkpoint_is_left_in_its_folder_which_is_made_if_need_be(tmp_path):
    run(checkpoint=checkpoint(tmp_path / "deep" / "down" / "run.safetensors", seconds=0))
    assert [p.name for p in (tmp_path / "deep" / "down").iterdir()] == ["run.safetensors"]


def test_a_save_that_fails_leaves_the_old_file_and_nothing_next_to_it(path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(30), checkpoint=checkpoint(path))
    old = path.read_bytes()

    def full_disk(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr(_files.os, "replace", full_disk)
    with pytest.raises(OSError, match="space"):
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


def test_weights_that_lie_across_memory_resume_as_they_lie(path):
    class Across(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).mT)

        def forward(self, x):
            return (x @ self.matrix - 1).square().mean()

    with pytest.raises(KeyboardInterrupt):
        run(interrupting(30), objective=Across(), checkpoint=checkpoint(path))
    resumed = Across()
    assert_identical(run(objective=resumed, checkpoint=checkpoint(path)), run(objective=Across()))
    assert resumed.matrix.stride() == (1, 3)


# Ctrl-C


def test_ctrl_c_says_where_the_run_will_go_on(path):
    with pytest.raises(KeyboardInterrupt, match=r"run\.safe"):
        run(interrupting(7), checkpoint=checkpoint(path))


def test_ctrl_c_without_checkpoint_says_how_to_get_one():
    with pytest.raises(KeyboardInterrupt, match="stopped"):
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
    with pytest.raises(KeyboardInterrupt, match="stopped"):
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


# checkpoints that do not fit


def test_a_checkpoint_with_other_settings_is_refused_by_name_and_kept(path):
    run(checkpoint=checkpoint(path, p=2, batch_size=64, seed=0))
    old = path.read_bytes()
    with pytest.raises(
        ValueError,
        match="batch_size",
    ):
        run(checkpoint=checkpoint(path, p=1, batch_size=32, seed=0))
    assert path.read_bytes() == old


def test_a_checkpoint_of_another_network_is_refused_and_kept(path):
    run(checkpoint=checkpoint(path))
    old = path.read_bytes()
    with pytest.raises(ValueError, match="network"):
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
    with pytest.raises(ValueError, match=r"run\.safetensors"):
        run(checkpoint=checkpoint(path))
    assert path.read_bytes() == old


def test_every_flipped_bit_of_a_checkpoint_is_noticed(path):
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(30), checkpoint=checkpoint(path))
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for place in [*range(100), *rng.integers(0, len(whole), size=200)]:
        content = bytearray(whole)
        content[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        with pytest.raises(ValueError, match="read"):
            run(checkpoint=checkpoint(path))


def nan(named, entry):
    named["objective.matrix"][0, 0] = torch.nan


def infinite_moments(named, entry):
    named[next(name for name in named if name.startswith("optimizer."))].fill_(torch.inf)


def no_curve(named, entry):
    del named["loss_curve"]


def another_format(named, entry):
    entry["format"] = 3


def no_settings(named, entry):
    entry["settings"] = None


def other_weights(named, entry):
    named["objective.matrix"] = named["objective.matrix"][:2].contiguous()


def odd_moments(named, entry):
    named["optimizer.../../x.exp_avg"] = torch.zeros(2)


def odd_generator(named, entry):
    named["generators"] = torch.zeros_like(named["generators"])


@pytest.mark.parametrize(
    "change", [nan, infinite_moments, no_curve, another_format, no_settings, other_weights, odd_moments, odd_generator]
)
def test_a_checkpoint_that_was_changed_and_signed_again_is_refused_and_kept(path, change):
    with pytest.raises(KeyboardInterrupt):
        run(interrupting(30), checkpoint=checkpoint(path))
    edited(path, change)
    old = path.read_bytes()
    with pytest.raises(ValueError, match="Delete"):
        run(checkpoint=checkpoint(path))
    assert path.read_bytes() == old


def test_a_link_that_was_planted_next_to_a_checkpoint_is_not_followed(path, tmp_path):
    for name in (f".{path.name}.{os.getpid()}", f".{path.name}.tmp"):
        (tmp_path / name).symlink_to(tmp_path / "prey")
    run(checkpoint=checkpoint(path, seconds=0))
    assert not (tmp_path / "prey").exists()


def test_a_folder_in_place_of_the_file_is_refused(path):
    path.mkdir()
    with pytest.raises(IsADirectoryError, match=r"run\.safetensors"):
        run(checkpoint=checkpoint(path))


def test_a_folder_that_cannot_be_made_is_found_out_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()

    def never(step, generator):
        raise AssertionError("a step was taken")

    with pytest.raises(OSError, match="written"):
        run(never, checkpoint=checkpoint(tmp_path / "file" / "run.safetensors"))
