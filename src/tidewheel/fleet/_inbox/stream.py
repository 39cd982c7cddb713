"""The reader of an inbox: its position is a number by shard, and the identity of the inbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._connectors.source import SourceReader, smaller
from tidewheel._connectors.split import Place, Split, fitted
from tidewheel._core.keys import from_stored, to_stored
from tidewheel._core.urls import Url
from tidewheel.errors import ConfigError, CorruptError
from tidewheel.fleet._inbox import Inbox, Stored, decode_events, limited, open_inbox
from tidewheel.fleet._inbox.dead_letters import DeadEvent, store
from tidewheel.fleet._inbox.errors import InboxError, UnreadableEvent
from tidewheel.fleet._inbox.events import Events
from tidewheel.fleet._inbox.offsets import check_identity, identity_of, offsets_of, positions_of
from tidewheel.fleet._inbox.payloads import Payload, read_payloads

_UNKNOWN_SIZE = 1 << 20
"""The assumed size of a split in bytes; the events are not counted."""


class InboxSettings(msgspec.Struct, frozen=True):
    """How to read an inbox."""

    url: Url
    shards: list[int] | None
    start: dict[int, int]
    max_events: int | None
    partitions: int
    payload: Payload
    dead_letters: Url | None = None
    """The URL of an inbox for events that cannot be read; with None, such an event stops the job."""


class InboxReader(SourceReader):
    """Reads by position: the same range gives the same events."""

    def __init__(self, settings: InboxSettings, schema: pa.Schema) -> None:
        """Take the settings. The driver opens the inbox on first use, and each task opens its own connection."""
        self.settings, self.schema = settings, schema
        self._declared = schema
        self._opened: Inbox | None = None
        self._last: dict[int, int] | None = None

    def start(self) -> Position:
        """Return the configured start, or the oldest event."""
        inbox = self._inbox()
        shards = range(inbox.n_shards) if self.settings.shards is None else self.settings.shards
        if unknown := [shard for shard in shards if not 0 <= shard < inbox.n_shards]:
            raise ConfigError(f"{inbox.url} has {inbox.n_shards} shards; it cannot be read for shard {unknown[0]}")
        oldest = inbox.start()
        return {**offsets_of(inbox, {shard: self.settings.start.get(shard, oldest[shard]) for shard in shards})}

    def freeze(self) -> None:
        inbox = self._inbox()
        self._last = inbox.end(range(inbox.n_shards))

    def check(self, position: Position, last: SeenFile | None) -> None:
        self.end(position)

    def end(self, start: Position) -> Position:
        inbox = self._inbox()
        check_identity(identity_of(start), inbox)
        begin = positions_of(start)
        end = inbox.end(list(begin))
        for shard, position in end.items():
            if position < begin[shard]:
                raise InboxError(
                    f"{inbox.url} ends at position {position} for shard {shard}, and this job has read up to "
                    f"{begin[shard]}: "
                    "it is not the inbox that was read, or a part of it was lost. Restore it, or begin a job under "
                    "another name"
                )
        if self._last is not None:
            end = {shard: max(begin[shard], min(end[shard], self._last[shard])) for shard in end}
        most = smaller(self.settings.max_events, self.limit)
        if most is not None:
            end = limited(inbox, begin, end, most)
        return {**offsets_of(inbox, end)}

    def amount(self, start: Position, end: Position) -> int:
        return sum(count for _, _, count in self._inbox().sizes(positions_of(start), positions_of(end)))

    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        """Distribute the shards with new events among the tasks."""
        first, last = positions_of(start), positions_of(end)
        moved = [shard for shard in last if first[shard] < last[shard]]
        slices = [moved[number :: self.settings.partitions] for number in range(self.settings.partitions)]
        return [
            self.split(identity_of(end), tuple((shard, first[shard], last[shard]) for shard in part))
            for part in slices
            if part
        ]

    def split(self, identity: int, ranges: tuple[tuple[int, int, int], ...]) -> Split:
        """Return the split of some ranges: shard, first and last position."""
        return InboxSplit(self.settings, self._declared, self.schema, identity, ranges)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _inbox(self) -> Inbox:
        if self._opened is None:
            self._opened = open_inbox(self.settings.url)
        return self._opened


@dataclass(frozen=True)
class InboxSplit(Split):
    """Ranges of some shards, which a task reads."""

    settings: InboxSettings
    schema: pa.Schema
    columns: pa.Schema
    """The columns that the job reads."""
    identity: int
    ranges: tuple[tuple[int, int, int], ...]
    size: int = _UNKNOWN_SIZE

    def read(self) -> Iterator[pa.RecordBatch]:
        return (columns for columns, _ in self.located())

    def located(self) -> Iterator[tuple[pa.RecordBatch, list[Place]]]:
        begin = {shard: first for shard, first, _ in self.ranges}
        end = {shard: last for shard, _, last in self.ranges}
        with open_inbox(self.settings.url) as inbox:
            # The inbox may have been created again since the batch was planned.
            check_identity(self.identity, inbox)
            for stored in inbox.read(begin, end):
                batch = self._raw(inbox, stored) if self.settings.payload == "raw" else self._columns(inbox, stored)
                place = {"shard": stored.block.shard, "position": stored.position}
                yield fitted(batch, self.columns), [place] * batch.num_rows

    def _raw(self, inbox: Inbox, stored: Stored) -> pa.RecordBatch:
        events, block = self._decoded(inbox, stored), stored.block
        count = len(events.keys)
        columns = {
            "key": [_text(from_stored(key)) for key in events.keys],
            "value": [payload.decode(errors="replace") for payload in events.payloads],
            "shard": [block.shard] * count,
            "position": [stored.position] * count,
            "producer": [stored.producer] * count,
            "number": events.numbers,
        }
        return pa.RecordBatch.from_pydict(columns, schema=self.schema)

    def _columns(self, inbox: Inbox, stored: Stored) -> pa.RecordBatch:
        events = self._decoded(inbox, stored)
        rows, bad = read_payloads(events.payloads, self.schema, self.settings.payload)
        if bad:
            columns = f"cannot be read as {', '.join(self.schema.names)}"
            self._set_aside(
                inbox,
                stored,
                [
                    DeadEvent(
                        place, events.numbers[place], events.keys[place], events.payloads[place], f"{columns}: {error}"
                    )
                    for place, error in bad
                ],
            )
        return rows

    def _decoded(self, inbox: Inbox, stored: Stored) -> Events:
        """Return the events of a block. An invalid block is treated as one bad event."""
        try:
            return decode_events(stored)
        except CorruptError as error:
            data = bytes(stored.block.data)
            self._set_aside(
                inbox, stored, [DeadEvent(0, stored.block.first, to_stored(""), data, f"is not one: {error}")]
            )
            return Events([], [], [])

    def _set_aside(self, inbox: Inbox, stored: Stored, bad: list[DeadEvent]) -> None:
        """Send events that cannot be read to the dead letters, or refuse the batch; skip those marked to be skipped."""
        skipped = inbox.skipped()
        shard, position = stored.block.shard, stored.position
        left = [each for each in bad if (shard, position, each.number) not in skipped]
        if left and self.settings.dead_letters is not None:
            store(self.settings.dead_letters, inbox.n_shards, stored, left)
        elif left:
            first = left[0]
            raise UnreadableEvent(
                f"event {first.number} of producer {stored.producer!r} for shard {shard}, at position {position} of "
                f"{self.settings.url}, {first.error}. It is "
                f"{first.payload[:200].decode(errors='replace')!r}. To skip it, run `tidewheel fleet skip "
                f"--inbox {self.settings.url} {shard} {position} {first.number}`, or give the source dead_letters="
            )


def _text(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(key).decode()
