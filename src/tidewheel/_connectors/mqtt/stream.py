"""The reader of an MQTT source: it reads the buffer of a bridge, which runs as long as the reader is open."""

from __future__ import annotations

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._connectors.mqtt.bridge import Bridging, MqttBridge, arrived, opened_buffer
from tidewheel._connectors.mqtt.source import SCHEMA
from tidewheel._connectors.split import Split
from tidewheel._time.duration import Duration
from tidewheel.fleet._inbox import Inbox, Stored
from tidewheel.fleet._inbox.offsets import positions_of
from tidewheel.fleet._inbox.stream import InboxReader, InboxSettings, InboxSplit


class MqttReader(InboxReader):
    """Reads the buffer, and runs the bridge that fills it."""

    def __init__(self, bridging: Bridging, max_records: int | None, bridge: bool, keep: bool, quiet: Duration) -> None:
        super().__init__(InboxSettings(bridging.buffer, None, {}, max_records, 1, "raw"), SCHEMA)
        self._bridging, self._wanted, self._keep, self._quiet = bridging, bridge, keep, quiet
        self._bridge: MqttBridge | None = None

    def receive_nothing(self) -> None:
        """Run no bridge: it would take the session at the broker from the job's own."""
        self._wanted = False

    def check(self, position: Position, last: SeenFile | None) -> None:
        """Check nothing: with the bridge, the buffer takes the session at the broker from a run that has not ended yet."""

    def freeze(self) -> None:
        self._inbox()
        if self._bridge is not None:
            # The broker sends the messages that it has kept first.
            self._bridge.wait_quiet(self._quiet)
        super().freeze()

    def end(self, start: Position) -> Position:
        """Return the end of the batch; raise if the bridge has failed."""
        self._inbox()
        if self._bridge is not None:
            self._bridge.check()
        return super().end(start)

    def committed(self, position: Position) -> None:
        if not self._keep:
            self._inbox().trim(positions_of(position))

    def close(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
        self._bridge = None
        super().close()

    def split(self, identity: int, ranges: tuple[tuple[int, int, int], ...]) -> Split:
        return MqttSplit(self.settings, SCHEMA, self.schema, identity, ranges)

    def _inbox(self) -> Inbox:
        if self._opened is None:
            self._opened = opened_buffer(self._bridging.buffer)
            if self._wanted:
                self._bridge = MqttBridge(self._bridging)
        return self._opened


class MqttSplit(InboxSplit):
    """A range of the buffer."""

    def _raw(self, inbox: Inbox, stored: Stored) -> pa.RecordBatch:
        messages = arrived(stored)
        columns = [
            pa.array(messages.topics, pa.string()),
            pa.array(messages.data, pa.binary()),
            pa.array(messages.times, pa.int64()).cast(SCHEMA.field("time").type),
            pa.array(messages.retained, pa.bool_()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
