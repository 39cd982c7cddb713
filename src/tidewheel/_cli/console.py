"""The standard output of commands that print tables."""

from __future__ import annotations

from rich.console import Console

_WIDE = 10_000
"""Columns: more than any table has."""


def console() -> Console:
    """Return the standard output. In a terminal, tables fit its width; in a file or a pipe, nothing is cut or wrapped."""
    found = Console()
    return found if found.file.isatty() else Console(width=_WIDE)
