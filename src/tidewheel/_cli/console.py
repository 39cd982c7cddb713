"""The terminal, for commands that print tables and updating lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.segment import Segment

from tidewheel._core.text import printable

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType

_WIDE = 10_000
"""A width in columns that is larger than any table."""


class Terminal(Console):
    """A console that escapes control characters in its contents, but not in its own terminal commands."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of the output."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def console(**settings: Any) -> Console:
    """Return the standard output. In a terminal, tables fit its width; in a file or a pipe, nothing is truncated or wrapped."""
    found = Terminal(**settings)
    return found if found.file.isatty() else Terminal(width=_WIDE, **settings)
