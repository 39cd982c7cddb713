"""A connection to an MQTT broker, by version 3.1.1 of the protocol; its network loop runs in a separate thread."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidewheel._core import tls
from tidewheel._core.closing import Closing
from tidewheel._core.urls import ServerUrl, Url
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable

if TYPE_CHECKING:
    from paho.mqtt.client import Client

_PORT, _SECURE_PORT = 1883, 8883
_REFUSED = {"Bad user name or password", "Not authorized"}


class MqttConnection(Closing):
    """A connection to the broker at a URL, as `mqtt_broker` reads it. `url` is the URL without user and password.

    With `keep`, the broker keeps the session of the `client_id` while no client is connected: its subscriptions and the
    messages that were not acknowledged. Every connect subscribes to `topics` with QoS 1. The network thread calls
    `on_message` with the client and the message; only `client.ack` acknowledges a message. `on_message` may be called
    before the constructor returns: a broker may first send the messages it has kept, and wait for their
    acknowledgements.
    """

    def __init__(
        self,
        url: str | Url,
        client_id: str,
        *,
        keep: bool = False,
        topics: tuple[str, ...] = (),
        on_message: Callable[[Client, Any], None] | None = None,
        timeout: float = 10.0,
    ) -> None:
        server = mqtt_broker(url)
        self.url, self._topics, self._timeout = server.shown, topics, timeout
        self._answered = threading.Event()
        self._refused = ""
        self.client = _client(client_id, keep, manual_ack=on_message is not None)
        if server.user:
            self.client.username_pw_set(server.user, server.password)
        files = {name: server.settings.get(name) for name in tls.SETTINGS}
        secure = server.scheme == "mqtts" or any(files.values())
        if secure:
            self.client.tls_set_context(tls.tls_context(server.shown, **files))
        self.client.reconnect_delay_set(1, 5)
        self.client.on_connect = self._connected
        self.client.on_subscribe = self._subscribed
        if on_message is not None:
            self.client.on_message = lambda client, _data, message: on_message(client, message)
        try:
            (host,) = server.hosts
            self.client.connect(host.name, host.port or (_SECURE_PORT if secure else _PORT))
        except ssl.SSLCertVerificationError as error:
            self._forget()
            raise ConnectorError(
                f"{self.url} shows a certificate that is not trusted ({error.verify_message}); give its authority "
                "with ?ca=file"
            ) from error
        except OSError as error:
            self._forget()
            raise ConnectorUnavailable(f"{self.url} does not answer: {error}") from error
        self.client.loop_start()
        if not self._answered.wait(timeout) or self._refused:
            self.close()
            if not self._refused:
                raise ConnectorUnavailable(f"{self.url} does not answer within {timeout} s")
            if self._refused in _REFUSED:
                raise ConnectorError(f"{self.url} refuses the user or the password; check the URL")
            raise ConnectorError(f"{self.url} refuses the connection: {self._refused}")

    def close(self) -> None:
        """Disconnect, and end the thread."""
        self.client.disconnect()
        self.client.loop_stop()
        self._forget()

    def _forget(self) -> None:
        # The client closes its last sockets when it is garbage-collected; these callbacks would keep it alive.
        self.client.on_connect = self.client.on_subscribe = self.client.on_message = None

    def _connected(self, client: Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._refused = str(reason)
            self._answered.set()
        elif self._topics:
            # Also if the session was kept, because the broker may have lost it.
            client.subscribe([(topic, 1) for topic in self._topics])
        else:
            self._answered.set()

    def _subscribed(self, _client: Client, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        for topic, reason in zip(self._topics, reasons, strict=False):
            if reason.is_failure:
                self._refused = f"it does not let this user read {topic}"
        self._answered.set()


def _client(client_id: str, keep: bool, manual_ack: bool) -> Client:
    try:
        from paho.mqtt.enums import CallbackAPIVersion

        from tidewheel._connectors.mqtt.paho_client import PahoClient
    except ImportError:
        raise ConfigError("mqtt: URLs need the package paho-mqtt; run pip install 'tidewheel[mqtt]'") from None
    client = PahoClient(CallbackAPIVersion.VERSION2, client_id, clean_session=not keep, manual_ack=manual_ack)
    client.max_inflight_messages_set(1000)
    return client


def mqtt_broker(url: str | Url) -> ServerUrl:
    """Parse the URL of a broker, `mqtt://user:password@host:1883`; raise a `ConfigError` if it is invalid.

    With `mqtts:`, `?ca=file` or `?cert=file&key=file`, the client uses TLS or does not connect.
    """
    server = Url(url).server(("mqtt", "mqtts"), "an MQTT broker, as in mqtt://localhost:1883", tls.SETTINGS)
    if len(server.hosts) > 1 or server.path:
        raise ConfigError(
            f"the URL {server.shown} must name one MQTT broker and nothing else, as in mqtt://localhost:1883"
        )
    return server
