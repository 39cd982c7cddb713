"""mqtt: the messages of an MQTT broker, through a buffer on disk."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.mqtt.bridge import Bridging
from tidewheel._connectors.mqtt.client import mqtt_broker
from tidewheel._connectors.source import Source, Unread
from tidewheel._core.urls import Url
from tidewheel._storage import absolute
from tidewheel._time.duration import Duration, nanoseconds, seconds
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._connectors.mqtt.stream import MqttReader

SCHEMA = pa.schema(
    [("topic", pa.string()), ("data", pa.binary()), ("time", pa.timestamp("us", "UTC")), ("retained", pa.bool_())]
)

_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def mqtt(
    url: str,
    topics: str | Sequence[str],
    *,
    buffer: str,
    client_id: str,
    max_records: int | None = None,
    bridge: bool = True,
    keep: bool = False,
    quiet: Duration = "1 s",
    timeout: Duration = "10 s",
) -> MqttSource:
    """Read topics of an MQTT broker, which may have wildcards.

    The columns are `topic`, `data`, `time` (of arrival) and `retained`.

    A broker deletes acknowledged messages. So a bridge runs in the driver while the job runs: it writes messages to `buffer`,
    and acknowledges a message when it is on disk. The job reads the buffer by position, so a batch that runs again has the
    same messages.

    Guaranteed: a message with QoS 1 or 2 is read at least once from the broker, as long as the broker keeps the session of the
    `client_id`, and exactly once from the buffer. Not guaranteed: messages with QoS 0 can get lost. A message comes twice if
    its acknowledgement got lost (use `deduplicate` with an id). A broker that loses its sessions in a restart loses their
    messages. Messages from before the first start are not read.

    - `buffer`: a folder, or a URL as for `inbox`, that driver and tasks reach under the same path.
    - `client_id`: no other client may use it.
    - `max_records`: the approximate size of a batch, which ends between blocks of messages that arrived together.
    - `keep`: keep messages after their commit, so that the job can be restored to an older checkpoint. Otherwise they are
      deleted in files of 64 MB.
    - `quiet`: a bounded run ends when no message has come for this long.
    - `bridge`: with False, another process runs the bridge, a `tidewheel.connectors.MqttBridge`, and the job only reads.
    - `url`: `mqtt://user:password@host:1883`. With `mqtts:`, with `?ca=file` for your own certificate authority, or with
      `?cert=file&key=file` for a client certificate, the client uses TLS or does not connect.
    """
    mqtt_broker(url)
    wanted = (topics,) if isinstance(topics, str) else tuple(topics)
    if not wanted or not all(wanted):
        raise ConfigError("an mqtt source needs the topics that it reads, such as 'sensors/#'")
    if not _CLIENT.fullmatch(client_id):
        raise ConfigError(
            f"{client_id!r} cannot be a client_id: use 1 to 100 letters, digits, - and _ and begin with a letter or "
            "digit"
        )
    if max_records is not None and max_records < 1:
        raise ConfigError(f"max_records, the number of records in a batch, must be at least 1, not {max_records}")
    limit = seconds(timeout, "the timeout of the source mqtt")
    nanoseconds(quiet, "quiet of the source mqtt")
    return MqttSource(
        Bridging(Url(url), wanted, Url(absolute(buffer)), client_id, limit), max_records, bridge, keep, quiet
    )


class MqttSource(Source):
    """The buffer of a bridge, read by positions."""

    kind = "mqtt"

    def __init__(self, bridging: Bridging, max_records: int | None, bridge: bool, keep: bool, quiet: Duration) -> None:
        self.bridging, self.max_records, self.bridge, self.keep, self.quiet = bridging, max_records, bridge, keep, quiet

    def describe(self) -> str:
        return f"topics {', '.join(self.bridging.topics)} at {self.bridging.url}"

    def unread(self, position: Position) -> Mapping[str, Unread]:
        """Return the backlog in the buffer. MQTT has no request for the backlog at the broker."""
        from tidewheel.fleet._inbox.source import unread_events

        (unread,) = unread_events(self.bridging.buffer, position).values()
        return {"buffer": unread}

    def open(self) -> MqttReader:
        return self.reader()

    def reader(self) -> MqttReader:
        """Return the reader, without connecting."""
        from tidewheel._connectors.mqtt.stream import MqttReader

        return MqttReader(self.bridging, self.max_records, self.bridge, self.keep, self.quiet)

    def fields(self) -> dict[str, pa.DataType | None] | None:
        return {field.name: field.type for field in SCHEMA}
