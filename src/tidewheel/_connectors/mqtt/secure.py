"""An MQTT client that lets go of its socket when TLS fails."""

from __future__ import annotations

import socket
import ssl

from paho.mqtt.client import Client


class SecureClient(Client):
    """The package's own client leaves the socket of a failed handshake open."""

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
