"""`tidewheel route`: send JSON lines to the inbox of a job."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from tidewheel._cli.echo import echo
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import ConfigError
from tidewheel.fleet._inbox import open_inbox
from tidewheel.fleet._inbox.payloads import read_payloads, simple_schema
from tidewheel.fleet._nodes.router import Router

_STDIN = "-"
_CHUNK = 5_000


def route(
    inbox: Annotated[
        str,
        typer.Option(
            "--inbox",
            "-i",
            metavar="URL",
            envvar="TIDEWHEEL_INBOX",
            help="The URL of the inbox: a folder, file:, nats:",
        ),
    ],
    key: Annotated[str, typer.Option("--key", "-k", metavar="FIELD", help="The field that holds an event's key.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file with one JSON object per line; - is standard input.")
    ] = _STDIN,
    shards: Annotated[
        int | None, typer.Option("--shards", metavar="N", help="The job's n_shards; required to create an inbox.")
    ] = None,
    producer: Annotated[
        str | None, typer.Option("--producer", "-p", metavar="NAME", help="A name for this producer.")
    ] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Send the same lines from the beginning; stored lines are skipped."),
    ] = False,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="COLUMNS", help="The columns that the job declares, such as 'user string, amount long'."
        ),
    ] = None,
) -> None:
    """Send JSON lines to the inbox of a job.

    When the command ends with status 0, every event is durable. At an invalid line it stops, and all events before that
    line are durable. A line must be a JSON object in UTF-8 with the key's field; with `--schema`, it must also be
    readable as these columns. If the command was killed, start it again: with `--producer` and `--replay`, the same
    lines from the beginning are stored once, however often they are sent.

    For example:

        tidewheel route events.jsonl --inbox nats://host:4222/clicks --key user

        tidewheel route events.jsonl --inbox file:///data/inbox --key user --shards 64 --producer web-1 --replay
    """
    if replay and producer is None:
        raise ConfigError("--replay needs --producer: the name under which the lines were sent before")
    with open_inbox(inbox, shards) as opened, Router(opened, producer, replay=replay) as router:
        with _source(file) as lines:
            try:
                # Standard input may be a pipe whose next line arrives much later.
                size = 1 if file == _STDIN else _CHUNK
                for events in keyed(lines, key, "standard input" if file == _STDIN else file, size, schema):
                    router.route_many(events)
            except ConfigError:
                router.flush()  # Store exactly the lines before the invalid one.
                raise
        router.flush()
        known = f", {router.duplicates} were stored already" if replay else ""
        name = f", as producer {producer}" if producer else ""
        echo(f"routed {router.delivered} events{known}{name}")


def keyed(
    lines: Iterable[bytes], field: str, where: str, size: int, schema: str | None = None
) -> Iterator[list[tuple[Any, bytes]]]:
    """Yield key and JSON of the lines that are not blank, about `size` at a time; raise at the first invalid line and name it."""
    # Decode only the key; the rest of a line is validated but not decoded.
    shape = msgspec.defstruct("Line", [("key", str | int | bool | float)], rename={"key": field})
    decode = msgspec.json.Decoder(shape).decode
    columns = None if schema is None else simple_schema(schema)
    source = enumerate(lines, 1)
    while chunk := list(itertools.islice(source, size)):
        events: list[tuple[Any, bytes]] = []
        numbers: list[int] = []
        refused: ConfigError | None = None
        for number, line in chunk:
            stripped = line.strip()
            if not stripped:
                continue
            try:
                stripped.decode()
                events.append((decode(stripped).key, stripped))  # type: ignore[attr-defined]
                numbers.append(number)
            except UNDECODABLE as error:
                advice = f"each line must be a JSON object whose field {field!r} is a text or a number"
                refused = _refused(number, where, stripped, f"{error}; {advice}")
                break
        if columns is not None and events:
            _, bad = read_payloads([payload for _, payload in events], columns, "columns")
            if bad:
                index, reason = bad[0]
                refused = _refused(numbers[index], where, events[index][1], f"it cannot be read as {schema}: {reason}")
                events = events[:index]
        if events:
            yield events
        if refused is not None:
            raise refused


def _refused(number: int, where: str, line: bytes, reason: str) -> ConfigError:
    return ConfigError(
        f"line {number} of {where} is not an event: {reason}. Found: {line[:100].decode(errors='replace')}"
    )


def _source(file: str) -> BinaryIO:
    if file == _STDIN:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
