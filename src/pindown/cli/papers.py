"""`pindown list` and `pindown reproduce`: commands of the package `pindown_papers`, of the extra ``papers``."""

from __future__ import annotations

import importlib

import typer

from pindown.cli.messages import fail

WITH_ALL_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def list_experiments(context: typer.Context) -> None:
    """List the experiments that `reproduce` can run."""
    _pass_on("list", context)


def reproduce_experiment(context: typer.Context) -> None:
    """Run a paper's table again, and print its numbers next to ours."""
    _pass_on("reproduce", context)


def _pass_on(name: str, context: typer.Context) -> None:
    """Run a command of the papers' package; exit with the way to install it if it is missing."""
    try:
        app = importlib.import_module("pindown_papers.commands").app
    except ModuleNotFoundError as error:
        if error.name not in ("pindown_papers", "pindown_papers.commands"):
            raise
        fail('the papers\' tables are a package of their own. Install it: pip install "pindown[papers]"')
    command = typer.main.get_group(app).commands[name]
    with command.make_context(name, list(context.args), parent=context.parent) as passed:
        command.invoke(passed)
