"""`tidewheel route`: send JSON lines to the inbox of a job."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from tidewheel._connectors.inbox import open_inbox
from tidewheel._fleet.router import Router
from tidewheel.errors import ConfigError

_STDIN = "-"


def route(
    inbox: Annotated[
        str, typer.Option("--inbox", "-i", envvar="TIDEWHEEL_INBOX", help="Where the inbox is: a folder, file:, nats:")
    ],
    key: Annotated[str, typer.Option("--key", "-k", help="The field whose value is an event's key.")],
    file: Annotated[str, typer.Argument(help="A file of JSON objects, one a line; - is standard input.")] = _STDIN,
    shards: Annotated[
        int | None, typer.Option("--shards", help="The job's n_shards; needed to make a new inbox.")
    ] = None,
    producer: Annotated[str | None, typer.Option("--producer", "-p", help="A name for this producer.")] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="The same lines as before, from the first on: what is stored is passed over."),
    ] = False,
) -> None:
    """Send JSON lines to the inbox of a job.

    When the command ends with status 0, every event is durable. At a line that is no event it stops, and those before it are
    durable. If it was killed, start it again: with `--producer` and
    `--replay`, the same lines from the beginning are stored once, however often they are sent.
    """
    if replay and producer is None:
        raise ConfigError("--replay needs --producer: the name under which the lines were sent before")
    with open_inbox(inbox, shards) as opened, Router(opened, producer, replay=replay) as router:
        with _source(file) as lines:
            try:
                for event in keyed(lines, key, "standard input" if file == _STDIN else file):
                    router.route(*event)
            except ConfigError:
                router.flush()  # So that exactly the lines before the bad one are stored.
                raise
        router.flush()
        known = f", {router.duplicates} were stored already" if replay else ""
        name = f", as producer {producer}" if producer else ""
        typer.echo(f"routed {router.delivered} events{known}{name}")


def keyed(lines: Any, field: str, where: str) -> Iterator[tuple[Any, bytes]]:
    """Give key and JSON of each line that is not blank; a line that is no object with that field is named."""
    # Only the key is decoded; the rest of a line is looked over, not taken apart.
    shape = msgspec.defstruct("Line", [("key", str | int | bool | float)], rename={"key": field})
    decode = msgspec.json.Decoder(shape).decode
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped:
            continue
        try:
            yield decode(stripped).key, stripped  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"line {number} of {where} is not an event: {error}; each line must be a JSON object whose field {field!r} is a "
                f"text or a number. Found: {stripped[:100].decode(errors='replace')}"
            ) from None


def _source(file: str) -> BinaryIO:
    if file == _STDIN:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
