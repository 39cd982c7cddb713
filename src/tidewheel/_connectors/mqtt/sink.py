"""mqtt: a message for every record, at a broker."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from tidewheel._codecs.base import PayloadCodec, payload_codec
from tidewheel._codecs.json import json
from tidewheel._connectors.messages import Form, MessagePartition, messages
from tidewheel._connectors.mqtt.client import MqttConnection, mqtt_broker
from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._core.retry import patiently
from tidewheel._core.urls import Url
from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConnectorUnavailable

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessageInfo

_IN_FLIGHT = 1000
_LARGEST = 268_000_000
"""The maximum size of a payload: the limit of the protocol, less room for the topic."""


def mqtt(
    url: str,
    topic: str,
    *,
    codec: PayloadCodec | None = None,
    retain: bool = False,
    timeout: Duration = "10 s",
    patience: Duration = "30 s",
) -> Mqtt:
    """Send a message with QoS 1 for each record to `topic`, in which `{sensor}` is replaced by the value of that column.

    At least once: a commit is published when the broker has acknowledged all its messages. After a crash before that, all of
    them are sent again in the same order. Readers that need each record once can compare an id in the data.

    - `codec`: encodes the record; JSON by default. `codecs.raw("column")` sends one column unchanged.
    - `retain`: the broker keeps the last message of each topic for later subscribers.
    - `patience`: how long to wait for a broker that does not answer.
    - `url`, `timeout`: as for the source.
    """
    form = Form(topic, json() if codec is None else payload_codec(codec), "+#/\0", longest=60_000, largest=_LARGEST)
    limit, patient = seconds(timeout, "the timeout of the sink mqtt"), seconds(patience, "patience of the sink mqtt")
    return Mqtt(url, form, retain, limit, patient)


class Mqtt(Sink):
    """At least once: the broker acknowledges all committed messages, some of which may be repeated."""

    guarantee = "at least once"

    def __init__(self, url: str, form: Form, retain: bool, timeout: float, patience: float) -> None:
        mqtt_broker(url)
        self._url, self.form, self.retain = Url(url), form.checked("topic"), retain
        self._timeout, self._patience = timeout, patience

    def describe(self) -> str:
        return f"messages to {self.form.address} at {self._url}"

    def place(self) -> str:
        return f"MQTT messages to {self.form.address}"

    def start(self, job: str) -> None:
        self._connected().close()
        self.form.codec.prepare()

    def open(self, staging: Staging) -> SinkPartition:
        return MessagePartition(self.form, staging)

    def publish(self, publication: Publication) -> None:
        if publication.tokens:
            patiently(self._patience, lambda deadline: self._send(publication, deadline))

    def _send(self, publication: Publication, deadline: float) -> None:
        with self._connected() as connection:
            waiting = []
            for topic, data in messages(publication, self.form):
                waiting.append(connection.client.publish(topic, data, qos=1, retain=self.retain))
                if len(waiting) >= _IN_FLIGHT:
                    self._await(connection, waiting, deadline)
                    waiting = []
            self._await(connection, waiting, deadline)

    def _await(self, connection: MqttConnection, waiting: list[MQTTMessageInfo], deadline: float) -> None:
        for sent in waiting:
            try:
                sent.wait_for_publish(max(deadline - time.monotonic(), self._timeout))
                there = sent.is_published()
            except (RuntimeError, ValueError):
                there = False
            if not there:
                raise ConnectorUnavailable(f"{connection.url} does not acknowledge messages; they are sent again")

    def _connected(self) -> MqttConnection:
        return MqttConnection(self._url, f"tidewheel-{secrets.token_hex(6)}", timeout=self._timeout)

    def __repr__(self) -> str:
        return f"mqtt({str(self._url)!r}, {self.form.address!r})"
