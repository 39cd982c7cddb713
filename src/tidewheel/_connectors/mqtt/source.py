"""mqtt: what an MQTT broker sends, by way of a log on the disk."""

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

    A broker forgets what was acknowledged, so a bridge runs beside the job: it writes what comes to `buffer`, a folder or a
    URL as `inbox` takes it, and acknowledges a message when it is on the disk. The job reads the buffer: there a message has a
    position, and on replay the same positions give the same messages.

    What it promises: a message of quality 1 or 2 that the broker took is read at least once, as long as the broker keeps the
    session of the `client_id`, which it does while the job is down, and within its own limits. From the buffer on it is
    exactly once. What it cannot promise: a message of quality 0 can get lost on the way to the broker and from it; a message
    whose acknowledgement got lost comes twice (`deduplicate` by an id of your own); a broker that loses its sessions when it
    is restarted loses what they held; before the first start there is no session.

    A batch has about `max_records` at most: it ends between two blocks of messages that arrived together. What was read and
    committed is let go in files of 64 MB, unless `keep`: then a job can be restored to an older checkpoint. A bounded run ends
    when nothing has come for `quiet`. With `bridge=False` another process runs the bridge, a
    `tidewheel.connectors.MqttBridge`, and the job only reads.
    The `client_id` must be used by nobody else. The buffer must be reached by driver and tasks under the same path.

    `url` is `mqtt://user:password@host:1883`. With `mqtts:`, or `?ca=file` for an authority of one's own and
    `?cert=file&key=file` for a client's certificate, the connection is TLS or none is made.
    """
    mqtt_broker(url)
    wanted = (topics,) if isinstance(topics, str) else tuple(topics)
    if not wanted or not all(wanted):
        raise ConfigError("an mqtt source needs the topics that it reads, such as 'sensors/#'")
    if not _CLIENT.fullmatch(client_id):
        raise ConfigError(
            f"{client_id!r} cannot be a client_id: use 1 to 100 letters, digits, - and _ and begin with a letter or digit"
        )
    if max_records is not None and max_records < 1:
        raise ConfigError(f"max_records is the number of records in a batch, at least 1, not {max_records}")
    limit = seconds(timeout, "the timeout of the source mqtt")
    nanoseconds(quiet, "quiet of the source mqtt")
    return MqttSource(Bridging(Url(url), wanted, Url(buffer), client_id, limit), max_records, bridge, keep, quiet)


class MqttSource(Source):
    """The buffer of a bridge, read by positions."""

    kind = "mqtt"

    def __init__(self, bridging: Bridging, max_records: int | None, bridge: bool, keep: bool, quiet: Duration) -> None:
        self.bridging, self.max_records, self.bridge, self.keep, self.quiet = bridging, max_records, bridge, keep, quiet

    def describe(self) -> str:
        return f"topics {', '.join(self.bridging.topics)} at {self.bridging.url}"

    def unread(self, position: Position) -> Mapping[str, Unread]:
        """Return what the buffer holds. What the broker holds for the client no MQTT client can ask."""
        from tidewheel._connectors.inbox.source import unread_events

        (unread,) = unread_events(self.bridging.buffer, position).values()
        return {"buffer": unread}

    def open(self) -> MqttReader:
        return self.reader()

    def reader(self) -> MqttReader:
        """Return the reader; nothing is contacted yet."""
        from tidewheel._connectors.mqtt.stream import MqttReader

        return MqttReader(self.bridging, self.max_records, self.bridge, self.keep, self.quiet)

    def fields(self) -> dict[str, pa.DataType | None] | None:
        return {field.name: field.type for field in SCHEMA}
