"""Retry while a server is unavailable."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidewheel.errors import ConnectorUnavailable

_PAUSE_S = 0.1


def patiently(seconds: float, work: Callable[[float], None]) -> None:
    """Call `work`, and repeat it for this many seconds while it raises `ConnectorUnavailable`.

    `work` receives the time, by `time.monotonic`, after which no further attempt starts. Each attempt starts from the
    beginning, so it must be safe to repeat.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work(deadline)
        except ConnectorUnavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)
