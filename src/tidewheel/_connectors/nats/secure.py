"""A NATS client that uses TLS or does not connect."""

from __future__ import annotations

from typing import Any

from nats.aio.client import Client
from nats.errors import SecureConnRequiredError


class SecureClient(Client):
    """Sends no credentials over an unencrypted connection.

    The client of the package uses TLS only if the server asks for it, and otherwise sends the credentials unencrypted.
    """

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if info.get("tls_available"):
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        transport: Any = self._transport
        writer = transport._io_writer
        if writer.transport is None:
            # The connection was lost in the handshake. asyncio leaves a writer behind whose own finalizer would fail.
            writer._transport = transport._bare_io_writer.transport
            raise ConnectionResetError("the connection was lost in the TLS handshake")
        if writer.get_extra_info("ssl_object") is None:
            raise SecureConnRequiredError
        command: bytes = super()._connect_command()
        return command
