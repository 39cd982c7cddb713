"""A NATS client that requires TLS never connects without it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tidewheel._connectors.nats.secure import SecureClient


def test_a_connection_lost_in_the_handshake_causes_no_later_failure():
    async def lost() -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        # What asyncio's start_tls gives where the server hangs up in the handshake: no transport.
        writer = asyncio.StreamWriter(None, asyncio.StreamReaderProtocol(reader), reader, loop)
        bare = SimpleNamespace(transport=SimpleNamespace(is_closing=lambda: True))
        client = SecureClient()
        client._transport = SimpleNamespace(_io_writer=writer, _bare_io_writer=bare)
        with pytest.raises(ConnectionResetError, match="lost in the TLS handshake"):
            client._connect_command()
        assert writer.transport is bare.transport

    asyncio.run(lost())
