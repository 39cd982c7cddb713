"""Printing of text that may come from records, cells or file names."""

from __future__ import annotations

import typer

from tidewheel._core.text import printable


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a text to standard output, or to standard error, with control characters escaped."""
    typer.echo(printable(str(text)), err=err, nl=nl)
