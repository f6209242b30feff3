"""Mistakes on the command line: each gets one sentence with the remedy and exit code 2, and nothing is written."""

import errno
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from commandline import N_ROWS, call, columns, contents, edit_record, write_table

FIT = ("fit", "data.csv", "--features", "x*", "--steps", "3", "-o", "run")
BY_BATCH = (*FIT, "--nuisance", "batch")


@dataclass(frozen=True)
class Mistake:
    """What a user does, what is printed, and what makes the folder so."""

    does: str
    command: tuple[str, ...]
    printed: str
    before: Callable[[], object] = field(default=lambda: None)
    needs_run: bool = False


def table(**changed: list) -> Callable[[], object]:
    """Write the table with other columns; None takes one out."""
    return lambda: write_table(Path("data.csv"), {k: v for k, v in (columns() | changed).items() if v is not None})


def text(content: str) -> Callable[[], object]:
    return lambda: Path("data.csv").write_text(content)


def file(name: str, content: str = "") -> Callable[[], object]:
    def write():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content)

    return write


def arrays(**named: np.ndarray) -> Callable[[], object]:
    return lambda: np.savez("data.npz", **named)


def interrupted() -> None:
    """Leave an unfinished fit behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pindown.methods.base.BaseEncoder._fit", stop)
        assert call(*BY_BATCH).exit_code == 130


def stop(*arguments: object) -> None:
    raise KeyboardInterrupt


def with_cell(column: str, cell: object) -> list:
    return [*columns()[column][:-1], cell]


MISTAKES = (
    Mistake("names a column that is not there", (*FIT, "--nuisance", "bacth"), "did you mean 'batch'?"),
    Mistake("writes a name in capitals", (*FIT, "--signal", "LABEL"), "did you mean 'label'?"),
    Mistake("gives a label with one value", BY_BATCH, "has one value only, day 1", table(batch=["day 1"] * N_ROWS)),
    Mistake(
        "has text in a column of numbers",
        BY_BATCH,
        f"line {N_ROWS + 1}: column 'x2' has numbers, but here the text 'low'. Correct it, or leave the column "
        "out: --drop x2",
        table(x2=with_cell("x2", "low")),
    ),
    Mistake(
        "has an empty cell", BY_BATCH, f"in 1 of {N_ROWS} rows, first in row {N_ROWS}", table(x2=with_cell("x2", ""))
    ),
    Mistake(
        "has NaN in an array", ("fit", "data.npz", "-o", "run"), "--drop X_1", arrays(X=np.array([[1, np.nan]] * 9))
    ),
    Mistake("has an empty label", BY_BATCH, "Fill it, such as with 'unknown'", table(batch=with_cell("batch", ""))),
    Mistake(
        "calls a value none",
        BY_BATCH,
        "none and NA count as empty",
        table(batch=with_cell("batch", "none")),
    ),
    Mistake("misspells the file", ("fit", "date.csv", "-o", "run"), "did you mean 'data.csv'?"),
    Mistake("gives an empty file", BY_BATCH, "data.csv is empty", text("")),
    Mistake("gives a header alone", BY_BATCH, "has names but no rows", text("x0,batch\n")),
    Mistake("gives no header", BY_BATCH, "Put a line with the names of the columns before it", text("1,2\n3,4\n")),
    Mistake("gives two columns one name", BY_BATCH, "several columns are called x0", text("x0,x0,batch\n1,2,a\n")),
    Mistake("leaves a cell out of a row", BY_BATCH, "line 3: 1 cells", text("x0,batch\n1,a\n2\n")),
    Mistake("gives an unknown file format", ("fit", "data.docx", "-o", "run"), "cannot read files in '.docx'"),
    Mistake(
        "has not installed the reader of a file",
        ("fit", "data.parquet", "-o", "run"),
        "pip install 'pindown[tables]'",
        file("data.parquet", "PAR1"),
    ),
    Mistake(
        "writes where nobody may",
        (*BY_BATCH[:-3], "file/run", "--nuisance", "batch"),
        "cannot be written",
        file("file"),
    ),
    Mistake(
        "writes over other things", BY_BATCH, "holds other things: give the name of a new folder", file("run/notes")
    ),
    Mistake("writes over a finished run", BY_BATCH, "give another name, or --force", needs_run=True),
    Mistake("wants more latents than variables", (*BY_BATCH, "-d", "6"), "ask for fewer latents"),
    Mistake(
        "gives positives of another length",
        ("fit", "data.npz", "--pairs", "later", "-o", "run"),
        "later_0 has 8 rows, but X_0 has 9",
        arrays(X=np.eye(9), later=np.eye(9)[:8]),
    ),
    Mistake(
        "gives positives with other columns",
        ("fit", "data.npz", "--pairs", "later", "-o", "run"),
        "later has 8 columns, but there are 9 observed variables",
        arrays(X=np.eye(9), later=np.eye(9)[:, :8]),
    ),
    Mistake("pairs by a column without repeats", (*FIT, "--pairs", "age"), "take --pairs next"),
    Mistake("keeps and removes the same", (*BY_BATCH, "--signal", "batch"), "Leave one of them out"),
    Mistake("fits a signal next to a nuisance", (*BY_BATCH, "--signal", "label"), "take --given label"),
    Mistake("gives two side variables", (*FIT, "--signal", "label", "--pairs", "next"), "choose one"),
    Mistake("removes nothing within a label", (*FIT, "--given", "label"), "there is no --nuisance"),
    Mistake("takes a quantity for a label", (*FIT, "--signal", "age"), "Cut it into a few bins"),
    Mistake("removes a quantity next to text", (*BY_BATCH, "--nuisance", "age"), "Cut the quantity into a few bins"),
    Mistake("observes the nuisance itself", (*BY_BATCH, "--features", "batch"), "has another role, too"),
    Mistake("observes text", (*FIT, "--signal", "label", "--features", "subject"), "holds text, not numbers"),
    Mistake("drops everything", (*BY_BATCH, "--drop", "*"), "Name columns of numbers by --features"),
    Mistake("misspells a parameter", (*BY_BATCH, "--option", "bacth_size=9"), "did you mean 'batch_size'?"),
    Mistake("misspells a value", (*BY_BATCH, "--option", "encoder=liner"), "did you mean 'linear'?"),
    Mistake("gives a parameter no value", (*BY_BATCH, "--option", "batch_size"), "must be name=value"),
    Mistake("gives text for a number", (*BY_BATCH, "--option", "strength='much'"), "must be an instance of"),
    Mistake("gives a value wrong arguments", (*BY_BATCH, "--option", "encoder=Reals(3)"), "takes other arguments"),
    Mistake(
        "gives a network a number for its layers",
        (*BY_BATCH, "--option", "encoder=mlp(hidden=3)"),
        "It is written like mlp(hidden=(128, 128, 128))",
    ),
    Mistake("gives a network what it lacks", (*BY_BATCH, "--option", "encoder=mlp(width=3)"), "argument 'width'"),
    Mistake("gives an optimiser for a network", (*BY_BATCH, "--option", "encoder=adam"), "is none of linear, mlp"),
    Mistake("gives text for all it names", ("fit", "data.csv", "--features", "sub*", "-o", "run"), "hold text"),
    Mistake("gives an option what has a flag", (*BY_BATCH, "--option", "max_iter=9"), "use --steps"),
    Mistake("wants batches larger than the data", (*BY_BATCH, "--option", "batch_size=9999"), "Leave it at None"),
    Mistake("names a device that is not there", (*BY_BATCH, "--device", "gpu"), "Leave it out, or take cpu"),
    Mistake("changes a fit that was interrupted", (*BY_BATCH, "-d", "2"), "or --force to start again", interrupted),
    Mistake("audits a fit that was interrupted", ("audit", "run"), "to resume, give its command again", interrupted),
    Mistake("audits what is not there", ("audit", "rum"), "there is no such folder"),
    Mistake("audits a folder that is no run", ("audit", "other"), "it has no run.json", file("other/notes")),
    Mistake(
        "audits a run whose data have changed",
        ("audit", "run"),
        "data.csv has changed since the fit: fit again, or say by --data",
        table(x0=with_cell("x0", 0.5)),
        needs_run=True,
    ),
    Mistake(
        "audits a run whose data are gone",
        ("audit", "run"),
        "say where it is now by --data",
        lambda: Path("data.csv").unlink(),
        needs_run=True,
    ),
    Mistake(
        "takes an observed variable for the truth",
        ("audit", "run", "--truth", "x0"),
        "x0 has another role, too",
        needs_run=True,
    ),
    Mistake(
        "transforms a table that lacks a column",
        ("transform", "run", "data.csv", "-o", "codes.csv"),
        "lacks 1 of the 5 columns that this run was fitted to: x1. For 'x1', did you mean 'x10'?",
        table(x1=None, x10=columns()["x1"]),
        needs_run=True,
    ),
    Mistake(
        "transforms a table onto itself",
        ("transform", "run", "data.csv", "-o", "data.csv"),
        "is the data file itself",
        needs_run=True,
    ),
    Mistake(
        "writes latents to an unknown file format",
        ("transform", "run", "data.csv", "-o", "codes.xlsx"),
        "cannot write files in '.xlsx'",
        needs_run=True,
    ),
    Mistake(
        "writes latents to a folder that is not there",
        ("transform", "run", "data.csv", "-o", "none/codes.csv"),
        "Give a path in a folder that you may write to",
        needs_run=True,
    ),
    Mistake("checks a column that is not there", ("check", "data.csv", "--signal", "labels"), "did you mean 'label'?"),
    Mistake("plans for a file that is not there", ("plan", "none/data.csv"), "there is no folder none either"),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a folder with a table and a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_table(Path("data.csv"))
        assert call(*BY_BATCH).exit_code == 0
    return folder


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.does for mistake in MISTAKES])
def test_the_user_who(mistake, finished, tmp_path, monkeypatch):
    shutil.copy(finished / "data.csv", tmp_path)
    if mistake.needs_run:
        _copy_run(finished, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    mistake.before()
    before = contents(tmp_path)
    result = call(*mistake.command)
    assert result.exit_code == 2, result.output
    assert mistake.printed in result.stderr
    complaints = [
        line for line in result.stderr.splitlines() if "left out" not in line and "linear encoder" not in line
    ]
    assert len(complaints) == 1, result.stderr
    assert complaints[0].startswith("pindown: ")
    assert result.stdout == ""
    assert contents(tmp_path) == before


def _copy_run(finished: Path, folder: Path) -> None:
    """Copy a run, and record where its data are now."""
    shutil.copytree(finished / "run", folder / "run")
    edit_record(folder / "run", data={"path": str(folder / "data.csv")})


def test_without_a_mistake_the_fit_succeeds(finished):
    """The control: what the mistakes start from works."""
    assert (finished / "run" / "latents.csv").is_file()
    assert len(MISTAKES) >= 20


def test_an_interrupted_fit_prints_the_command_that_resumes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pindown", *BY_BATCH])
    write_table(Path("data.csv"))
    interrupted()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "run.unfinished"]
    with monkeypatch.context() as patch:
        patch.setattr("pindown.methods.base.BaseEncoder._fit", stop)
        result = call(*BY_BATCH)
    assert result.exit_code == 130
    assert "stopped; the same command resumes: pindown fit data.csv --features 'x*' --steps 3 -o run" in result.stderr
    result = call(*BY_BATCH)
    assert result.exit_code == 0, result.output
    assert "resuming run.unfinished" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "run"]


def test_force_replaces_an_unfinished_fit_with_other_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("data.csv"))
    interrupted()
    assert call(*BY_BATCH, "-d", "2", "--force").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "run"]


def test_a_bug_keeps_its_traceback(finished, monkeypatch):
    monkeypatch.chdir(finished)
    monkeypatch.setattr("pindown.runs.Run.open", lambda path: {}["ours"])
    assert isinstance(call("transform", "run", "data.csv", "-o", "codes.csv").exception, KeyError)


def test_a_full_disk_is_reported_and_the_same_command_resumes(tmp_path, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(tmp_path)
    write_table(Path("data.csv"))
    with monkeypatch.context() as patch:
        patch.setattr("pindown.training.checkpoints.pack_tensors", full)
        result = call(*BY_BATCH, "--option", "encoder=skip_mlp")
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert "When that is fixed, the same command resumes" in result.stderr
    assert call(*BY_BATCH, "--option", "encoder=skip_mlp").exit_code == 0
