"""A time limit."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds_since_boot() -> float:
    """Return a time that never goes back and, unlike `time.monotonic`, includes time while the machine is suspended.

    If the system has no such clock, this is `time.monotonic`.
    """
    return time.clock_gettime(_CLOCK)


class Deadline:
    """A time limit, in seconds from now on the monotonic clock."""

    __slots__ = ("at",)

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, not below 0."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.at
