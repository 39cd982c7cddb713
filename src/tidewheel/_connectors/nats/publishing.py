"""How a commit's messages get into a stream: in atomic batches with a marker, or one by one with ids.

The marker is the newest message of a subject of its own in the same stream. A batch has it as its last message, which
names the marker before it: the server stores the batch only if that one is still the newest. So the marker changes hands
once per batch, whoever sends it and whenever it arrives.
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
"""A message of the batch got lost, or it took the server too long: nothing is stored."""


class Published(msgspec.Struct, frozen=True):
    """What a marker says: what is published whole, and how much of the commit behind it."""

    whole: Marker = Marker()
    sequence: int = 0
    digest: int = 0
    messages: int = 0

    def sent(self, publication: Publication) -> int:
        """Return how many messages of a publication are there, of one that is not there whole."""
        same = (self.sequence, self.digest) == (publication.sequence, digest(publication))
        return self.messages if same else 0


class Target(msgspec.Struct):
    """Where messages go."""

    connection: NatsConnection
    stream: str
    marker: str
    over: str | None = None
    """The subject that says which runs of a fleet are over; None if the job is not run by one."""
    newest: tuple[Published, int] | None = None
    """What the newest marker says, and its sequence in the stream, as far as is known: if it is not the newest any more, the
    server refuses what is sent behind it.
    """


def found_target(connection: NatsConnection, form: Form, stream: str | None, marker: str, atomic: bool) -> Target:
    """Return the stream that takes the messages and their marker, or say what it lacks."""
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
            f"the stream {name} at {connection.url} does not allow atomic batches, which exactly once needs: change "
            "it (nats "
            f"stream edit {name} --allow-batch; servers from 2.12 on can), or take atomic=False and what it promises"
        )
    return Target(connection, name, marker)


def takes(pattern: str, subject: str) -> bool:
    """Tell whether a stream's subject takes all that another one may be.

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
    """Store what is not there yet, a batch at a time; `Outrun` if the marker changed meanwhile."""
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
    """Note under the subject `over` which runs are over, then remove their markers; `Outrun` if somebody else noted it."""
    noting = msgspec.structs.replace(target, marker=over)
    held, at = target.connection.call(_looked_up(noting))
    if held.whole.sequence < max(runs):
        target.connection.call(_stored(noting, [], Published(over_marker(runs)), at))
    for marker in markers:
        target.connection.call(target.connection.jetstream.purge_stream(target.stream, subject=marker))


def _known(target: Target, publication: Publication) -> tuple[Published, int]:
    """Return what the newest marker says, and its sequence in the stream. A run that is over has none, and is refused."""
    held, at = target.connection.call(_looked_up(target))
    if not at and target.over is not None:
        noted, _ = target.connection.call(_looked_up(msgspec.structs.replace(target, marker=target.over)))
        refuse_over(publication, noted.whole.sequence)
    return held, at


def batches(all_messages: Iterator[Message]) -> Iterator[list[Message]]:
    """Cut messages into batches that the server takes at once, by number and size."""
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
    """Return what the newest marker says, and its sequence in the stream."""
    from nats.js.errors import NotFoundError

    try:
        message = await target.connection.jetstream.get_msg(target.stream, subject=target.marker)
    except NotFoundError:
        return Published(), 0
    try:
        return msgspec.json.decode(message.data or b"", type=Published), int(message.seq or 0)
    except UNDECODABLE as error:
        raise CorruptError(
            f"the message {message.seq} of the stream {target.stream}, under {target.marker}, is no marker "
            f"({error}); something "
            "else writes to this subject"
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
    """Return how many bytes of data the server takes in a message."""
    return int(connection.client.max_payload) - _HEADROOM


def _check_size(target: Target, subject: str, data: bytes) -> None:
    most = largest_message(target.connection)
    if len(data) > most:
        raise ConnectorError(
            f"a message to {subject} has {len(data)} bytes, and {target.connection.url} takes {most} at most; raise "
            "its "
            "max_payload, or send less"
        )
