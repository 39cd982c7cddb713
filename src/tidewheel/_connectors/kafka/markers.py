"""The marker topic, and the recovery of transactions that the brokers never ended in the logs of partitions.

Brokers may forget to end a transaction, or end it in only some of its partitions. The coordinator logs the decision
first, and the partitions afterwards. If a coordinator restarts before the leaders of those partitions are back, it
treats the partitions as deleted and the transaction as finished (seen with Apache Kafka 4.3). Readers of committed
records then wait there forever. The next transaction of the same producer in such a partition ends both: if it commits,
readers also see the forgotten records; if it aborts, they are dropped.

So a sink checks before it sends, at its start and after every outage of the brokers:

1. A marker names the ranges of the target that hold its records. All of them are in the log before the marker.
2. Transactions without an end are dropped: the sink opens a transaction in the same partitions and aborts it. Before
   that, it notes the marker that may be dropped too in the topic, outside of any transaction.
3. Then no transaction is open, and the last marker or note shows which of its records readers see. If none, all are
   sent again. If some, the dropped records are still in the log, and are sent again from there under the same marker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import msgspec

from tidewheel._connectors.kafka.client import Connection, LastError, Patience
from tidewheel._connectors.kafka.log import KafkaLog, Start, Topics, split
from tidewheel._connectors.marker import Marker
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import ConnectorError, CorruptError

_TAIL = 1_000
_LOOK_AGAIN = 0.05
_LOOK_SOON = 0.001
"""When to check for the end of a transaction that was just committed, in seconds: brokers write it a moment later."""
_GRACE = 1.0
"""After how many seconds a missing end counts as forgotten."""

Range = tuple[int, int]
"""The first offset, and the one after the last."""


@dataclass(frozen=True)
class Target:
    """The target topic, and the topic of the markers; None for at least once."""

    connection: Connection
    topic: str
    markers: str | None


class Sent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A marker in the topic, with the range of offsets of its records in each partition."""

    published: dict[int, int] = {}
    where: dict[int, Range] | None = None
    seen: bool = False
    """In a note: readers saw the marker, so its records must be seen too."""

    def encoded(self) -> bytes:
        """Return the marker as JSON, which people can read."""
        return msgspec.json.encode(self)


@dataclass(frozen=True)
class Last:
    """The last record of a sink in the marker topic."""

    sent: Sent
    is_note: bool
    is_seen: bool


@dataclass(frozen=True)
class Open:
    """Transactions without an end after `init_transactions`. Those of the sink itself will never get one."""

    last: Last | None
    marker: bool
    """Whether the transaction of the sink's marker has no end."""
    partitions: frozenset[int]
    """The partitions of the target with a transaction without an end, perhaps of another producer."""

    @property
    def concerns_last(self) -> bool:
        """Whether the last marker has to be noted before anything is dropped."""
        if self.last is None or self.last.is_note:
            return False
        return self.marker or bool(self.partitions & (self.last.sent.where or {}).keys())


def to_send_again(last: Last | None, seen: Mapping[int, bool]) -> list[int] | None:
    """Return the partitions whose records are to be sent again from the log; None: the last marker needs nothing.

    `seen` says of each partition with records of the last marker whether readers see them. Nothing is open.
    """
    if last is None or (last.is_seen and not last.is_note):
        return None
    if not last.sent.seen and not any(seen.values()):
        return None  # Readers see nothing of it: the next attempt sends everything.
    return sorted(partition for partition, each in seen.items() if not each)


class MarkerTopic:
    """One sink's view of its marker topic and its target. Not for several threads."""

    def __init__(self, target: Target, name: str) -> None:
        """Take the target, and the sink's name in the topic; nothing is contacted yet."""
        assert target.markers is not None
        self._target, self._partition = target, f"{target.markers}/0"
        self.key, self.note_key, self.drop_key = keys_of(name)
        topics = (target.topic, target.markers)
        self._committed, self._all = _log(target, topics, "read_committed"), _log(target, topics, "read_uncommitted")

    def close(self) -> None:
        """Close the connections."""
        self._committed.close()
        self._all.close()

    def ends(self) -> dict[int, int]:
        """Return the ends of the target's partitions, after all undecided records."""
        return self._of_target(self._all.listed_ends())

    def is_decided(self, offset: int, where: Mapping[int, Range]) -> tuple[bool, bool]:
        """Return whether readers are past an offset of the marker topic, and past ranges of the target; wait a moment for it."""
        deadline, wait = time.monotonic() + _GRACE, _LOOK_SOON
        while True:
            ends = self._committed.listed_ends()
            of_target = self._of_target(ends)
            found = ends[self._partition] > offset, all(of_target[number] >= end for number, (_, end) in where.items())
            if all(found) or time.monotonic() > deadline:
                return found
            time.sleep(wait)
            wait = min(2 * wait, _LOOK_AGAIN)

    def open(self) -> Open:
        """Return the transactions without an end. Wait for those of others in the marker topic, and briefly in the target."""
        marker, ends = self._is_marker_open(), self.ends()
        deadline = time.monotonic() + _GRACE
        while True:
            committed = self._of_target(self._committed.listed_ends())
            partitions = frozenset(number for number, end in ends.items() if committed[number] < end)
            if not partitions or time.monotonic() > deadline:
                return Open(self.last(), marker, partitions)
            time.sleep(_LOOK_AGAIN)

    def last(self) -> Last | None:
        """Return the last marker or note of the sink, committed or not."""
        found = _newest(self._all, self._partition, self._all.listed_ends()[self._partition], self.key, self.note_key)
        if found is None or not found[1]:
            return None  # No marker was written, or a sink has deleted it.
        key, value, offset = found
        end = self._committed.listed_ends()[self._partition]
        seen = _newest(self._committed, self._partition, end, self.key)
        return Last(_decoded(value), key == self.note_key, seen is not None and seen[2] == offset)

    def seen(self, where: Mapping[int, Range]) -> dict[int, bool]:
        """Return for each range with records whether readers see them. Wait for transactions of others."""
        patience = _patience_with_others(self._target, self._target.topic)
        while True:
            committed = self._of_target(self._committed.listed_ends())
            if all(committed[number] >= end for number, (_, end) in where.items()):
                break
            patience.check()
            time.sleep(_LOOK_AGAIN)
        found = {}
        for number, (first, end) in where.items():
            there, hidden = (
                sum(1 for _ in each) for each in (self._there(number, first, end), self.dropped(number, first, end))
            )
            # A range may hold nothing but the end of the transaction before.
            if there:
                found[number] = not hidden
        return found

    def dropped(self, partition: int, first: int, end: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield keys and values of the records of a range that readers do not see, in order."""
        name = f"{self._target.topic}/{partition}"
        seen = {
            offset for batch in self._committed.read(name, first, end) for offset in batch.column("offset").to_pylist()
        }
        for offset, key, value in self._there(partition, first, end):
            if offset not in seen:
                yield key, value

    def newest(self) -> Marker:
        """Return the newest marker that readers see."""
        return newest_marker(self._target, self.key.decode())

    def _there(self, partition: int, first: int, end: int) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        yield from _records(self._all, f"{self._target.topic}/{partition}", first, end)

    def _of_target(self, offsets: Mapping[str, int]) -> dict[int, int]:
        places = {split(name): offset for name, offset in offsets.items()}
        return {number: offset for (topic, number), offset in places.items() if topic == self._target.topic}

    def _is_marker_open(self) -> bool:
        """Return whether the transaction of the sink's own marker has no end. Wait for transactions of others."""
        patience = _patience_with_others(self._target, self._target.markers)
        since = time.monotonic()
        newest = self._all.listed_ends()[self._partition]
        while (end := self._committed.listed_ends()[self._partition]) < newest:
            first = next(_records(self._all, self._partition, end, newest), None)
            if first is None:  # The end was written meanwhile, and nothing else.
                return False
            if first[1] not in (self.key, self.drop_key):
                patience.check()
            elif time.monotonic() > since + _GRACE:
                return True
            time.sleep(_LOOK_AGAIN)
        return False


def keys_of(name: str) -> tuple[bytes, bytes, bytes]:
    """Return the keys under which a sink writes to the marker topic: of markers, of notes, and of dropped messages."""
    return name.encode(), f"{name} noted".encode(), f"{name} dropped".encode()


def unknown_ranges(target: Target, name: str) -> ConnectorError:
    """Return the error of a transaction without an end whose marker does not say where its records are."""
    return ConnectorError(
        f"the brokers {target.connection.brokers} left the last transaction of {name} to {target.topic} without an end, and its "
        f"marker in {target.markers}, of an earlier version of Tidewheel, does not say where its records are. Find out which of "
        "them readers of committed records see, and begin with another sink name or marker topic"
    )


def newest_marker(target: Target, name: str) -> Marker:
    """Return the marker of a job and sink that readers see. Wait for transactions of others."""
    assert target.markers is not None
    partition = f"{target.markers}/0"
    with closing(_log(target, (target.markers,), "read_committed")) as log:
        found = _newest(log, partition, _decided_end(target, log, partition), name.encode())
    return Marker() if found is None else Marker.decoded(found[1])


def _newest(log: KafkaLog, partition: str, end: int, *keys: bytes) -> tuple[bytes, bytes | None, int] | None:
    """Return key, value and offset of the newest record with one of the keys, looking backwards in ever larger steps."""
    first, size = log.oldest(partition), _TAIL
    while end > first:
        begin, found = max(first, end - size), None
        for offset, key, value in _records(log, partition, begin, end):
            if key in keys:
                found = key, value, offset
        if found is not None:
            return found
        end, size = begin, size * 10
    return None


def _records(log: KafkaLog, partition: str, first: int, end: int) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    for batch in log.read(partition, first, end):
        yield from zip(*(batch.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True)


def _decided_end(target: Target, log: KafkaLog, partition: str) -> int:
    """Return an end of the marker topic before which all transactions of the time of the call are decided."""
    assert target.markers is not None
    patience = _patience_with_others(target, target.markers)
    with closing(_log(target, (target.markers,), "read_uncommitted")) as undecided:
        newest = undecided.end({})[partition]
    while (end := log.end({})[partition]) < newest:
        patience.check()
        time.sleep(_LOOK_AGAIN)
    return end


def _patience_with_others(target: Target, topic: str | None) -> Patience:
    doing = (
        f"find the newest marker in {topic!r} behind an open transaction of another producer (the brokers end it after its "
        "transaction.timeout.ms)"
    )
    return Patience(target.connection, LastError(), doing)


def _log(target: Target, topics: tuple[str, ...], isolation: str) -> KafkaLog:
    connected = replace(target.connection, options={**target.connection.options, "isolation.level": isolation})
    return KafkaLog(Topics(connected, topics, Start("earliest"), "earliest"))


def _decoded(data: bytes | None) -> Sent:
    try:
        return Sent() if not data else msgspec.json.decode(data, type=Sent)
    except UNDECODABLE as error:
        raise CorruptError(
            f"a record in the place of a sink's marker does not decode ({error}); another program wrote it"
        ) from None
