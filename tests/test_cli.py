"""The command line: what it prints, how it ends, and what it does not import."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pindown_papers
import pytest
from pindown_papers import _clusters, zimmermann2021
from typer.testing import CliRunner

import pindown
from pindown import theory
from pindown.cli import app

TABLE_1 = "zimmermann2021/table1"


def call(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def tiny(monkeypatch):
    """Table 1 so small that a row takes no time: `reproduce` is tested here, not recovery."""
    small = {"d": 3, "batch_size": 32, "max_iter": 2, "supervised_iter": 2, "hidden": (4,), "n_eval": 100}
    experiment = replace(zimmermann2021.TABLE_1, quick=replace(zimmermann2021.QUICK, **small))
    monkeypatch.setattr(pindown_papers, "EXPERIMENTS", (experiment,))
    return experiment


def rows_and_seeds(path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [(record["row"], record["seed"]) for record in records]


# reproduce


def test_reproduce_writes_a_line_per_row_and_seed_and_prints_both_tables(tiny, tmp_path):
    path = tmp_path / "new" / "r.jsonl"
    result = call("reproduce", TABLE_1, "--rows", "2,12", "--seeds", "0-1", "--output", path, "--device", "cpu",
                  "--markdown", tmp_path / "page.md")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "| 99.52±0.02 |" in (tmp_path / "page.md").read_text(encoding="utf-8")
    assert rows_and_seeds(path) == [(2, 0), (2, 1), (12, 0), (12, 1)]
    assert "[4/4] row 12, seed 1" in result.output
    assert "99.52±0.02" in result.output  # the paper's row 2
    assert "77.58" not in result.output  # nor row 1
    assert "held-out" in result.output

    record = json.loads(path.read_text().splitlines()[0])
    assert set(record["scores"]) == {"linear", "supervised", "unsupervised", "mcc"}
    assert record["settings"] == tiny.quick.settings
    assert set(record["versions"]) == {"pindown", "torch", "numpy", "python"}
    assert (record["device"], record["profile"]) == ("cpu", "quick")


def test_a_figure_is_drawn_and_numbers_that_are_not_known_are_not_printed(tmp_path, monkeypatch):
    monkeypatch.setattr(_clusters.Row, "measure", lambda *arguments: {"free z": 0.9, "free w": 0.8, "linear": 0.5})
    result = call(
        "reproduce", "reizinger2024/figure5c", "--output", tmp_path / "r.jsonl", "--figure", tmp_path / "f.svg"
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").count("<circle") >= 12
    assert "   ours " in result.output
    assert "   paper " not in result.output


def test_a_second_call_runs_nothing_again(tiny, tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    call("reproduce", TABLE_1, "--rows", "1-2", "--output", path)
    before = path.read_bytes()

    def never(*arguments):
        raise AssertionError("measured again")

    monkeypatch.setattr(zimmermann2021.Row, "measure", never)
    result = call("reproduce", TABLE_1, "--rows", "1-2", "--output", path)
    assert result.exit_code == 0, result.output
    assert "0 of 2 runs to do" in result.output
    assert "99.42±0.05" in result.output
    assert path.read_bytes() == before


def test_other_layers_are_another_run(tiny, tmp_path):
    path = tmp_path / "r.jsonl"
    for layers in (2, 3):
        result = call("reproduce", TABLE_1, "--rows", "1", "--layers", layers, "--output", path)
        assert "1 of 1 runs to do" in result.output
        assert f"n_layers {layers}," in result.output
    assert rows_and_seeds(path) == [(1, 0), (1, 0)]


def test_a_killed_run_resumes_after_its_last_whole_line(tiny, tmp_path):
    path = tmp_path / "r.jsonl"
    call("reproduce", TABLE_1, "--rows", "1-2", "--output", path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    result = call("reproduce", TABLE_1, "--rows", "1-2", "--output", path)
    assert "1 of 2 runs to do" in result.output
    assert rows_and_seeds(path) == [(1, 0), (2, 0)]
    assert path.read_bytes().startswith(whole.splitlines(keepends=True)[0])


def test_ctrl_c_prints_how_to_resume(tiny, tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    monkeypatch.setattr(sys, "argv", ["pindown", "reproduce", TABLE_1, "--output", "a b.jsonl"])
    measure = zimmermann2021.Row.measure

    def interrupted(row, *arguments):
        if row.number == 2:
            raise KeyboardInterrupt
        return measure(row, *arguments)

    monkeypatch.setattr(zimmermann2021.Row, "measure", interrupted)
    result = call("reproduce", TABLE_1, "--rows", "1-3", "--output", path)
    assert result.exit_code == 130
    assert f"kept in {path}; to resume: pindown reproduce {TABLE_1} --output 'a b.jsonl'" in result.stderr
    assert rows_and_seeds(path) == [(1, 0)]


def test_a_diverged_fit_is_one_sentence_and_no_record(tiny, tmp_path, monkeypatch):
    from pindown.training.divergence import TrainingDivergedError

    def diverged(*arguments):
        raise TrainingDivergedError("training: the loss is nan.")

    monkeypatch.setattr(zimmermann2021.Row, "measure", diverged)
    result = call("reproduce", TABLE_1, "--rows", "1", "--output", tmp_path / "r.jsonl")
    assert result.exit_code == 1
    assert "the loss is nan" in result.stderr
    assert rows_and_seeds(tmp_path / "r.jsonl") == []


def test_quick_and_full_have_files_of_their_own(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zimmermann2021.Row, "measure", lambda *arguments: {"linear": 0.5})
    call("reproduce", TABLE_1, "--rows", "1")
    call("reproduce", TABLE_1, "--rows", "1", "--full")
    assert rows_and_seeds(tmp_path / "results" / "zimmermann2021-table1-quick.jsonl") == [(1, 0)]
    assert len(rows_and_seeds(tmp_path / "results" / "zimmermann2021-table1-full.jsonl")) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["zimmerman/table1"], "there is no experiment 'zimmerman/table1': did you mean 'zimmermann2021/table1'?"),
        ([TABLE_1, "--rows", "11-13"], "there is no row 13 in zimmermann2021/table1: did you mean 12?"),
        ([TABLE_1, "--rows", "0"], "there is no row 0 in zimmermann2021/table1: did you mean 1?"),
        ([TABLE_1, "--rows", "one"], "--rows must be numbers and ranges below 100000, such as 1,3-5, got 'one'"),
        ([TABLE_1, "--rows", "5-3"], "--rows must be numbers"),
        ([TABLE_1, "--rows", "1,"], "--rows must be numbers"),
        ([TABLE_1, "--seeds", "-1"], "--seeds must be numbers"),
        ([TABLE_1, "--seeds", "0-99999999999"], "--seeds must be numbers"),
        ([TABLE_1, "--device", "gpu"], "cannot be used here"),
        ([TABLE_1, "--figure", "t.svg"], "zimmermann2021/table1 is a table, not a figure. Leave --figure out, or take"),
    ],
)
def test_user_errors_are_one_sentence_and_code_2(tmp_path, arguments, message):
    result = call("reproduce", *arguments, "--output", tmp_path / "r.jsonl")
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert len(result.stderr.splitlines()) == 1


def test_an_output_that_cannot_be_written_is_refused_before_training(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(zimmermann2021.Row, "measure", lambda *arguments: pytest.fail("trained"))
    (tmp_path / "file").write_text("")
    for output, cause in ((tmp_path / "file" / "r.jsonl", ""), (tmp_path, "Is a directory")):
        result = call("reproduce", TABLE_1, "--output", output)
        assert result.exit_code == 2
        assert f"{output} cannot be written" in result.stderr
        assert cause in result.stderr


def test_a_file_of_something_else_is_not_overwritten(tiny, tmp_path):
    (tmp_path / "notes.md").write_text("keep me")
    result = call("reproduce", TABLE_1, "--output", tmp_path / "notes.md")
    assert result.exit_code == 2
    assert "is no results file" in result.stderr
    assert (tmp_path / "notes.md").read_text() == "keep me"


# theory and list


def test_theory_lists_every_theorem_and_fits_eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = call("theory")
    assert result.exit_code == 0
    for theorem in theory.THEOREMS:
        assert f"\n{theorem.name}  " in "\n" + result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_theory_shows_one_theorem_with_all_it_assumes_and_does_not_promise(monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    result = call("theory", "contrast-sphere")
    for assumption in theory.CONTRAST_SPHERE.assumes:
        assert assumption.statement in result.output
    for text in (*theory.CONTRAST_SPHERE.not_promised, theory.CONTRAST_SPHERE.claim()):
        assert text in result.output
    assert "contrast-lp" not in result.output


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["classify-free", "-d", "5"], "d + 1 classes: 6 at d = 5"),
        (["ivae", "-d", "5", "-k", "2"], "with d = 5, 11 at k = 2"),
        (["ivae", "-d", "5"], "6 at k = 1, 11 at k = 2, 16 at k = 3"),
        (["forget", "-d", "2"], "2 at k = 1, 1 at k = 2, none at k = 3, which is more than d"),
    ],
)
def test_theory_counts_the_diversity_needed(monkeypatch, arguments, count):
    monkeypatch.setenv("COLUMNS", "1000")
    assert count in call("theory", *arguments).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["contrast-spere"], "there is no theorem 'contrast-spere': did you mean 'contrast-sphere'?"),
        (["ivae", "-k", "2"], "-k counts nothing without -d"),
        (["ivae", "-d", "0"], "Invalid value for"),
    ],
)
def test_theory_refuses_with_code_2(arguments, message):
    result = call("theory", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_list_has_one_line_per_experiment(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("list").output.splitlines()
    assert [line.split()[0] for line in lines] == [experiment.name for experiment in pindown_papers.EXPERIMENTS]


# demo


@pytest.mark.slow
def test_demo_prints_its_table_its_claims_and_the_page(tmp_path, monkeypatch):
    from pindown_papers import demo
    from pindown_papers.demo import Budget, main_sections

    small = {"budget": Budget(n_pairs=600, n_test=200, max_iter=2), "make_sections": main_sections}
    monkeypatch.setattr(demo, "run", partial(demo.run, **small))
    path = tmp_path / "page.html"
    result = call("demo", "--output", path, "--seed", "1")
    assert result.exit_code == 0, result.output
    assert path.read_text().startswith("<!doctype html>")
    assert f"The page: {path}" in result.output
    assert "recovered" in result.output
    assert "Held-out" in result.output


def test_demo_refuses_a_folder_as_page(tmp_path):
    result = call("demo", "--output", tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path} cannot be written" in result.stderr


# Quick to answer


def test_version():
    assert call("--version").output == f"pindown {pindown.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["theory"], ["theory", "ivae"], ["list"], ["fit", "--help"]], ids=" ".join
)
def test_answers_without_importing_torch_or_plotly(arguments):
    code = f"""
import sys
from pindown.cli import app
app({arguments!r}, standalone_mode=False)
print("heavy:", sorted({{"torch", "plotly", "sklearn", "scipy"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("heavy: []\n")


def test_the_module_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "pindown", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: " in done.stdout
    assert "reproduce" in done.stdout


def test_a_terminal_without_greek_letters_gets_question_marks():
    code = "from pindown.cli import app; app(['theory', 'contrast-sphere'])"
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=ascii_only, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "?" in done.stdout


@pytest.mark.parametrize("command", [("list",), ("reproduce", "zimmermann2021/table1")])
def test_without_the_papers_package_its_commands_name_the_extra(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "pindown_papers", None)
    monkeypatch.delitem(sys.modules, "pindown_papers.commands", raising=False)
    result = call(*command)
    assert result.exit_code != 0
    assert "pindown[papers]" in result.output.replace("\n", " ")
