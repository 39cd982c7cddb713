"""How commands fail: one clear message on stderr, a distinct exit status, and a stack trace only on request."""

from __future__ import annotations

import os
import select
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidewheel._core.logs import logger
from tidewheel._observe.logs import is_json
from tidewheel.errors import HeldError, NotFound, TidewheelError

_LOG = logger(__name__)

FAILED = 1
HELD = 2
ABORTED = 130
READER_GONE = 141
"""The exit status if the reader of the output has closed it, as `head` does; shells use it for SIGPIPE."""
_VERBOSE = "tidewheel.verbose"


def _remember(context: typer.Context, verbose: bool) -> bool:
    context.meta[_VERBOSE] = verbose or context.meta.get(_VERBOSE, False)
    return verbose


Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show stack traces of errors.", callback=_remember, show_default=False)
]


class Commands(TyperGroup):
    """A command group that shows stack traces only on request."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn an error into its message and status."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            show("aborted; committed batches are kept, start again to continue")
            raise typer.Exit(ABORTED) from None
        except TidewheelError as error:
            self._trace(ctx)
            show(f"{error}{_profiles_with_state(error)}{_notes(error)}")
            raise typer.Exit(HELD if isinstance(error, HeldError) else FAILED) from None
        except Exception as error:
            # Errors of Typer itself, such as usage errors, are already readable.
            if type(error).__module__.startswith(("typer", "click")):
                raise
            if isinstance(error, BrokenPipeError) and _reader_is_gone():
                # Otherwise Python reports the closed pipe again at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(READER_GONE) from None
            self._trace(ctx)
            hint = "" if ctx.meta.get(_VERBOSE) else " (run with -v for the stack trace)"
            show(f"{type(error).__name__}: {error}{hint}")
            raise typer.Exit(FAILED) from None

    def _trace(self, ctx: Any) -> None:
        if ctx.meta.get(_VERBOSE):
            traceback.print_exc(file=sys.stderr)


def _profiles_with_state(error: TidewheelError) -> str:
    """Return a hint for a job that was not found, which may have been started with a profile."""
    from tidewheel._spark.config_file import FILE, states

    places = states(FILE) if isinstance(error, NotFound) and error.job is not None else {}
    if not places:
        return ""
    options = ", ".join(f"--state {url} ({table})" for table, url in places.items())
    return f". Only run, standby and node read {FILE}; its tables name other places: {options}"


def _notes(error: TidewheelError) -> str:
    """Return the notes of an error, such as the line of the program that led to it."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def _reader_is_gone() -> bool:
    """Return whether standard output is a pipe without a reader."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def show(message: str) -> None:
    """Print an error, or log it if stderr has machine-readable logs."""
    if is_json():
        _LOG.error(message)
        return
    from rich.text import Text

    from tidewheel._cli.console import Terminal

    text = Text.assemble(("error: ", "bold red"), (message, "red"))
    Terminal(stderr=True).print(text, soft_wrap=True, highlight=False)
