"""The connection to a NATS server: it is let go of whole, whatever the server does."""

from __future__ import annotations

import socket
import threading

import pytest

from cell_places import in_parallel
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel.errors import ConnectorUnavailable


@pytest.fixture
def rude():
    """A port that says something that is not NATS, and hangs up."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.sendall(b"go away\r\n")

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    serving.join()


def test_a_server_that_is_none_is_given_up_and_nothing_stays(rude):
    """The client tries again and again, and can miss that it is cancelled: many at once, so that one does."""

    def connect():
        for _ in range(2):
            with pytest.raises(ConnectorUnavailable):
                NatsConnection(f"nats://127.0.0.1:{rude}", timeout=0.2)

    in_parallel(*[connect] * 8)
    assert not [thread for thread in threading.enumerate() if thread.name.endswith(f":{rude}")]
