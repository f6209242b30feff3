"""Fits that kill themselves at a given moment, each in a process of its own; started by test_cli_killed.py.

Called as ``python killed_fits.py FOLDER``, with a table ``data.csv`` in the folder; prints what was found as JSON. The
processes are forked from one that has imported everything and computed nothing: a start takes no time.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import accelerate  # noqa: F401 (as the next one, so that no process has to)
import torch._dynamo  # noqa: F401
from typer.testing import CliRunner

from pindown.cli import app
from pindown.runs import fitting
from pindown.training import checkpoints

MOMENTS = {
    # At which call of which function: os.replace moves a file that was written next to its place.
    "before the record": (os, "replace", 1),
    "in the middle of the second checkpoint": (os, "replace", 3),
    "in the middle of the fourth checkpoint": (os, "replace", 5),
    "before the latents": (fitting, "write_latents", 1),
    "before the folder of the fit is there": (os, "mkdir", 1),
    "before the run is moved into place": (os, "rename", 1),
}
FITS = {
    "Forget": (
        ["--nuisance", "batch", "-d", "2", "--option", "encoder=skip_mlp", "--steps", "60"],
        list(MOMENTS)[1:2],
    ),
    "Dictionary": (["-d", "2", "--option", "n_restarts=1", "--steps", "30"], list(MOMENTS)),
}


def die_at(module, name: str, count: int) -> None:
    """Let a call of a function be the last thing that this process does."""
    original, calls = getattr(module, name), []

    def deadly(*arguments):
        calls.append(name)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)

    setattr(module, name, deadly)


def fit(folder: Path, output: str, arguments: list[str]) -> None:
    checkpoints.Checkpoint.is_due = lambda checkpoint: True  # at every report, not every ten seconds
    # On the CPU, where a fit that goes on is an unbroken one to the bit.
    words = ["fit", folder / "data.csv", "--features", "x*", "--device", "cpu", *arguments, "-o", folder / output]
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exit_code:
        raise AssertionError(result.output)


def in_a_process(*works: Callable[[], None]) -> int:
    """Return the signal that ended a process in which this was done, 0 if it went well."""
    child = os.fork()
    if child == 0:
        try:
            for work in works:
                work()
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the fit failed"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def results(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("estimator.pindown", "latents.csv", "scores.json")]


def main(folder: Path) -> None:
    found = {}
    for name, (arguments, moments) in FITS.items():
        in_a_process(lambda arguments=arguments, name=name: fit(folder, name, arguments))
        unbroken = results(folder / name)
        for moment in moments:
            module, function, count = MOMENTS[moment]
            place = f"{name} {moment}"
            kill = [lambda m=module, f=function, c=count: die_at(m, f, c)]
            work = [lambda place=place, arguments=arguments: fit(folder, place, arguments)]
            ended_by = in_a_process(*kill, *work)
            appeared = (folder / place).exists()
            left = sorted(path.name for path in (folder / f"{place}.unfinished").rglob("*.safetensors"))
            in_a_process(*work)
            found[place] = {
                "ended_by": ended_by,
                "appeared": appeared,
                "left": left,
                "same": results(folder / place) == unbroken,
                "strays": [path.name for path in folder.rglob(".*")],
                "resumed": "resumed" in (folder / place / "log.txt").read_text(),
                "beside": (folder / f"{place}.unfinished").exists(),
            }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
