"""What Spark runs for `mqtt`: a Python data source over the buffer of a bridge, which lives as long as the query."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidewheel._connectors.inbox import Inbox, Stored
from tidewheel._connectors.inbox.offsets import Offsets, positions_of
from tidewheel._connectors.inbox.stream import InboxReader, InboxSettings
from tidewheel._connectors.mqtt.bridge import Bridging, MqttBridge, arrived, opened_buffer
from tidewheel._connectors.mqtt.source import SCHEMA
from tidewheel._connectors.stream_reader import ReadLimit
from tidewheel._time.duration import Duration


class MqttReader(InboxReader):
    """Reads the buffer; its planner, which lives as long as the query, has the bridge beside it."""

    def __init__(self, bridging: Bridging, max_records: int | None, bridge: bool, keep: bool, quiet: Duration) -> None:
        super().__init__(InboxSettings(bridging.buffer, None, {}, max_records, 1, "raw"), SCHEMA)
        self._bridging, self._wanted, self._keep, self._quiet = bridging, bridge, keep, quiet
        self._bridge: MqttBridge | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        self._inbox()
        if self._bridge is not None:
            # What the broker has kept comes first.
            self._bridge.wait_quiet(self._quiet)
        super().prepareForTriggerAvailableNow()

    def batch_end(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return where the batch that begins at `start` ends; a bridge that failed ends the job."""
        self._inbox()
        if self._bridge is not None:
            self._bridge.check()
        return super().batch_end(start, limit)

    def commit(self, end: Offsets) -> None:
        if not self._keep:
            self._inbox().trim(positions_of(end))

    def stop(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
        if self._opened is not None:
            self._opened.close()
        self._bridge = self._opened = None

    def _inbox(self) -> Inbox:
        if self._opened is None:
            self._opened = opened_buffer(self._bridging.buffer)
            if self._wanted:
                self._bridge = MqttBridge(self._bridging)
        return self._opened

    def _raw(self, inbox: Inbox, stored: Stored) -> pa.RecordBatch:
        messages = arrived(stored)
        columns = [
            pa.array(messages.topics, pa.string()),
            pa.array(messages.data, pa.binary()),
            pa.array(messages.times, pa.int64()).cast(SCHEMA.field("time").type),
            pa.array(messages.retained, pa.bool_()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def __getstate__(self) -> dict[str, Any]:
        # The bridge stays where it runs.
        return {**super().__getstate__(), "_bridge": None}
