"""Waiting for a server that is not there now."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidewheel.errors import ConnectorUnavailable

_PAUSE_S = 0.1


def patiently(seconds: float, work: Callable[[float], None]) -> None:
    """Do some work, and do it again for so many seconds while it raises `ConnectorUnavailable`.

    The work gets the time, by `time.monotonic`, at which no further attempt begins. It begins anew each time, so it must do
    no harm when it is repeated.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work(deadline)
        except ConnectorUnavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)
