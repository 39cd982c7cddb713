"""Wait for conditions, because the speed of the machine is unknown."""

from __future__ import annotations

import time
from collections.abc import Callable

SOON = 180.0
"""Seconds within which something that must happen has happened, on a machine that has much else to do too."""
IN_TIME = f"{SOON:g} s"
"""The same as a duration, for what waits in the package itself."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05


def eventually(condition: Callable[[], object], what: str = "it", seconds: float = SOON) -> None:
    """Look until the condition holds; fail with the name of what did not happen."""
    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE_S)
