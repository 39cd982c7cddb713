"""Write the mean temperature of each sensor and minute to a Delta table: MQTT, duplicates, windows, Delta Lake.

    export MQTT=mqtt://localhost:1883
    tidewheel run examples/sensors_delta.py
    python examples/sensors_delta.py

Start the job first: a broker keeps messages only for sessions that it knows. The third line, in another terminal, sends
what three sensors measured in five minutes. The job writes a minute when the measurements of ten later minutes are in.
"""

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidewheel import Job, agg, codecs, sinks, sources, tumbling

MQTT = os.environ.get("MQTT", "mqtt://localhost:1883")
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Measured:
    """The data of one message; a message that the sensor repeats has the same id."""

    id: int
    sensor: str
    at: datetime
    celsius: float


# The broker may send a message twice. The buffer keeps messages between their acknowledgement and their commit.
source = sources.mqtt(MQTT, "sensors/#", buffer="file:mqtt-buffer", client_id="sensors-delta", quiet="2 s")
job = Job("sensors-delta")
measured = job.source("sensors", source).decode("decode", codecs.json(Measured), column="data")
# A sensor that was out of reach sends its measurements later.
on_time = measured.event_time("at", max_delay="10 minutes")
(
    on_time.key_by("by-sensor", "sensor")
    .deduplicate("once", "10 minutes", by=lambda measured: measured.id)
    .window("minutes", tumbling("1 minute"), mean=agg.mean("celsius"), measured=agg.count())
    .sink("out", sinks.delta("out/minutes"))
)
on_time.late.sink("late", sinks.files("out/late-measurements", format="json"))
measured.broken.sink("broken", sinks.files("out/broken-measurements", format="json"))


def messages() -> Iterator[tuple[str, str]]:
    """Give the topics and payloads of what three sensors measure in five minutes."""
    draw = random.Random(7)
    for second in range(300):
        sensor, at = f"sensor-{second % 3}", (MIDNIGHT + timedelta(seconds=second)).isoformat()
        payload = {"id": second, "sensor": sensor, "at": at, "celsius": round(20 + draw.random(), 2)}
        yield f"sensors/{sensor}", json.dumps(payload)


def send() -> None:
    """Send the messages to the broker."""
    from urllib.parse import urlsplit

    import paho.mqtt.publish

    broker = urlsplit(MQTT)
    login = {"username": broker.username, "password": broker.password} if broker.username else None
    batch = [{"topic": topic, "payload": payload, "qos": 1} for topic, payload in messages()]
    paho.mqtt.publish.multiple(batch, broker.hostname or "localhost", broker.port or 1883, auth=login)


if __name__ == "__main__":
    send()
