"""The connection to a NATS server is released completely, whatever the server does."""

from __future__ import annotations

import threading

import pytest

from support.cell_places import in_parallel
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel.errors import ConnectorUnavailable


def test_an_invalid_server_is_abandoned_and_nothing_stays_open(rude):
    """The client tries again and again, and can miss that it is cancelled: many at once, so that one does."""

    def connect():
        for _ in range(2):
            with pytest.raises(ConnectorUnavailable):
                NatsConnection(f"nats://127.0.0.1:{rude}", timeout=0.2)

    in_parallel(*[connect] * 8)
    assert not [thread for thread in threading.enumerate() if thread.name.endswith(f":{rude}")]
