"""The client of paho-mqtt without two of its defects."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl

from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class PahoClient(Client):
    """paho's own client leaves the socket of a failed TLS handshake open, and waits with `select`.

    `select` takes no descriptor above 1023, so in a process with many open files paho's client connects, never sends
    anything, and connects again.
    """

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        assert self._ssl_context is not None
        secured = self._ssl_context.wrap_socket(tcp_sock, server_hostname=self._host, do_handshake_on_connect=False)
        try:
            secured.settimeout(self._connect_timeout)
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise
        return secured

    def _loop(self, timeout: float = 1.0) -> MQTTErrorCode:
        connection, woken = self.socket(), self._sockpairR
        if connection is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        pending = isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
        poll = select.poll()
        try:
            poll.register(connection, select.POLLIN | (select.POLLOUT if self.want_write() else 0))
            if woken is not None:
                poll.register(woken, select.POLLIN)
            number = connection.fileno()
            ready = dict(poll.poll(0 if pending else timeout * 1000))
        except (OSError, ValueError):  # Another thread has closed the socket.
            return MQTTErrorCode.MQTT_ERR_CONN_LOST
        write = bool(ready.get(number, 0) & select.POLLOUT)
        if pending or ready.pop(number, 0) & _READABLE:
            result = self.loop_read()
            if result or self.socket() is None:
                return result
        if ready and woken is not None:
            write = True  # `publish` wakes this thread when it has queued a packet.
            with contextlib.suppress(BlockingIOError):
                woken.recv(10_000)
        if write:
            result = self.loop_write()
            if result or self.socket() is None:
                return result
        return self.loop_misc()
