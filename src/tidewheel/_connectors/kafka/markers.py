"""The marker topic, and what a transaction left behind that the brokers never ended in the logs.

Brokers may forget to end a transaction. Its fate is in the log of their coordinator first, and in the logs of its partitions
afterwards. A coordinator that has just begun again, while the leaders of those partitions are not back yet, takes the
partitions for deleted and counts the transaction as over (seen with Apache Kafka 4.3). Readers of committed records then wait
there for good. The next transaction of the same producer in such a partition ends both: it brings the forgotten
records to light if it is committed, and drops them if it is aborted. So a sink never sends on top of forgotten records.
It finds out what they are, and ends them first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from tidewheel._connectors.kafka.client import Connection, LastError, Patience
from tidewheel._connectors.kafka.log import KafkaLog, Start, Topics, split
from tidewheel._connectors.marker import Marker
from tidewheel.errors import ConnectorError, CorruptError

_TAIL = 1_000
_LOOK_AGAIN = 0.05
_GRACE = 1.0
"""For how many seconds an end may be late before it counts as forgotten."""

Range = tuple[int, int]
"""The first offset, and the one behind the last."""


@dataclass(frozen=True)
class Target:
    """Where messages go, and the topic of the markers; None for at least once."""

    connection: Connection
    topic: str
    markers: str | None


class Sent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A marker as the topic has it: with the range of each partition in which the records are that it stands for."""

    published: dict[int, int] = {}
    where: dict[int, Range] | None = None

    def encoded(self) -> bytes:
        """Return it as JSON: a person may have to read it."""
        return msgspec.json.encode(self)


@dataclass(frozen=True)
class Forgotten:
    """What a sink's last transaction left without an end. Nothing of it is open any more: the coordinator counts it as over."""

    marker: Sent | None = None
    """The marker, if it is among what has no end."""
    partitions: frozenset[int] = frozenset()
    """The partitions of the target in which something has no end."""
    ended: Mapping[int, bool] = field(default_factory=dict)
    """Of the marker's other partitions, whether the records there are seen by readers."""

    @property
    def remedy(self) -> Literal["none", "abort", "commit", "unknown"]:
        """What ends it so that either all is seen, or nothing.

        Without its marker a transaction was never committed. With it, the coordinator may have decided for either:
        where nothing is seen yet, all is dropped, and sent again under the same marker.
        """
        if self.marker is None:
            return "abort" if self.partitions else "none"
        if self.marker.where is None:
            return "unknown"
        if not any(self.ended.values()):
            return "abort"
        return "commit" if not self.partitions and all(self.ended.values()) else "unknown"


class MarkerTopic:
    """One sink's view of its marker topic and its target. Not for several threads."""

    def __init__(self, target: Target, name: str) -> None:
        """Take the target, and the sink's name in the topic; nothing is contacted yet."""
        assert target.markers is not None
        self._target, self._own, self._partition = target, name.encode(), f"{target.markers}/0"
        topics = (target.topic, target.markers)
        self._committed, self._all = _log(target, topics, "read_committed"), _log(target, topics, "read_uncommitted")

    def close(self) -> None:
        """Let go of the connections."""
        self._committed.close()
        self._all.close()

    def ends(self) -> dict[int, int]:
        """Return the ends of the target's partitions, with what is not decided."""
        return self._of_target(self._all.listed_ends())

    def is_decided(self, offset: int) -> bool:
        """Tell whether readers are past an offset of the marker topic; wait a moment for it."""
        deadline = time.monotonic() + _GRACE
        while self._committed.listed_ends()[self._partition] <= offset:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_AGAIN)
        return True

    def forgotten(self) -> Forgotten:
        """Return what has no end, after `init_transactions`: whatever is left then will get none by itself.

        In the target it may be of another producer, whose transaction is open: to end it a second time does no harm.
        """
        marker = self._forgotten_marker()
        where = {} if marker is None else marker.where or {}
        ends = self.ends() if marker is None else {number: end for number, (_, end) in where.items()}
        deadline = time.monotonic() + _GRACE
        while True:
            committed = self._of_target(self._committed.listed_ends())
            undecided = frozenset(partition for partition, end in ends.items() if committed[partition] < end)
            if not undecided or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_AGAIN)
        seen = {partition: self._is_seen(partition, where[partition]) for partition in where.keys() - undecided}
        return Forgotten(marker, undecided, {partition: each for partition, each in seen.items() if each is not None})

    def newest(self) -> Marker:
        """Return the newest marker that readers see."""
        return newest_marker(self._target, self._own.decode())

    def _of_target(self, offsets: Mapping[str, int]) -> dict[int, int]:
        places = {split(name): offset for name, offset in offsets.items()}
        return {number: offset for (topic, number), offset in places.items() if topic == self._target.topic}

    def _forgotten_marker(self) -> Sent | None:
        """Return the sink's own marker that has no end; transactions of others are waited for."""
        patience = _patience_with_others(self._target)
        since = time.monotonic()
        newest = self._all.listed_ends()[self._partition]
        while (end := self._committed.listed_ends()[self._partition]) < newest:
            first = next(
                (
                    (key, value)
                    for batch in self._all.read(self._partition, end, newest)
                    for key, value in zip(
                        batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True
                    )
                ),
                None,
            )
            if first is None:  # The end was written meanwhile, and is all that there is.
                return None
            if first[0] == self._own:
                if time.monotonic() > since + _GRACE:
                    return _decoded(first[1])
            else:
                patience.check()
            time.sleep(_LOOK_AGAIN)
        return None

    def _is_seen(self, partition: int, where: Range) -> bool | None:
        """Tell whether readers see all records of a range, and not a part of them; None if there are none."""
        name = f"{self._target.topic}/{partition}"
        seen, there = (sum(batch.num_rows for batch in log.read(name, *where)) for log in (self._committed, self._all))
        # A range may hold nothing but the end of the transaction before.
        return seen == there if there else None


def half_ended(target: Target, name: str, found: Forgotten) -> ConnectorError:
    """Return the error of a transaction of which the brokers ended one part."""
    parts = ", ".join(f"{target.topic}/{partition}" for partition in sorted(found.partitions)) or "none"
    return ConnectorError(
        f"the brokers {target.connection.brokers} ended the last transaction of {name} in a part of its partitions only, and "
        f"count it as over: it has no end in {target.markers}/0 and in {parts}. Its records are neither all seen nor all "
        "dropped, so nothing is sent on top of them. Find out which are there (read the partitions as committed and as "
        "uncommitted), end the transaction with kafka-transactions.sh, and begin with another sink name or marker topic"
    )


def newest_marker(target: Target, name: str) -> Marker:
    """Return the marker of a job and sink, looking from the end of the marker topic backwards, in ever larger steps."""
    assert target.markers is not None
    partition, wanted, size = f"{target.markers}/0", name.encode(), _TAIL
    with closing(_log(target, (target.markers,), "read_committed")) as log:
        first, last = log.oldest(partition), _decided_end(target, log, partition)
        while last > first:
            begin = max(first, last - size)
            found = None
            for batch in log.read(partition, begin, last):
                for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                    found = value if key == wanted else found
            if found is not None:
                return Marker.decoded(found)
            last, size = begin, size * 10
    return Marker()


def _decided_end(target: Target, log: KafkaLog, partition: str) -> int:
    """Return an end of the marker topic before which everything is decided that was there at the time of the call."""
    assert target.markers is not None
    patience = _patience_with_others(target)
    with closing(_log(target, (target.markers,), "read_uncommitted")) as undecided:
        newest = undecided.end({})[partition]
    while (end := log.end({})[partition]) < newest:
        patience.check()
        time.sleep(_LOOK_AGAIN)
    return end


def _patience_with_others(target: Target) -> Patience:
    doing = (
        f"find the newest marker in {target.markers!r} behind an open transaction of another producer (the brokers end it after "
        "its transaction.timeout.ms)"
    )
    return Patience(target.connection, LastError(), doing)


def _log(target: Target, topics: tuple[str, ...], isolation: str) -> KafkaLog:
    connected = replace(target.connection, options={**target.connection.options, "isolation.level": isolation})
    return KafkaLog(Topics(connected, topics, Start("earliest"), "earliest"))


def _decoded(data: bytes | None) -> Sent:
    try:
        return Sent() if not data else msgspec.json.decode(data, type=Sent)
    except msgspec.DecodeError as error:
        raise CorruptError(
            f"what should be a sink's marker does not decode ({error}); something else wrote it"
        ) from None
