"""The command line: parse, call, print. The science is elsewhere, and imported when a command needs it."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

import pindown
from pindown.cli.audit import audit_run
from pindown.cli.compare import compare_sparse
from pindown.cli.fit import check_data, fit_data, plan_fit
from pindown.cli.messages import fail
from pindown.cli.probe import probe_features
from pindown.cli.theory import show_theory
from pindown.cli.transform import transform_data

__all__ = ["app"]

WITH_ALL_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

app = typer.Typer(
    name="pindown",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="From data.csv to audit.html: pindown fit data.csv --nuisance batch -o run/ && pindown audit run/",
)


def run_papers_command(context: typer.Context) -> None:
    """Run the command of the package `pindown_papers`; exit with the way to install it if it is missing."""
    try:
        commands = importlib.import_module("pindown_papers.commands").app
    except ModuleNotFoundError as error:
        if error.name not in ("pindown_papers", "pindown_papers.commands"):
            raise
        fail(f'`pindown {context.info_name}` is in a package of its own. Install it: pip install "pindown[papers]"')
    name = str(context.info_name)
    command = typer.main.get_group(commands).commands[name]
    with command.make_context(name, list(context.args), parent=context.parent) as passed:
        command.invoke(passed)


for name, command, example in (
    ("check", check_data, "pindown check data.csv --signal label -d 5"),
    ("plan", plan_fit, "pindown plan data.csv --nuisance batch"),
    ("fit", fit_data, "pindown fit data.csv --nuisance batch -o run/"),
    ("transform", transform_data, "pindown transform run/ new.csv -o latents.csv"),
    ("audit", audit_run, "pindown audit run/"),
    ("probe", probe_features, "pindown probe features.npz --factors factors.csv --group object -o probes.html"),
    ("compare", compare_sparse, "pindown compare seed-0/ seed-1/ --activations activations/ -o compare.json"),
    ("theory", show_theory, "pindown theory contrast-sphere -d 5"),
):
    app.command(name, epilog=f"Example: {example}")(command)
for name, text in (
    ("demo", "Recover the latents of eight simulations, and write a page that shows them."),
    ("list", "List the experiments that `reproduce` can run."),
    ("reproduce", "Run a paper's table again, and print its numbers next to ours."),
):
    app.command(name, help=text, context_settings=WITH_ALL_ARGUMENTS)(run_papers_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pindown {pindown.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Recover the latent variables behind data, and say which claims about them are supported."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no κ gets a question mark, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
