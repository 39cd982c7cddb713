"""Options that are durations: text such as "90 s", checked before anything starts."""

from __future__ import annotations

import typer

from tidewheel._time.duration import nanoseconds
from tidewheel.errors import GraphError


def duration(text: str | None) -> str | None:
    """Return the text of an option if it is a duration or None; otherwise raise a usage error."""
    if text is not None:
        try:
            nanoseconds(text, "the time")
        except GraphError as error:
            raise typer.BadParameter(str(error)) from None
    return text
