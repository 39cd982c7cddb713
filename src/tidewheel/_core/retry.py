"""Waiting for a server that is not there now."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidewheel.errors import ConnectorUnavailable

_PAUSE_S = 0.1


def patiently(seconds: float, work: Callable[[float], None]) -> None:
    """Do some work, given the moment at which patience ends; again, as long as the server is not there and it has not come.

    The work is done from its beginning each time, so it must be of the kind that can be done twice.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work(deadline)
        except ConnectorUnavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)
