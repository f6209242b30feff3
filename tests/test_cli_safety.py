"""The command line among files from elsewhere: run folders, names, signals, full disks, and several processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commandline import call, columns, contents, edit_record, write_table

from pindown.cli.messages import LONGEST, safe
from pindown.errors import InputError
from pindown.runs import Run

OBSERVED = ("--features", "x*")
QUICK = ("--signal", "label", "-d", 2, "--steps", 3, "--folds", 0, "--device", "cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two runs that differ in their data."""
    folder = tmp_path_factory.mktemp("runs")
    for name, shift in (("run", 0.0), ("other", 1.0)):
        table = {k: [v + shift for v in column] if k[0] == "x" else column for k, column in columns().items()}
        write_table(folder / f"{name}.csv", table)
        result = call("fit", folder / f"{name}.csv", *OBSERVED, *QUICK, "-o", folder / name)
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch, finished):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    for name in ("run", "other"):
        edit_record(tmp_path / name, data={"path": str(tmp_path / f"{name}.csv")})
    return tmp_path


def refused(*words):
    """Return what is said by a command that must end without having written anything."""
    before = contents(Path.cwd())
    result = call(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert contents(Path.cwd()) == before
    return result.stderr


def twice(*said):
    """Return the sentence that `transform` and `audit` share."""
    first, second = refused("transform", "run", "run.csv", "-o", "new.csv"), refused("audit", "run", "--fits", 2)
    assert first == second
    return first


# ---- the parts of a run


def test_the_estimator_of_another_run_is_refused(here):
    shutil.copy(here / "other" / "estimator.pindown", here / "run" / "estimator.pindown")
    assert "belongs to another run" in twice()


def test_a_record_that_was_edited_is_refused(here):
    record = (here / "run" / "run.json").read_text()
    (here / "run" / "run.json").write_text(record.replace('"x0",\n   "x1"', '"x1",\n   "x0"'))
    assert "does not match its checksum" in twice()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"data": 3},
        {"data": {"path": 3}},
        {"columns": {"speed": 3}},
        {"recipe": {"speed": 3}},
        {"parts": {"../../elsewhere": "0"}},
        {"parts": {"estimator.pindown": 3}},
        {"pictures": {"speed": 3}},
        {"command": None},
        {"notes": None},
    ],
)
def test_a_record_that_is_incomplete_or_odd_is_refused_in_a_sentence(here, change):
    edit_record(here / "run", **change)
    assert "is not the record of a run of this version" in twice()


@pytest.mark.parametrize("number", range(5))
def test_an_estimator_for_other_features_is_refused(here, number):
    features = [f"x{k}" for k in range(5)]
    edit_record(here / "run", columns={"features": [*features[:number], *features[number + 1 :]]})
    assert "does not belong to this run" in refused("transform", "run", "run.csv", "-o", "new.csv")


def test_every_flipped_bit_of_a_part_is_noticed(here):
    rng = np.random.default_rng(0)
    for name in ("run.json", "estimator.pindown", "latents.csv", "scores.json"):
        path = here / "run" / name
        whole = path.read_bytes()
        for place in rng.integers(len(whole), size=25):
            content = bytearray(whole)
            content[place] ^= 1 << rng.integers(8)
            path.write_bytes(content)
            try:
                assert Run.open(here / "run").changed_parts() == (name,)
            except InputError:
                assert name == "run.json"
        path.write_bytes(whole)
    assert Run.open(here / "run").changed_parts() == ()


def test_latents_that_were_edited_are_mentioned_and_needed_by_nothing(here):
    with (here / "run" / "latents.csv").open("a") as file:
        file.write("more\n")
    result = call("transform", "run", "run.csv", "-o", "new.csv")
    assert result.exit_code == 0, result.output
    assert "changed since it was made: latents.csv" in result.stderr


def test_pages_of_an_audit_are_bound_to_the_run(here):
    assert call("audit", "run", "--fits", 2).exit_code == 0
    assert {"audit.html", "audit.json"} <= Run.open(here / "run").record["parts"].keys()
    (here / "run" / "audit.html").write_text("all is well")
    assert "changed since it was made: audit.html" in call("transform", "run", "run.csv", "-o", "new.csv").stderr


# ---- imports


def test_a_record_does_not_choose_what_is_imported(here, monkeypatch):
    (here / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(here))
    edit_record(here / "run", recipe={"estimator": "evil:Evil"})
    assert "--estimator evil:Evil" in twice()
    edit_record(here / "run", recipe={"estimator": "antigravity:fly"})
    twice()
    assert not {"evil", "antigravity"} & {*sys.modules}


def test_another_estimator_than_that_of_the_run_is_refused(here):
    assert "not Forget" in refused("transform", "run", "run.csv", "-o", "new.csv", "--estimator", "Forget")


def test_a_method_that_is_not_installed_is_named_by_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("data.csv"))
    regress = ("--estimator", "own_method.regress:Regress")
    measured = ("--signal", "z0", "--signal", "z1", "-d", 2, "--steps", 3)
    result = call("fit", "data.csv", *OBSERVED, *measured, *regress, "-o", "run", "--folds", 0)
    assert result.exit_code == 0, result.output
    said = refused("transform", "run", "data.csv", "-o", "new.csv")
    assert "--estimator own_method.regress:Regress" in said
    assert call("transform", "run", "data.csv", "-o", "new.csv", *regress).exit_code == 0


def run(*words, **how):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=300, **how)


@pytest.mark.slow
def test_python_m_pindown_imports_nothing_from_the_working_directory(tmp_path):
    for name in ("typing", "json", "csv", "rich", "typer", "numpy", "torch", "sklearn", "pindown_papers", "evil"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was executed')")
    about = tmp_path / "evil-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pindown.methods]\nEvil = evil:Evil\n")
    write_table(tmp_path / "data.csv")
    for estimator, said in (("Evil", "there is no 'Evil'"), ("evil:Evil", "cannot be imported")):
        done = run("-m", "pindown", "fit", "data.csv", *QUICK, "-o", "run", "--estimator", estimator, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
    assert run("-m", "pindown", "--version", cwd=tmp_path).returncode == 0


# ---- what is refused, and what is reported


def test_a_device_without_numbers_is_refused(here):
    said = refused("fit", "run.csv", *OBSERVED, "--signal", "label", "-d", 2, "--device", "meta", "-o", "new")
    assert "--device meta cannot be used here" in said
    assert len(said.splitlines()) == 1


def test_a_run_is_used_from_inside_its_folder(here, monkeypatch):
    monkeypatch.chdir(here / "run")
    result = call("transform", ".", here / "run.csv", "-o", "new.csv")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--signal", "label", "--folds", 0), "320 samples, 30 steps, "),
        (
            ("--option", "n_restarts=2", "--option", "validation_fraction=0"),
            "320 samples, 60 steps in 2 restarts of at most 30, ",
        ),
    ],
)
def test_the_number_of_steps_is_printed(here, options, said):
    result = call("fit", "run.csv", *OBSERVED, *options, "-d", 2, "--steps", 30, "-o", "new")
    assert said in result.stdout


# ---- what reaches the terminal, and a spreadsheet


def test_names_from_a_table_do_not_steer_the_terminal_or_fill_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = columns()
    odd = {
        "x\x1b[31m": table["x0"],
        "x" + "y" * 10_000: table["x1"],
        "x\x9bm": table["x2"],
        "\x1b]0;title\x07": ["a"] * 320,
    }
    table = {**odd, "x3": table["x3"], "x4": table["x4"], "label": [f"\x1b[2J{value}" for value in table["label"]]}
    write_table(Path("data.csv"), table)
    for words in (
        ("check", "data.csv", "--signal", "label", "-d", 2),
        ("plan", "data.csv", "--signal", "label"),
        ("fit", "data.csv", *QUICK, "-o", "run"),
        ("fit", "data.csv", *QUICK, "-o", "run"),
        ("audit", "run", "--fits", 2),
        ("transform", "run", "data.csv", "-o", "new.csv"),
        ("fit", "data.csv", "--signal", "\x1b[31mnone", "-o", "other"),
    ):
        said = call(*words).output
        assert not [c for c in said if not c.isprintable() and c != "\n"], words
        assert max(map(len, said.split())) <= LONGEST, words
    assert not [c for c in Path("run/log.txt").read_text() if not c.isprintable() and c != "\n"]
    said = call("check", "data.csv", "--signal", "label", "-d", 2, "--json").output
    assert not [c for c in said if not c.isprintable() and c != "\n"]


def test_text_for_a_terminal_keeps_its_lines():
    assert safe("a\nb\tc") == "a\nb\\tc"


def test_ids_that_look_like_formulas_are_quoted_on_request(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ids = [f"=HYPERLINK({k})" if k % 2 else f"p{k}" for k in range(320)]
    write_table(Path("data.csv"), {"id": ids, **columns()})
    for extra, expected in (((), "=HYPERLINK(1)"), (("--quote-formulas",), "'=HYPERLINK(1)")):
        words = ("fit", "data.csv", *OBSERVED, "--id", "id", *QUICK, "-o", "run", "--force", *extra)
        result = call(*words)
        assert result.exit_code == 0, result.output
        assert ("--quote-formulas prevents it" in result.stderr) == (not extra)
        assert Path("run/latents.csv").read_text().splitlines()[2].startswith(expected)
        assert call("transform", "run", "data.csv", "-o", "new.csv", *extra).exit_code == 0
        assert Path("new.csv").read_text().splitlines()[2].startswith(expected)


# ---- signals, disks, folders that go away


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGTERM")
def test_sigterm_says_a_word_and_the_same_command_resumes(tmp_path):
    write_table(tmp_path / "data.csv")
    words = ["-m", "pindown", "fit", "data.csv", *OBSERVED, "--signal", "label", "-d", "2", "--device", "cpu"]
    fit = [sys.executable, *words, "--steps", "200000", "-o", "run"]
    process = subprocess.Popen(fit, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run.unfinished" / "checkpoint").is_dir() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "pindown: terminated; the same command resumes: pindown fit data.csv" in said
    assert list((tmp_path / "run.unfinished" / "checkpoint").glob("*.safetensors"))
    assert not list(tmp_path.rglob(".*"))


def test_an_audit_of_a_folder_that_is_deleted_meanwhile_makes_it_no_more(here, monkeypatch):
    audited = __import__("pindown.cli.audit", fromlist=["_audit"])._audit

    def meanwhile(*arguments):
        found = audited(*arguments)
        shutil.rmtree(here / "run")
        return found

    monkeypatch.setattr("pindown.cli.audit._audit", meanwhile)
    result = call("audit", "run", "--fits", 2)
    assert result.exit_code == 2
    assert "run was deleted or moved meanwhile" in result.stderr
    assert not (here / "run").exists()


def test_a_full_disk_is_named_with_the_file(here, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pindown._files._sync", full)
    assert "new.csv: No space left on device" in refused("transform", "run", "run.csv", "-o", "new.csv")


# ---- several processes


@pytest.mark.slow
def test_torchrun_fits_in_two_processes_and_the_first_one_writes(tmp_path):
    write_table(tmp_path / "data.csv")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--", "pindown"]
    words = ["fit", "data.csv", *OBSERVED, "--signal", "label", "-d", 2, "--steps", 20, "--folds", 2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = run(*launch, *words, "-o", "run", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The run: run.") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "run"}
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {*record["parts"]} == {"estimator.pindown", "latents.csv", "scores.json"}
    again = run(*launch, *words, "-o", "run", cwd=tmp_path, env=environment)
    assert again.returncode != 0
    assert again.stderr.count("holds a finished run") == 1
