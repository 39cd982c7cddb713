"""The commands of `tidewheel` and their common parts."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, Literal

import typer

from tidewheel import __version__
from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Commands, Verbose
from tidewheel._subjects import added

_OWN = (
    "new",
    "run",
    "standby",
    "status",
    "stop",
    "reset",
    "doctor",
    "graph",
    "replay",
    "shadow",
    "switch",
    "explain",
    "sinks",
    "compact",
    "rescale",
    "cells",
    "checkpoints",
    "state",
    "migrate",
    "monitoring",
)
"""The commands of this folder."""
COMMANDS = {name: f"tidewheel._cli.{name}" for name in _OWN} | added("commands")
"""The commands, in the order of the help. Each has a module, with a function of its name or an `app` of subcommands."""


class _Commands(Commands):
    """Imports a command when it is used, so that each command loads only its own dependencies."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(COMMANDS[cmd_name])
        if hasattr(module, "app"):
            command: Any = typer.main.get_group(module.app)
        else:
            single = typer.Typer(add_completion=False, rich_markup_mode=_MARKUP)
            single.command(cls=getattr(module, "COMMAND_CLASS", None))(getattr(module, cmd_name))
            command = typer.main.get_command(single)
        command.name = cmd_name
        return command


_MARKUP: Literal["markdown"] = "markdown"
app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        echo(f"tidewheel {__version__}")
        raise typer.Exit


@app.callback()
def tidewheel(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Keyed, stateful stream programs in plain Python, run on Spark: exactly once, and fast."""
