"""Publish the messages of a commit to a stream: in atomic batches with a marker, or one by one with ids.

The marker is the newest message of a separate subject in the same stream. The last message of a batch is its marker,
and names the previous marker: the server stores the batch only if that marker is still the newest. So each batch is
stored at most once, whoever sends it and whenever it arrives.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tidewheel._connectors.marker import Marker, Outrun, digest
from tidewheel._connectors.messages import Form, Message, count, messages
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel._connectors.over_runs import over_marker, refuse_over
from tidewheel._connectors.sink import Publication
from tidewheel._core import faults
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable, CorruptError

SENDING = faults.declare("nats.sending", "a batch is with the server, all but the marker that makes it count")
STORED = faults.declare("nats.stored", "a batch of messages is in the stream with its marker; others may not be")
SENT = faults.declare("nats.sent", "messages with ids are in the stream; the marker is not")

_BATCH, _BATCH_BYTES = 999, 8 * 2**20
_IN_FLIGHT = 1000
_HEADROOM = 1024
_WRONG_LAST_SEQUENCE = (10071, 10164)
_BATCH_LOST = (10175, 10176)
"""A message of the batch was lost, or the server timed out: nothing is stored."""


class Published(msgspec.Struct, frozen=True):
    """The content of a marker: the newest complete commit, and how many messages of the next one are stored."""

    whole: Marker = Marker()
    sequence: int = 0
    digest: int = 0
    messages: int = 0

    def sent(self, publication: Publication) -> int:
        """Return how many messages of a partly sent publication arrived."""
        same = (self.sequence, self.digest) == (publication.sequence, digest(publication))
        return self.messages if same else 0


class Target(msgspec.Struct):
    """The target of messages."""

    connection: NatsConnection
    stream: str
    marker: str
    over: str | None = None
    """The subject that records the finished runs of a fleet; None for a job without a fleet."""
    newest: tuple[Published, int] | None = None
    """The newest known marker, and its sequence in the stream. If it is outdated, the server rejects the next batch.
    """


def found_target(connection: NatsConnection, form: Form, stream: str | None, marker: str, atomic: bool) -> Target:
    """Return the stream that accepts the messages and their marker; raise if a setting of the stream is missing."""
    return connection.call(_found_target(connection, form, stream, marker, atomic))


async def _found_target(
    connection: NatsConnection, form: Form, stream: str | None, marker: str, atomic: bool
) -> Target:
    from nats.js.errors import NotFoundError

    subject = form.pattern("*")
    try:
        name = stream or await connection.jetstream.find_stream_name_by_subject(subject)
        config = (await connection.jetstream.stream_info(name)).config
    except NotFoundError:
        what = f"no stream {stream!r}" if stream else f"no stream that takes the subject {subject}"
        raise ConfigError(f"there is {what} at {connection.url}; make it, or check the name") from None
    for wanted in (subject, marker):
        if not any(takes(pattern, wanted) for pattern in config.subjects or ()):
            raise ConfigError(
                f"the stream {name} at {connection.url} takes {', '.join(config.subjects or ())}, and the sink sends "
                "to "
                f"{wanted}; add {wanted if wanted == subject else marker.rpartition('.')[0] + '.>'} to its subjects"
            )
    if atomic and not config.allow_atomic:
        raise ConfigError(
            f"the stream {name} at {connection.url} does not allow atomic batches, which exactly once needs: allow "
            f"them (nats stream edit {name} --allow-batch; servers from 2.12 on), or give atomic=False for at least once"
        )
    return Target(connection, name, marker)


def takes(pattern: str, subject: str) -> bool:
    """Return whether a stream's subject matches everything that another subject matches.

    >>> takes("a.>", "a.*.b"), takes("a.*", "a.b.c"), takes("a.b", "a.*")
    (True, False, False)
    """
    for own, other in itertools.zip_longest(pattern.split("."), subject.split(".")):
        if own == ">":
            return other is not None
        if other is None or own is None or (own != "*" and own != other) or other == ">":
            return False
    return True


def publish_in_batches(target: Target, publication: Publication, form: Form) -> None:
    """Store the messages that are not there yet, batch by batch; raise `Outrun` if the marker has changed."""
    held, at = target.newest or _known(target, publication)
    if held.whole.has(publication):
        return
    sent, total = held.sent(publication), count(publication)
    for batch in batches(messages(publication, form, sent)):
        sent += len(batch)
        held = Published(held.whole, publication.sequence, digest(publication), sent)
        if sent == total:
            held = Published(held.whole.after(publication))
        at = target.connection.call(_stored(target, batch, held, at))
        target.newest = held, at
        faults.point(STORED)


def publish_by_ids(target: Target, publication: Publication, form: Form) -> None:
    """Send all messages, each with its id, many at a time; then the marker."""
    held, at = _known(target, publication)
    if held.whole.has(publication):
        return
    life = f"{publication.job}/{publication.sink}/{publication.sequence}/{digest(publication):x}"
    numbered = enumerate(messages(publication, form))
    while chunk := list(itertools.islice(numbered, _IN_FLIGHT)):
        target.connection.call(_sent(target, life, chunk))
        faults.point(SENT)
    target.connection.call(_stored(target, [], Published(held.whole.after(publication)), at))
    faults.point(STORED)


def forget(target: Target, over: str, markers: Sequence[str], runs: Sequence[int]) -> None:
    """Record finished runs under the subject `over`, then delete their markers; raise `Outrun` if another process
    did it first.
    """
    noting = msgspec.structs.replace(target, marker=over)
    held, at = target.connection.call(_looked_up(noting))
    if held.whole.sequence < max(runs):
        target.connection.call(_stored(noting, [], Published(over_marker(runs)), at))
    for marker in markers:
        target.connection.call(target.connection.jetstream.purge_stream(target.stream, subject=marker))


def _known(target: Target, publication: Publication) -> tuple[Published, int]:
    """Return the newest marker and its sequence in the stream; raise for a finished run, which has none."""
    held, at = target.connection.call(_looked_up(target))
    if not at and target.over is not None:
        noted, _ = target.connection.call(_looked_up(msgspec.structs.replace(target, marker=target.over)))
        refuse_over(publication, noted.whole.sequence)
    return held, at


def batches(all_messages: Iterator[Message]) -> Iterator[list[Message]]:
    """Divide messages into batches that the server accepts, by number and size."""
    batch: list[Message] = []
    size = 0
    for message in all_messages:
        if batch and (len(batch) == _BATCH or size + len(message[1]) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message[1])
    if batch:
        yield batch


async def _looked_up(target: Target) -> tuple[Published, int]:
    """Return the newest marker, and its sequence in the stream."""
    from nats.js.errors import NotFoundError

    try:
        message = await target.connection.jetstream.get_msg(target.stream, subject=target.marker)
    except NotFoundError:
        return Published(), 0
    try:
        return msgspec.json.decode(message.data or b"", type=Published), int(message.seq or 0)
    except UNDECODABLE as error:
        raise CorruptError(
            f"the message {message.seq} of the stream {target.stream}, under {target.marker}, is not a marker "
            f"({error}); something else writes to this subject"
        ) from None


async def _stored(target: Target, batch: list[Message], marker: Published, expected: int) -> int:
    """Store a batch and its marker, all or nothing; return the marker's sequence."""
    client = target.connection.client
    headers = {"Nats-Expected-Last-Subject-Sequence": str(expected)}
    if batch:
        name = secrets.token_hex(12)
        for number, (subject, data) in enumerate(batch, 1):
            _check_size(target, subject, data)
            await client.publish(subject, data, headers={"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)})
        faults.point(SENDING)
        headers |= {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(len(batch) + 1), "Nats-Batch-Commit": "1"}
    answer = await client.request(
        target.marker, msgspec.json.encode(marker), headers=headers, timeout=2 * target.connection.timeout
    )
    reply: dict[str, Any] = msgspec.json.decode(answer.data)
    if error := reply.get("error"):
        if error["err_code"] in _WRONG_LAST_SEQUENCE:
            raise Outrun
        kind = ConnectorUnavailable if error["err_code"] in _BATCH_LOST or error["code"] == 503 else ConnectorError
        raise kind(f"the stream {target.stream} at {target.connection.url} refused messages: {error['description']}")
    return int(reply["seq"])


async def _sent(target: Target, life: str, chunk: list[tuple[int, Message]]) -> None:
    from nats.js.errors import APIError, ServiceUnavailableError

    for _, (subject, data) in chunk:
        _check_size(target, subject, data)
    timeout = 2 * target.connection.timeout
    sending = (
        target.connection.jetstream.publish(
            subject, data, headers={"Nats-Msg-Id": f"{life}/{number}"}, stream=target.stream, timeout=timeout
        )
        for number, (subject, data) in chunk
    )
    try:
        await asyncio.gather(*sending)
    except ServiceUnavailableError:
        raise
    except APIError as error:
        raise ConnectorError(
            f"the stream {target.stream} at {target.connection.url} refused messages: {error.description}"
        ) from error


def largest_message(connection: NatsConnection) -> int:
    """Return the maximum number of bytes in a message."""
    return int(connection.client.max_payload) - _HEADROOM


def _check_size(target: Target, subject: str, data: bytes) -> None:
    most = largest_message(target.connection)
    if len(data) > most:
        raise ConnectorError(
            f"a message to {subject} has {len(data)} bytes, and {target.connection.url} takes {most} at most; raise "
            "its "
            "max_payload, or send less"
        )
