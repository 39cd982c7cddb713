"""The `tidewheel` command."""

from __future__ import annotations

import importlib
import importlib.util
from importlib.metadata import version
from typing import Annotated

import typer

from tidewheel._cli.failures import Commands, Verbose
from tidewheel._cli.graph import graph
from tidewheel._cli.node import node
from tidewheel._cli.rescale import rescale
from tidewheel._cli.route import route
from tidewheel._cli.run import run
from tidewheel._cli.sinks import sinks

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(graph)
app.command()(sinks)
app.command()(rescale)
app.command()(route)
app.command()(node)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tidewheel {version('tidewheel')}")
        raise typer.Exit


@app.callback()
def tidewheel(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Keyed, stateful stream programs in plain Python, run on Spark: exactly once, and fast."""


def _mount(name: str) -> None:
    """Add a group of commands that another part of the package brings, where it can be imported."""
    try:
        module = importlib.import_module(f"tidewheel._cli.{name}")
    except ImportError:
        return
    app.add_typer(module.app, name=name)


_mount("cells")
_mount("checkpoints")
_mount("state")
_mount("fleet")


def main() -> None:
    """Run the command line."""
    app()
