"""The page about the command line: every command in it runs."""

import re
import shlex
from pathlib import Path

from commandline import call, write_table

from pindown.runs.recipe import Recipe

PAGE = Path(__file__).parents[1] / "docs" / "commandline.md"
COMMANDS = [
    line.removeprefix("pindown ")
    for block in re.findall(r"^```\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


def test_every_command_on_the_page_runs(tmp_path, monkeypatch):
    build = Recipe.build

    def hasty(recipe, **options):
        return build(recipe, **options).set_params(max_iter=2)

    monkeypatch.setattr(Recipe, "build", hasty)
    monkeypatch.chdir(tmp_path)
    write_table(Path("data.csv"))
    write_table(Path("new.csv"))
    assert len(COMMANDS) == 9
    for command in COMMANDS:
        result = call(*shlex.split(command))
        assert result.exit_code == 0, f"{command}: {result.output}"
    assert Path("run/audit.html").is_file()
