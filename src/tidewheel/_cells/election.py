"""Leader election, based on the lease."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from tidewheel._cells.errors import Offline
from tidewheel._cells.lease import Lease
from tidewheel._time.duration import Duration

if TYPE_CHECKING:
    from tidewheel._cells.connection import Connection

_LOOK_S = 0.2


def leader_election(
    connection: Connection, name: str, candidate: str, *, ttl: Duration = "15 s", stop: threading.Event | None = None
) -> Iterator[Lease]:
    """Yield the lease each time this candidate becomes leader; after the loop's body, become a candidate again.

    Run the body while `leadership.held`; leaving the body releases the leadership. The loop ends when `stop` is set. A
    candidate stays a candidate during outages of the backend.

        for leadership in leader_election(connection, "boss", "node-1"):
            while leadership.held:
                lead(fencing_token=leadership.token)
    """
    stop = stop or threading.Event()
    lease = Lease(connection, name, holder=candidate, ttl=ttl)
    with contextlib.closing(lease):
        while not stop.is_set():
            try:
                lease.acquire(timeout=timedelta(seconds=_LOOK_S))
            except TimeoutError:
                continue
            except Offline:
                stop.wait(_LOOK_S)
                continue
            yield lease.keep()
            lease.release()
