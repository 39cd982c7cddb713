"""What the commands over stored jobs share: which job, which checkpoint, and how values are shown."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]
State = Annotated[
    str, typer.Option("--state", "-s", metavar="URL", envvar="TIDEWHEEL_STATE", help="Where the job's state lives.")
]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="SEQ|NAME", help="A checkpoint or savepoint; by default the newest.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for machines.")]


def at_of(text: str | None) -> int | str | None:
    """Return the sequence or name that was given."""
    return int(text) if text is not None and text.isdigit() else text


def key_candidates(text: str) -> list[Any]:
    """Return the keys that a text may mean, the likelier first: what it says as JSON, then the text itself.

    >>> key_candidates("7"), key_candidates("ada"), key_candidates('["a", 1]')
    ([7, '7'], ['ada'], [('a', 1), '["a", 1]'])
    """
    try:
        value = json.loads(text)
    except ValueError:
        return [text]
    if isinstance(value, list):
        value = _tuples(value)
    if value is None or isinstance(value, dict):
        return [text]
    return [value] if value == text else [value, text]


def shown(value: Any) -> str:
    """Return a value as JSON; bytes as base64, what JSON lacks as text."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return json.dumps(value, default=_plain)


def when(nanoseconds: int) -> str:
    """Return a time for people."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def size(count: int) -> str:
    """Return a number of bytes for people.

    >>> size(10), size(20_000)
    ('10 B', '19.5 KiB')
    """
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
