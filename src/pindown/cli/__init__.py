"""The command line: parse, call, print. The science is elsewhere, and imported when a command needs it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import pindown
from pindown.cli.audit import audit_run
from pindown.cli.demo import run_demo
from pindown.cli.fit import check_data, fit_data, plan_fit
from pindown.cli.papers import WITH_ALL_ARGUMENTS, list_experiments, reproduce_experiment
from pindown.cli.probe import probe_features
from pindown.cli.theory import show_theory
from pindown.cli.transform import transform_data

__all__ = ["app"]

app = typer.Typer(
    name="pindown",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="From data.csv to audit.html: pindown fit data.csv --nuisance batch -o run/ && pindown audit run/",
)

for name, command, example in (
    ("check", check_data, "pindown check data.csv --signal label -d 5"),
    ("plan", plan_fit, "pindown plan data.csv --nuisance batch"),
    ("fit", fit_data, "pindown fit data.csv --nuisance batch -o run/"),
    ("transform", transform_data, "pindown transform run/ new.csv -o latents.csv"),
    ("audit", audit_run, "pindown audit run/"),
    ("probe", probe_features, "pindown probe features.npz --factors factors.csv --group object -o probes.html"),
    ("demo", run_demo, "pindown demo --output demo.html"),
    ("theory", show_theory, "pindown theory contrast-sphere -d 5"),
):
    app.command(name, epilog=f"Example: {example}")(command)
app.command("list", context_settings=WITH_ALL_ARGUMENTS)(list_experiments)
app.command("reproduce", context_settings=WITH_ALL_ARGUMENTS)(reproduce_experiment)


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
