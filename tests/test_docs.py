"""The documentation: it builds without a warning, needs no network, and what it tells to type works."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from commandline import call, write_table
from torch import nn

pytest.importorskip("sphinx.application")
import pindown_papers
from offline import Page, broken_links, elsewhere
from pindown_papers.commands import app as papers
from records import comparison, measurements

from pindown import Sparse, activations, theory
from pindown.cli import app
from pindown.networks.gates import TopK

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if not {"_build", "api", "auto_examples"} & {*path.parts}),
]


# The site as it is built.


@pytest.mark.slow
def test_the_site_builds_without_a_warning_a_request_or_a_broken_link(tmp_path):
    written = ("_build", "api", "auto_examples", "__pycache__")
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns(*written))
    for folder in ("benchmarks", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    code, said = built(tmp_path / "docs", tmp_path / "html", "--tag", "prose")
    assert said == ""
    assert code == 0

    claims = (tmp_path / "html" / "concepts" / "theorems.html").read_text("utf-8")
    assert [theorem.name for theorem in theory.THEOREMS if f'id="{theorem.name}"' not in claims] == []
    assert "<math" in (tmp_path / "html" / "guides" / "add-a-method.html").read_text("utf-8")


def built(source: Path, target: Path, *options: str) -> tuple[int, str]:
    """Build a site as `make docs` does; return the exit code, and what was said."""
    build = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", *options, source, target]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_request_or_a_broken_link_fails_the_build(tmp_path):
    settings = f"import sys; sys.path.insert(0, {str(DOCS / '_ext')!r}); extensions = ['offline']"
    (tmp_path / "conf.py").write_text(settings)
    page = '<script src="https://cdn.org/a.js"></script><a href="nowhere.html">there</a>'
    (tmp_path / "index.rst").write_text(f"Page\n====\n\n.. raw:: html\n\n   {page}\n")
    code, said = built(tmp_path, tmp_path / "html")
    assert code == 1
    assert "index.html asks the network for https://cdn.org/a.js" in said
    assert "index.html has a link that leads nowhere: nowhere.html" in said


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.org/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.org/x.css">',
        '<img srcset="a.png 1x, https://cdn.org/a.png 2x">',
        '<p style="background: url(https://cdn.org/a.png)">',
        '<style>@import "https://cdn.org/a.css";</style>',
        '<svg><image href="http://cdn.org/a.png"/></svg>',
    ],
)
def test_a_page_that_asks_the_network_would_be_seen(html):
    assert any(elsewhere(url) for url in Page(html).requests)


def test_a_link_out_is_no_request():
    assert not Page('<a href="https://arxiv.org">a paper</a><link rel="next" href="https://x.org">').requests


@pytest.mark.parametrize("link", ["nowhere.html", "other.html#nowhere", "#nowhere"])
def test_a_link_that_leads_nowhere_would_be_seen(tmp_path, link):
    (tmp_path / "other.html").write_text("")
    pages = {tmp_path / "other.html": Page('<p id="here">'), tmp_path / "page.html": Page(f'<a href="{link}">')}
    assert broken_links(pages) == [(tmp_path / "page.html", link)]


def test_every_paper_has_a_page_and_the_page_shows_all_of_its_tables():
    for record in sorted((DOCS / "results").glob("*.jsonl")):
        paper = record.stem.partition("-")[0]
        assert f"\n{paper}-*\n" in (DOCS / "results" / f"{paper}.md").read_text("utf-8")  # its contents
    assert {name.partition("/")[0] for name in names_of_experiments()} <= {page.stem for page in PAGES}


def test_the_front_page_leads_to_every_example_so_that_a_missing_one_fails_the_build():
    named = re.findall(r"</auto_examples/(plot_\w+)>", (DOCS / "index.md").read_text("utf-8"))
    assert set(named) == {path.stem for path in (ROOT / "examples").glob("plot_*.py")}


def test_a_table_in_short_has_the_numbers_of_the_table_in_full():
    short = comparison("zimmermann2021-table1-full", "unsupervised", chance="0", before="linear").splitlines()[2:14]
    full = (DOCS / "results" / "zimmermann2021-table1-full.md").read_text("utf-8").splitlines()[6:18]
    for line, whole in zip(short, full, strict=True):
        *_, theirs, ours, before, chance = line[2:-2].split(" | ")
        cells = whole[2:-2].split(" | ")
        assert (before, theirs, ours, chance) == (cells[6], cells[9], cells[10], "0")


def test_a_table_that_was_not_run_says_so_and_one_that_does_not_exist_is_refused():
    assert "Not run yet: `pindown reproduce reizinger2024/figure4`" in comparison(
        "reizinger2024-figure4-never", "unit z"
    )
    with pytest.raises(StopIteration):
        comparison("reizinger2024-figure9-quick", "unit z")


def test_a_benchmark_is_shown_with_its_machine_and_a_column_it_lacks_is_refused():
    shown = measurements("whole_step_gpu", {"encoder": "encoder", "times_faster": "times faster"})
    assert shown.startswith("| encoder | times faster |\n| --- | ---: |\n| paper | 0.906 |")
    assert shown.endswith("by `python benchmarks/whole_step.py`.*")
    with pytest.raises(KeyError, match="colour"):
        measurements("whole_step_gpu", {"colour": "colour"})


def names_of_experiments() -> list[str]:
    return [experiment.name for experiment in pindown_papers.EXPERIMENTS]


# Code. Examples in Python are run by pytest, as they are in docstrings; here: that there are no others.


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Give the language of each fenced block, and its text."""
    yield from re.findall(r"^```(\S*)[^\n]*\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_block_of_python_is_an_example_that_is_run(page):
    assert [text for language, text in blocks(page) if language in ("python", "pycon") and ">>>" not in text] == []


def shell_lines(page: Path) -> Iterator[str]:
    """Give the lines of the shell blocks of a page."""
    for language, text in blocks(page):
        if language in ("", "sh", "bash", "shell", "console"):
            yield from re.sub(r"\s*&&\s*", "\n", text.replace("\\\n", " ")).splitlines()


def commands(page: Path) -> Iterator[str]:
    """Give what a page tells to type: the lines of its shell blocks, and what stands in backticks amid the text."""
    yield from shell_lines(page)
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`([^`\n]+)`", prose)


TOLD = [
    pytest.param(line.removeprefix("$ "), id=f"{page.stem}: {line.partition('#')[0].strip()}")
    for page in PAGES
    for line in dict.fromkeys(commands(page))
    if re.match(r"(\$ )?(pindown|python|pytest|make|pip) ", line) and "…" not in line
]


@pytest.mark.parametrize("line", TOLD)
def test_every_command_in_the_docs_exists(line):
    assert wrong_with(line) is None


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("pindown fit a.csv --option space=Reals() -o run/", "syntax error"),  # brackets want quotes
        ("pindown theroy", "no command theroy"),
        ("pindown theory --dimension 5", "no option --dimension"),
        ("pindown theory a b", "no place for b"),
        ("pindown theory -d", "no value of -d"),
        ("pindown reproduce --full", "no argument"),
        ("pindown reproduce zimmermann2021/table7", "no experiment"),
        ("make tests", "no target"),
        ("python benchmarks/nothing.py", "no file"),
        ("pytest -m slow tests/test_nothing.py", "no file"),
        ("pip install 'pindown[everything]'", "no extra"),
    ],
)
def test_a_command_that_does_not_exist_would_be_seen(line, complaint):
    assert complaint in str(wrong_with(line))


def wrong_with(line: str) -> str | None:
    """Return what is wrong with a command as one can tell without running it."""
    spelled = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
    if spelled.returncode:
        return spelled.stderr
    program, *words = shlex.split(line, comments=True)
    if program == "pindown":
        return wrong_with_call(words)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        return next((f"no target {word}" for word in words if "=" not in word and word not in targets), None)
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        asked = re.findall(r"pindown\[(\w+)\]", line)
        return next((f"no extra {word}" for word in asked if word not in extras), None)
    files = [word.partition("::")[0] for word in words if word.partition("::")[0].endswith(".py")]
    return next((f"no file {name}" for name in files if not (ROOT / name).exists()), None)


def wrong_with_call(words: list[str]) -> str | None:
    """Return what is wrong with the arguments of `pindown`."""
    command = typer.main.get_command(app)
    if words and not words[0].startswith("-"):
        name, *words = words
        if name not in command.commands:
            return f"no command {name}"
        of_papers = typer.main.get_command(papers).commands
        command = of_papers.get(name) or command.commands[name]
    options = {spelling: option for option in command.params for spelling in (*option.opts, *option.secondary_opts)}
    options |= dict.fromkeys(("-h", "--help"), None)
    places = [argument for argument in command.params if argument.param_type_name == "argument"]
    given, rest = [], iter(words)
    for word in rest:
        option, equals, _ = word.partition("=")
        if not option.startswith("-"):
            given.append(word)
        elif option not in options:
            return f"no option {option}"
        elif not (equals or getattr(options[option], "is_flag", True)) and next(rest, None) is None:
            return f"no value of {option}"
    if len(given) > len(places) and all(place.nargs != -1 for place in places):
        return f"no place for {given[len(places)]}"
    if words and len(given) < sum(place.required for place in places) and "--help" not in words:
        return "no argument"  # but a command alone is a name
    if command.name == "reproduce" and given and given[0] not in (*names_of_experiments(), "NAME"):
        return f"no experiment {given[0]}"
    return None


TYPED = {
    page: lines
    for page in PAGES
    if (lines := [line.removeprefix("$ ") for line in shell_lines(page) if re.match(r"(\$ )?pindown ", line)])
}
HASTE = {"fit": ["--steps", "5"], "audit": ["--fits", "2"]}
LONG = ("demo", "reproduce")  # they have tests of their own


def test_the_page_about_the_command_line_types_every_command_for_data():
    typed = {line.split()[1] for line in TYPED[DOCS / "reference" / "command-line.md"]}
    assert typed == {"check", "plan", "fit", "transform", "audit"}


def write_features(folder):
    """Write features of 80 inputs, of twenty objects, and their factors."""
    rng = np.random.default_rng(0)
    np.savez(folder / "features.npz", trained=rng.normal(size=(80, 6)), untrained=rng.normal(size=(80, 6)))
    np.save(folder / "pixels.npy", rng.normal(size=(80, 9)))
    lines = [f"{k % 2},{k // 4}" for k in range(80)]
    (folder / "factors.csv").write_text("\n".join(["size,object", *lines]) + "\n")


def write_activations(folder):
    """Write activations of 5,000 tokens, and three dictionaries of them."""
    tokens = torch.randint(500, (100, 50), generator=torch.Generator().manual_seed(0))
    activations(nn.Sequential(nn.Embedding(500, 4), nn.Tanh()), tokens.split(50), "1", folder / "activations")
    for seed in range(3):
        sparse = Sparse(8, gate=TopK(1), max_iter=5, verbose=False, random_state=seed)
        sparse.fit(str(folder / "activations")).to_saelens(folder / f"seed-{seed}")


def write_embedding(folder):
    x, donor, kind = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2, np.arange(300) % 3
    rows = [f"{','.join(map(str, each))},d{e},t{k}" for each, e, k in zip(x, donor, kind, strict=True)]
    (folder / "X.csv").write_text("\n".join(["a,b,c,d,donor,type", *rows]) + "\n")
    (folder / "Z.csv").write_text("\n".join(["z0,z1", *(f"{a},{b}" for a, b, *_ in x)]) + "\n")


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # five steps pin down nothing
@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.stem)
@pytest.mark.slow
def test_what_a_page_types_works_line_by_line(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("data.csv", "new.csv"):
        write_table(tmp_path / name)
    write_features(tmp_path)
    write_embedding(tmp_path)
    write_activations(tmp_path)
    for line in TYPED[page]:
        command, *words = shlex.split(line, comments=True)[1:]
        if command not in LONG:
            done = call(command, *words, *HASTE.get(command, []))
            assert done.exit_code == 0, f"{line}: {done.output}"
        if command == "audit" and "--embedding" not in words:
            assert Path(words[0], "audit.html").is_file()
